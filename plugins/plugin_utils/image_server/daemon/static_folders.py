# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the static mode serves from folders: hosts, and overlay descriptors that others write.

NAME.host.yml says what one host has of its own, beside its NMState document. A descriptor is one image, which is served
while its base is the same.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped, json_value
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import (
    Base,
    Signature,
    identify,
)
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import KINDS, Bases, NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.document import (
    LONGEST,
    Fields,
    parse,
    shown,
)
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import (
    DESCRIPTOR_SUFFIX,
    DESCRIPTOR_VERSION,
    Overlay,
    overlay_of,
)

from .answers import Registry
from .publisher import SUFFIXES, Publisher
from .watched import LOG, Changes, CommonInputs, Problems, read, read_text, scan, state

OPTIONS_SUFFIX = ".host.yml"
_ARCH = re.compile(r"[A-Za-z0-9_]{1,32}\Z")
_MODE = re.compile(r"0?[0-7]{3}\Z")
_AGENT_TEXTS = ("agent_image", "vlan_interfaces", "ip_options", "no_proxy")
_PROXIES = ("http_proxy", "https_proxy")  # maybe with a password
_AGENT_LISTS = ("ntp_servers", "podman_options")


@dataclass(frozen=True)
class HostOptions:
    """What the file says."""

    inputs: Mapping[str, Any] = field(default_factory=dict)  # of HostInputs
    agent: Mapping[str, Any] = field(default_factory=dict)  # of AgentInputs
    arch: str = ""
    formats: tuple[str, ...] = KINDS
    enlarge: bool = False

    def laid_over(self, host: HostInputs) -> HostInputs:
        return replace(host, **self.inputs)


def parse_options(text: str) -> HostOptions:
    """The file's content; ImageError names the key that is wrong, and its place."""
    try:
        document = parse(text)
    except ImageError as error:
        raise ImageError(str(error).replace("the NMState document", "the file", 1)) from error
    fields = Fields(document, "")
    inputs: dict[str, Any] = {
        "hostname": fields.text("hostname"),
        "arguments": _arguments(fields.mapping("kernel_arguments")),
        "files": dict(_file(one) for one in _unlike(fields.mappings("files"))),
        "units": _texts(fields, "units"),
        "ssh_keys": _keys(fields),
        "ignition": _plain(fields, "ignition"),
        "merge": _plain(fields, "merge"),
        "initramfs_network": fields.flag("initramfs_network"),
    }
    agent: dict[str, Any] = {key: fields.text(key) for key in _AGENT_TEXTS}
    agent.update((key, fields.secret(key)) for key in _PROXIES)
    for key in _AGENT_LISTS:
        agent[key] = tuple(fields.texts(key)) if fields.raw(key) is not None else None
    agent["environment"] = _texts(fields, "environment") or None
    arch, formats, enlarge = fields.text("arch") or "", fields.texts("formats"), bool(fields.flag("enlarge"))
    fields.done()
    if arch and not _ARCH.match(arch):
        raise ImageError(f"arch: {shown(arch)} is no architecture such as aarch64")
    for at, kind in enumerate(formats):
        if kind not in KINDS:
            raise ImageError(f"formats[{at}]: {shown(kind)} is not one of {', '.join(KINDS)}")
    if inputs["ignition"] is not None:
        given = sorted(key for key, value in agent.items() if value is not None)
        if given:
            raise ImageError(f"{given[0]} has no effect beside ignition, which takes the place of the agent")
    return HostOptions(_set(inputs), _set(agent), arch, tuple(dict.fromkeys(formats)) or KINDS, enlarge)


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _arguments(fields: Fields | None) -> Edit | None:
    if fields is None:
        return None
    append, replaced, delete = (tuple(fields.texts(key)) for key in ("append", "replace", "delete"))
    edit = Edit(append, replaced, delete, bool(fields.flag("reset")))
    fields.done()
    return edit


def _unlike(entries: list[Fields]) -> list[Fields]:
    """The entries, of which no two have the same path."""
    seen: dict[str, str] = {}
    for one in entries:
        path = one.needed("path")
        if path in seen:
            raise ImageError(f"{one.at('path')}: {shown(path)} is also {seen[path]}")
        seen[path] = one.path
    return entries


