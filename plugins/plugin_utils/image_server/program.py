# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server as one executable file: the package of live images as it lies in this collection."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import errors

#: Name of the package inside the archive.
PACKAGE = "kubenode_liveimage"
PYTHON = "/usr/bin/python3"
_MAIN = (
    "import os\n"
    "import sys\n"
    f"from {PACKAGE}.service.main import main\n"
    'if __name__ == "__main__":\n'
    "    sys.exit(main(sys.argv[1:], os.environ))\n"
)
_INTERPRETER = re.compile(r"/[A-Za-z0-9_./+-]{1,200}")
#: The same bytes every time, as their digest decides about a restart.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def program_bytes(python: str = PYTHON) -> bytes:
    """A zip archive that Python runs, with a line in front that makes it a program of this interpreter.

    Equal trees give equal bytes. Raises ValueError for an interpreter that cannot stand in such a line.
    """
    if not _INTERPRETER.fullmatch(python):
        raise ValueError(f"python {python!r} must be the full path of an interpreter, without blanks")
    folder = Path(errors.__file__).parent
    packed = io.BytesIO()
    packed.write(f"#!{python} -I\n".encode())
    with zipfile.ZipFile(packed, "w") as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for path in sorted(folder.rglob("*.py")):
            _add(archive, f"{PACKAGE}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    # stored: another controller's zlib would make other bytes, and a restart of them
    archive.writestr(info, content)
