# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an archive holds: counted before or while it is unpacked, and enough for a system that starts."""

from __future__ import annotations

import re

from commands.parts.archive import Archive, Entry
from commands.parts.errors import Refused

#: What matters about a root file system → names that show it.
MARKS = {
    "init": rb"(usr/)?(sbin/init|lib/systemd/systemd)",
    "os-release": rb"(etc|usr/lib)/os-release",
    "kernel": rb"boot/vmlinu.+",
    "grub-install": rb"(usr/)?s?bin/grub2?-install",
    "cloud-init": rb"(usr/|usr/local/)?bin/cloud-init",
    "cloud-init.disabled": rb"etc/cloud/cloud-init\.disabled",
    "i386-pc": rb"usr/lib/grub/i386-pc/normal\.mod",
    "x86_64-efi": rb"usr/lib/grub/x86_64-efi/normal\.mod",
    "arm64-efi": rb"usr/lib/grub/arm64-efi/normal\.mod",
}
MISSING = {
    "init": "it has no init (systemd)",
    "os-release": "it has no os-release, so it is no root file system",
    "kernel": "it has no kernel (/boot/vmlinuz-…); install one, such as linux-image-amd64",
    "grub-install": "it has no grub-install; install GRUB, such as grub-pc-bin, grub-efi-amd64-bin and grub2-common",
    "cloud-init": "the bootstrap data is for cloud-init, and the image has no cloud-init program",
}
ONE_MARK = re.compile(b"|".join(b"(?P<m%d>%s)" % (number, one) for number, one in enumerate(MARKS.values())))
BLOCK_SIZE = 4096
PER_FILE = 512  # an inode and its place in a folder, roughly


class Survey:
    """A count of what is in archives, by the file system that it will be on."""

    def __init__(self, mounts: list):
        self.mounts = sorted((mount.strip("/").encode() for mount in mounts), key=len, reverse=True)
        self.bytes = {mount.decode(): 0 for mount in self.mounts}
        self.members = 0
        self.found: set = set()

    def add(self, entry: Entry) -> None:
        """Count one member."""
        self.members += 1
        mount = next(one for one in self.mounts if not one or entry.name == one or entry.name.startswith(one + b"/"))
        whole = sum(-(-length // BLOCK_SIZE) * BLOCK_SIZE for _start, length in entry.extents)
        self.bytes[mount.decode()] += whole + PER_FILE
        mark = ONE_MARK.fullmatch(entry.name)
        if mark and mark.lastgroup:
            self.found.add(list(MARKS)[int(mark.lastgroup[1:])])

    def merge(self, other: dict) -> None:
        """Add what another one told."""
        self.members += other["members"]
        self.found |= set(other["found"])
        for mount, count in other["bytes"].items():
            self.bytes[mount] += count

    def told(self) -> dict:
        """Return what can cross a pipe."""
        return {"members": self.members, "found": sorted(self.found), "bytes": self.bytes}

    def check(self, wanted: list) -> None:
        """Refuse what would not start, or would not read its bootstrap data."""
        for mark in wanted:
            if mark not in self.found:
                why = "it has no GRUB for this machine, /usr/lib/grub/%s; install its package" % mark
                raise Refused("image: %s" % MISSING.get(mark, why))
        if "cloud-init" in wanted and "cloud-init.disabled" in self.found:
            raise Refused("bootstrap data: cloud-init is switched off in the image by /etc/cloud/cloud-init.disabled")

    def check_sizes(self, sizes: dict) -> None:
        """Refuse what does not fit; sizes are those of the partitions in bytes, by mount point."""
        for mount, size in sizes.items():
            count = self.bytes[mount.strip("/")]
            if count > size * 0.95:  # a file system needs room for itself
                raise Refused(
                    "image: %s needs %d MB, its partition has %d MB; see layout= behind the # of the image URL"
                    % (mount, count // 10**6, size // 10**6)
                )


def survey_archive(pieces, survey: Survey) -> None:
    """Read an archive to its end and count what is in it."""
    for entry in Archive(pieces).entries():
        survey.add(entry)
