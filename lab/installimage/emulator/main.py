# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the command line to an installation: the order in which the real one reads, tears down, asks and refuses."""

from __future__ import annotations

import os
import platform
import re
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from . import config, rescue_host, storage
from .install import Installation, InstallSpec
from .rescue_host import debug, hardware_report, quote, say

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
_AUTOSETUP = Path("/autosetup")
_LINE = "-" * 37
_COUNTDOWN = 20  # seconds
_BUSY_SECONDS = 120


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


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the options; unknown letters are complained about and passed over, as getopts does."""
    options = Options()
    for letter, value in _option_pairs(arguments, options.complaints):
        if letter == "a":
            options.automatic = True
        options.values[letter] = value
    return options


def _option_pairs(arguments: Sequence[str], complaints: list[str]) -> Iterator[tuple[str, str]]:
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


def config_of_options(options: Options, image: str, memory_mib: int, uefi: bool) -> str:
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


_HERE = Path(os.path.realpath(__file__)).parents[1]  # where installimage itself lies
_IMAGES = _HERE.parent / "images"


class Ended(Exception):
    """Nothing is installed; the exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def main(arguments: Sequence[str]) -> int:
    """Run installimage; returns its exit status."""
    if not os.environ.get("TERM"):
        print("TERM environment variable not set.", file=sys.stderr)
        return 1
    sys.stdout.write("\033[H\033[2J")
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    rescue_host.begin()
    folder = Path(tempfile.mkdtemp(prefix="installimage.", dir="/"))
    try:
        (folder / "hdd").mkdir()
        return _install(arguments, folder)
    except Ended as end:
        return end.status
    except KeyboardInterrupt:
        say("\nAborted.")
        return 1
    finally:
        debug("cleaning up")
        with suppress(OSError):
            (folder / "hdd").rmdir()  # fails while something is mounted: then nothing may be removed
            shutil.rmtree(folder)


def _install(arguments: Sequence[str], folder: Path) -> int:
    chosen = parse_options(arguments)
    for complaint in chosen.complaints:
        print(f"{sys.argv[0]}: {complaint}", file=sys.stderr)
    if "h" in chosen.values:
        say(HELP)
        return 0
    _prepare(chosen)
    debug("# starting installimage")
    debug(_LINE)
    for line in hardware_report():
        quote(line)
    debug(_LINE)
    debug("# make clean config")
    if not storage.stop_everything():
        return 1
    text = _read_autosetup(chosen)
    wanted = config.parse(text)
    uefi = rescue_host.is_uefi()
    debug("# validating config ...")
    reason = config.first_error(wanted, _machine(wanted, uefi))
    if reason:
        quote(reason)
        debug("=> FAILED")
        say("Cancelled.")
        return 1
    if chosen.get("c") and not chosen.automatic:
        _ask()
    _count_down()
    take_over = chosen.get("t").lower() in ("yes", "") if "t" in chosen.values else None
    wishes = InstallSpec(
        "g" in chosen.values, chosen.get("K"), chosen.says_yes("G", True), chosen.get("R"), take_over
    )  # fmt: skip
    installation = Installation(wanted, text, folder, uefi, wishes)
    try:
        return installation.run()
    finally:
        installation.close()


def _prepare(chosen: Options) -> None:
    """The options that leave something in the file system while they are read."""
    if "c" in chosen.values:
        source = _find(chosen.get("c"), "configs")
        if source is None:
            _fail(f"=> FAILED: config file {chosen.get('c')} for autosetup not found")
        debug(f"# use config file {source} for autosetup")
        text = source.read_text(errors="replace")
        if "PASSWD" in text:
            sys.stdout.write(f"\nPlease enter the PASSWORD for {source}:\nPASSWORD:  ")
            sys.stdout.flush()
            text = text.replace("PASSWD", _line())
        _AUTOSETUP.unlink(missing_ok=True)
        _AUTOSETUP.touch(source.stat().st_mode & 0o777)
        _AUTOSETUP.write_text(text)
    if "x" in chosen.values:
        script = _find(chosen.get("x"), "post-install")
        if script is None:
            _fail(f"=> FAILED: post-install file {chosen.get('x')} not found or not executable")
        debug(f"# use post-install file {script}")
        Path("/post-install").unlink(missing_ok=True)
        Path("/post-install").symlink_to(script)
    if "n" in chosen.values and _AUTOSETUP.exists():
        changed = re.sub(r"^HOSTNAME.*$", f"HOSTNAME {chosen.get('n')}", _AUTOSETUP.read_text(), flags=re.MULTILINE)
        _AUTOSETUP.write_text(changed)
    if "K" in chosen.values and not chosen.get("K"):
        _fail("=> FAILED: cannot install ssh-keys without a source")
    if chosen.automatic and not chosen.get("i") and not chosen.get("c"):
        say("\nERROR: in automatic mode you need to specify an image and a config file!\n")
        debug("=> FAILED, no image given")
        raise Ended(1)