def _file(fields: Fields) -> tuple[str, tuple[bytes, int]]:
    path, mode = fields.needed("path"), fields.text("mode") or "0644"
    if not _MODE.match(mode):
        raise fields.wrong("mode", "is no file mode such as 0644")
    plain, coded = fields.raw("content"), fields.raw("content_base64")
    if (plain is None) == (coded is None):
        raise ImageError(f"{fields.path}: give either content or content_base64")
    for key, value in (("content", plain), ("content_base64", coded)):
        if value is not None and not isinstance(value, str):
            raise ImageError(f"{fields.at(key)}: {shown(value)} is no text; put it into quotes")
    if coded is None:
        data = _encoded(plain, fields.at("content"))
    else:
        try:
            data = base64.b64decode("".join(coded.split()), validate=True)
        except ValueError as error:
            raise ImageError(f"{fields.at('content_base64')} is no base64: {error}") from error
    fields.done()
    return path, (data, int(mode, 8))


def _keys(fields: Fields) -> tuple[str, ...]:
    """Lines for authorized_keys, which may be longer than other texts; what they are is checked with the host."""
    found = fields.entries("ssh_keys")
    for at, key in enumerate(found):
        if not isinstance(key, str):
            raise ImageError(f"{fields.at('ssh_keys')}[{at}]: {shown(key)} is no text")
    return tuple(found)


def _texts(fields: Fields, key: str) -> Mapping[str, str]:
    """A mapping of names to texts, which may have several lines."""
    below = fields.mapping(key)
    if below is None:
        return {}
    found = {}
    for name, value in dict(fields.raw(key)).items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise ImageError(f"{below.at(shown(name))}: {shown(value)} is no text; put it into quotes")
        _encoded(str(value), below.at(shown(name)))
        found[str(name)] = str(value)
    return found


def _plain(fields: Fields, key: str) -> Mapping[str, Any] | None:
    """An Ignition as YAML; it has checks of its own."""
    below = fields.mapping(key)
    return None if below is None else dict(fields.raw(key))


