# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Values of options: judged by the specification that documents them, read as the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE, BOOLEANS_TRUE

from .text import escaped, is_digits, shortened

_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list", "dict": "a dictionary",
    "str": "a text", "path": "a path",
}  # fmt: skip
#: How much of a value is shown.
_MOST = 60


def wrong_value(option: Mapping[str, Any], value: object) -> str:
    """A value that cannot be an option's, and what can; empty when it can."""
    try:
        checked = ArgumentSpecValidator({"value": dict(option, required=False)}).validate({"value": value})
        messages = checked.error_messages
    except TypeError:
        # it looks into what should be a dictionary before it has looked whether it is one
        option, messages = dict(option, options=None), ["no %s" % option["type"]]
    # int() takes digits of every script, "1_0" and "1e9".
    odd = option.get("type") == "int" and isinstance(value, str) and not is_digits(value[value.startswith("-") :])
    if not messages and not odd:
        return ""
    shown = "(hidden)" if option.get("no_log") else repr(_shortened(str(value), _MOST))
    if "choices" in option:
        return "%s: use one of %s" % (shown, ", ".join(str(choice) for choice in option["choices"]))
    if option.get("type") in _KINDS and not option.get("options"):
        return "%s: give %s" % (shown, _KINDS[option["type"]])
    return "%s: %s" % (shown, escaped(_shortened("; ".join(messages), 400)))


def truth(value: object) -> object:
    """What Ansible's words for true and false mean, such as ``yes``, ``off`` and 1; any other value as it is."""
    word = value.lower() if isinstance(value, str) else value
    if not isinstance(word, (str, int)):
        return value
    return True if word in BOOLEANS_TRUE else False if word in BOOLEANS_FALSE else value


def _shortened(text: str, limit: int) -> str:
    return shortened(" ".join(text.split()), limit)
