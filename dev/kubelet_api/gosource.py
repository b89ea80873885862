# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Go sources as far as the tables need them: packages, imports, constants, function bodies, arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

_COMMENT_OR_STRING = re.compile(r'("(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/', re.S)
_IMPORT_BLOCK = re.compile(r"^import\s*\(\s*\n(.*?)^\)", re.S | re.M)
_IMPORT = re.compile(r'^\s*(?:([\w.]+)\s+)?"([^"]+)"', re.M)
_CONSTANT = re.compile(r'^\s*(?:const\s+)?(\w+)\s*(?:\w+\s*)?=\s*"((?:\\.|[^"\\])*)"\s*$', re.M)
_FUNCTION = re.compile(r"^func\s+(?:\([^)]*\)\s*)?(\w+)\s*\(", re.M)
_BUILD = re.compile(r"^//\s*(?:go:build|\+build)\s+(.+)$", re.M)


class Missing(LookupError):
    """The sources lack something that the tables need."""


class GoFile:
    """One file, without its comments."""

    def __init__(self, text: str) -> None:
        self.text = _COMMENT_OR_STRING.sub(lambda match: match.group(1) or " ", text)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Alias → import path."""
        found = {}
        for block in _IMPORT_BLOCK.findall(self.text):
            for alias, path in _IMPORT.findall(block):
                found[alias or path.rsplit("/", 1)[-1]] = path
        return found

    @cached_property
    def constants(self) -> dict[str, str]:
        """Name → value of the constants that are plain strings."""
        return dict(_CONSTANT.findall(self.text))

    def functions(self) -> Iterator[tuple[str, str]]:
        """Name and body of every function and method."""
        for match in _FUNCTION.finditer(self.text):
            start = self.text.index("{\n", match.end()) if "{\n" in self.text[match.end() :] else -1
            if start >= 0:
                yield match.group(1), self.text[start + 1 : closing(self.text, start)]


class Package:
    """The files of one folder that are built for Linux."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = []
        for path in sorted(folder.glob("*.go")):
            text = path.read_text(encoding="utf-8")
            if not path.stem.endswith(("_test", "_windows", "_darwin", "_freebsd")) and for_linux(text):
                self.files.append(GoFile(text))


class Sources:
    """Packages by their import paths."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._packages: dict[str, Package] = {}

    def package(self, path: str) -> Package:
        """The package of an import path; raises :class:`Missing`."""
        if path not in self._packages:
            if path not in self._folders:
                raise Missing("there is no package %s" % path)
            self._packages[path] = Package(self._folders[path])
        return self._packages[path]


def for_linux(text: str) -> bool:
    """Whether the build constraint at the top of a file lets Linux in."""
    head = text.split("\npackage ", 1)[0]
    for line in _BUILD.findall(head):
        # the old form separates alternatives by blanks and conditions by commas
        terms = line if "&&" in line or "||" in line else line.replace(" ", " || ").replace(",", " && ")
        words = re.sub(r"[\w.]+", lambda match: str(match.group(0) in ("linux", "unix", "amd64", "cgo")), terms)
        expression = words.replace("&&", " and ").replace("||", " or ").replace("!", " not ")
        if not eval(expression, {"__builtins__": {}}):  # the words are True, False, and, or, not and brackets
            return False
    return True


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; strings are passed over."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    stack = [pairs[text[start]]]
    index = start + 1
    while stack:
        if index >= len(text):
            raise ValueError("a bracket is never closed: %r" % text[start : start + 60])
        char = text[index]
        if char in "\"`'":
            index = _after_string(text, index)
            continue
        if char in pairs:
            stack.append(pairs[char])
        elif char == stack[-1]:
            stack.pop()
        index += 1
    return index - 1


def arguments(text: str, start: int) -> list[str]:
    """The arguments of the call whose bracket opens at ``start``."""
    end = closing(text, start)
    found, index, begin = [], start + 1, start + 1
    while index < end:
        if text[index] in "\"`'":
            index = _after_string(text, index)
        elif text[index] in "({[":
            index = closing(text, index) + 1
        else:
            if text[index] == ",":
                found.append(text[begin:index].strip())
                begin = index + 1
            index += 1
    last = text[begin:end].strip()
    return [*found, last] if last else found


def _after_string(text: str, start: int) -> int:
    quote, index = text[start], start + 1
    while text[index] != quote:
        index += 2 if text[index] == "\\" and quote != "`" else 1
    return index + 1
