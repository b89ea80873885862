# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether an image can be fetched from this rescue, asked before the first byte of a disk is emptied for it.

The server is asked for the head of the file, or for its first byte. A registry is asked for the manifest, with the
same login as the shipped image commands use. Schemes that are not ours are not looked at: only the user's own image
command knows what they mean.
"""

from __future__ import annotations

import http.client
import itertools
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from .._common import web
from .._common.download import BUSY, NO_TLS
from .image_url import OCI_REFERENCE, redact

#: Seconds for one answer, and for all tries together: a rescue's network may be coming up, a server may start again.
ANSWER, ALL = 20.0, 60.0
#: The fewest tries, however long they take, and the longest pause between two of them.
TRIES, PAUSE = 4, 8.0
_MOST_BYTES = 1 << 20


class NotFetchable(Exception):
    """The server would not hand out the image; the text says why, and holds no secret."""


class _Passing(Exception):
    """An error that another try may heal."""


class _Final(Exception):
    """An error that no other try heals."""


class _Status(Exception):
    """The server answered with an error status."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        super().__init__(f"HTTP {error.code} {error.reason}")
        self.code = error.code
        #: How it wants us to log in.
        self.challenges = error.headers.get_all("WWW-Authenticate", []) if error.headers else []


def check(url: str, token: str = "", pause: float = 1.0, patience: float = ALL) -> None:
    """Returns when the image can be fetched, or no check of ours can find out; raises :class:`NotFetchable`.

    ``pause``: seconds after the first try, which grow; ``patience``: for how long an error that may pass is retried.
    """
    ask = _way_to(url, token)
    if ask is None:
        return
    began = time.monotonic()
    for attempt in itertools.count():
        try:
            ask()
            return
        except _Status as error:
            reason = f"{error}; check the URL and who may read it"
            if error.code not in BUSY:
                break
        except (_Passing, http.client.HTTPException, OSError) as error:
            reason = str(error) or type(error).__name__
        except (_Final, web.BadRedirect) as error:
            reason = str(error)
            break
        except ValueError:
            # by urllib; its text may hold a piece of the address
            reason = "this or a redirect of the server is no URL"
            break
        if attempt + 1 >= TRIES and time.monotonic() - began >= patience:
            break
        time.sleep(min(PAUSE, pause * 2 ** min(attempt, 10)))
    raise NotFetchable(f"{redact(url)} cannot be fetched in this rescue: {reason}")


def _way_to(url: str, token: str) -> Callable[[], object] | None:
    """What asks for the image, once; None for what is not looked at."""
    scheme = url.partition(":")[0].lower()
    if scheme in ("http", "https"):
        try:
            location, login = web.split_login(url)
        except ValueError:
            raise NotFetchable(f"{redact(url)} cannot be fetched: its address or its port is none") from None
        return lambda: _file(location, login)
    place, dummy, fragment = url.partition("#")
    reference = OCI_REFERENCE.match(place) if scheme == "oci" else None
    if reference and (reference.group("tag") or reference.group("digest")):
        plain = urllib.parse.parse_qs(fragment).get("plain-http") == ["yes"]
        return _Registry(reference, "http" if plain else "https", token).ask
    return None


def _file(location: str, login: str) -> bytes | None:
    try:
        return _ask(location, login, "HEAD")
    except (_Status, _Passing, OSError, http.client.HTTPException):
        # Some servers take no HEAD, and a signed URL may be for GET alone.
        try:
            return _ask(location, login, "GET", {"Range": "bytes=0-0"})
        except _Status as error:
            if error.code == 416:  # it is there, and empty
                return None
            raise


def _ask(location: str, login: str, method: str, headers: dict[str, str] | None = None, read: int = 0) -> bytes:
    """The first bytes of a good answer."""
    request = urllib.request.Request(
        location, headers=dict({"User-Agent": web.AGENT}, **(headers or {})), method=method
    )
    request.add_header("Accept-Encoding", "identity")
    if login:
        request.add_unredirected_header("Authorization", login)
    try:
        with urllib.request.build_opener(web.Redirects).open(request, timeout=ANSWER) as response:
            return response.read(read) if read else b""
    except urllib.error.HTTPError as error:
        with error:
            raise _Status(error) from None
    except http.client.InvalidURL:
        raise ValueError("characters that must be percent-encoded") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise _Final(error.reason.verify_message) from None
        if getattr(error.reason, "reason", "") in NO_TLS:
            raise _Final("the server does not speak TLS (https) there") from None
        raise _Passing(str(error.reason)) from None


class _Registry:
    """One manifest of a registry, and the logins that may be tried for it."""

    def __init__(self, reference: re.Match[str], scheme: str, token: str) -> None:
        host, name = web.registry_place(reference.group("host"), reference.group("name"))
        wanted = reference.group("digest") or reference.group("tag")
        self._location = f"{scheme}://{host}/v2/{name}/manifests/{wanted}"
        self._scheme, self._name, self._given = scheme, name, bool(token)
        self._basic, logins = web.registry_logins(token)
        self._logins = logins or [""]

    def ask(self) -> bytes:
        """Raises unless the registry shows that the manifest is there."""
        logins, tried = list(self._logins), 0
        while True:
            login, tried = logins.pop(0), tried + 1
            try:
                return self._manifest(login)
            except _Status as error:
                if error.code not in (401, 403, 404):
                    raise
                if error.code == 401 and not logins and tried < 3:
                    logins = [one for one in [self._answer_to(error.challenges)] if one and one != login]
                if error.code != 401 or not logins:
                    raise _Final(f"{error}; {self._way_out(error.code)}") from None

    def _manifest(self, login: str) -> bytes:
        headers = {"Accept": ", ".join(web.MANIFEST_TYPES)}
        try:
            return _ask(self._location, login, "HEAD", headers)
        except _Status as error:
            if error.code in (401, 404):
                raise
        return _ask(self._location, login, "GET", headers)

    def _answer_to(self, challenges: list[str]) -> str:
        """The login that one of the challenges asks for; empty when there is none."""
        for scheme, values in map(web.parse_challenge, challenges):
            if scheme == "bearer" and values.get("realm") and (self._basic or not self._given):
                return "Bearer " + self._token_of(values)
            if scheme == "basic" and self._basic:
                return self._basic
        return ""

    def _token_of(self, values: dict[str, str]) -> str:
        try:
            location, host = web.token_server(values, self._scheme, self._name)
        except web.BadRedirect as error:
            raise _Final(f"the registry wants the login sent to {error.scheme}, refused") from None
        try:
            token = web.token_in(_ask(location, self._basic, "GET", read=_MOST_BYTES))
        except _Status as error:
            if error.code in BUSY:
                raise
            text = f"no token from {host}: {error}; {self._way_out(401)}"
            raise _Final(text) from None
        except ValueError:  # a redirect that is no URL
            token = ""
        if not token:
            raise _Final(f"{host} handed out no token")
        return token

    def _way_out(self, code: int) -> str:
        if code == 404:
            return "there is no such manifest; check registry, name and tag"
        if code == 403:
            return "kubenode_registry_token may not read it" if self._given else "it is not public"
        if self._given:
            return "the registry does not accept kubenode_registry_token, which is user:password or a token"
        return "set kubenode_registry_token to user:password or to a token"
