# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in QEMU that boots a live image as hardware does, and what its initramfs prints on the serial port.

It boots from a CD that is read over HTTP, or from the network.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.cache import Progress, quiet
from lab.errors import ImageError
from lab.machines.qemu import ACCELERATION, CRASH, OVMF_CODE, OVMF_VARIABLES, kvm_works

_FACT = re.compile(r"lab-coreos ([0-9]+\.[0-9]+) ([a-z]+) ?(.*)\Z")
_DATA = re.compile(r"lab-coreos-data ([A-Za-z0-9+/]+=*)\Z")
HOST = "10.0.2.2"  # the address under which machines reach 127.0.0.1 of this host
FIRMWARES = ("bios", "uefi")
_READ_AHEAD = 256 * 1024  # bytes a request of the CD asks for at least, as management controllers do
_URLS = ("http://", "https://")


@dataclass(frozen=True)
class Written:
    """A file that the Ignition brought."""

    mode: int
    sha256: str


@dataclass
class Seen:
    """One boot, as far as it came."""

    arguments: str = ""
    kernel: str = ""
    ignition: bytes | None = None
    ignition_state: str = ""  # none; ignored (no kernel argument asks for it); read
    profiles: dict[str, str] = field(default_factory=dict)  # NetworkManager profiles in the initramfs → SHA-256
    address: str = ""  # how the initramfs got one: dhcp or static, interface, address
    root: str = ""  # medium, network or initramfs
    rootfs_sha256: str = ""
    files: dict[str, Written] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)  # enabled or disabled
    starts: dict[str, list[str]] = field(default_factory=dict)  # unit → the commands it would run
    keys: dict[str, int] = field(default_factory=dict)  # user → number of SSH keys
    failed: str = ""
    ended: bool = False
    uptime: dict[str, float] = field(default_factory=dict)  # fact → seconds since the kernel began


