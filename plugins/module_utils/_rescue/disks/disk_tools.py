# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's own tools: each may be missing, none may hang for ever; and what they print, read.

Nothing that a disk says of itself is trusted to be well-formed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ..._common import mounts
from ..._common.text import LARGEST_NUMBER, json_value, spaced_lines, whole_number
from ..programs import ABSENT, ENDED

#: What they print is read; the programs of users keep the language of the rescue.
_ENGLISH = {"LANG": "C", "LC_ALL": "C"}
_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Tools:
    """``run(argv)`` returns exit code, stdout and stderr, as ``AnsibleModule.run_command`` does.

    ``limits``: it is that of `programs`, which takes a ``limit`` in seconds; without it, `timeout` does that.
    """

    def __init__(
        self, run: Callable[..., tuple[int, str, str]], places: Sequence[str] = _PLACES, limits: bool = False
    ) -> None:
        self._run, self._places, self._limits = run, places, limits

    def find(self, name: str) -> str | None:
        """Where a tool lies; None when it is not there."""
        for place in self._places:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK):
                return path
        return None

    def has(self, name: str) -> bool:
        return self.find(name) is not None

    def __call__(self, name: str, *arguments: object, limit: float = 120) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a tool, which is killed after ``limit`` seconds; 127 when it is not there."""
        path = self.find(name)
        if path is None:
            return ABSENT, "", f"{name} is not there"
        argv = [path] + [str(word) for word in arguments]
        if self._limits:
            code, out, err = self._run(argv, environ_update=_ENGLISH, limit=limit)
        else:  # TERM, and KILL when that does not help; it ends with 124 or 137 then
            code, out, err = self._run([self.find("timeout") or "timeout", "--kill-after=5", str(limit)] + argv)
        if code in (ENDED, 137):
            err = f"{name} did not end within {int(limit)} s"
        return code, out, err


_PREFIXES = re.compile(r"(/dev/disk/by-id/|wwn-|nvme-eui\.|nvme-uuid\.|nvme-nvme\.|0x|eui\.|nvme\.|naa\.|uuid\.)*")

#: LVM's devices at /dev/disk/by-id name what lies on a disk, not the disk.
_NOT_OF_DISKS = ("lvm-pv-uuid-", "dm-", "md-")


class Health(TypedDict):
    """``status``: passed, failed or unknown; ``detail``: why, for people."""

    status: str
    detail: str


class Speed(TypedDict):
    """How fast a disk is read, in KiB/s; None when that is unknown. ``failed``: reading it failed."""

    speed: int | None
    failed: bool
    detail: str


class Content(TypedDict):
    """One kind of content of a device, as blkid or wipefs report it; empty where they do not."""

    type: str
    uuid: str
    label: str
    usage: str
    version: str


class ParseError(ValueError):
    """A tool without which nothing can be said printed something else; the text says which and what."""


def clean(value: object, limit: int = 200) -> str:
    """Text from a disk on one line, without control characters, cut to ``limit`` characters."""
    if value is None or isinstance(value, (dict, list)):
        return ""
    return spaced_lines(" ".join(str(value).split()))[:limit].strip()


def number(value: object) -> int:
    """A whole number that a tool printed as such or as text; 0 for anything else."""
    return _number(value) or 0


def _number(value: object) -> int | None:
    """The same, None for anything else."""
    if isinstance(value, str):
        return whole_number(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST_NUMBER else None


def flag(value: object) -> bool:
    """A truth value that a tool printed as such, as a number or as text."""
    return value is True or str(value).lower() in ("1", "true", "yes")


def plain_wwn(text: str) -> str:
    """A WWN in the form in which two are compared: lower case, without what says of which kind it is."""
    found = _PREFIXES.sub("", clean(text).lower(), count=1)
    bare = re.sub(r"[-:]", "", found)
    return bare if re.match(r"[0-9a-f]+\Z", bare) else found


class Node:
    """A block device as lsblk knows it. ``name`` is the kernel's name, ``parents`` and ``children`` are such names."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.name = clean(fields.get("kname") or fields.get("name"))
        self.shown = clean(fields.get("name")) or self.name
        self.path = clean(fields.get("path")) or "/dev/" + self.name
        self.type = clean(fields.get("type"))
        self.size = number(fields.get("size"))
        self.number = clean(fields.get("maj:min"))
        self.fields = fields
        self.parents: list[str] = []
        self.children: list[str] = []

    def text(self, field: str) -> str:
        """A field of lsblk as clean text."""
        return clean(self.fields.get(field))


def block_devices(text: str) -> dict[str, Node]:
    """Every block device by its kernel name, from ``lsblk --json``; a name that is not plain is left out."""
    try:
        roots = json_value(text)["blockdevices"]
        found: dict[str, Node] = {}
        _add(found, roots, None)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ParseError(f"lsblk did not print the list of block devices ({type(exc).__name__})") from exc
    for node in found.values():
        # lsblk lists them as the kernel's directory does, in no order that holds.
        node.children.sort(key=_natural)
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """A key by which sda2 comes before sda10."""
    return [(len(word), word) for word in re.findall(r"[0-9]+|\D+", name)]


