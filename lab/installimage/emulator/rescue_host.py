# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue this runs in: commands with their output in the debug log, and what the kernel says about disks."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEBUG = Path("/root/debug.txt")
_COLUMN = "\033[60G"
_RED, _GREEN, _YELLOW, _CYAN, _PLAIN = "\033[1;31m", "\033[1;32m", "\033[1;33m", "\033[1;36m", "\033[0m"


class Failed(Exception):
    """A step did not succeed; what is known about it is in the debug log already."""


def say(text: str = "") -> None:
    """A line on the terminal."""
    print(text, flush=True)


def interrupt_line(text: str) -> None:
    """Print what a program says, in the middle of the line of a step."""
    print(text, flush=True)


def give_up() -> None:
    """Print what follows a failed step."""
    say(f"\n{_RED}         An error occured while installing the new system!{_PLAIN}")
    say(f"{_RED}          See the debug file {DEBUG} for details.{_PLAIN}")
    say("\nPlease check our wiki for a description of the error:\n")
    say("https://docs.hetzner.com/robot/dedicated-server/operating-systems/installimage/\n")
    say("If your problem is not described there, try booting into a fresh")
    say("rescue system and restart the installation. If the installation")
    say("fails again, please contact our support via Hetzner Robot, providing")
    say("the IP address of the server and a copy of the debug file.\n")
    say("  https://robot.hetzner.com/\n")


def debug(text: str) -> None:
    """Write to the debug log what installimage itself says."""
    _log(f"{line}\n" for line in text.split("\n"))


def quote(text: str) -> None:
    """Write to the debug log what others said: output of commands, and validation errors."""
    _log(f":   {line.strip()}\n" for line in text.split("\n"))


def _log(lines: Iterable[str]) -> None:
    now = time.strftime("[%H:%M:%S]")
    with DEBUG.open("a") as file:
        file.writelines(f"{now} {line}" for line in lines)


def begin() -> None:
    """Forget the last run."""
    DEBUG.parent.mkdir(parents=True, exist_ok=True)
    DEBUG.write_text("\n")
    DEBUG.chmod(0o640)


class Steps:
    """The numbered steps of one installation."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.current = 0

    def step(self, text: str) -> Step:
        """The next numbered step, to be used as a context."""
        self.current += 1
        return Step(f"  {self.current:2}/{self.total}  :  {text}", f"# {text}")

    def title(self, text: str) -> None:
        """A numbered step that consists of others."""
        self.current += 1
        debug(f"# {text}")
        say(f"  {self.current:2}/{self.total}  :  {text}")

    def part(self, text: str) -> Step:
        """A part of a numbered step."""
        return Step(f"         :    {text}", f"# {text}")

    def aside(self, text: str, note: str = "") -> Step:
        """A step without a number, with another note in the debug log, or none."""
        return Step(f"         :  {text}", note)


class Step:
    """busy → done, failed or warn."""

    def __init__(self, line: str, note: str) -> None:
        self._line = line
        self._note = note
        self._warning = ""

    def warn(self, text: str) -> None:
        """End this step with a warning instead of "done"."""
        self._warning = text

    def __enter__(self) -> Step:
        if self._note:
            debug(self._note)
        sys.stdout.write(f"{self._line} {_COLUMN}{_CYAN} busy {_PLAIN}")
        sys.stdout.flush()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            say(f"{_COLUMN}{_RED}failed{_PLAIN}")
            debug("=> FAILED")
        elif self._warning:
            say(f"{_COLUMN}{_YELLOW} warn")
            say(f"         :  {self._warning}{_PLAIN}")
            debug(self._warning)
        else:
            say(f"{_COLUMN}{_GREEN} done {_PLAIN}")


_ENVIRONMENT = {
    **os.environ,
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "xterm",
    "DEBIAN_FRONTEND": "noninteractive",
}
_GB, _GIB = 10**9, 1 << 30


def run(*command: str, text: str | None = None, check: bool = True, secret: bool = False) -> str:
    """Run a command, its output in the debug log; a failure ends the step. Returns standard output."""
    if not secret:
        debug(f"+ {' '.join(command)}")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", check=False, env=_ENVIRONMENT,
            stdin=None if text is not None else subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        debug(f"{command[0]}: {error}")
        if check:
            raise Failed(command[0]) from error
        return ""
    for output in (done.stdout, done.stderr):
        if output.strip() and not secret:
            quote(output.rstrip())
    if done.returncode:
        debug(f"{command[0]} ended with status {done.returncode}")
        if check:
            raise Failed(command[0])
    return done.stdout


def stream(*command: str) -> int:
    """Run a command whose output goes to the terminal, line by line; returns its status."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.decode(errors="replace").rstrip("\n"), flush=True)
    return process.returncode


def tries(seconds: float) -> Iterator[None]:
    """Yield once for each try until the time is over, at least twice."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        yield
        time.sleep(0.1)
    yield


def in_container() -> bool:
    """Whether this is a container: its kernel is the host's, so md and device mapper must not be changed."""
    return Path("/run/host/container-manager").exists() or Path("/run/systemd/container").exists()


