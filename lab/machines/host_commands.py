# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the host: run to the end, errors with the command's own words."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
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


def host_folder() -> Path:
    """Where labs of any user and place write down what they are to this host; it is empty after a reboot."""
    return Path(os.environ.get("KUBENODE_LAB_HOST_DIR") or "/run/kubenode-lab-host")


class HostSettings:
    """The settings that were changed: path of the setting → what it held before the first change."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` is made when something is changed for the first time."""
        self._folder = folder or host_folder()
        self._file = self._folder / "settings.json"

    def change(self, setting: Path, value: str) -> None:
        """Write ``value`` into a setting; what an earlier lab had found there is kept, else what is there now."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._kept() as kept:
            present = setting.read_text().strip()
            if present == value:
                return
            kept.setdefault(str(setting), present)
            self._write(kept)  # before the change: a process that dies in between leaves a record and no change
            setting.write_text(value)

    def give_back(self, setting: Path, unless: Callable[[], bool] = lambda: False) -> str | None:
        """Put back what a setting held before; None when no lab changed it, or while ``unless`` says that it is in use.

        ``unless`` is asked under the lock, under which others change the setting.
        """
        if not self._file.exists():
            return None
        with self._kept() as kept:
            before = kept.get(str(setting))
            if before is None or unless():
                return None
            with contextlib.suppress(FileNotFoundError):  # a device that was removed
                setting.write_text(before)
            del kept[str(setting)]
            self._write(kept)
            return before

    def all(self) -> dict[Path, str]:
        """What is not given back yet."""
        if not self._file.exists():
            return {}
        with self._kept() as kept:
            return {Path(setting): before for setting, before in kept.items()}

    @contextlib.contextmanager
    def _kept(self) -> Iterator[dict[str, str]]:
        with (self._folder / "settings.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                kept = json.loads(self._file.read_text())
            except FileNotFoundError:
                kept = {}
            yield kept

    def _write(self, kept: dict[str, str]) -> None:
        partial = self._file.with_suffix(".part")
        partial.write_text(json.dumps(kept, indent=1) + "\n")
        partial.rename(self._file)