def _add(found: dict[str, Node], entries: Iterable[dict[str, Any]], parent: Node | None) -> None:
    for fields in entries:
        node = Node(fields)
        if not re.match(r"[A-Za-z0-9!][A-Za-z0-9!._-]*\Z", node.name):
            continue
        node = found.setdefault(node.name, node)
        if parent is not None:
            if parent.name not in node.parents:
                node.parents.append(parent.name)
            if node.name not in parent.children:
                parent.children.append(node.name)
        _add(found, fields.get("children") or [], node)


def tags(text: str) -> dict[str, str]:
    """``KEY=VALUE`` lines, as ``blkid -o export`` and ``mdadm --export`` print them; escapes are undone."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key.strip(), clean(re.sub(r"\\(.)", r"\1", value)))
    return found


def signatures(text: str) -> list[dict[str, str]]:
    """What ``wipefs --json`` found: a list of ``{type, uuid, label, usage}``, each type once."""
    found: dict[str, dict[str, str]] = {}
    try:
        for entry in json_value(text)["signatures"]:
            one = {key: clean(entry.get(key)) for key in ("type", "uuid", "label", "usage")}
            if one["type"]:
                found.setdefault(one["type"], one)
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return list(found.values())


def report(text: str, kind: str) -> list[dict[str, str]]:
    """The rows of an LVM report in JSON (``kind``: ``pv`` or ``lv``); none when it is no report."""
    try:
        rows = [row for part in json_value(text)["report"] for row in part.get(kind) or []]
        return [{key: clean(value) for key, value in row.items()} for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def smart(code: int, text: str) -> Health:
    """Health by ``smartctl --health --json``: ``status`` (passed, failed, unknown) and ``detail``."""
    try:
        content = json_value(text)
        verdict = content.get("smart_status")
        messages = content.get("smartctl", {}).get("messages") or []
        detail = clean("; ".join(str(one.get("string")) for one in messages))
    except (ValueError, TypeError, AttributeError):
        return {"status": "unknown", "detail": "smartctl printed no JSON"}
    passed = verdict.get("passed") if isinstance(verdict, dict) else None
    # The exit code is a set of bits; bit 3: the disk is failing, bit 4: an attribute has reached its limit.
    if passed is False or code & 8:
        return {"status": "failed", "detail": detail or "SMART says that the disk is failing"}
    if passed is True:
        worn = "an attribute has reached its limit" if code & 16 else ""
        return {"status": "passed", "detail": detail or worn}
    return {"status": "unknown", "detail": detail or "SMART is not available"}


def read_speed(code: int, text: str) -> Speed:
    """What ``fio --output-format=json`` measured: ``speed`` in KiB/s (None: unknown), ``failed`` and ``detail``."""
    try:
        job = json_value(text[text.index("{") :])["jobs"][0]
        error, speed = number(job["error"]), _number(job["read"]["bw"])
    except (ValueError, LookupError, TypeError):
        error, speed = 0, None
    if error:
        return {"speed": None, "failed": True, "detail": f"reading it fails (fio: error {error})"}
    if code in (124, 137):
        return {"speed": None, "failed": True, "detail": "reading it did not end"}
    if code or speed is None:
        return {"speed": None, "failed": False, "detail": f"fio measured nothing (exit code {code})"}
    return {"speed": speed, "failed": False, "detail": ""}


_NVME_WARNINGS = (
    "the spare space is low",
    "the temperature is out of range",
    "the reliability is degraded",
    "it is read-only",
    "the backup of its memory has failed",
    "the persistent memory is read-only",
)


def nvme_log(code: int, text: str) -> Health:
    """Health by ``nvme smart-log --output-format=json``."""
    try:
        warning = json_value(text)["critical_warning"]
        bits = _number(warning["value"] if isinstance(warning, dict) else warning)
    except (ValueError, KeyError, TypeError):
        bits = None
    if bits is None:
        return {"status": "unknown", "detail": "nvme printed no health"}
    if code:
        return {"status": "unknown", "detail": f"nvme ended with exit code {code}"}
    reasons = [reason for place, reason in enumerate(_NVME_WARNINGS) if bits >> place & 1]
    # A drive that is hot now is not broken.
    failed = bits & ~2 != 0
    return {"status": "failed" if failed else "passed", "detail": "; ".join(reasons)}


def mount_points(text: str) -> dict[str, list[str]]:
    """Mount points by device, from ``/proc/self/mountinfo``; devices as ``major:minor`` and as their source."""
    found: dict[str, list[str]] = {}
    for mount in mounts.parse(text):
        for key in (mount.device, mount.source):
            found.setdefault(key, []).append(mount.point)
    return found


def swaps(text: str) -> list[str]:
    """The paths of active swap, from ``/proc/swaps``."""
    return [mounts.unescape(line.split()[0]) for line in text.splitlines()[1:] if line.split()]


def links(directory: Mapping[str, str]) -> dict[str, list[str]]:
    """Names below ``/dev/disk/by-id`` or ``by-path`` by the kernel name they lead to, those of disks only, in order."""
    found: dict[str, list[str]] = {}
    for link, target in sorted(directory.items()):
        if not link.startswith(_NOT_OF_DISKS) and clean(link) == link:
            found.setdefault(target, []).append(link)
    return found


def size_words(size: int) -> str:
    """A size in bytes for people, as disks are sold: 480 GB."""
    amount, unit = float(size), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if amount < 999.5 or unit == "PB":
            break
        amount /= 1000
    number = f"{amount:.1f}".rstrip("0").rstrip(".") if amount < 100 else f"{amount:.0f}"
    return f"{number} {unit}"
