# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Ask by SSH which system answers: a POSIX shell script, and what its answer says; nothing in it is trusted."""

from __future__ import annotations

import re
from typing import Any

from . import origin
from .text import base64_bytes, json_object

#: The first line of every answer.
_BEGIN = "kubenode-probe=1"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")

#: Prints lines ``key=value``: boot_id, hostname, kernel, os, record and intent (packed), and those of `origin.SCRIPT`.
#: A caller's own lines may follow, with ``$boot`` and ``encode FILE [BYTES]``, which prints a file as base64. Record
#: and intent are cut, so that the whole answer fits into the 64 KiB that modules read.
SCRIPT = (
    r"""exec 2>/dev/null
encode() { [ ! -s "$1" ] || head -c "${2:-65536}" "$1" | base64 | tr -d '\n'; }
read -r boot </proc/sys/kernel/random/boot_id
read -r name </proc/sys/kernel/hostname
read -r kernel </proc/sys/kernel/osrelease
echo kubenode-probe=1
echo "boot_id=$boot"
echo "hostname=$name"
echo "kernel=$kernel"
echo "os=$(sed -n '/^PRETTY_NAME=/ { s///; s/"//g; p; }' /etc/os-release)"
echo "record=$(encode /etc/kubenode/installed.json 16384)"
echo "intent=$(encode /root/.kubenode/intent.json 8192)"
"""
    + origin.SCRIPT
)


def fields_of(text: str) -> dict[str, str] | None:
    """The lines of an answer as a dictionary, the first of each key; None when the probe did not run.

    Text before the answer, such as a banner, is left out.
    """
    _before, start, answer = text.replace("\r\n", "\n").partition(_BEGIN + "\n")
    if not start:
        return None
    fields: dict[str, str] = {}
    for line in answer.split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            fields.setdefault(key, value.strip())
    return fields


def boot_id_of(fields: dict[str, str]) -> str:
    """The kernel's boot id; empty when the answer has none."""
    found = fields.get("boot_id", "")
    return found if _BOOT_ID.match(found) else ""


def unpacked(encoded: str) -> str:
    """The text of a file that ``encode`` printed; empty for anything else."""
    return (base64_bytes(encoded) or b"").decode("utf-8", "replace")


def unpacked_json(encoded: str) -> dict[str, Any] | None:
    """The JSON object in a file that ``encode`` printed; None for anything else."""
    return json_object(unpacked(encoded))
