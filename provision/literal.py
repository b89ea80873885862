# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables as a file for Ansible in which no string is a template: `{{` in a value stays `{{`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def document(values: Mapping[str, Any]) -> str:
    """The variables as YAML; every string is tagged `!unsafe` and written in printable ASCII."""
    # a key with a question mark may be of any length, one without has at most 1024 characters
    return "".join(f"? {_quoted(name)}\n: {_value(value)}\n" for name, value in sorted(values.items())) or "{}\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{%s}" % ", ".join(f"? {_key(key)} : {_value(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_value(item) for item in value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # always with a point: YAML 1.1 reads 1e+16 as a string
        return _float(value)
    # dates and all other types of YAML come as their text
    return "!unsafe " + _quoted(str(value))


def _key(key: Any) -> str:
    """Keys are no templates in Ansible; numbers as keys stay numbers."""
    return _quoted(key) if isinstance(key, str) else _value(key)


def _float(value: float) -> str:
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[text]
    mantissa, exponent, power = text.partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + exponent + power


def _quoted(text: str) -> str:
    return '"%s"' % "".join(_character(character) for character in text)


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    number = ord(character)
    if 0x20 <= number < 0x7F:
        return character
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
