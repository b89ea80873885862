# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A user's program that runs in a rescue before anything is written, and may stop the machine: both halves' rules.

It runs below the runner of image commands, in a folder of its own: detached, under its time limit, started once a run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from .._common.names import InvalidName
from . import job as jobs
from . import protocol

BASE = protocol.BASE + "/" + protocol.STATE_DIR + "/pre-provision"
#: Where the controller puts the program; a start links it to its place.
UPLOADS = BASE + "/upload"
#: Below the base: which run of Ansible started the program.
STARTED_BY = protocol.STATE_DIR + "/started-by"
RUNNER = f"env KUBENODE_BASE={BASE} sh {BASE}/{protocol.RUNNER}"

#: The rule of CAPH, whose controller takes such a program as --pre-provision-command.
_NAME = re.compile(r"[a-z][a-z0-9_.-]+[a-z0-9]\Z")
#: What image commands find beside it.
_RESERVED = (protocol.COMMAND, protocol.BOOTSTRAP, protocol.OUTPUT)
#: All of its environment, besides the facts of the machine and the runner's KUBENODE_LIMIT and KUBENODE_RUN.
_ENVIRONMENT = {
    "HOME": protocol.BASE,
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
_LAUNCHER = """#!/bin/sh
cd {folder} || exit 126
exec env -i KUBENODE_LIMIT="$KUBENODE_LIMIT" KUBENODE_RUN="$KUBENODE_RUN" {words}
"""


def check_name(name: str) -> str:
    """Return ``name`` when a program of this name can be put into a rescue, else raise :class:`InvalidName`."""
    if not _NAME.match(name):
        raise InvalidName(
            "its name must have three characters at least, begin with a lower-case letter, end with one or a digit, "
            "and hold only lower-case letters, digits, '_', '.' and '-'; rename the file"
        )
    if name in _RESERVED:
        raise InvalidName("that name is taken in the rescue, by what belongs to image commands; rename the file")
    return name


def make(
    name: str,
    sha256: str,
    machine: str,
    facts: Mapping[str, str | None],
    limit: int,
    runner: str,
    started_by: str,
    base: str = protocol.BASE,
) -> jobs.Job:
    """The job of a program; ``facts``: what it finds in its environment."""
    environment = dict(_ENVIRONMENT, **{key: value for key, value in facts.items() if value})
    words = [f"{key}={value}" for key, value in sorted(environment.items())] + [f"{base}/{name}"]
    launcher = _LAUNCHER.format(folder=shlex.quote(base), words=" ".join(shlex.quote(word) for word in words))
    return jobs.Job(
        command=launcher.encode("utf-8"),
        bootstrap=b"",
        arguments=[sha256, machine, name],
        token="",
        limit=limit,
        rule=protocol.MARKER_ONLY,
        runner=runner,
        files={STARTED_BY: started_by.encode("utf-8")},
    )


def passed(status: protocol.Status) -> bool:
    """Whether the program lets the machine go on: it has ended with 0, and nothing of it is left."""
    return status.state == protocol.EXITED and status.exit_code == 0 and not status.left


def is_word(status: protocol.Status) -> bool:
    """Whether the end of a program that did not pass is its word on the machine, and no accident around it."""
    return status.state == protocol.TIMEOUT or (status.state == protocol.EXITED and status.exit_code != 0)


def explain(status: protocol.Status, interpreter: str) -> str:
    """Why the machine does not go on; ``interpreter``: what the first line of a script names."""
    if status.state != protocol.EXITED:
        return protocol.explain_failure(status, protocol.MARKER_ONLY)
    if status.exit_code == 0:
        return (
            f"it ended with exit code 0, but {status.left} of its processes could not be ended (stuck in the kernel); "
            "reset the machine and run again."
        )
    code = status.exit_code or 0
    signal = f" (signal {code - 128})" if code > 128 else ""
    return f"it ended with exit code {code}{signal}.{protocol.explain_code(code, interpreter)}"


def start_or_attach(job: jobs.Job, run: Callable[..., Any], base: str = protocol.BASE) -> dict[str, bool]:
    """Returns what became of it: ``written`` (a program of ours runs in this rescue, or has written) or ``attached``.

    Within one run of Ansible the program is started once: a second call finds the first one's, also when it has ended.
    Another run attaches to one that is running, and starts one again that has ended.
    """
    own = os.path.join(base, os.path.relpath(BASE, protocol.BASE))
    with jobs.alone(base):
        there = jobs.progress(run, base)
        if there["running"] or there["succeeded"]:
            return {"written": True, "attached": False}

        def decide(status: protocol.Status | None) -> str:
            if status is None or status.state == protocol.NONE:
                return protocol.START
            if status.state == protocol.RUNNING and status.job != job.digest:
                raise jobs.JobError(
                    f"another pre-provision command is running in this rescue, since {status.seconds:.0f} s; it ends "
                    f"within {status.limit} s of its start. Run again then"
                )
            ours = status.job == job.digest and _started_by(own).encode("utf-8") == job.files[STARTED_BY]
            return protocol.ATTACH if ours or status.state == protocol.RUNNING else protocol.START

        def put(_run: Callable[..., Any], job: jobs.Job) -> None:
            name = job.arguments[2]
            upload = os.path.join(own, os.path.basename(UPLOADS), name)
            os.chmod(upload, 0o700)
            # a link, since a start whose answer got lost may be asked for again
            with contextlib.suppress(FileNotFoundError):
                os.unlink(upload + ".new")
            os.link(upload, upload + ".new")
            os.replace(upload + ".new", os.path.join(base, name))

        attached = jobs.start_or_attach(job, run, own, prepare=put, decide=decide)[1]
    return {"written": False, "attached": attached}


def _started_by(base: str) -> str:
    try:
        with open(os.path.join(base, STARTED_BY), encoding="utf-8") as file:
            return file.read(256)
    except (OSError, UnicodeDecodeError):
        return ""
