# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The protocol of the image command and its runner: identity of a job, answers of the runner, success (pure)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .._common.text import whole_number

MARKER = "IMAGE_URL_DONE"
BASE = "/root"
#: Below BASE. The first three are CAPH's names.
COMMAND = "image-url-command"
BOOTSTRAP = "bootstrap.data"
OUTPUT = "output.json"
STATE_DIR = ".kubenode"
RUNNER = STATE_DIR + "/runner.sh"
#: The runner's own help: records both streams of a command in their order.
RECORDER = STATE_DIR + "/recorder.py"
#: Which installation the command that was started last belongs to, and what was on its disks before.
INSTALLATION = STATE_DIR + "/installation"
BEFORE = STATE_DIR + "/disks-before"
#: What allowed the command to write, and the whole intent, for another controller.
CONSENT = STATE_DIR + "/consent"
INTENT = STATE_DIR + "/intent.json"
#: Commands that were too large to come with the call that starts them, each under its SHA-256.
COMMANDS = STATE_DIR + "/commands"

#: Bytes of OUTPUT that the runner sends.
LARGEST_OUTPUT = 65536

NONE, RUNNING, EXITED, TIMEOUT, KILLED, LOST = "none", "running", "exited", "timeout", "killed", "lost"
_STATES = (NONE, RUNNING, EXITED, TIMEOUT, KILLED, LOST)

#: Rules of success.
MARKER_AND_EXIT_CODE = "marker_and_exit_code"
MARKER_ONLY = "marker"

_JOB = re.compile(r"[0-9a-f]{64}\Z")
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,20})?\Z")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class ProtocolError(ValueError):
    """The answer is not one of the runner; the text says what is wrong with it."""


def job_digest(command: bytes, bootstrap: bytes, arguments: Sequence[str]) -> str:
    """What makes two jobs the same: the program, the bootstrap data and the arguments."""
    return job_digest_in_pieces([command], len(command), bootstrap, arguments)


def job_digest_in_pieces(pieces: Iterable[bytes], size: int, bootstrap: bytes, arguments: Sequence[str]) -> str:
    """The same of a program that comes in pieces, ``size`` bytes in all."""
    digest = hashlib.sha256(b"%d:" % size)
    for piece in pieces:
        digest.update(piece)
    for part in [bootstrap] + [argument.encode("utf-8", "surrogateescape") for argument in arguments]:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()


