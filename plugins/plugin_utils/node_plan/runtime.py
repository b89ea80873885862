# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Step runtime: containerd or Docker Engine, configured and running, and crictl pointed at it."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import base_inputs, plan_types, systems, templates, trust
from .plan_types import BaseInputs
from .systems import AMAZON, DEBIAN, FLATCAR, RHEL, bin_dir, known

CONFIG = "/etc/containerd/config.toml"
CERTS_DIR = "/etc/containerd/certs.d"
SOCKET = "/run/containerd/containerd.sock"
CNI_BIN = "/opt/cni/bin"
CNI_CONF = "/etc/cni/net.d"
#: Servers of the daemon, which are plugins (io.containerd.server.v1.…) in schema 4.
_SERVERS = ("grpc", "ttrpc", "metrics")
_SOCKET = {"address", "uid", "gid"}
#: where Debian's own package of CNI plugins puts them; containerd ≥ 2.1 takes several folders
_DEBIAN_CNI = "/usr/lib/cni"


def containerd_version(node: Node, inputs: BaseInputs) -> str:
    """Version of the containerd that runs after base: asked for, installed, candidate, or the release's own."""
    if inputs["containerd_source"] == "tarball":
        return inputs["containerd_version"]
    package = containerd_package(node, inputs)
    if package and inputs["containerd_wanted"]:
        return inputs["containerd_wanted"]
    for table in (node.get("packages") or {}, node.get("candidates") or {}):
        found = systems.plain_version(table.get(package) or "") if package else ""
        if found:
            return found
    if not package:
        binary = node.get("binaries", {}).get("containerd")
        found = systems.plain_version(binary["version"]) if binary else ""
        if found:
            return found
    if inputs["containerd_source"] == "repository":
        return inputs["containerd_wanted"] or "2.2.0"
    return known(node).containerd


def containerd_package(node: Node, inputs: BaseInputs) -> str:
    """Package that brings containerd, "" when none does (tarball, Flatcar's own, no such package)."""
    family = known(node).family
    if inputs["containerd_source"] == "repository":
        return "containerd.io" if family in (DEBIAN, RHEL) else ""
    if inputs["containerd_source"] == "distribution":
        return "containerd" if family in (DEBIAN, AMAZON) else ""
    return ""


def containerd_schema(text: str, tables: Mapping[str, Any]) -> int:
    """Schema of the configuration file, which later versions read as well: 2 for containerd 1, 3 for 2.0, 4 for 2.3.

    ``tables``: the user's. Some are of schema 3 alone; containerd itself then reads them as schema 4.
    """
    found = systems.numbers(text)
    if found is None:
        raise ValueError(
            "nothing brings containerd to this machine; set base_containerd_source to tarball or repository"
        )
    if found[0] < 2:
        return 2
    return 4 if found >= (2, 3, 0) and not _of_schema_3(tables) else 3


def _of_schema_3(tables: Mapping[str, Any]) -> bool:
    debug = tables.get("debug")
    return any(name in tables for name in _SERVERS) or (isinstance(debug, dict) and bool(_SOCKET & set(debug)))


def containerd_config(node: Node, inputs: BaseInputs) -> dict[str, Any]:
    """The document of config.toml: what the template says, with the user's tables merged over it."""
    running = containerd_version(node, inputs)
    selinux = inputs["selinux"] == "enforcing" or (
        inputs["selinux"] == "unmanaged" and node.get("selinux") == "enforcing"
    )
    schema = containerd_schema(running, inputs["containerd_config"])
    several = schema > 2 and systems.release_numbers(running) >= (2, 1, 0)
    text = templates.render(
        "base",
        "containerd-config.toml.j2",
        inputs,
        node=node,
        schema=schema,
        certs_dir=CERTS_DIR,
        cni_bin=CNI_BIN,
        cni_conf=CNI_CONF,
        cni_folders=[CNI_BIN, *([_DEBIAN_CNI] if known(node).family == DEBIAN else [])] if several else [],
        # a system without SELinux has no labels to give
        selinux=selinux and node.get("selinux") in ("enforcing", "permissive"),
    )
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise templates.TemplateFailed(f"base_template_path: containerd-config.toml.j2: no TOML: {error}") from error
    return templates.merged(document, inputs["containerd_config"])


_REGISTRY_SERVERS = {"docker.io": "https://registry-1.docker.io"}


