# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call of ``module_utils/_rescue/steps.py`` in a rescue: the program and one request go there, one answer returns."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

from ..ssh.remote import Patience, Remote, Unreachable
from . import programs

#: FILE SIZE: the program is the first bytes of stdin, the request the others; both hold secrets.
_SCRIPT = r"""
exec 2>&1
umask 077
mkdir -p "${1%/*}" && head -c "$2" >"$1.$$" && mv -f "$1.$$" "$1" && python3 -- "$1"
"""
_FILE = f"{protocol.BASE}/{protocol.STATE_DIR}/steps.pyz"


class StepFailed(Exception):
    """The step was not done; the text says why and what to do. ``answer``: what the program answered."""

    def __init__(self, message: str, answer: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer or {}


def call(remote: Remote, step: str, again: bool = False, **request: Any) -> dict[str, Any]:
    """The answer to a request; ``again``: it may be sent once more when SSH is lost. Raises :class:`StepFailed`."""
    program = programs.steps()
    data = program + json.dumps({"step": step, **request}).encode("utf-8")
    patience = Patience(remote) if again else Patience(remote, 0)
    while True:
        try:
            code, text = remote.run(_SCRIPT, _FILE, str(len(program)), data=data)
            break
        except Unreachable as exc:
            try:
                patience.bear(exc)
            except Unreachable:
                raise StepFailed(f"SSH was lost ({exc}); run again") from exc
    lines = text.strip().splitlines()
    try:
        answer = json_value(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        shown = one_line(" ".join(lines[-3:]), 1000) or "nothing"
        full = ". Its memory is full: reset the machine, so that it boots a new rescue" if "space left" in text else ""
        raise StepFailed(f"the rescue did not do its part (exit code {code}): {shown}{full}")
    if answer.get("failed"):
        raise StepFailed(one_line(str(answer.get("msg") or "no reason given"), 2000), answer)
    return answer
