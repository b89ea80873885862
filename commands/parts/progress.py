# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells the user where the work is."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path


class Progress:
    """Tells the user where the work is: a line on stdout per step, and `message` in output.json."""

    def __init__(self, path: Path):
        self.path = path
        self.last = 0.0
        self.outcome = "nothing was written to a disk"

    def say(self, text: str) -> None:
        """Announce a step."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        self.publish(text)

    def tick(self, text, count) -> None:
        """Publish text() and count() when the last message is older than a second; see publish()."""
        if time.monotonic() - self.last >= 1:
            self.publish(text(), count())

    def publish(self, text: str, count: tuple | None = None) -> None:
        """Replace output.json at once, never half of it. count: bytes done, and bytes in all or None."""
        self.last = time.monotonic()
        draft = self.path.with_name(".%s.%d" % (self.path.name, os.getpid()))
        with contextlib.suppress(OSError):  # a full RAM disk must not end an installation
            content: dict = {"message": text}
            if count is not None:
                content["bytes"] = {"done": count[0], "total": count[1]}
            draft.write_text(json.dumps(content) + "\n")
            draft.replace(self.path)
