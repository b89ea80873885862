# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of several Python files in one executable file: what starts Python, and a zip archive that Python runs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

#: The first date that a zip archive knows.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import os
import sys
from {module} import main
if __name__ == "__main__":
    sys.exit(main({arguments}))
"""


def main_of(module: str, arguments: str = "sys.argv[1:]") -> bytes:
    """A ``__main__.py`` that ends with what ``main`` of a module returns; ``arguments``: of the call, in Python."""
    return _MAIN.format(module=module, arguments=arguments).encode("ascii")


def zip_program(head: bytes, files: Mapping[str, bytes], compressed: bool = False) -> bytes:
    """The program: ``head``, one or more lines that start Python on the file, then the archive.

    ``files``: path in the archive → content, ``__main__.py`` among them. Equal arguments give equal bytes, from every
    controller; ``compressed`` ones only where zlib is the same, which suits what no digest is made of.
    """
    packed = io.BytesIO()
    packed.write(head)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = archive.compression
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return packed.getvalue()
