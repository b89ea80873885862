# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A document: its text (YAML 1.2 or JSON, with limits), and its mappings, read key by key.

A value of the wrong kind and an unknown key are refused with their path. The document is built from parser events: no
tag makes an object.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..image_error import ImageError

MOST_ENTRIES = 1000  # of one list
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST = 1024  # characters of one text
_DIGITS = re.compile(r"[+-]?[0-9]{1,20}\Z")
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]{1,16}\Z")
LONGEST = 512 * 1024  # bytes of a document; a Secret holds at most 1 MiB
_DEEPEST, _MOST_NODES = 24, 100_000
_PLAIN: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")
_TAGS = {"map": "tag:yaml.org,2002:map", "seq": "tag:yaml.org,2002:seq", "str": "tag:yaml.org,2002:str"}


class Fields:
    """One mapping and its place in the document; a key set to null counts as not given."""

    def __init__(self, value: Any, path: str) -> None:
        """A mapping of any origin; anything else is refused."""
        if not isinstance(value, Mapping):
            raise ImageError(f"{path or 'the document'}: {shown(value)} is no mapping")
        self._value = value
        self.path = path
        self._known: list[str] = []

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, why: str) -> ImageError:
        return ImageError(f"{self.at(key)}: {shown(self._value.get(key))} {why}")

    def missing(self, key: str, why: str = "") -> ImageError:
        """An error of a key that is not given."""
        return ImageError(f"{self.at(key)} is missing" + (f"; {why}" if why else ""))

    def raw(self, key: str) -> Any:
        self._known.append(key)
        return self._value.get(key)

    def ignore(self, *keys: str) -> None:
        """Keys that only report what is, or that have no meaning before a host boots."""
        self._known.extend(keys)

    def refuse(self, key: str, why: str) -> None:
        """A key that NMState knows and that has no place here; an empty value of it asks for nothing."""
        if self.raw(key) not in (None, {}, []):
            raise ImageError(f"{self.at(key)} is not supported: {why}")

    def mapping(self, key: str) -> Fields | None:
        value = self.raw(key)
        return None if value is None else Fields(value, self.at(key))

    def entries(self, key: str) -> list[Any]:
        """A list; its members are not looked at."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
            raise self.wrong(key, "is no list")
        if len(value) > MOST_ENTRIES:
            raise ImageError(f"{self.at(key)} has {len(value)} entries, {MOST_ENTRIES} is the most")
        return list(value)

    def mappings(self, key: str) -> list[Fields]:
        return [Fields(one, f"{self.at(key)}[{at}]") for at, one in enumerate(self.entries(key))]

    def texts(self, key: str) -> list[str]:
        return [text_of(one, f"{self.at(key)}[{at}]") for at, one in enumerate(self.entries(key))]

    def text(self, key: str) -> str | None:
        """One line of text; a number counts as the text it was written as."""
        value = self.raw(key)
        return None if value is None else text_of(value, self.at(key))

    def secret(self, key: str) -> str | None:
        """A text that no message shows."""
        try:
            return self.text(key)
        except ImageError:
            raise ImageError(f"{self.at(key)} is no single line of text") from None

    def names(self) -> list[str]:
        """All keys, of a mapping whose keys are data."""
        return [text_of(key, self.path) for key in self._value]

    def needed(self, key: str) -> str:
        """The same, which must not be absent or empty."""
        found = self.text(key)
        if not found:
            raise self.missing(key)
        return found

    def one_of(self, key: str, other: str) -> str | None:
        """Which of two names of one setting is used; None when it is not given."""
        keys = [one for one in (key, other) if self.raw(one) is not None]
        if len(keys) == 2:
            raise ImageError(f"{self.at(key)} and {self.at(other)} are the same; give one")
        return keys[0] if keys else None

    def flag(self, key: str) -> bool | None:
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).lower() if isinstance(value, (str, int)) else ""
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise self.wrong(key, "is neither true nor false")

    def flag_text(self, key: str, yes: str = "true", no: str = "false") -> str:
        """A truth value in a keyfile's words, "" when it is not given."""
        value = self.flag(key)
        return "" if value is None else yes if value else no

    def number(self, key: str, low: int, high: int) -> int | None:
        """A whole number within limits, both included; also as text, and with 0x in front."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, str) and _DIGITS.match(value):
            value = int(value)
        elif isinstance(value, str) and _HEXADECIMAL.match(value):
            value = int(value, 16)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key, "is no whole number")
        if not low <= value <= high:
            raise self.wrong(key, f"is not within {low} to {high}")
        return value

    def number_text(self, key: str, low: int, high: int) -> str:
        """The same as text, "" when it is not given."""
        value = self.number(key, low, high)
        return "" if value is None else str(value)

    def needed_number(self, key: str, low: int, high: int) -> int:
        """The same, which must not be absent."""
        value = self.number(key, low, high)
        if value is None:
            raise self.missing(key)
        return value

    def choice(self, key: str, words: Sequence[str], *, numbered: bool = False) -> str | None:
        """One of some words; ``numbered``: also by its place among them, as the kernel counts."""
        found = self.text(key)
        if found is None or found in words:
            return found
        if numbered and re.fullmatch(r"[0-9]{1,2}", found) and int(found) < len(words):
            return words[int(found)]
        raise self.wrong(key, f"is not one of {', '.join(words)}")

    def done(self) -> None:
        """Refuse keys that were not read: they are unknown."""
        for key in self._value:
            if key in self._known:
                continue
            near = difflib.get_close_matches(str(key)[:64], self._known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(set(self._known)))}"
            raise ImageError(f"{self.at(shown(key))}: unknown key; {hint}")


def text_of(value: Any, path: str) -> str:
    """One line of text without control characters."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 2**64 else value
    if not isinstance(value, str):
        raise ImageError(f"{path}: {shown(value)} is no text")
    if len(value) > _LONGEST:
        raise ImageError(f"{path} has {len(value)} characters, {_LONGEST} is the most")
    if _CONTROL.search(value):
        raise ImageError(f"{path}: {shown(value)} has a line break or another control character")
    return value


