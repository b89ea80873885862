# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Step runtime: containerd or Docker Engine, configured and running, and crictl pointed at it."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value
from ansible_collections.kubenode.provision.plugins.module_utils._node.info.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import builders, containerd, formats, templates, trust
from .containerd import CNI_BIN, CNI_CONF
from .plan_types import BaseInputs
from .systems import AMAZON, DEBIAN, FLATCAR, RHEL, bin_dir, known

DOCKER_CONFIG = "/etc/docker/daemon.json"
DOCKER_SOCKET = "/run/cri-dockerd.sock"


def docker_packages(node: Node, inputs: BaseInputs) -> list[str]:
    """Packages that bring Docker Engine; nothing on Flatcar, which has it."""
    system = known(node)
    if system.family == FLATCAR:
        return []
    if docker_from_repository(node, inputs):
        return ["docker-ce", "docker-ce-cli", "containerd.io"]
    if node["os"]["id"] == "debian" and node["os"].get("version_id") != "12":
        # Debian 13 took the command line out of docker.io; node_images needs it
        return [system.docker_package, "docker-cli"]
    return [system.docker_package] if system.docker_package else []


def docker_from_repository(node: Node, inputs: BaseInputs) -> bool:
    """Whether Docker Engine comes from Docker's own repository."""
    return inputs["containerd_source"] == "repository" and known(node).family in (DEBIAN, RHEL)


#: settings of other steps that a daemon reads only when it starts
_PROXY = "proxy/%s"


def socket(inputs: BaseInputs) -> str:
    """Path of the CRI socket."""
    return DOCKER_SOCKET if inputs["container_runtime"] == "docker" else containerd.SOCKET


def units(inputs: BaseInputs) -> list[str]:
    """The runtime's units, the one the kubelet waits for last."""
    return (
        ["docker.service", "cri-docker.service"] if inputs["container_runtime"] == "docker" else ["containerd.service"]
    )


def runtime(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Files first, then the units."""
    result = [_from_template("runtime/crictl", "/etc/crictl.yaml", "crictl.yaml.j2", node, inputs)]
    return result + (_docker(node, inputs) if inputs["container_runtime"] == "docker" else _containerd(node, inputs))


def _from_template(identity: str, path: str, template: str, node: Node, inputs: BaseInputs) -> Setting:
    text = templates.render(
        "base",
        template,
        inputs,
        node=node,
        bin_dir=bin_dir(node, inputs),
        cni_bin=CNI_BIN,
        cni_conf=CNI_CONF,
        config=containerd.CONFIG,
        # Flatcar's own unit of containerd reads the file that this variable names
        config_by_environment=(
            known(node).family not in (DEBIAN, RHEL, AMAZON) and inputs["containerd_source"] == "distribution"
        ),
        mirrors=[mirror["url"] for mirror in inputs["registry_mirrors"].get("docker.io", [])],
        socket=socket(inputs),
    )
    return builders.file(identity, path, text)


def _containerd(node: Node, inputs: BaseInputs) -> list[Setting]:
    text = builders.HEADER + formats.toml_document(containerd.config(node, inputs))
    unit = builders.UNIT_DIR + "/containerd.service"
    result = [
        builders.directory("runtime/certs-dir", containerd.CERTS_DIR),
        builders.file("runtime/config", containerd.CONFIG, text),
        *containerd.registry_files(inputs),
    ]
    if inputs["containerd_source"] == "tarball":
        result.append(_from_template("runtime/unit", unit, "containerd.service.j2", node, inputs))
    elif ((node.get("base") or {}).get("runtime") or {}).get("source") == "tarball":
        # what an earlier run wrote would hide the unit of the package
        result.append(builders.absent("runtime/unit", unit))
    result.append(_drop_in("containerd.service", "containerd-drop-in.conf.j2", node, inputs))
    restart = ["runtime/config", "runtime/unit", "runtime/drop-in", _PROXY % "containerd", "artifact:containerd"]
    return result + _running("containerd.service", node, inputs, restart)


def _drop_in(unit: str, template: str, node: Node, inputs: BaseInputs) -> Setting:
    path = f"{builders.UNIT_DIR}/{unit}.d/10-kubenode.conf"
    return _from_template("runtime/drop-in", path, template, node, inputs)


def _docker(node: Node, inputs: BaseInputs) -> list[Setting]:
    shim = builders.UNIT_DIR + "/cri-docker"
    # systemd as cgroup driver, capped logs, containers that outlive a restart of the daemon
    config = _from_template("runtime/config", DOCKER_CONFIG, "docker-daemon.json.j2", node, inputs)
    try:
        json_value(config["content"])
    except ValueError as error:
        raise templates.TemplateFailed(f"base_template_path: docker-daemon.json.j2: no JSON: {error}") from error
    result = [
        config,
        _drop_in("docker.service", "docker-drop-in.conf.j2", node, inputs),
        _from_template("runtime/cri-socket", shim + ".socket", "cri-docker.socket.j2", node, inputs),
        _from_template("runtime/cri-unit", shim + ".service", "cri-docker.service.j2", node, inputs),
    ]
    result += _running("docker.service", node, inputs, ["runtime/config", "runtime/drop-in", _PROXY % "docker"])
    result.append(builders.unit("runtime/cri-socket-unit", "cri-docker.socket", enabled=True, state="started"))
    restart = ["runtime/cri-unit", "runtime/cri-socket", _PROXY % "cri-docker", "artifact:cri-dockerd"]
    return result + _running("cri-docker.service", node, inputs, restart)


def _running(name: str, node: Node, inputs: BaseInputs, restart: list[str]) -> list[Setting]:
    """The user's drop-ins of a unit, then the unit, restarted for these and for what ``restart`` names."""
    drop_ins = builders.users_drop_ins("runtime", name, node, inputs)
    restart = [*restart, *trust.ids(inputs), *(item["id"] for item in drop_ins)]
    identity = "runtime/" + name.partition(".")[0] + "-unit"
    unit = builders.unit(identity, name, enabled=True, masked=False, state="started", restart_on=restart)
    return [*drop_ins, unit]
