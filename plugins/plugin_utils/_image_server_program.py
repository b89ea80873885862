# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server as one executable file: the package of live images as it lies in this collection."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.zip_program import main_of, zip_program
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import errors

#: Name of the package inside the archive.
PACKAGE = "kubenode_liveimage"
PYTHON = "/usr/bin/python3"
_INTERPRETER = re.compile(r"/[A-Za-z0-9_./+-]{1,200}")


def program_bytes(python: str = PYTHON) -> bytes:
    """A zip archive that Python runs, with a line in front that makes it a program of this interpreter.

    Equal trees give equal bytes, as their digest decides about a restart. Raises ValueError for an interpreter that
    cannot stand in such a line.
    """
    if not _INTERPRETER.fullmatch(python):
        raise ValueError(f"python {python!r} must be the full path of an interpreter, without blanks")
    folder = Path(errors.__file__).parent
    files = {f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in folder.rglob("*.py")}
    files["__main__.py"] = main_of(f"{PACKAGE}.service.main", "sys.argv[1:], os.environ")
    return zip_program(f"#!{python} -I\n".encode(), files)
