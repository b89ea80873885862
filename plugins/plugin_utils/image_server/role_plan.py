# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role image_server does on a machine: queries, refusals, downloads and settings (pure)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets as random
from collections.abc import Mapping
from typing import Any

from . import machine_paths, pack_program, role_inputs, service_unit
from .role_inputs import RoleInputs

PACKAGES = ("python3-httptools", "python3-yaml")
_LEAST_SYSTEMD = 247  # LoadCredential, ProcSubset
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
#: Files that the running service reads again at a reload, without cutting a connection.
_RELOADED = ("tls_key", "tls_certificate")
_PROGRAM = re.compile(re.escape(machine_paths.PROGRAMS) + r"/[0-9a-f]{16}\.pyz")
_BASE = re.compile(re.escape(machine_paths.BASES) + r"/coreos(_[a-z0-9_]+)?\.(iso|initramfs)")
_FETCHED = re.compile(r"image-server-[a-z0-9_]+-(iso|initramfs)")
_GROUPED = {"owner": "root", "group": machine_paths.USER}
Facts = Mapping[str, Any]


def queries() -> dict[str, list[str]]:
    """Options for node_info."""
    return {"packages": list(PACKAGES), "files": [machine_paths.RECORD, machine_paths.UNIT_FILE]}


def refusals(inputs: RoleInputs, node: Facts) -> list[str]:
    """Why this machine cannot become an image server; a line each."""
    found = []
    if node["uid"] != 0:
        found.append(f"the role needs the rights of root, but tasks run as user id {node['uid']}; set become: true")
    if not node["systemd"] or node["systemd"] < _LEAST_SYSTEMD:
        found.append(f"systemd is {node['systemd'] or 'absent'}; the service needs {_LEAST_SYSTEMD} or newer")
    if inputs["state"] == "absent":
        return found
    if not inputs["python"]:
        if node["package_manager"] != "apt":
            found.append(
                f"the machine's package manager is {node['package_manager']}, whose distributions do not package both"
                f" {' and '.join(PACKAGES)}; make a Python 3.8 or newer with httptools and PyYAML, and name it in"
                " image_server_python (such as /opt/image-server/bin/python3)"
            )
        elif not inputs["manage_packages"] and missing(inputs, node, True):
            found.append(
                f"{', '.join(missing(inputs, node, True))} not installed, and image_server_manage_packages is false;"
                " install what is missing"
            )
    if inputs["agent_image"] and own_architecture(inputs, node) not in inputs["bases"]:
        found.append(
            f"image_server_bases has {', '.join(sorted(inputs['bases']))}, and the hosts' images are made of that for"
            f" {own_architecture(inputs, node)}; add it, or name another one in image_server_architecture"
        )
    if not inputs["publish_addr"] and not _address(node):
        found.append("the machine has no default route; give the URL it is reached by in image_server_publish_addr")
    return found


def missing(inputs: RoleInputs, node: Facts, even_unmanaged: bool = False) -> list[str]:
    """Debian packages that are to be installed."""
    if inputs["python"] or not (inputs["manage_packages"] or even_unmanaged):
        return []
    return [name for name in PACKAGES if not node["packages"].get(name)]


def own_architecture(inputs: RoleInputs, node: Facts) -> str:
    """The architecture whose base images are made of unless a host names another."""
    return str(inputs["architecture"] or _ARCHITECTURES.get(node["arch"], node["arch"]))


def url(inputs: RoleInputs, node: Facts) -> str:
    """Where machines find the images, without a slash at the end."""
    if inputs["publish_addr"]:
        return str(inputs["publish_addr"]).rstrip("/")
    host, port = role_inputs.address(inputs["bind_addr"])
    host = host or _address(node)
    scheme = "https" if inputs["tls_key"] else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def artifacts(inputs: RoleInputs) -> list[dict[str, Any]]:
    """The bases to fetch, as node_artifacts takes them."""
    return [
        {
            "name": _artifact(arch, kind),
            "version": source["sha256"][:12],
            "url": source["url"],
            "sha256": source["sha256"],
            "kind": "binary",
            "install": [{"path": machine_paths.base(kind, arch), "mode": "0644"}],
        }
        for arch, kind, source in _sources(inputs)
        if "url" in source
    ]


