# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The one masker: takes secrets, in every form a program may print them, out of what people get to see (pure)."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Any

MASK = "********"
#: Shorter ones would mask ordinary text without protecting anything.
SHORTEST = 4
#: The same for values in a URL's query, and for lines of bootstrap data.
SHORTEST_VALUE, SHORTEST_LINE = 8, 12
#: Bytes by which secrets are looked for; SHORTEST of them are always there.
_BEGIN = SHORTEST

_LOGIN = re.compile(r"(?<=://)[^\s/?#\"'<>@]*(?:@[^\s/?#\"'<>@]*)*@")
#: What is behind a key that names a secret, on its line; not a switch, a number, or what is spread over more lines.
_VALUE = re.compile(
    r"((?:pass(?:word|wd|phrase)?|token|secret|auth(?:orization)?|credentials?|api[-_]?key|private[-_]?key)[\"']?[ \t]*"
    r"[:=][ \t]*)(?![\"']?(?:true|false|[0-9]*)[\"']?,?[ \t]*$)(?!\{)\S.*",
    re.IGNORECASE | re.MULTILINE,
)


def configuration(text: str) -> str:
    """A configuration file that a person may have written, as it may be shown: no login, and no value of a secret."""
    return _VALUE.sub(rf"\1{MASK}", _LOGIN.sub(f"{MASK}@", text))


