# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups: all processes in one can be frozen or killed at once, also when the lab itself dies."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lab.errors import LabError

_FREEZE_SECONDS = 120
# Waits for the end of its input, which comes when the lab is gone: a killed process closes its pipes, too.
_SCRIPT = 'read -r line; echo 1 >"$0"'


def hierarchy() -> Path:
    """Where the unified (version 2) hierarchy is mounted, beside the old ones on hybrid hosts."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _source, target, kind, *_rest = line.split()
        if kind == "cgroup2":
            return Path(target)
    raise LabError("this host has no cgroup version 2 hierarchy mounted; the lab needs one to end machines as a whole")


@contextlib.contextmanager
def _if_there() -> Iterator[None]:
    """Nothing more happens when the group is gone, or goes in this moment: another process may remove it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def populated(group: Path) -> bool:
    """Whether any process is in this group, if there is one."""
    events = ""
    with _if_there():
        events = (group / "cgroup.events").read_text()
    return "populated 1" in events


class CGroup:
    """One group below the unified hierarchy."""

    def __init__(self, path: Path) -> None:
        """``path`` is made when it is not there."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    @classmethod
    def of_lab(cls, label: str) -> CGroup:
        """The group of a whole lab."""
        return cls(hierarchy() / f"kubenode-lab-{label}")

    def hold(self) -> contextlib.ExitStack:
        """Mark the group as one of a lab that is up, also while no process is in it yet; until this is closed."""
        stack = contextlib.ExitStack()
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(folder, fcntl.LOCK_SH)
                if self.path.exists() and self.path.stat().st_ino == os.fstat(folder).st_ino:
                    stack.callback(os.close, folder)
                    return stack
                os.close(folder)  # it was removed while we waited

    @contextlib.contextmanager
    def unheld(self) -> Iterator[bool]:
        """Whether no lab holds it; none takes it meanwhile."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(folder)

    def child(self, name: str) -> CGroup:
        return CGroup(self.path / name)

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """Kill all processes inside at once; none of them runs any further. A group that is gone has none."""
        with _if_there():
            (self.path / "cgroup.kill").write_text("1")

    def freeze(self) -> None:
        """Stop all processes inside at once; returns when they are stopped, or after two minutes."""
        (self.path / "cgroup.freeze").write_text("1")
        deadline = time.monotonic() + _FREEZE_SECONDS
        while "frozen 1" not in (self.path / "cgroup.events").read_text() and time.monotonic() < deadline:
            time.sleep(0.001)

    @property
    def populated(self) -> bool:
        """Whether any process is inside."""
        return populated(self.path)

    async def emptied(self, limit: float = 180) -> None:
        """Wait until no process is inside any more."""
        deadline = time.monotonic() + limit
        while self.populated:
            if time.monotonic() > deadline:
                raise LabError(f"processes in {self.path} did not end within {limit:.0f} s of being killed")
            await asyncio.sleep(0.005)

    def remove(self) -> None:
        """Remove the group and the empty groups inside it."""
        for folder, _folders, _files in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


