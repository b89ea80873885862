# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs for a rescue, each one executable file of the modules of module_utils it needs, and how one is called."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._common.zip_program import main_of, zip_program
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

from ..ssh.remote import Patience, Remote, Unreachable

#: module_utils, under one name of their own.
TOP = "kubenode_rescue"
#: The shipped image commands, and the modules of _rescue.imagecommand whose ``main`` they are.
IMAGE_COMMANDS = {
    "image-url-command-oci": "oci",
    "image-url-command-raw-disk": "raw_disk",
    "image-url-command-rootfs-tar": "rootfs_tar",
}
#: Shell lines: a rescue need not know "python", and a missing python3 is said clearly.
_FINDS_PYTHON = """\
#!/bin/sh
command -v python3 >/dev/null 2>&1 && exec python3 "$0" "$@"
echo "{name}: python3 is missing in this rescue; install python3" >&2
exit 127
"""
_FOLDER = Path(protocol.__file__).parents[1]
_RELATIVE_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)


@functools.cache
def image_command(name: str) -> bytes:
    """A shipped image command; KeyError when there is none of this name."""
    files = _files(f"_rescue.imagecommand.{IMAGE_COMMANDS[name]}")
    return zip_program(_FINDS_PYTHON.format(name=name).encode("ascii"), files)


@functools.cache
def installimage() -> bytes:
    """What runs in the place of an image command: :mod:`_rescue.installimage.program`.

    Its bytes are part of the identity of a job, so they are the same from every controller.
    """
    return zip_program(b"#!/usr/bin/python3\n", _files("_rescue.installimage.program"))


@functools.cache
def steps() -> bytes:
    """What answers the controller's requests: :mod:`_rescue.steps`. It goes with every request, so it is compressed."""
    files = _files("_rescue.steps", "", data=("_rescue/recorder.py",))
    return zip_program(b"#!/usr/bin/python3\n", files, compressed=True)


@functools.cache
def runner_text() -> str:
    """The runner, a shell script."""
    return (_FOLDER / "_rescue" / "runner.sh").read_text(encoding="utf-8")


def _files(module: str, arguments: str = "sys.argv[1:]", data: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The files of a program that calls ``main`` of a module: the module, and what it imports of module_utils."""
    names = [f"{module.replace('.', '/')}.py", *data]
    found: dict[str, bytes] = {}
    while names:
        name = names.pop()
        if name not in found:
            found[name] = (_FOLDER / name).read_bytes()
            names += _imported(name, found[name].decode("utf-8"))
    packages = {parent.as_posix() for name in found for parent in Path(name).parents[:-1]}
    for name in [f"{package}/__init__.py" for package in packages]:
        found[name] = (_FOLDER / name).read_bytes() if (_FOLDER / name).exists() else b""
    members = {f"{TOP}/{name}": content for name, content in found.items()}
    return {"__main__.py": main_of(f"{TOP}.{module}", arguments), f"{TOP}/__init__.py": b"", **members}


def _imported(name: str, text: str) -> Iterator[str]:
    """The files of the modules that a file imports, by relative imports alone."""
    for dots, package, words in _RELATIVE_IMPORT.findall(text):
        base = Path(name).parents[len(dots) - 1] / package.replace(".", "/")
        for word in re.findall(r"(\w+)(?: as \w+)?", words):
            inner, outer = base / f"{word}.py", base.with_suffix(".py")
            yield (inner if (_FOLDER / inner).exists() else outer).as_posix()


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
