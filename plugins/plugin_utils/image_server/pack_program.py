# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the image server into one executable file: a zip archive that Python runs, of sources of this collection.

The role packs it for its machines. ``dev/image-server`` and the Containerfile start this file as a program, from a
checkout and without ansible-core. In the archive, the packages lie under the names they have in the collection.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import py_compile
import re
import sys
import tempfile
from pathlib import Path, PurePosixPath

from ...module_utils._common.zip_program import imported_files, main_of, zip_program

PYTHON = "/usr/bin/python3"
#: where these sources lie, and below which names the archive has them
PLUGINS = Path(__file__).resolve().parents[2]
TOP = PurePosixPath("ansible_collections/kubenode/provision/plugins")
_MAIN = "plugin_utils/image_server/daemon/command_line.py"
MAIN = main_of(".".join([*TOP.parts, "plugin_utils.image_server.daemon.command_line"]), "sys.argv[1:], os.environ")
#: the full path of an interpreter as the first line of a program can hold it
INTERPRETER = re.compile(r"/[A-Za-z0-9_./+-]{1,200}")


def program_bytes(python: str = PYTHON) -> bytes:
    """The program for a machine: its first line names this interpreter.

    Equal trees give equal bytes: the role restarts the service when the digest is another one. Raises ValueError for
    an interpreter that such a line cannot hold.
    """
    if not INTERPRETER.fullmatch(python):
        raise ValueError(f"python {python!r} must be the full path of an interpreter, without blanks")
    return _packed(f"#!{python} -I\n", compiled=False)


def program_bytes_here() -> bytes:
    """The program with each module beside its compiled form for this Python; it starts a fifth of a second faster.

    Another Python takes the sources. Equal trees and an equal Python give equal bytes.
    """
    return _packed("#!/usr/bin/env python3\n", compiled=True)


def sources() -> dict[str, bytes]:
    """Name in the archive → text of every module that the program imports, the program's own among them."""
    packages = [f"{package}/__init__.py" for package in (TOP, *TOP.parents) if package.name]
    found = imported_files(PLUGINS, [_MAIN])
    return {**dict.fromkeys(packages, b""), **{f"{TOP}/{name}": content for name, content in found.items()}}


def _packed(first_line: str, compiled: bool) -> bytes:
    members = {"__main__.py": MAIN}
    for name, content in sources().items():
        members[name] = content
        if compiled and content:
            members[name + "c"] = _compiled(PLUGINS / PurePosixPath(name).relative_to(TOP), name)
    return zip_program(first_line.encode("ascii"), members)


def _compiled(path: Path, name: str) -> bytes:
    """The compiled form of a module, which belongs to these bytes with any date."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "module.pyc"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(path), str(target), dfile=name, doraise=True, invalidation_mode=mode)
        return target.read_bytes()


def main(arguments: list[str] | None = None) -> int:
    """Write the program for this Python, or for any, and print its digest."""
    description = "Packs the program `image-server`, one file that needs Python, yaml and httptools."
    parser = argparse.ArgumentParser(prog="image-server", description=description)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write it")
    parser.add_argument("--any-python", action="store_true", help="sources alone, for every Python of a machine")
    chosen = parser.parse_args(arguments)
    target, for_any = chosen.output, chosen.any_python
    data = program_bytes() if for_any else program_bytes_here()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.chmod(0o755)
    draft.replace(target)
    made = "any Python" if for_any else f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    print(f"{target} ({len(data) >> 10} KiB, {made})  sha256:{hashlib.sha256(data).hexdigest()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
