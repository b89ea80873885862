# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How machines are reached: an installed system where that differs from its rescue, and by which way ssh goes there."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .names import address_error
from .text import whole_number

_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


#: Settings of ssh by which it takes another way than a plain connection would.
_OTHER_WAYS = ("proxyjump", "proxycommand", "bindaddress", "bindinterface")


def direct_address(settings: str) -> tuple[str, int] | None:
    """Where a plain connection leads to a machine; None behind a jump host, where only ssh finds the way.

    ``settings``: what ``ssh -G`` printed.
    """
    found = dict(line.split(" ", 1) for line in settings.splitlines() if " " in line)
    port = whole_number(found.get("port"))
    if not port or "hostname" not in found or any(found.get(name, "none") != "none" for name in _OTHER_WAYS):
        return None
    return found["hostname"], port


def findings(one: Mapping[str, Any]) -> list[str]:
    """What is wrong with the fields of a machine by which it is reached; None: not set.

    They are ``address``, ``os_user``, ``os_port``, ``os_private_key`` and ``ssh_args``.
    """
    user, port, key = (one.get(field) for field in ("os_user", "os_port", "os_private_key"))
    address, found = one.get("address"), []
    if address and address_error(address) is not None:
        found.append(f"address: {str(address)[:100]!r}: {address_error(address)}")
    if user is not None and not (isinstance(user, str) and _USER.match(user)):
        found.append(f"os_user: {user!r} is no user name; use letters, digits, '-', '_' and '.'")
    number = whole_number(str(port)) if port is not None and not isinstance(port, bool) else None
    if port is not None and not 0 < (number or 0) < 65536:
        found.append(f"os_port: {port!r} is no port; use a number from 1 to 65535")
    if key is not None and not (isinstance(key, str) and os.path.isfile(os.path.expanduser(key))):
        found.append(f"os_private_key: there is no file {key!r} on the controller")
    try:
        shlex.split(str(one.get("ssh_args") or ""))
    except ValueError as error:
        found.append(f"ssh_args: {str(one['ssh_args'])[:200]!r} cannot be split into words ({error})")
    return found
