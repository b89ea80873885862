# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scalars of YAML: plain ones with their types, quoted ones with their escapes."""

from __future__ import annotations

import re
from typing import Any

_NULLS = ("", "~", "null", "Null", "NULL")
#: with the words of YAML 1.1, as the kubelet's own reader has them
_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})\Z")
_BASED = re.compile(r"[-+]?(0x[0-9a-fA-F]+|0o?[0-7]+|0b[01]+)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?\Z|[-+]?[0-9]+[eE][-+]?[0-9]+\Z")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.S)
_SHORT = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"}
_SHORT.update({" ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"})


_BREAKS = re.compile(r"(\\?)[ \t]*\n((?:[ \t]*\n)*)[ \t]*")


class YamlError(ValueError):
    """The text is no YAML, or uses what is not read here."""


def plain(text: str) -> Any:
    """Value of a scalar without quotes."""
    if text in _NULLS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _INT.match(text):
        return int(text)
    if _BASED.match(text):
        digits = text.lstrip("+-").lower()
        base = {"0x": 16, "0b": 2}.get(digits[:2], 8)
        number = int(digits.replace("0o", "", 1) if base == 8 else digits[2:], base)
        return -number if text.startswith("-") else number
    if _FLOAT.match(text):
        return float(text)
    return text


def quoted(text: str) -> str:
    """Value of a scalar with its quotes; raises :class:`YamlError` at an unknown escape."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return _ESCAPE.sub(_escaped, text[1:-1])


def folded(text: str) -> str:
    """A quoted scalar of several lines as one: a break is a blank, each further one a newline."""

    def joint(match: re.Match) -> str:
        breaks = match.group(2).count("\n")
        if match.group(1) and text[0] == '"':  # an escaped break joins without a blank
            return "\n" * breaks
        return match.group(1) + ("\n" * breaks if breaks else " ")

    return _BREAKS.sub(joint, text)


def _escaped(match: re.Match) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code not in _SHORT:
        raise YamlError("yaml: found unknown escape character %r" % code)
    return _SHORT[code]


def closing_quote(text: str) -> int:
    """Where the quote that opens ``text`` closes; -1 when it does not."""
    quote, index = text[0], 1
    while index < len(text):
        if text[index] == "\\" and quote == '"':
            index += 2
        elif text[index] == quote:
            if quote == "'" and text[index + 1 : index + 2] == "'":
                index += 2
                continue
            return index
        else:
            index += 1
    return -1