def shown(value: Any) -> str:
    """A value for a message: on one line, cut."""
    if isinstance(value, str):
        plain = re.match(r"[A-Za-z0-9_.:/-]{1,60}\Z", value)
        return value if plain else ascii(value[:60])
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (int, float)):
        return str(value) if isinstance(value, float) or abs(value) < 10**20 else "a number of many digits"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, Sequence) else f"a value of kind {type(value).__name__}"


try:
    import yaml
except ImportError:  # JSON is read without it
    yaml = None  # type: ignore[assignment]


def parse(text: str) -> Mapping[str, Any]:
    """The document of a text; an empty one is a host without settings of its own."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ImageError("the NMState document is no text in UTF-8") from error
    if size > LONGEST:
        raise ImageError(f"the NMState document has {size} bytes, {LONGEST} is the most")
    found = _json(text)
    if found is None:
        found = _yaml(text)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ImageError(f"the NMState document is {shown(found)}, not a mapping")
    return found


def _json(text: str) -> Any:
    """The document when it is JSON; None when it may be YAML."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text, object_pairs_hook=_pairs)
    except ImageError:
        raise
    except (ValueError, RecursionError):  # YAML's own braces, or too deep: the other parser decides
        return None
    _measure(found, 0)
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ImageError(f"key {shown(key)} is given twice in one mapping")
        found[key] = value
    return found


def _measure(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ImageError(f"the NMState document is nested deeper than {_DEEPEST} levels")
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in members:
        _measure(one, depth + 1)


def _yaml(text: str) -> Any:
    if yaml is None:
        raise ImageError("the NMState document is no JSON, and PyYAML is not installed; install it or give JSON")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _Builder(yaml.parse(text, Loader=loader)).document()
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" in line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise ImageError(f"the NMState document is no YAML{where}: {problem!s:.200}") from error
    except (ValueError, RecursionError) as error:  # the pure parser's own limits
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"the NMState document is no YAML: {ascii(str(error))!s:.200}") from error


class _Builder:
    """Plain values from events, with limits on depth and on what aliases multiply."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def document(self) -> Any:
        """The one document of the stream, None when there is none."""
        found, seen = None, False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise ImageError("the text has more than one YAML document; give one")
                found, seen = self._value(next(self._events), 0), True
        return found

    def _value(self, event: Any, depth: int) -> Any:
        before = self._nodes
        self._count(1)
        if depth > _DEEPEST:
            raise ImageError(f"the NMState document is nested deeper than {_DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _at(event, f"alias *{ascii(event.anchor)!s:.40} has no anchor before it")
            found, nodes = self._anchors[event.anchor]
            self._count(nodes)
            return found
        if isinstance(event, yaml.ScalarEvent):
            found = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            _check_tag(event, "seq")
            found = [self._value(one, depth + 1) for one in self._until(yaml.SequenceEndEvent)]
        else:
            _check_tag(event, "map")
            found = self._mapping(depth)
        if event.anchor:
            self._anchors[event.anchor] = (found, self._nodes - before)
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _at(event, "a key is no text")
            if event.value in found:
                raise _at(event, f"key {shown(event.value)} is given twice in one mapping")
            found[event.value] = None
            found[event.value] = self._value(next(self._events), depth + 1)
        return found

    def _until(self, end: type) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise ImageError(f"the NMState document has more than {_MOST_NODES} values")


def _scalar(event: Any) -> Any:
    """Null, truth values and whole numbers as in YAML 1.2; a MAC address is no number and `no` is a word."""
    if event.tag is not None and event.tag != "!":
        _check_tag(event, "str")
        return event.value
    if not event.implicit[0]:  # quoted
        return event.value
    if event.value in _PLAIN:
        return _PLAIN[event.value]
    return int(event.value) if _INTEGER.match(event.value) else event.value


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _TAGS[kind]):
        raise _at(event, f"tag {shown(event.tag)} is not supported")


def _at(event: Any, problem: str) -> ImageError:
    return ImageError(f"the NMState document in line {event.start_mark.line + 1}: {problem}")
