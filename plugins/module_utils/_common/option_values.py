# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Options: their values are judged by the specification that documents them, and messages name what the user has set.

Code names the options of a module. Where a playbook fills them from variables, the module's option ``variables`` says
which variable holds which option, and messages name that one. A module whose options may hold secrets logs none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE, BOOLEANS_TRUE

from .text import escaped, is_digits, shortened

_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a dictionary",
    "str": "a text", "path": "a path", "json": "JSON, as a text or as a dictionary",
}  # fmt: skip
#: How much of a value is shown.
_MOST = 60


class NoLogModule(AnsibleModule):
    """Does not write its arguments to the machine's log, where Ansible can hide top-level options only."""

    def _log_invocation(self) -> None:
        self.log("Invoked; the arguments are not logged, since they may hold secrets")


#: The login in an address.
_LOGIN = re.compile(r"//[^/@\s]*@")
#: How ansible-core speaks of keys in a dictionary that is called ``value``.
_UNKNOWN = re.compile(r"^value\.(.*)\. Supported parameters include: (.*)\.\Z", re.DOTALL)
_MISSING = re.compile(r"^missing required arguments: (.*) found in value(?: -> .*)?\Z", re.DOTALL)


def wrong_value(option: Mapping[str, Any], value: object) -> str:
    """A value that cannot be an option's, and what can; empty when it can."""
    members = option.get("options")
    inside = _inside(option, value) if members and not option.get("no_log") else []
    try:
        given = {"value": _as_specified(option, value)}
        checked = ArgumentSpecValidator({"value": dict(option, required=False)}).validate(given)
        messages = checked.error_messages
    except TypeError:
        # it looks into what should be a dictionary before it has looked whether it is one
        option, messages = dict(option, options=None), [f"no {option['type']}"]
    except OverflowError:
        # .inf in YAML, which int() refuses in a way of its own
        messages = ["a number in it has no end"]
    # int() takes digits of every script, "1_0" and "1e9", Decimal() a list of three.
    odd = option.get("type") == "int" and (
        isinstance(value, list) or (isinstance(value, str) and not is_digits(value[value.startswith("-") :]))
    )
    odd = odd or (option.get("type") == "path" and isinstance(value, str) and no_path(value) != "")
    if not messages and not odd and not inside:
        return ""
    text = str(value) if isinstance(value, str) or not members else _outlined(value)
    shown = "(hidden)" if option.get("no_log") else repr(_shortened(_LOGIN.sub("//…@", text), _MOST))
    if "choices" in option:
        return f"{shown}: use one of {', '.join(str(choice) for choice in option['choices'])}"
    if option.get("type") in _KINDS and not option.get("options") and not inside:
        return f"{shown}: give {_KINDS[option['type']]}"
    if option.get("type") == "dict" and option.get("options") and not isinstance(value, Mapping):
        return f"{shown}: give a dictionary with keys of these: {', '.join(sorted(option['options']))}"
    if option.get("type") == "list" and option.get("options") and not inside and not isinstance(value, list):
        return f"{shown}: give a list of dictionaries with keys of these: {', '.join(sorted(option['options']))}"
    if inside:
        messages = [*inside, *(text for text in messages if _UNKNOWN.match(text) or _MISSING.match(text))]
    messages = [_MISSING.sub(r"\1 is missing", _UNKNOWN.sub(r"\1 is no key; use one of \2", text)) for text in messages]
    return f"{shown}: {escaped(_shortened('; '.join(messages), 400))}"


def _inside(option: Mapping[str, Any], value: object, place: str = "") -> list[str]:
    """What in a dictionary, or in a list of them, is of a wrong kind; ansible-core says so in words of Python."""
    members, found = option.get("options") or {}, []
    if option.get("type") == "list" and isinstance(value, list):
        element = {"type": option.get("elements"), "options": members}
        for number, item in enumerate(value):
            found += _of_member(element, item, f"{place}[{number}]")
    elif option.get("type") == "dict" and isinstance(value, Mapping):
        for key in [key for key in members if value.get(key) is not None]:
            found += _of_member(members[key], value[key], f"{place}.{key}" if place else key)
    return found


