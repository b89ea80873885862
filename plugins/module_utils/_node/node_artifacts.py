# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Checks artifacts before anything is fetched; fetches and installs them: side by side, one run at a time, files whole.

A record for each artifact says what is installed, and proves later that its files are still the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from .._common import safe_files
from .._common.text import json_object, listed
from . import fetch
from .host import TEMPORARY_PREFIX, Host, Pending, label, make_parents, path_error, sync_folder, write_file, write_link

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODE = re.compile(r"0[0-7]{3}")
_FIELDS = {"name", "version", "url", *fetch.ALGORITHMS, "kind", "install", "links"}
_INSTALL = {"member", "path", "directory", "mode"}


class Installed(TypedDict, total=False):
    """What goes where: the binary, or a ``member`` of the archive, to a path or into a directory."""

    member: str
    path: str
    directory: str
    #: Octal, by default 0755.
    mode: str


class Link(TypedDict):
    """A link to an installed file."""

    path: str
    target: str


class _Pinned(TypedDict, total=False):
    #: One of both; None in a plan without a pinned digest, which its preflight refuses.
    sha256: str | None
    sha512: str | None
    links: list[Link]


class Artifact(_Pinned):
    """A program as node_artifacts takes it, pinned by one digest; the module's documentation says what each means."""

    name: str
    version: str
    url: str
    kind: str
    install: list[Installed]


def artifact_errors(artifacts: Iterable[dict[str, Any]]) -> list[str]:
    """One line for everything that is wrong."""
    found: list[str] = []
    seen: set[str] = set()
    targets: dict[str, str] = {}
    for index, artifact in enumerate(artifacts):
        name = artifact.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            found.append(f"artifacts[{index}]: name {name!r} must be letters, digits, dots, hyphens")
            continue
        if name in seen:
            found.append(f"{name}: this name occurs twice")
        seen.add(name)
        found += [f"{name}: {error}" for error in _one_artifact(artifact)]
        for entry in list(artifact.get("install") or []) + list(artifact.get("links") or []):
            path = entry.get("path") if isinstance(entry, dict) else None
            if path and targets.setdefault(path, name) != name:
                found.append(f"{name}: {path} is already a file of {targets[path]}")
    return found


def _one_artifact(artifact: dict[str, Any]) -> list[str]:
    found = [f"there is no field {field}" for field in sorted(set(artifact) - _FIELDS)]
    found += [f"{field} is missing" for field in ("version", "url") if not artifact.get(field)]
    given = [name for name in fetch.ALGORITHMS if artifact.get(name)]
    if len(given) != 1:
        found.append(f"exactly one of {' and '.join(fetch.ALGORITHMS)} must be given")
    if artifact.get("kind") not in ("binary", "tar"):
        found.append(f"kind {artifact.get('kind')!r} must be binary or tar")
    if artifact.get("url") and fetch.url_error(artifact["url"]):
        # the URL itself may hold a password
        found.append(f"url {fetch.url_error(artifact['url'])}")
    for name in given:
        if not re.fullmatch(rf"[0-9a-f]{{{fetch.ALGORITHMS[name]}}}", str(artifact[name])):
            found.append(f"{name} {artifact[name]!r} must be {fetch.ALGORITHMS[name]} lower-case hexadecimal digits")
    install = artifact.get("install")
    if not isinstance(install, list) or not install or not all(isinstance(entry, dict) for entry in install):
        return found + ["install must be a list of what goes where, and not empty"]
    if artifact.get("kind") == "binary" and len(install) != 1:
        found.append("a binary is installed once; use links for other names")
    for entry in install:
        found += [f"install: {error}" for error in _install(entry, artifact.get("kind"))]
    for link in artifact.get("links") or []:
        if not isinstance(link, dict) or set(link) != {"path", "target"} or not isinstance(link["target"], str):
            found.append("links must have path and target")
        elif path_error(link["path"]) or not link["target"]:
            found.append(f"links: path {link['path']!r} {path_error(link['path']) or 'needs a target'}")
    return found


