# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Container images of a machine: which are missing, and bringing them by containerd or Docker."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple, Union

from .._common.text import json_object, json_value
from . import fetch
from .facts import ARCHITECTURES
from .fetch import public
from .host import Host, write_file

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?\Z"
)


class BadReference(ValueError):
    """A text that is no reference of an image; says which."""


def canonical(reference: str) -> str:
    """The reference with registry and tag, as the runtime lists it. Raises :class:`BadReference`."""
    if not _REFERENCE.match(reference):
        raise BadReference(f"'{reference}' is no reference of an image, such as registry.k8s.io/pause:3.10.1")
    name, at, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    if not slash:
        name = "docker.io/library/" + name
    elif "." not in first and ":" not in first and first != "localhost":
        name = "docker.io/" + name
    elif first == "docker.io" and "/" not in rest:
        name = "docker.io/library/" + rest
    if at:
        # with a digest the tag says nothing, and the runtime drops it
        return re.sub(r":[^:/]*\Z", "", name) + "@" + digest
    return name if ":" in name.rsplit("/", 1)[1] else name + ":latest"


_LARGEST_INDEX = 8 << 20
_NAME = "io.containerd.image.name"
_REF = "org.opencontainers.image.ref.name"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
#: An index may name indexes.
_DEEPEST = 3
_WRONG = (OSError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError)


class ArchiveError(Exception):
    """An archive that cannot be used; the text says why."""


def names_in_archive(path: str) -> list[str]:
    """Sorted canonical references in the archive at a path. Raises :class:`ArchiveError`."""
    try:
        found = _names(path)
    except _WRONG as error:
        raise ArchiveError(f"it is no archive of container images ({error})") from error
    if not found:
        raise ArchiveError(f"its images have no names (annotation {_NAME} or RepoTags)")
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
                    found.update(canonical(tag) for tag in image.get("RepoTags") or [])
    return found


def _plain(name: str) -> str:
    return name[2:] if name.startswith("./") else name


def _json(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    if member.size > _LARGEST_INDEX:
        raise ValueError(f"{member.name} has {member.size} bytes")
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} is no file")
    return json_value(file.read().decode("utf-8"))


