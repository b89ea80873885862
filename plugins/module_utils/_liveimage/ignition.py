# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Ignition configurations (spec 3): built, merged, checked, written, and shown without their secrets (pure)."""

from __future__ import annotations

import base64
import difflib
import functools
import json
import math
import re
import urllib.parse
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._common.masking import without_login
from .._common.text import escaped, has_control, json_value, shortened
from .cpio import gzipped
from .image_error import ImageError

VERSION = "3.2.0"  # the oldest that has all that is used here; CoreOS of every age since 2020 reads it
_VERSIONS = re.compile(r"3\.[0-9]\.0\Z")
_UNIT = re.compile(
    r"[A-Za-z0-9:_.\\@-]{1,200}\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)\Z"
)
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_MOST = 64 * 1024 * 1024  # bytes of one file
_LONGEST = 4096  # characters of a path
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORTH, _NOT_WORTH = 16 * 1024, 1024 * 1024  # bytes of contents that are kept once they are packed or unpacked
_SECRET_BITS = 0o077  # a file that only its owner may read is never shown
_DEEPEST = 64  # levels of nesting
_NAMES = {dict: "object", list: "list", str: "text", bool: "truth value"}
_SHAPES = {  # of what is read here, and of what Ignition would only refuse on the host
    kind: shape
    for shape, kinds in {
        dict: """ignition ignition.config ignition.config.merge[] kernelArguments passwd passwd.groups[] passwd.users[]
            storage storage.directories[] storage.disks[] storage.files[] storage.files[].append[]
            storage.files[].contents storage.filesystems[] storage.links[] storage.luks[] storage.raid[] systemd
            systemd.units[] systemd.units[].dropins[]""",
        list: """ignition.config.merge kernelArguments.shouldExist kernelArguments.shouldNotExist passwd.groups
            passwd.users passwd.users[].groups passwd.users[].sshAuthorizedKeys storage.directories storage.disks
            storage.files storage.files[].append storage.filesystems storage.links storage.luks storage.raid
            systemd.units systemd.units[].dropins""",
        str: """kernelArguments.shouldExist[] kernelArguments.shouldNotExist[] passwd.groups[].name
            passwd.users[].groups[] passwd.users[].passwordHash passwd.users[].sshAuthorizedKeys[]
            storage.links[].target systemd.units[].contents systemd.units[].dropins[].contents
            systemd.units[].dropins[].name""",
        bool: """storage.directories[].overwrite storage.files[].overwrite storage.links[].hard
            storage.links[].overwrite systemd.units[].enabled systemd.units[].mask""",
    }.items()
    for kind in kinds.split()
}
_TOP = ("ignition", "kernelArguments", "passwd", "storage", "systemd")
_LISTS: dict[tuple[str, ...], str] = {  # lists of things that have a name
    ("storage", "files"): "path",
    ("storage", "directories"): "path",
    ("storage", "links"): "path",
    ("systemd", "units"): "name",
    ("passwd", "users"): "name",
    ("passwd", "groups"): "name",
}


class Config:
    """A configuration while it is built; equal calls in equal order give equal bytes."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Any]] = {}
        self._units: dict[str, dict[str, Any]] = {}
        self._users: dict[str, dict[str, Any]] = {}

    def file(
        self, path: str, content: str | bytes, mode: int = 0o644, *, overwrite: bool = True, append: bool = False
    ) -> Config:
        """A file; ``append`` adds to what the image has there."""
        path = absolute(path)
        if path in self._files:
            raise ImageError(f"file {path} is given twice")
        data = content.encode("utf-8") if isinstance(content, str) else content
        if len(data) > _MOST:
            raise ImageError(f"file {path} has {len(data)} bytes, {_MOST} is the most")
        entry: dict[str, Any] = {"path": path, "mode": mode}
        if append:
            entry["append"] = [source(data)]
        else:
            entry["contents"] = source(data)
            entry["overwrite"] = overwrite
        self._files[path] = entry
        return self

    def unit(self, name: str, contents: str = "", enabled: bool | None = None) -> Config:
        if not _UNIT.match(name):
            raise ImageError(f"unit {name!r} is no name of a systemd unit")
        if name in self._units:
            raise ImageError(f"unit {name} is given twice")
        entry: dict[str, Any] = {"name": name}
        if contents:
            entry["contents"] = contents
        if enabled is not None:
            entry["enabled"] = enabled
        self._units[name] = entry
        return self

    def user(self, name: str, ssh_keys: Sequence[str]) -> Config:
        """Authorised keys of a user; keys given before stay."""
        if not _USER.match(name):
            raise ImageError(f"user {name!r} is no user name")
        entry = self._users.setdefault(name, {"name": name, "sshAuthorizedKeys": []})
        for key in ssh_keys:
            if key not in entry["sshAuthorizedKeys"]:
                entry["sshAuthorizedKeys"].append(key)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain data, without empty parts."""
        found: dict[str, Any] = {"ignition": {"version": VERSION}}
        if self._users:
            found["passwd"] = {"users": list(self._users.values())}
        if self._files:
            found["storage"] = {"files": list(self._files.values())}
        if self._units:
            found["systemd"] = {"units": list(self._units.values())}
        return found


