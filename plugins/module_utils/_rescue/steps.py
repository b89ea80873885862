# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's half of the SSH phase, as one program: a request as JSON on stdin, its answer as one line on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from .._common.text import json_value
from . import job as jobs
from . import pre_provision, protocol, targets
from .programs import run

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
    INSTALLIMAGE: lambda request: _start(request, decide=targets.decider),
    PRE_PROVISION: lambda request: pre_provision.start_or_attach(jobs.Job.unpack(request["payload"]), run),
    LOOK: lambda request: targets.look_at_disks(run),
    MEASURE: lambda request: targets.measure_disks(run, request["targets"]),
    WIPE: lambda request: targets.wipe_disks(run, request["targets"]),
}


def main() -> int:
    """Answer one request."""
    sys.stdout.write(json.dumps(answer(json_value(sys.stdin.read()))) + "\n")
    return 0