def _of_index(index: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each descriptor of an index that has a name, and this name."""
    for manifest in index["manifests"]:
        notes = manifest.get("annotations") or {}
        name = notes.get(_NAME) or notes.get(_REF) or ""
        # a bare tag, which this annotation may be too, names no image
        if "/" in name:
            yield manifest, canonical(name)


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
                layout = _Layout(archive, ARCHITECTURES.get(machine, machine))
                if not layout.is_docker:
                    layout.write(new)
        except _WRONG as error:
            raise ArchiveError(f"it is no OCI layout that Docker could be given ({error})") from error
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
                raise ArchiveError(f"{name}: Docker imports images by tag, not by digest")
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
        raise ArchiveError(f"{name} has no image for linux/{self._architecture}")

    def _read(self, name: str) -> Any:
        return _json(self._archive, self._members[self._there(name)])

    def _there(self, name: str) -> str:
        if name not in self._members:
            raise ArchiveError(f"{name.replace('blobs/sha256/', 'sha256:')} is not in it")
        return name


def _blob(descriptor: Mapping[str, Any]) -> str:
    match = _DIGEST.match(descriptor["digest"])
    if not match:
        raise ArchiveError(f"'{str(descriptor['digest'])[:100]}' is no SHA-256 digest")
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
            raise FetchFailed(f"archive {one['path']} cannot be read on the machine")
        if found != wanted:
            raise FetchFailed(f"{one['path']} has the SHA-256 sum {found}, not {wanted}; nothing was imported")
        yield host.path(one["path"])
        return
    if fetch.url_error(one["url"]):
        raise FetchFailed(f"{fetch.public(one['url'])}: only http and https can be fetched")
    os.makedirs(host.path(FOLDER), 0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=host.path(FOLDER)) as folder:
        path = os.path.join(folder, "archive.tar")
        try:
            fetch.Fetcher(given["headers"], timeout=given["timeout"]).fetch(one["url"], path, wanted)
        except (fetch.FetchError, OSError) as error:
            raise FetchFailed(f"{error}; nothing was imported") from error
        yield path


_NAMESPACE = "k8s.io"
_PIN = "io.cri-containerd.pinned"


class RuntimeFailed(Exception):
    """A program of the runtime failed; the text has what it said."""


class Containerd:
    """containerd, by ctr; pulls go through the kubelet's interface, so that mirrors and credentials hold."""

    def __init__(self, host: Host, seconds: float) -> None:
        self._host, self._seconds = host, seconds

    def list(self) -> dict[str, dict[str, str]]:
        """Reference → labels of every image. Raises :class:`RuntimeFailed`."""
        return parse_list(_run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "list"], 60))

    def pull(self, reference: str) -> None:
        """Pull one image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["crictl", "pull", reference], self._seconds)

    def load(self, path: str) -> None:
        """Import an archive. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "import", path], self._seconds)

    def pinned(self, labels: Mapping[str, str]) -> bool:
        """Whether an image with these labels stays when disk space is short."""
        return labels.get(_PIN) == "pinned"

    def pin(self, reference: str) -> None:
        """Make the kubelet keep an image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "label", reference, _PIN + "=pinned"], 60)


class Docker:
    """Docker Engine, which has no way to pin."""

    def __init__(self, host: Host, seconds: float, machine: str = "") -> None:
        self._host, self._seconds, self._machine = host, seconds, machine or os.uname().machine

    def list(self) -> dict[str, dict[str, str]]:
        """Reference → labels (none) of every image. Raises :class:`RuntimeFailed`."""
        form = "{{.Repository}}:{{.Tag}}\n{{.Repository}}@{{.Digest}}"
        lines = _run(self._host, ["docker", "image", "ls", "--format", form], 60).split()
        return {canonical(line): {} for line in lines if "<none>" not in line}

    def pull(self, reference: str) -> None:
        """Pull one image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["docker", "pull", "--quiet", reference], self._seconds)

    def load(self, path: str) -> None:
        """Import an archive. Raises :class:`RuntimeFailed` and :class:`archive.ArchiveError`."""
        with for_docker(path, self._host.path(FOLDER), self._machine) as readable:
            _run(self._host, ["docker", "load", "--quiet", "--input", readable], self._seconds)

    def pinned(self, labels: Mapping[str, str]) -> bool:
        """Nothing to be done about pins."""
        return True

    def pin(self, reference: str) -> None:
        """Never called."""


def parse_list(text: str) -> dict[str, dict[str, str]]:
    """Reference → labels, of what ``ctr images list`` prints."""
    found = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 3:
            continue
        pairs = [pair.partition("=") for pair in words[-1].split(",")] if "=" in words[-1] else []
        found[words[0]] = {key: value for key, _sep, value in pairs}
    return found


def _run(host: Host, argv: list[str], seconds: float) -> str:
    done = host.run(argv, seconds)
    if done.code:
        raise RuntimeFailed(f"{' '.join(argv)}: {(done.err or done.out).strip()[-2000:]}")
    return done.out


#: Which archive brought which images, so that an archive is not needed again while they are there.
RECORD = "/etc/kubenode/images.json"


class Plan(NamedTuple):
    """References to pull and to pin, archives to load, and all references that are wanted and known."""

    pulls: list[str]
    loads: list[Mapping[str, Any]]
    pins: list[str]
    names: list[str]


Runtime = Union[Containerd, Docker]


class ImagesFailed(Exception):
    """An image cannot be pulled; the text says which and why."""