def _install(entry: dict[str, Any], kind: Any) -> list[str]:
    found = [f"there is no field {field}" for field in sorted(set(entry) - _INSTALL)]
    if bool(entry.get("path")) == bool(entry.get("directory")):
        found.append("exactly one of path and directory must be given")
    for field in ("path", "directory"):
        if entry.get(field) and path_error(entry[field]):
            found.append(f"{field} {entry[field]!r} {path_error(entry[field])}")
    if not _MODE.fullmatch(str(entry.get("mode", "0755"))):
        found.append(f'mode {entry.get("mode")!r} must be an octal number in quotes, such as "0755"')
    if kind == "tar":
        try:
            fetch.member_name(str(entry.get("member") or ""))
        except fetch.ArchiveError:
            found.append(f"member {entry.get('member')!r} must be a path inside the archive")
    elif entry.get("member") or not entry.get("path"):
        found.append("a binary is installed at a path, and has no member")
    return found


FOLDER = "/etc/kubenode/artifacts/"
#: The reason why a binary that is there already is only recorded.
ADOPTED = "has no record"
NOT_INSTALLED = "is not installed"
#: Files that a message names.
_NAMED = 10


def record_path(name: str) -> str:
    """Where the record of an artifact lies."""
    return f"{FOLDER}{name}.json"


def read_record(host: Host, name: str) -> dict[str, Any] | None:
    """The record; None when there is none that can be understood."""
    record = json_object(host.text(record_path(name)))
    good = record and isinstance(record.get("files"), dict) and record["files"]
    return record if good else None


def pinned_digest(artifact: Artifact) -> tuple[str, str | None]:
    """(algorithm, digest) of what is at its URL. Pure."""
    digest = artifact.get("sha512")
    return ("sha512", digest) if digest else ("sha256", artifact["sha256"])


def write_record(host: Host, artifact: Artifact, digests: Mapping[str, str]) -> None:
    algorithm, digest = pinned_digest(artifact)
    record = {
        "name": artifact["name"],
        "version": str(artifact["version"]),
        algorithm: digest,
        "install": install_id(artifact),
        "files": digests,
    }
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    write_file(host, record_path(artifact["name"]), text.encode("utf-8"), 0o644)


