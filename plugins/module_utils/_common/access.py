# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How an installed system is reached where that differs from its rescue."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from .names import address_error
from .text import whole_number

_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def findings(one: Mapping[str, Any]) -> list[str]:
    """What is wrong with ``address`` and ``os_user``, ``os_port``, ``os_private_key`` of a machine; None: not set."""
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
    return found
