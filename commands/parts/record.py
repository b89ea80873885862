# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed record: what the new system says about where it came from."""

from __future__ import annotations

from datetime import datetime, timezone

from commands.parts.digest import Digest
from commands.parts.url import ImageUrl


def installed_record(machine: str, url: ImageUrl, digest: Digest, command: str) -> dict:
    """Return what /etc/kubenode/installed.json holds."""
    return {
        "machine": machine,
        "image_url": url.shown(),
        "image_digest": "%s:%s" % (digest.algorithm, digest.hash.hexdigest()),
        "command": command,
        "installed_at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
