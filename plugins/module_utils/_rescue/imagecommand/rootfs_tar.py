# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Installs a root file system from a tar archive: partitions, boot loader and bootstrap data included.

Called in a rescue system as: image-url-command-rootfs-tar IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..._common.mounts import private_mounts
from .arguments import Job
from .basics import MIB, Refused
from .boot_loader import Firmware, entered, install_bios, install_efi, write_menu
from .filesystems import Layout, Volume, check_tools, make_filesystem, mounted
from .incoming import Digest, Download, Incoming, Source, Transfer
from .invocation import Progress, installed_record, run_program, writing
from .new_root import Root, inside, look_around, seed_root, write_into
from .raw_disk import FOREIGN
from .root_device import Disk, Partition, Table, Writer
from .tar_extract import Unpacker
from .tar_reader import Survey, survey_archive
from .url import ImageUrl

# --- Installs a root file system from archives: partitioned, unpacked, named, seeded, and bootable last of all.


def check_archive_head(head: bytes) -> None:
    """Refuse what is not the beginning of a tar archive."""
    if head[257:262] == b"ustar":
        return
    for place, magic, what in FOREIGN:
        if head[place : place + len(magic)] == magic:
            raise Refused(f"image: it is not a tar archive but {what}")
    if head[510:512] == b"\x55\xaa":
        raise Refused("image: it is a raw disk image, not a tar archive; image-url-command-raw-disk writes those")
    raise Refused("image: it is not a tar archive (no ustar at byte 257)")