class Watchdog:
    """A process outside the lab that kills the lab's control group when the lab is gone."""

    def __init__(self, cgroup: CGroup) -> None:
        """Watch from now on."""
        self._process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, str(cgroup.path / "cgroup.kill")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C or a kill of the lab's process group must not reach it
        )

    def close(self) -> None:
        """Stop watching; the control group has been removed."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


_NUMBER = {"x86_64": 321, "aarch64": 280}  # of the system call
_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _PROG_LOAD, _PROG_ATTACH = 0, 2, 3, 5, 8
_HASH = 1
_ALLOW_MULTI = 2  # groups inside may have programs of their own; all of them must agree
_libc = ctypes.CDLL(None, use_errno=True)

# Registers: R0 result, R1..R5 arguments, R6..R9 kept over calls, R10 the top of the stack.
LOAD_U32, STORE_U32, STORE_U32_NUMBER, STORE_U64_NUMBER = 0x61, 0x63, 0x62, 0x7A
MOVE, SET, ADD, AND, SHIFT_RIGHT = 0xBF, 0xB7, 0x07, 0x57, 0x77
JUMP_IF_EQUAL, JUMP_IF_NOT_EQUAL, CALL, EXIT = 0x15, 0x55, 0x85, 0x95
_LOAD_MAP = 0x18
Number = tuple[int, int]  # major, minor
_DEVICE, _SYSCTL = 15, 23  # kinds of programs
_ON_DEVICE, _ON_SYSCTL = 6, 18  # where they are attached
_LOOKUP, _SYSCTL_NAME = 1, 101  # what they may call
_BLOCK, _CHAR = 1, 2
_MAKE = 1  # of make, read and write
_ANY = -1
_ENTRIES = 1024
# null, zero, full, random, urandom, tty, console, ptmx, terminals, network tunnels, FUSE: what containers have
_CHARACTERS = (
    (1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2), *((major, _ANY) for major in range(136, 144)),
    (10, 200), (10, 229),
)  # fmt: skip
_NET = int.from_bytes(b"net/", "little")


def op(code: int, to: int = 0, source: int = 0, offset: int = 0, number: int = 0) -> bytes:
    """One instruction."""
    return struct.pack("<BBhi", code, to | source << 4, offset, number)


def load_map(to: int, fd: int) -> bytes:
    """The instruction (of double length) that puts a map into a register."""
    return struct.pack("<BBhiBBhi", _LOAD_MAP, to | 1 << 4, 0, fd, 0, 0, 0, 0)


class KeySet:
    def __init__(self, key_size: int, entries: int) -> None:
        """Empty."""
        self._size = key_size
        self.fd = _bpf(_MAP_CREATE, struct.pack("<IIIII", _HASH, key_size, 4, entries, 0))

    def add(self, key: bytes) -> None:
        value = ctypes.create_string_buffer(struct.pack("<I", 1))
        self._element(_MAP_UPDATE, key, ctypes.addressof(value))

    def remove(self, key: bytes) -> None:
        """Take a key out; nothing happens when it is not in."""
        with contextlib.suppress(FileNotFoundError):
            self._element(_MAP_DELETE, key, 0)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _element(self, command: int, key: bytes, value: int) -> None:
        content = ctypes.create_string_buffer(key, self._size)
        _bpf(command, struct.pack("<IIQQQ", self.fd, 0, ctypes.addressof(content), value, 0))


def attach(group: Path, kind: int, place: int, program: bytes) -> None:
    """Load a program of a kind and let it decide for a control group; it is removed with the group."""
    code = ctypes.create_string_buffer(program, len(program))
    words = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(1 << 16)
    load = struct.pack(
        "<IIQQIIQ", kind, len(program) // 8, ctypes.addressof(code), ctypes.addressof(words), 1, len(log),
        ctypes.addressof(log),
    )  # fmt: skip
    try:
        fd = _bpf(_PROG_LOAD, load)
    except OSError as error:
        raise LabError(
            f"the kernel takes no program that keeps guests to their own devices: {error} {log.value.decode()[-500:]} "
            "(machines of kind nspawn need CAP_SYS_ADMIN, CAP_BPF and a kernel with CONFIG_CGROUP_BPF)"
        ) from error
    target = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _bpf(_PROG_ATTACH, struct.pack("<IIII", target, fd, place, _ALLOW_MULTI))
    finally:
        os.close(target)
        os.close(fd)


def _bpf(command: int, attributes: bytes) -> int:
    number = _NUMBER.get(platform.machine())
    if number is None:
        raise LabError(f"machines of kind nspawn run on {' and '.join(_NUMBER)} only, this is {platform.machine()}")
    content = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _libc.syscall(number, command, ctypes.byref(content), len(attributes))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class DeviceFilter:
    """What one machine may reach."""

    def __init__(self, group: CGroup) -> None:
        """From now on the processes in the group may use the usual terminals, and no disk."""
        self._numbers: set[Number] = set()
        self._allowed = KeySet(12, _ENTRIES)
        for number in _CHARACTERS:
            self._allowed.add(_key(_CHAR, number))
        attach(group.path, _DEVICE, _ON_DEVICE, _device_program(self._allowed))
        attach(group.path, _SYSCTL, _ON_SYSCTL, _sysctl_program())

    def disks(self, numbers: Iterable[Number]) -> None:
        """These block devices are the machine's own, and no others."""
        wanted = set(numbers)
        for number in self._numbers - wanted:  # the kernel gives the numbers of partitions to others, too
            self._allowed.remove(_key(_BLOCK, number))
        for number in wanted - self._numbers:
            self._allowed.add(_key(_BLOCK, number))
        self._numbers = wanted

    def close(self) -> None:
        """The group has been removed."""
        self._allowed.close()


