# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Step runtime: containerd or Docker Engine, configured and running, and crictl pointed at it."""

from __future__ import annotations

import json

from ansible_collections.kubenode.provision.plugins.module_utils._node.info.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.plan import Setting

from . import builders, containerd, formats, trust
from .containerd import CNI_BIN, CNI_CONF
from .plan_types import BaseInputs
from .systems import DEBIAN, FLATCAR, RHEL, bin_dir, known

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


def docker_config(inputs: BaseInputs) -> str:
    """daemon.json: systemd as cgroup driver, capped logs, containers that outlive a restart of the daemon."""
    document = {
        "exec-opts": ["native.cgroupdriver=systemd"],
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "10m", "max-file": "5"},
    }
    mirrors = [mirror["url"] for mirror in inputs["registry_mirrors"].get("docker.io", [])]
    if mirrors:
        document["registry-mirrors"] = mirrors
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def shim_unit(node: Node, inputs: BaseInputs) -> str:
    """cri-docker.service."""
    image = formats.systemd_word("--pod-infra-container-image=" + inputs["sandbox_image"])
    return _SHIM_UNIT % {"bin": bin_dir(node, inputs), "image": image, "cni_bin": CNI_BIN, "cni_conf": CNI_CONF}


_DOCKER_DROP_IN = """\
[Unit]
StartLimitIntervalSec=0

[Service]
Restart=always
OOMScoreAdjust=-500
"""

_SHIM_UNIT = """\
[Unit]
Description=CRI for Docker Engine
Documentation=https://mirantis.github.io/cri-dockerd
After=network-online.target docker.service cri-docker.socket
Wants=network-online.target
Requires=docker.service cri-docker.socket
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%(bin)s/cri-dockerd --container-runtime-endpoint=fd:// --network-plugin=cni --cni-bin-dir=%(cni_bin)s \
--cni-conf-dir=%(cni_conf)s %(image)s
ExecReload=/bin/kill -s HUP $MAINPID
Restart=always
RestartSec=2
LimitNPROC=infinity
LimitCORE=infinity
LimitNOFILE=1048576
TasksMax=infinity
Delegate=yes
KillMode=process

[Install]
WantedBy=multi-user.target
"""
_SHIM_SOCKET = (
    """\
[Unit]
Description=Socket of the CRI for Docker Engine
PartOf=cri-docker.service

[Socket]
ListenStream=%s
SocketMode=0660
SocketUser=root
SocketGroup=root

[Install]
WantedBy=sockets.target
"""
    % DOCKER_SOCKET
)


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
    crictl = "".join(
        "%s: %s\n" % pair
        for pair in (
            ("runtime-endpoint", "unix://" + socket(inputs)),
            ("image-endpoint", "unix://" + socket(inputs)),
            ("timeout", "10"),
        )
    )
    result = [builders.file("runtime/crictl", "/etc/crictl.yaml", builders.HEADER + crictl)]
    return result + (_docker(node, inputs) if inputs["container_runtime"] == "docker" else _containerd(node, inputs))


def _containerd(node: Node, inputs: BaseInputs) -> list[Setting]:
    text = builders.HEADER + formats.toml_document(containerd.config(node, inputs))
    result = [
        builders.directory("runtime/certs-dir", containerd.CERTS_DIR),
        builders.file("runtime/config", containerd.CONFIG, text),
        *containerd.registry_files(inputs),
    ]
    if inputs["containerd_source"] == "tarball":
        path = builders.UNIT_DIR + "/containerd.service"
        result.append(builders.file("runtime/unit", path, builders.HEADER + containerd.unit(node, inputs)))
    elif ((node.get("base") or {}).get("runtime") or {}).get("source") == "tarball":
        # what an earlier run wrote would hide the unit of the package
        result.append(builders.absent("runtime/unit", builders.UNIT_DIR + "/containerd.service"))
    result.append(
        builders.drop_in("runtime/drop-in", "containerd.service", "10-kubenode.conf", containerd.drop_in(node, inputs))
    )
    restart = ["runtime/config", "runtime/unit", "runtime/drop-in", _PROXY % "containerd", "artifact:containerd"]
    result.append(_running("containerd.service", inputs, restart))
    return result


def _docker(node: Node, inputs: BaseInputs) -> list[Setting]:
    result = [
        builders.file("runtime/config", DOCKER_CONFIG, docker_config(inputs)),
        builders.drop_in("runtime/drop-in", "docker.service", "10-kubenode.conf", _DOCKER_DROP_IN),
        builders.file("runtime/cri-socket", builders.UNIT_DIR + "/cri-docker.socket", builders.HEADER + _SHIM_SOCKET),
        builders.file(
            "runtime/cri-unit", builders.UNIT_DIR + "/cri-docker.service", builders.HEADER + shim_unit(node, inputs)
        ),
    ]
    result.append(_running("docker.service", inputs, ["runtime/config", "runtime/drop-in", _PROXY % "docker"]))
    result.append(builders.unit("runtime/cri-socket-unit", "cri-docker.socket", enabled=True, state="started"))
    restart = ["runtime/cri-unit", "runtime/cri-socket", _PROXY % "cri-docker", "artifact:cri-dockerd"]
    result.append(_running("cri-docker.service", inputs, restart))
    return result


def _running(name: str, inputs: BaseInputs, restart: list[str]) -> Setting:
    restart = [*restart, *trust.ids(inputs)]
    identity = "runtime/" + name.partition(".")[0] + "-unit"
    return builders.unit(identity, name, enabled=True, masked=False, state="started", restart_on=restart)
