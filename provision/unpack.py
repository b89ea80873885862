# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload, ansible-core and our collection: unpacked once, found again by its digest."""

from __future__ import annotations

import hashlib
import io
import os
import pkgutil
import shutil
import tarfile
import tempfile
from pathlib import Path

from provision.errors import RunError

PAYLOAD, DIGEST, VERSION = "payload.tar.xz", "payload.sha256", "version"


def resource(name: str) -> bytes:
    """A file that was put into the archive beside this one."""
    data = pkgutil.get_data("provision", name)
    if data is None:
        raise RunError(f"{name} is missing in this program: build it again by make provision")
    return data


def unpacked(state: Path) -> Path:
    """The folder of this program's payload below `state`, made when it is not there; older ones go.

    For the holder of the lock; the rename lets readers see either nothing or everything.
    """
    digest = resource(DIGEST).decode("ascii").strip()
    target = state / digest[:16]
    if not target.is_dir():
        payload = resource(PAYLOAD)
        if hashlib.sha256(payload).hexdigest() != digest:
            raise RunError("this program is damaged: its payload has another digest; fetch it again")
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=state))
        try:
            _extract(payload, draft)
            # what the rename makes visible must survive a power cut
            os.sync()
            draft.rename(target)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise RunError(f"{state}: {error.strerror or error}") from None
    for other in state.iterdir():
        if other.is_dir() and other != target:
            shutil.rmtree(other, ignore_errors=True)
    return target


def _extract(payload: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(payload), mode="r:xz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)  # ours, and its digest is right
