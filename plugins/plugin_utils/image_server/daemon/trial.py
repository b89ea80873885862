# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the program would start with some settings, asked while another one may be running; nothing is changed."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import is_digits
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import base_kinds
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import chosen

from . import requests
from .command_line import Settings

_LISTENS = "0A"  # a state in /proc/net/tcp
_SOCKET = re.compile(r"socket:\[([0-9]+)\]\Z")


def problems(settings: Settings, unit: str, bases: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """What each problem is of (a setting, or the name of a base), and the problem.

    ``unit``: whose ports count as free; ``bases``: a name → kind and files, of which the first that is there is meant.
    """
    if not requests.HAS_HTTPTOOLS:
        yield "", "the Python library httptools is missing"
    if importlib.util.find_spec("yaml") is None:
        yield "", "the Python library PyYAML is missing"
    try:
        chosen(settings.nmstate)
    except ImageError as error:
        yield "nmstate", str(error)
    for name, bound in (("images-bind-addr", settings.bind), ("metrics-addr", settings.metrics)):
        why = _not_to_be_had(*bound, unit) if bound else ""
        if why:
            yield name, why
    for name, (kind, *files) in sorted(bases.items()):
        path = next(filter(os.path.exists, files), "")
        if path:
            try:
                base_kinds.check(path, kind)
            except ImageError as error:
                yield name, str(error)


def _not_to_be_had(host: str, port: int, unit: str) -> str:
    """Why nothing can listen there; "" when it can, or could if ``unit`` did not."""
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error.strerror or str(error)
    for family, kind, protocol, _name, address in places:
        try:
            one = socket.socket(family, kind, protocol)
        except OSError:  # this machine has no such family
            continue
        with one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                one.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    others = _others(port, unit)
                    if not others:
                        continue
                    return f"port {port} is in use by {' and '.join(others)}"
                if host or error.errno != errno.EADDRNOTAVAIL:
                    return os.strerror(error.errno or 0)
    return ""


def _others(port: int, unit: str) -> list[str]:
    """Who listens on a port, but for the main process of a unit."""
    inodes = set(_listening(port))
    said = subprocess.run(
        ["systemctl", "show", "--value", "--property=MainPID", unit],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    own = said.stdout.decode("ascii", "replace").strip()
    found, known = set(), set()
    for pid in filter(is_digits, os.listdir("/proc")):
        mine = inodes & set(_sockets(pid))
        if mine:
            known |= mine
            if pid != own:
                found.add(f"{_name(pid)} (process {pid})")
    return [*sorted(found), *(["another process"] if inodes - known else [])]


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for line in list(file)[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _sockets(pid: str) -> Iterable[str]:
    found = []
    with contextlib.suppress(OSError):  # it has ended
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                match = _SOCKET.match(os.readlink(f"/proc/{pid}/fd/{number}"))
                found += [match.group(1)] if match else []
    return found


def _name(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return "a program"
