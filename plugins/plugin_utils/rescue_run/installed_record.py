# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed record of a machine: what was installed, when, and when it was proven (pure, but for the script)."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url as image_urls

#: Writes its first argument as the record; whole or not at all. Another user than root needs sudo without a password.
SCRIPT = r"""
[ "$(id -u)" = 0 ] && how= || how="sudo -n"
printf '%s\n' "$1" | $how /bin/sh -c '
umask 022
mkdir -p /etc/kubenode && cat >/etc/kubenode/.installed.json.new &&
mv -f /etc/kubenode/.installed.json.new /etc/kubenode/installed.json && sync' && echo recorded=1
"""


def complete(
    found: dict[str, Any] | None,
    machine: str,
    installation: str,
    image_url: str | None,
    command: str | None,
    proof: str,
    now: str,
) -> dict[str, Any] | None:
    """The record to write, or None when nothing is to be added. A record of another installation is left alone."""
    record = dict(found or {})
    shown = installed.installation_of(record)
    if shown and installation and shown != installation:
        return None
    if not shown and record.get("machine", machine) != machine:
        # What an image brought along tells of the machine that it was made from.
        record = {}
    known: dict[str, Any] = {"machine": machine}
    if installation:
        known["installation"] = installation
    if image_url:
        known["image_url"] = image_urls.redact(image_url)
    if command:
        known["command"] = command
    if record.get("verified_at") and all(key in record for key in known):
        return None
    # Until it is verified, whoever ran the command knows best what was run.
    record.update({key: value for key, value in known.items() if key not in record or not record.get("verified_at")})
    record.setdefault("installed_at", now)
    record.setdefault("verified_at", now)
    record.setdefault("proof", proof)
    return record


def public(record: dict[str, Any] | None) -> dict[str, str]:
    """The keys of the contract, as strings; a record comes from a disk that anybody may have written."""
    return {key: str((record or {})[key])[:2000] for key in installed.KEYS if (record or {}).get(key) is not None}


def to_json(record: dict[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(record, sort_keys=True)