def _encoded(text: str, path: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ImageError(f"{path} is no text in UTF-8") from error


DOCUMENT = ".yaml"  # what is cut from a file's name: the rest is the image's, as the peer has it
_ENDINGS = (DOCUMENT, ".yml", ".json")  # endings that are no part of a host's name
_PREFIX = "host "  # of what problems are of
_MOST_OWN = 8 * 1024 * 1024  # bytes of a file of a host's own


@dataclass
class _Files:
    __slots__ = ("documents", "own")
    documents: list[tuple[str, Signature]]
    own: tuple[str, Signature] | None

    def all(self) -> list[tuple[str, Signature]]:
        return [*self.documents, *([self.own] if self.own else [])]


@dataclass
class _Host:
    """A host that was made, or that could not be."""

    arch: str = ""
    lacking: tuple[str, ...] = ()  # its kinds of images, none of which has a base configured
    failed: bool = False  # it has an error of its own
    waits: bool = False  # it wants a base which is missing or bad


class HostFolder:
    """The hosts of a folder. `begin` is cheap and finds which there are; `refresh` makes what has to be made."""

    def __init__(
        self, publisher: Publisher, bases: Bases, folder: str, inputs: CommonInputs, problems: Problems
    ) -> None:
        self._publisher, self._bases, self._folder, self._inputs = publisher, bases, folder, inputs
        self._problems = problems
        self._changes = Changes()
        self._lock = threading.RLock()
        self._hosts: dict[str, _Host] = {}
        self._states: dict[str, tuple[str, ...]] = {}  # architecture → state of its bases
        self._pending: dict[str, str] = {}  # path → host that was found and not made yet
        self._files: dict[str, _Files] = {}  # of hosts that are pending
        self._said = -1  # how many were not served when that was logged last
        self._asked = 0
        self._scanned: Mapping[str, Signature] = {}
        self._judged: set[str] = set()  # architectures whose bases changed in this refresh
        self._first = True

    def __len__(self) -> int:
        return len(self._hosts)

    def begin(self) -> None:
        """Find the hosts, so that each can be made as soon as it is asked for; OSError: no such folder."""
        self._todo(*self._find())

    def refresh(self) -> None:
        """Make what changed, take away what is gone."""
        self._bases.settle(*(("",) if self._first else ()))
        try:
            changed, files = self._find() if not self._first else ([], {})
        except OSError as error:
            self._problems.report(self._folder, f"the folder cannot be read: {error.strerror}; its images stay")
            return
        if not self._first:
            self._todo(changed, files)
        for key in list(self._files):
            while self._asked:  # a request waits for its own host; locks do not keep an order
                time.sleep(0.001)
            self._make(key)
        self._problems.report(self._folder, "")
        self._inputs.report()
        for arch in self._judged & self._states.keys():
            self._report_bases(arch)
        self._judged.clear()
        if self._first or self.failed != self._said:
            self._first, self._said = False, self.failed
            LOG.log(logging.WARNING if self.failed else logging.INFO, "%s", self.summary())

    def make(self, path: str) -> bool:
        """Make the image of a path if it is one that has to be made; whether it was."""
        key = self._pending.get(path)
        if key is None:
            return False
        self._asked += 1
        try:
            self._make(key)
        finally:
            self._asked -= 1
        return True

    def owns(self, name: str) -> bool:
        """Whether an image of this name is one of a host, whether it is there or not."""
        keys = [name[: -len(suffix)] for suffix in SUFFIXES.values() if name.endswith(suffix)]
        return any(key in self._hosts or key in self._files for key in keys)

    @property
    def failed(self) -> int:
        """How many hosts have no image, or not all of theirs."""
        return sum(host.failed or host.waits for host in list(self._hosts.values()))

    @property
    def wanted(self) -> int:
        """How many hosts have no error of their own."""
        return len(self) - self._with_errors

    @property
    def served(self) -> int:
        """How many hosts have all of their images."""
        return len(self) - self.failed

    @property
    def _with_errors(self) -> int:
        return sum(host.failed for host in list(self._hosts.values()))

    def summary(self) -> str:
        """How many are served, and why others are not."""
        places = {self._bases_of(host.arch) for host in list(self._hosts.values()) if host.waits}
        own, text = self._with_errors, f"{self.served} of {len(self)} hosts are served"
        problems = self._problems.all()
        reasons = [f"{place}: {problems[place]}" for place in sorted(places) if place in problems]
        reasons += [f"with errors of their own: {own}"] if own else []
        return f"{text} ({'; '.join(reasons)})" if reasons else text

    def _find(self) -> tuple[list[str], Mapping[str, _Files]]:
        """Hosts that have to be made, and the files of all that are there."""
        again = self._inputs.refresh()
        found = scan(self._folder)
        files: Mapping[str, _Files] = {}
        dirty: dict[str, None] = {}
        if found != self._scanned or self._changes.waits:
            self._scanned, files = found, grouped(found)
            changed, gone = self._changes.update({key: state(one.all()) for key, one in files.items()})
            dirty = dict.fromkeys(changed)
            for key in gone:
                self._forget(key)
        for arch, before in list(self._states.items()):
            now = self._bases.state(arch)
            if again or now != before:
                self._states[arch] = now
                self._publisher.boot_files(arch)
                self._judged.add(arch)
                dirty.update(dict.fromkeys(key for key, host in self._hosts.items() if host.arch == arch))
        if dirty and not files:
            files = grouped(found)
        return [key for key in dirty if key in files], files

    def _todo(self, changed: list[str], files: Mapping[str, _Files]) -> None:
        with self._lock:
            for key in changed:
                self._files[key] = files[key]
                for kind in KINDS:
                    self._pending[self._publisher.path(key, kind)] = key

    def _forget(self, key: str) -> None:
        with self._lock:
            arch = self._hosts.pop(key, _Host()).arch
            self._publisher.discard(key)
            self._problems.forget(_PREFIX + key)
            LOG.info("%s: gone", escaped(key))
            self._judged.add(arch)
            if all(host.arch != arch for host in self._hosts.values()):
                self._states.pop(arch, None)
                self._problems.forget(self._bases_of(arch))

    def _make(self, key: str) -> None:
        """Make one host; an error in its files is reported, not raised."""
        with self._lock:
            files = self._files.pop(key, None)
            if files is None:
                return
            host, problem, waits = self._hosts.get(key) or _Host(), "", False
            try:
                problem, waits = self._publish(key, files, host)
            except ImageError as error:
                problem = f"{self._place(files)}: {error}"
                self._publisher.withhold(key, KINDS)
            except Exception as error:
                LOG.exception("%s: this is a defect of the image server", escaped(key))
                problem = f"{self._place(files)}: a defect of the image server: {type(error).__name__}"
                self._publisher.withhold(key, KINDS)
            finally:
                self._hosts[key] = host
                for kind in KINDS:
                    self._pending.pop(self._publisher.path(key, kind), None)
            # Who reads of the problem finds it in the metrics, too.
            host.failed, host.waits = bool(problem), waits
            self._problems.report(_PREFIX + key, problem)

    def _publish(self, key: str, files: _Files, known: _Host) -> tuple[str, bool]:
        """What is wrong with it, "" when nothing is; and whether it waits for a base."""
        if len(files.documents) > 1:
            names = " and ".join(escaped(name) for name, _signature in files.documents)
            raise ImageError(f"{names} would share the image name {escaped(key)}; remove or rename one")
        own, network = HostOptions(), None
        if files.own is not None:
            path = os.path.join(self._folder, files.own[0])
            try:
                own = parse_options(read_text(path, _MOST_OWN))
            except ImageError as error:
                raise ImageError(f"{files.own[0]}: {error}") from error
        for name, _signature in files.documents:
            network = read_text(os.path.join(self._folder, name), LONGEST)
        name = files.documents[0][0] if files.documents else key
        host = own.laid_over(HostInputs(name=host_of(name), network=network))
        known.arch = own.arch
        known.lacking = () if any(self._bases.given(kind) for kind in own.formats) else own.formats
        self._hosts[key] = known
        self._judged.add(own.arch)
        if own.arch not in self._states:
            self._states[own.arch] = self._bases.state(own.arch)
            self._publisher.boot_files(own.arch)
            self._report_bases(own.arch)
        newest = max(signature.mtime_ns for _name, signature in files.all()) / 1e9
        outcome = self._publisher.offer(
            key, host, own.arch, own.formats, modified=max(newest, self._inputs.modified), label=escaped(key),
            agent=own.agent, enlarge=own.enlarge,
        )  # fmt: skip
        for warning in outcome.warnings:
            LOG.warning("%s: %s", escaped(key), escaped(warning))
        if not self._first and outcome.urls:
            LOG.info("%s: published", escaped(key))
        missing = [kind for kind, error in outcome.problems.items() if isinstance(error, NotReady)]
        waits = any(self._bases.given(kind) for kind in missing) or bool(missing and not outcome.urls)
        wrong = {kind: str(error) for kind, error in outcome.problems.items() if kind not in missing}
        found = list(dict.fromkeys(wrong.values()))
        if len(found) > 1 or (found and outcome.urls):  # it is of one image, not of the host
            found = [f"{key}{SUFFIXES[kind]}: {text}" for kind, text in wrong.items()]
        return (f"{self._place(files)}: {'; '.join(found)}" if found else ""), waits

    def _report_bases(self, arch: str) -> None:
        """A base that is missing is one problem, not one of each host; one that no host needs is none."""
        problems = []
        needed = {kind for host in self._hosts.values() if host.arch == arch for kind in host.lacking}
        for kind in [kind for kind in KINDS if kind in needed or self._bases.given(kind)]:
            try:
                self._bases.source(arch, kind)
            except NotReady as error:
                problems.append(str(error))
        self._problems.report(self._bases_of(arch), "; ".join(problems))

    def _bases_of(self, arch: str) -> str:
        return f"bases of {arch or self._bases.own_arch}"

    def _place(self, files: _Files) -> str:
        return os.path.join(self._folder, files.all()[0][0])


def grouped(found: Mapping[str, Signature]) -> dict[str, _Files]:
    """The files of each host, by the name of its image without its suffix."""
    hosts: dict[str, _Files] = {}
    for name, signature in sorted(found.items()):
        if name.endswith(OPTIONS_SUFFIX) and name != OPTIONS_SUFFIX:
            hosts.setdefault(name[: -len(OPTIONS_SUFFIX)], _Files([], None)).own = (name, signature)
        else:
            key = name[: -len(DOCUMENT)] if name.endswith(DOCUMENT) else name
            hosts.setdefault(key, _Files([], None)).documents.append((name, signature))
    return hosts


def host_of(name: str) -> str:
    """The host's name by its document's: without an ending that says what kind of file it is."""
    for ending in _ENDINGS:
        if name.endswith(ending) and name != ending:
            return name[: -len(ending)]
    return name


_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}\Z")
_HOST = re.compile(r"[^\x00-\x1f\x7f]{0,253}\Z")
_MOST = 96 * 1024 * 1024  # an image with a larger embed area has its Ignition in here


