# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What names and paths may look like, so that none is taken for an option, a pattern or a second line. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Any

from ..._common.text import has_control

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_:~-]*")
_UNIT = re.compile(r"[A-Za-z0-9:_][A-Za-z0-9:_.\\@-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SYSCTL = re.compile(r"[A-Za-z0-9_-]+(?:[./][A-Za-z0-9_@:-]+)+")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def path_error(path: Any) -> str | None:
    """What is wrong with an absolute path; None when nothing is."""
    if not isinstance(path, str) or not path.startswith("/") or path.startswith("//"):
        return "must be an absolute path"
    if has_control(path):
        return "must not contain control characters"
    if posixpath.normpath(path) != path:
        return "must be a normalised path (%s)" % posixpath.normpath(path)
    return "must not be the root directory" if path == "/" else None


def _matcher(pattern: re.Pattern[str], what: str) -> Callable[[Any], str | None]:
    def check(name: Any) -> str | None:
        return None if isinstance(name, str) and pattern.fullmatch(name) else "is not the name of a %s" % what

    return check


package_error = _matcher(_PACKAGE, "package")
unit_error = _matcher(_UNIT, "systemd unit")
module_error = _matcher(_MODULE, "kernel module")
sysctl_error = _matcher(_SYSCTL, "sysctl")
_program_error = _matcher(_PROGRAM, "program")


def program_error(name: Any) -> str | None:
    """What is wrong with a program's name or absolute path; None when nothing is."""
    return path_error(name) if isinstance(name, str) and name.startswith("/") else _program_error(name)
