# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a container to its own devices and its own settings, whatever nodes and mounts it makes for itself.

Two small programs in the kernel, on the machine's control group: one is asked before a device node is made or opened,
the other before a sysctl is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from .bpf import (
    ADD,
    AND,
    CALL,
    EXIT,
    JUMP_IF_EQUAL,
    JUMP_IF_NOT_EQUAL,
    LOAD_U32,
    MOVE,
    SET,
    SHIFT_RIGHT,
    STORE_U32,
    STORE_U32_NUMBER,
    STORE_U64_NUMBER,
    Set,
    attach,
    load_map,
    op,
)
from .cgroup import CGroup

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


class Fence:
    """What one machine may reach."""

    def __init__(self, group: CGroup) -> None:
        """From now on whoever is in the group has the usual terminals and no disk."""
        self._numbers: set[Number] = set()
        self._allowed = Set(12, _ENTRIES)
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


def _device_program(allowed: Set) -> bytes:
    """Its argument: access << 16 | kind, major, minor. Making a character device harms nobody, opening it may."""
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
    """The pieces as a program that refuses whatever was not allowed."""
    sizes = [1 if isinstance(piece, _Allow) else len(piece) // 8 for piece in pieces]
    program = b""
    for number, piece in enumerate(pieces):
        if isinstance(piece, _Allow):
            rest = sum(sizes[number + 1 :]) + 2  # over the refusal
            piece = op(piece.code, piece.register, offset=rest, number=piece.number)
        program += piece
    return program + op(SET, 0, number=0) + op(EXIT) + op(SET, 0, number=1) + op(EXIT)
