# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""From stable names of disks to the names that the kernel gives them in this boot, and back (pure).

``disks`` are facts as disk_facts.identities() makes them: ``wwn``, ``serial``, ``by_id``, ``name`` count here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..._common.text import is_digits
from . import disk_facts, disk_tools
from .disk_facts import Disk, Identity

#: Facts in, the same facts out: of the disk alone, or with what it holds.
AnyDisk = TypeVar("AnyDisk", bound=Identity)
_BY_ID = "/dev/disk/by-id/"
_KERNEL = re.compile(r"(/dev/)?((sd|vd|hd|xvd)[a-z]+|nvme[0-9]+n[0-9]+|mmcblk[0-9]+)\Z")


class Unresolved(ValueError):
    """A name leads to no disk, or to several; the text says which and what is there."""


def is_kernel_name(text: str) -> bool:
    """Whether it is a name like C(sda), which may mean another disk after the next boot."""
    return bool(_KERNEL.match(text))


def wwns(disk: Identity) -> set[str]:
    """Every WWN of a disk, in the form in which they are compared."""
    found = {disk_tools.plain_wwn(disk["wwn"])}
    for link in disk["by_id"]:
        if link.startswith(("wwn-", "nvme-eui.", "nvme-uuid.", "nvme-nvme.")):
            found.add(disk_tools.plain_wwn(link))
    return found - {""}