def _key(kind: int, number: Number) -> bytes:
    return struct.pack("<Iii", kind, *number)


def _device_program(allowed: KeySet) -> bytes:
    """Its argument: access << 16 | kind, major, minor. Making a character device is harmless, opening it may not be."""
    look_up = [load_map(1, allowed.fd), op(MOVE, 2, 10), op(ADD, 2, number=-12), op(CALL, number=_LOOKUP)]
    allow_if_found = _Allow(JUMP_IF_NOT_EQUAL, 0, 0)
    return _assembled([
        op(LOAD_U32, 6, 1, offset=0),
        op(MOVE, 7, 6),
        op(AND, 7, number=0xFFFF),
        op(SHIFT_RIGHT, 6, number=16),
        op(STORE_U32, 10, 7, offset=-12),
        op(LOAD_U32, 2, 1, offset=4),
        op(STORE_U32, 10, 2, offset=-8),
        op(LOAD_U32, 2, 1, offset=8),
        op(STORE_U32, 10, 2, offset=-4),
        op(JUMP_IF_NOT_EQUAL, 7, offset=1, number=_CHAR),
        _Allow(JUMP_IF_EQUAL, 6, _MAKE),
        *look_up,
        allow_if_found,
        op(STORE_U32_NUMBER, 10, offset=-4, number=_ANY),
        *look_up,
        allow_if_found,
    ])  # fmt: skip


def _sysctl_program() -> bytes:
    """Everything may be read; written may be what is below net, of which a guest has its own."""
    return _assembled([
        op(LOAD_U32, 2, 1, offset=0),  # whether it is a write
        _Allow(JUMP_IF_EQUAL, 2, 0),
        op(STORE_U64_NUMBER, 10, offset=-16, number=0),
        op(STORE_U64_NUMBER, 10, offset=-8, number=0),
        op(MOVE, 2, 10),
        op(ADD, 2, number=-16),
        op(SET, 3, number=16),
        op(SET, 4, number=0),
        op(CALL, number=_SYSCTL_NAME),  # too long a name is cut
        op(LOAD_U32, 2, 10, offset=-16),
        _Allow(JUMP_IF_EQUAL, 2, _NET),
    ])  # fmt: skip


class _Allow(NamedTuple):
    """A jump to the end that allows, when a register compares with a number."""

    code: int
    register: int
    number: int


def _assembled(pieces: list[bytes | _Allow]) -> bytes:
    """The pieces as a program that refuses everything that was not allowed."""
    sizes = [1 if isinstance(piece, _Allow) else len(piece) // 8 for piece in pieces]
    program = b""
    for number, piece in enumerate(pieces):
        if isinstance(piece, _Allow):
            rest = sum(sizes[number + 1 :]) + 2  # over the refusal
            piece = op(piece.code, piece.register, offset=rest, number=piece.number)
        program += piece
    return program + op(SET, 0, number=0) + op(EXIT) + op(SET, 0, number=1) + op(EXIT)
