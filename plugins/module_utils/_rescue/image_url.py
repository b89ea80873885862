# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which image URLs are taken, and whether an image can be fetched.

Taken are exactly those that Go's ``url.ParseRequestURI`` takes (Go 1.26), as CAPH does. A rescue asks for the image
before the first byte of a disk is emptied for it: the server for the head of the file, or for its first byte; a
registry for the manifest, with the same login as the shipped image commands use. Schemes that are not ours are not
looked at: only the user's own image command knows what they mean.
"""

from __future__ import annotations

import http.client
import ipaddress
import itertools
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from .._common import web
from .._common.web import BUSY, NO_TLS

_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(rb"%(.{0,2})", re.DOTALL)
_HEX = re.compile(rb"[0-9A-Fa-f]{2}\Z")
_PORT = re.compile(rb"(:[0-9]*)?\Z")
_USERINFO = re.compile(rb"[A-Za-z0-9._:~!$&'()*+,;=%@-]*\Z")
#: What a host may hold besides bytes ≥ 0x80: unreserved, sub-delims, and the brackets and quotes Go lets pass.
_NOT_IN_HOST = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"%\x80-\xff-]")
_HOST_BYTE = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"-]")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
_REFERENCE_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
#: A reference to an image in a registry, without the # and the text after it. It takes more than the shipped image
#: commands do (imagecommand/invocation.py), as the image of a user's own command is looked up, too.
OCI_REFERENCE = re.compile(
    r"oci://(?P<host>[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?)/(?P<name>[a-z0-9/._-]+)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha(?:256|512):[0-9a-f]+))?\Z"
)


class InvalidImageURL(ValueError):
    """The URL is refused; the text says why, without repeating the URL (it may hold credentials)."""


def check_image_url(url: str) -> str:
    """Return ``url`` when Go's ``url.ParseRequestURI`` takes it, else raise :class:`InvalidImageURL`."""
    raw = url.encode("utf-8", "surrogateescape")
    if _CONTROL.search(raw):
        raise InvalidImageURL("it holds a control character")
    if not raw:
        raise InvalidImageURL("it is empty")
    if raw == b"*":
        return url
    if raw.startswith(b":"):
        raise InvalidImageURL("the scheme before the first colon is missing")
    scheme, rest = _split_scheme(raw)
    rest = rest.split(b"?", 1)[0]
    if not rest.startswith(b"/"):
        if scheme:
            return url
        raise InvalidImageURL("it is neither an absolute URL (scheme://…) nor an absolute path")
    if scheme and rest.startswith(b"//"):
        authority, slash, path = rest[2:].partition(b"/")
        _check_authority(authority)
        rest = slash + path
    _check_escapes(rest)
    return url


