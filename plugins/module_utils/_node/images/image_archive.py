# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Archives of container images: fetched, proven, and read."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from ..._common.text import json_value
from ..artifacts import fetch
from ..machine.host import Host
from . import references

_LARGEST_INDEX = 8 << 20
_NAME = "io.containerd.image.name"
_REF = "org.opencontainers.image.ref.name"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
#: An index may name indexes.
_DEEPEST = 3
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WRONG = (OSError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError)


class ArchiveError(Exception):
    """An archive that cannot be used; the text says why."""


def names(path: str) -> list[str]:
    """Sorted canonical references in the archive at a path. Raises :class:`ArchiveError`."""
    try:
        found = _names(path)
    except _WRONG as error:
        raise ArchiveError("it is no archive of container images (%s)" % error) from error
    if not found:
        raise ArchiveError("its images have no names (annotation %s or RepoTags)" % _NAME)
    return sorted(found)


def _names(path: str) -> set[str]:
    found: set[str] = set()
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = _plain(member.name)
            if name == "index.json" and member.isfile():
                found.update(name for _one, name in _of_index(_json(archive, member)))
            elif name == "manifest.json" and member.isfile():
                for image in _json(archive, member):
                    found.update(references.canonical(tag) for tag in image.get("RepoTags") or [])
    return found


def _plain(name: str) -> str:
    return name[2:] if name.startswith("./") else name


def _json(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    if member.size > _LARGEST_INDEX:
        raise ValueError("%s has %d bytes" % (member.name, member.size))
    file = archive.extractfile(member)
    if file is None:
        raise ValueError("%s is no file" % member.name)
    return json_value(file.read().decode("utf-8"))


def _of_index(index: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each descriptor of an index that has a name, and this name."""
    for manifest in index["manifests"]:
        notes = manifest.get("annotations") or {}
        name = notes.get(_NAME) or notes.get(_REF) or ""
        # a bare tag, which this annotation may be too, names no image
        if "/" in name:
            yield manifest, references.canonical(name)


@contextlib.contextmanager
def for_docker(path: str, folder: str, machine: str) -> Iterator[str]:
    """The path of an archive that every ``docker load`` takes: this one, or one that is made of an OCI layout.

    It is made in ``folder``, of the images that ``machine`` (as ``uname -m`` says) can run, and goes again after use.
    Raises :class:`ArchiveError`.
    """
    os.makedirs(folder, 0o755, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="docker-", suffix=".tar", dir=folder) as new:
        try:
            with tarfile.open(path, "r:*") as archive:
                layout = _Layout(archive, _ARCHITECTURES.get(machine, machine))
                if not layout.is_docker:
                    layout.write(new)
        except _WRONG as error:
            raise ArchiveError("it is no OCI layout that Docker could be given (%s)" % error) from error
        new.flush()
        yield path if layout.is_docker else new.name


class _Layout:
    """An OCI layout in an archive; Docker without containerd's image store reads none."""

    def __init__(self, archive: tarfile.TarFile, architecture: str) -> None:
        self._archive, self._architecture = archive, architecture
        self._members = {_plain(member.name): member for member in archive if member.isfile()}
        self.is_docker = "manifest.json" in self._members

    def write(self, new: IO[bytes]) -> None:
        """What docker-save would have written: the blobs that are needed, as they are, and a list of the images."""
        images = self._images()
        needed = {name for image in images for name in [image["Config"], *image["Layers"]]}
        with tarfile.open(fileobj=new, mode="w", format=tarfile.PAX_FORMAT) as target:
            for name, member in self._members.items():  # in their order, since they may be compressed as a whole
                if name in needed:
                    target.addfile(_info(name, member.size), self._archive.extractfile(member))
            text = json.dumps(images).encode("utf-8")
            target.addfile(_info("manifest.json", len(text)), io.BytesIO(text))

    def _images(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for descriptor, name in _of_index(self._read("index.json")):
            if "@" in name:
                raise ArchiveError("%s: Docker imports images by tag, not by digest" % name)
            blob = _blob(self._manifest(descriptor, name, _DEEPEST))
            if blob not in found:
                manifest = self._read(blob)
                layers = [self._there(_blob(layer)) for layer in manifest["layers"]]
                found[blob] = {"Config": self._there(_blob(manifest["config"])), "RepoTags": [], "Layers": layers}
            found[blob]["RepoTags"].append(name)
        return list(found.values())

    def _manifest(self, descriptor: dict[str, Any], name: str, depth: int) -> dict[str, Any]:
        """The descriptor of the manifest for this machine."""
        content = self._read(_blob(descriptor))
        if "manifests" not in content:
            return descriptor
        for one in content["manifests"] if depth else ():
            platform = one.get("platform") or {}
            if (platform.get("os"), platform.get("architecture")) == ("linux", self._architecture):
                return self._manifest(one, name, depth - 1)
        raise ArchiveError("%s has no image for linux/%s" % (name, self._architecture))

    def _read(self, name: str) -> Any:
        return _json(self._archive, self._members[self._there(name)])

    def _there(self, name: str) -> str:
        if name not in self._members:
            raise ArchiveError("%s is not in it" % name.replace("blobs/sha256/", "sha256:"))
        return name


def _blob(descriptor: Mapping[str, Any]) -> str:
    match = _DIGEST.match(descriptor["digest"])
    if not match:
        raise ArchiveError("'%s' is no SHA-256 digest" % str(descriptor["digest"])[:100])
    return "blobs/sha256/" + match[1]


def _info(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


#: Beside the images' own place, since /tmp may be small or memory.
FOLDER = "/var/lib/kubenode"


class FetchFailed(OSError):
    """An archive cannot be fetched, or is not the right one; the text says which and why."""


@contextlib.contextmanager
def archive_file(host: Host, one: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """The path of an archive with the right sum. Raises :class:`FetchFailed`."""
    wanted = one["sha256"].lower()
    if not one.get("url"):
        found = host.sha256(one["path"])
        if found is None:
            raise FetchFailed("archive %s cannot be read on the machine" % one["path"])
        _compare(one["path"], wanted, found)
        yield host.path(one["path"])
        return
    if fetch.url_error(one["url"]):
        raise FetchFailed("%s: only http and https can be fetched" % fetch.public(one["url"]))
    os.makedirs(host.path(FOLDER), 0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=host.path(FOLDER)) as folder:
        path = os.path.join(folder, "archive.tar")
        try:
            fetch.Fetcher(given["headers"], timeout=given["timeout"]).fetch(one["url"], path, wanted)
        except (fetch.FetchError, OSError) as error:
            raise FetchFailed("%s; nothing was imported" % error) from error
        yield path


def _compare(source: str, wanted: str, found: str) -> None:
    if wanted != found:
        raise FetchFailed("%s has the SHA-256 sum %s, not %s; nothing was imported" % (source, found, wanted))
