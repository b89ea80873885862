# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes host name, bootstrap data and the installed record into the new root."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from commands.parts.bootstrap import Bootstrap
from commands.parts.cloud_init import seed_cloud_init
from commands.parts.errors import Refused
from commands.parts.files import write_into
from commands.parts.fstab import var_mounts
from commands.parts.mounts import mounted
from commands.parts.root import Root


def seed_root(root: Root, partitions: list, work: Path, bootstrap: Bootstrap, record: dict, say) -> None:
    """Write host name, bootstrap data and the installed record into the new root file system."""
    machine = record["machine"]
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(mounted(root.partition, work / "root")) / root.folder
        if bootstrap.kind == "cloud-init":
            for point, partition, options in var_mounts(root.facts["fstab"], partitions):
                target = Path(str(top) + point)
                if target.resolve() != target or not target.is_dir():
                    raise Refused("new root file system: mount point %s is not a plain folder" % point)
                stack.enter_context(mounted(partition, target, options))
            seed_cloud_init(top, bootstrap, record)
            say("cloud-init: NoCloud seed for %s, %d SSH keys of the rescue" % (machine, len(bootstrap.keys)))
        else:
            write_into(top, "/etc/hostname", machine.encode() + b"\n", 0o644)
        text = json.dumps(record, indent=2) + "\n"
        write_into(top, "/etc/kubenode/installed.json", text.encode(), 0o644)
