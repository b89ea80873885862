# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""bpf(2): as much of it as two small programs on a control group need, without a compiler or a library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path

from .host import LabError

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


def op(code: int, to: int = 0, source: int = 0, offset: int = 0, number: int = 0) -> bytes:
    """One instruction."""
    return struct.pack("<BBhi", code, to | source << 4, offset, number)


def load_map(to: int, fd: int) -> bytes:
    """The instruction (of double length) that puts a map into a register."""
    return struct.pack("<BBhiBBhi", _LOAD_MAP, to | 1 << 4, 0, fd, 0, 0, 0, 0)


class Set:
    """A set of keys of the same length that programs look up."""

    def __init__(self, key_size: int, entries: int) -> None:
        """Empty."""
        self._size = key_size
        self.fd = _bpf(_MAP_CREATE, struct.pack("<IIIII", _HASH, key_size, 4, entries, 0))

    def add(self, key: bytes) -> None:
        """Put a key in."""
        value = ctypes.create_string_buffer(struct.pack("<I", 1))
        self._element(_MAP_UPDATE, key, ctypes.addressof(value))

    def remove(self, key: bytes) -> None:
        """Take a key out; nothing happens when it is not in."""
        with contextlib.suppress(FileNotFoundError):
            self._element(_MAP_DELETE, key, 0)

    def close(self) -> None:
        """Let go; programs that use it keep it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _element(self, command: int, key: bytes, value: int) -> None:
        content = ctypes.create_string_buffer(key, self._size)
        _bpf(command, struct.pack("<IIQQQ", self.fd, 0, ctypes.addressof(content), value, 0))


def attach(group: Path, kind: int, place: int, program: bytes) -> None:
    """Load a program of a kind and let it decide for a control group; it goes with the group."""
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
    result = _libc.syscall(number, command, ctypes.byref(content), len(attributes))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
