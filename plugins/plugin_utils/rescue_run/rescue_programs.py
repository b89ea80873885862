# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs for a rescue, each one executable file of the modules of module_utils it needs.

`make commands` uses this without ansible-core.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib
import importlib.util
import io
import marshal
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from ansible_collections.kubenode.provision.plugins.module_utils._common.zip_program import (
    imported_files,
    main_of,
    zip_program,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

#: module_utils, under one name of their own.
TOP = "kubenode_rescue"
#: The shipped image commands, and the modules of _rescue.imagecommand whose ``main`` they are. ``examined`` of such a
#: module takes an image URL apart.
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
_RESCUE = Path(protocol.__file__).parent
_COMMANDS = protocol.__name__.rpartition(".")[0] + ".imagecommand"
_making = threading.RLock()
Make = TypeVar("Make", bound=Callable[..., Any])


def _once(make: Make) -> Make:
    """Makes a program once in a process: the machines of a fleet, a thread each, ask for it in the same moment."""
    kept = functools.cache(make)

    @functools.wraps(make)
    def made(*args: Any) -> Any:
        with _making:
            return kept(*args)

    return cast(Make, made)


@_once
def image_command(name: str) -> bytes:
    """A shipped image command; KeyError when there is none of this name."""
    files = _files(f"_rescue.imagecommand.{IMAGE_COMMANDS[name]}")
    return zip_program(_FINDS_PYTHON.format(name=name).encode("ascii"), files)


def url_error(name: str, url: str) -> str:
    """Why a shipped image command takes no such image URL on any machine, in its own words; empty when it may take it.

    KeyError when there is none of this name.
    """
    return _refusal(name, lambda command: command.examined(url))


def bootstrap_error(name: str, url: str, data: bytes) -> str:
    """The same for bootstrap data, with an image URL that the command takes."""
    invocation = f"{_COMMANDS}.invocation"
    return _refusal(
        name,
        lambda command: command.check_bootstrap(url, importlib.import_module(invocation).kind_of_bootstrap(data)),
    )


def _refusal(name: str, ask: Callable[[Any], object]) -> str:
    """What a shipped command says when it is asked; empty when it refuses nothing.

    It is loaded only here: it runs in rescues. When the Python of the controller lacks what a command needs there, such
    as lzma, nothing is refused.
    """
    module = IMAGE_COMMANDS[name]
    try:
        command = importlib.import_module(f"{_COMMANDS}.{module}")
    except ImportError:
        return ""
    try:
        ask(command)
    except command.Refused as error:
        return str(error)
    return ""


@_once
def installimage() -> bytes:
    """What runs in the place of an image command: :mod:`_rescue.installimage.rescue_program`.

    Its bytes are part of the identity of a job, so they are the same from every controller.
    """
    return zip_program(b"#!/usr/bin/python3\n", _files("_rescue.installimage.rescue_program"))


@_once
def steps() -> bytes:
    """What answers the controller's requests: :mod:`_rescue.steps`, as a folder that Python runs, in a tar archive.

    Each request contains it, so it is compressed. A rescue with the controller's version of Python finds it compiled;
    another one compiles it once, as Python does in a folder and not in a zip archive.
    """
    files = _steps()
    for name, text in list(files.items()):
        path = PurePosixPath(name)
        files[f"{path.parent}/__pycache__/{path.stem}.{sys.implementation.cache_tag}.pyc"] = _compiled(name, text)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), 0o600
            archive.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(packed.getvalue(), mtime=0)


@_once
def steps_digest() -> str:
    """What names the folder of `steps` in a rescue: a digest of the sources; what is compiled differs each time."""
    return hashlib.sha256(b"".join(text for _name, text in sorted(_steps().items()))).hexdigest()[:16]


def _steps() -> dict[str, bytes]:
    return _files("_rescue.steps", "", data=("_rescue/recorder.py",))


def _compiled(name: str, text: bytes) -> bytes:
    """The file that Python would put beside a module, marked as one that is not to be compared with it (PEP 552)."""
    code = marshal.dumps(compile(text, name, "exec", dont_inherit=True))
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(text) + code


@_once
def runner_text() -> str:
    """The runner, a shell script."""
    return (_RESCUE / "runner.sh").read_text(encoding="utf-8")


def _files(module: str, arguments: str = "sys.argv[1:]", data: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The files of a program that calls ``main`` of a module: the module, and what it imports of module_utils."""
    inside = "module_utils/"
    names = [f"{inside}{module.replace('.', '/')}.py", *(inside + name for name in data)]
    found = imported_files(_RESCUE.parents[1], names)
    members = {f"{TOP}/{name[len(inside) :]}": content for name, content in found.items() if name.startswith(inside)}
    return {"__main__.py": main_of(f"{TOP}.{module}", arguments), **members}
