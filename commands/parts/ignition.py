# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hands bootstrap data to Ignition."""

from __future__ import annotations

from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.files import write_into
from commands.parts.mounts import mounted


def seed_ignition(partitions: list, work: Path, data: bytes, say) -> None:
    """Put an Ignition config where Fedora CoreOS (boot partition) or Flatcar (OEM partition) looks for it."""
    for label, name, proof in (("boot", "/ignition/config.ign", "ignition.firstboot"), ("OEM", "/config.ign", "")):
        for partition in [one for one in partitions if one.label == label]:
            with mounted(partition, work / "root") as top:
                if not (top / proof).exists():
                    raise Refused("%s: no %s on it, the image has booted before or is no CoreOS" % (partition, proof))
                write_into(top, name, data, 0o600, 0o700 if proof else 0o755)
            say("ignition: %s on %s, label %s" % (name, partition, label))
            return
    raise Refused(
        "bootstrap data: it is Ignition, but the image has no partition labelled boot (Fedora CoreOS) or OEM (Flatcar)"
    )
