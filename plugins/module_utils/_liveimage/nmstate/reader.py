# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The text of a document, YAML 1.2 or JSON, with limits; built from parser events: no tag makes an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ImageError
from .fields import shown

try:
    import yaml
except ImportError:  # JSON is read without it
    yaml = None  # type: ignore[assignment]

LONGEST = 512 * 1024  # bytes of a document; a Secret holds at most 1 MiB
_DEEPEST, _MOST_NODES = 24, 100_000
_PLAIN: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_PLAIN.update({"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False})
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z")
_TAGS = {"map": "tag:yaml.org,2002:map", "seq": "tag:yaml.org,2002:seq", "str": "tag:yaml.org,2002:str"}


def parse(text: str) -> Mapping[str, Any]:
    """The document of a text; an empty one is a host without settings of its own."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ImageError("the NMState document is no text in UTF-8") from error
    if size > LONGEST:
        raise ImageError("the NMState document has %d bytes, %d is the most" % (size, LONGEST))
    found = _json(text)
    if found is None:
        found = _yaml(text)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ImageError("the NMState document is %s, not a mapping" % shown(found))
    return found


def _json(text: str) -> Any:
    """The document when it is JSON; None when it may be YAML."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text, object_pairs_hook=_pairs)
    except ImageError:
        raise
    except (ValueError, RecursionError):  # YAML's own braces, or too deep: the other parser tells
        return None
    _measure(found, 0)
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ImageError("key %s is given twice in one mapping" % shown(key))
        found[key] = value
    return found


def _measure(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ImageError("the NMState document is nested deeper than %d levels" % _DEEPEST)
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
        where = " in line %d" % (place.line + 1) if place else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise ImageError("the NMState document is no YAML%s: %.200s" % (where, problem)) from error
    except (ValueError, RecursionError) as error:  # the pure parser's own limits
        if isinstance(error, ImageError):
            raise
        raise ImageError("the NMState document is no YAML: %.200s" % ascii(str(error))) from error


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
            raise ImageError("the NMState document is nested deeper than %d levels" % _DEEPEST)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _at(event, "alias *%.40s has no anchor before it" % ascii(event.anchor))
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
                raise _at(event, "key %s is given twice in one mapping" % shown(event.value))
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
            raise ImageError("the NMState document has more than %d values" % _MOST_NODES)


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
        raise _at(event, "tag %s is not supported" % shown(event.tag))


def _at(event: Any, problem: str) -> ImageError:
    return ImageError("the NMState document in line %d: %s" % (event.start_mark.line + 1, problem))
