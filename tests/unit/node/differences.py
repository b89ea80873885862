# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rendered plans as differences from each other, in a table that a person reads.

A plan is a list of blocks: its head, which is called plan, then one for each artifact and each setting. A section
of the table begins with a line

    ### NAME: BASE, like OTHER without BLOCK BLOCK

and makes the plan NAME: take the plan BASE ("nothing" when the section holds the whole plan), apply the differences
in the section of OTHER, but not those of the blocks after "without", then the section's own differences:

    @@ BLOCK                      lines of this block change; "..." stands between two places
    @@ BLOCK gone                 the block is not there
    @@ BLOCK instead              the block has these lines in place of its own
    @@ BLOCK new after BLOCK      a block more

Lines begin as in a unified diff: "-" is removed, "+" added, " " shows where. What a place removes and shows is found
in its block exactly once, or the table is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher

#: key → lines; the order is the plan's
Blocks = dict[str, list[str]]
#: a longer block that is less alike than this reads better by its new lines alone
_SHORT, _ALIKE = 8, 0.5
#: how the table begins
_HEAD = """\
Every plan that is no whole file, as differences from another one: differences.py says how to read them. This file
is written with KUBENODE_GOLDEN=write, see test_golden.py.
"""


class DoesNotFitError(Exception):
    """A difference does not belong to this plan."""

    def __init__(self, key: str, why: str):
        super().__init__("the block %s %s" % (key, why))
        self.key, self.why = key, why


@dataclass(frozen=True)
class Change:
    """What becomes of one block."""

    key: str
    #: empty, "gone", "instead" or "new"
    kind: str = ""
    after: str = ""
    #: the changed places; a block that is new or is replaced has one
    places: tuple[tuple[str, ...], ...] = ()


@dataclass
class Section:
    """How the table makes one plan."""

    base: str
    #: other section → its blocks that are left out
    like: dict[str, list[str]] = field(default_factory=dict)
    own: list[Change] = field(default_factory=list)


def blocks(text: str) -> Blocks:
    """The blocks of a rendered plan."""
    result: Blocks = {}
    for number, block in enumerate(re.split(r"\n\n(?=\S)", text.removesuffix("\n")) if text else []):
        head = re.match(r"(?:== )?([^:\s]+)", block)
        key = "plan" if number == 0 else head[1] if head else ""
        if key in result:
            raise ValueError("two blocks are called %r" % key)
        result[key] = block.split("\n")
    return result


def joined(parts: Blocks) -> str:
    """The rendered plan of these blocks."""
    return "\n\n".join("\n".join(lines) for lines in parts.values()) + "\n" if parts else ""


def differences(old: Blocks, new: Blocks) -> list[Change]:
    """What leads from one plan to another."""
    before, after = list(old), list(new)
    gone, added = [], []
    for tag, i, j, k, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += [Change(key, "gone") for key in before[i:j]]
            added += [
                Change(after[at], "new", after[at - 1] if at else "", (_added(new[after[at]]),)) for at in range(k, end)
            ]
    moved = {change.key for change in gone}
    changed = [_changed(key, old[key], new[key]) for key in before if key not in moved and old[key] != new[key]]
    return gone + sorted([*changed, *added], key=lambda change: after.index(change.key))


def applied(old: Blocks, changes: Iterable[Change]) -> Blocks:
    """The plan after these differences."""
    result = dict(old)
    for change in changes:
        if (change.key in result) == (change.kind == "new"):
            raise DoesNotFitError(change.key, "is already there" if change.kind == "new" else "is not there")
        if change.kind == "gone":
            del result[change.key]
        elif change.kind == "new":
            result = _inserted(result, change)
        elif change.kind == "instead":
            result[change.key] = _after(change.places[0])
        else:
            for place in change.places:
                result[change.key] = _replaced(change.key, result[change.key], place)
    return result


def section(base: str, plans: dict[str, Blocks], like: dict[str, list[Change]], wanted: Blocks) -> Section:
    """The section that makes the wanted plan from these earlier plans and from differences of these sections."""
    result, now = Section(base), plans.get(base, {})
    for other, changes in like.items():
        ends = {change.key: change.kind for change in changes}
        taken = {key for key, kind in ends.items() if (key in wanted) == (kind != "gone")}
        while True:
            try:
                now = applied(now, [change for change in changes if change.key in taken])
                break
            except DoesNotFitError as error:
                taken.remove(error.key)
        result.like[other] = [key for key in ends if key not in taken]
    result.own = differences(now, wanted)
    return result


