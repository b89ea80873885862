# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs installimage: no terminal, no questions, a limit on its time; and says how it ended.

What it prints is passed on as lines. From exit status, terminal and debug.txt comes one clear sentence.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

from ..programs import ABSENT, kill_group
from . import post_install
from .post_install import Report
from .spec import MASK

COMPLETE = "INSTALLATION COMPLETE"
TAIL = 15
#: How much of a line is read, half of it at its end: the image prints, too, and patterns take long for endless lines.
_LONGEST = 600

#: What terminals obey: colours, cursor movements, titles.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Za-z0-9]|[@-Z\\-_])")
#: A jump to a column, and an escape sequence that has not come in full yet.
_COLUMN, _CUT = re.compile(r"\x1b\[[0-9]*G"), re.compile(r"\x1b(?:\[[0-9;?]*)?\Z")
_STEP = re.compile(r"([0-9]{1,2})/([0-9]{1,2})\s*:\s*(.*)")
#: A part of a step has no number. Output of other programs may come before the outcome, which begins a line then.
_PART, _BUSY = re.compile(r"\s*:\s+(\S.*)"), re.compile(r"[ .…]*\bbusy\b", re.IGNORECASE)
_OUTCOME = re.compile(r"^(.*?)(?:[ .…]*\b(busy|done|failed|warn|ok)\b)+\s*\Z", re.IGNORECASE)
_ENDED = re.compile(r"\s*(done|failed|warn|ok)\s*\Z", re.IGNORECASE)
#: Begins what is printed after every failure, and says nothing of it; what is said at every call of a program.
_ADVICE, _NOISE = "An error occured while installing", re.compile(r"setlocale|locale settings|perl: warning")
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
_TELLING = re.compile(
    r"error|fail|cannot|can not|can't|could not|invalid|missing|no such|unable|refus"
    r"|(not|n't) (a|enough|exist|found|valid|supported)|too (small|big|large|many)|no space|denied|must be|need",
    re.IGNORECASE,
)
#: How debug.txt marks its lines: the hour, a colon before what others say, a hash before its own steps. All before this
#: line describes the machine (hwdata).
_STAMP, _QUOTED = re.compile(r"\[[0-9]{2}:[0-9]{2}:[0-9]{2}\] ?"), re.compile(r"\s*:\s*")
_BEGIN = "# make clean config"
#: What installimage itself calls an error.
_OWN = re.compile(r"\s*(?:ERROR\b|Error:|Duplicate DRIVE definition)")

#: (a sentence of its refusals, what it means, whether another try cannot help); anything else that it refuses it
#: refuses again.
_REFUSALS = (
    (r"ESP missing or multiple ESP",
     "the layout has no ESP, or more than one, and the rescue was booted by UEFI; have exactly one partition "
     "{mount: /boot/efi, filesystem: esp, size: 256M}", True),
    (r"can not determine image arch", "the file name of the image tells no architecture; name it like "
     "Debian-1200-bookworm-amd64-base.tar.zst", True),
    (r"can not install an? \S+ image on an? \S+", "the image is for another architecture than the machine's", True),
    (r"do not yet support .* on EFI", "installimage does not install this release under UEFI; use a newer one", True),
    (r"Not enough disks for RAID|at least 2 disks", "installimage wants another number of disks for this RAID level",
     True),
    (r"identical mountpoints", "something is mounted twice; logical volumes of swap count, so have one of them", True),
    (r"on a primary partition", "/boot, or / without a /boot, must be one of the first three partitions", True),
    (r"more space than your (drives|VG)", "the partitions do not fit on the smallest disk; make them smaller", True),
    (r"DRIVE[0-9]+ is busy", "a disk is still in use; reset the machine into a fresh rescue", False),
    (r"Value for DRIVE[0-9]+ is not correct", "installimage does not take a disk for one", False),
)  # fmt: skip
#: (what the failing step may say, what that means). These are guesses, so another try is never given up for them.
_FAILURES = (
    (r"No space left on device|Wrote only [0-9]+ of [0-9]+ bytes",
     "a file system was full before the image was unpacked; give / and /boot more room, or use a smaller image"),
    (r"(unexpected end of (file|input|data|archive)|unexpected eof|premature end|corrupt|data integrity|checksum "
     r"(error|mismatch)|not in (gzip|xz|bzip2) format|unsupported (format|frame)|unknown (header|frame)|truncated "
     r"input|does not look like a tar|not recoverable|decoding error|decompression error)",
     "the image cannot be unpacked: its file is broken or no tar archive of the kind its name says; make it again, "
     "and give its digest"),
    (r"is no valid (disk|block ?device)|not a (valid )?block device", "installimage does not take a disk for one"),
    (r"(device|disk|drive)\S* .*(is busy|in use)", "a disk is still in use; reset the machine into a fresh rescue"),
)  # fmt: skip


