# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every machine that really boots has: disks that stay, a power switch, credentials for its rescue."""

from __future__ import annotations

import abc
import asyncio
import base64
import contextlib
import os
import shutil
from enum import Enum
from pathlib import Path

from lab.errors import LabError

from .base import Firmware, Machine, OnOff, Rescue
from .disks import Hardware
from .store import Store

_MAGIC = b"openssh-key-v1\0"
_TYPES = {b"ssh-ed25519": "ed25519", b"ssh-rsa": "rsa"}


def rescue_credentials(rescue: Rescue) -> dict[str, str]:
    """Name → content of the credentials of one boot."""
    found = {"ssh.authorized_keys.root": "".join(f"{key.strip()}\n" for key in rescue.authorized_keys)}
    if rescue.password is not None:
        found["lab.root_password"] = rescue.password
    for key in rescue.host_keys:
        found[f"lab.ssh_host_key.{key_type(key)}"] = key if key.endswith("\n") else key + "\n"
    return {name: content for name, content in found.items() if content}


def write_credentials(folder: Path, credentials: dict[str, str]) -> dict[str, Path]:
    """Leave credentials in a folder that only we can read; what an earlier boot had is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    files = {}
    for name, content in credentials.items():
        files[name] = folder / name
        fd = os.open(files[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(content)
    return files


def key_type(private: str) -> str:
    """ed25519, ecdsa or rsa: the type of an OpenSSH private key, from its public part, which is not encrypted."""
    lines = [line.strip() for line in private.strip().splitlines()]
    if len(lines) < 3 or "OPENSSH PRIVATE KEY" not in lines[0]:
        raise LabError("a host key of the rescue is not an OpenSSH private key; give its text with both marker lines")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except ValueError as error:
        raise LabError("a host key of the rescue is damaged: its text is not base64") from error
    rest = blob.removeprefix(_MAGIC)
    for _field in ("cipher", "derivation of its key", "options of that"):
        _value, rest = _string(rest)
    public, _rest = _string(rest[4:])
    name, _rest = _string(public)
    kind = _TYPES.get(name) or ("ecdsa" if name.startswith(b"ecdsa-sha2-") else "")
    if not blob.startswith(_MAGIC) or not kind:
        raise LabError(f"a host key of the rescue is of type {name[:40]!r}; give ed25519, ecdsa or rsa")
    return kind


def _string(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:4])
    return data[4 : 4 + length], data[4 + length :]


class End(Enum):
    """How one boot ended."""

    OFF = "the guest switched itself off"
    AGAIN = "the guest reboots"
    CRASHED = "the guest ended otherwise"
    NOTHING = "nothing was started"


class PoweredMachine(Machine):
    """Power on, off and cut; a kind says how its guest runs (`_boot`) and how it is killed (`_kill`)."""

    def __init__(self, folder: Path, store: Store, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
        """A machine without disks in the lab's ``folder``; `create` puts them in."""
        self._name = f"m{hardware.machine_id}"
        self._folder = folder / "machines" / self._name
        self._folder.mkdir(parents=True, exist_ok=True)
        super().__init__(store, self._folder / "console.log", hardware, firmware, on_off)
        self._life: asyncio.Task[None] | None = None

    @abc.abstractmethod
    async def _boot(self, begun: asyncio.Event) -> End:
        """One boot, from asking the firmware to its end; ``begun`` is set when the guest has begun to start."""

    @abc.abstractmethod
    async def _kill(self) -> None:
        """End what is left of the guest and release what it used."""

    async def _prepare(self) -> None:
        """What is to be done before every power on."""

    async def _power_gone(self) -> None:
        """What is to be done after every power off."""

    async def _halted(self, end: End) -> None:
        """There is power and no guest: nothing happens until the power is cut."""
        del end
        await asyncio.Event().wait()

    async def _live(self, begun: asyncio.Event) -> None:
        """From power on to power off: one guest after the other; ``begun`` is also set when none can start."""
        try:
            while True:
                try:
                    end = await self._boot(begun)
                except Exception as error:  # noqa: BLE001 - a machine that does not come up still has power
                    self._console.say(f"The lab could not start this machine: {error}")
                    end = End.NOTHING
                begun.set()
                if end is End.OFF:
                    break
                if end is not End.AGAIN:
                    await self._halted(end)
        finally:
            begun.set()
        await self._switched_off()

    async def _cut(self) -> None:
        """Pull the plug."""
        await self._stop()

    @property
    def running(self) -> bool:
        return self._life is not None

    async def power_on(self) -> None:
        """Start; returns when the guest has begun to start, or when it is clear that nothing boots."""
        async with self._switch:
            if self._life is None:
                await self._start()

    async def cut_power(self) -> None:
        """End the guest at once; what it had not written to its disk is lost."""
        async with self._switch:
            await self._cut()

    async def reset(self) -> None:
        """Cut and start again, so that the firmware is asked again."""
        async with self._switch:
            await self._cut()
            await self._start()

    async def destroy(self) -> None:
        async with self._switch:
            await self._stop()
        for disk in self._disks:
            disk.remove()

    async def _start(self) -> None:
        self._console.clear()
        await self._prepare()
        begun = asyncio.Event()
        self._life = asyncio.create_task(self._live(begun), name=f"life of {self._name}")
        await begun.wait()

    async def _stop(self) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        await self._kill()
        await self._power_gone()

    async def _switched_off(self) -> None:
        """The guest switched itself off: clean up, unless the power switch was used meanwhile."""
        async with self._switch:
            if self._life is asyncio.current_task():
                self._life = None
                await self._kill()
                await self._power_gone()
                self.on_off()
