# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The promised digest: where it comes from, and that it is kept."""

from __future__ import annotations

import hashlib
import re

from commands.parts.errors import HttpStatus, Refused
from commands.parts.sizes import CHUNK
from commands.parts.source import Source
from commands.parts.stream import blocks

LENGTH = {"sha256": 64, "sha512": 128}


class Digest:
    """Hashes the image as it was downloaded and compares it with what the user or the server promised."""

    def __init__(self, algorithm: str, expected: str):
        if expected != "none" and not re.fullmatch("[0-9a-f]{%d}" % LENGTH[algorithm], expected):
            raise Refused("image digest: %s=%.140s is not %d hex digits" % (algorithm, expected, LENGTH[algorithm]))
        self.algorithm, self.expected = algorithm, expected
        self.hash = hashlib.new(algorithm)

    @classmethod
    def of(cls, source: Source) -> Digest:
        """Find the promised digest: in the fragment, else in the .sha256 file beside the image."""
        url = source.url
        given = [name for name in LENGTH if name in url.switches]
        if len(given) > 1:
            raise Refused("image URL: give sha256 or sha512, not both")
        if given:
            return cls(given[0], url.switches[given[0]].lower())
        try:
            text = next(blocks(source.beside(".sha256").chunks(), CHUNK), b"").decode("utf-8", "replace")
        except HttpStatus as error:
            raise Refused(
                "image digest: the URL names none and %s. Add #sha256=<64 hex digits> to the URL, "
                "publish a .sha256 file beside the image, or accept any content with #sha256=none" % error
            ) from None
        return cls("sha256", cls.pick(text, url.parts.path.rsplit("/", 1)[-1]))

    @staticmethod
    def pick(text: str, name: str) -> str:
        """Take the digest of the file `name` out of a checksum file: bare, sha256sum or BSD style."""
        found = {}
        for line in text.splitlines():
            plain = re.fullmatch(r"\\?([0-9a-fA-F]{64})(?:\s+\*?(.+?))?\s*", line)
            bsd = re.fullmatch(r"SHA256 \((.+)\) = ([0-9a-fA-F]{64})\s*", line)
            if plain:
                found[(plain.group(2) or name).rsplit("/", 1)[-1]] = plain.group(1).lower()
            elif bsd:
                found[bsd.group(1).rsplit("/", 1)[-1]] = bsd.group(2).lower()
        if name in found or len(found) == 1:
            return found.get(name) or next(iter(found.values()))
        raise Refused("image digest: the .sha256 file beside the image holds no SHA-256 digest of %r" % name)

    def watch(self, chunks):
        """Pass the chunks on and hash them."""
        for chunk in chunks:
            self.hash.update(chunk)
            yield chunk

    def check(self) -> None:
        """Refuse the image unless its digest is the promised one."""
        if self.expected not in ("none", self.hash.hexdigest()):
            raise Refused(
                "image digest: %s is %s, expected %s; the image is damaged or not the one you meant"
                % (self.algorithm, self.hash.hexdigest(), self.expected)
            )
