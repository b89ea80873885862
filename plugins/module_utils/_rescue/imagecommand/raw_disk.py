# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Streams a raw disk image to the root device, grows its root file system and seeds the bootstrap data.

Called in a rescue system as: image-url-command-raw-disk IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from ..._common.mounts import private_mounts
from .basics import Refused, Say
from .filesystems import grow_filesystem
from .incoming import Digest, Incoming, Source
from .invocation import Bootstrap, ImageUrl, Job, Progress, installed_record, run_program, writing
from .new_root import Root, check_cloud_init, seed_ignition, seed_root
from .root_device import Disk, Table, Writer

# --- Brings the image onto the disk and proves it.


FOREIGN = (
    (0, b"QFI\xfb", "a qcow2 image; convert it with qemu-img convert -O raw"),
    (0, b"KDMV", "a VMDK image; convert it with qemu-img convert -O raw"),
    (0, b"vhdxfile", "a VHDX image; convert it with qemu-img convert -O raw"),
    (0, b"PK\x03\x04", "a zip archive; unpack it"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4; use zst, xz, gz or bz2"),
    (0, b"<", "a text, perhaps an error page; check the URL"),
    (257, b"ustar", "a tar archive; image-url-command-rootfs-tar installs those"),
)


def check_head(head: bytes, sector: int) -> None:
    """Refuse what is not the beginning of a raw disk that this disk can boot."""
    for place, magic, what in FOREIGN:
        if head[place : place + len(magic)] == magic:
            raise Refused(f"image: it is not a raw disk image but {what}")
    if head[510:512] != b"\x55\xaa":
        raise Refused("image: it is not a raw image of a whole disk (no 55 AA at byte 510)")
    other = {512: 4096, 4096: 512}.get(sector, 512)
    if head[other : other + 8] == b"EFI PART":
        raise Refused(f"image: its partition table is made for {other}-byte sectors, the disk has {sector}")


def write_image(incoming: Incoming, disk: Disk, progress: Progress) -> tuple[bytes, int, bytes]:
    """Bring the image onto the disk and prove it; return the ends of the disk, see Writer.finish()."""
    if incoming.size is not None and incoming.size > disk.size:
        raise Refused(f"image: it has {incoming.size} bytes, {disk.path} only {disk.size}")
    check_head(incoming.head, disk.sector)
    mb = disk.size // 10**6
    progress.say(f"image: {incoming.shown}, compression {incoming.kind}, onto {disk.path} ({mb} MB)")
    began = time.monotonic()

    def state() -> str:
        rate = writer.position / 1e6 / (time.monotonic() - began)
        return f"writing {disk.path}: {writer.position // 10**6} MB{incoming.share()}, {int(rate)} MB/s"

    with disk.exclusive() as fd:
        writer = Writer(fd, disk.size)
        disk.touched = True
        writer.prepare()
        disk.believe({})  # or the kernel would go on answering from what it read of the old partitions
        for block in incoming.blocks():
            writer.write(block)
            progress.tick(state, incoming.count)
        incoming.check()
        digest = incoming.digest
        progress.say(f"{disk.path}: {digest.algorithm} {digest.hash.hexdigest()}; flushing")
        ends = writer.finish()
    progress.say(f"{state()}, {writer.written // 10**6} MB of data, {time.monotonic() - began:.1f} s")
    return ends


def install_raw(
    incoming: Incoming,
    job: Job,
    work: Path,
    grow: bool,
    progress: Progress,
    record: Callable[[], dict[str, str]] | None,
) -> None:
    """Write the image and make it this machine's; record() is asked when the image is proven.

    Without record, the disk becomes the image as it is, and nothing on it this machine's.
    """
    ends = write_image(incoming, job.disk, progress)
    with contextlib.closing(Table(job.disk, work, *ends)) as table:
        if record is not None:
            adapt(table, work, grow, job.bootstrap, record(), progress.say)
        table.commit()


def adapt(table: Table, work: Path, grow: bool, bootstrap: Bootstrap, record: dict[str, str], say: Say) -> None:
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
    say(f"root: {root.partition}, {root.facts['name']}")
    number = root.partition.number
    if number != list(table.entries)[-1]:
        say(f"{root.partition} is not the last one on the disk and keeps its size")
    elif grow:
        table.grow(number)
        partitions = table.partitions(work)
        root.partition = next(one for one in partitions if one.number == number)
        grow_filesystem(root.partition, work, say)
        say(f"{root.partition}: {table.extents()[number][1] * 512 // 10**6} MB")
    seed_root(root, partitions, work, bootstrap, record, say)


NAME = "image-url-command-raw-disk"


def examined(image_url: str) -> ImageUrl:
    """Take the image URL apart; refuse what no machine is needed for, which the controller asks for first."""
    url = ImageUrl(image_url)
    Digest.given(url)
    return url


def check_bootstrap(image_url: str, kind: str) -> None:
    """Refuse bootstrap data of a kind that this command has no place for."""
    if not ImageUrl(image_url).wants("adapt") and kind != "none":
        raise Refused("bootstrap data: adapt=no in the image URL leaves no place for it; leave one of them out")


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, _token: str) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url = examined(image_url)
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    adapt = url.wants("adapt")
    check_bootstrap(image_url, job.bootstrap.kind)
    private_mounts()
    job.disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)

    def written() -> dict[str, str]:
        return installed_record(job.machine, url.shown(), digest.found(), NAME)

    with writing(job.disk, progress) as work:
        install_raw(Incoming(source, digest), job, work, url.wants("grow"), progress, written if adapt else None)
    progress.say(f"{machine}: installed on {job.disk.path}")


def main(arguments: list[str]) -> int:
    return run_program(NAME, install, arguments)
