# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files node_image_tarball makes of which builds, and which of them are there already."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import in_columns, json_object, one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import config_words

from .builds import DEBIAN_NAMES, refusal

DEFAULT_NAME = "{system}-{architecture}-kubenode-{kubernetes}"
HIGHEST_LEVEL = 19
TARBALL, RAW = "tarball", "raw"
#: Bases whose system is known: how the provider's own images for installimage begin.
SYSTEMS = {
    "debian-11": "Debian-1100-bullseye",
    "debian-12": "Debian-1200-bookworm",
    "debian-13": "Debian-1300-trixie",
    "ubuntu-22.04": "Ubuntu-2204-jammy",
    "ubuntu-24.04": "Ubuntu-2404-noble",
    "alma-8": "Alma-800",
    "alma-9": "Alma-900",
    "alma-10": "Alma-1000",
    "rocky-8": "Rocky-800",
    "rocky-9": "Rocky-900",
    "rocky-10": "Rocky-1000",
}


class TarballsNotUsable(ValueError):
    """The files cannot be made as they are asked for; the text has every finding."""


def tarballs(
    builds: Iterable[Mapping[str, Any]], inputs: Mapping[str, Any], snapshots: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """One entry a build: the machine that packs, and its files. ``inputs``: dest, formats, name, systems, level, force.

    ``snapshots``: what became of the builds, with their ids; machines begin with these.
    """
    findings: list[str] = []
    formats = list(inputs.get("formats") or [TARBALL])
    findings += [
        f"kubenode_tarball_formats {one!r}: use tarball or raw" for one in formats if one not in (TARBALL, RAW)
    ]
    # both formats are compressed by zstd
    given = inputs.get("level")
    level = 9 if given in (None, "") else int(str(given))
    if not 1 <= level <= HIGHEST_LEVEL:
        findings.append(f"kubenode_tarball_level {level}: use 1 to {HIGHEST_LEVEL}")
    ids = {(one["name"], one["architecture"]): one.get("id") for one in snapshots}
    found, seen = [], set()
    for build in builds:
        if not build.get("kubernetes_version"):
            continue  # an upload is a raw image already
        names = _names(build, formats, inputs, findings)
        for name in names.values():
            if name in seen:
                findings.append(
                    f"two builds make the file {name!r}; tell them apart in kubenode_tarball_name, which knows {{base}}"
                )
            seen.add(name)
        files = [_file(build, kind, name, inputs, findings) for kind, name in names.items()]
        found.append(
            {
                **{key: build[key] for key in ("name", "architecture", "server_type", "digest")},
                "machine": f"{build['machine']}-t",
                "temporary": {"name": f"{build['machine']}-t"},
                "image_id": ids.get((build["name"], build["architecture"])),
                "files": files,
                "missing": [one["file"] for one in files if not one["there"]],
            }
        )
    if not found and not findings:
        findings.append("kubenode_image_matrix is empty; it says of which systems tarballs are to be made")
    if findings:
        raise TarballsNotUsable(refusal(findings))
    return found


def outcomes(found: Iterable[Mapping[str, Any]], hosts: Mapping[str, Any], check: bool = False) -> list[dict[str, Any]]:
    """One result for each file: as it was found, as it was made (or would be, in a ``check``), or why it was not."""
    outcome = []
    for entry in found:
        # hostvars has no get() that bears a host which was never made
        host = hosts[entry["machine"]] if entry["machine"] in hosts else {}  # noqa: SIM401
        results = (host.get("kubenode_packing") or {}).get("results") or []
        made = {one["item"]["file"]: one for one in results if one.get("sha256")}
        for file in entry["files"]:
            result = {key: file[key] for key in ("file", "kind", "path")}
            result |= {key: entry[key] for key in ("name", "architecture", "digest")}
            one = made.get(file["file"])
            if file["there"]:
                result |= {"sha256": file["sha256"], "size": file["size"], "seconds": 0.0}
                result |= {"changed": False, "failed": False, "msg": "exists"}
            elif one:
                result |= {key: one[key] for key in ("sha256", "size", "seconds", "system", "epoch")}
                result |= {"changed": True, "failed": False, "msg": "made"}
            elif check:
                result |= {"changed": True, "failed": False, "msg": "would be made"}
            else:
                problem = host.get("kubenode__problem") or "it was not reached; run again"
                result |= {"changed": False, "failed": True, "msg": f"failed: {one_line(str(problem), 600)}"}
            outcome.append(result)
    return outcome


def table(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """The summary of a run, one line a file, in columns."""
    rows = [("file", "MB", "sha256", "seconds", "outcome")]
    for one in results:
        size = f"{one['size'] / 10**6:.1f}" if one.get("size") else "-"
        rows.append((one["file"], size, one.get("sha256") or "-", f"{one.get('seconds') or 0:.1f}", one["msg"]))
    return in_columns(rows)


def record(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside a file, by which the next run knows it."""
    keys = ("file", "kind", "name", "architecture", "digest", "sha256", "size", "system", "epoch")
    return {key: result.get(key) for key in keys}


def _names(
    build: Mapping[str, Any], formats: Iterable[str], inputs: Mapping[str, Any], findings: list[str]
) -> dict[str, str]:
    """Format → file name."""
    architecture = DEBIAN_NAMES.get(build["architecture"], build["architecture"])
    names = {}
    if TARBALL in formats:
        name = _tarball_name(build, architecture, inputs, findings)
        if name:
            names[TARBALL] = name
    if RAW in formats:
        names[RAW] = f"{build['name']}-{architecture}.raw.zst"
    return names


def _tarball_name(
    build: Mapping[str, Any], architecture: str, inputs: Mapping[str, Any], findings: list[str]
) -> str | None:
    base = build["base_image"]
    system = (inputs.get("systems") or {}).get(base) or SYSTEMS.get(base)
    if not system:
        findings.append(
            f"kubenode_tarball_systems has no entry for base {base!r}; say how its name begins for installimage, "
            "such as Debian-1300-trixie"
        )
        return None
    facts = {
        "system": str(system),
        "architecture": architecture,
        "kubernetes": build["kubernetes_version"],
        "base": base,
        "name": build["name"],
    }
    template = str(inputs.get("name") or DEFAULT_NAME)
    unknown = sorted(set(re.findall(r"\{([^{}]*)\}", template)) - set(facts))
    if unknown:
        findings.append(
            f"kubenode_tarball_name {template!r}: {', '.join(f'{{{one}}}' for one in unknown)} is none of "
            f"{', '.join(f'{{{one}}}' for one in facts)}"
        )
        return None
    name = re.sub(r"\{([^{}]*)\}", lambda match: facts[match[1]], template) + ".tar.zst"
    try:
        read, meant = (
            config_words.parse_image_name(name),
            config_words.parse_image_name(f"{system}-{architecture}-x.tar"),
        )
    except config_words.InvalidImageName as exc:
        findings.append(f"the name {name!r} is none for installimage: {exc}")
        return None
    if read != meant:
        findings.append(
            f"installimage would take {name!r} for {read.distro} {read.version} {read.arch}, and it is {meant.distro} "
            f"{meant.version} {meant.arch}; change kubenode_tarball_name"
        )
    return name


def _file(
    build: Mapping[str, Any], kind: str, name: str, inputs: Mapping[str, Any], findings: list[str]
) -> dict[str, Any]:
    """``there``: the file is what would be made."""
    path = Path(str(inputs.get("dest") or ".")) / name
    file: dict[str, Any] = {"file": name, "kind": kind, "path": str(path), "there": False}
    known = _record(path)
    if known is None:
        # a run writes its records first, so without one nothing of these names is a run's
        strange = [one for one in (path, *map(Path, (f"{path}.sha256", f"{path}.json"))) if os.path.lexists(one)]
        if strange:
            findings.append(
                f"kubenode_tarball_dir: {' and '.join(map(str, strange))} would be overwritten and is not ours: "
                f"{path.name}.json, by which a run knows its files, is missing or another's; move it away, or change "
                "kubenode_tarball_dir or kubenode_tarball_name"
            )
        return file
    if inputs.get("force") or not known.get("sha256") or not os.path.lexists(path):
        return file
    why = _changed(path, known)
    if why:
        findings.append(
            f"kubenode_tarball_dir: {path} is not what a run has made ({why}); move it away to have it made again, or "
            "give -e kubenode_image_force=true"
        )
    # the digest of a build covers all that decides about its content
    elif known.get("digest") == build["digest"]:
        file |= {"there": True, "size": known["size"], "sha256": known["sha256"]}
    return file


def _changed(path: Path, known: Mapping[str, Any]) -> str:
    """How a file differs from its record; empty when it does not."""
    try:
        if path.stat().st_size != known.get("size"):
            return "it has another size than its record"
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        return f"it cannot be read: {exc.strerror}"
    return "" if found == known["sha256"] else "it has another SHA-256 than its record"


def _record(path: Path) -> dict[str, Any] | None:
    """The record of ours beside a file."""
    try:
        known = json_object(Path(f"{path}.json").read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError):
        return None
    return known if known.get("file") == path.name and "digest" in known else None