class Reader:
    """Give it the lines of the console; `seen` is what they say."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self.seen = Seen()
        self._data: list[str] = []
        self._digest = ""

    def line(self, text: str) -> str:
        """Read one line; returns the name of the fact in it, or an empty text."""
        text = text.rstrip("\r\n")
        data = _DATA.search(text)
        if data:
            self._data.append(data[1])
            return ""
        found = _FACT.search(text)
        if not found:
            return ""
        if self._data:
            self._take_ignition()
        name, value = found[2], found[3]
        self.seen.uptime.setdefault(name, float(found[1]))
        self._fact(name, value)
        return name

    def _fact(self, name: str, value: str) -> None:
        seen, words = self.seen, value.split(" ")
        if name == "begin":
            seen.kernel = value
        elif name == "arguments":
            seen.arguments = value
        elif name == "ignition":
            seen.ignition_state = value if value in ("none", "ignored") else "read"
            self._digest = words[0]
        elif name == "profile":
            seen.profiles[value.partition(" ")[2]] = words[0]
        elif name == "address":
            seen.address = value
        elif name == "root":
            seen.root, seen.rootfs_sha256 = words[0], words[1] if len(words) > 1 else ""
        elif name == "file":
            mode, digest, path = value.split(" ", 2)
            seen.files[path] = Written(int(mode, 8), digest)
        elif name == "unit":
            seen.units[words[1]] = words[0]
        elif name == "start":
            seen.starts.setdefault(words[0], []).append(value.partition(" ")[2])
        elif name == "user":
            seen.keys[words[1]] = int(words[0])
        elif name == "failed":
            seen.failed = value
        elif name == "end":
            seen.ended = True

    def _take_ignition(self) -> None:
        """The Ignition that came in lines is used when it is whole."""
        try:
            config = base64.b64decode("".join(self._data), validate=True)
        except ValueError:
            config = b""
        self._data = []
        if hashlib.sha256(config).hexdigest() == self._digest:
            self.seen.ignition = config
        else:
            self.seen.failed = "the Ignition on the console is not the one whose digest was printed"


@dataclass(frozen=True)
class Machine:
    """``cd``: path or URL of an image in the drive; ``script``: URL of an iPXE script; exactly one of both."""

    cd: str = ""
    script: str = ""
    firmware: str = "bios"
    memory_mib: int = 640
    mac: str = "52:54:00:4c:41:42"
    insecure: bool = False  # https with a certificate that this host does not know


@dataclass(frozen=True)
class Boot:
    """What the machine printed about itself (``seen``), and after how many seconds since power on each fact came."""

    seen: Seen
    at: dict[str, float]
    seconds: float
    console: str = field(repr=False)


def boot(machine: Machine, *, limit: float = 600, log: Path | None = None, attempts: int = 2,
         progress: Progress = quiet) -> Boot:  # fmt: skip
    """Switch on, wait until the machine switches itself off; ``limit`` in seconds.

    Emulated kernels crash now and then without KVM, which is the emulator's fault: that costs an attempt. Any other bad
    end is an ImageError with the last lines of the console.
    """
    done = None
    acceleration = "kvm" if kvm_works(progress)[0] else "tcg"
    for attempt in range(attempts):
        with tempfile.TemporaryDirectory(prefix="lab-coreos-") as scratch:
            done = _run(command(machine, Path(scratch), acceleration), limit)
        if log:
            log.write_text(done.console, encoding="utf-8")
        if done.seen.ended or not CRASH.search(done.console):
            break
        progress(f"the emulated kernel crashed (attempt {attempt + 1} of {attempts})")
    assert done is not None
    if not done.seen.ended:
        reason = done.seen.failed or _reason(done, limit)
        tail = "\n".join(done.console.splitlines()[-15:])
        raise ImageError(f"the machine did not boot {machine.cd or machine.script}: {reason}\n{tail}")
    return done


def _reason(done: Boot, limit: float) -> str:
    if CRASH.search(done.console):
        return "its kernel crashed"
    if done.seconds >= limit:
        return f"it did not come to its end within {limit:.0f} s"
    return "it went off before its end"


def command(machine: Machine, scratch: Path, acceleration: str = "tcg") -> list[str]:
    """The QEMU command line; ``scratch`` holds what belongs to one boot, ``acceleration`` is kvm or tcg."""
    _check(machine)
    line = [
        "qemu-system-x86_64", *ACCELERATION[acceleration], "-smp", "1", "-m", str(machine.memory_mib),
        "-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-chardev", "stdio,id=serial", "-serial", "chardev:serial",
        "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
    ]  # fmt: skip
    if machine.firmware == "uefi":
        variables = scratch / "variables.fd"
        shutil.copyfile(OVMF_VARIABLES, variables)
        line += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={OVMF_CODE}"]
        line += ["-drive", f"if=pflash,unit=1,format=raw,file={variables}"]
    network, card = "user,id=net", f"virtio-net-pci,netdev=net,mac={machine.mac}"
    if machine.script:
        return [*line, "-netdev", f"{network},bootfile={_quoted(machine.script)}", "-device", f"{card},bootindex=1"]
    line += ["-netdev", network, "-device", f"{card},romfile="]
    line += [word for option in _medium(machine) for word in ("-blockdev", option)]
    return [*line, "-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=cd,bootindex=1"]


def _medium(machine: Machine) -> Sequence[str]:
    if machine.cd.startswith(_URLS):
        driver = machine.cd.partition(":")[0]
        source = f"driver={driver},url={_quoted(machine.cd)},readahead={_READ_AHEAD}"
        source += ",sslverify=off" if driver == "https" and machine.insecure else ""
    else:
        source = f"driver=file,filename={_quoted(machine.cd)}"
    return (f"{source},node-name=source,read-only=on", "driver=raw,node-name=cd,file=source,read-only=on")


def _quoted(value: str) -> str:
    """As a value among QEMU's options."""
    return value.replace(",", ",,")


def _check(machine: Machine) -> None:
    if bool(machine.cd) == bool(machine.script):
        raise ImageError("a machine boots either from cd or by script; give one of them")
    if machine.script and not machine.script.startswith(_URLS):
        raise ImageError(f"script {machine.script!r} is no http or https URL")
    if machine.firmware not in FIRMWARES:
        raise ImageError(f"firmware {machine.firmware!r} is not one of {', '.join(FIRMWARES)}")
    if machine.firmware == "uefi" and not OVMF_CODE.exists():
        raise ImageError("machines with UEFI need a firmware; run: apt-get install ovmf")
    if not shutil.which("qemu-system-x86_64"):
        raise ImageError("there is no QEMU on this host; run: apt-get install qemu-system-x86 qemu-block-extra")


def _run(line: list[str], limit: float) -> Boot:
    started = time.monotonic()
    reader, at = Reader(), dict[str, float]()
    text: list[str] = []
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    watch = threading.Timer(limit, process.kill)
    watch.start()
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            printed = raw.decode(errors="replace")
            text.append(printed)
            name = reader.line(printed)
            if name:
                at.setdefault(name, time.monotonic() - started)
            if reader.seen.failed or CRASH.search(printed):
                break  # a kernel that crashed prints nothing more
    finally:
        watch.cancel()
        process.kill()
        process.wait()
    return Boot(reader.seen, at, time.monotonic() - started, "".join(text))
