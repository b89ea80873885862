# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is installed: a record for each artifact, and the proof that its files are still the same."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..._common.text import json_object
from ..machine import atomic
from ..machine.host import Host

if TYPE_CHECKING:
    from .artifact_spec import Artifact

FOLDER = "/etc/kubenode/artifacts/"
#: The reason why a binary that is there already is only recorded.
ADOPTED = "has no record"


def path(name: str) -> str:
    """Where the record of an artifact lies."""
    return "%s%s.json" % (FOLDER, name)


def read(host: Host, name: str) -> dict[str, Any] | None:
    """The record; None when there is none that can be understood."""
    record = json_object(host.text(path(name)))
    good = record and isinstance(record.get("files"), dict) and record["files"]
    return record if good else None


def pin(artifact: Artifact) -> tuple[str, str | None]:
    """(algorithm, digest) of what is at its URL. Pure."""
    digest = artifact.get("sha512")
    return ("sha512", digest) if digest else ("sha256", artifact["sha256"])


def write(host: Host, artifact: Artifact, digests: Mapping[str, str]) -> None:
    """Record what was installed."""
    algorithm, digest = pin(artifact)
    record = {
        "name": artifact["name"],
        "version": str(artifact["version"]),
        algorithm: digest,
        "install": install_id(artifact),
        "files": digests,
    }
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    atomic.write_file(host, path(artifact["name"]), text.encode("utf-8"), 0o644)


def install_id(artifact: Artifact) -> str:
    """A digest of what goes where, so that another choice of members is noticed. Pure."""
    text = json.dumps([artifact["kind"], artifact["install"]], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def missing(host: Host, artifact: Artifact) -> str | None:
    """Why the artifact is not there as it should be; None when it is. Files are hashed, nothing is fetched."""
    return missing_files(host, artifact) or _links(host, artifact)


def missing_files(host: Host, artifact: Artifact) -> str | None:
    """The same without its links."""
    found = look(host, artifact["name"])
    return _unrecorded(host, artifact) if found is None else difference(artifact, found)


def look(host: Host, name: str) -> dict[str, Any] | None:
    """The record with the state of each file now: ``{"mode": "0755", "same": True}``, None when it is not there."""
    record = read(host, name)
    return (
        None if record is None else dict(record, files={path: _state(host, path, record) for path in record["files"]})
    )


def look_at_all(host: Host) -> dict[str, Any]:
    """Name → the same, for every artifact that has a record."""
    names = [name[: -len(".json")] for name in host.names(FOLDER) if name.endswith(".json")]
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = dict(zip(names, pool.map(lambda name: look(host, name), names)))
    return {name: seen for name, seen in found.items() if seen}


def _state(host: Host, name: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
    status = host.status(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return {"mode": "%04o" % stat.S_IMODE(status.st_mode), "same": host.sha256(name) == record["files"][name]}


def difference(artifact: Artifact, found: Mapping[str, Any]) -> str | None:
    """Why what was found (see look()) is not the artifact; None when it is. Pure."""
    algorithm, digest = pin(artifact)
    if found.get(algorithm) != digest:
        return "version %s is installed" % found.get("version")
    if found.get("install") != install_id(artifact):
        return "other files of it are wanted"
    modes = {entry.get("path"): entry.get("mode", "0755") for entry in artifact["install"]}
    folders = {entry.get("directory"): entry.get("mode", "0755") for entry in artifact["install"]}
    for name, state in sorted(found["files"].items()):
        if state is None:
            return "%s is not there" % name
        mode = modes.get(name) or folders.get(os.path.dirname(name))
        if mode is not None and int(state["mode"], 8) != int(mode, 8):
            return "%s has another mode" % name
        if not state["same"]:
            return "%s has another content" % name
    return None


def _unrecorded(host: Host, artifact: Artifact) -> str:
    """A binary proves itself, its digest is the artifact's; of anything else nothing is known."""
    return "is not installed" if artifact["kind"] != "binary" or not proves_itself(host, artifact) else ADOPTED


def proves_itself(host: Host, artifact: Artifact) -> bool:
    """Whether a binary is there as it should be, with or without a record."""
    (entry,) = artifact["install"]
    status = host.status(entry["path"])
    if artifact["kind"] != "binary" or status is None or not stat.S_ISREG(status.st_mode):
        return False
    same_mode = stat.S_IMODE(status.st_mode) == int(entry.get("mode", "0755"), 8)
    return same_mode and host.sha256(entry["path"]) == artifact.get("sha256")


def _links(host: Host, artifact: Artifact) -> str | None:
    for link in artifact.get("links") or []:
        status = host.status(link["path"])
        if status is None or not stat.S_ISLNK(status.st_mode):
            return "the link %s is not there" % link["path"]
        if os.readlink(host.path(link["path"])) != link["target"]:
            return "the link %s leads elsewhere" % link["path"]
    return None