def plain(text: str) -> str:
    """What a terminal would show, without colours and cursor movements; carriage returns end lines."""
    return _ESCAPE.sub("", _COLUMN.sub(" ", text)).replace("\r\n", "\n").replace("\r", "\n")


def _shortened(line: str) -> str:
    half = _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} {line[-half:]}"


class Steps:
    """The steps of a run, as its terminal shows them."""

    def __init__(self) -> None:
        self.number, self.total, self.text, self.failed = 0, 0, "", False
        #: The part of the step that is being done, or was when it failed.
        self.part = ""
        #: The texts of all steps so far, the last one last.
        self.texts: list[str] = []

    def take(self, line: str) -> str | None:
        """Read one line of the terminal; returns the progress message when a new step has begun, else None."""
        shown = _shortened(plain(_CUT.sub("", line)))
        match = _STEP.search(shown)
        if not match:
            self._part(shown)
            return None
        number, total, rest = int(match.group(1)), int(match.group(2)), match.group(3).strip()
        outcome = _OUTCOME.match(rest)
        text = _title(rest)
        self.part = ""
        began = (number, text) != (self.number, self.text)
        self.number, self.total, self.text = number, total, text
        self.failed = outcome is not None and outcome.group(2).lower() == "failed"
        self.texts += [text] if began else []
        return str(self) if began else None

    def _part(self, shown: str) -> None:
        """A line without a number: a part of the step, or how that ended."""
        match, ended = _PART.match(shown), _ENDED.match(shown)
        if match:
            outcome = _OUTCOME.match(match.group(1))
            busy = outcome is None or outcome.group(2).lower() in ("busy", "failed")
            self.part = _title(match.group(1)) if busy else ""
        elif ended and ended.group(1).lower() != "failed":
            self.part = ""

    def __str__(self) -> str:
        return f"installimage {self.number}/{self.total}: {self.text}"


def _title(text: str) -> str:
    """What a step or a part of one is called, without its outcome and what was said meanwhile."""
    outcome = _OUTCOME.match(text)
    return (outcome.group(1) if outcome else _BUSY.split(text)[0]).strip(" .…")


class Failure(NamedTuple):
    """Why it failed. ``permanent``: trying again as it is cannot help."""

    reason: str
    permanent: bool = False


def judge(code: int | None, terminal: str, debug: str, report: Report, steps: Steps) -> Failure | None:
    """A :class:`Failure`, or None when installimage ended well and the new system was made ours.

    ``code``: exit status, None when it was killed; ``report``: what the post-install script said.
    """
    if report.failure is not None:
        number, _space, text = report.failure.partition(" ")
        if text == "the post-install script":
            reason = f"post_install_script failed in the new system with exit code {number}"
            return Failure(reason + (f": {report.last[:300]}" if report.last else ""), permanent=True)
        return Failure(text, permanent=True)
    if code is None:
        return Failure("it was killed at the time limit" + (f" in step {steps}" if steps.number else ""))
    complete = COMPLETE in terminal or COMPLETE in debug
    if code == 0 and complete and report.done:
        return None
    if code == 0 and complete:
        return Failure(
            "installimage says that it is complete, but its post-install script did not "
            f"{'come to its end' if report.begun else 'run'}"
        )
    said = Said(debug, terminal, steps)
    return _refused(code, said) if said.cancelled and not steps.number else _failed(code, said, steps)