def settings(inputs: RoleInputs, node: Facts, record: Facts) -> list[dict[str, Any]]:
    """What node_settings is to bring about. ``record``: what an earlier run wrote down, empty at the first."""
    if inputs["state"] == "absent":
        return _absent(record)
    content = pack_program.program_bytes(inputs["python"] or pack_program.PYTHON)
    here = f"{machine_paths.PROGRAMS}/{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    mine, files, record = _record(inputs, node, here), _configuration(inputs, node), _believed(record)
    found = [
        *(
            _directory(path)
            for path in (
                machine_paths.CONFIG,
                machine_paths.DATA,
                machine_paths.BASES,
                machine_paths.NMSTATE,
                machine_paths.OVERLAYS,
            )
        ),
        _file("program", here, "0755", content_b64=base64.b64encode(content).decode("ascii")),
        {"id": "launcher", "step": "program", "kind": "link", "path": machine_paths.LAUNCHER, "target": here},
        *files,
        _file("unit", machine_paths.UNIT_FILE, "0644", content=service_unit.unit(inputs, here, url(inputs, node))),
        # before what it names: a run that is cut off leaves nothing that no record names
        *_outdated(record, mine),
        _file("record", machine_paths.RECORD, "0644", content=json.dumps(mine, indent=1, sort_keys=True) + "\n"),
        *_links(inputs, node),
        *(
            _file(f"host/{name}", machine_paths.host(name), "0640", content=text, **_GROUPED)
            for name, text in sorted(inputs["documents"].items())
        ),
        *(
            _file(f"host/{name}", machine_paths.host(name), "0640", content_secret=f"host/{name}", **_GROUPED)
            for name in sorted(inputs["own"])
        ),
    ]
    if inputs["firewall"] == "open":
        ports = [f"{role_inputs.address(inputs['bind_addr'])[1]}/tcp"]
        found.append({"id": "firewall", "step": "firewall", "kind": "firewall", "ports": ports})
    found.append(
        {
            "id": "service",
            "step": "service",
            "kind": "unit",
            "name": machine_paths.UNIT,
            "enabled": True,
            "state": "started",
            "restart_on": [
                "program",
                "unit",
                *(item["id"] for item in files if item["id"] not in _RELOADED),
                "packages",
            ],
            "reload_on": list(_RELOADED),
            "wait": 150,
        }
    )
    # last, since the running one may still read it
    return [*found, *([_gone("program/old", record["program"])] if record["program"] not in ("", here) else [])]


def secrets(inputs: RoleInputs, node: Facts) -> dict[str, str]:
    """Contents of the files that are shown nowhere; a naming secret of the server's own is new at each call."""
    if inputs["state"] == "absent":
        return {}
    found = {name: inputs[name] for name in ("pull_secret", "tls_key") if inputs[name]}
    found.update((f"host/{name}", text) for name, text in inputs["own"].items())
    if _hidden(inputs):
        found["environment"] = service_unit.environment(inputs, own_architecture(inputs, node))
    return {**found, "secret": (inputs["secret"] or random.token_hex(32)) + "\n"}


def _configuration(inputs: RoleInputs, node: Facts) -> list[dict[str, Any]]:
    """Files that the service reads at its start; those of features that are off are removed."""
    secret = {"content_secret": "secret", "create_only": not inputs["secret"]}
    found = [_file("secret", machine_paths.SECRET, "0600", **secret)]
    environment = service_unit.environment(inputs, own_architecture(inputs, node))
    shown = {"content_secret": "environment"} if _hidden(inputs) else {"content": environment}
    found.append(_file("environment", machine_paths.ENVIRONMENT, "0600", **shown))
    values: Mapping[str, object] = inputs
    for name, path, mode, content in (
        ("pull_secret", machine_paths.PULL_SECRET, "0600", {"content_secret": "pull_secret"}),
        # no credential of systemd, which the service would see a new one of only after a restart
        ("tls_key", machine_paths.TLS_KEY, "0640", {"content_secret": "tls_key", **_GROUPED}),
        ("tls_certificate", machine_paths.TLS_CERTIFICATE, "0644", {"content": inputs["tls_certificate"]}),
        ("registries_conf", machine_paths.REGISTRIES, "0640", {"content": inputs["registries_conf"], **_GROUPED}),
        ("ca_bundle", machine_paths.CA_BUNDLE, "0640", {"content": inputs["ca_bundle"], **_GROUPED}),
    ):
        found.append(_file(name, path, mode, **content) if values[name] else _gone(name, path))
    return found


def _hidden(inputs: RoleInputs) -> bool:
    """Whether the environment holds the password of a proxy."""
    return any("@" in inputs[name] for name in ("http_proxy", "https_proxy"))


