# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the new system mounts on its own."""

from __future__ import annotations

from commands.parts.errors import Refused


def var_mounts(fstab: str, partitions: list) -> list:
    """Find what the new system mounts above /var/lib/cloud: (mount point, partition, options)."""
    found = []
    for line in fstab.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) < 4 or fields[1].rstrip("/") not in ("/var", "/var/lib", "/var/lib/cloud"):
            continue
        name, _equals, value = fields[0].replace('"', "").partition("=")
        wanted = "%s=%s" % (name, value.lower() if name == "PARTUUID" else value)
        origin = next((one for one in partitions if value and wanted in one.names), None)
        if origin is None:
            raise Refused(
                "the image mounts %s from %s, which is not on this disk; "
                "the bootstrap data would be hidden" % (fields[1], fields[0])
            )
        options = [option for option in fields[3].split(",") if option.startswith("subvol")]
        found.append((fields[1].rstrip("/"), origin, ",".join(["rw", *options])))
    return sorted(found, key=lambda one: len(one[0]))
