# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the host: run to the end, errors with the command's own words."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lab.errors import LabError

# program → the Debian package that brings it
PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "losetup": "mount",
    "nft": "nftables",
    "mount": "mount",
    "blkid": "util-linux",
    "mkfs.xfs": "xfsprogs",
    "qemu-system-x86_64": "qemu-system-x86",
}


async def run(*command: str, text: str | None = None) -> str:
    """Run a command and return its standard output; a failure becomes a `LabError`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE if text is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise LabError(missing([command[0]])) from error
    out, err = await process.communicate(text.encode() if text is not None else None)
    if process.returncode:
        raise LabError(
            f"{' '.join(command)} failed (status {process.returncode}): {err.decode(errors='replace').strip()}"
        )
    return out.decode(errors="replace")


def require(programs: Iterable[str]) -> None:
    """Raise one clear error for all programs that the host lacks."""
    absent = [program for program in programs if not find(program)]
    if absent:
        raise LabError(missing(absent))


def missing(programs: Iterable[str]) -> str:
    """What to install for these programs."""
    names = sorted(programs)
    packages = sorted({PACKAGES.get(name, name) for name in names})
    return f"this host lacks {', '.join(names)}; run: apt-get install {' '.join(packages)}"


def find(program: str) -> str | None:
    """Where a program is; administrators' folders are searched as well."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


async def unmount(folder: Path) -> None:
    """Take away all that is mounted on a folder, also where a process still uses it."""
    while os.path.ismount(folder):
        try:
            await run("umount", "--lazy", str(folder))
        except LabError:
            if os.path.ismount(folder):  # another process may have unmounted it meanwhile
                raise
