# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed record: what the new system says about where it came from."""

from __future__ import annotations

from datetime import datetime, timezone


def installed_record(machine: str, image_url: str, image_digest: str, command: str) -> dict:
    """Return what /etc/kubenode/installed.json holds; the URL as it may be shown."""
    return {
        "machine": machine,
        "image_url": image_url,
        "image_digest": image_digest,
        "command": command,
        "installed_at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