def install_id(artifact: Artifact) -> str:
    """A digest of what goes where, so that another choice of members is noticed. Pure."""
    text = json.dumps([artifact["kind"], artifact["install"]], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def missing(host: Host, artifact: Artifact) -> str | None:
    """Why the artifact is not there as it should be; None when it is. Files are hashed, nothing is fetched."""
    return missing_files(host, artifact) or _links(host, artifact)


def missing_files(host: Host, artifact: Artifact) -> str | None:
    """The same without its links."""
    found = look_at_record(host, artifact["name"])
    if found is not None:
        return difference(artifact, found)
    # A binary proves itself, its digest is the artifact's; of anything else nothing is known.
    if proves_itself(host, artifact):
        return ADOPTED
    foreign = in_its_place(host, artifact)
    return f"{NOT_INSTALLED}, but {foreign[0]}" if foreign else NOT_INSTALLED


def in_its_place(host: Host, artifact: Artifact) -> list[str]:
    """What lies where an artifact without a record will, and is lost by it, in words."""
    records = [read_record(host, name) for name in _recorded(host)]
    ours = {path for record in records if record for path in record["files"]}
    found = []
    for entry in artifact["install"]:
        if entry.get("path"):
            if host.status(entry["path"]) is not None:
                found.append(f"{entry['path']} is there, is not ours, and is replaced")
            continue
        # Which files it has, its archive says.
        names = [name for name in sorted(host.names(entry["directory"])) if f"{entry['directory']}/{name}" not in ours]
        if names:
            text = f"has files that are not ours ({listed(names, _NAMED)}); those with names of its own are replaced"
            found.append(f"{entry['directory']} {text}")
    return found


def as_it_is(host: Host, artifact: Artifact) -> list[str]:
    """What is there of an artifact, and how it differs from what was installed: the lines of a diff."""
    found = look_at_record(host, artifact["name"])
    if found is None:
        return in_its_place(host, artifact)
    link = _links(host, artifact)
    return [str(found["version"]), *of_files(artifact, found), *([link] if link else [])]


def look_at_record(host: Host, name: str) -> dict[str, Any] | None:
    """The record with the state of each file now: ``{"mode": "0755", "same": True}``, None when it is not there."""
    record = read_record(host, name)
    if record is None:
        return None
    return {**record, "files": {path: _state(host, path, record) for path in record["files"]}}


def look_at_all(host: Host) -> dict[str, Any]:
    """Name → the same, for every artifact that has a record."""
    names = _recorded(host)
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = dict(zip(names, pool.map(lambda name: look_at_record(host, name), names)))
    return {name: seen for name, seen in found.items() if seen}


def _recorded(host: Host) -> list[str]:
    """The names of the artifacts that have a record."""
    return [name[: -len(".json")] for name in host.names(FOLDER) if name.endswith(".json")]


def _state(host: Host, name: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
    status = host.status(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "same": host.sha256(name) == record["files"][name]}


def difference(artifact: Artifact, found: Mapping[str, Any]) -> str | None:
    """Why what was found (see look_at_record()) is not the artifact; None when it is. Pure."""
    algorithm, digest = pinned_digest(artifact)
    if found.get(algorithm) != digest:
        return f"version {found.get('version')} is installed"
    if found.get("install") != install_id(artifact):
        return "other files of it are wanted"
    return next(iter(of_files(artifact, found)), None)


def of_files(artifact: Artifact, found: Mapping[str, Any]) -> list[str]:
    """How files that were installed differ from what they were, in words. Pure."""
    modes = {entry.get("path"): entry.get("mode", "0755") for entry in artifact["install"]}
    folders = {entry.get("directory"): entry.get("mode", "0755") for entry in artifact["install"]}
    said = []
    for name, state in sorted(found["files"].items()):
        mode = modes.get(name) or folders.get(os.path.dirname(name))
        if state is None:
            said.append(f"{name} is not there")
        elif mode is not None and int(state["mode"], 8) != int(mode, 8):
            said.append(f"{name} has another mode")
        elif not state["same"]:
            said.append(f"{name} has another content")
    return said


def proves_itself(host: Host, artifact: Artifact) -> bool:
    """Whether it is a binary that is there as it should be, with or without a record."""
    if artifact["kind"] != "binary":
        return False
    (entry,) = artifact["install"]
    status = host.status(entry["path"])
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    same_mode = stat.S_IMODE(status.st_mode) == int(entry.get("mode", "0755"), 8)
    return same_mode and host.sha256(entry["path"]) == artifact.get("sha256")


def _links(host: Host, artifact: Artifact) -> str | None:
    for link in artifact.get("links") or []:
        status = host.status(link["path"])
        if status is None or not stat.S_ISLNK(status.st_mode):
            return f"the link {link['path']} is not there"
        if os.readlink(host.path(link["path"])) != link["target"]:
            return f"the link {link['path']} leads elsewhere"
    return None


class _Staged:
    """Temporary neighbours of the files to come."""

    def __init__(self, host: Host, what: str) -> None:
        self._host, self._what = host, what
        #: path → its temporary neighbour; path → the digest of what was copied
        self._files: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    def add(self, path: str, mode: int, source: Any, size: int) -> None:
        """Copy a stream beside its place."""
        if path in self._files:
            raise fetch.ArchiveError(f"two members of {self._what} would become {path}")
        status = self._host.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise fetch.ArchiveError(f"{path} is a directory")
        make_parents(self._host, path)
        folder = os.path.dirname(self._host.path(path))
        fetch.enough_space(folder, size, self._what)
        fd, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=folder)
        self._files[path] = temporary
        with os.fdopen(fd, "wb") as target:
            self._digests[path] = fetch.copy(source, target, size)
            os.fchmod(fd, mode)

    def commit(self) -> dict[str, str]:
        """Rename them all; returns {path: sha256}."""
        for path, temporary in list(self._files.items()):
            os.rename(temporary, self._host.path(path))
            del self._files[path]
        for folder in {os.path.dirname(path) for path in self._digests}:
            sync_folder(self._host.path(folder))
        return self._digests

    def discard(self) -> None:
        """Remove what was not renamed."""
        for temporary in self._files.values():
            os.unlink(temporary)
        self._files.clear()


def install(host: Host, artifact: Artifact, part: str) -> dict[str, str]:
    """Install from the verified file ``part``; returns {path: sha256}. Raises FetchError and OSError."""
    staged = _Staged(host, artifact["name"])
    entries = artifact["install"]
    try:
        if artifact["kind"] == "binary":
            with open(part, "rb") as source:
                size = os.fstat(source.fileno()).st_size
                staged.add(entries[0]["path"], int(entries[0].get("mode", "0755"), 8), source, size)
        else:

            def take(index: int, name: str, source: Any, size: int) -> None:
                entry = entries[index]
                path = entry.get("path") or os.path.join(entry["directory"], os.path.basename(name))
                staged.add(path, int(entry.get("mode", "0755"), 8), source, size)

            fetch.extract(part, [entry["member"] for entry in entries], take, host.find("zstd") or "zstd")
        digests = staged.commit()
    finally:
        staged.discard()
    label(host, list(digests))
    links(host, artifact)
    return digests


def links(host: Host, artifact: Artifact) -> None:
    paths = [link["path"] for link in artifact.get("links") or []]
    for link in artifact.get("links") or []:
        write_link(host, link["path"], link["target"])
    if paths:
        label(host, paths)


#: Parts of files lie here until they are whole; only root may read and write them.
CACHE = "/var/cache/kubenode/artifacts"


def plan(host: Host, artifacts: Sequence[Artifact], parallel: int) -> list[str | None]:
    """Why each artifact must be installed, or None, in order."""
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(lambda artifact: missing(host, artifact), artifacts))


