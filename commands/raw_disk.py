# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams a raw disk image to the root device, grows its root file system and seeds the bootstrap data.

Called in a rescue system as: image-url-command-raw-disk IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from pathlib import Path

from commands.parts.authorized_keys import authorized_keys
from commands.parts.bootstrap import Bootstrap
from commands.parts.cloud_init import check_cloud_init
from commands.parts.digest import Digest
from commands.parts.disk import Disk
from commands.parts.errors import Refused, Terminated
from commands.parts.grow import grow_filesystem
from commands.parts.ignition import seed_ignition
from commands.parts.image import write_image
from commands.parts.mounts import private_mounts, workplace
from commands.parts.progress import Progress
from commands.parts.record import installed_record
from commands.parts.root import Root
from commands.parts.seed import seed_root
from commands.parts.source import Source
from commands.parts.table import Table
from commands.parts.url import ImageUrl

NAME = "image-url-command-raw-disk"
MARKER = "IMAGE_URL_DONE"


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


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url = ImageUrl(image_url)
    try:
        data = Path(bootstrap_file).read_bytes()
    except OSError as error:
        raise Refused("bootstrap data: %s: %s" % (bootstrap_file, error.strerror)) from None
    keys = Path(bootstrap_file).with_name(".ssh") / "authorized_keys"
    bootstrap = Bootstrap(data, authorized_keys(keys) if url.wants("keys") else [])
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", machine):
        raise Refused("machine name: %r is not a host name" % machine)
    names = devices.split()
    if len(names) != 1:
        raise Refused("root devices: %r are %d devices; a raw image needs exactly one" % (devices, len(names)))
    disk = Disk(names[0])
    private_mounts()
    disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)
    try:
        with disk.locked(), workplace() as work:
            ends = write_image(source, digest, disk, progress)
            record = installed_record(machine, url, digest, NAME)
            with contextlib.closing(Table(disk, work, *ends)) as table:
                adapt(table, work, url.wants("grow"), bootstrap, record, progress.say)
                table.commit()
    except BaseException:
        if disk.touched:
            disk.spoil()
            progress.outcome = "%s was made unbootable again" % disk.path
        raise
    progress.say("%s: installed on %s" % (machine, disk.path))


def main(arguments: list) -> int:
    """Run the command; the marker is printed only when everything is done."""
    if len(arguments) != 4:
        sys.stderr.write('usage: %s IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE"\n' % NAME)
        return 2

    def end(number: int, _frame) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # cleaning up must not be cut short
        raise Terminated(number)

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in caught:
        signal.signal(number, end)
    progress = Progress(Path(arguments[1]).with_name("output.json"))
    try:
        install(*arguments, progress)
    except (Refused, Terminated, OSError) as error:
        progress.publish("failed: %s" % error)
        sys.stderr.write("%s: %s; %s\n" % (NAME, error, progress.outcome))
        return 128 + error.number if isinstance(error, Terminated) else 1
    sys.stdout.write(MARKER + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
