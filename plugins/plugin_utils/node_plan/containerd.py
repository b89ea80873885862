# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd: its version, configuration, unit and registry mirrors."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._node.info.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import builders, formats, templates, trust, versions
from .plan_types import BaseInputs
from .systems import AMAZON, DEBIAN, RHEL, known

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


def version(node: Node, inputs: BaseInputs) -> str:
    """Version of the containerd that runs after base: asked for, installed, candidate, or the release's own."""
    if inputs["containerd_source"] == "tarball":
        return inputs["containerd_version"]
    package = package_name(node, inputs)
    if package and inputs["containerd_wanted"]:
        return inputs["containerd_wanted"]
    for table in (node.get("packages") or {}, node.get("candidates") or {}):
        found = versions.plain(table.get(package) or "") if package else ""
        if found:
            return found
    if not package:
        binary = node.get("binaries", {}).get("containerd")
        found = versions.plain(binary["version"]) if binary else ""
        if found:
            return found
    if inputs["containerd_source"] == "repository":
        return inputs["containerd_wanted"] or "2.2.0"
    return known(node).containerd


def package_name(node: Node, inputs: BaseInputs) -> str:
    """Package that brings containerd, "" when none does (tarball, Flatcar's own, no such package)."""
    family = known(node).family
    if inputs["containerd_source"] == "repository":
        return "containerd.io" if family in (DEBIAN, RHEL) else ""
    if inputs["containerd_source"] == "distribution":
        return "containerd" if family in (DEBIAN, AMAZON) else ""
    return ""


def schema(text: str, tables: Mapping[str, Any]) -> int:
    """Schema of the configuration file, which later versions read as well: 2 for containerd 1, 3 for 2.0, 4 for 2.3.

    ``tables``: the user's. Some are of schema 3 alone; containerd itself then reads them as schema 4.
    """
    found = versions.numbers(text)
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


def config(node: Node, inputs: BaseInputs) -> dict[str, Any]:
    """The document of config.toml: what the template says, with the user's tables merged over it."""
    running = version(node, inputs)
    selinux = inputs["selinux"] == "enforcing" or (
        inputs["selinux"] == "unmanaged" and node.get("selinux") == "enforcing"
    )
    schema_ = schema(running, inputs["containerd_config"])
    several = schema_ > 2 and versions.release(running) >= (2, 1, 0)
    text = templates.render(
        "base",
        "containerd-config.toml.j2",
        inputs,
        node=node,
        schema=schema_,
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
    return formats.merged(document, inputs["containerd_config"])


_REGISTRY_SERVERS = {"docker.io": "https://registry-1.docker.io"}


def registry_files(inputs: BaseInputs) -> list[Setting]:
    """One hosts.toml for each registry, and the CA files it names. A file with credentials is secret and 0600."""
    result = []
    for host, mirrors in inputs["registry_mirrors"].items():
        folder = f"{CERTS_DIR}/{host}"
        result.append(builders.directory("runtime/certs-dir-" + host, folder))
        secret = any(_header(mirror) for mirror in mirrors)
        blocks = (
            []
            if host == "_default"
            else [f"server = {formats.toml_string(_REGISTRY_SERVERS.get(host, 'https://' + host))}\n"]
        )
        for mirror in mirrors:
            authorities, cas = [], mirror.get("ca") or ""
            if cas.startswith("/"):
                authorities = [cas]
            for certificate in trust.certificates(cas):
                path = f"{folder}/ca-{trust.certificate_name(certificate)}.crt"
                authorities.append(path)
                result.append(
                    builders.file(f"runtime/certs-ca-{host}-{trust.certificate_name(certificate)}", path, certificate)
                )
            blocks.append(_block(mirror, authorities))
        content = builders.HEADER + "\n".join(blocks)
        path = folder + "/hosts.toml"
        result.append(builders.file("runtime/certs-" + host, path, content, "0600" if secret else "0644", secret))
    # two mirrors of one registry may share a CA
    return list({item["id"]: item for item in result}.values())


def _header(mirror: Mapping[str, Any]) -> dict[str, Any]:
    header = dict(mirror.get("header") or {})
    if mirror.get("username"):
        pair = f"{mirror['username']}:{mirror['password']}"
        header["Authorization"] = "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")
    return header


def _block(mirror: Mapping[str, Any], authorities: list[str]) -> str:
    name = f"host.{formats.toml_string(mirror['url'].rstrip('/'))}"
    lines = [f"[{name}]", f"  capabilities = {formats.toml_value(['pull', 'resolve'])}"]
    if authorities:
        lines.append(f"  ca = {formats.toml_value(authorities)}")
    for field in ("skip_verify", "override_path"):
        if mirror.get(field):
            lines.append(f"  {field} = true")
    header = _header(mirror)
    if header:
        lines.append(f"  [{name}.header]")
        lines += [f"    {formats.toml_key(key)} = {formats.toml_value(value)}" for key, value in header.items()]
    return "\n".join(lines) + "\n"