def change_id(name: str) -> str:
    """How node_settings calls a change of an artifact."""
    return f"artifact:{name}"


@contextlib.contextmanager
def locked(host: Host, seconds: float) -> Iterator[None]:
    """Only one run at a time; raises FetchError when another one takes too long."""
    folder = host.path(CACHE)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not safe_files.lock(fd, seconds):
            raise fetch.FetchError(
                f"another run has been fetching artifacts for {int(seconds)} s; wait for it, or end it"
            )
        yield
    finally:
        os.close(fd)


def apply(
    host: Host, artifacts: Sequence[Artifact], fetcher: fetch.Fetcher, pending: Pending, parallel: int
) -> list[tuple[int, float, str | None]]:
    """Fetch and install; a list of (bytes, seconds, error or None) in order. One that fails stops no other."""
    lock = threading.Lock()
    return _each(artifacts, parallel, lambda artifact: _bring(host, artifact, fetcher, pending, lock))


def fetch_only(
    host: Host, artifacts: Sequence[Artifact], fetcher: fetch.Fetcher, parallel: int
) -> list[tuple[int, float, str | None]]:
    """Fetch what :func:`apply` will install, so that it needs no network; answers as it does."""

    def one(artifact: Artifact) -> int:
        if missing_files(host, artifact) is None or proves_itself(host, artifact):
            return 0
        return _part(host, artifact, fetcher)[1]

    return _each(artifacts, parallel, one)


def _each(
    artifacts: Sequence[Artifact], parallel: int, work: Callable[[Artifact], int]
) -> list[tuple[int, float, str | None]]:
    def one(artifact: Artifact) -> tuple[int, float, str | None]:
        begin = time.monotonic()
        try:
            came = work(artifact)
        except (fetch.FetchError, OSError) as error:
            return 0, time.monotonic() - begin, f"{artifact['name']} {artifact['version']}: {error}"
        return came, time.monotonic() - begin, None

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return list(pool.map(one, artifacts))


def part_path(artifact: Artifact) -> str:
    """Where it lies when it was fetched and is not installed. Pure."""
    return os.path.join(CACHE, f"{artifact['name']}-{pinned_digest(artifact)[1]}.part")


def _part(host: Host, artifact: Artifact, fetcher: fetch.Fetcher) -> tuple[str, int]:
    """The whole file, where the next run finds it, too; and the bytes that came."""
    algorithm, digest = pinned_digest(artifact)
    part = host.path(part_path(artifact))
    return part, fetcher.fetch(artifact["url"], part, str(digest), algorithm)


def _bring(host: Host, artifact: Artifact, fetcher: fetch.Fetcher, pending: Pending, lock: threading.Lock) -> int:
    if missing_files(host, artifact) is None:
        links(host, artifact)
        return 0
    if proves_itself(host, artifact):
        links(host, artifact)
        write_record(host, artifact, {artifact["install"][0]["path"]: str(artifact["sha256"])})
        return 0
    part, came = _part(host, artifact, fetcher)
    with lock:
        # before the files change, so that a run that is cut off leaves the note which units to restart
        pending.add([change_id(artifact["name"])])
    try:
        digests = install(host, artifact, part)
    except fetch.FetchError as error:
        raise fetch.FetchError(f"{fetch.public(artifact['url'])}: {error}") from error
    write_record(host, artifact, digests)
    os.unlink(part)
    return came