def source(data: bytes) -> dict[str, str]:
    """A resource with its content inside: percent-encoded or base64, packed when that is shorter."""
    return dict(_kept_source(data) if _WORTH <= len(data) <= _NOT_WORTH else _source(data))


def _source(data: bytes) -> Mapping[str, str]:
    plain = "data:," + urllib.parse.quote(data, safe="!$&'()*+,-./:;=?@_~")
    coded = "data:;base64," + base64.b64encode(data).decode("ascii")
    packed = "data:;base64," + base64.b64encode(gzipped(data)).decode("ascii")
    shortest = min(plain, coded, key=len)
    if len(packed) + 24 < len(shortest):
        return {"compression": "gzip", "source": packed}
    return {"source": shortest}


#: a bundle of authorities is the same for all hosts of a server, and packing it takes longer than all else
_kept_source = functools.lru_cache(maxsize=8)(_source)


def content(resource: Mapping[str, Any]) -> bytes | None:
    """The bytes of a resource; None when it has to be fetched from somewhere."""
    url = resource.get("source") or ""
    if not url:
        return b""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    packed = resource.get("compression") == "gzip"
    return _kept_content(url, packed) if _WORTH <= len(url) <= _NOT_WORTH else _content(url, packed)


def _content(url: str, packed: bool) -> bytes:
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise ImageError("a data URL has no comma")  # all of it may be a secret
    try:
        if head.endswith(";base64"):
            data = base64.b64decode(urllib.parse.unquote(body), validate=True)
        else:
            data = urllib.parse.unquote_to_bytes(body)
        return _unpacked(data) if packed else data
    except (ValueError, zlib.error) as error:
        raise ImageError(f"the data URL of kind {head!r:.40} is damaged: {error}") from error


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(31)
    found = unpacker.decompress(data, _MOST + 1)
    if len(found) > _MOST:
        raise ValueError(f"it has more than {_MOST} bytes, which is the most of one file")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is no whole gzip file")
    return found


_kept_content = functools.lru_cache(maxsize=8)(_content)


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both as one; what both say of a file or unit is taken from the second, keys of users from both."""
    found = _merged(first, second, ())
    versions = [str(config.get("ignition", {}).get("version", VERSION)) for config in (first, second)]
    found["ignition"] = {**found.get("ignition", {}), "version": max(versions)}
    return found


def _merged(first: Mapping[str, Any], second: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    found = dict(first)
    for key, value in second.items():
        old = found.get(key)
        here = (*place, key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(old, value, here)
        elif isinstance(old, list) and isinstance(value, list):
            found[key] = _joined(old, value, _LISTS.get(here))
        elif value is not None or key not in found:  # null says nothing, to Ignition, too
            found[key] = value
    return found


def _joined(old: list[Any], new: list[Any], name: str | None) -> list[Any]:
    if name is None:
        return [*old, *(one for one in new if one not in old)]
    entries = {entry[name]: entry for entry in old if isinstance(entry, Mapping) and name in entry}
    for entry in new:
        key = entry.get(name) if isinstance(entry, Mapping) else None
        before = entries.get(key)
        if before is not None and name == "name" and "sshAuthorizedKeys" in before:
            keys = _joined(before["sshAuthorizedKeys"] or [], entry.get("sshAuthorizedKeys") or [], None)
            entry = {**before, **entry, "sshAuthorizedKeys": keys}
        entries[key] = entry
    return list(entries.values())


def problems(config: Any) -> list[str]:
    """What Ignition would refuse, or two places would fight over; one line each with its place."""
    if not isinstance(config, Mapping):
        return ["the configuration is no JSON object"]
    found = list(_wrong_shapes(config, "", "", 0))
    if found:
        return found
    version = _get(config, "ignition", "version")
    if not isinstance(version, str) or not _VERSIONS.match(version):
        found.append(f"'ignition.version' {_short(version)} is not 3.0.0 to 3.9.0")
    paths: dict[str, str] = {}
    for kind in ("files", "directories", "links"):
        for place, entry in _entries(config, ("storage", kind)):
            try:
                path = absolute(entry.get("path"))
            except ImageError as error:
                found.append(f"{place}.path: {error}")
                continue
            if path in paths:
                found.append(f"{place}.path: {_short(path)} is also {paths[path]}")
            paths[path] = place
            mode = entry.get("mode")
            if mode is not None and (not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode <= 0o7777):
                found.append(f"{place}.mode: {_short(mode)} is no file mode")
            for resource in [entry.get("contents"), *(entry.get("append") or [])]:
                found += _resource(place, resource)
    found += _names(config, ("systemd", "units"), _UNIT, "name of a systemd unit")
    return found + _names(config, ("passwd", "users"), _USER, "user name")


def render(config: Mapping[str, Any]) -> bytes:
    """The configuration as JSON, the same bytes for the same content; refused when Ignition would refuse it."""
    _refuse_problems(config)
    return json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode("utf-8")


def parse(text: str | bytes) -> dict[str, Any]:
    """Read a configuration that others wrote."""
    try:
        config = json_value(text)
    except ValueError as error:
        raise ImageError(f"the Ignition is no JSON: {error}") from error
    _refuse_problems(config)
    return dict(config)


def _refuse_problems(config: Any) -> None:
    wrong = problems(config)
    if wrong:
        raise ImageError("the Ignition is not valid: " + "; ".join(wrong[:5]))


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration for people: contents as text, and nothing of files that only their owner may read."""
    files = []
    for entry in _get(config, "storage", "files") or []:
        shown_entry = {key: value for key, value in entry.items() if key not in ("contents", "append")}
        secret = not int(entry.get("mode") or 0o644) & _SECRET_BITS
        for key in ("contents", "append"):
            if entry.get(key):
                shown_entry[key] = [_text(one, secret) for one in ([entry[key]] if key == "contents" else entry[key])]
        files.append(shown_entry)
    found = {key: value for key, value in config.items() if key != "storage"}
    users = _get(found, "passwd", "users")
    if users:
        hidden = [{**one, "passwordHash": "********"} if "passwordHash" in one else one for one in users]
        found["passwd"] = {**found["passwd"], "users": hidden}
    storage = dict(config.get("storage") or {})
    if files:
        storage["files"] = files
    return {**found, **({"storage": storage} if storage else {})}


