# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching an image command: one cheap answer of the runner per poll, through lost connections, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.protocol import Status

from ..ssh.remote import OTHER_KEY, Remote, Unreachable

RUNNER = f"{protocol.BASE}/{protocol.RUNNER}"
#: What the runner may take beyond the limit to kill and tidy up, and we to reconnect.
GRACE = 60.0


class WatchFailed(Exception):
    """The command can no longer be watched; the text says why and what to do."""


class Watcher:
    """Polls one job; hands new log bytes and progress messages on."""

    def __init__(
        self,
        remote: Remote,
        job: str,
        boot_id: str,
        log: Callable[[bytes], None],
        progress: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        shown: Callable[[str], str] = one_line,
        runner: str = f"sh {RUNNER}",
        noun: str = "image command",
        harm: str = "The disk may be half written",
        measured: Callable[[int | None, int | None], None] | None = None,
    ) -> None:
        """``shown``: what people get to see of a message. ``harm``: what a command that was cut off may have left.

        ``measured`` gets the bytes that are done and those in all whenever they have changed; None: no more.
        """
        self._shown, self._runner, self._noun, self._harm = shown, runner, noun, harm
        self._remote, self._job, self._boot_id = remote, job, boot_id
        self._log, self._progress = log, progress
        self._clock, self._sleep = clock, sleep
        self._offset = 0
        self._message = ""
        self._measured = measured
        self._bytes: tuple[int, int | None] | None = None

    def until_end(self, limit: float, longest: float) -> Status:
        """Poll with waits that grow up to ``longest`` seconds; returns the final status."""
        deadline = self._clock() + limit + GRACE
        wait = min(0.3, longest)
        behind = False
        while True:
            try:
                status = self._poll(0.0 if behind else wait)
            except Unreachable as exc:
                if exc.kind == OTHER_KEY:
                    raise WatchFailed(
                        "another system answers (its host key is not the rescue's): the machine rebooted while the "
                        f"{self._noun} ran. {self._harm}; run again"
                    ) from exc
                if self._clock() > deadline:
                    raise WatchFailed(
                        f"SSH did not come back within the limit of {limit:.0f} s ({exc.detail}); the runner in the "
                        "rescue ends the command by itself. Run again to see how it ended"
                    ) from exc
                self._remote.close()
                self._sleep(min(2.0, max(0.2, wait)))
                continue
            behind = self._offset < status.log_size
            if status.state != protocol.RUNNING and not behind:
                return status
            # The run that started the command may have given it another limit.
            deadline = self._clock() + max(0.0, status.limit - status.seconds) + GRACE
            if status.seconds > status.limit + GRACE:
                raise WatchFailed(
                    f"the command still runs {GRACE:.0f} s after its limit; reset the machine and run again"
                )
            wait = min(wait * 1.5, longest)

    def _poll(self, wait: float) -> Status:
        code, answer = self._remote.run(f"{self._runner} status {self._offset} {wait:.1f}")
        try:
            status = protocol.parse_status(answer)
        except protocol.ProtocolError as exc:
            raise WatchFailed(
                f"the runner of the {self._noun} does not answer (exit code {code}: {exc}): the rescue was rebooted, "
                f"or {protocol.BASE}/{protocol.STATE_DIR} was removed. Run again"
            ) from exc
        if status.boot_id != self._boot_id:
            raise WatchFailed(f"the rescue was rebooted while the {self._noun} ran. {self._harm}; run again")
        if status.job != self._job:
            raise WatchFailed(f"another {self._noun} has taken the place of this one; run again when it has ended")
        if status.log:
            self._log(status.log)
        self._offset = status.next_offset
        if self._measured is not None and status.bytes != self._bytes:
            self._bytes = status.bytes
            self._measured(*(status.bytes or (None, None)))
        message = self._shown(status.message)
        if message and message != self._message:
            self._message = message
            self._progress(message)
        return status

    @property
    def message(self) -> str:
        """The last progress message."""
        return self._message