class Said:
    """What debug.txt and terminal say of this run: never what they say of the machine, or of steps that went well."""

    def __init__(self, debug: str, terminal: str, steps: Steps) -> None:
        lines = [_STAMP.sub("", _shortened(line), count=1).rstrip() for line in plain(debug).splitlines()]
        lines = [line for line in lines if line != "=> FAILED"]
        begin = [place for place, line in enumerate(lines) if line == _BEGIN]
        own = [place for place, line in enumerate(lines) if _OWN.match(_bare(line))]
        # Some steps have no line of their own there; the one before them has.
        titles = ["# " + text for text in reversed(steps.texts)]
        step = next((lines.index(title) for title in titles if title in lines), None)
        if begin:
            lines_of_run = lines[begin[-1] + 1 :]
        else:
            first = min(own[:1] + ([] if step is None else [step]), default=len(lines))
            lines_of_run = lines[first:]
        #: What installimage itself calls an error.
        self.errors = [_bare(line).strip() for line in lines_of_run if _OWN.match(_bare(line))]
        #: All from the failing step on.
        self.step = "" if step is None else "\n".join(map(_bare, lines[step + 1 :]))
        shown = [_shortened(line) for line in plain(terminal).splitlines()]
        advice = next((place for place, line in enumerate(shown) if _ADVICE in line), len(shown))
        shown = shown[:advice]
        steps_shown = [place for place, line in enumerate(shown) if _STEP.search(line)]
        errors_shown = [place for place, line in enumerate(shown) if _OWN.match(line)]
        after = (steps_shown[-1:] or errors_shown[:1] or [len(shown)])[0]
        said = [_BUSY.split(line, 1)[-1] if _PART.match(line) else line for line in shown[after + bool(steps_shown) :]]
        self.shown = "\n".join(line for line in said if not _ENDED.match(line))
        self.cancelled = any(re.match(r"\s*Cancelled\b", line) for line in shown)


def _bare(line: str) -> str:
    return _QUOTED.sub("", line, count=1)


def _refused(code: int, said: Said) -> Failure:
    """installimage refused its configuration before its first step."""
    for sentence in said.errors:
        for pattern, meaning, permanent in _REFUSALS:
            if re.search(pattern, sentence):
                text = f"{meaning} (installimage ended with exit code {code}: {sentence[:300]})"
                return Failure(text, permanent)
    what = f"installimage refused its configuration with exit code {code}"
    return Failure(what + (f": {said.errors[0][:300]}" if said.errors else ""), permanent=bool(said.errors))


def _failed(code: int, said: Said, steps: Steps) -> Failure:
    """It failed on its way: what failed may have had a reason that does not come again."""
    title = f"{steps.text}: {steps.part}" if steps.part else steps.text
    where = f" in step {steps.number}/{steps.total} ({title})" if steps.number else ""
    for text in (said.step, "\n".join(said.errors), said.shown):
        for pattern, meaning in _FAILURES:
            if re.search(pattern, text, re.IGNORECASE):
                return Failure(f"{meaning} (installimage ended with exit code {code}{where})")
    line = telling_line(said.step) or (said.errors or [""])[-1][:300] or telling_line(said.shown)
    return Failure(f"installimage failed{where} with exit code {code}" + (f": {line}" if line else ""))


def telling_line(text: str) -> str:
    """The line that says best what is wrong, cut to a readable length; empty when there is none."""
    lines = [line.strip(" \t#:>") for line in plain(text).splitlines()]
    for pattern in (_ERROR, _TELLING):
        telling = [line for line in lines if line and pattern.search(line) and not _NOISE.search(line)]
        if telling:
            return telling[-1][:300]
    return ""