def without_login(url: str) -> str:
    """What should be a URL, as an error may repeat it: of all that is before its last @ only the scheme."""
    return re.sub(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*@", rf"\1{MASK}@", url, flags=re.DOTALL)


def of_token(token: str | None) -> list[str]:
    """The secrets in a registry token: itself, both halves of ``user:password``, and what a login makes of it."""
    token = token or ""
    user, colon, password = token.partition(":")
    found = [token, user, password] if colon else [token]
    return found + [form for text in found for form in _base64(text)]


def of_url(url: str | None) -> list[str]:
    """The secrets in a URL: user info and its halves, the query, and each longer value in it."""
    url = url or ""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*:)?(//)?([^/?#]*)", url)
    if match is None:
        raise AssertionError("every part may be missing")
    userinfo = match.group(3).rpartition("@")[0]
    query = url.split("#", 1)[0].partition("?")[2]
    user, colon, password = userinfo.partition(":")
    values = [part.partition("=")[2] or part for part in re.split("[&;]", query)]
    found = [userinfo, query] + ([user, password] if colon else [])
    found += [value for value in values if len(urllib.parse.unquote(value)) >= SHORTEST_VALUE]
    return found + (_base64(urllib.parse.unquote(userinfo)) if userinfo else [])


def of_texts(texts: Iterable[str] | None) -> list[str]:
    """The secrets in texts that a user named: of a URL its login and query, of anything else all of it."""
    return [part for text in texts or () for part in (of_url(text) if "://" in text else of_token(text))]


def of_lines(data: bytes | None) -> list[str]:
    """The lines of bootstrap data (bytes) that are too long to be ordinary text, without their indent.

    An item of a YAML list counts without its dashes, too: so it is run, and so it is repeated in an error.
    """
    lines = {line.strip() for line in re.split(rb"[\r\n]+", data or b"")}
    lines |= {re.sub(rb"\A(- +)+", b"", line) for line in lines}
    return [line.decode("utf-8", "surrogateescape") for line in sorted(lines) if len(line) >= SHORTEST_LINE]


def _encoded(text: str) -> bytes:
    """Text as bytes; what came from bytes becomes the same ones again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _base64(text: str) -> list[str]:
    data = _encoded(text)
    plain, safe = base64.b64encode(data).decode("ascii"), base64.urlsafe_b64encode(data).decode("ascii")
    return [plain.rstrip("="), safe.rstrip("=")] if len(data) >= SHORTEST else []


def _forms(secret: str) -> set[bytes]:
    """A secret as it is, percent-decoded and percent-encoded in the ways that programs do it, and in JSON."""
    decoded = {secret, urllib.parse.unquote(secret, errors="surrogateescape"), urllib.parse.unquote_plus(secret)}
    forms = set(decoded)
    for text in decoded:
        data = _encoded(text)
        for safe in ("", "/", "!$&'()*+,;=:@/?-._~"):
            encoded = urllib.parse.quote(data, safe=safe)
            forms.update((encoded, re.sub("%..", lambda match: match.group().lower(), encoded)))
        forms.add(urllib.parse.quote_plus(data))
        forms.update(json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return {_encoded(form) for form in forms}


class Masker:
    """Replaces secrets everywhere in text or bytes, overlapping ones as a whole.

    ``plain`` are secrets of which only the form as it is counts: many, such as the lines of bootstrap data.
    """

    def __init__(self, secrets: Iterable[str], plain: Iterable[str] = ()) -> None:
        found = {form for secret in secrets if secret and len(secret) >= SHORTEST for form in _forms(secret)}
        found.update(_encoded(secret) for secret in plain if secret)
        self._by_begin: dict[bytes, list[bytes]] = {}
        for form in found:
            if len(form) >= SHORTEST:
                self._by_begin.setdefault(form[:_BEGIN], []).append(form)
        for forms in self._by_begin.values():
            forms.sort(key=len, reverse=True)
        self._begin = re.compile(b"(?=(%s))" % _alternatives(self._by_begin), re.DOTALL) if self._by_begin else None

    def data(self, data: bytes) -> bytes:
        """``data`` with every secret replaced."""
        return self._replaced(data, self._found(data))

    def text(self, text: str) -> str:
        """``text`` with every secret replaced."""
        return self.data(_encoded(text)).decode("utf-8", "replace")

    def torn(self, data: bytes) -> bytes:
        """The same for data that was cut at both ends: a part of a secret at one of these ends is replaced, too."""
        found = self._found(data)
        for form in (form for forms in self._by_begin.values() for form in forms):
            for length in range(min(len(form) - 1, len(data)), SHORTEST - 1, -1):
                if data.startswith(form[-length:]):
                    found.append((0, length))
                    break
        pending = self._pending(data)
        if len(data) - pending >= SHORTEST:
            found.append((pending, len(data)))
        return self._replaced(data, sorted(found))

    def _found(self, data: bytes) -> list[tuple[int, int]]:
        """(begin, end) of every secret in data, sorted; of those that begin at one place, the longest."""
        found: list[tuple[int, int]] = []
        if self._begin is None:
            return found
        for match in self._begin.finditer(data):
            place = match.start()
            for form in self._by_begin[match.group(1)]:
                if data.startswith(form, place):
                    found.append((place, place + len(form)))
                    break
        return found

    def _pending(self, data: bytes) -> int:
        """Where the first secret begins that data may hold a part of, at its end; its length when there is none."""
        if self._begin is None:
            return len(data)
        for match in self._begin.finditer(data):
            place = match.start()
            rest = len(data) - place
            if any(len(form) > rest and form.startswith(data[place:]) for form in self._by_begin[match.group(1)]):
                return place
        for place in range(max(0, len(data) - _BEGIN + 1), len(data)):
            if any(begin.startswith(data[place:]) for begin in self._by_begin):
                return place
        return len(data)

    @staticmethod
    def _replaced(data: bytes, found: Iterable[tuple[int, int]]) -> bytes:
        parts, done, until = [], 0, -1
        for begin, end in found:
            if begin >= until:  # else it overlaps the one before
                parts += [data[done:begin], MASK.encode("ascii")]
            done = until = max(until, end)
        return b"".join([*parts, data[done:]])


def _alternatives(begins: Iterable[bytes]) -> bytes:
    """A pattern for many words of one length that needs a few steps at each place."""
    tree: dict[int, Any] = {}
    for word in begins:
        place = tree
        for byte in word:
            place = place.setdefault(byte, {})
    return _pattern(tree)


def _pattern(tree: dict[int, Any]) -> bytes:
    branches = [re.escape(bytes([byte])) + (_pattern(more) if more else b"") for byte, more in sorted(tree.items())]
    return b"(?:%s)" % b"|".join(branches)
