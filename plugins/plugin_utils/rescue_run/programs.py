# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs for a rescue, each one executable file of the code that checks on the controller, and how one is called."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

from ..ssh.remote import Patience, Remote, Unreachable

#: module_utils, under one name of their own.
TOP = "kubenode_rescue"
_MAIN = f"import sys\nfrom {TOP}.%s import main\nsys.exit(main(%s))\n"
#: The same bytes every time, as they are part of the identity of a job.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@functools.cache
def installimage() -> bytes:
    """What runs in the place of an image command: :mod:`_rescue.installimage.program`."""
    packages = ("_common", "_rescue/disks", "_rescue/installimage")
    return _packed("_rescue.installimage.program", "sys.argv[1:]", packages)


@functools.cache
def steps() -> bytes:
    """What answers the controller's requests: :mod:`_rescue.steps`."""
    return _packed("_rescue.steps", "", ("_common", "_rescue", "_rescue/disks"), without=("options.py",))


@functools.cache
def runner_text() -> str:
    """The runner, a shell script."""
    return Path(protocol.__file__).with_name("runner.sh").read_text(encoding="utf-8")


def _packed(module: str, arguments: str, packages: tuple[str, ...], without: tuple[str, ...] = ()) -> bytes:
    """A zip archive that Python runs, with a line in front that makes it a program."""
    folder = Path(protocol.__file__).parents[1]
    packed = io.BytesIO()
    packed.write(b"#!/usr/bin/python3\n")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN % (module, arguments))
        _add(archive, f"{TOP}/__init__.py", "")
        if "_rescue" not in packages:
            _add(archive, f"{TOP}/_rescue/__init__.py", "")
        for package in packages:
            names = {path.name: path for path in sorted((folder / package).glob("*.py")) if path.name not in without}
            if "__init__.py" not in names:
                _add(archive, f"{TOP}/{package}/__init__.py", "")
            for name, path in names.items():
                _add(archive, f"{TOP}/{package}/{name}", path.read_text(encoding="utf-8"))
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, text)


# --- a call of ``module_utils/_rescue/steps.py`` in a rescue

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


def call_step(remote: Remote, step: str, again: bool = False, **request: Any) -> dict[str, Any]:
    """The answer to a request; ``again``: it may be sent once more when SSH is lost. Raises :class:`StepFailed`."""
    program = steps()
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
        answer = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        shown = one_line(" ".join(lines[-3:]), 1000) or "nothing"
        full = ". Its memory is full: reset the machine, so that it boots a new rescue" if "space left" in text else ""
        raise StepFailed(f"the rescue did not do its part (exit code {code}): {shown}{full}")
    if answer.get("failed"):
        raise StepFailed(one_line(str(answer.get("msg") or "no reason given"), 2000), answer)
    return answer
