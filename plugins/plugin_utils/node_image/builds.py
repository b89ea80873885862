# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_image_snapshot builds: a matrix and uploads become single builds; one message has all findings (pure)."""

from __future__ import annotations

import getpass
import hashlib
import itertools
import json
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    counted,
    in_columns,
    one_line,
    whole_number,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import LONGEST_NAME, is_label_value
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import debian_root

from .. import role_specs
from ..node_plan import base_inputs
from ..preflight import controller_paths

Build = dict[str, Any]

ARCHITECTURES = ("x86", "arm")
DEFAULT_NAME = "{base}-kubernetes-{kubernetes}"
#: The machine is created from an image of the project, or written by an image command; an upload is only written.
BOOT, WRITE, UPLOAD = "boot", "write", "upload"
RAW_DISK = "image-url-command-raw-disk"
ROOTFS_TAR = "image-url-command-rootfs-tar"
#: How a raw image becomes a snapshot bit by bit.
AS_IT_IS = "adapt=no"
#: Variables of base that say how to fetch, not what the image holds; credentials are among them.
NOT_CONTENT = frozenset(["base_download_headers", "base_download_timeout", "base_prebake", "base_prebake_clean"])

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.-]+)?")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_MATRIX_KEYS = {"kubernetes", "architecture", "base", "name", "exclude"}
_BASE_KEYS = {"name", "image", "image_url", "command", "packages"}
_NUMBERS = {
    "keep": "give a number of snapshots, at least 1; leave it out to keep all",
    "timeout": "give whole seconds, at least 1",
}
_UPLOAD_KEYS = {"name", "image_url", "path", "sha256", "architecture", "format"}


def refusal(findings: list[str]) -> str:
    """What the user reads of findings for which nothing is done."""
    count = f"{counted(len(findings), 'finding')}, nothing was created or changed"
    return f"{count}:\n" + "\n".join(f"- {finding}" for finding in dict.fromkeys(findings))


class BuildsNotUsable(ValueError):
    """The builds cannot work; the text has every finding."""