def is_uefi() -> bool:
    """Whether this rescue was booted by UEFI; that decides how the new system will boot."""
    return Path("/sys/firmware/efi").exists()


def block_number(path: str) -> str:
    """MAJOR:MINOR of a block device; empty when it is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if stat.S_ISBLK(status.st_mode) else ""


def sysfs(path: str) -> Path:
    """The kernel's folder of a block device."""
    return Path("/sys/dev/block") / block_number(path)


def size_bytes(path: str) -> int:
    """Size of a block device; 0 when it cannot be read."""
    try:
        return int((sysfs(path) / "size").read_text()) * 512
    except (OSError, ValueError):
        return 0


def is_whole_drive(path: str) -> bool:
    """Whether this is a block device, no partition, and something can be read from it."""
    if not block_number(path) or (sysfs(path) / "partition").exists() or not size_bytes(path):
        return False
    try:
        with open(path, "rb") as drive:
            return len(drive.read(512)) == 512
    except OSError:
        return False


def is_busy(path: str) -> bool:
    """Whether the kernel uses a drive or a partition of it."""
    for node in (path, *(partition_node(path, number) for number in partitions(path))):
        try:
            os.close(os.open(node, os.O_RDONLY | os.O_EXCL))
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def partitions(path: str) -> dict[int, tuple[int, int]]:
    """Number → start and length in sectors of the partitions that the kernel knows of a drive."""
    found = {}
    for file in sysfs(path).glob("*/partition"):
        try:
            number, start, size = (int((file.parent / name).read_text()) for name in ("partition", "start", "size"))
        except (OSError, ValueError):
            continue  # taken away while we look
        found[number] = (start, size)
    return found


def partition_node(path: str, number: int) -> str:
    """The device node of a partition: links are followed, since only kernel names follow a rule."""
    drive = os.path.realpath(path)
    return f"{drive}p{number}" if re.search(r"[0-9]\Z", drive) else f"{drive}{number}"


def sync_partitions(path: str, wanted: dict[int, tuple[int, int]]) -> None:
    """Make the kernel's partitions of a drive those wanted, and wait for their nodes.

    By single calls: not every kernel can read a partition table.
    """
    for _try in tries(300):
        present = partitions(path)
        if present == wanted:
            break
        for number, (start, length) in present.items():
            if wanted.get(number) != (start, length):
                run("delpart", path, str(number), check=False)
        for number, (start, length) in wanted.items():
            if present.get(number) != (start, length):
                run("addpart", path, str(number), str(start), str(length), check=False)
    else:
        debug(f"the kernel keeps the partitions {partitions(path)} of {path}, wanted were {wanted}")
        raise Failed("partitions")
    if wanted:
        settle()
    for number in wanted:
        node = partition_node(path, number)
        for _try in tries(300):
            if block_number(node):
                break
        else:
            debug(f"no device node {node} appeared")
            raise Failed("nodes")


@contextmanager
def udev_still() -> Iterator[None]:
    """Keep udev, where there is one, from reacting to what is done."""
    if in_container():
        yield
        return
    run("udevadm", "control", "--stop-exec-queue", check=False)
    try:
        yield
    finally:
        run("udevadm", "control", "--start-exec-queue", check=False)


def settle() -> None:
    """Let udev finish, where there is one."""
    if not in_container():
        run("udevadm", "settle", "--timeout=300", check=False)


def hardware_report() -> list[str]:
    """The lines of the report."""
    drives = _drives()
    count = len(drives)
    capacity = sum(size // _GIB for _name, size in drives)
    lines = ["Hardware data:", f"   CPU1: {_processor()} (Cores {os.cpu_count() or 1})", f"   Memory:  {_memory()} MB"]
    for name, size in drives:
        found = "" if partitions(name) else " doesn't contain a valid partition table"
        lines.append(f"   Disk {name}: {size // _GB} GB (=> {size // _GIB} GiB){found}")
    lines.append(f"   Total capacity {capacity} GiB with {count} Disk{'s' * (count != 1)}")
    return [*lines, "Network data:", *_network()]


def _drives() -> list[tuple[str, int]]:
    """Name and bytes of the drives, without what is no drive."""
    found = []
    for entry in sorted(Path("/sys/block").iterdir()):
        if re.match(r"loop|ram|zram|sr|fd|md|dm-|nbd", entry.name):
            continue
        size = size_bytes(f"/dev/{entry.name}")
        if size:
            found.append((f"/dev/{entry.name}", size))
    return found


def _processor() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else "unknown"


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def _network() -> list[str]:
    lines = []
    for link in json.loads(run("ip", "-json", "address", "show", secret=True) or "[]"):
        if link["ifname"] == "lo":
            continue
        lines += [f"   {link['ifname']}  LINK: {'yes' if link.get('operstate') == 'UP' else 'no'}"]
        lines.append(f"         MAC:  {link.get('address', '')}")
        named = {"inet": "IP:   ", "inet6": "IPv6: "}
        for one in link["addr_info"]:
            if one["scope"] == "global" and one["family"] in named:
                prefix = f"/{one['prefixlen']}" if one["family"] == "inet6" else ""
                lines.append(f"         {named[one['family']]}{one['local']}{prefix}")
        lines.append("         Virtio Network Driver")
    return lines
