# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image behind an image URL."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

from commands.parts.errors import HttpStatus
from commands.parts.transfer import Transfer
from commands.parts.url import ImageUrl


class Source(Transfer):
    """The bytes behind the image URL (or a file beside it)."""

    def __init__(self, url: ImageUrl, agent: str, suffix: str = "", pause: float = 0.5, say=lambda text: None):
        super().__init__(url.shown(suffix), agent, url.stall, pause, say)
        self.url, self.suffix = url, suffix

    def beside(self, suffix: str) -> Source:
        """Return the source of the file whose name has the suffix behind that of this one."""
        return Source(self.url, self.agent, self.suffix + suffix, self.pause, self.say)

    def open(self):
        """Open a stream at the byte that comes next."""
        if self.url.parts.scheme != "file":
            return super().open()
        path = Path(urllib.parse.unquote(self.url.parts.path) + self.suffix)
        if not path.is_file():
            raise HttpStatus(404, "%s: no such file" % self.shown)
        self.size = path.stat().st_size
        stream = path.open("rb")
        stream.seek(self.received)
        return stream

    def request(self):
        """Ask for the bytes that are missing."""
        return self.ask(self.url.location(self.suffix), {}, self.url.authorization)
