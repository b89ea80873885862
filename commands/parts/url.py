# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image URL: where to read, how to log in, and switches."""

from __future__ import annotations

import base64
import re
import urllib.parse

from commands.parts.errors import Refused
from commands.parts.switches import Switched


class ImageUrl(Switched):
    """The image URL taken apart: where to read, how to log in, and the switches of its fragment."""

    SWITCHES: tuple[str, ...] = ("sha256", "sha512", "adapt", "grow", "keys", "stall")

    def __init__(self, text: str):
        if not re.fullmatch("[!-~]+", text):
            raise Refused("image URL: spaces, control and non-ASCII characters must be percent-encoded")
        try:
            self.parts = urllib.parse.urlsplit(text)
            host, port = self.parts.hostname or "", self.parts.port
        except ValueError:
            # its text may hold a piece of the login
            raise Refused("image URL: its address or its port is none") from None
        if self.parts.scheme not in ("http", "https", "file"):
            raise Refused("image URL: scheme %r is not supported; use http or https" % self.parts.scheme)
        if self.parts.scheme != "file" and not host:
            raise Refused("image URL: the host is missing; write %s://HOST/PATH" % self.parts.scheme)
        if port == 0:
            raise Refused("image URL: no server has the port 0")
        if not self.parts.path.strip("/"):
            raise Refused("image URL: the path of the image is missing")
        self.netloc = ("[%s]" % host if ":" in host else host) + (":%d" % port if port else "")
        self.authorization = self._basic(self.parts)
        super().__init__(self.parts.fragment)

    @staticmethod
    def _basic(parts) -> str:
        if parts.username is None:
            return ""
        login = "%s:%s" % tuple(urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
        return "Basic " + base64.b64encode(login.encode()).decode()

    def location(self, suffix: str = "") -> str:
        """What is really requested: without login and fragment, the suffix behind the path."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, self.parts.query, ""))

    def shown(self, suffix: str = "") -> str:
        """What may be printed and recorded: no login, no query, no fragment."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, "", ""))
