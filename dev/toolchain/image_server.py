# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/image-server: the program `image-server`, one file that needs Python, yaml and httptools of the machine.

A zip archive that Python runs: the package of live images as it lies in the collection, each module beside its compiled
form for the Python that made it. Another Python takes the sources, and a fifth of a second longer to start.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

from .paths import CHECKOUT
from .report import SetupError
from .trees import tracked_files

SOURCES = "plugins/module_utils/_liveimage/"
OUTPUT = CHECKOUT / "build" / "image-server"
#: the package's name inside, as the role image_server has it
PACKAGE = "kubenode_liveimage"
MAIN = f"""\
import os
import sys
from {PACKAGE}.service.main import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
"""
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def program(checkout: Path) -> bytes:
    """The whole file; equal sources and an equal Python give equal bytes."""
    members = {"__main__.py": MAIN.encode("ascii")}
    for name in tracked_files(checkout):
        path = checkout / name
        if name.startswith(SOURCES) and name.endswith(".py") and path.is_file():
            inside = "%s/%s" % (PACKAGE, name[len(SOURCES) :])
            members[inside] = path.read_bytes()
            members[inside + "c"] = _compiled(path, inside)
    if len(members) == 1:
        raise SetupError("%s has no sources" % SOURCES)
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "a") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.external_attr = 0o644 << 16
            # stored: it starts faster, and every zlib makes other bytes
            archive.writestr(entry, members[name])
    return buffer.getvalue()


def _compiled(path: Path, inside: str) -> bytes:
    """The module's compiled form, which belongs to these bytes whatever their date is."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "module.pyc"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(path), str(target), dfile=inside, doraise=True, invalidation_mode=mode)
        return target.read_bytes()


def main(arguments: list[str] | None = None) -> int:
    """Write the program and say its digest."""
    parser = argparse.ArgumentParser(
        prog="dev/image-server", description=(__doc__ or "").partition(": ")[2].splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="default: build/image-server")
    chosen = parser.parse_args(arguments)
    data = program(CHECKOUT)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    draft = chosen.output.with_name(".%s.%d" % (chosen.output.name, os.getpid()))
    draft.write_bytes(data)
    draft.chmod(0o755)
    draft.replace(chosen.output)
    made = "Python %d.%d" % sys.version_info[:2]
    print("%s (%d KiB, %s)  sha256:%s" % (chosen.output, len(data) >> 10, made, hashlib.sha256(data).hexdigest()))
    return 0