def _find(name: str, kind: str) -> Path | None:
    """A file that comes with installimage, or one of the user's."""
    return next((path for path in (_HERE / kind / name, Path(os.path.abspath(name))) if path.is_file()), None)


def _fail(message: str) -> NoReturn:
    debug(message)
    say(message)
    raise Ended(1)


def _line() -> str:
    """A line of standard input, and not a byte more: what follows may be an answer."""
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            break
        read += more
    return read.decode(errors="replace").rstrip("\n")


def _read_autosetup(chosen: Options) -> str:
    """The config: from /autosetup, else from the options."""
    if not _AUTOSETUP.exists():
        if not chosen.automatic:
            say("interactive mode: there are no menus in the lab; write /autosetup, or use -a with -c or -i")
            raise Ended(1)
        image = chosen.get("i")
        with_folder = _IMAGES / image
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        return config_of_options(
            chosen, str(with_folder) if with_folder.is_file() else image, memory, rescue_host.is_uefi()
        )
    text = _AUTOSETUP.read_text(errors="replace")
    if chosen.get("c"):
        _AUTOSETUP.rename(f"{_AUTOSETUP}.bak-{time.strftime('%Y%m%d-%H%M%S')}")
    if (_HERE / "disabled").exists():
        debug("=> script is DISABLED")
        say("Due to maintenance the installimage-script is temporarily unavailable.")
        say("We are sorry for the inconvenience.")
        raise Ended(1)
    say(f"\nFound AUTOSETUP file '{_AUTOSETUP}'")
    say("Running unattended installimage installation ...\n")
    for line in text.splitlines():
        if line and not line.startswith("#"):  # the passphrase, too
            say(line)
    say()
    return text


def _machine(wanted: config.Config, uefi: bool) -> config.Machine:
    """What the validation needs to know of this machine; it waits two minutes for a drive that is in use."""
    drives = {}
    for drive in wanted.drives:
        if rescue_host.is_whole_drive(drive):
            busy = all(rescue_host.is_busy(drive) for _try in rescue_host.tries(_BUSY_SECONDS))
            drives[drive] = config.Drive(rescue_host.size_bytes(drive), busy)
    return config.Machine(platform.machine(), uefi, drives, stackable=not rescue_host.in_container())


def _ask() -> None:
    sys.stdout.write("\nALL DATA ON THE GIVEN DISKS WILL BE DESTROYED!\nDO YOU REALLY WANT TO CONTINUE? [y|N] ")
    sys.stdout.flush()
    if os.read(0, 1) not in (b"y", b"Y", b"j", b"J"):
        say("\n\nABORT\n")
        raise Ended(0)
    say("\n")


def _count_down() -> None:
    """Twenty seconds in which Ctrl-C still helps; an x goes on at once, and so does an end of input."""
    say("WARNING:")
    say(f"  Starting installation in {_COUNTDOWN} seconds ...")
    say("  Press X to continue immediately ...")
    say("  Installation will DELETE ALL DATA ON DISK(s)!")
    say("  Press CTRL-C to abort now!")
    sys.stdout.write("  => ")
    for _second in range(_COUNTDOWN):
        sys.stdout.write(".")
        sys.stdout.flush()
        ready, _none, _nothing = select.select([0], [], [], 1)
        if ready:
            key = os.read(0, 1)
            if not key or key in (b"x", b"X"):
                break
    say()
