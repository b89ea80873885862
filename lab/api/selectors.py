# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label selectors and label rules (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .api_errors import invalid_input

Labels = Mapping[str, str]
Predicate = Callable[[Labels], bool]

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_KEY = rf"(?:(?P<prefix>{_DNS_LABEL}(?:\.{_DNS_LABEL})*)/)?(?P<name>{_NAME})"
_KEY_RE = re.compile(_KEY)
_VALUE_RE = re.compile(rf"(?:{_NAME})?")
_RESERVED_PREFIX = "hetzner.cloud"
_MAX_PREFIX = 253

_SET_RE = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY_RE = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*)")
_EXISTS_RE = re.compile(r"(?P<negated>!)?\s*(?P<key>[^=!\s]+)")


def key_problem(key: str) -> str | None:
    """Why ``key`` is no label key, or None when it is one."""
    match = _KEY_RE.fullmatch(key)
    if match is None:
        return f"label key '{key}' is not [prefix/]name with a name of 1 to 63 characters from A-Z a-z 0-9 - _ ."
    prefix = match["prefix"]
    if prefix is not None and len(prefix) > _MAX_PREFIX:
        return f"label key '{key}' has a prefix of more than {_MAX_PREFIX} characters"
    if prefix == _RESERVED_PREFIX:
        return f"label key '{key}' uses the reserved prefix {_RESERVED_PREFIX}/"
    return None


def value_problem(value: str) -> str | None:
    """Why ``value`` is no label value, or None when it is one."""
    if _VALUE_RE.fullmatch(value):
        return None
    return f"label value '{value}' is not empty or 1 to 63 characters from A-Z a-z 0-9 - _ ."


def label_problems(labels: Labels) -> list[str]:
    """Everything that is wrong with a map of labels."""
    problems = [key_problem(key) for key in labels] + [value_problem(value) for value in labels.values()]
    return [problem for problem in problems if problem]


def parse(selector: str) -> Predicate:
    """Compile a label selector; the comma is a logical AND, an empty selector matches everything."""
    if not selector.strip():
        return lambda labels: True
    terms = [_term(text.strip(), selector) for text in _split(selector)]
    return lambda labels: all(term(labels) for term in terms)


def _split(selector: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    return re.split(r",(?![^()]*\))", selector)


def _term(text: str, selector: str) -> Predicate:
    if match := _SET_RE.fullmatch(text):
        key = _checked_key(match["key"], selector)
        values = frozenset(_checked_value(value.strip(), selector) for value in match["values"].split(","))
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALITY_RE.fullmatch(text):
        key, value = _checked_key(match["key"], selector), _checked_value(match["value"], selector)
        if match["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS_RE.fullmatch(text):
        key = _checked_key(match["key"], selector)
        if match["negated"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise _refusal(selector, f"'{text}' is no term of a label selector")


def _checked_key(key: str, selector: str) -> str:
    problem = key_problem(key)
    if problem and _RESERVED_PREFIX not in problem:
        raise _refusal(selector, problem)
    return key


def _checked_value(value: str, selector: str) -> str:
    problem = value_problem(value)
    if problem:
        raise _refusal(selector, problem)
    return value


def _refusal(selector: str, problem: str) -> Exception:
    return invalid_input({"label_selector": [f"{problem} (in '{selector}')"]})
