# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs for a rescue, each one executable file: the same code that checks on the controller."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

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
