# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Requests for images: where a redirect may lead, and where a login may go; one file over HTTP.

A file takes as many connections as it needs; two versions of it are never mixed.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator, Mapping
from typing import Any

from .text import json_object, whole_number

#: Who we say we are; the version is that of galaxy.yml.
AGENT, VERSION = "kubenode.provision", "1.0.0"
#: Unredirected headers that urllib makes for each request.
_OF_ONE_REQUEST = ("Host", "Content-length", "Content-type")


class BadRedirect(ValueError):
    """The server redirects to where we do not go, of which the text says the ``scheme`` alone."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"the server redirects from {old} to {new}, refused")
        self.scheme = new


class Redirects(urllib.request.HTTPRedirectHandler):
    """Never from https to http, never with a private header to another host, and with the method of the request.

    A header is private when the request holds it as an unredirected one.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = split_url(req.full_url), split_url(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise BadRedirect(old.scheme, new.scheme)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is None:
            return None
        request.method = req.get_method()
        if (old.scheme, old.netloc) == (new.scheme, new.netloc):
            for name, value in req.unredirected_hdrs.items():
                if name not in _OF_ONE_REQUEST:
                    request.add_unredirected_header(name, value)
        return request


def split_url(url: str) -> urllib.parse.SplitResult:
    """A URL in its parts; raises ValueError, also for a port that is none."""
    parts = urllib.parse.urlsplit(url)
    if parts.port == 0:
        raise ValueError("no server has the port 0")
    return parts


def is_http_url(text: object) -> bool:
    """Whether it is an http or https URL with a host, and with a port that can be one where it has one."""
    try:
        parts = split_url(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def split_login(url: str) -> tuple[str, str]:
    """A URL without its login and fragment, and the login as a header; raises ValueError, whose text may hold both."""
    parts = split_url(url)
    login, at, host = parts.netloc.rpartition("@")
    bare = urllib.parse.urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    if not at:
        return bare, ""
    user, _colon, password = (urllib.parse.unquote_to_bytes(part) for part in login.partition(":"))
    return bare, basic(user + b":" + password)


def basic(login: bytes) -> str:
    """The header of a login, given as bytes."""
    return "Basic " + base64.b64encode(login).decode("ascii")


def parse_challenge(text: str) -> tuple[str, dict[str, str]]:
    """A WWW-Authenticate header taken apart: scheme in lower case, parameters."""
    scheme, dummy, rest = text.strip().partition(" ")
    pairs = re.findall(r'(?<![A-Za-z])([A-Za-z]+)=(?:"([^"]*)"|([^",\s]+))', rest)
    return scheme.lower(), {name.lower(): quoted or bare for name, quoted, bare in pairs}


# --- Registries (OCI distribution API): places and logins

#: What a tag or digest may lead to: an index or a manifest.
MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def registry_place(host: str, name: str) -> tuple[str, str]:
    """The server that is asked for an image, and the image's name there."""
    if host != "docker.io":
        return host, name
    return "registry-1.docker.io", name if "/" in name else "library/" + name


def registry_logins(token: str) -> tuple[str, list[str]]:
    """What a token is sent as: the header of ``user:password`` (or empty), else those that may be tried in turn."""
    data = token.encode("utf-8", "surrogateescape")
    if ":" in token:
        return basic(data), []
    # as it is, and as CAPH hands it over: ghcr.io takes access tokens in base64
    return "", ["Bearer " + token, "Bearer " + base64.b64encode(data).decode("ascii")] if token else []


def token_server(values: Mapping[str, str], scheme: str, name: str) -> tuple[str, str]:
    """Where a challenge wants us to ask for a token to read the repository ``name``: the URL, and its host.

    ``scheme``: the registry's own. Raises ValueError for what is no URL, :class:`BadRedirect` for one without TLS.
    """
    realm = split_url(values["realm"])
    if realm.scheme not in (("https", "http") if scheme == "http" else ("https",)) or not realm.hostname:
        raise BadRedirect(scheme, realm.scheme)
    query = urllib.parse.parse_qsl(realm.query)
    query += [("service", values["service"])] if "service" in values else []
    query.append(("scope", values.get("scope") or f"repository:{name}:pull"))
    return urllib.parse.urlunsplit(realm._replace(query=urllib.parse.urlencode(query), fragment="")), realm.hostname


def token_in(answer: bytes) -> str:
    """The token that such a server hands out; empty when there is none."""
    found = json_object(answer) or {}
    token = found.get("token") or found.get("access_token")
    return token if isinstance(token, str) and re.match(r"[!-~]+\Z", token) else ""


#: Answers that may be others when the question is asked again.
BUSY = (408, 425, 429, 500, 502, 503, 504)
#: Bytes that are read at once.
CHUNK = 1 << 20
#: Connections in a row that bring nothing, and connections in all, before a file is given up.
TRIES, CONNECTIONS = 6, 50
#: Seconds between two connections at most, and what a server may ask for (Retry-After).
LONGEST_PAUSE, LONGEST_WAIT = 15, 60
#: How often a file may change on the server while it is read.
CHANGES = 2
#: What OpenSSL says of a server that does not speak TLS.
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


class DownloadError(Exception):
    """The file cannot be downloaded. ``final``: the same request cannot help. ``status``: of that answer, or 0."""

    def __init__(self, text: str, final: bool = False, status: int = 0) -> None:
        super().__init__(text)
        self.final, self.status = final, status


class Interrupted(Exception):
    """A connection ended in a way that another one may heal, at the earliest after ``wait`` seconds."""

    def __init__(self, text: str, wait: int = 0) -> None:
        super().__init__(text)
        self.wait = wait


class _Changed(Exception):
    """What has come is of another version of the file, or of another file."""


def retry_after(headers: Any) -> int:
    """The seconds after which a server wants to be asked again, by the headers of its answer; 0 where it names none."""
    return whole_number((headers.get("Retry-After") or "").strip(" \t")) or 0


class Download:
    """The bytes of one file in order; a subclass says how errors are called and what is done with the bytes.

    ``shown``: the URL as people may see it. ``headers`` go wherever a redirect leads, ``private`` ones (a login) only
    to the server that was asked. ``stall``: seconds that a connection may be silent; ``pause``: seconds after the first
    connection that brought nothing, doubled after each further one. ``deadline``: when all must have come, on the
    monotonic clock. ``say`` is called with the reason for each further connection.
    """

    #: Whether a digest judges the bytes in any case: a validator (ETag, Last-Modified) is not needed to go on.
    content_addressed = False
    #: Whether what has come can be thrown away, to begin again; see :meth:`restart`.
    can_restart = False
    #: Whether a digest of all that comes is compared at the end, which finds pieces of two versions.
    is_proven = True
    #: Connections after which a file is given up, however much each of them brought.
    most_connections = CONNECTIONS
    #: What is said when no connection helps: ``connections`` in all, ``tries`` in a row, ``reason``.
    given_up = "given up after %(connections)d connections: %(reason)s"

    def __init__(
        self,
        shown: str,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        private: Mapping[str, str] | None = None,
        stall: float = 60.0,
        pause: float = 0.5,
        tries: int = TRIES,
        deadline: float | None = None,
        say: Callable[[str], None] = lambda text: None,
        handlers: tuple[urllib.request.BaseHandler, ...] = (),
    ) -> None:
        self.shown, self.url = shown, url
        self.headers, self.private = dict(headers or {}), dict(private or {})
        self.stall, self.pause, self.tries, self.deadline, self.say = stall, pause, tries, deadline, say
        #: Bytes of the whole file, None where that is not known; bytes that have come.
        self.size: int | None = None
        self.received = 0
        #: The version that has come, as the server names it.
        self.validator = ""
        self._opener = urllib.request.build_opener(Redirects, *handlers)

    # --- what a subclass may say otherwise

    def refused(self, text: str, final: bool = False, status: int = 0) -> Exception:
        """The error to raise; see :class:`DownloadError`."""
        return DownloadError(f"{self.shown}: {text}", final, status)

    def request(self) -> Any:
        """Ask for the bytes that are missing; the response."""
        return self.ask(self.url, self.headers, self.private)

    def begin(self, size: int | None, validator: str) -> None:
        """Called with what the first answer says: the size, if it does, and which version this is."""
        self.size, self.validator = size, validator

    def ready(self, coming: int | None) -> None:
        """Called before the bytes of each answer, so many if it says so; may raise."""

    def restart(self) -> None:
        """Throw away what has come."""
        self.size, self.received, self.validator = None, 0, ""

    def judge(self, error: urllib.error.HTTPError) -> Exception:
        """What an error status means: the exception to raise."""
        text = f"HTTP {error.code} {error.reason}"
        if error.code == 416 and self.received and self.can_restart:
            return _Changed()
        if error.code not in BUSY:
            text += "; check the URL and who may read it"
            return self.refused(text, final=error.code in (404, 410), status=error.code)
        wait = retry_after(error.headers)
        if wait > LONGEST_WAIT:
            return self.refused(f"{text}, and the server asks to come back in {wait} s")
        return Interrupted(text, wait)

    # --- the transfer

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the bytes that are missing, in order; ends without an error only when all of them came."""
        failures = changes = 0
        for connections in itertools.count(1):
            wait = 0
            try:
                with self.open() as stream:
                    for chunk in iter(lambda: self._read(stream), b""):
                        self.received += len(chunk)
                        failures = 0
                        yield chunk
                if self.size is None or self.received == self.size:
                    return
                reason = f"the connection ended after {self.received} of {self.size} bytes"
            except _Changed:
                changes += 1
                if changes > CHANGES:
                    raise self.refused("the file keeps changing on the server") from None
                self.restart()
                continue
            except (Interrupted, http.client.HTTPException, OSError) as error:
                reason = str(error) or type(error).__name__
                wait = getattr(error, "wait", 0)
            failures += 1
            pause = max(wait, min(self.pause * 2 ** (failures - 1), LONGEST_PAUSE))
            late = self.deadline is not None and time.monotonic() + pause >= self.deadline
            if failures >= self.tries or connections >= self.most_connections or late:
                values = {"connections": connections, "tries": failures, "reason": reason}
                raise self.refused(self.given_up % values) from None
            self.say(f"{self.shown}: {reason}; trying again")
            time.sleep(pause)

    def open(self) -> Any:
        """Open a stream at the byte that comes next."""
        response = self.request()
        try:
            self._place(response)
        except BaseException:
            response.close()
            raise
        return response

    def ask(self, url: str, headers: Mapping[str, str], private: Mapping[str, str]) -> Any:
        """Send one request for the bytes that are missing; an error status is an error, a passing one may be healed."""
        if self.received and not (self.validator or self.content_addressed):  # what has come may be of another version
            if self.can_restart:
                self.restart()
            elif not self.is_proven:
                raise self.refused(
                    f"the connection was lost after {self.received} bytes, and the server does not say which version "
                    "of the file it has (ETag, Last-Modified), so that the rest may be of another one. Give the "
                    "digest of the image, or let the server name versions",
                    final=True,
                )
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, **headers})
        request.add_header("Accept-Encoding", "identity")
        for name, value in private.items():
            if value:
                request.add_unredirected_header(name, value)
        if self.received:
            request.add_header("Range", f"bytes={self.received}-")
            if self.validator and not self.content_addressed:
                request.add_header("If-Range", self.validator)
        timeout = self.stall if self.deadline is None else max(1.0, min(self.stall, self.deadline - time.monotonic()))
        try:
            return self._opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise self.judge(error) from None
        except http.client.InvalidURL:
            raise self.refused("its URL holds characters that must be percent-encoded", final=True) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                text = f"the server shows a certificate that is not trusted: {error.reason.verify_message}"
                raise self.refused(text, final=True) from None
            if getattr(error.reason, "reason", "") in NO_TLS:
                raise self.refused("the server does not speak TLS (https) there", final=True) from None
            raise Interrupted(str(error.reason)) from None
        except BadRedirect as error:
            text = f"the server redirects to {error.scheme}, which is not https"
            raise self.refused(text, final=True) from None
        except (ValueError, OverflowError) as error:
            # by urllib, of a redirect; UnicodeError is one, of a host name
            raise self.refused(f"this or a redirect of the server is no URL: {error}", final=True) from None

    def _place(self, response: Any) -> None:
        """Find out where an answer begins: the bytes that have come must be of the same file."""
        headers = response.headers
        tag = headers.get("ETag", "")
        validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
        text = headers.get("Content-Length", "").strip(" \t")
        length = whole_number(text)
        if text and length is None:
            raise self.refused("the server does not say the size as a number (Content-Length)")
        if self.received and response.status != 206 and self.can_restart:
            self.restart()
        if not self.received:
            self.begin(length, validator)
            self.ready(length)
            return
        if self.validator != validator and not self.content_addressed:
            raise self._other("the file changed on the server during the transfer; run again")
        if response.status == 206:
            place = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", ""))
            total = place.group(2) if place and self.size is not None else "*"
            if not place or whole_number(place.group(1)) != self.received or total not in ("*", str(self.size)):
                raise self._other("the server answered another range than asked for")
        else:
            self._skip(response, self.received)
            length = None if length is None else length - self.received
        if self.size is None and length is not None:
            self.size = self.received + length
        self.ready(length)

    def _other(self, text: str) -> Exception:
        return _Changed() if self.can_restart else self.refused(text)

    def _read(self, stream: Any) -> bytes:
        read: Callable[[int], bytes] = stream.read
        if self.deadline is not None:
            if time.monotonic() > self.deadline:
                raise self.refused(f"it did not come within its time; {self.received} bytes are there")
            read = stream.read1  # what is there now, as a slow server must not hide that the time is over
        return read(CHUNK)

    @staticmethod
    def _skip(response: Any, count: int) -> None:
        while count:
            part = response.read(min(count, CHUNK))
            if not part:
                raise Interrupted("the connection ended while skipping what is already there")
            count -= len(part)
