# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Fetches one file over HTTP: with the system's proxies and CA, resumed where it was cut, verified by its digest."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number

_CHUNK = 1 << 18
#: How long one connection may be silent, in seconds.
_SILENCE = 30
#: Bytes that stay free on the disk.
RESERVE = 64 << 20
#: Answers that may be others when the question is asked again.
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_PAUSE = 20
#: So many bytes begin the count of attempts anew.
_MUCH = 1 << 20


class FetchError(Exception):
    """A file cannot be fetched; the text names the URL without credentials, and the reason."""


class _Again(Exception):
    """This attempt failed, another one may not."""

    def __init__(self, text, pause=None):
        super().__init__(text)
        self.pause = pause


def public(url):
    """A URL as it may be shown: without user, password, query and fragment. Pure."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def secrets(urls):
    """The passwords in URLs, which must not appear in any output. Pure."""
    found: set[str] = set()
    for url in urls:
        user = re.match(r"[a-z]+://[^/@?#]*:([^/@?#]+)@", url)
        if user:
            found.update((user.group(1), urllib.parse.unquote(user.group(1))))
        # a signature or a token
        found.update(value for value in re.findall(r"[?&][^=&#]+=([^&#]{8,})", url))
    return found


def url_error(url):
    """What is wrong with a URL; None when nothing is. Pure."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except (ValueError, AttributeError):
        good = False
    if not good or re.search(r"[\x00-\x20\x7f]", url):
        return "must be an http or https URL"
    return None


#: algorithm → hexadecimal digits
ALGORITHMS = {"sha256": 64, "sha512": 128}


