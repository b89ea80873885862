# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the image over HTTP, and goes on where a transfer stopped."""

from __future__ import annotations

import http.client
import itertools
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from commands.parts.errors import HttpStatus, Interrupted, Refused
from commands.parts.sizes import CHUNK
from commands.parts.url import ImageUrl


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http, and hands the login on to the same host only."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Build the next request."""
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise Refused("image URL: the server redirects from %s to %s, refused" % (old.scheme, new.scheme))
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        login = req.unredirected_hdrs.get("Authorization")
        if request is not None and login and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            request.add_unredirected_header("Authorization", login)
        return request


class Source:
    """The bytes behind the image URL (or a file beside it).

    A dropped or stalled transfer goes on where it stopped (Range, If-Range); two versions of a file are never mixed.
    """

    BUSY = (408, 425, 429, 500, 502, 503, 504)
    IN_A_ROW = 6
    IN_ALL = 50

    def __init__(self, url: ImageUrl, agent: str, suffix: str = "", pause: float = 0.5, say=lambda text: None):
        self.url, self.agent, self.suffix, self.pause, self.say = url, agent, suffix, pause, say
        self.shown = url.shown(suffix)
        self.size: int | None = None
        self.received = 0
        self.validator = ""
        self.opener = urllib.request.build_opener(Redirects)

    def beside(self, suffix: str) -> Source:
        """Return the source of the file whose name has the suffix behind that of this one."""
        return Source(self.url, self.agent, self.suffix + suffix, self.pause, self.say)

    def chunks(self):
        """Yield the bytes in order; ends without an error only when all of them came."""
        failures = 0
        for tried in itertools.count(1):
            try:
                with self._open() as stream:
                    for chunk in iter(lambda: stream.read(CHUNK), b""):
                        self.received += len(chunk)
                        failures = 0
                        yield chunk
                if self.size is None or self.received == self.size:
                    return
                reason = "the connection ended after %d of %d bytes" % (self.received, self.size)
            except (Interrupted, http.client.HTTPException, OSError) as error:
                reason = str(error) or type(error).__name__
            failures += 1
            if failures >= self.IN_A_ROW or tried >= self.IN_ALL:
                raise Refused("%s: given up after %d connections: %s" % (self.shown, tried, reason))
            self.say("%s: %s; trying again" % (self.shown, reason))
            time.sleep(min(self.pause * 2 ** (failures - 1), 15))

    def _open(self):
        if self.url.parts.scheme == "file":
            return self._open_file()
        response = self._request()
        tag = response.headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        length = response.headers.get("Content-Length", "")
        if not self.received:
            self.validator, self.size = validator, int(length) if length.isdigit() else None
            return response
        if validator != self.validator:
            raise Refused("%s: the file changed on the server during the transfer; run again" % self.shown)
        if response.status == 206:
            place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            total = place.group(2) if place and self.size is not None else "*"
            if not place or int(place.group(1)) != self.received or total not in ("*", str(self.size)):
                raise Refused("%s: the server answered another range than asked for" % self.shown)
        else:
            self._skip(response, self.received)
        return response

    def _open_file(self):
        path = Path(urllib.parse.unquote(self.url.parts.path) + self.suffix)
        if not path.is_file():
            raise HttpStatus(404, "%s: no such file" % self.shown)
        self.size = path.stat().st_size
        stream = path.open("rb")
        stream.seek(self.received)
        return stream

    def _request(self):
        request = urllib.request.Request(self.url.location(self.suffix), headers={"User-Agent": self.agent})
        request.add_header("Accept-Encoding", "identity")
        if self.url.authorization:
            request.add_unredirected_header("Authorization", self.url.authorization)
        if self.received:
            request.add_header("Range", "bytes=%d-" % self.received)
            if self.validator:
                request.add_header("If-Range", self.validator)
        try:
            return self.opener.open(request, timeout=self.url.stall)
        except urllib.error.HTTPError as error:
            text = "HTTP %d %s" % (error.code, error.reason)
            error.close()
            if error.code in self.BUSY:
                raise Interrupted(text) from None
            raise HttpStatus(error.code, "%s: %s; check the URL and who may read it" % (self.shown, text)) from None
        except http.client.InvalidURL:
            raise Refused("image URL: it holds characters that must be percent-encoded") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Refused("%s: %s" % (self.shown, error.reason.verify_message)) from None
            raise Interrupted(str(error.reason)) from None

    @staticmethod
    def _skip(response, count: int) -> None:
        while count:
            part = response.read(min(count, CHUNK))
            if not part:
                raise Interrupted("the connection ended while skipping what is already there")
            count -= len(part)