def by_wwn(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this WWN: with or without C(0x), C(eui.) and the like, in upper or lower case."""
    wanted = disk_tools.plain_wwn(text)
    return [disk for disk in disks if wanted and wanted in wwns(disk)]


def by_serial(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this serial number; case counts."""
    return [disk for disk in disks if text.strip() and disk["serial"] == text.strip()]


def by_link(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this name below C(/dev/disk/by-id), with or without the directory."""
    wanted = text[len(_BY_ID) :] if text.startswith(_BY_ID) else text
    return [disk for disk in disks if wanted in disk["by_id"]]


def find(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """Every disk that the name may mean: a WWN, a serial number or a name below C(/dev/disk/by-id)."""
    found: list[AnyDisk] = []
    for matching in (by_wwn(text, disks), by_serial(text, disks), by_link(text, disks)):
        found.extend(disk for disk in matching if disk not in found)
    return found


def one(text: str, disks: Sequence[AnyDisk]) -> AnyDisk:
    """The only disk of this name; raises :class:`Unresolved`."""
    found = find(text, disks)
    if len(found) == 1:
        return found[0]
    if found:
        raise Unresolved(
            f"{text!r} is the name of several disks: {', '.join(disk['name'] for disk in found)}; use a name that "
            "only one of them has"
        )
    if is_kernel_name(text) and any(disk["name"] == text for disk in disks):
        raise Unresolved(
            f"{text!r} is the kernel's name, which may mean another disk after the next boot; use a WWN, a serial "
            f"number or a name below {_BY_ID}"
        )
    raise Unresolved(f"no disk has the name, WWN, serial number or by-id name {text!r}; there are: {known(disks)}")


def resolve(wanted: Iterable[str], disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of these names, in their order; raises :class:`Unresolved`, also when two names mean one disk."""
    found = []
    for text in wanted:
        disk = one(text, disks)
        if disk in found:
            raise Unresolved(f"{text!r} and another name mean the same disk, {disk['name']}; name each disk once")
        found.append(disk)
    return found


def known(disks: Sequence[Identity]) -> str:
    """The disks by their stable names, in a line for people."""
    return "; ".join(f"{disk['name']} ({identity(disk)})" for disk in disks) or "no disks"


def identity(disk: Identity) -> str:
    """What a person recognises a disk by."""
    words = [disk["model"], disk_tools.size_words(disk["size"])]
    words += ["serial " + disk["serial"]] if disk["serial"] else []
    words += ["wwn " + disk["wwn"]] if disk["wwn"] else []
    return ", ".join(word for word in words if word)


def named(disk: Identity) -> str:
    """The disk in a message."""
    return f"disk {disk['name']} ({identity(disk)})"


def stable(disk: Identity, disks: Sequence[Identity]) -> str:
    """A name of the disk that means the same one after the next boot: WWN, by-id name or serial; empty when none."""
    for text in [disk["wwn"]] + list(disk["by_id"]) + [disk["serial"]]:
        if text and find(text, disks) == [disk]:
            return text
    return ""


def strings(chosen: Iterable[Identity], disks: Sequence[Identity], form: str) -> list[str]:
    """The disks as an image command takes them; ``form``: ``short``, ``wwn`` or ``by-id``. Raises Unresolved."""
    found = []
    for disk in chosen:
        if form == "short":
            found.append(disk["name"])
            continue
        options = [disk["wwn"]] if form == "wwn" else disk["by_id"]
        usable = [text for text in options if text and find(text, disks) == [disk]]
        if not usable:
            what = "WWN" if form == "wwn" else "name below " + _BY_ID
            raise Unresolved(f"disk {disk['name']} has no {what} of its own; choose another value of device_strings")
        found.append(usable[0])
    return found


#: Exactly one of these says which disks are meant; the others narrow the choice.
WAYS = ("wwn", "serial", "by_id", "model", "min_size", "smallest", "raid", "query")
NARROWING = ("rotational", "kind")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGTP]?)(i?)B?\Z", re.IGNORECASE | re.ASCII)
#: How many hexadecimal digits a WWN has, and how many decimal ones the longest.
_WWN_DIGITS, _LONGEST_NUMBER = (16, 32), 39
#: What can be copied from any terminal, and is no template in an inventory.
_ASCII = re.compile(r"[ -z|}~]+\Z")
#: What YAML reads as a text without quotes, but for these words.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z", re.ASCII)
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class HintError(ValueError):
    """The hints do not lead to the disks; the text says why. ``permanent``: a retry cannot help."""

    def __init__(self, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


def size_of(text: object) -> int:
    """Bytes of C(480G) (decimal) or C(447GiB) (binary); raises :class:`HintError`."""
    match = _SIZE.match(str(text).strip())
    if not match or (match.group(3) and not match.group(2)):
        raise HintError(f"root_device_hints.min_size: {text!r} is no size; write 480G or 447GiB")
    base = 1024 if match.group(3) else 1000
    whole, dot, rest = match.group(1).partition(".")
    power: int = base ** _POWERS[match.group(2).upper()]
    size = int(whole) * power + (int(rest) * power // 10 ** len(rest) if dot else 0)
    if size < 1:
        raise HintError(f"root_device_hints.min_size: {text!r} is nothing; write 480G or 447GiB")
    return size


def check(hints: Mapping[str, Any] | None) -> dict[str, Any]:
    """The hints that are set; raises :class:`HintError` when they can never lead to disks."""
    found = {key: value for key, value in (hints or {}).items() if value is not None}
    unknown = sorted(set(found) - set(WAYS) - set(NARROWING))
    if unknown:
        raise HintError(f"root_device_hints has no {', '.join(unknown)}; use one of {', '.join(WAYS + NARROWING)}")
    ways = [way for way in WAYS if way in found]
    if len(ways) != 1:
        given = f"it has {' and '.join(ways)}" if ways else "it has none"
        raise HintError(f"root_device_hints needs exactly one of {', '.join(WAYS)}; {given}")
    way, value = ways[0], found[ways[0]]
    if way == "smallest":
        if value is not True:
            shown = json.dumps(str(value) if isinstance(value, (dict, list)) else value)[:100]
            raise HintError(f"root_device_hints.smallest is {shown}; it is either true or left out")
    elif way == "raid":
        wwns = value.get("wwn") if isinstance(value, dict) else None
        if not isinstance(wwns, list) or len(wwns) < 2:
            raise HintError("root_device_hints.raid needs the WWNs of at least two disks: raid: {wwn: [A, B]}")
        if len({disk_tools.plain_wwn(str(wwn)) for wwn in wwns}) != len(wwns):
            raise HintError(f"root_device_hints.raid names a WWN twice: {', '.join(str(wwn) for wwn in wwns)}")
        if not all(disk_tools.plain_wwn(str(wwn)) for wwn in wwns):
            raise HintError("root_device_hints.raid has an empty WWN")
        _check_wwns("raid.wwn", wwns)
    elif not str(value).strip():
        raise HintError(f"root_device_hints.{way} is empty")
    if way == "wwn":
        _check_wwns("wwn", [value])
    if way == "min_size":
        size_of(value)
    if way in ("wwn", "serial", "by_id") and is_kernel_name(str(value)):
        raise HintError(
            f"root_device_hints.{way}: {value!r} is the kernel's name, which may mean another disk after the next boot"
        )
    return found


def _check_wwns(field: str, wwns: Sequence[object]) -> None:
    """A WWN with 0x and without quotes is a number for YAML, which comes as another text."""
    for text in [str(wwn).strip() for wwn in wwns]:
        if not is_digits(text) or len(text) in _WWN_DIGITS or len(text) > _LONGEST_NUMBER:
            continue
        meant = f"{int(text):x}"
        for digits in _WWN_DIGITS:
            if digits - 4 < len(meant) <= digits:  # zeros at its front are gone
                meant = "0x" + meant.zfill(digits)
                raise HintError(f"root_device_hints.{field}: {text} is what YAML makes of {meant}; write it in quotes")


def no_candidate(disk: Disk) -> str:
    """Why a disk is never chosen; empty when it may be."""
    if not disk["size"]:
        return "it has no size"
    if disk["removable"]:
        return "it is removable"
    if disk["read_only"]:
        return "it is read-only"
    return ""


def choose(
    hints: Mapping[str, Any] | None, disks: Sequence[Disk], search: Callable[[str, Any], object] | None = None
) -> list[Disk]:
    """The disks that the hints mean, facts in and facts out; raises :class:`HintError`.

    ``search(query, disks)`` evaluates a JMESPath query.
    """
    hints = check(hints)
    reasons = {disk["name"]: no_candidate(disk) or _outside(disk, hints) for disk in disks}
    candidates = [disk for disk in disks if not reasons[disk["name"]]]
    way = next(way for way in WAYS if way in hints)
    value = hints[way]
    if way == "raid":
        return _raid(value["wwn"], disks, candidates, reasons)
    if way == "query":
        if search is None:
            raise HintError("root_device_hints.query cannot be evaluated here")
        return _of_query(value, search(value, candidates), disks, candidates, reasons)
    if way == "smallest":
        least = min((disk["size"] for disk in candidates), default=0)
        matching = [disk for disk in candidates if disk["size"] == least]
        what = "smallest"
    else:
        matching = _matching(way, str(value), candidates)
        what = f"{way} {value!r}"
    return _only(matching, what, disks, reasons)


def _matching(way: str, value: str, candidates: list[Disk]) -> list[Disk]:
    if way == "wwn":
        return by_wwn(value, candidates)
    if way == "serial":
        return by_serial(value, candidates)
    if way == "by_id":
        return by_link(value, candidates)
    if way == "model":
        return [disk for disk in candidates if _plain_model(disk["model"]) == _plain_model(value)]
    return [disk for disk in candidates if disk["size"] >= size_of(value)]


def _plain_model(text: str) -> str:
    return " ".join(text.replace("_", " ").lower().split())


def _outside(disk: Disk, hints: Mapping[str, Any]) -> str:
    if "rotational" in hints and disk["rotational"] != hints["rotational"]:
        return f"it is {'' if disk['rotational'] else 'not '}rotational"
    if "kind" in hints and disk["kind"] != hints["kind"]:
        return f"its kind is {disk['kind']}"
    return ""


def _only(matching: list[Disk], what: str, disks: Sequence[Disk], reasons: Mapping[str, str]) -> list[Disk]:
    if len(matching) == 1:
        return matching
    if matching:
        same = f" ({', '.join(disk['name'] for disk in matching)})"
        raise HintError(
            f"root_device_hints: {what} means {len(matching)} disks{same}, not "
            f"one:\n{disk_facts.candidates(disks, _why(disks, reasons, matching))}"
        )
    raise HintError(
        f"root_device_hints: {what} means no disk of this "
        f"machine:\n{disk_facts.candidates(disks, _why(disks, reasons, matching))}",
        permanent=True,
    )


def _raid(
    wwns: Sequence[object], disks: Sequence[Disk], candidates: list[Disk], reasons: Mapping[str, str]
) -> list[Disk]:
    found = []
    for wwn in wwns:
        matching = _only(by_wwn(str(wwn), candidates), f"raid.wwn {wwn!r}", disks, reasons)
        if matching[0] in found:
            raise HintError(f"root_device_hints.raid names disk {matching[0]['name']} twice")
        found.extend(matching)
    return found


def _of_query(
    query: str, answer: object, disks: Sequence[Disk], candidates: list[Disk], reasons: Mapping[str, str]
) -> list[Disk]:
    chosen: list[Any] = answer if isinstance(answer, list) else [] if answer is None else [answer]
    by_name = {disk["name"]: disk for disk in candidates}
    for one in chosen:
        if not isinstance(one, dict) or by_name.get(str(one.get("name"))) != one:
            raise HintError(
                f"root_device_hints.query {query!r} must give a disk or a list of disks, whole as they are in the "
                f"facts; it gave {disk_tools.clean(repr(one), 100)}"
            )
    found = [by_name[one["name"]] for one in chosen]
    if not found:
        return _only([], f"query {query!r}", disks, reasons)
    if len({disk["name"] for disk in found}) != len(found):
        raise HintError(f"root_device_hints.query {query!r} gave a disk twice")
    return found


def to_copy(disks: Sequence[Disk]) -> list[str]:
    """A line for the inventory for each disk that can be chosen, then for equal ones; behind it what it means."""
    found = []
    equal: dict[tuple[object, ...], list[Disk]] = {}
    for disk in disks:
        about = f"{disk['name']}, {disk_tools.size_words(disk['size'])} {disk_facts.kind_words(disk)}"
        names = (("serial", disk["serial"]), ("wwn", disk["wwn"]), *(("by_id", link) for link in disk["by_id"]))
        for way, value in names:
            if _ASCII.match(value) and _means({way: value}, disks, [disk]):
                found.append(f"kubenode_root_device_hints: {{{way}: {_quoted(value)}}}  # {about}")
                equal.setdefault((disk["size"], disk["kind"], disk["rotational"]), []).append(disk)
                break
    for same in equal.values():
        wwns = [disk["wwn"] for disk in same]
        if len(same) > 1 and all(map(_ASCII.match, wwns)) and _means({"raid": {"wwn": wwns}}, disks, same):
            named = " and ".join(disk["name"] for disk in same)
            found.append(f"kubenode_root_device_hints: {{raid: {{wwn: [{', '.join(map(_quoted, wwns))}]}}}}  # {named}")
    return found


def _means(hints: Mapping[str, Any], disks: Sequence[Disk], wanted: list[Disk]) -> bool:
    try:
        return choose(hints, disks) == wanted
    except HintError:
        return False


def _quoted(value: str) -> str:
    """A text of a disk as YAML: in quotes unless it can be nothing but a text.

    In single ones where they can say it: Ansible shows messages as JSON, in which double quotes are escaped.
    """
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


def _why(disks: Sequence[Disk], reasons: Mapping[str, str], matching: list[Disk]) -> dict[str, str]:
    chosen = {disk["name"] for disk in matching}
    return {
        disk["name"]: "matches" if disk["name"] in chosen else reasons[disk["name"]] or "does not match"
        for disk in disks
    }