class _Part:
    """What is there of a file, with the digest of that much."""

    def __init__(self, path, algorithm):
        self.path, self.size, self.resumed, self._algorithm = path, 0, False, algorithm
        self._digest = hashlib.new(algorithm)
        #: bytes that came from the network, in all attempts
        self.came = 0
        try:
            with open(path, "rb") as file:
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    self.grew(chunk)
        except FileNotFoundError:
            pass

    @property
    def digest(self):
        """Of what is there."""
        return self._digest.hexdigest()

    def grew(self, chunk):
        """These bytes were added."""
        self.size += len(chunk)
        self._digest.update(chunk)

    def restart(self):
        """Throw away what is there."""
        with open(self.path, "wb"):
            pass
        self.size, self.resumed, self._digest = 0, False, hashlib.new(self._algorithm)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but gives the user's headers to no other host, and does not leave https."""

    def __init__(self, private):
        self._private = {name.lower() for name in private}

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Called by urllib for each redirect."""
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        new.port  # noqa: B018 - raises ValueError when it is none
        if new.scheme != "https" and (old.scheme == "https" or new.scheme != "http"):
            raise FetchError("%s redirects to %s, which is not https" % (public(req.full_url), public(newurl)))
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            for held in (request.headers, request.unredirected_hdrs):
                for name in [name for name in held if name.lower() in self._private]:
                    del held[name]
        return request


class Fetcher:
    """Fetches files with the same headers, CA and limits."""

    def __init__(self, headers=None, extra_ca=(), retries=4, timeout=900):
        self._headers, self._retries, self._timeout = dict(headers or {}), retries, timeout
        self._tls = ssl.create_default_context()
        # new with Python 3.13: authorities of one's own often lack what it asks for
        self._tls.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        for text in extra_ca:
            self._tls.load_verify_locations(cadata=text)

    def fetch(self, url, path, digest, algorithm="sha256"):
        """Bring the file with this digest to ``path``, where a part of it may lie; returns the bytes that came.

        Raises FetchError. A part stays for the next run, a wrong file does not.
        """
        deadline = time.monotonic() + self._timeout
        part, attempt = _Part(path, algorithm), 0
        if part.size and part.digest == digest:
            return 0
        while True:
            begun = part.size
            try:
                self._attempt(url, part, deadline)
            except _Again as error:
                # much that came is worth as many attempts again
                attempt = 1 if part.size >= begun + _MUCH else attempt + 1
                pause = min(error.pause if error.pause is not None else 2.0 ** (attempt - 2), _LONGEST_PAUSE)
                if attempt > self._retries or time.monotonic() + pause >= deadline:
                    raise FetchError("%s cannot be fetched: %s" % (public(url), error)) from error
                time.sleep(pause)
                continue
            found = part.digest
            if found == digest:
                return part.came
            resumed = part.resumed
            part.restart()
            if not resumed:
                raise FetchError(
                    "%s has the wrong content: expected %s %s, got %s; check the version, the digest and the mirror"
                    % (public(url), algorithm, digest, found)
                )
            attempt += 1
            # the part that was there may have been of another file: once more, from the beginning

    def _attempt(self, url, part, deadline):
        """One request."""
        headers = dict(self._headers)
        headers.setdefault("User-Agent", "kubenode.provision")
        headers["Accept-Encoding"] = "identity"
        if part.size:
            headers["Range"] = "bytes=%d-" % part.size
        plain, user = _without_user(url)
        if user:
            headers.setdefault("Authorization", user)
        private = [name for name in headers if name not in ("User-Agent", "Accept-Encoding", "Range")]
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._tls),
            _Redirects(private),
        )
        try:
            answer = opener.open(urllib.request.Request(plain, headers=headers), timeout=_patience(deadline))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and part.size:
                part.restart()
                raise _Again("the part that was there does not fit", 0.0) from error
            if error.code in _TRY_AGAIN:
                raise _Again("HTTP %d %s" % (error.code, error.reason), _retry_after(error.headers)) from error
            raise FetchError("%s cannot be fetched: HTTP %d %s" % (public(url), error.code, error.reason)) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                reason = error.reason.verify_message
                raise FetchError("%s shows a certificate that is not trusted: %s" % (public(url), reason)) from error
            raise _Again(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Again(str(error) or type(error).__name__) from error
        except ValueError as error:
            # by urllib, of a redirect; UnicodeError is one, of a host name
            text = "%s cannot be fetched: this or a redirect of the server is no URL: %s" % (public(url), error)
            raise FetchError(text) from error
        with answer:
            _save(answer, url, part, deadline)


def _save(answer, url, part, deadline):
    path = part.path
    if answer.status == 206:
        if not (answer.headers.get("Content-Range") or "").startswith("bytes %d-" % part.size):
            part.restart()
            raise _Again("the server sent another range than was asked for", 0.0)
        part.resumed = True
    else:
        part.restart()
    length = (answer.headers.get("Content-Length") or "").strip(" \t")
    wanted = whole_number(length)
    if length and wanted is None:
        raise _Again("the server does not say the size as a number (Content-Length)")
    enough_space(os.path.dirname(path), wanted or 0, public(url))
    before = part.came
    try:
        with open(path, "ab") as file:
            while True:
                if time.monotonic() > deadline:
                    raise FetchError("%s did not come within its time; %d bytes are there" % (public(url), part.size))
                chunk = answer.read1(_CHUNK)
                if not chunk:
                    break
                file.write(chunk)
                part.grew(chunk)
                part.came += len(chunk)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise FetchError("%s cannot be saved to %s: %s" % (public(url), path, error.strerror)) from error
        raise _Again(str(error) or type(error).__name__) from error
    came = part.came - before
    if wanted is not None and came < wanted:
        raise _Again("the connection ended after %d of %d bytes" % (came, wanted))


def enough_space(folder, size, what):
    """Raise FetchError unless ``size`` bytes fit there."""
    free = shutil.disk_usage(folder).free
    if free < size + RESERVE:
        raise FetchError(
            "%s needs %d bytes in %s, where %d are free (%d stay free)" % (what, size, folder, free, RESERVE)
        )


def _without_user(url):
    """The URL without user and password, and the Authorization header that they mean."""
    parts = urllib.parse.urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    token = base64.b64encode(urllib.parse.unquote(user).encode("utf-8")).decode("ascii")
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), "Basic " + token


def _patience(deadline):
    return max(1.0, min(_SILENCE, deadline - time.monotonic()))


def _retry_after(headers):
    seconds = whole_number(((headers or {}).get("Retry-After") or "").strip(" \t"))
    return None if seconds is None else float(seconds)
