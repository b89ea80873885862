# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""QEMU's machine protocol: commands and events over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from .host import LabError

_LIMIT = 180  # seconds until QEMU must have answered


class Qmp:
    """A connection to one running QEMU."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `Qmp.connect`."""
        self._reader = reader
        self._writer = writer
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.shutdown_reason: str | None = None  # of the SHUTDOWN event, when one came

    @classmethod
    async def connect(cls, socket: Path, process: asyncio.subprocess.Process) -> Qmp:
        """Connect as soon as QEMU listens."""
        deadline = asyncio.get_running_loop().time() + _LIMIT
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                reader, writer = await asyncio.open_unix_connection(str(socket))
                break
            if process.returncode is not None:
                raise LabError(f"QEMU ended at once (status {process.returncode}); its words are on the console")
            if asyncio.get_running_loop().time() > deadline:
                raise LabError(f"QEMU did not open {socket.name} within {_LIMIT} s")
            await asyncio.sleep(0.02)
        connection = cls(reader, writer)
        await asyncio.wait_for(reader.readline(), _LIMIT)  # the greeting
        connection._task = asyncio.create_task(connection._read(), name=f"QMP of {socket.parent.name}")
        await connection.execute("qmp_capabilities")
        return connection

    async def execute(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its result."""
        async with self._turn:
            request = {"execute": command, "arguments": arguments} if arguments else {"execute": command}
            self._writer.write(json.dumps(request).encode() + b"\n")
            answer = await asyncio.wait_for(self._answers.get(), _LIMIT)
        if "error" in answer:
            raise LabError(f"QEMU refused {command}: {answer['error'].get('desc', answer['error'])}")
        return answer["return"]

    async def ended(self) -> None:
        """Wait until QEMU has closed the connection (all its events have been read then)."""
        if self._task:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Hang up."""
        if self._task:
            self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                message = json.loads(line)
                if message.get("event") == "SHUTDOWN":
                    self.shutdown_reason = message["data"].get("reason", "")
                elif "event" not in message:
                    self._answers.put_nowait(message)