def made(name: str, sections: dict[str, Section], whole: dict[str, Blocks]) -> Blocks:
    """The plan that the table and the whole plans make of a name."""
    if name in whole:
        return whole[name]
    one = sections[name]
    result = {} if one.base == "nothing" else made(one.base, sections, whole)
    try:
        for other, left_out in one.like.items():
            result = applied(result, [change for change in sections[other].own if change.key not in left_out])
        return applied(result, one.own)
    except DoesNotFitError as error:
        raise DoesNotFitError(error.key, "%s, says the section %s" % (error.why, name)) from error


def shown(changes: Iterable[Change]) -> list[str]:
    """Differences as lines of the table."""
    result = []
    for change in changes:
        where = "after " + change.after if change.after else ""
        result.append(" ".join(filter(None, ["@@", change.key, change.kind, where])))
        for number, place in enumerate(change.places):
            result += [*(["..."] if number else []), *place]
    return result


def table(sections: dict[str, Section]) -> str:
    """The text of the table."""
    lines: list[str] = []
    for name, one in sections.items():
        others = [
            ", like " + " ".join([other, *(["without", *left_out] if left_out else [])])
            for other, left_out in one.like.items()
        ]
        lines += ["", "### %s: %s%s" % (name, one.base, "".join(others)), *shown(one.own)]
    return _HEAD + "\n".join(lines) + "\n"


def read(text: str) -> dict[str, Section]:
    """The sections of a table."""
    result = {}
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        head, *lines = part.rstrip("\n").split("\n")
        name, _colon, rest = head.partition(": ")
        base, *others = rest.split(", like ")
        one = Section(base)
        for other in others:
            words = other.split()
            one.like[words[0]] = words[2:]
        for each in re.split(r"^@@ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
            first, *body = each.rstrip("\n").split("\n")
            key, kind, _after_, after = [*first.split(), "", "", ""][:4]
            one.own.append(Change(key, kind, after, _places(body)))
        result[name] = one
    return result


def _places(lines: list[str]) -> tuple[tuple[str, ...], ...]:
    places: list[list[str]] = [[]] if lines else []
    for line in lines:
        if line == "...":
            places.append([])
        else:
            places[-1].append(line)
    return tuple(tuple(place) for place in places)


def _added(lines: list[str]) -> tuple[str, ...]:
    return tuple("+" + line for line in lines)


def _before(place: Iterable[str]) -> list[str]:
    return [line[1:] for line in place if line[0] != "+"]


def _after(place: Iterable[str]) -> list[str]:
    return [line[1:] for line in place if line[0] != "-"]


def _inserted(old: Blocks, change: Change) -> Blocks:
    if change.after and change.after not in old:
        raise DoesNotFitError(change.key, "comes after %s, which is not there" % change.after)
    fresh = {change.key: _after(change.places[0])}
    result: Blocks = {} if change.after else dict(fresh)
    for key, lines in old.items():
        result[key] = lines
        if key == change.after:
            result.update(fresh)
    return result


def _found(lines: list[str], part: list[str]) -> list[int]:
    return [at for at in range(len(lines) - len(part) + 1) if part and lines[at : at + len(part)] == part]


def _replaced(key: str, lines: list[str], place: tuple[str, ...]) -> list[str]:
    old = _before(place)
    at = _found(lines, old)
    if len(at) != 1:
        raise DoesNotFitError(key, "has these lines %d times: %s" % (len(at), old))
    return lines[: at[0]] + _after(place) + lines[at[0] + len(old) :]


def _changed(key: str, old: list[str], new: list[str]) -> Change:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < _ALIKE and len(old) > _SHORT:
        return Change(key, "instead", places=(_added(new),))
    script: list[str] = []
    for tag, i, j, k, end in matcher.get_opcodes():
        script += [" " + line for line in old[i:j]] if tag == "equal" else ["-" + line for line in old[i:j]]
        script += [] if tag == "equal" else _added(new[k:end])
    change = Change(key, places=_cut(script))
    try:
        if applied({key: old}, [change]) == {key: new}:
            return change
    except DoesNotFitError:
        pass
    return Change(key, places=(tuple(script),))


def _cut(script: list[str]) -> tuple[tuple[str, ...], ...]:
    """The places where a block changes, each with as many lines around it as it takes to find it once."""
    old = _before(script)
    places: list[tuple[str, ...]] = []
    end = 0
    while True:
        start = next((at for at in range(end, len(script)) if script[at][0] != " "), None)
        if start is None:
            return tuple(places)
        floor, end = end, start
        while end < len(script) and script[end][0] != " ":
            end += 1
        while len(_found(old, _before(script[start:end]))) != 1:
            if start > floor:
                start -= 1
            elif end < len(script):
                end += 1
                while end < len(script) and script[end][0] != " ":
                    end += 1
            else:
                break
        places.append(tuple(script[start:end]))
