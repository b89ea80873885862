# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Image URLs: where to read, how to log in, and the switches behind the #."""

from __future__ import annotations

import re
import urllib.parse

from ..._common.web import registry_place, split_login
from .basics import Refused

# --- The switches behind the # of an image URL.


class Switched:
    """An image URL as far as its switches go; the fragment that holds them is never sent to a server."""

    SWITCHES: tuple[str, ...] = ()

    def __init__(self, fragment: str) -> None:
        self.switches = self._switches(fragment)

    @classmethod
    def _switches(cls, fragment: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in urllib.parse.parse_qsl(fragment, keep_blank_values=True):
            if name not in cls.SWITCHES or name in found:
                why = "is given twice" if name in found else f"is unknown; known are {', '.join(cls.SWITCHES)}"
                raise Refused(f"image URL: the switch {name!r} behind the # {why}")
            found[name] = value
        for name in ("adapt", "grow", "keys", "plain-http"):
            if found.get(name, "yes") not in ("yes", "no"):
                raise Refused(f"image URL: {name}={found[name]} is neither yes nor no")
        if not re.fullmatch("[1-9][0-9]{0,3}", found.get("stall", "30")):
            raise Refused(f"image URL: stall={found['stall']} is not a number of seconds from 1 to 9999")
        return found

    def wants(self, name: str, default: str = "yes") -> bool:
        """Whether a switch with yes and no is on."""
        return self.switches.get(name, default) == "yes"

    @property
    def stall(self) -> float:
        """Seconds without a byte after which a connection counts as dead."""
        return float(self.switches.get("stall", "30"))


# --- The image URL: where to read, how to log in, and switches.


class ImageUrl(Switched):
    """The image URL taken apart: where to read, how to log in, and the switches of its fragment."""

    SWITCHES: tuple[str, ...] = ("sha256", "sha512", "adapt", "grow", "keys", "stall")

    def __init__(self, text: str) -> None:
        if not re.fullmatch("[!-~]+", text):
            raise Refused("image URL: spaces, control and non-ASCII characters must be percent-encoded")
        try:
            self.parts = urllib.parse.urlsplit(text)
            host, port = self.parts.hostname or "", self.parts.port
        except ValueError:
            # its text may hold a piece of the login
            raise Refused("image URL: its address or its port is none") from None
        if self.parts.scheme not in ("http", "https", "file"):
            raise Refused(f"image URL: scheme {self.parts.scheme!r} is not supported; use http or https")
        if self.parts.scheme != "file" and not host:
            raise Refused(f"image URL: the host is missing; write {self.parts.scheme}://HOST/PATH")
        if port == 0:
            raise Refused("image URL: no server has the port 0")
        if not self.parts.path.strip("/"):
            raise Refused("image URL: the path of the image is missing")
        self.netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        self.authorization = split_login(text)[1]
        super().__init__(self.parts.fragment)

    def location(self, suffix: str = "") -> str:
        """What is really requested: without login and fragment, the suffix behind the path."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, self.parts.query, ""))

    def shown(self, suffix: str = "") -> str:
        """What may be printed and recorded: no login, no query, no fragment."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, "", ""))


# --- The image URL of an image in a registry.


HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
NAME_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
REFERENCE = re.compile(
    r"oci://(?P<host>%s)/(?P<name>%s(?:/%s)*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>%s))?"
    % (HOST, NAME_PART, NAME_PART, DIGEST)
)


class OciUrl(Switched):
    """oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, with switches behind the #."""

    SWITCHES = ("keys", "stall", "grow", "layout", "file", "plain-http", "cosign-key")

    def __init__(self, text: str) -> None:
        place, _hash, fragment = text.partition("#")
        super().__init__(fragment)
        if "@" in place.partition("://")[2].partition("/")[0]:
            raise Refused("image URL: a login in it would be seen by many; give it as OCI_REGISTRY_AUTH_TOKEN")
        found = REFERENCE.fullmatch(place)
        if not found:
            raise Refused("image URL: not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case")
        self.host, self.name = found.group("host"), found.group("name")
        self.tag, self.digest = found.group("tag") or "", found.group("digest") or ""
        if not self.tag and not self.digest:
            raise Refused("image URL: it names neither a tag nor a digest; add :TAG or @sha256:…")
        port = self.host.rpartition("]")[2].rpartition(":")[2] if ":" in self.host.rpartition("]")[2] else "443"
        if not 0 < int(port) <= 65535:
            raise Refused(f"image URL: no registry has the port {port}")
        self.host, self.name = registry_place(self.host, self.name)
        self.shown = place
        self.scheme = "http" if self.wants("plain-http", "no") else "https"

    @property
    def reference(self) -> str:
        """What to ask the registry for; a digest wins over a tag."""
        return self.digest or self.tag

    def location(self, kind: str, reference: str) -> str:
        """Where a manifest or a blob is."""
        return f"{self.scheme}://{self.host}/v2/{self.name}/{kind}/{reference}"
