# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of several Python files in one executable file: what starts Python, and a zip archive that Python runs."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

#: The first date that a zip archive knows.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import os
import sys
from {module} import main
if __name__ == "__main__":
    sys.exit(main({arguments}))
"""
_IMPORT = re.compile(
    r"^ *from (?:(\.+)|ansible_collections\.kubenode\.provision\.plugins\.)([\w.]*) import (\([^)]*\)|[^\n#]*)",
    re.MULTILINE,
)


def imported_files(plugins: Path, names: Iterable[str]) -> dict[str, bytes]:
    """These files below the folder ``plugins``, all that they import from there, and the ``__init__.py`` of packages.

    Path below the folder → content; a package without such a file gets an empty one.
    """
    todo = list(names)
    found: dict[str, bytes] = {}
    while todo:
        name = todo.pop()
        if name not in found:
            path = plugins / name
            found[name] = path.read_bytes() if path.name != "__init__.py" or path.exists() else b""
            todo += _imported(plugins, name, found[name].decode("utf-8"))
            todo += [f"{parent}/__init__.py" for parent in PurePosixPath(name).parents if parent.name]
    return found


def _imported(plugins: Path, name: str, text: str) -> Iterator[str]:
    """The files of the modules that a file names in ``from … import …``."""
    for dots, package, words in _IMPORT.findall(text):
        base = (PurePosixPath(name).parents[len(dots) - 1] if dots else PurePosixPath()) / package.replace(".", "/")
        for word in re.findall(r"(\w+)(?: as \w+)?", words):
            places = [f"{base / word}.py", f"{base / word}/__init__.py", f"{base}.py", f"{base}/__init__.py"]
            yield next((place for place in places if (plugins / place).exists()), places[2])


def main_of(module: str, arguments: str = "sys.argv[1:]") -> bytes:
    """A ``__main__.py`` that ends with what ``main`` of a module returns; ``arguments``: of the call, in Python."""
    return _MAIN.format(module=module, arguments=arguments).encode("ascii")


def zip_program(head: bytes, files: Mapping[str, bytes]) -> bytes:
    """The program: ``head``, one or more lines that start Python on the file, then the archive.

    ``files``: path in the archive → content, ``__main__.py`` among them. Equal arguments give equal bytes, from every
    controller, so nothing is compressed: zlib is not the same everywhere.
    """
    packed = io.BytesIO()
    packed.write(head)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = archive.compression
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return packed.getvalue()
