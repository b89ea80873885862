# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's half of the SSH phase, as one program: a request as JSON on stdin, its answer as one line on stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .._common.text import json_value
from . import job as jobs
from . import pre_provision, protocol, targets

#: Start the job ``payload``, or attach to it; the first one looks at the disks of the job before.
IMAGE_COMMAND, INSTALLIMAGE, PRE_PROVISION = "image command", "installimage", "pre-provision command"
#: The disks: their facts; how fast those are read that ``targets`` name; empty those that ``targets`` name.
LOOK, MEASURE, WIPE = "look at disks", "measure disks", "empty disks"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What became of a request: its results, or ``failed`` with ``msg``."""
    try:
        return _STEPS[request["step"]](request)
    except (protocol.ProtocolError, OSError) as exc:
        return {"failed": True, "msg": str(exc)}
    except jobs.JobError as exc:
        return {"failed": True, "msg": str(exc), "begun": exc.begun}


def _start(
    request: dict[str, Any],
    prepare: Callable[[jobs.Run, jobs.Job], bool] | None = None,
    decide: Callable[[jobs.Job], Callable[[protocol.Status | None], str]] | None = None,
) -> dict[str, Any]:
    job = jobs.Job.unpack(request["payload"])
    status, attached = jobs.start_or_attach(job, run, prepare=prepare, decide=decide and decide(job))
    finished = attached and status.state != protocol.RUNNING
    return {"attached": attached, "finished": finished, "installation": jobs.installation_in()}


_STEPS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    IMAGE_COMMAND: lambda request: _start(request, targets.prepare, targets.decider),
    INSTALLIMAGE: _start,
    PRE_PROVISION: lambda request: pre_provision.start_or_attach(jobs.Job.unpack(request["payload"]), run),
    LOOK: lambda request: targets.look_at_disks(targets.in_english(run)),
    MEASURE: lambda request: targets.measure_disks(targets.in_english(run), request["targets"]),
    WIPE: lambda request: targets.wipe_disks(targets.in_english(run), request["targets"]),
}


def run(
    argv: Sequence[str], environ_update: dict[str, str] | None = None, limit: float | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program, as text; 127 when it is not there, 124 when it was ended.

    After ``limit`` seconds it and what it has started get TERM, and KILL 5 s later.
    """
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, **(environ_update or {})),
            start_new_session=limit is not None,
        )
    except OSError as exc:
        return 127, "", str(exc)
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        code = 124
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
    return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def main() -> int:
    """Answer one request."""
    sys.stdout.write(json.dumps(answer(json_value(sys.stdin.read()))) + "\n")
    return 0
