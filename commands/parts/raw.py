# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs a raw image of a whole disk: written, grown, seeded, and bootable last of all."""

from __future__ import annotations

import contextlib
from pathlib import Path

from commands.parts.bootstrap import Bootstrap
from commands.parts.cloud_init import check_cloud_init
from commands.parts.grow import grow_filesystem
from commands.parts.ignition import seed_ignition
from commands.parts.image import write_image
from commands.parts.incoming import Incoming
from commands.parts.job import Job
from commands.parts.progress import Progress
from commands.parts.root import Root
from commands.parts.seed import seed_root
from commands.parts.table import Table


def install_raw(incoming: Incoming, job: Job, work: Path, grow: bool, progress: Progress, record) -> None:
    """Write the image and make it this machine's; record() is asked when the image is proven.

    Without record, the disk becomes the image as it is, and nothing on it this machine's.
    """
    ends = write_image(incoming, job.disk, progress)
    with contextlib.closing(Table(job.disk, work, *ends)) as table:
        if record is not None:
            adapt(table, work, grow, job.bootstrap, record(), progress.say)
        table.commit()


def adapt(table: Table, work: Path, grow: bool, bootstrap: Bootstrap, record: dict, say) -> None:
    """Make the system on the disk this machine's: grow, seed, record."""
    partitions = table.partitions(work)
    if bootstrap.kind == "ignition":  # such images grow themselves at first boot and may not be touched otherwise
        seed_ignition(partitions, work, bootstrap.data, say)
        return
    roots = Root.find(partitions, work, say)
    if bootstrap.kind == "cloud-init":
        check_cloud_init(roots)
    if len(roots) != 1:
        say("no single root file system found; the disk stays as the image is")
        return
    root = roots[0]
    say("root: %s, %s" % (root.partition, root.facts["name"]))
    number = root.partition.number
    if number != list(table.entries)[-1]:
        say("%s is not the last one on the disk and keeps its size" % root.partition)
    elif grow:
        table.grow(number)
        partitions = table.partitions(work)
        root.partition = next(one for one in partitions if one.number == number)
        grow_filesystem(root.partition, work, say)
        say("%s: %d MB" % (root.partition, table.extents()[number][1] * 512 // 10**6))
    seed_root(root, partitions, work, bootstrap, record, say)
