# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions: work that takes time, ends once, and locks what it works on."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lab.delays import Delays
from lab.faults import ActionFault, Faults

from .resources import Action, Lockable, now

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What an action does: ``work`` while its time passes, ``done`` or ``failed`` at its end."""

    work: Callable[[], Awaitable[None]] | None = None
    done: Callable[[], None] | None = None
    failed: Callable[[], None] | None = None


class ActionFailedError(Exception):
    """Raised by an action's work to end it with an error that the user can read."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Engine:
    """Starts actions, and keeps all of them."""

    def __init__(self, delays: Delays, faults: Faults) -> None:
        self.actions: dict[int, Action] = {}
        self._ids = itertools.count(500_000_001)
        self._delays = delays
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self,
        command: str,
        machine: str,
        resources: list[tuple[str, int]],
        job: Job,
        holds: Lockable | None = None,
        after: Action | None = None,
    ) -> Action:
        """Start an action now, or when ``after`` has succeeded; ``holds`` is locked until it ended."""
        described: list[dict[str, Any]] = [{"id": identifier, "type": kind} for kind, identifier in resources]
        action = Action(next(self._ids), command, described, started=self._now())
        self.actions[action.id] = action
        if holds is not None:
            holds.locks.add(action.id)
        self._spawn(self._run(action, machine, job, holds, after))
        return action

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, action: Action, machine: str, job: Job, holds: Lockable | None, after: Action | None) -> None:
        try:
            if after is not None:
                await after.ended.wait()
                if after.status == "error":
                    raise ActionFailedError("action_failed", f"action {after.id} ({after.command}) failed")
            fault = self._faults.action(machine, action.command)
            action.seconds = self._delays.action(machine, action.command) + (fault.delay if fault else 0.0)
            action.begun = time.monotonic()
            await self._work(action, job, fault)
        except ActionFailedError as failure:
            self._end(action, holds, job.failed, {"code": failure.code, "message": failure.message})
        except Exception:
            # A machine that cannot do its work is an action that failed, not a lab that died.
            log.exception("action %s %s of %s failed", action.id, action.command, machine)
            self._end(action, holds, job.failed, {"code": "action_failed", "message": "Action failed"})
        else:
            self._end(action, holds, job.done, None)

    async def _work(self, action: Action, job: Job, fault: ActionFault | None) -> None:
        passing = asyncio.get_running_loop().create_task(asyncio.sleep(action.seconds))
        try:
            if fault is not None and fault.effect == "stuck":
                await self._faults.until_cleared()
            if fault is not None and fault.effect == "error":
                await passing
                raise ActionFailedError(fault.code, fault.message)
            if job.work is not None:
                await job.work()
            await passing
        finally:
            passing.cancel()

    def _now(self) -> datetime:
        """By the clock of the API."""
        return now() + timedelta(seconds=self._faults.ahead)

    def _end(
        self, action: Action, holds: Lockable | None, callback: Callable[[], None] | None, error: dict[str, str] | None
    ) -> None:
        if callback is not None:
            callback()
        if holds is not None:
            holds.locks.discard(action.id)
        action.finished = self._now()
        action.error = error
        action.status = "error" if error else "success"
        action.ended.set()


def progress(action: Action) -> int:
    """How far an action is, in percent; 100 only when it has ended."""
    if action.status != "running":
        return 100
    if action.begun is None or action.seconds <= 0:
        return 0
    return min(99, int(100 * (time.monotonic() - action.begun) / action.seconds))
