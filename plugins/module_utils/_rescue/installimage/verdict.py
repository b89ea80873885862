# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How an installation ended, and why: from exit status, terminal and debug.txt to one clear sentence (pure)."""

from __future__ import annotations

import re

COMPLETE = "INSTALLATION COMPLETE"
TAIL = 15

#: What terminals obey: colours, cursor movements, titles.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Za-z0-9]|[@-Z\\-_])")
#: A jump to a column, and an escape sequence that has not come in full yet.
_COLUMN, _CUT = re.compile(r"\x1b\[[0-9]*G"), re.compile(r"\x1b(?:\[[0-9;?]*)?\Z")
_STEP = re.compile(r"([0-9]{1,2})/([0-9]{1,2})\s*:\s*(.*)")
_OUTCOME = re.compile(r"^(.*?)(?:[ .…]*\b(busy|done|failed|warn|ok)\b)+\s*\Z", re.IGNORECASE)
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
_TELLING = re.compile(
    r"error|fail|cannot|can not|can't|could not|invalid|missing|no such|unable|refus"
    r"|not (a|enough|found|valid|supported)|too (small|big|large|many)|no space|denied|must be|need",
    re.IGNORECASE,
)

#: (what debug.txt or the terminal says, what that means, whether another try cannot help); the first one that fits.
_KNOWN = (
    (r"ESP missing or multiple ESP",
     "the layout has no ESP, or more than one, and the rescue was booted by UEFI; have exactly one partition "
     "{mount: /boot/efi, filesystem: esp, size: 256M}", True),
    (r"can ?not determine image arch", "the file name of the image tells no architecture; name it like "
     "Debian-1200-bookworm-amd64-base.tar.zst", True),
    (r"can ?not install an? \S+ image on an? \S+", "the image is for another architecture than the machine's", True),
    (r"No space left on device|Wrote only [0-9]+ of [0-9]+ bytes",
     "a file system was full before the image was unpacked; give / and /boot more room, or use a smaller image", True),
    (r"(unexpected end of (file|input|data|archive)|unexpected eof|premature end|corrupt|data integrity|checksum "
     r"(error|mismatch)|not in (gzip|xz|bzip2) format|unsupported (format|frame)|unknown (header|frame)|truncated "
     r"input|does not look like a tar|not recoverable|decoding error|decompression error)",
     "the image cannot be unpacked: its file is broken or no tar archive of the kind its name says; make it anew, "
     "and give its digest", True),
    (r"[0-9]+ (disks|drives)|(at least|enough) \S* ?(disks|drives)", "installimage wants another number of disks for "
     "this RAID level", True),
    (r"is no valid (disk|block ?device)|not a (valid )?block device", "installimage does not take a disk for one",
     False),
    (r"(device|disk|drive) .*(is busy|in use)", "a disk is still in use; reset the machine into a fresh rescue", False),
)  # fmt: skip


def plain(text):
    """What a terminal would show, without colours and cursor movements; carriage returns end lines."""
    return _ESCAPE.sub("", _COLUMN.sub(" ", text)).replace("\r\n", "\n").replace("\r", "\n")


class Steps:
    """The steps of a run, as its terminal shows them."""

    def __init__(self):
        self.number, self.total, self.text, self.failed = 0, 0, "", False

    def take(self, line):
        """Read one line of the terminal; returns the progress message when a new step has begun, else None."""
        match = _STEP.search(plain(_CUT.sub("", line)))
        if not match:
            return None
        number, total, rest = int(match.group(1)), int(match.group(2)), match.group(3).strip()
        outcome = _OUTCOME.match(rest)
        text = (outcome.group(1) if outcome else rest).strip(" .…")
        began = (number, text) != (self.number, self.text)
        self.number, self.total, self.text = number, total, text
        self.failed = outcome is not None and outcome.group(2).lower() == "failed"
        return str(self) if began else None

    def __str__(self):
        return "installimage %d/%d: %s" % (self.number, self.total, self.text)


class Failure:
    """Why it failed. ``permanent``: trying again as it is cannot help."""

    def __init__(self, reason, permanent=False):
        self.reason, self.permanent = reason, permanent


def judge(code, terminal, debug, report, steps):
    """A :class:`Failure`, or None when installimage ended well and the new system was made ours.

    ``code``: exit status, None when it was killed; ``report``: what the post-install script said.
    """
    if report.failure is not None:
        number, _space, text = report.failure.partition(" ")
        if text == "the post-install script":
            return Failure("post_install_script failed in the new system with exit code %s" % number, permanent=True)
        return Failure(text, permanent=True)
    if code is None:
        return Failure("it was killed at the time limit%s" % (" in step %s" % steps if steps.number else ""))
    complete = COMPLETE in terminal or COMPLETE in debug
    if code == 0 and complete and report.done:
        return None
    if code == 0 and complete:
        return Failure(
            "installimage says that it is complete, but its post-install script did not %s"
            % ("come to its end" if report.begun else "run")
        )
    return _known(code, terminal, debug, steps)


def _known(code, terminal, debug, steps):
    where = " in step %d/%d (%s)" % (steps.number, steps.total, steps.text) if steps.number else ""
    for text in (debug, terminal):
        for pattern, meaning, permanent in _KNOWN:
            if re.search(pattern, text, re.IGNORECASE):
                return Failure("%s (installimage ended with exit code %s%s)" % (meaning, code, where), permanent)
    said = telling_line(debug) or telling_line(terminal)
    refused = re.search(r"^\s*Cancelled\b", terminal, re.M)
    what = "installimage refused its configuration" if refused else "installimage failed"
    # What it refused once it refuses again, but what failed may have had another reason.
    return Failure(
        "%s%s with exit code %s%s" % (what, where, code, ": %s" % said if said else ""), permanent=bool(refused)
    )


def telling_line(text):
    """The line that says best what is wrong, cut to a readable length; empty when there is none."""
    lines = [line.strip(" \t#:>") for line in plain(text).splitlines()]
    for pattern in (_ERROR, _TELLING):
        telling = [line for line in lines if line and pattern.search(line)]
        if telling:
            return telling[-1][:300]
    return ""


def tail(text, count=TAIL):
    """The last lines that are not empty."""
    lines = [line.rstrip() for line in plain(text).splitlines()]
    return [line for line in lines if line.strip()][-count:]
