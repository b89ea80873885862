# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switches behind the # of an image URL."""

from __future__ import annotations

import re
import urllib.parse

from commands.parts.errors import Refused


class Switched:
    """An image URL as far as its switches go; the fragment that holds them is never sent to a server."""

    SWITCHES: tuple[str, ...] = ()

    def __init__(self, fragment: str):
        self.switches = self._switches(fragment)

    @classmethod
    def _switches(cls, fragment: str) -> dict:
        found: dict = {}
        for name, value in urllib.parse.parse_qsl(fragment, keep_blank_values=True):
            if name not in cls.SWITCHES or name in found:
                why = "is given twice" if name in found else "is unknown; known are %s" % ", ".join(cls.SWITCHES)
                raise Refused("image URL: the switch %r behind the # %s" % (name, why))
            found[name] = value
        for name in ("adapt", "grow", "keys", "plain-http"):
            if found.get(name, "yes") not in ("yes", "no"):
                raise Refused("image URL: %s=%s is neither yes nor no" % (name, found[name]))
        if not re.fullmatch("[1-9][0-9]{0,3}", found.get("stall", "30")):
            raise Refused("image URL: stall=%s is not a number of seconds from 1 to 9999" % found["stall"])
        return found

    def wants(self, name: str, default: str = "yes") -> bool:
        """Whether a switch with yes and no is on."""
        return self.switches.get(name, default) == "yes"

    @property
    def stall(self) -> float:
        """Seconds without a byte after which a connection counts as dead."""
        return float(self.switches.get("stall", "30"))