class RootFs:
    """One installation: everything that can be refused before the disk is touched is refused in the constructor."""

    def __init__(
        self, job: Job, layout: Layout, sources: Sequence[tuple[Transfer, Digest]], layered: bool, progress: Progress
    ) -> None:
        """Sources are pairs of a source and its digest, in the order in which they are unpacked."""
        self.job, self.layout, self.layered, self.progress = job, layout, layered, progress
        if job.bootstrap.kind == "ignition":
            raise Refused("bootstrap data: it is Ignition, which root file systems do not read; give cloud-init")
        self.sizes = layout.sizes(job.disk.size)
        self.esp_id = "%08X" % secrets.randbits(32)
        self.firmware = Firmware()
        check_tools({one.fs for one in layout.volumes if one.fs not in ("", "vfat")})
        self.wanted = ["os-release", "init", "kernel", "grub-install", self.firmware.needed]
        self.wanted += ["cloud-init"] if job.bootstrap.kind == "cloud-init" else []
        self.survey = Survey(layout.mounts())
        self.downloads = [Download(source, digest, progress) for source, digest in sources]
        if all(one.kept for one in self.downloads):
            self._look_through()
        self.unpackers = [Unpacker(layout.mounts(), layered) for _one in self.downloads]
        self.incoming = [Incoming(one, one.proof()) for one in self.downloads[:1]]
        self._check_incoming(self.incoming[0])

    def _look_through(self) -> None:
        """Read all archives once without unpacking: no surprise later on."""
        survey = Survey(self.layout.mounts())
        for download in self.downloads:
            incoming = Incoming(download, download.proof())
            self._check_incoming(incoming)
            survey_archive(incoming.blocks(), survey)
        survey.check(self.wanted)
        survey.check_sizes(dict(self._mounts()))
        count = (survey.members, sum(survey.bytes.values()) // 10**6)
        self.progress.say("image: %d members, %d MB, proven and looked through" % count)

    def _mounts(self) -> list[tuple[str, int]]:
        return [(one.purpose, size) for one, size in zip(self.layout.volumes, self.sizes) if one.mounted]

    def _check_incoming(self, incoming: Incoming) -> None:
        check_archive_head(incoming.head)
        room = sum(size for _mount, size in self._mounts())
        if incoming.size is not None and incoming.size > room:
            raise Refused(f"image: it has {incoming.size} bytes, its partitions only {room}")

    def install(self, work: Path, record: Callable[[], dict[str, str]]) -> None:
        """Write everything; from the end of this on the disk boots. record() is asked when the archives are proven."""
        disk, say = self.job.disk, self.progress.say
        ends = self._empty(disk)
        script = self.layout.script(disk.size)
        with contextlib.closing(Table(disk, work, *ends, script=script)) as table:
            partitions = table.partitions(work, esp=True)
            self._format(partitions)
            volumes = list(zip(self.layout.volumes, partitions))
            with self._mounted(volumes, work) as top:
                self._unpack(top)
                self.survey.check(self.wanted)
                write_into(top, "/etc/fstab", self._fstab(volumes).encode(), 0o644)
                facts = inside(top, look_around)
            root = Root(dict(zip(self._purposes(), partitions))["/"], ".", facts)
            say(f"root: {root.partition}, {facts['name']}")
            seed_root(root, partitions, work, self.job.bootstrap, record(), say)
            self._boot_loaders(volumes, work)
            table.take_boot_code()
            table.commit()

    def close(self) -> None:
        """Give memory and processes free."""
        for unpacker in self.unpackers:
            unpacker.close()
        for download in self.downloads:
            download.close()

    def _purposes(self) -> list[str]:
        return [one.purpose for one in self.layout.volumes]

    @staticmethod
    def _empty(disk: Disk) -> tuple[bytes, int, bytes]:
        with disk.exclusive() as fd:
            writer = Writer(fd, disk.size)
            disk.touched = True
            writer.prepare()
            disk.believe({})
            return writer.finish()

    def _format(self, partitions: list[Partition]) -> None:
        for volume, partition in zip(self.layout.volumes, partitions):
            if volume.purpose == "esp":  # what an earlier system left there must not boot
                with open(partition.node, "r+b") as stream:
                    stream.write(bytes(MIB))
                    os.fsync(stream.fileno())
            if volume.purpose in ("esp", "bios"):
                continue
            self.progress.say(f"{volume.purpose}: making {volume.fs} on partition {partition.number}")
            make_filesystem(volume.fs, partition.node)
            partition.probe()

    @contextlib.contextmanager
    def _mounted(self, volumes: list[tuple[Volume, Partition]], work: Path) -> Iterator[Path]:
        """Mount the new root with all below it."""
        found = {volume.purpose: partition for volume, partition in volumes}
        with contextlib.ExitStack() as stack:
            top = work / "new"
            for mount in self.layout.mounts():
                where = top / mount.strip("/")
                if where.resolve() != where:
                    raise Refused(f"new root file system: mount point {mount} is not a plain folder")
                where.mkdir(parents=True, exist_ok=True)
                stack.enter_context(mounted(found[mount], where))
            yield top

    def _unpack(self, top: Path) -> None:
        began, say = time.monotonic(), self.progress.say
        for number, download in enumerate(self.downloads):
            incoming = self.incoming[0] if number == 0 else Incoming(download, download.proof())
            check_archive_head(incoming.head)
            say(f"image: {download.shown}, compression {incoming.kind}, onto {self.job.disk.path}")
            held = self.unpackers[number].unpack(top, self._watched(incoming, number))
            incoming.check()
            self.survey.merge(held)
            for what, count in held["left_out"].items():
                say(f"left out: {count} {what}")
        mb = sum(self.survey.bytes.values()) // 10**6
        say("unpacked %d members, %d MB, in %.1f s" % (self.survey.members, mb, time.monotonic() - began))

    def _watched(self, incoming: Incoming, number: int) -> Iterator[bytes]:
        done = 0

        def state() -> str:
            return f"unpacking: {done // 10**6} MB{incoming.share()}"

        for block in incoming.blocks():
            yield block
            done += len(block)
            self.progress.tick(state, lambda: self._count(incoming, number))

    def _count(self, incoming: Incoming, number: int) -> tuple[int, int | None]:
        """Return (bytes done, bytes in all or None) of all archives as they come; ``number`` of them are unpacked."""
        sizes = [download.size for download in self.downloads if download.size is not None]
        if len(sizes) < len(self.downloads):
            return incoming.read, None
        return sum(sizes[:number]) + incoming.read, sum(sizes)

    def _fstab(self, volumes: list[tuple[Volume, Partition]]) -> str:
        lines = ["# written by the image command that installed this system"]
        order = {mount: place for place, mount in enumerate(self.layout.mounts())}
        for volume, partition in sorted(volumes, key=lambda one: order.get(one[0].purpose, 99)):
            uuid = partition.uuid
            if volume.purpose == "esp":  # made last of all, and only for an image that boots by UEFI
                uuid = f"{self.esp_id[:4]}-{self.esp_id[4:]}" if self._halves()[0] else ""
            if uuid:
                lines.append(f"UUID={uuid} {fstab_fields(volume.purpose, volume.fs)}")
        return "\n".join(lines) + "\n"

    def _halves(self) -> tuple[bool, bool]:
        return self.firmware.halves(self.survey.found)

    def _boot_loaders(self, volumes: list[tuple[Volume, Partition]], work: Path) -> None:
        """Install GRUB for both kinds of firmware if that can be, for this machine's in any case."""
        uefi, bios = self._halves()
        esp = next(partition for volume, partition in volumes if volume.purpose == "esp")
        partitions = [partition for _volume, partition in volumes]
        with self._mounted(volumes, work) as top, entered(top, self.job.disk, partitions) as call:
            write_menu(top, call)
            os.sync()
            if uefi:  # until now there was nothing that a firmware could take for a boot partition
                make_filesystem("vfat", esp.node, "-i", self.esp_id)
                esp.probe()
                with mounted(esp, esp_folder(top)):
                    install_efi(top, call, self.firmware.efi_half)
            if bios:
                install_bios(top, call, self.firmware.bios_half, self.job.disk.path)
        ways = [name for name, done in (("UEFI", uefi), ("BIOS", bios)) if done]
        self.progress.say(f"boot loader: GRUB for {' and '.join(ways)}")


def esp_folder(top: Path) -> Path:
    """Make the mount point of the ESP."""
    folder = top / "boot/efi"
    if folder.parent.resolve() != folder.parent or folder.is_symlink():
        raise Refused("new root file system: mount point /boot/efi is not a plain folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fstab_fields(purpose: str, fs: str) -> str:
    """Return the fields of fstab behind the device."""
    if purpose == "swap":
        return "none swap sw 0 0"
    if purpose == "esp":  # a machine should start also when its boot loader's folder is damaged
        return "/boot/efi vfat umask=0077,nofail 0 1"
    options = "errors=remount-ro" if fs == "ext4" and purpose == "/" else "defaults"
    check = {"ext4": 1 if purpose == "/" else 2}.get(fs, 0)
    return f"{purpose} {fs} {options} 0 {check}"


NAME = "image-url-command-rootfs-tar"


class TarUrl(ImageUrl):
    """The image URL of a tar archive."""

    SWITCHES = ("sha256", "sha512", "keys", "stall", "layout")


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, _token: str) -> None:
    """Check every input, write the system, make it this machine's; leave a disk that does not boot on any failure."""
    url = TarUrl(image_url)
    layout = Layout(url.switches.get("layout", ""))
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)
    with contextlib.closing(RootFs(job, layout, [(source, digest)], False, progress)) as rootfs:
        with writing(job.disk, progress) as work:
            rootfs.install(work, lambda: installed_record(job.machine, url.shown(), digest.found(), NAME))
    progress.say(f"{machine}: installed on {job.disk.path}")


def main(arguments: list[str]) -> int:
    """Run the command."""
    return run_program(NAME, install, arguments)
