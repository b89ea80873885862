# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What an image has embedded: shown without secrets, or reset to what was published."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from .. import agent, cpio, ignition, iso, kargs
from ..base_file import glance, identify
from ..image_error import ImageError
from ..iso import RECIPE
from ..isofs import SYSTEM_AREA
from ..nmstate.profile import SECRET
from ..overlay import DESCRIPTOR_SUFFIX, Bytes, Overlay, materialise, overlay_of, read, read_descriptor, whole

HIDDEN = "********"
_SECRET_KEYS = ("httpHeaders", "keyFile", "passwordHash")
_URL_USER = re.compile(r"(://)[^/\s\"'@]+@")
# what was given to the agent's container; the variables of our own are no secrets
_UNIT_VARIABLE = re.compile(r'("--env=(?!IPA_COREOS_|IPA_DEFAULT_HOSTNAME=)[^="\\]+=)(?:[^"\\]|\\.)*"')
_KEYFILE_SECRET = re.compile(f"({SECRET.pattern}).*", SECRET.flags)
_TAIL = 64 * 1024 * 1024  # where an Ignition behind an initramfs is looked for
_ARCHIVE = re.compile(b"\x1f\x8b\x08|\xfd7zXZ\x00|07070[12]")
_TRIES = 64
_RESOURCE = 2 * 1024 * 1024  # of one attempt: more is the initramfs itself


class DiffEntry(TypedDict):
    """One difference, as Ansible shows it with --diff."""

    before_header: str
    after_header: str
    before: str
    after: str


def masked_ignition(config: bytes | Mapping[str, Any]) -> Any:
    """An Ignition as data without its secrets; a short text when it is none."""
    if isinstance(config, bytes):
        try:
            config = ignition.parse(config)
        except ImageError:
            return f"({len(config)} bytes that are no valid Ignition)"
    return _masked(ignition.shown(config))


def initramfs_profiles(members: Mapping[str, bytes]) -> dict[str, str]:
    """The network profiles for the initramfs among the members of an archive."""
    return {
        name.rpartition("/")[2]: masked_keyfile(data)
        for name, data in sorted(members.items())
        if name.startswith(iso.NETWORK + "/")
    }


def ignition_profiles(config: bytes) -> dict[str, str]:
    """The network profiles inside an Ignition: only root reads them on the host, but people shall see what changes."""
    found = {}
    try:
        for entry in (ignition.parse(config).get("storage") or {}).get("files") or []:
            folder, name = str(entry.get("path")).rpartition("/")[::2]
            data = ignition.content(entry.get("contents") or {}) if folder == agent.PROFILES else None
            if data is not None:
                found[name] = masked_keyfile(data)
    except ImageError:
        return {}
    return found


def masked_keyfile(data: bytes) -> str:
    """A NetworkManager keyfile without the values that are secrets."""
    return _KEYFILE_SECRET.sub(r"\g<1>" + HIDDEN, data.decode("utf-8", "replace"))


def members_text(members: Mapping[str, bytes]) -> str:
    """What is embedded as one text, for a diff: a heading for each thing, its content indented."""
    lines: list[str] = []
    if iso.IGNITION in members:
        lines += _lines(masked_ignition(members[iso.IGNITION]))
        for name, text in ignition_profiles(members[iso.IGNITION]).items():
            lines += _block(f"network profile {name}", text)
    for name, text in initramfs_profiles(members).items():
        lines += _block(f"network profile of the initramfs {name}", text)
    return "".join(f"{line}\n" for line in lines)


