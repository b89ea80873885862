# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching an image command: one cheap answer of the runner per poll, through lost connections, until it has ended."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import Masker
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.protocol import Status

from ..ssh.remote import OTHER_KEY, Remote, Unreachable

RUNNER = f"{protocol.BASE}/{protocol.RUNNER}"
#: What the runner may take beyond the limit to kill and tidy up, and we to reconnect.
GRACE = 60.0
#: Seconds without an answer after which that is said.
SILENT = 60.0


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
        silent: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """``shown``: what people get to see of a message. ``harm``: what a command that was cut off may have left.

        ``measured`` gets the bytes that are done and those in all whenever they have changed; None: no more. ``silent``
        is called once for a machine that does not answer for some time, with the seconds.
        """
        self._shown, self._runner, self._noun, self._harm = shown, runner, noun, harm
        self._remote, self._job, self._boot_id = remote, job, boot_id
        self._log, self._progress = log, progress
        self._clock, self._sleep = clock, sleep
        self._offset = 0
        self._message = ""
        self._measured, self._silent = measured, silent
        self._bytes: tuple[int, int | None] | None = None

    def until_end(self, limit: float, longest: float) -> Status:
        """Poll with waits that grow up to ``longest`` seconds; returns the final status."""
        deadline = self._clock() + limit + GRACE
        wait = min(max(1.0, longest / 2), longest)
        behind = False
        lost: float | None = None
        said = False
        while True:
            try:
                status = self._poll(0.0 if behind else wait)
                lost = None
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
                now = self._clock()
                lost = now if lost is None else lost
                if not said and now - lost >= SILENT:
                    said = True
                    self._silent(now - lost)
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
            wait = min(wait * 2, longest)

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


# --- the logs of what ran in a rescue, on the controller: private files, without our secrets in them


#: A log that unpacks to more is cut: a hostile machine must not fill the controller's disk.
MOST = 256 * 1024 * 1024
#: Lines at the end of a log that results carry.
TAIL = 20
#: How the line begins with which the runner says that it left something out, and how long it lets lines be.
GAP, LONGEST = b"[kubenode: something is left out here", 65000
_GAP_LINE = re.compile(rb"(\n%s[^\n]*\n)" % re.escape(GAP))


def default_directory() -> str:
    """Where logs go by default."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "kubenode-provision", "logs")


class Logs:
    """The logs of one machine: interleaved (grows while the program runs), stdout, stderr, and what else is stored."""

    def __init__(self, directory: str, name: str, masker: Masker, stem: str = "image-url-command") -> None:
        self.directory = Path(directory) / name
        self._stem = stem
        self.interleaved = self.directory / f"{stem}.log"
        self._masker = masker
        self._rest = b""
        self._size = 0
        self._torn: dict[bytes, bool] = {}
        #: The last lines of the interleaved log.
        self.tail: deque[str] = deque(maxlen=TAIL)

    def prepare(self) -> None:
        """Make the directory; raises OSError when nothing can be written there."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def begin(self) -> None:
        """Start over: the log is read from its beginning, also when a running command is attached to."""
        self.prepare()
        self.tail.clear()
        for path in self.directory.glob(f"{self._stem}.*.log"):
            # another machine may have a longer name
            if "." not in path.name[len(self._stem) + 1 : -len(".log")]:
                path.unlink()
        self._write(self.interleaved, b"")

    def append(self, data: bytes) -> list[str]:
        """Add new bytes of the interleaved log; returns the lines completed by them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        masked = [self._masked_line(line) for line in lines]
        if masked and self._size < MOST:
            text = b"".join(line + b"\n" for line in masked)
            self._size += len(text)
            with _named(self.interleaved), open(self.interleaved, "ab") as file:
                file.write(text)
        lines_now = [line.decode("utf-8", "replace") for line in masked]
        self.tail.extend(lines_now)
        return lines_now

    def store(self, name: str, packed: bytes) -> bytes:
        """Keep a log such as ``stdout`` as fetched (gzip); returns its last 64 KiB."""
        unpacker = zlib.decompressobj(wbits=31)
        try:
            data = unpacker.decompress(packed, MOST)
        except zlib.error as exc:
            raise gzip.BadGzipFile(str(exc)) from exc
        parts = _GAP_LINE.split(data)
        if len(data) < MOST and len(parts) == 1:
            data = self._masker.data(data)
        else:
            data = b"".join(part if _GAP_LINE.fullmatch(part) else self._masker.torn(part) for part in parts)
        self._write(self._path(name), data)
        return data[-65536:]

    def put(self, name: str, data: bytes) -> None:
        """Keep a log that is at hand."""
        self._write(self._path(name), self._masker.data(data) if len(data) <= MOST else self._masker.torn(data[:MOST]))

    def _masked_line(self, line: bytes) -> bytes:
        """A line of the interleaved log (``SECONDS MARK TEXT``); the runner cuts very long ones in pieces."""
        seconds, mark, text = (line.split(b" ", 2) + [b"", b""])[:3]
        torn = self._torn.get(mark, False) or len(text) >= LONGEST
        self._torn[mark] = len(text) >= LONGEST or text.startswith(GAP)
        return b"%s %s %s" % (seconds, mark, self._masker.torn(text)) if torn else self._masker.data(line)

    def _path(self, name: str) -> Path:
        return self.directory / f"{self._stem}.{name}.log"

    def _write(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        with _named(path), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of writing says which file it was, also when the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
