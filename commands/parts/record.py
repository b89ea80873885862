# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed record: what the new system says about where it came from."""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone

#: The id of the installation, by which the new system is known again.
INSTALLATION = "KUBENODE_INSTALLATION"
#: What allowed this installation to write; such a word is used up by it.
CONSENT = "KUBENODE_CONSENT"


def installed_record(machine: str, image_url: str, image_digest: str, command: str) -> dict:
    """Return what /etc/kubenode/installed.json holds; the URL as it may be shown."""
    installation = os.environ.get(INSTALLATION, "")
    known = {"installation": installation} if re.fullmatch("[0-9a-f]{32}", installation) else {}
    if re.fullmatch("[a-z+]{1,60}", os.environ.get(CONSENT, "")):
        known["consent"] = os.environ[CONSENT]
    return {
        **known,
        "machine": machine,
        "image_url": image_url,
        "image_digest": image_digest,
        "command": command,
        "installed_at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
