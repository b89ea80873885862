# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Writes files whole or not at all, private from their first moment; intents, claims, locks and quarantine are such."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO


@contextlib.contextmanager
def replacing(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """A draft (0600) beside a file, and the draft's path; it takes the file's place when the block ends well.

    An OSError of the block names the file.
    """
    folder, name = os.path.split(os.path.abspath(path))
    handle, draft = tempfile.mkstemp(prefix=f".{name[:64]}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, draft
        os.replace(draft, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)  # on a full disk it would keep the room that others lack
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # A write to an open file does not say which one it is.
            error.filename = path
        raise


def write_json(path: str, content: Any, sort_keys: bool = False, durable: bool = True) -> None:
    """Write a file, whole or not at all; its folder is made. Raises OSError.

    ``durable``: only return when the file would survive a power cut.
    """
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    with replacing(path) as (file, _draft):
        file.write((json.dumps(content, indent=1, sort_keys=sort_keys) + "\n").encode("ascii"))
        if durable:
            file.flush()
            os.fsync(file.fileno())
