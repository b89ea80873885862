# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Checks what is asked before any of it reaches a program. Pure."""

from __future__ import annotations

from ..machine import names

_CHECKS = {
    "packages": names.package_error,
    "binaries": names.program_error,
    "units": names.unit_error,
    "files": names.path_error,
    "sysctls": names.sysctl_error,
    "modules": names.module_error,
}


def errors(params):
    """One line for each name that cannot be asked for."""
    found = []
    for option, check in _CHECKS.items():
        for name in params[option]:
            error = check(name)
            if error:
                found.append("%s: %r %s" % (option, name, error))
    return found