class Status:
    """One answer of the runner."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.job = fields.get("job", "")
        self.run = fields.get("id", "")
        self.boot_id = fields["boot"]
        self.state = fields["state"]
        self.exit_code = _number(fields, "exit") if fields.get("exit") else None
        self.seconds = _seconds(fields.get("seconds") or "0")
        self.limit = _number(fields, "limit")
        self.marker = fields.get("marker") == "1"
        self.left = _number(fields, "left")
        self.log_size = _number(fields, "interleaved")
        self.offset = _number(fields, "offset")
        self.log = _decode(fields.get("log", ""))
        output = _decode(fields.get("output", ""))
        self.message = message_of(output)
        self.bytes = bytes_of(output)
        # while the command runs, the file may be half written
        self.output_error = "" if self.state in (NONE, RUNNING) else output_error(output, fields.get("output_size"))
        if self.state not in _STATES:
            raise ProtocolError(f"unknown state {self.state!r}")
        if self.job and not _JOB.match(self.job):
            raise ProtocolError("the job is not a SHA-256 digest")
        if not _BOOT_ID.match(self.boot_id):
            raise ProtocolError("the boot id is not one")

    @property
    def next_offset(self) -> int:
        """Where the next poll goes on."""
        return self.offset + len(self.log)

    def succeeded(self, rule: str) -> bool:
        """Whether the command has ended and ended well by ``rule``."""
        if self.state != EXITED or not self.marker:
            return False
        return rule == MARKER_ONLY or self.exit_code == 0


def parse_status(text: str) -> Status:
    """Read the answer of ``runner.sh status``; anything else raises :class:`ProtocolError`."""
    _before, start, answer = text.partition("kubenode-runner=1\n")
    if not start:
        raise ProtocolError("no answer of the runner")
    fields = {}
    for line in answer.splitlines():
        key, equals, value = line.partition("=")
        if equals and key not in fields:
            fields[key] = value
    if fields.get("end") != "1":
        raise ProtocolError("the answer of the runner is cut short")
    try:
        return Status(fields)
    except (KeyError, ValueError) as exc:
        raise ProtocolError(f"the answer of the runner is malformed: {exc}") from exc


def _content(output: bytes) -> tuple[dict[str, Any], str]:
    """What an ``output.json`` says, and what is wrong with it; neither when it is missing."""
    try:
        content = json.loads(output.decode("utf-8") or "{}")
    except UnicodeDecodeError:
        return {}, "is no UTF-8 text"
    except RecursionError:
        return {}, "is nested too deeply"
    except ValueError:
        return {}, "is no JSON"
    return (content, "") if isinstance(content, dict) else ({}, "is JSON, but no object with a message")


def message_of(output: bytes) -> str:
    """The ``message`` of an ``output.json``; empty when there is none or the file is being written."""
    message = _content(output)[0].get("message")
    return message if isinstance(message, str) else ""


def bytes_of(output: bytes) -> tuple[int, int | None] | None:
    """The ``bytes`` of an ``output.json`` as (done, total or None); None when there are none that can be."""
    count = _content(output)[0].get("bytes")
    if not isinstance(count, dict):
        return None
    done, total = _count(count.get("done")), _count(count.get("total"))
    return None if done is None or (total is None and count.get("total") is not None) else (done, total)


def _count(number: object) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 63 else None


def output_error(output: bytes, size: str | None = None) -> str:
    """What is wrong with an ``output.json`` that its command has finished; empty when nothing is, or it is missing.

    ``output`` is what the runner sends of it, ``size`` how many bytes it has, as text.
    """
    whole = whole_number(size)
    if whole is None:
        whole = len(output)
    if whole > LARGEST_OUTPUT:
        return f"its {OUTPUT} has {whole} bytes, of which at most {LARGEST_OUTPUT} are read"
    content, wrong = _content(output)
    if wrong:
        return f"its {OUTPUT} {wrong}"
    return "" if isinstance(content.get("message", ""), str) else f"the message in its {OUTPUT} is no text"


def parse_fetch(text: str) -> bytes:
    """Undo ``runner.sh fetch``: the gzip bytes; raises :class:`ProtocolError`."""
    body, end, _rest = text.partition("end=1")
    if not end:
        raise ProtocolError("the log is cut short")
    return _decode("".join(body.split()))


ATTACH, START, BUSY = "attach", "start", "busy"


def decide(status: Status | None, job: str, rule: str) -> str:
    """What to do about ``job`` when the rescue is in ``status`` (None: it knows no runner yet)."""
    if status is None or status.state == NONE:
        return START
    if status.state == RUNNING:
        return ATTACH if status.job == job else BUSY
    if status.job == job and status.succeeded(rule):
        return ATTACH
    return START


def explain_failure(status: Status, rule: str, interpreter: str = "") -> str:
    """Why a command that has ended did not succeed, and what to do about it.

    ``interpreter``: what the command's first line names, if it is a script.
    """
    left = ""
    if status.left:
        left = f" {status.left} of its processes could not be ended (stuck in the kernel); reset the machine."
    if status.state == TIMEOUT:
        return (
            f"it did not end within {status.limit} s and was killed with all its processes.{left} Set timeout higher "
            "if it needs longer."
        )
    if status.state == KILLED:
        return f"it was ended from outside after {status.seconds:.0f} s.{left}"
    if status.state == LOST:
        return "its runner was killed in the rescue; run again, which ends what is left of the command and restarts it."
    if status.state != EXITED:
        return "the rescue knows of no such command; run again."
    code = f"exit code {status.exit_code}"
    if status.exit_code is not None and status.exit_code > 128:
        code += f" (signal {status.exit_code - 128})"
    if status.marker and rule != MARKER_ONLY:
        return (
            f"it printed {MARKER} but ended with {code}; a command that succeeds ends with 0 "
            "(success: marker ignores it)."
        )
    text = f"it ended with {code} and the last line of its stdout does not contain {MARKER}."
    return text + explain_code(status.exit_code, interpreter)


def explain_code(code: int | None, interpreter: str) -> str:
    """What the exit codes of a program that was not found or not run mean."""
    named = f" ({interpreter})" if interpreter else ""
    if code == 127:
        return (
            " 127 means that a program was not found in the rescue: the interpreter in the command's first line"
            f"{named}, or a program that the command calls; see the end of its stderr."
        )
    if code == 126:
        return (
            " 126 means that a program was found and could not be run in the rescue: the command or its interpreter"
            f"{named} is for another architecture, is not executable or lies on a file system mounted noexec; see the "
            "end of its stderr."
        )
    return ""


def _number(fields: dict[str, str], key: str) -> int:
    found = whole_number(fields.get(key) or "0")
    if found is None:
        raise ProtocolError(f"{key} is no number")
    return found


def _seconds(text: str) -> float:
    if not _SECONDS.match(text):
        raise ProtocolError("seconds is no number")
    return float(text)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError as exc:
        raise ProtocolError("not base64") from exc
