# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Values as the formats of other programs want them quoted."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def refuse_control(text, what):
    """The text itself; ValueError when it has a line break or another control character, which no quoting carries."""
    if _CONTROL.search(text):
        raise ValueError("%s has a line break or another control character; remove it" % what)
    return text


def systemd_environment(name, value):
    """One Environment= line of a unit: specifiers doubled, quotes and backslashes escaped."""
    text = refuse_control(value, name).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return 'Environment="%s=%s"' % (name, text)


def systemd_word(value):
    """One argument of an ExecStart= line."""
    text = refuse_control(value, "an argument").replace("\\", "\\\\").replace('"', '\\"')
    return '"%s"' % text.replace("%", "%%").replace("$", "$$")


def apt_value(value):
    """A quoted value of an apt.conf file. Such a file cannot carry a double quote, so that one is percent-encoded."""
    return '"%s"' % refuse_control(value, "an apt option").replace('"', "%22")
