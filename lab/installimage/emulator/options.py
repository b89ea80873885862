# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line, read as the shell's getopts reads it, and the autosetup file that options alone stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LETTERS = "han:b:r:l:i:p:v:d:f:c:R:s:z:x:gkK:t:u:G:"
_YES = ("on", "true", "yes", "1")
_NO = ("off", "false", "no", "0")
HELP = """\
usage: installimage [options]

  -h            this text
  -a            no questions: with -c, or with -i and the options below
  -c FILE       take this autosetup file (only -a may come with it; -n changes its HOSTNAME)
  -x FILE       post-install script, run inside the new system at the end
  -n NAME       hostname                        -b grub      boot loader
  -r yes|no     software RAID                   -l LEVEL     its level: 0, 1, 5, 6, 10
  -i IMAGE      path, URL or host:path of the image (tar, tar.gz, tar.bz2, tar.xz, tar.zst)
  -g            refuse an image without a valid signature
  -p PARTS      partitions, as swap:swap:4G,/boot:ext3:1024M,/:ext4:all
  -v VOLUMES    logical volumes, as vg0:root:/:ext4:20G
  -d DRIVES     as sda,sdb                      -f yes|no    erase the second drive too
  -K FILE|URL   SSH keys for root               -t yes|no    take over the rescue's SSH keys
  -G yes|no     make new SSH host keys          -u yes|no    allow USB drives
  -R URL        to be called once after the first boot
"""


@dataclass
class Options:
    """What was asked for on the command line."""

    automatic: bool = False
    values: dict[str, str] = field(default_factory=dict)  # letter → argument, the last one counts
    complaints: list[str] = field(default_factory=list)

    def get(self, letter: str) -> str:
        """The argument of an option, "" without it."""
        return self.values.get(letter, "")

    def says_yes(self, letter: str, default: bool) -> bool:
        """A yes or a no; anything else is the default."""
        value = self.get(letter).lower()
        return True if value in _YES else False if value in _NO else default


def parse(arguments: Sequence[str]) -> Options:
    """Read the options; unknown letters are complained about and passed over, as getopts does."""
    options = Options()
    for letter, value in _pairs(arguments, options.complaints):
        if letter == "a":
            options.automatic = True
        options.values[letter] = value
    return options


def _pairs(arguments: Sequence[str], complaints: list[str]) -> Iterator[tuple[str, str]]:
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        letters = rest.pop(0)[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            place = LETTERS.find(letter)
            if place < 0 or letter == ":":
                complaints.append(f"illegal option -- {letter}")
            elif LETTERS[place + 1 : place + 2] != ":":
                yield letter, ""
            elif letters:
                yield letter, letters
                letters = ""
            elif rest:
                yield letter, rest.pop(0)
            else:
                complaints.append(f"option requires an argument -- {letter}")


def config(options: Options, image: str, memory_mib: int, uefi: bool) -> str:
    """The autosetup file for options alone."""
    drives = [f"/dev/{name.removeprefix('/dev/')}" for name in options.get("d").split(",") if name]
    lines = [f"DRIVE{number} {drive}" for number, drive in enumerate(drives, 1)]
    if options.says_yes("f", False) and len(drives) > 1:
        lines.append("FORMATDRIVE2 1")
    lines.append(f"SWRAID {int(options.says_yes('r', len(drives) > 1))}")
    lines.append(f"SWRAIDLEVEL {options.get('l') or '1'}")
    lines.append(f"BOOTLOADER {options.get('b') or 'grub'}")
    name = image.rpartition("/")[2].partition(".")[0]
    lines.append(f"HOSTNAME {options.get('n') or name}")
    parts = options.get("p")
    if parts:
        lines += [f"PART {' '.join(part.split(':'))}" for part in parts.split(",")]
    else:
        lines += _default_parts(memory_mib, uefi)
    lines += [f"LV {' '.join(volume.split(':'))}" for volume in options.get("v").split(",") if volume]
    lines.append(f"IMAGE {image}")
    return "\n".join(lines) + "\n"


def _default_parts(memory_mib: int, uefi: bool) -> list[str]:
    if memory_mib < 2048:
        swap = memory_mib * 2 // 1024 + 1
    elif memory_mib < 8192:
        swap = memory_mib // 1024 + 1
    else:
        swap = memory_mib // 2048 + 1 if memory_mib < 65535 else 4
    esp = ["PART /boot/efi esp 256M"] if uefi else []
    return [*esp, f"PART swap swap {swap}G", "PART /boot ext3 1024M", "PART / ext4 all"]
