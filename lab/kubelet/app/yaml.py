# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML as far as configuration files use it: block and flow collections, every kind of scalar, anchors; no tags."""

from __future__ import annotations

import re
from typing import Any

from lab.kubelet.app.yaml_scalars import YamlError, closing_quote, folded, plain, quoted

_KEY = re.compile(
    r'("(?:\\.|[^"\\])*"|\'(?:\'\'|[^\'])*\'|[^\s#\[\]{}&*!|>\'"%@`,?:-][^#]*?|[?:-][^\s#][^#]*?|)\s*:(?=\s|\Z)'
)
_BLOCK = re.compile(r"([|>])([+-]?)([0-9]?)([+-]?)\s*(?:#.*)?\Z")
_ANCHOR = re.compile(r"&([^\s,\[\]{}]+)(?:\s+|\Z)")


def loads(text: str) -> Any:
    """The document in ``text``; raises :class:`YamlError` with the line."""
    return _Reader(text).document()


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.replace("\r\n", "\n").split("\n")
        self.at = 0
        self.anchors: dict[str, Any] = {}

    def fail(self, why: str) -> YamlError:
        return YamlError("yaml: line %d: %s" % (min(self.at + 1, len(self.lines)), why))

    def document(self) -> Any:
        self._skip()
        if self.at < len(self.lines) and self.lines[self.at].startswith("---"):
            rest = self.lines[self.at][3:].strip()
            self.lines[self.at] = "" if rest.startswith("#") else rest
            self._skip()
        if self.at >= len(self.lines):
            return None
        value = self.node(0)
        self._skip()
        if self.at < len(self.lines) and self.lines[self.at].rstrip() not in ("...", "---"):
            raise self.fail("did not find expected key")
        return value

    def _skip(self) -> None:
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            if line and not line.startswith("#"):
                return
            self.at += 1

    def _indent(self) -> int:
        """Indentation of the next line with content; -1 at the end of the document."""
        self._skip()
        if self.at >= len(self.lines):
            return -1
        line = self.lines[self.at]
        if line.rstrip() in ("---", "..."):
            return -1
        body = line.lstrip(" ")
        if body.startswith("\t"):
            raise self.fail("found character that cannot start any token")
        return len(line) - len(body)

    def node(self, least: int) -> Any:
        """The node that begins on the next line with content, which is indented by at least ``least``."""
        indent = self._indent()
        if indent < least:
            return None
        body = self.lines[self.at][indent:]
        if body == "-" or body.startswith("- "):
            return self.sequence(indent)
        if self._key(body):
            return self.mapping(indent)
        self.lines[self.at] = " " * indent + body
        return self.inline(body, least - 1, indent)

    def sequence(self, indent: int) -> list:
        items = []
        while self._indent() == indent:
            body = self.lines[self.at][indent:]
            if not (body == "-" or body.startswith("- ")):
                break
            rest = body[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self.at += 1
                items.append(self.node(indent + 1))
                continue
            inner = indent + len(body) - len(rest)
            nested = rest == "-" or rest.startswith("- ") or self._key(rest)
            if nested:  # "- key: value" is a mapping that begins in the middle of the line
                self.lines[self.at] = " " * inner + rest
                items.append(self.node(inner))
            else:
                items.append(self.inline(rest, indent, inner))
        if self._indent() > indent:
            raise self.fail("did not find expected '-' indicator")
        return items

    def mapping(self, indent: int) -> dict:
        found: dict = {}
        while self._indent() == indent:
            body = self.lines[self.at][indent:]
            match = self._key(body)
            if match is None:
                if body == "-" or body.startswith("- "):
                    break
                raise self.fail("could not find expected ':'")
            raw = match.group(1)
            key = quoted(raw) if raw[:1] in ("'", '"') else plain(raw)
            if key in found:
                raise self.fail('key "%s" already set in map' % key)
            rest = body[match.end() :].lstrip(" ")
            found[key] = self.value(rest, indent, indent + len(body) - len(rest))
        if self._indent() > indent:
            raise self.fail("mapping values are not allowed in this context")
        return found

    def value(self, rest: str, indent: int, column: int) -> Any:
        """What follows a key: on its line, or below it."""
        anchor = _ANCHOR.match(rest)
        if anchor:
            value = self.value(rest[anchor.end() :], indent, column + anchor.end())
            self.anchors[anchor.group(1)] = value
            return value
        if rest and not rest.startswith("#"):
            return self.inline(rest, indent, column)
        self.at += 1
        below = self._indent()
        if below == indent and self.lines[self.at][indent:].split(" ")[0] == "-":
            return self.sequence(indent)
        return self.node(indent + 1)

    def inline(self, rest: str, indent: int, column: int) -> Any:
        """A value that begins at ``column`` of this line; lines below belong to it when they are indented deeper."""
        anchor = _ANCHOR.match(rest)
        if anchor:
            value = self.inline(rest[anchor.end() :], indent, column + anchor.end())
            self.anchors[anchor.group(1)] = value
            return value
        block = _BLOCK.match(rest)
        if block:
            self.at += 1
            return self.block(block, indent)
        if rest.startswith("*"):
            name = rest[1:].split("#")[0].strip()
            if name not in self.anchors:
                raise self.fail("unknown anchor '%s' referenced" % name)
            self.at += 1
            return self.anchors[name]
        if rest[0] in "\"'":
            return self.quoted(rest)
        if rest[0] in "[{":
            return self.flow(rest)
        if rest[0] in "!%@`":
            raise self.fail("%r cannot begin a value here" % rest[0])
        return self.plain(rest, indent)

    def plain(self, rest: str, indent: int) -> Any:
        parts = [re.sub(r"(^|\s)#.*\Z", "", rest).strip()]
        self.at += 1
        if re.search(r":(\s|\Z)", parts[0]):
            raise self.fail("mapping values are not allowed in this context")
        while "#" not in rest and self._indent() > indent:
            body = self.lines[self.at].strip()
            if self._key(body):
                raise self.fail("mapping values are not allowed in this context")
            parts.append(re.sub(r"\s#.*\Z", "", body))
            self.at += 1
        return plain(" ".join(parts))

    def quoted(self, rest: str) -> str:
        text = rest
        self.at += 1
        while (end := closing_quote(text)) < 0:
            if self.at >= len(self.lines):
                raise self.fail("found unexpected end of stream")
            text += "\n" + self.lines[self.at]
            self.at += 1
        tail = text[end + 1 :].strip()
        if tail and not tail.startswith("#"):
            raise self.fail("did not find expected key")
        return quoted(folded(text[: end + 1]))

    def flow(self, rest: str) -> Any:
        text = rest
        self.at += 1
        while True:
            reader = _Flow(text, self.anchors)
            try:
                value = reader.value()
            except IndexError:  # it goes on below
                if self.at >= len(self.lines):
                    raise self.fail("did not find expected ',' or ']'") from None
                text += "\n" + self.lines[self.at].strip()
                self.at += 1
                continue
            tail = text[reader.at :].strip()
            if tail and not tail.startswith("#"):
                raise self.fail("did not find expected key")
            return value

    def block(self, head: re.Match, indent: int) -> str:
        style, chomp = head.group(1), head.group(2) or head.group(4)
        rows: list[str] = []
        depth = indent + int(head.group(3)) if head.group(3) else 0
        while self.at < len(self.lines):
            line = self.lines[self.at]
            body = line.lstrip(" ")
            if body and not depth and len(line) - len(body) > indent:
                depth = len(line) - len(body)
            if body and (not depth or len(line) - len(body) < depth):
                break
            rows.append(line[depth:] if body else "")
            self.at += 1
        kept = len(rows)
        while kept and not rows[kept - 1]:
            kept -= 1
        text = "\n".join(rows[:kept]) if style == "|" else _folded(rows[:kept])
        if chomp == "+":
            return text + "\n" * (len(rows) - kept + bool(kept) - (self.at >= len(self.lines)))
        return text + "\n" if kept and chomp != "-" else text

    def _key(self, body: str) -> re.Match | None:
        return _KEY.match(body) if body[:1] not in "[{" else None


def _folded(rows: list[str]) -> str:
    text = ""
    for index, row in enumerate(rows):
        if not index:
            text = row
        elif not row:
            text += "\n"
        elif rows[index - 1] and not row.startswith(" ") and not rows[index - 1].startswith(" "):
            text += " " + row
        elif not rows[index - 1] and text.endswith("\n"):
            text += row
        else:
            text += "\n" + row
    return text


class _Flow:
    """A flow collection; raises IndexError when the text ends before it does."""

    def __init__(self, text: str, anchors: dict[str, Any]) -> None:
        self.text = text
        self.at = 0
        self.anchors = anchors

    def _peek(self) -> str:
        while self.text[self.at] in " \n\t":
            self.at += 1
        return self.text[self.at]

    def value(self) -> Any:
        char = self._peek()
        if char == "[":
            return self._list()
        if char == "{":
            return self._map()
        if char in "\"'":
            end = closing_quote(self.text[self.at :])
            if end < 0:
                raise IndexError
            raw = self.text[self.at : self.at + end + 1]
            self.at += end + 1
            return quoted(folded(raw))
        start = self.at
        while self.text[self.at] not in ",]}" and not (
            self.text[self.at] == ":" and self.text[self.at + 1] in " \n,]}"
        ):
            self.at += 1
        raw = re.sub(r"\s*\n\s*", " ", self.text[start : self.at].strip())
        if raw.startswith("*"):
            return self.anchors[raw[1:]]
        return plain(raw)

    def _list(self) -> list:
        items: list = []
        self.at += 1
        while self._peek() != "]":
            items.append(self.value())
            if self._peek() == ",":
                self.at += 1
        self.at += 1
        return items

    def _map(self) -> dict:
        found: dict = {}
        self.at += 1
        while self._peek() != "}":
            key = self.value()
            found[key] = None
            if self._peek() == ":":
                self.at += 1
                found[key] = None if self._peek() in ",}" else self.value()
            if self._peek() == ",":
                self.at += 1
        self.at += 1
        return found