def builds(inputs: Mapping[str, Any], bases: Iterable[Mapping[str, Any]] | None = None) -> list[Build]:
    """All builds, in the order of the input; ``bases``: the images of the project they boot from, once found."""
    findings: list[str] = []
    found = [*_of_matrix(inputs, findings), *_of_uploads(inputs, findings)]
    findings += _of_numbers(inputs) + _of_base(found, inputs)
    if not found and not findings:
        findings.append("kubenode_image_matrix and kubenode_image_uploads are both empty; set one of them")
    seen: set[tuple[str, str]] = set()
    for build in found:
        which = (build["name"], build["architecture"])
        if which in seen:
            findings.append(
                f"two builds are named {build['name']!r} for {build['architecture']}; give each its own name"
            )
        seen.add(which)
        if not is_label_value(build["name"]) or not build["name"]:
            findings.append(
                f"the name {build['name']!r} ({len(build['name'])} characters) does not fit into a label; use 1 to "
                f"{LONGEST_NAME} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            )
        build["server_type"] = (inputs.get("server_types") or {}).get(build["architecture"])
        if not build["server_type"]:
            findings.append(f"kubenode_image_server_types names no server type for {build['architecture']}")
    if findings:
        raise BuildsNotUsable(refusal(findings))
    ids = {(image["name"], image["architecture"]): image["id"] for image in bases or []}
    for build in found:
        build["machine"] = machine_name(str(inputs.get("owner") or ""), build["name"], build["architecture"])
        build["temporary"] = {"name": build["machine"]}
        if build["kind"] == BOOT:
            build["image_id"] = ids.get((build["image"]["name"], build["architecture"]))
        if build["kind"] != UPLOAD:
            build["digest"] = _content_digest(build, inputs)
        build["snapshot"] = _snapshot(build, inputs)
    return found


def builds_here(inputs: Mapping[str, Any], bases: Iterable[Mapping[str, Any]] | None = None) -> list[Build]:
    """:func:`builds` with the version of this collection, and with this user and host as the owner by default."""
    if not isinstance(inputs, Mapping):
        raise BuildsNotUsable("node_image_builds: feed it a dictionary with matrix, uploads and server_types")
    owner = inputs.get("owner") or f"{getpass.getuser()}@{socket.gethostname()}"
    return builds({**inputs, "owner": owner, "role_version": role_specs.collection_version()}, bases)


def machine_name(owner: str, name: str, architecture: str) -> str:
    """The temporary machine's name: the same in the next run, and another for another image or owner."""
    digest = hashlib.sha256(json.dumps([owner, name, architecture]).encode()).hexdigest()
    return f"kubenode-image-{digest[:12]}"


def outcomes(
    found: Iterable[Mapping[str, Any]], made: Iterable[Mapping[str, Any]], hosts: Mapping[str, Any]
) -> list[Build]:
    """One result for each build: what was done with its snapshot, else why its machine failed."""
    results = {(one["name"], one["architecture"]): dict(one) for one in made}
    outcome = []
    for build in found:
        result = results.get((build["name"], build["architecture"]))
        if result is None:
            problem = (hosts.get(build["machine"]) or {}).get("kubenode__problem") or "it was not reached; run again"
            result = {"name": build["name"], "architecture": build["architecture"], "id": None, "changed": True}
            result |= {"failed": True, "msg": f"failed: {one_line(str(problem), 600)}"}
        outcome.append({**result, "machine": build["machine"]})
    return outcome


def table(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """The summary of a run, one line an image, in columns."""
    rows = [("image", "architecture", "snapshot", "GB", "outcome")]
    rows += [
        (one["name"], one["architecture"], str(one.get("id") or "-"), f"{one.get('image_size') or 0:.2f}", one["msg"])
        for one in results
    ]
    return in_columns(rows)


def _snapshot(build: Build, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The options of hcloud_node_image for a build."""
    wanted = {key: build[key] for key in ("name", "architecture", "kubernetes_version", "base_image", "digest")}
    # What was prebaked goes down by itself; a rescue has nothing left to write.
    wanted |= {"server": build["machine"], "running": "cut" if build["kind"] == UPLOAD else "shutdown"}
    wanted |= {key: inputs.get(key) for key in ("role_version", "force", "keep", "labels")}
    if wanted["keep"] == "":
        wanted["keep"] = None
    if build["kind"] == UPLOAD:
        wanted["role_version"] = None
    return {key: value for key, value in wanted.items() if value is not None}


def _of_numbers(inputs: Mapping[str, Any]) -> list[str]:
    """What is wrong with numbers that count only when a snapshot is made."""
    found = []
    for key, fix in _NUMBERS.items():
        value = inputs.get(key)
        if value not in (None, "") and (isinstance(value, bool) or not whole_number(str(value))):
            found.append(f"kubenode_image_{key} {value!r:.50}: {fix}")
    return found


def _of_base(found: Iterable[Build], inputs: Mapping[str, Any]) -> list[str]:
    """What the role base would refuse when a machine is made, written and booted; by the names that the user knows."""
    architectures: dict[str, list[str]] = {}
    for build in found:
        if build["kind"] != UPLOAD and _VERSION.fullmatch(build["kubernetes_version"]):
            known = architectures.setdefault(build["kubernetes_version"], [])
            known += [DEBIAN_NAMES[one] for one in [build["architecture"]] if one in DEBIAN_NAMES]
    problems = base_inputs.Problems()
    for version, wanted in architectures.items():
        given = {**inputs.get("variables", {}), "base_kubernetes_version": version, "base_prebake": True}
        try:
            checked = base_inputs.normalised(role_specs.plain(given), role_specs.versions())
        except base_inputs.PlanError as error:
            problems += str(error).splitlines()
            continue
        for architecture in dict.fromkeys(wanted):
            base_inputs.check_sums(dict(checked), problems, architecture)
    return [text.replace("base_kubernetes_version", "kubenode_image_matrix.kubernetes", 1) for text in problems]


def _of_matrix(inputs: Mapping[str, Any], findings: list[str]) -> list[Build]:
    matrix = inputs.get("matrix") or {}
    if not isinstance(matrix, Mapping):
        findings.append("kubenode_image_matrix: a dictionary is needed, with kubernetes, base and perhaps architecture")
        return []
    if not matrix:
        return []
    _unknown_keys("kubenode_image_matrix", matrix, _MATRIX_KEYS, findings)
    versions = [str(one) for one in _list(matrix.get("kubernetes"))]
    architectures = _list(matrix.get("architecture")) or ["x86"]
    sources = [_base(one, findings) for one in _list(matrix.get("base"))]
    for version in versions:
        if not _VERSION.fullmatch(version):
            findings.append(f"kubenode_image_matrix.kubernetes {version!r}: give a full version, such as 1.36.4")
    for field, values in (("kubernetes", versions), ("base", sources)):
        if not values:
            findings.append(f"kubenode_image_matrix.{field}: empty; name at least one")
    forced = inputs.get("variables", {}).get("base_kubernetes_version")
    if forced and set(versions) != {str(forced)}:
        findings.append(
            f"base_kubernetes_version is {forced!r} although kubenode_image_matrix.kubernetes chooses the versions; "
            "leave it out"
        )
    found = []
    for version, architecture, base in itertools.product(versions, architectures, [one for one in sources if one]):
        _check_architecture("kubenode_image_matrix.architecture", architecture, findings)
        facts = {"kubernetes": version, "architecture": architecture, "base": base["name"]}
        if any(_matches(entry, facts, findings) for entry in _list(matrix.get("exclude"))):
            continue
        name = _name(str(matrix.get("name") or DEFAULT_NAME), facts, findings)
        build = {"name": name, "architecture": architecture, "kubernetes_version": version, "base_image": base["name"]}
        if base.get("packages"):
            root = Root(base, architecture, str(inputs.get("cache_dir")))
            findings += root.findings
            build |= {"kind": WRITE, "command": ROOTFS_TAR, "debian": root.options, "source": root.source}
        elif base.get("image_url"):
            build |= {"kind": WRITE, "image_url": base["image_url"], "command": base.get("command") or RAW_DISK}
        else:
            image = str(base.get("image") or base["name"])
            build |= {"kind": BOOT, "image": {"name": image, "architecture": architecture}}
        found.append(build)
    return found


def _base(given: Any, findings: list[str]) -> dict[str, Any]:
    """One base of the matrix; a bare name means the image of that name."""
    base = {"name": given} if isinstance(given, str) else given
    if not isinstance(base, Mapping) or not isinstance(base.get("name"), str) or not base["name"]:
        findings.append(f"kubenode_image_matrix.base {given!r}: give the name of an image, or a dictionary with name")
        return {}
    _unknown_keys(f"kubenode_image_matrix.base {base['name']!r}", base, _BASE_KEYS, findings)
    sources = [key for key in ("image", "image_url", "packages") if base.get(key)]
    if len(sources) > 1:
        findings.append(f"kubenode_image_matrix.base {base['name']!r}: {' and '.join(sources)} exclude each other")
    if base.get("command") and not base.get("image_url"):
        findings.append(f"kubenode_image_matrix.base {base['name']!r}: command needs image_url")
    if base.get("image_url"):
        _check_url(f"kubenode_image_matrix.base {base['name']!r}", base["image_url"], findings)
    return dict(base)


def _of_uploads(inputs: Mapping[str, Any], findings: list[str]) -> list[Build]:
    found = []
    for given in _list(inputs.get("uploads")):
        if not isinstance(given, Mapping) or not given.get("name"):
            findings.append(
                f"kubenode_image_uploads {given!r}: give a dictionary with name, sha256, and image_url or path"
            )
            continue
        where = f"kubenode_image_uploads {given['name']!r}"
        _unknown_keys(where, given, _UPLOAD_KEYS, findings)
        architecture = given.get("architecture") or "x86"
        _check_architecture(f"{where}: architecture", architecture, findings)
        if bool(given.get("image_url")) == bool(given.get("path")):
            findings.append(f"{where}: give one of image_url and path, a file of the controller")
            continue
        if given.get("format") not in (None, "raw", "qcow2"):
            findings.append(f"{where}: format {given['format']!r}: use raw (also compressed) or qcow2")
        base, digest, stall = _upload_source(where, given, findings)
        try:
            base_image = urlsplit(base).path.rsplit("/", 1)[-1]
        except ValueError:
            # stricter than Go, by whose rules it was checked; the error's text may hold a piece of the login
            findings.append(f"{where}: image_url: its address is none")
            continue
        build: Build = {"name": str(given["name"]), "architecture": architecture, "kind": UPLOAD}
        build |= {"kubernetes_version": None, "base_image": base_image, "command": RAW_DISK, "digest": digest}
        if given.get("path") or given.get("format") == "qcow2":
            path = controller_paths.as_found(given.get("path"), inputs) or f"{inputs.get('cache_dir')}/{digest}.qcow2"
            build["download"] = None if given.get("path") else base
            build["source"] = {"name": machine_name("", build["name"], architecture), "path": path, "sha256": digest}
        else:
            build["image_url"] = f"{base}#sha256={digest}&{AS_IT_IS}{stall}"
        found.append(build)
    return found


def _upload_source(where: str, given: Mapping[str, Any], findings: list[str]) -> tuple[str, str, str]:
    """Where an upload comes from, its digest, and what else of its image URL counts."""
    url = str(given.get("image_url") or "")
    base, _hash, fragment = url.partition("#")
    if url:
        _check_url(where, url, findings)
    switches = dict(parse_qsl(fragment, keep_blank_values=True))
    digest = str(given.get("sha256") or switches.get("sha256") or "")
    if not _DIGEST.fullmatch(digest):
        findings.append(
            f"{where}: sha256 {digest!r}: the 64 hexadecimal digits of the file are needed, since they decide whether "
            "it is uploaded already"
        )
    elif switches.get("sha256", digest).lower() != digest.lower():
        findings.append(f"{where}: sha256 and the one in image_url differ; leave one of them out")
    for switch in sorted(set(switches) - {"sha256", "stall", "adapt"}):
        findings.append(f"{where}: the switch {switch!r} of image_url has no place here: an upload is written as it is")
    stall = f"&stall={switches['stall']}" if "stall" in switches else ""
    return base or str(given.get("path")), digest.lower(), stall


def _content_digest(build: Build, inputs: Mapping[str, Any]) -> str:
    """SHA-256 of all that decides about the content of a prebaked image."""
    variables = {key: value for key, value in inputs.get("variables", {}).items() if key not in NOT_CONTENT}
    content = {
        "format": 1,
        "kubernetes": build["kubernetes_version"],
        "architecture": build["architecture"],
        "base": build.get("image_id") or build.get("image_url") or build.get("source", {}).get("name"),
        "command": build.get("command"),
        "role": inputs.get("role_version"),
        "variables": variables,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _name(template: str, facts: Mapping[str, str], findings: list[str]) -> str:
    def fill(match: re.Match[str]) -> str:
        if match[1] not in facts:
            findings.append(
                f"kubenode_image_matrix.name {template!r}: {{{match[1]}}} is none of {{base}}, {{kubernetes}} and "
                "{architecture}"
            )
        return facts.get(match[1], "")

    return re.sub(r"\{([^{}]*)\}", fill, template)


def _matches(entry: Any, facts: Mapping[str, str], findings: list[str]) -> bool:
    if not isinstance(entry, Mapping) or not entry or set(entry) - set(facts):
        findings.append(
            f"kubenode_image_matrix.exclude {entry!r}: give dictionaries with kubernetes, architecture or base"
        )
        return False
    return all(str(value) == facts[key] for key, value in entry.items())


def _check_architecture(where: str, value: Any, findings: list[str]) -> None:
    if value not in ARCHITECTURES:
        findings.append(f"{where} {value!r}: use x86 or arm")


def _check_url(where: str, url: Any, findings: list[str]) -> None:
    try:
        image_url.check_image_url(str(url))
    except image_url.InvalidImageURL as exc:
        findings.append(f"{where}: image_url: {exc}")


def _unknown_keys(where: str, given: Mapping[str, Any], known: set[str], findings: list[str]) -> None:
    unknown = sorted(str(key) for key in set(given) - known)
    if unknown:
        findings.append(f"{where}: unknown key {', '.join(unknown)}; there are {', '.join(sorted(known))}")


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


# --- a base of the matrix that is made of packages


#: Architectures of Hetzner Cloud, as Debian and installimage call them.
DEBIAN_NAMES = {"x86": "amd64", "arm": "arm64"}
_TEXTS = ("suite", "kernel", "keyring")
_LISTS = ("mirrors", "include", "apt_options")


class Root:
    """The root file system of one base and architecture; several builds may begin with it.

    ``options``: those of node_image_debian. ``source``: an image of node_image_source, whose name has all that
    decides about the content. ``findings``: what is wrong, one text each; with any, the others mean nothing.
    """

    def __init__(self, base: Mapping[str, Any], architecture: str, folder: str) -> None:
        self.options: dict[str, Any] = {}
        self.source: dict[str, str] = {"name": "", "path": "", "kind": "root"}
        where = f"kubenode_image_matrix.base {base['name']!r}: packages"
        self.findings = _shape(where, base["packages"])
        if self.findings:
            return
        given = dict(base["packages"])
        options = {key: given.get(key) for key in _TEXTS} | {key: list(given.get(key) or []) for key in _LISTS}
        options["architecture"] = DEBIAN_NAMES.get(architecture, "amd64")  # another one is a finding of the matrix
        name = f"debian-{debian_root.options_digest(options)}"
        options["path"] = f"{folder}/{name[:32]}.tar.zst"
        self.findings = [f"{where}.{one}" for one in debian_root.findings(options)]
        self.options = {key: value for key, value in options.items() if value}
        self.source = {"name": name, "path": options["path"], "kind": "root"}


def _shape(where: str, given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{where}: a dictionary is needed, such as {{suite: trixie}}"]
    found: list[str] = []
    _unknown_keys(where, given, {*_TEXTS, *_LISTS}, found)
    if not given.get("suite"):
        found.append(f"{where}: suite is missing; give the code name of a release, such as trixie")
    for key in _TEXTS:
        if given.get(key) is not None and not isinstance(given[key], str):
            found.append(f"{where}: {key} {given[key]!r}: a text is needed")
    for key in _LISTS:
        value = given.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            found.append(f"{where}: {key}: a list of texts is needed")
    return found


# --- whether a machine may become a node image, by the facts of node_info


#: What has to be asked of the machine: options of node_info.
QUERIES: dict[str, Any] = {
    "units": ["kubelet", "containerd", "docker"],
    "files": ["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf"],
    "artifacts": True,
}


def faults(node: Mapping[str, Any], kubernetes: str, swap: object = "off") -> list[str]:
    """Everything that speaks against an image of this machine; nothing when it may become one."""
    base, units = node.get("base") or {}, node.get("units") or {}
    found = []
    if not base.get("prebaked"):
        found.append("/etc/kubenode/base.json does not say that base was prebaked")
    version = (base.get("kubernetes") or {}).get("version")
    if version != kubernetes:
        found.append(f"Kubernetes is {version or 'missing'}, not {kubernetes}")
    kubelet = units.get("kubelet") or {}
    if kubelet.get("enabled") != "enabled":
        found.append("the kubelet would not start at boot")
    if kubelet.get("active") == "active":
        found.append("the kubelet runs, although it has no cluster yet")
    runtime = (base.get("runtime") or {}).get("name") or "containerd"
    if (units.get(runtime) or {}).get("active") != "active":
        found.append(f"{runtime} does not run")
    files = node.get("files") or {}
    there = [path for path in QUERIES["files"] if (files.get(path) or {}).get("exists")]
    found += [f"{path} is there: it has joined a cluster" for path in there]
    if node.get("swaps") and swap in ("off", False):
        found.append("swap is on: " + ", ".join(str(one.get("name")) for one in node["swaps"]))
    for name, artifact in sorted((node.get("artifacts") or {}).items()):
        wrong = [path for path, state in (artifact.get("files") or {}).items() if not (state or {}).get("same")]
        found += [f"{path} of {name} is not as it was installed" for path in sorted(wrong)]
    return found
