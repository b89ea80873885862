# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the initramfs of the live image prints on its serial port, read line by line (pure)."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field

_FACT = re.compile(r"lab-coreos ([0-9]+\.[0-9]+) ([a-z]+) ?(.*)\Z")
_DATA = re.compile(r"lab-coreos-data ([A-Za-z0-9+/]+=*)\Z")


@dataclass(frozen=True)
class Written:
    """A file that the Ignition brought."""

    mode: int
    sha256: str


@dataclass
class Seen:
    """One boot, as far as it came."""

    arguments: str = ""
    kernel: str = ""
    ignition: bytes | None = None
    ignition_state: str = ""  # none; ignored (no kernel argument asks for it); read
    profiles: dict[str, str] = field(default_factory=dict)  # NetworkManager profiles in the initramfs → SHA-256
    address: str = ""  # how the initramfs got one: dhcp or static, interface, address
    root: str = ""  # medium, network or initramfs
    rootfs_sha256: str = ""
    files: dict[str, Written] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)  # enabled or disabled
    starts: dict[str, list[str]] = field(default_factory=dict)  # unit → the commands it would run
    keys: dict[str, int] = field(default_factory=dict)  # user → number of SSH keys
    failed: str = ""
    ended: bool = False
    uptime: dict[str, float] = field(default_factory=dict)  # fact → seconds since the kernel began


class Reader:
    """Give it the lines of the console; `seen` is what they say."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self.seen = Seen()
        self._data: list[str] = []
        self._digest = ""

    def line(self, text: str) -> str:
        """Read one line; returns the name of the fact in it, or an empty text."""
        text = text.rstrip("\r\n")
        data = _DATA.search(text)
        if data:
            self._data.append(data[1])
            return ""
        found = _FACT.search(text)
        if not found:
            return ""
        if self._data:
            self._take_ignition()
        name, value = found[2], found[3]
        self.seen.uptime.setdefault(name, float(found[1]))
        self._fact(name, value)
        return name

    def _fact(self, name: str, value: str) -> None:
        seen, words = self.seen, value.split(" ")
        if name == "begin":
            seen.kernel = value
        elif name == "arguments":
            seen.arguments = value
        elif name == "ignition":
            seen.ignition_state = value if value in ("none", "ignored") else "read"
            self._digest = words[0]
        elif name == "profile":
            seen.profiles[value.partition(" ")[2]] = words[0]
        elif name == "address":
            seen.address = value
        elif name == "root":
            seen.root, seen.rootfs_sha256 = words[0], words[1] if len(words) > 1 else ""
        elif name == "file":
            mode, digest, path = value.split(" ", 2)
            seen.files[path] = Written(int(mode, 8), digest)
        elif name == "unit":
            seen.units[words[1]] = words[0]
        elif name == "start":
            seen.starts.setdefault(words[0], []).append(value.partition(" ")[2])
        elif name == "user":
            seen.keys[words[1]] = int(words[0])
        elif name == "failed":
            seen.failed = value
        elif name == "end":
            seen.ended = True

    def _take_ignition(self) -> None:
        """What came in lines is believed when it is whole."""
        try:
            config = base64.b64decode("".join(self._data), validate=True)
        except ValueError:
            config = b""
        self._data = []
        if hashlib.sha256(config).hexdigest() == self._digest:
            self.seen.ignition = config
        else:
            self.seen.failed = "the Ignition on the console is not the one whose digest was told"
