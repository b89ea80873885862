# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Bytes over HTTP, which go on where a connection ended."""

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

from ..._common.text import whole_number
from ..._common.web import BadRedirect, Redirects
from .basics import CHUNK, HttpStatus, Interrupted, Refused
from .url import ImageUrl


class Transfer:
    """A stream of bytes that a server sends.

    A dropped or stalled transfer goes on where it stopped (Range, If-Range); two versions of a file are never mixed.
    """

    BUSY = (408, 425, 429, 500, 502, 503, 504)
    IN_A_ROW = 6
    IN_ALL = 50
    NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
    LONGEST_WAIT = 60  # seconds that a server may ask for (Retry-After)

    def __init__(self, shown: str, agent: str, stall: float, pause: float = 0.5, say=lambda text: None):
        self.shown, self.agent, self.stall, self.pause, self.say = shown, agent, stall, pause, say
        self.size: int | None = None
        self.received = 0
        self.validator = ""
        self.opener = urllib.request.build_opener(Redirects)

    def request(self):
        """Ask for the bytes that are missing; return the response."""
        raise NotImplementedError

    def chunks(self):
        """Yield the bytes in order; ends without an error only when all of them came."""
        failures = 0
        for tried in itertools.count(1):
            wait = 0
            try:
                with self.open() as stream:
                    for chunk in iter(lambda: stream.read(CHUNK), b""):
                        self.received += len(chunk)
                        failures = 0
                        yield chunk
                if self.size is None or self.received == self.size:
                    return
                reason = "the connection ended after %d of %d bytes" % (self.received, self.size)
            except (Interrupted, http.client.HTTPException, OSError) as error:
                reason = str(error) or type(error).__name__
                wait = getattr(error, "wait", 0)
            failures += 1
            if failures >= self.IN_A_ROW or tried >= self.IN_ALL:
                raise Refused("%s: given up after %d connections: %s" % (self.shown, tried, reason))
            self.say("%s: %s; trying again" % (self.shown, reason))
            time.sleep(max(wait, min(self.pause * 2 ** (failures - 1), 15)))

    def open(self):
        """Open a stream at the byte that comes next."""
        response = self.request()
        tag = response.headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        if not self.received:
            length = response.headers.get("Content-Length", "").strip(" \t")
            size = whole_number(length)
            if length and size is None:
                raise Refused("%s: the server does not say the size as a number (Content-Length)" % self.shown)
            self.begin(size, validator)
            return response
        if self.validator != validator and not self.content_addressed:
            raise Refused("%s: the file changed on the server during the transfer; run again" % self.shown)
        if response.status == 206:
            place = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)", response.headers.get("Content-Range", ""))
            total = place.group(2) if place and self.size is not None else "*"
            if not place or whole_number(place.group(1)) != self.received or total not in ("*", str(self.size)):
                raise Refused("%s: the server answered another range than asked for" % self.shown)
        else:
            self._skip(response, self.received)
        return response

    #: Whether the name of the bytes is their digest, so that no two versions of them can be.
    content_addressed = False

    def begin(self, size: int | None, validator: str) -> None:
        """Take note of what the first answer says: the size, if it does, and which version this is."""
        self.size, self.validator = size, validator

    def ask(self, location: str, headers: dict, login: str = ""):
        """Send one request for the rest of the bytes; an error status is an error, a passing one may be healed."""
        request = urllib.request.Request(location, headers={"User-Agent": self.agent, **headers})
        request.add_header("Accept-Encoding", "identity")
        if login:
            request.add_unredirected_header("Authorization", login)
        if self.received:
            request.add_header("Range", "bytes=%d-" % self.received)
            if self.validator and not self.content_addressed:
                request.add_header("If-Range", self.validator)
        try:
            return self.opener.open(request, timeout=self.stall)
        except urllib.error.HTTPError as error:
            with error:
                raise self.judge(error) from None
        except http.client.InvalidURL:
            raise Refused("image URL: it holds characters that must be percent-encoded") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Refused("%s: %s" % (self.shown, error.reason.verify_message)) from None
            if getattr(error.reason, "reason", "") in self.NO_TLS:
                raise Refused("%s: the server does not speak TLS (https) there" % self.shown) from None
            raise Interrupted(str(error.reason)) from None
        except BadRedirect as error:
            raise Refused("image URL: %s" % error) from None
        except (ValueError, OverflowError) as error:
            # by urllib, of a redirect; UnicodeError is one, of a host name
            raise Refused("%s: this or a redirect of the server is no URL: %s" % (self.shown, error)) from None

    def judge(self, error: urllib.error.HTTPError) -> Exception:
        """Return what an error status means."""
        text = "HTTP %d %s" % (error.code, error.reason)
        if error.code not in self.BUSY:
            return HttpStatus(error.code, "%s: %s; check the URL and who may read it" % (self.shown, text))
        wait = whole_number(error.headers.get("Retry-After", "").strip(" \t")) or 0
        if wait > self.LONGEST_WAIT:
            return Refused("%s: %s, and the server asks to come back in %d s" % (self.shown, text, wait))
        return Interrupted(text, wait)

    @staticmethod
    def _skip(response, count: int) -> None:
        while count:
            part = response.read(min(count, CHUNK))
            if not part:
                raise Interrupted("the connection ended while skipping what is already there")
            count -= len(part)


# --- The image behind an image URL.


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
