# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the executable: a zip application whose bytes depend on its sources and its version only."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from lab.kubelet.app.tables import FLAGS

_APP = Path(__file__).parent / "app"
_PACKAGE = "lab/kubelet/app/"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_START = b"""# Copyright (c) 2026 kubenode.provision authors
import lab.kubelet.app.__main__
"""
_VERSION = re.compile(r'^VERSION = "[^"]*"$', re.M)


class UnknownVersion(ValueError):
    """There is no table of flags and fields for this minor."""


def build(version: str) -> bytes:
    """The executable of kubelet ``version`` ("1.36.4", a leading v is taken); raises :class:`UnknownVersion`."""
    version = version.lstrip("v")
    if (
        not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?", version)
        or ".".join(version.split(".")[:2]) not in FLAGS
    ):
        raise UnknownVersion("no kubelet %s here; known minors: %s" % (version, ", ".join(FLAGS)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        _add(archive, "__main__.py", _START)
        for folder in ("lab/", "lab/kubelet/"):
            _add(archive, folder + "__init__.py", b"")
        for path in sorted(_APP.glob("*.py")):
            content = path.read_text(encoding="utf-8")
            if path.name == "version.py":
                content = _VERSION.sub('VERSION = "%s"' % version, content)
            _add(archive, _PACKAGE + path.name, content.encode())
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
