# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Records what an image command prints: each stream by itself, and both in the order in which they were written.

    recorder.py record DIR CAP KEPT BEGAN    both pipes of DIR, until nothing holds them open any more
    recorder.py launch LC_CTYPE PROGRAM ARGUMENTS…    become the program, whose stdout and stderr are these pipes

Two pipes do not tell which of them was written first. The kernel tells it to inotify, in one queue for both. It joins
equal events, so a pipe must not take a second write before the first one was read: `launch` makes both pipes one page
long and sets O_DIRECT, by which every write up to a page is a packet in a page of its own. The runner puts this file
beside itself; it imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
MODIFIED = 2  # IN_MODIFY
#: More than a packet; a line of this length is recorded in pieces, so that none fills the memory.
CHUNK = 65536
#: Seconds in which a writer that was interrupted between its data and its event comes back.
PATIENCE = 0.002


class Stream:
    """One pipe, and the log of its own."""

    def __init__(self, folder: str, name: str, mark: str, cap: int, kept: int) -> None:
        self.mark, self.cap, self.kept = mark.encode(), cap, kept
        self._path = os.path.join(folder, name)
        self.fd = os.open(self._path + ".pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._log = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size, self._whole = 0, True
        self._line, self._end, self._written = b"", b"", 0
        #: Places in the queue: of the events since the last read, and of the last event. Whether the event of what was
        #: read is still to come, and whether it has come since, so that the next one may be a part of it.
        self.events: list[int] = []
        self.last, self.owed, self.joined = 0, False, False

    def keep(self, data: bytes) -> None:
        """Add bytes to the log: the first ``cap`` there, the last ``kept`` in memory until the end."""
        self._end = (self._end + data)[-self.kept :]
        if self._whole and data:
            done = self._write(data[: self.cap - self._size])
            self._size += done
            if done < len(data):
                self._whole = False
                with contextlib.suppress(OSError):
                    os.replace(self._path + ".whole", self._path + ".cut")

    def _write(self, data: bytes) -> int:
        done = 0
        with contextlib.suppress(OSError):  # no room left: the other logs go on
            while done < len(data):
                done += os.write(self._log, data[done:])
        return done

    def lines(self, data: bytes, seconds: str, ended: bool = False) -> bytes:
        """The lines that these bytes complete, for the log of both streams."""
        *lines, self._line = (self._line + data).split(b"\n")
        while len(self._line) >= CHUNK:
            lines.append(self._line[:CHUNK])
            self._line = self._line[CHUNK:]
        if ended and self._line:
            lines.append(self._line)
            self._line = b""
        begin = b"%s %s " % (seconds.encode(), self.mark)
        found = b""
        for line in lines:
            if self._written >= self.cap:
                break
            found += begin + line + b"\n"
            self._written += len(line) + 16
            if self._written >= self.cap:
                said = f"[kubenode: something is left out here; what follows are the last {self.kept} bytes]"
                found += begin + said.encode() + b"\n"
        return found

    def close(self) -> None:
        """Keep the end; its room was taken before."""
        with contextlib.suppress(OSError), open(self._path + ".last", "r+b") as file:
            file.write(self._end)


class Events:
    """The kernel's queue of writes to the pipes; without inotify there is none, and the order is that of the polls."""

    def __init__(self, folder: str, names: tuple[str, ...]) -> None:
        import ctypes  # lazy: only one of the two programs needs it

        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        paths = [os.path.join(folder, name + ".pipe") for name in names] if self.fd >= 0 else []
        self._watches = [self._libc.inotify_add_watch(self.fd, os.fsencode(path), MODIFIED) for path in paths]
        self._count = 0

    def note(self, streams: list[Stream]) -> None:
        """Pass the events that have come to the streams."""
        while self.fd >= 0:
            try:
                data = os.read(self.fd, CHUNK)
            except OSError:
                return
            for place in range(0, len(data) - 15, 16):  # the watch is a pipe itself: no event has a name
                watch = int.from_bytes(data[place : place + 4], sys.byteorder, signed=True)
                if watch in self._watches:
                    stream = streams[self._watches.index(watch)]
                    self._count += 1
                    stream.last = self._count
                    if not stream.owed:
                        stream.events.append(self._count)
                    stream.owed, stream.joined = False, stream.owed or stream.joined

    def wait(self) -> bool:
        """Whether there is an event, or is one soon."""
        return self.fd >= 0 and bool(select.select([self.fd], [], [], PATIENCE)[0])


class Recorder:
    """Both streams."""

    def __init__(self, folder: str, cap: int, kept: int, began: int) -> None:
        self._began = began / 100
        self._events = Events(folder, ("stdout", "stderr"))
        self.streams = [Stream(folder, "stdout", "out", cap, kept), Stream(folder, "stderr", "err", cap, kept)]
        self._open = list(self.streams)
        self._both = os.open(os.path.join(folder, "interleaved"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.close(os.open(os.path.join(folder, "recording"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def run(self) -> None:
        """Until the last writer has gone."""
        while self._open:
            ready = self._ready(None)
            if len(ready) == 1 and len(self._open) == 2:
                # The other one may have been written before this one, after it was looked at.
                ready = self._ready(0)
            if len(ready) == 1:
                self._record([(ready[0], self._read(ready[0]))])
            elif ready:
                self._record(self._in_order(ready))

    def _ready(self, timeout: int | None) -> list[Stream]:
        poll = select.poll()
        for stream in self._open:
            poll.register(stream.fd, select.POLLIN)
        found = {fd for fd, _event in poll.poll(timeout)}
        return [stream for stream in self._open if stream.fd in found]

    def _in_order(self, ready: list[Stream]) -> list[tuple[Stream, bytes | None]]:
        """What was written first, when both streams were written."""
        self._events.note(self.streams)
        while self._is_unclear(ready) and self._events.wait():
            self._events.note(self.streams)
        # What has no event of its own yet is being written at this moment.
        first, other = sorted(ready, key=lambda stream: (not stream.events and not stream.joined, stream.last))
        events, others = first.events, other.events
        data = self._read(first)
        if len(events) < 2 and len(others) < 2:
            return [(first, data)]
        # More than one write was waiting: by a program that opened /dev/stdout or /dev/stderr again.
        pieces = _at_events(first, data, events) + _at_events(other, self._read(other), others)
        return [(stream, piece) for _event, stream, piece in sorted(pieces, key=lambda piece: piece[0])]

    @staticmethod
    def _is_unclear(ready: list[Stream]) -> bool:
        return any(stream.joined for stream in ready if not stream.events) or not any(one.events for one in ready)

    def _read(self, stream: Stream) -> bytes | None:
        """One packet, or all that is there; empty at the end of the stream, None when it was nothing after all."""
        self._events.note(self.streams)
        try:
            data = os.read(stream.fd, CHUNK)
        except BlockingIOError:
            return None
        stream.owed, stream.joined, stream.events = not stream.events, False, []
        if not data:
            self._open.remove(stream)
        return data

    def _record(self, pieces: list[tuple[Stream, bytes | None]]) -> None:
        seconds, found = self._elapsed(), b""
        for stream, data in pieces:
            if data is not None:
                stream.keep(data)
                found += stream.lines(data, seconds, ended=not data)
        self._tell(found)

    def _tell(self, text: bytes) -> None:
        with contextlib.suppress(OSError):
            while text:
                text = text[os.write(self._both, text) :]

    def _elapsed(self) -> str:
        return f"{max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self._began):.2f}"

    def finish(self) -> None:
        """What is left of lines without an end, and the ends of the logs."""
        for stream in self.streams:
            self._tell(stream.lines(b"", self._elapsed(), ended=True))
            stream.close()


def _at_events(stream: Stream, data: bytes | None, events: list[int]) -> list[tuple[int, Stream, bytes | None]]:
    """The lines of several writes, one for each event. Equal events are one: the first takes the other lines."""
    lines = (data or b"").splitlines(keepends=True)
    more = max(1, len(lines) - len(events) + 1)
    parts = [b"".join(lines[:more]) if lines else data, *lines[more:]]
    return [(event, stream, part) for event, part in zip(events or [stream.last], parts)]


def _end(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def record(folder: str, cap: str, kept: str, began: str) -> int:
    """Until both pipes are closed, or TERM comes: a process that outlives its command may hold them for ever."""
    recorder = Recorder(folder, int(cap), int(kept), int(began))
    signal.signal(signal.SIGTERM, _end)
    try:
        recorder.run()
    finally:
        recorder.finish()
    return 0


def launch(ctype: str, *words: str) -> None:
    """Make both pipes short, and become the program. ``ctype``: ``=`` and LC_CTYPE, or nothing when it is not set."""
    for fd in (1, 2):
        with contextlib.suppress(OSError):  # the order is less exact then
            fcntl.fcntl(fd, SET_SIZE, PAGE)
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    os.environ.pop("LC_CTYPE", None)  # Python may have set it
    if ctype:
        os.environ["LC_CTYPE"] = ctype[1:]
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execvp(words[0], words)


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launch(*sys.argv[2:])
    raise SystemExit(record(*sys.argv[2:]))
