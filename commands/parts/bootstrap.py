# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap data: told by its content."""

from __future__ import annotations

import contextlib
import json
import re
import zlib

from commands.parts.errors import Refused
from commands.parts.formats import MAGIC


class Bootstrap:
    """The bootstrap data, and the SSH keys that go with it."""

    def __init__(self, data: bytes, keys: list):
        self.data, self.keys = data, keys
        self.kind = kind_of_bootstrap(data)


def kind_of_bootstrap(data: bytes) -> str:
    """Tell bootstrap data by content: cloud-init, ignition or none."""
    text = data
    if data.startswith(MAGIC["gz"]):  # cloud-init takes compressed user data as well
        with contextlib.suppress(zlib.error):
            text = zlib.decompressobj(31).decompress(data, 4096)
    text = text.lstrip()
    if not text:
        return "none"
    heads = rb"#!|#cloud-|#include|#part-handler|##\s*template:\s*jinja|content-type\s*:|mime-version\s*:"
    if re.match(heads, text, re.I):
        return "cloud-init"
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict) and isinstance(found.get("ignition"), dict) and "version" in found["ignition"]:
            return "ignition"
    raise Refused(
        "bootstrap data: neither cloud-init (#cloud-config, #!, #include, MIME, jinja template) "
        'nor Ignition ({"ignition": {"version": …})'
    )