@dataclass
class _Known:
    """One descriptor that could be read."""

    __slots__ = ("base", "host", "name", "problem")
    name: str
    host: str
    base: Base
    problem: str | None  # why it is not served, "": it is, None: not tried yet


class DescriptorFolder:
    """The images of a folder."""

    def __init__(
        self, registry: Registry, folder: str, path_of: Callable[[str], str], problems: Problems,
        owned: Callable[[str], bool] = lambda name: False,
    ) -> None:  # fmt: skip
        """``path_of``: where an image with a name is registered; ``owned``: names that hosts of another folder have."""
        self._registry, self._folder, self._path_of, self._problems = registry, folder, path_of, problems
        self._owned = owned
        self._changes = Changes()
        self._known: dict[str, _Known] = {}
        self._withheld: set[str] = set()
        self._bases: dict[Base, Base] = {}

    def refresh(self) -> None:
        """Serve what is new, take away what is gone or does not fit its base any more."""
        try:
            found = {name: one for name, one in scan(self._folder).items() if name.endswith(DESCRIPTOR_SUFFIX)}
        except OSError as error:
            self._problems.report(self._folder, f"the folder cannot be read: {error.strerror}; its images stay")
            return
        bad: dict[str, str] = {}
        changed, gone = self._changes.update({name: state([(name, one)]) for name, one in found.items()})
        before = {known.name for known in self._known.values()}
        for file in gone:
            self._known.pop(file, None)
            self._problems.forget(self._place(file))
        for file in changed:
            self._known.pop(file, None)
            try:
                name, host, overlay, _created = self._load(file)
            except ImageError as error:
                bad[file] = str(error)
                continue
            self._known[file] = _Known(name, host, self._bases.setdefault(overlay.base, overlay.base), None)
        for name in before - {known.name for known in self._known.values()}:
            self._withheld.discard(self._path_of(name))
            if not self._owned(name):
                self._registry.remove(self._path_of(name))
                LOG.info("%s: gone", escaped(name))
        self._settle()
        for file, problem in bad.items():
            self._problems.report(self._place(file), problem)
        self._problems.report(self._folder, "")

    def withheld(self, path: str) -> bool:
        """Whether a path is one of a descriptor that cannot be served now."""
        return path in self._withheld

    def names(self) -> list[str]:
        """The images that are served."""
        return sorted(known.name for known in list(self._known.values()) if known.problem == "")

    @property
    def failed(self) -> int:
        """How many descriptors are not served."""
        return sum(1 for known in list(self._known.values()) if known.problem)

    def _settle(self) -> None:
        """Serve each that can be served now, and no other."""
        files: dict[str, list[str]] = {}
        for file, known in self._known.items():
            files.setdefault(known.name, []).append(file)
        used = {known.base for known in self._known.values()}
        self._bases = {base: base for base in self._bases if base in used}
        good = {base: base.unchanged() for base in used}
        for file, known in self._known.items():
            problem = self._conflict(known, files[known.name])
            if not problem and not good[known.base]:
                problem = f"its base {known.base.path} is another one by now, or gone; build the image again"
            if problem == known.problem:
                continue
            if not problem:
                problem = self._serve(file)
            if problem and not self._owned(known.name):
                self._registry.remove(self._path_of(known.name))
                self._withheld.add(self._path_of(known.name))
            known.problem = problem
            self._problems.report(self._place(file), problem)

    def _conflict(self, known: _Known, files: list[str]) -> str:
        if self._owned(known.name):
            return f"{known.name} is already the image of a host in the folder of NMState documents"
        if len(files) > 1:
            return f"{' and '.join(escaped(file) for file in sorted(files))} would share the name {known.name}"
        return ""

    def _serve(self, file: str) -> str:
        """Publish it; what is wrong with it, "" when it is served."""
        try:
            name, host, overlay, created = self._load(file)
            if identify(overlay.base.path) != overlay.base:
                raise ImageError(f"its base {overlay.base.path} is not the one it was built over")
            path = self._path_of(name)
            self._registry.put(path, host or name, overlay, created)
            self._withheld.discard(path)
        except (ImageError, OSError) as error:
            return str(error)
        return ""

    def _load(self, file: str) -> tuple[str, str, Overlay, int]:
        """Name, host, image and date in the file."""
        try:
            data = json_value(read(self._place(file), _MOST))
        except ImageError:
            raise
        except ValueError as error:
            raise ImageError(f"it is no JSON: {error}") from error
        if not isinstance(data, dict) or data.get("kubenode_image") != DESCRIPTOR_VERSION:
            raise ImageError(f"it is no descriptor of version {DESCRIPTOR_VERSION} (kubenode_image)")
        name, host, created = _text(data, "name", _NAME), _text(data, "host", _HOST), data.get("created")
        if not isinstance(created, int) or isinstance(created, bool) or not 0 <= created < 1 << 33:
            raise ImageError(f"created: {created!r:.40} is no number of seconds since 1970")
        return name, host, overlay_of(data), created

    def _place(self, file: str) -> str:
        return os.path.join(self._folder, file)


def _text(data: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    found = data.get(key)
    if not isinstance(found, str) or not pattern.match(found):
        raise ImageError(f"{key}: {found!r:.80} cannot be used")
    return found
