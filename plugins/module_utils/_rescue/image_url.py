# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which image URLs are taken: exactly those that Go's ``url.ParseRequestURI`` takes (Go 1.26), as CAPH does (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable

_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(rb"%(.{0,2})", re.DOTALL)
_HEX = re.compile(rb"[0-9A-Fa-f]{2}\Z")
_PORT = re.compile(rb"(:[0-9]*)?\Z")
_USERINFO = re.compile(rb"[A-Za-z0-9._:~!$&'()*+,;=%@-]*\Z")
#: What a host may hold besides bytes ≥ 0x80: unreserved, sub-delims, and the brackets and quotes Go lets pass.
_NOT_IN_HOST = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"%\x80-\xff-]")
_HOST_BYTE = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"-]")
_IPV6_GROUP = re.compile(rb"[0-9A-Fa-f]{1,4}\Z")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
_REFERENCE_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
#: A reference to an image in a registry, without the # and the text after it. It takes more than the shipped image
#: commands do (imagecommand/url.py), as the image of a user's own command is looked up, too.
OCI_REFERENCE = re.compile(
    r"oci://(?P<host>[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?)/(?P<name>[a-z0-9/._-]+)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha(?:256|512):[0-9a-f]+))?\Z"
)
_IPV4_FIELD = re.compile(rb"(0|[1-9][0-9]{0,2})\Z")


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
    """Whether Go's ``netip.ParseAddr`` reads ``text`` (without zone) as an IPv6 address."""
    head, double, tail = text.partition(b"::")
    if double and b"::" in tail:
        return False
    groups = [part.split(b":") if part else [] for part in (head, tail)] if double else [text.split(b":")]
    if double and (head.endswith(b":") or tail.startswith(b":")):
        return False
    flat = [group for part in groups for group in part]
    size = 0
    for index, group in enumerate(flat):
        if b"." in group and index == len(flat) - 1 and (groups[-1] or not double):
            fields = group.split(b".")
            if len(fields) != 4 or not all(_IPV4_FIELD.match(field) and int(field) < 256 for field in fields):
                return False
            size += 2
        elif _IPV6_GROUP.match(group):
            size += 1
        else:
            return False
    return size < 8 if double else size == 8
