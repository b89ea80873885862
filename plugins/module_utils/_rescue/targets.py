# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The disks that a command is about to write: emptied where they may be, and what was on them before."""

from __future__ import annotations

from .._common import origin
from . import job, protocol
from .disks import facts, gather, names, tools, wiping

#: What allows a command to write: the machine was made for this installation and never held another system; somebody
#: else has looked at the disks and emptied them.
FRESH, CHECKED = "fresh", "checked"
CONSENTS = (FRESH, CHECKED)
#: Prints what is on the disks that its arguments name.
LOOK = origin.SCRIPT_OF_DISKS + 'seen_disks "$@"\n'


def prepare(run, wanted, base=protocol.BASE):
    """Make the disks of a job ready for it; raises JobError."""
    if wanted.consent == FRESH:
        _empty(run, wanted.devices)
    code, out, dummy = run(["sh", "-c", LOOK, "sh"] + wanted.devices)
    if code == 0:
        job.keep(base, protocol.BEFORE, out)


def _empty(run, devices):
    able = tools.Tools(_in_english(run))
    try:
        raw = gather.read(able, ("disk",), health=False)
        wiping.wipe(able, [_name(device, facts.identities(raw)) for device in devices])
    except (gather.GatherError, names.Unresolved, wiping.WipeError) as exc:
        raise job.JobError("the disks could not be emptied before the start: %s" % exc) from exc


def _in_english(run):
    """The tools' output is read; the command itself keeps the language of the rescue."""

    def speak(argv, environ_update=None, **more):
        return run(argv, environ_update=dict({"LANG": "C", "LC_ALL": "C"}, **(environ_update or {})), **more)

    return speak


def _name(device, disks):
    """The kernel's name of a disk; the kernel's own names are taken as they are."""
    if any(disk["name"] == device for disk in disks):
        return device
    return names.one(device, disks)["name"]
