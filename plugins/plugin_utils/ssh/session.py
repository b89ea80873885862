# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ssh to one system, which stays open: shell scripts go in, what they print comes out, one after the other."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import subprocess
import time
from collections.abc import Sequence

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number

#: Runs over there. A request is a line with the size of the data (or "-"), the script, a line with the mark, the data.
#: Lines are read byte by byte and data by its size, so that nothing is read that belongs to the next request.
_LOOP = r"""
m=$1
printf '\n%s 0\n' "$m"
while IFS= read -r size; do
  s=
  while :; do
    IFS= read -r l || exit 0
    [ "$l" = "$m" ] && break
    s="$s$l
"
  done
  if [ "$size" = - ]; then (eval "$s") </dev/null
  else head -c "$size" | { (eval "$s"); r=$?; cat >/dev/null; exit "$r"; }
  fi
  printf '\n%s %s\n' "$m" "$?"
done
"""
#: Bytes of one answer; the largest log that is fetched is half of it. A hostile machine must not fill the memory.
MOST = 512 * 1024 * 1024
#: Seconds until a login that hangs is given up; ssh itself gives up much earlier where no system answers.
LOGIN = 120.0
#: Seconds for an ssh to end after its input was closed.
_CLOSING = 0.5
_CHUNK = 1 << 16


class Lost(Exception):
    """The connection could not be opened, or is gone. The text is the message of ssh."""


class Session:
    """The open connection; one thread at a time may use it."""

    def __init__(self, command: Sequence[bytes | str], login: float = LOGIN) -> None:
        """Start ``command`` (ssh, its options, the host), wait for the other side; raises :class:`Lost`."""
        mark = f"kubenode-{secrets.token_hex(16)}"
        self._mark, self._ending = mark, f"\n{mark} ".encode()
        self._answer, self._errors = bytearray(), bytearray()
        remote = f"exec /bin/sh -c {shlex.quote(_LOOP)} sh {mark}"
        try:
            self._process = subprocess.Popen(
                [*command, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as exc:
            raise Lost(f"ssh cannot be started: {exc.strerror}") from exc
        self._pipes = [pipe for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        # What the login prints of its own is dropped.
        self._exchange(b"", time.monotonic() + login)

    def run(self, script: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
        """The exit code and stdout of a POSIX shell script; its stdin is ``data``. Raises :class:`Lost`."""
        words = " ".join(shlex.quote(argument) for argument in arguments)
        size = "-" if data is None else str(len(data))
        request = f"{size}\nset -- {words}\n{script}\n{self._mark}\n".encode("utf-8", "surrogateescape")
        return self._exchange(request + (data or b""))

    @property
    def alive(self) -> bool:
        """Whether the other side is still there, as far as ssh knows."""
        # Between two requests nothing is to come but the end.
        return self._process.poll() is None and not select.select([self._pipes[1]], [], [], 0)[0]

    def close(self) -> None:
        """End it. What runs on the machine is not ended."""
        with contextlib.suppress(OSError):
            self._pipes[0].close()
        try:
            self._process.wait(_CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._pipes[1:]:
            pipe.close()

    def _exchange(self, request: bytes, deadline: float | None = None) -> tuple[int, str]:
        """Send, and read until the answer is whole: its exit code and what came before."""
        stdin, stdout, stderr = (pipe.fileno() for pipe in self._pipes)
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stderr, select.POLLIN)
        if request:
            poll.register(stdin, select.POLLOUT)
        rest, searched = memoryview(request), 0
        while True:
            answer = self._whole(searched)
            if answer is not None:
                return answer
            searched = max(0, len(self._answer) - len(self._ending) - 4)
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = dict(poll.poll(left))
            if not ready:
                raise self._lost("the login took too long")
            if stdin in ready:
                try:
                    rest = rest[os.write(stdin, rest[:_CHUNK]) :]
                except BrokenPipeError:  # stdout or stderr will say why
                    rest = rest[len(rest) :]
                if not rest:
                    poll.unregister(stdin)
            if stderr in ready:
                data = os.read(stderr, _CHUNK)
                self._errors = (self._errors + data)[-_CHUNK:]
                if not data:
                    poll.unregister(stderr)
            if stdout in ready:
                data = os.read(stdout, _CHUNK)
                self._answer += data
                if not data:
                    raise self._lost("")
                if len(self._answer) > MOST:
                    raise self._lost(f"it answered with more than {MOST // 1024**2} MiB")

    def _whole(self, searched: int) -> tuple[int, str] | None:
        """The answer that has come wholly, taken out of what was read."""
        found = self._answer.find(self._ending, searched)
        end = self._answer.find(b"\n", found + len(self._ending)) if found >= 0 else -1
        if end < 0:
            return None
        code = whole_number(bytes(self._answer[found + len(self._ending) : end]))
        text = self._answer[:found].decode("utf-8", "replace")
        del self._answer[: end + 1]
        return 255 if code is None else code, text

    def _lost(self, why: str) -> Lost:
        """Close, and say why: what ssh printed last, unless the reason is ours."""
        if not why:
            deadline = time.monotonic() + _CLOSING
            while (left := deadline - time.monotonic()) > 0 and select.select([self._pipes[2]], [], [], left)[0]:
                data = os.read(self._pipes[2].fileno(), _CHUNK)
                if not data:
                    break
                self._errors += data
        self.close()
        return Lost(why or self._errors.decode("utf-8", "replace").strip() or "the connection was closed")