def make_plan(
    there: Mapping[str, Any], record: Mapping[str, Any], given: Mapping[str, Any], pinned: Callable[[Any], bool]
) -> Plan:
    """A :class:`Plan`; ``there`` is reference → labels, ``given`` the module's options, ``pinned`` a test of labels."""
    loads = [one for one in given["archives"] if not _brought(one, record, there)]
    brought = [name for one in given["archives"] for name in record.get(one["sha256"].lower(), ())]
    wanted = list(dict.fromkeys(canonical(image) for image in given["images"]))
    pulls = [name for name in wanted if name not in there and name not in brought]
    names = list(dict.fromkeys(wanted + brought))
    pins = [name for name in names if name not in there or not pinned(there[name])] if given["pin"] else []
    return Plan(pulls, loads, pins, names)


def _brought(one: Mapping[str, Any], record: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    names = record.get(one["sha256"].lower()) or []
    return bool(names) and all(name in there for name in names)


class Work:
    """One run: ``runtime`` of runtimes, ``given`` the module's options."""

    def __init__(self, host: Host, runtime: Runtime, given: Mapping[str, Any]) -> None:
        self._host, self._runtime, self._given = host, runtime, given

    def predict(self) -> dict[str, Any]:
        """The result of check mode; a runtime that is not there yet has no images. Raises BadReference."""
        try:
            there = self._runtime.list()
        except RuntimeFailed:
            there = {}
        plan = self._plan(there)
        return _result(plan.names, plan.pulls, plan.loads, plan.pins)

    def bring(self) -> dict[str, Any]:
        """Pull, import, pin. Raises ImagesFailed, RuntimeFailed, BadReference, OSError."""
        first = self._plan(self._runtime.list())
        for one in first.loads:
            self._load(one)
        # an archive may have brought an image that was to be pulled
        second = self._plan(self._runtime.list())
        for name in second.pulls:
            self._runtime.pull(name)
        last = self._plan(self._runtime.list())
        for name in last.pulls:
            raise ImagesFailed(f"image {name} was pulled, but the runtime does not list it")
        for name in last.pins:
            self._runtime.pin(name)
        return _result(last.names, second.pulls, first.loads, last.pins)

    def _plan(self, there: Mapping[str, Any]) -> Plan:
        return make_plan(there, read_record(self._host), self._given, self._runtime.pinned)

    def _load(self, one: Mapping[str, Any]) -> None:
        with archive_file(self._host, one, self._given) as path:
            try:
                names = names_in_archive(path)
                self._runtime.load(path)
            except (ArchiveError, RuntimeFailed) as error:
                raise ImagesFailed(f"archive {_source(one)}: {error}") from error
        there = self._runtime.list()
        missing = [name for name in names if name not in there]
        if missing:
            raise ImagesFailed(f"archive {_source(one)} was imported, but {missing[0]} is not there")
        record = dict(read_record(self._host))
        record[one["sha256"].lower()] = names
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        write_file(self._host, RECORD, text.encode("utf-8"), 0o644)


def read_record(host: Host) -> dict[str, Any]:
    """SHA-256 → references; empty when there is no usable record."""
    found = json_object(host.text(RECORD)) or {}
    return found if all(isinstance(names, list) for names in found.values()) else {}


def _source(one: Mapping[str, Any]) -> str:
    return public(one["url"]) if one.get("url") else one["path"]


def _result(names: list[str], pulls: list[str], loads: Iterable[Mapping[str, Any]], pins: list[str]) -> dict[str, Any]:
    imported = [_source(one) for one in loads]
    return {
        "changed": bool(pulls or loads or pins),
        "images": names,
        "pulled": pulls,
        "imported": imported,
        "pinned": pins,
    }


def difference(result: Mapping[str, Any]) -> dict[str, str]:
    """The result as Ansible's diff."""
    lines = [f"pull {name}\n" for name in result["pulled"]]
    lines += [f"import {name}\n" for name in result["imported"]]
    lines += [f"pin {name}\n" for name in result["pinned"]]
    return {"before_header": "images", "after_header": "images", "before": "", "after": "".join(lines)}