def registry_files(node: Node, inputs: BaseInputs) -> list[Setting]:
    """One hosts.toml for each registry, and the CA files it names. A file with credentials is secret and 0600.

    The hosts.toml of an earlier run goes with its registry.
    """
    result = []
    for host, mirrors in inputs["registry_mirrors"].items():
        folder = f"{CERTS_DIR}/{host}"
        result.append(plan_types.directory("runtime/certs-dir-" + host, folder))
        secret = any(_header(mirror) for mirror in mirrors)
        blocks = (
            []
            if host == "_default"
            else [f"server = {templates.toml_string(_REGISTRY_SERVERS.get(host, 'https://' + host))}\n"]
        )
        for mirror in mirrors:
            authorities, cas = [], mirror.get("ca") or ""
            if cas.startswith("/"):
                authorities = [cas]
            for certificate in trust.certificates(cas):
                path = f"{folder}/ca-{trust.certificate_name(certificate)}.crt"
                authorities.append(path)
                result.append(
                    plan_types.file(f"runtime/certs-ca-{host}-{trust.certificate_name(certificate)}", path, certificate)
                )
            blocks.append(_block(mirror, authorities))
        content = plan_types.HEADER + "\n".join(blocks)
        path = folder + "/hosts.toml"
        result.append(plan_types.file("runtime/certs-" + host, path, content, secret=secret))
    for host in (node.get("base") or {}).get("registry_mirrors") or []:
        if base_inputs.is_registry(host) and host not in inputs["registry_mirrors"]:
            path = f"{CERTS_DIR}/{host}/hosts.toml"
            result.append(plan_types.absent("runtime/certs-" + host, path, begins=plan_types.HEADER))
    # two mirrors of one registry may share a CA
    return list({item["id"]: item for item in result}.values())


def _header(mirror: Mapping[str, Any]) -> dict[str, Any]:
    header = dict(mirror.get("header") or {})
    if mirror.get("username"):
        pair = f"{mirror['username']}:{mirror['password']}"
        header["Authorization"] = "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")
    return header


def _block(mirror: Mapping[str, Any], authorities: list[str]) -> str:
    name = f"host.{templates.toml_string(mirror['url'].rstrip('/'))}"
    lines = [f"[{name}]", f"  capabilities = {templates.toml_value(['pull', 'resolve'])}"]
    if authorities:
        lines.append(f"  ca = {templates.toml_value(authorities)}")
    for field in ("skip_verify", "override_path"):
        if mirror.get(field):
            lines.append(f"  {field} = true")
    header = _header(mirror)
    if header:
        lines.append(f"  [{name}.header]")
        lines += [f"    {templates.toml_key(key)} = {templates.toml_value(value)}" for key, value in header.items()]
    return "\n".join(lines) + "\n"


# --- the step


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


def socket(inputs: BaseInputs) -> str:
    """Path of the CRI socket."""
    return DOCKER_SOCKET if inputs["container_runtime"] == "docker" else SOCKET


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
        config=CONFIG,
        # Flatcar's own unit of containerd reads the file that this variable names
        config_by_environment=(
            known(node).family not in (DEBIAN, RHEL, AMAZON) and inputs["containerd_source"] == "distribution"
        ),
        mirrors=[mirror["url"] for mirror in inputs["registry_mirrors"].get("docker.io", [])],
        socket=socket(inputs),
    )
    return plan_types.file(identity, path, text)


def _containerd(node: Node, inputs: BaseInputs) -> list[Setting]:
    text = plan_types.HEADER + templates.toml_document(containerd_config(node, inputs))
    unit = plan_types.UNIT_DIR + "/containerd.service"
    result = [
        plan_types.directory("runtime/certs-dir", CERTS_DIR),
        plan_types.file("runtime/config", CONFIG, text),
        *registry_files(node, inputs),
    ]
    if inputs["containerd_source"] == "tarball":
        result.append(_from_template("runtime/unit", unit, "containerd.service.j2", node, inputs))
    elif ((node.get("base") or {}).get("runtime") or {}).get("source") == "tarball":
        # what an earlier run wrote would hide the unit of the package
        result.append(plan_types.absent("runtime/unit", unit, shown=True))
    result.append(_drop_in("containerd.service", "containerd-drop-in.conf.j2", node, inputs))
    restart = ["runtime/config", "runtime/unit", "runtime/drop-in", "proxy/containerd", "artifact:containerd"]
    return result + _running("containerd.service", node, inputs, restart)


def _drop_in(unit: str, template: str, node: Node, inputs: BaseInputs) -> Setting:
    path = f"{plan_types.UNIT_DIR}/{unit}.d/10-kubenode.conf"
    return _from_template("runtime/drop-in", path, template, node, inputs)


def _docker(node: Node, inputs: BaseInputs) -> list[Setting]:
    shim = plan_types.UNIT_DIR + "/cri-docker"
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
    result += _running("docker.service", node, inputs, ["runtime/config", "runtime/drop-in", "proxy/docker"])
    result.append(plan_types.unit("runtime/cri-socket-unit", "cri-docker.socket", enabled=True, state="started"))
    restart = ["runtime/cri-unit", "runtime/cri-socket", "proxy/cri-docker", "artifact:cri-dockerd"]
    return result + _running("cri-docker.service", node, inputs, restart)


def _running(name: str, node: Node, inputs: BaseInputs, restart: list[str]) -> list[Setting]:
    """The user's drop-ins of a unit, then the unit, restarted for these and for what ``restart`` names."""
    drop_ins = plan_types.users_drop_ins("runtime", name, node, inputs)
    restart = [*restart, *trust.ids(inputs), *(item["id"] for item in drop_ins)]
    identity = "runtime/" + name.partition(".")[0] + "-unit"
    unit = plan_types.unit(identity, name, enabled=True, masked=False, state="started", restart_on=restart)
    return [*drop_ins, unit]
