# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image URL of an image in a registry."""

from __future__ import annotations

import re

from commands.parts.errors import Refused
from commands.parts.switches import Switched

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

    def __init__(self, text: str):
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
            raise Refused("image URL: no registry has the port %s" % port)
        if self.host == "docker.io":
            self.host = "registry-1.docker.io"
            self.name = self.name if "/" in self.name else "library/" + self.name
        self.shown = place
        self.scheme = "http" if self.wants("plain-http", "no") else "https"

    @property
    def reference(self) -> str:
        """What to ask the registry for; a digest wins over a tag."""
        return self.digest or self.tag

    def location(self, kind: str, reference: str) -> str:
        """Where a manifest or a blob is."""
        return "%s://%s/v2/%s/%s/%s" % (self.scheme, self.host, self.name, kind, reference)