def tail(text: str, count: int = TAIL) -> list[str]:
    """The last lines that are not empty."""
    lines = [line.rstrip() for line in plain(text).splitlines()]
    return [line for line in lines if line.strip()][-count:]


#: What is kept of its output for the verdict.
MOST = 1024 * 1024
#: How long children that outlive installimage may hold its output open.
LINGER = 2.0


class Terminal:
    """What installimage prints, cut into lines; reports every new step. ``secret``: masked in all of them."""

    def __init__(self, say: Callable[[str], None], progress: Callable[[str], None], secret: str = "") -> None:
        self._say, self._progress, self._secret = say, progress, secret
        self._rest, self._shown = b"", ""
        self._kept: list[str] = []
        self._size = 0
        self.steps = Steps()

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line(line)
        # A step shows before its line ends: "3/15 : text ... busy".
        if len(self._rest) > 65536:
            self._line(self._rest)
            self._rest = b""
        elif self._rest:
            self._step(self._rest.decode("utf-8", "replace"))

    def end(self) -> None:
        """Nothing comes any more."""
        self._line(self._rest)
        self._rest = b""

    @property
    def text(self) -> str:
        """What was printed, its beginning cut off when it was too much."""
        return "\n".join(self._kept)

    def _line(self, raw: bytes) -> None:
        line = plain(raw.decode("utf-8", "replace")).rstrip()
        if self._secret:
            line = line.replace(self._secret, MASK)
        self._step(line)
        if line.strip() and line != self._shown and post_install.TAG not in line:
            self._shown = line
            self._say(line)
        self._kept.append(line)
        self._size += len(line) + 1
        while self._size > MOST and len(self._kept) > 1:
            self._size -= len(self._kept.pop(0)) + 1

    def _step(self, line: str) -> None:
        message = self.steps.take(line)
        if message:
            self._progress(message)


class Installer:
    """One run of installimage."""

    def __init__(self, command: str, config: str, hook: str, terminal: Terminal) -> None:
        self._argv = [command, "-a", "-c", config, "-x", hook]
        self.terminal = terminal
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> int | None:
        """Run until it ends or ``deadline``; returns the exit code, None when it was killed."""
        environment = dict(os.environ, TERM="xterm", LC_ALL="C")
        # It reads the answer to its countdown from a pipe, and gets no further answer.
        try:
            self._process = process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.terminal.take(f"{self._argv[0]}: {error}\n".encode())
            self.terminal.end()
            return ABSENT
        if process.stdin is None:
            raise AssertionError("it is a pipe")
        try:
            process.stdin.write(b"x\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended without reading
        ended = self._follow(process, deadline, clock)
        self.terminal.end()
        if not ended:
            self.kill()
            return None
        code = process.returncode
        # A child may have been left behind that still holds the target.
        kill_group(process.pid)
        return code if code >= 0 else 128 - code

    def _follow(self, process: subprocess.Popen[bytes], deadline: float, clock: Callable[[], float]) -> bool:
        if process.stdout is None:
            raise AssertionError("it is a pipe")
        output = process.stdout.fileno()
        last: float | None = None
        while clock() < deadline and (last is None or clock() < last):
            if select.select([output], [], [], 0.5)[0]:
                data = os.read(output, 65536)
                if not data:
                    try:
                        process.wait(max(0.0, deadline - clock()))
                        return True
                    except subprocess.TimeoutExpired:
                        return False
                self.terminal.take(data)
            if last is None and process.poll() is not None:
                last = clock() + LINGER
        return process.poll() is not None

    def kill(self) -> None:
        """End it with everything in its session's process group."""
        if self._process is not None:
            kill_group(self._process.pid)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.kill(self._process.pid, signal.SIGKILL)