def _record(inputs: RoleInputs, node: Facts, here: str) -> dict[str, Any]:
    usual = inputs["bases"].get(own_architecture(inputs, node), {})
    return {
        "program": here,
        "hosts": sorted([*inputs["documents"], *inputs["own"]]),
        "bases": sorted(
            [
                *(machine_paths.base(kind) for kind in usual),
                *(machine_paths.base(kind, arch) for arch, kind, _from in _sources(inputs)),
            ]
        ),
        "fetched": sorted(_artifact(arch, kind) for arch, kind, source in _sources(inputs) if "url" in source),
    }


def _outdated(record: Facts, mine: Facts) -> list[dict[str, Any]]:
    """What an earlier run wrote and this one does not want: documents, bases, records of downloads."""
    hosts = sorted(set(record["hosts"]) - set(mine["hosts"]))
    files = sorted(set(record["bases"]) - set(mine["bases"]))
    fetched = sorted(set(record["fetched"]) - set(mine["fetched"]))
    return [
        *(_gone(f"host/{name}", machine_paths.host(name)) for name in hosts),
        *(_gone(f"base/{path.rpartition('/')[2]}", path) for path in files),
        *(_gone(f"fetched/{name}", f"{machine_paths.ARTIFACTS}/{name}.json") for name in fetched),
    ]


def _believed(record: Facts) -> dict[str, Any]:
    """The record with only what this role writes, so that the role removes nothing else because of it."""
    given = {name: record.get(name) for name in ("hosts", "bases", "fetched")}
    parts = {name: found if isinstance(found, list) else [] for name, found in given.items()}
    here = str(record.get("program", ""))
    return {
        "program": here if _PROGRAM.fullmatch(here) else "",
        "hosts": [name for name in parts["hosts"] if role_inputs.is_host_file(name)],
        "bases": [path for path in parts["bases"] if _BASE.fullmatch(str(path))],
        "fetched": [name for name in parts["fetched"] if _FETCHED.fullmatch(str(name))],
    }


def _absent(record: Facts) -> list[dict[str, Any]]:
    record = _believed(record)
    service = {"id": "service", "step": "service", "kind": "unit", "name": machine_paths.UNIT, "optional": True}
    files = {
        "unit": machine_paths.UNIT_FILE,
        "launcher": machine_paths.LAUNCHER,
        "environment": machine_paths.ENVIRONMENT,
        "secret": machine_paths.SECRET,
        "pull_secret": machine_paths.PULL_SECRET,
        "tls_key": machine_paths.TLS_KEY,
        "tls_certificate": machine_paths.TLS_CERTIFICATE,
        "registries_conf": machine_paths.REGISTRIES,
        "ca_bundle": machine_paths.CA_BUNDLE,
        "digests": machine_paths.DIGESTS,
    }
    if record["program"]:
        files["program"] = record["program"]
    nothing: dict[str, Any] = {"hosts": [], "bases": [], "fetched": []}
    return [
        {**service, "state": "stopped", "enabled": False},
        *(_gone(name, path) for name, path in files.items()),
        *_outdated(record, nothing),
        _gone("record", machine_paths.RECORD),
    ]


def _links(inputs: RoleInputs, node: Facts) -> list[dict[str, Any]]:
    """Bases that are on the machine already, and which of all the usual ones are."""
    own = own_architecture(inputs, node)
    found = {
        machine_paths.base(kind, arch): source["path"] for arch, kind, source in _sources(inputs) if "path" in source
    }
    found.update(
        {machine_paths.base(kind): machine_paths.base(kind, own) for kind in sorted(inputs["bases"].get(own, {}))}
    )
    return [
        {"id": f"base/{path.rpartition('/')[2]}", "step": "base", "kind": "link", "path": path, "target": target}
        for path, target in found.items()
    ]


def _sources(inputs: RoleInputs) -> list[tuple[str, str, Mapping[str, str]]]:
    return [(arch, kind, files[kind]) for arch, files in sorted(inputs["bases"].items()) for kind in sorted(files)]


def _artifact(arch: str, kind: str) -> str:
    return f"image-server-{arch}-{kind}"


def _address(node: Facts) -> str:
    """The address of the default route, version 4 first; empty when there is none."""
    for family in ("4", "6"):
        route = node["network"]["default"].get(family)
        if route:
            return str(route["address"])
    return ""


def _directory(path: str) -> dict[str, Any]:
    return {"id": f"folder{path}", "step": "folders", "kind": "directory", "path": path, "mode": "0750", **_GROUPED}


def _file(name: str, path: str, mode: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "step": name.partition("/")[0], "kind": "file", "path": path, "mode": mode, **more}


def _gone(name: str, path: str) -> dict[str, Any]:
    return {"id": name, "step": name.partition("/")[0], "kind": "absent", "path": path}