def _lines(config: Any) -> list[str]:
    if not isinstance(config, Mapping):
        return [str(config)]
    rest = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    lines = [f"Ignition {rest.get('ignition', {}).pop('version', '')}"]
    for entry in rest.get("storage", {}).pop("files", []):
        text = "".join(one for key in ("contents", "append") for one in entry.get(key, ()))
        how = "".join(f" {key}" for key in ("append", "overwrite") if entry.get(key))
        lines += _block(f"file {entry.get('path')} {int(entry.get('mode') or 0o644):04o}{how}", text)
    for entry in rest.get("systemd", {}).pop("units", []):
        how = "".join(f" {key}" for key in ("enabled", "mask") if entry.get(key))
        lines += _block(f"unit {entry.get('name')}{how}", str(entry.get("contents") or ""))
        for dropin in entry.get("dropins") or []:
            lines += _block(f"drop-in {dropin.get('name')}", str(dropin.get("contents") or ""))
    for user in rest.get("passwd", {}).pop("users", []):
        lines += _block(f"user {user.get('name')}", "\n".join(map(str, user.get("sshAuthorizedKeys") or [])))
    more = {key: value for key, value in rest.items() if value}
    return lines + (_block("more", json.dumps(more, indent=2, sort_keys=True)) if more else [])


def _block(heading: str, text: str) -> list[str]:
    return [heading, *("    " + line for line in text.splitlines())]