def _of_member(option: Mapping[str, Any], value: object, place: str) -> list[str]:
    inside = [] if option.get("no_log") else _inside(option, value, place)
    if inside:
        return inside
    members, is_container = option.get("options") or {}, isinstance(value, (list, Mapping))
    if option.get("type") in ("str", "path") and is_container:
        shown = "(hidden)" if option.get("no_log") else repr(_shortened(_outlined(value), _MOST))
        return [f"{place} {shown}: give a text, not a {'list' if isinstance(value, list) else 'dictionary'}"]
    kinds = [one["type"] for one in members.values()]
    if option.get("type") == "dict" and isinstance(value, list) and kinds == ["list"]:
        # the dictionary says only what is in the list
        return [f"write {place.rpartition('.')[2]}: {{{next(iter(members))}: {_outlined(value)}}}"]
    wrong = wrong_value(option, value)
    # What is missing, or is no key, is said of the whole.
    is_whole = bool(members) and isinstance(value, list if option.get("type") == "list" else Mapping)
    return [f"{place} {wrong}"] if wrong and not is_whole else []


def _outlined(value: object) -> str:
    """The keys of dictionaries; what they hold may be an address with a password."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_outlined(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_outlined, value)) + "]"
    return "…" if isinstance(value, str) else str(value)


def no_path(text: str) -> str:
    """Why a text can be no path; empty when it can be one."""
    if "\0" in text:
        return "a path has no NUL in it"
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return "a path has no lone surrogate in it"
    return ""


def _as_specified(option: Mapping[str, Any], value: object) -> object:
    """Lists and dictionaries of their own, as deep as the option says what is in them; anything else as it is.

    The validator copies what it is given. With a container of ansible-core 2.19, which renders its values when they are
    read, it would copy the template engine and all variables of the host. In a secret it looks at everything.
    """
    if option.get("no_log"):
        option = {}
    unspecified = option.get("type") in ("dict", "list", "raw") and not any(
        option.get(key) for key in ("choices", "elements", "options")
    )
    members = option.get("options") or {}
    if isinstance(value, dict):
        keys = () if unspecified else tuple(value)
        return {key: _as_specified(members.get(key, {}), value[key]) for key in keys}
    if isinstance(value, (list, tuple)):
        element = {"type": option.get("elements"), "options": members}
        items = [] if unspecified else [_as_specified(element, item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def truth(value: object) -> object:
    """What Ansible's words for true and false mean, such as ``yes``, ``off`` and 1; any other value as it is."""
    word = value.lower() if isinstance(value, str) else value
    if not isinstance(word, (str, int)):
        return value
    return True if word in BOOLEANS_TRUE else False if word in BOOLEANS_FALSE else value


def _shortened(text: str, limit: int) -> str:
    return shortened(" ".join(text.split()), limit)


#: Documented by the fragment C(hetzner.variables).
VARIABLES = {"type": "dict", "default": {}}

# What is quoted is of others: a value, the name of a file, what a document has.
_QUOTED = r"(?<!\w)'[^'\n]*'(?!\w)"
# An option with an underscore is no word of a sentence. In a path, an URL and a quoted value it stays as it is.
_NAME = r"(?<![\w./:'\"@-])(%s)(?![\w/'\"@=-])"
# Other options may be words of sentences. They count at the beginning of a finding, with a member behind them
# (which the kernel arguments of Ignition only seem to have), and where the text says that something is to be set.
_AT_FIRST = r"(?:^|(?<=\n)|(?<=\n- ))(%s)(?![\w/-])"
_OF_A_MACHINE = r"(?:(?<=': )|(?<=; )|(?<= failed: )|(?<= fail: ))(%s)(?=: | [\"'\[{]|[.\[])"
_WITH_MEMBER = r"(?<![\w./:'\"@-])(?!ignition\.(?:firstboot|platform|config\.url)\b)(%s)(?=\.[a-z]|\[[0-9])"
_TO_SET = r"(?:(?<=\b[Ss]et )|(?<=\bentries to )|(?<=\boption )|(?<=\bit in ))(%s)(?![\w./-])"
# With a value that means something, as in "as proof: port says".
_WITH_VALUE = r"(?<![\w./:'\"@-])(%s)(?=: [\w-]+ (?:says|asks|ignores|skips)\b)"


def in_variables(text: str, variables: Mapping[str, str] | None) -> str:
    """The text, with the names of variables in the place of the options that these hold."""
    known = {option: variable for option, variable in (variables or {}).items() if variable and variable != option}
    if not known or not text:
        return text
    names = "|".join(sorted((re.escape(option) for option in known if "_" in option), key=len, reverse=True))
    words = "|".join(sorted((re.escape(option) for option in known if "_" not in option), key=len, reverse=True))
    patterns = [_NAME % names] if names else []
    patterns += [one % words for one in (_AT_FIRST, _OF_A_MACHINE, _WITH_MEMBER, _TO_SET, _WITH_VALUE)] if words else []

    def named(found: re.Match[str]) -> str:
        return next((known[name] for name in found.groups() if name), found[0])

    return re.sub("|".join([_QUOTED, *patterns]), named, text, flags=re.ASCII)
