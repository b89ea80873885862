# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One run of node_image_debian: look what is there, have mmdebstrap make it, keep what it was made of."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from ..._common.text import json_value
from ..disks.tools import Tools
from ..installimage.fetch import digest_of
from . import debian
from .errors import NotPacked

_PROGRAM = "mmdebstrap"


def run(options: dict[str, Any], tools: Tools, check_mode: bool = False) -> dict[str, Any]:
    """Make the archive; returns the results of the module. Raises :class:`NotPacked`."""
    found = debian.findings(options)
    if found:
        raise NotPacked("nothing was made:\n" + "\n".join("- %s" % one for one in found))
    path, digest = options["path"], debian.digest(options)
    about = {"path": path, "packages": debian.packages(options)}
    known = None if options["force"] else _known(path, digest)
    if known:
        return dict(about, changed=False, **known)
    if not tools.has(_PROGRAM):
        raise NotPacked("the program %s is missing on the host that this runs on; install the package" % _PROGRAM)
    folder = _nearest(os.path.dirname(os.path.abspath(path)))
    if not os.access(folder, os.W_OK):
        raise NotPacked("path %s: the folder %s cannot be written" % (path, folder))
    if check_mode:
        return dict(about, changed=True)
    began = time.monotonic()
    made = _made(options, tools)
    _keep(path, dict(made, digest=digest))
    return dict(about, changed=True, seconds=round(time.monotonic() - began, 1), **made)


def _made(options: dict[str, Any], tools: Tools) -> dict[str, Any]:
    folder, name = os.path.split(os.path.abspath(options["path"]))
    partial = os.path.join(folder, ".partial-%s" % name)  # with the suffix, which chooses the compression
    try:
        os.makedirs(folder, exist_ok=True)
        code, _out, err = tools(_PROGRAM, *debian.command(options, partial), limit=options["timeout"])
        if code:
            raise NotPacked("mmdebstrap made no root file system of %s: %s" % (options["suite"], _last(err)))
        made = {"sha256": _sha256(partial), "size": os.path.getsize(partial)}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_record(options["path"]))  # an old record must not describe a new file
        os.rename(partial, options["path"])
        return made
    except OSError as error:
        raise NotPacked("%s: %s" % (error.filename or options["path"], error.strerror or error)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def _nearest(folder: str) -> str:
    """The folder, or the one above it that exists: it is made in there."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _last(text: str) -> str:
    """The end of what a program said, errors first; safe to print."""
    lines = ["".join(one for one in line if one.isprintable()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E: ", "Err:"))]
    return " / ".join((errors or lines)[-6:])[:1500] or "it said nothing"


def _record(path: str) -> str:
    return path + ".json"


def _known(path: str, digest: str) -> dict[str, Any] | None:
    """What the record says of a file that was made of the same, and is still that file to the last bit."""
    try:
        with open(_record(path), encoding="utf-8") as file:
            record = json_value(file.read())
        about = {"sha256": record["sha256"], "size": os.path.getsize(path)}
        if record["digest"] == digest and _sha256(path) == about["sha256"]:
            return about
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _keep(path: str, record: dict[str, Any]) -> None:
    partial = _record(path) + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.write("\n")
    os.rename(partial, _record(path))


def _sha256(path: str) -> str:
    return digest_of(path).partition(":")[2]
