# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Small JSON files that only their owner may read, such as intents, claims, locks and quarantine."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any


def write_json(path: str, content: Any, sort_keys: bool = False, durable: bool = True) -> None:
    """Write a file, whole or not at all; its folder is made. Raises OSError.

    ``durable``: only return when the file would survive a power cut.
    """
    new = "%s.%d.new" % (path, os.getpid())
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1, sort_keys=sort_keys) + "\n")
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)  # on a full disk it would keep the room that others lack
        raise