def absolute(path: Any) -> str:
    """A path that is absolute and plain."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) < 2:
        raise ImageError(f"path {_short(path)} is not absolute")
    if any(part in ("", ".", "..") for part in path[1:].split("/")) or len(path) > _LONGEST or has_control(path):
        raise ImageError(f"path {_short(path)} is not plain")
    return path


def _text(resource: Mapping[str, Any], secret: bool) -> str:
    data = content(resource)
    if data is None:
        return f"from {str(resource.get('source')).partition('?')[0]}"
    if secret:
        return f"******** ({len(data)} bytes)"
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(data)} bytes)"


def _resource(place: str, resource: Any) -> list[str]:
    if resource is None:
        return []
    if not isinstance(resource, Mapping):
        return [f"{place}: its content is no object"]
    url = resource.get("source")
    if url is not None and (
        not isinstance(url, str) or not url.startswith(("data:", "http://", "https://", "s3://", "tftp://", "gs://"))
    ):
        shown = without_login(url) if isinstance(url, str) else url
        return [f"{place}: {shown!r:.40} is no URL that Ignition fetches"]
    try:
        content(resource)
    except ImageError as error:
        return [f"{place}: {error}"]
    return []


def unknown_keys(config: Mapping[str, Any]) -> list[str]:
    """What Ignition would only warn of, in the log of the host; one line each."""
    found = []
    for key in config:
        if key not in _TOP:
            near = difflib.get_close_matches(str(key)[:64], _TOP, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_TOP)}"
            found.append(f"{escaped(str(key)[:60])}: unknown key; {hint}")
    return found


def _quoted(place: str) -> str:
    """What begins as an option of ours is called, in quotes."""
    return f"'{place}'" if place.startswith("ignition.") else place


def _wrong_shapes(value: Any, place: str, kind: str, depth: int) -> Iterator[str]:
    """What no JSON can say, and what is of another type than Ignition reads; ``kind``: the place without numbers."""
    wanted = _SHAPES.get(kind)
    if depth > _DEEPEST:
        yield f"{place!s:.100} is nested deeper than {_DEEPEST} levels"
    elif wanted is not None and not isinstance(value, wanted) and (value is not None or kind.endswith("[]")):
        yield f"{_quoted(place)} is no {_NAMES[wanted]}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str) or _SURROGATE.search(key):
                yield f"{place or 'the configuration'} has a key that is no text in UTF-8"
                continue
            dot = "." if place else ""
            yield from _wrong_shapes(inner, f"{place}{dot}{escaped(key[:60])}", f"{kind}{dot}{key}", depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _wrong_shapes(inner, f"{place}[{number}]", f"{kind}[]", depth + 1)
    elif isinstance(value, str) and _SURROGATE.search(value):
        yield f"{place} is no text in UTF-8"
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{place} is no number that JSON has"


def _entries(config: Mapping[str, Any], keys: Sequence[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return [(f"{'.'.join(keys)}[{number}]", entry) for number, entry in enumerate(_get(config, *keys) or [])]


def _short(value: Any) -> str:
    """A value for a message."""
    return shortened(ascii(value), 100)


def _names(config: Mapping[str, Any], keys: Sequence[str], pattern: re.Pattern[str], what: str) -> list[str]:
    given = [(place, entry.get("name")) for place, entry in _entries(config, keys)]
    found = [
        f"{place}.name: {_short(name)} is no {what}"
        for place, name in given
        if not isinstance(name, str) or not pattern.match(name)
    ]
    counted = sorted(Counter(str(name) for _place, name in given).items())
    return found + [f"{'.'.join(keys)}: {_short(name)} is given twice" for name, count in counted if count > 1]


def _get(config: Any, *keys: str) -> Any:
    for key in keys:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config