def _masked(value: Any, key: str = "") -> Any:
    if key in _SECRET_KEYS and value:
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _masked(one, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if not isinstance(value, str):
        return value
    if key == "source":
        return "(data)" if value.startswith("data:") else _URL_USER.sub(rf"\g<1>{HIDDEN}@", value.partition("?")[0])
    return _UNIT_VARIABLE.sub(rf'\g<1>{HIDDEN}"', _URL_USER.sub(rf"\g<1>{HIDDEN}@", value))


@dataclass(frozen=True)
class Inspected:
    """What is in an image; ``members``: path → content, what the first root file system gets on top of its own."""

    kind: str
    size: int
    etag: str
    members: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    iso: iso.Iso | None = None

    @property
    def customised(self) -> bool:
        """Whether anything was embedded."""
        return self.iso.customised if self.iso is not None else bool(self.members)

    @property
    def arguments(self) -> kargs.KernelArguments | None:
        """The kernel arguments of an ISO that has areas for them."""
        return None if self.iso is None else self.iso.kernel_arguments


def inspect_file(path: str, *, digest: bool = True) -> Inspected:
    """The image in a file, or the one a descriptor describes; ``digest``: its tag is asked for, too."""
    if path.endswith(DESCRIPTOR_SUFFIX):
        data = read_descriptor(path)
        if data is None:
            raise ImageError(f"image {path} is not there")
        overlay = overlay_of(data)
        if not overlay.base.unchanged():
            raise ImageError(f"image {path}: its base {overlay.base.path} is gone or was changed")
        return inspect_overlay(overlay)
    if not os.path.lexists(path):
        raise ImageError(f"image {path} is not there")
    return inspect_overlay(whole(identify(path) if digest else glance(path)))


def inspect_overlay(overlay: Overlay) -> Inspected:
    """The image an overlay describes."""
    tag = overlay.etag() if overlay.base.identity else ""
    if read(overlay, SYSTEM_AREA, 6) == b"\x01CD001":
        found = iso.of(overlay)
        return Inspected("iso", overlay.size, tag, found.embedded, found)
    members = appended_members(overlay)
    return Inspected("initramfs" if members else "other", overlay.size, tag, members)


def appended_members(overlay: Overlay) -> Mapping[str, bytes]:
    """The members of the archive that ends an initramfs, when it is one of an Ignition or of network profiles."""
    for segment in overlay.segments[-2:]:
        if isinstance(segment, Bytes):
            found = _members(segment.data)
            if found:
                return found
    start = max(0, overlay.size - _TAIL)
    tail = read(overlay, start, overlay.size - start)
    places = [match.start() for match in _ARCHIVE.finditer(tail) if not (start + match.start()) % 4]
    for place in places[: -_TRIES - 1 : -1]:
        found = _members(tail[place:])
        if found:
            return found
    return {}


def as_result(image: Inspected) -> dict[str, Any]:
    """What the module returns of an image: everything but secrets."""
    found: dict[str, Any] = {
        "kind": image.kind,
        "size": image.size,
        "etag": image.etag,
        "customised": image.customised,
        "members": sorted(image.members),
        "ignition": None,
        "ignition_bytes": len(image.members.get(iso.IGNITION, b"")),
        "network": {},
        "initramfs_network": initramfs_profiles(image.members),
    }
    if iso.IGNITION in image.members:
        found["ignition"] = masked_ignition(image.members[iso.IGNITION])
        found["network"] = ignition_profiles(image.members[iso.IGNITION])
    if image.iso is not None:
        area = image.iso.area
        found["area"] = {"offset": area.extent.offset, "length": area.extent.length, "source": area.source}
        found["volume_id"] = image.iso.files.volume_id
        found["features"] = dict(image.iso.features)
        found["has_minimal"] = image.iso.files.find(RECIPE) is not None
    if image.arguments is not None:
        found["kernel_arguments"] = {
            "current": image.arguments.current, "default": image.arguments.default, "limit": image.arguments.limit,
        }  # fmt: skip
    return found


def diff_texts(image: Inspected) -> dict[str, str]:
    """For a diff: what is embedded, and the kernel arguments."""
    found = {"": members_text(image.members)}
    if image.arguments is not None:
        found["kernel arguments"] = "".join(f"{word}\n" for word in image.arguments.current.split())
    return found


def _members(data: bytes) -> Mapping[str, bytes]:
    """The members of an archive up to the end of the data; nothing when it is another archive."""
    if len(data) > _RESOURCE and data[:2] != b"\x1f\x8b" and data[:1] != b"\xfd":
        return {}
    try:
        found = cpio.contents(data)
    except ImageError:
        return {}
    ours = iso.IGNITION in found or any(name.startswith(iso.NETWORK + "/") for name in found)
    return found if ours else {}


def show_images(paths: Sequence[str]) -> list[dict[str, Any]]:
    """One entry an image; one that cannot be read has ``failed``."""
    found = []
    for path in paths:
        entry: dict[str, Any] = {"path": path, "failed": False, "changed": False, "msg": ""}
        try:
            entry.update(as_result(inspect_file(path)))
        except ImageError as error:
            entry.update(failed=True, msg=str(error))
        found.append(entry)
    return found


def reset_images(
    paths: Sequence[str], *, check: bool, write: Callable[[Overlay, str, int], None] = materialise
) -> tuple[list[dict[str, Any]], list[DiffEntry]]:
    """Entries and differences; every image is read before the first one is written."""
    images: list[Inspected | str] = []
    for path in paths:
        try:
            images.append(_iso_at(path))
        except ImageError as error:
            images.append(str(error))
    found: list[dict[str, Any]] = []
    diff: list[DiffEntry] = []
    for path, one in zip(paths, images):
        entry: dict[str, Any] = {"path": path, "failed": False, "changed": False, "msg": "nothing is embedded"}
        found.append(entry)
        if isinstance(one, str):
            entry.update(failed=True, msg=one)
            continue
        if one.iso is None or not one.customised:
            continue
        after = iso.reset(one.iso)
        entry.update(changed=True, msg="would be reset" if check else "reset")
        was, will = diff_texts(one), diff_texts(inspect_overlay(after))
        for part in sorted(was):
            header = f"{path} ({part})" if part else path
            if was[part] != will[part]:
                diff.append(DiffEntry(before_header=header, after_header=header, before=was[part], after=will[part]))
        if not check:
            try:
                write(after, path, stat.S_IMODE(os.stat(path).st_mode))
            except (ImageError, OSError) as error:
                entry.update(failed=True, changed=False, msg=str(error))
    return found, diff


def _iso_at(path: str) -> Inspected:
    if os.path.islink(path):
        raise ImageError(f"image {path} is a link; name the file itself")
    found = inspect_file(path, digest=False)
    if found.kind != "iso" or path.endswith(".json"):
        raise ImageError(f"image {path} is no ISO; other images are made again from their base")
    return found
