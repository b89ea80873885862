# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the content of secret files out of everything that is printed. Pure."""

from __future__ import annotations

import base64

MASK = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
_FIELDS = ("content", "content_b64")
#: Shorter ones would hide innocent words everywhere, and are shown nowhere anyway.
_SHORTEST = 6


def values(settings):
    """The texts that must not appear in any output: the content of secret files, as given and decoded."""
    found: set[str] = set()
    for setting in settings:
        if not setting.get("secret"):
            continue
        for field in _FIELDS:
            value = setting.get(field)
            if isinstance(value, str) and value.strip():
                found.update((value, value.strip()))
        try:
            decoded = base64.b64decode(setting.get("content_b64") or "", validate=True).decode("utf-8").strip()
        except (ValueError, TypeError):
            continue
        if decoded:
            found.add(decoded)
    return {value for value in found if len(value) >= _SHORTEST}


def resolved(settings, secrets):
    """The settings with the content that ``content_secret`` names, and errors for names that are not there."""
    found, errors = [], []
    for setting in settings:
        name = setting.get("content_secret")
        if name is not None and isinstance(secrets.get(name), str):
            setting = dict(setting, content=secrets[name], secret=True)
            del setting["content_secret"]
        elif name is not None:
            errors.append("%s: content_secret names %r, which is no text in secrets" % (setting.get("id"), name))
        found.append(setting)
    return found, errors


def masked(settings):
    """The settings as an invocation may show them."""
    return [
        dict(setting, **{field: MASK for field in _FIELDS if setting.get(field)}) if setting.get("secret") else setting
        for setting in settings
    ]