def redact(url: str) -> str:
    """The URL without user info, query and fragment: what may be recorded and shown."""
    raw = url.split("#", 1)[0].split("?", 1)[0]
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*:)?(//)?([^/]*)(.*)\Z", raw, re.DOTALL)
    if match is None:
        raise AssertionError("every part may be missing")
    scheme, slashes, authority, path = (part or "" for part in match.groups())
    before, dummy, behind = authority.rpartition("@")
    if slashes or (scheme and (":" in before or not re.match(r"sha(256|512):", behind))):
        authority = behind
    elif not scheme and not raw.startswith("/") and ":" in raw.rpartition("@")[0]:
        # Neither a URL nor a path, such as https//user:password@host/x.
        return "…@" + raw.rpartition("@")[2]
    return scheme + slashes + authority + path


def digest_in(url: str) -> str:
    """The digest that pins what the URL names, as ``sha256:…``; empty when there is none.

    ``#sha256=…`` and ``#sha512=…`` are switches of the shipped commands, ``oci://…@sha256:…`` is a reference by digest.
    """
    place, dummy, fragment = url.partition("#")
    if place.lower().startswith("oci://"):
        found = _REFERENCE_DIGEST.search(place)
        return found.group(1) if found else ""
    for switch in fragment.split("&"):
        name, dummy, value = switch.partition("=")
        if _DIGEST.match(f"{name}:{value.lower()}"):
            return f"{name}:{value.lower()}"
    return ""


def _split_scheme(raw: bytes) -> tuple[bytes, bytes]:
    match = _SCHEME.match(raw)
    return (match.group(1), match.group(2)) if match else (b"", raw)


def _check_authority(authority: bytes) -> None:
    userinfo, at, host = authority.rpartition(b"@")
    _check_host(host)
    if at:
        if not _USERINFO.match(userinfo):
            raise InvalidImageURL("the user info before '@' holds a character that must be %-escaped")
        # Go splits at the first colon and unescapes both halves: an escape cannot reach across it.
        for part in userinfo.split(b":", 1):
            _check_escapes(part)


def _check_host(host: bytes) -> None:
    bracket = host.rfind(b"[")
    if bracket > 0:
        raise InvalidImageURL("'[' inside of the host: only an IPv6 address stands in brackets")
    if bracket == 0:
        end = host.rfind(b"]")
        if end < 0:
            raise InvalidImageURL("the ']' of the IPv6 address is missing")
        _check_port(host[end + 1 :])
        _check_ipv6_literal(host[1:end])
        return
    name, colon, port = host.partition(b":")
    _check_port(colon + port)
    _unescape_host(name)


def _check_port(port: bytes) -> None:
    if not _PORT.match(port):
        raise InvalidImageURL("the port after the host is not a number")


def _check_ipv6_literal(literal: bytes) -> None:
    address, zone_mark, zone = literal.partition(b"%25")
    text = _unescape_host(address)
    if zone_mark:
        text += b"%" + _unescape_zone(zone)
    address, percent, zone = text.partition(b"%")
    if percent and not zone:
        raise InvalidImageURL("the zone of the IPv6 address is empty")
    if not _is_ipv6(address):
        raise InvalidImageURL("what stands in brackets is not an IPv6 address")


def _unescape_host(text: bytes) -> bytes:
    bad = _NOT_IN_HOST.search(text)
    if bad:
        raise InvalidImageURL(f"the host holds {bad.group().decode('latin-1')!r}, which no host name may hold")

    def unescape(digits: bytes) -> None:
        # In a host, escapes are for bytes that are not ASCII, and for the percent sign of an IPv6 zone.
        if digits[:1] < b"8" and digits != b"25":
            raise InvalidImageURL(f"the host holds the escape %{digits.decode()}; only bytes ≥ 80 may be escaped there")

    return _check_escapes(text, unescape)


def _unescape_zone(text: bytes) -> bytes:
    bad = _NOT_IN_HOST.search(text)
    if bad:
        raise InvalidImageURL(f"the zone of the IPv6 address holds {bad.group().decode('latin-1')!r}")

    def unescape(digits: bytes) -> None:
        byte = bytes([int(digits, 16)])
        if digits != b"25" and byte != b" " and not _HOST_BYTE.match(byte):
            raise InvalidImageURL(f"the zone of the IPv6 address holds the escape %{digits.decode()}")

    return _check_escapes(text, unescape)


def _check_escapes(text: bytes, check: Callable[[bytes], object] | None = None) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        digits = match.group(1)
        if not _HEX.match(digits):
            shown = match.group().decode("utf-8", "replace")
            raise InvalidImageURL(f"it holds {shown!r}: a percent sign needs two hexadecimal digits (%25 for the sign)")
        if check:
            check(digits)
        return bytes([int(digits, 16)])

    return _ESCAPE.sub(replace, text)


def _is_ipv6(text: bytes) -> bool:
    """Whether Go's ``netip.ParseAddr`` reads ``text`` (without zone) as an IPv6 address, as Python does."""
    try:
        ipaddress.IPv6Address(text.decode("ascii"))
    except ValueError:
        return False
    return True


#: Seconds for one answer, and for all tries together: a rescue's network may be coming up, a server may start again.
ANSWER, ALL = 20.0, 60.0
#: The fewest tries, however long they take, and the longest pause between two of them.
TRIES, PAUSE = 4, 8.0
_MOST_BYTES = 1 << 20


class NotFetchable(Exception):
    """The server would not hand out the image; the text says why, and holds no secret."""


class _Final(Exception):
    """An error that no other try heals."""


class _Status(Exception):
    """The server answered with an error status."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        super().__init__(f"HTTP {error.code} {error.reason}")
        self.code = error.code
        #: How it wants us to log in.
        self.challenges = error.headers.get_all("WWW-Authenticate", []) if error.headers else []


def check_fetchable(url: str, token: str = "", pause: float = 1.0, patience: float = ALL) -> None:
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
        except (http.client.HTTPException, OSError) as error:
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
    except (_Status, OSError, http.client.HTTPException):
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
        raise ConnectionError(str(error.reason)) from None


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
