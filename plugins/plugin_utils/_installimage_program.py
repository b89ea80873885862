# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The in-rescue program of robot_installimage as one executable file: the same code that checks on the controller."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import program

#: Packages of module_utils that travel, under one name of their own.
PACKAGES = ("_common", "_rescue/disks", "_rescue/installimage")
TOP = "kubenode_rescue"
_MAIN = f"import sys\nfrom {TOP}._rescue.installimage.program import main\nsys.exit(main(sys.argv[1:]))\n"
#: The same bytes every time, as they are part of the identity of a job.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def program_bytes() -> bytes:
    """A zip archive that Python runs, with a line in front that makes it a program."""
    folder = Path(program.__file__).parents[2]
    packed = io.BytesIO()
    packed.write(b"#!/usr/bin/python3\n")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN)
        _add(archive, f"{TOP}/__init__.py", "")
        _add(archive, f"{TOP}/_rescue/__init__.py", "")
        for package in PACKAGES:
            names = {path.name: path for path in sorted((folder / package).glob("*.py"))}
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
