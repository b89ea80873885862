# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The table of URLs as a file: names of images and where they are, for whoever hands them to BMCs."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping

from .problems import Problems


class Table:
    """Written when it changes, whole, for its owner only: unguessable URLs are secrets."""

    def __init__(self, path: str) -> None:
        """Nothing is written yet."""
        self._path = path
        self._state: tuple[int, int] | None = None

    def write(self, changes: int, signed: int, urls: Callable[[], Mapping[str, str]], problems: Problems) -> None:
        """Write it unless nothing changed; ``signed``: seconds after which signed URLs become others."""
        state = (changes, int(time.time()) // signed if signed else 0)
        if state == self._state:
            return
        text = json.dumps(urls(), indent=2, sort_keys=True) + "\n"
        try:
            self._replace(text)
        except OSError as error:
            problems.tell("urls-file", "%s cannot be written: %s" % (self._path, error.strerror or error))
            return
        self._state = state
        problems.tell("urls-file", "")

    def _replace(self, text: str) -> None:
        folder, name = os.path.split(os.path.abspath(self._path))
        handle, draft = tempfile.mkstemp(prefix=".%s." % name[:64], dir=folder)  # 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, self._path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            raise
