# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a root file system is, and whether it may become a node image. Nothing in it is run, no link is followed."""

from __future__ import annotations

import os
import re
import stat
from typing import Any

from ..._common.text import json_value
from ..installimage import config_words
from .tree import NotPacked

_MOST = 1 << 20
_RELEASES = ("usr/lib/os-release", "etc/os-release")
_PROGRAMS = ("usr/lib/systemd/systemd", "lib/systemd/systemd", "usr/bin/env", "bin/busybox", "usr/bin/busybox")
#: Machine type of ELF → what the kernel calls it.
_ELF = {3: "i686", 62: "x86_64", 183: "aarch64"}
#: ID of os-release → the word that installimage looks for.
_DISTROS = {"almalinux": "alma", "opensuse-leap": "suse", "opensuse-tumbleweed": "suse", "sles": "suse"}
_DPKG = "var/lib/dpkg/info"
#: Files that only one machine can have.
_KEYS = re.compile(r"(?:ssh_host_[a-z0-9]+|dropbear_[a-z0-9]+_host)_key\Z")
_OF_ONE = (
    ("etc/kubernetes/kubelet.conf", "it has joined a cluster"),
    ("etc/kubernetes/bootstrap-kubelet.conf", "it holds a cluster's bootstrap token"),
    ("var/lib/kubelet/pki", "it holds a node's keys"),
    ("var/lib/cloud/instance", "cloud-init ran for one machine"),
    ("root/.ssh/authorized_keys", "it lets its owner log in"),
    ("etc/kubenode/installed.json", "it is recorded as installed on one machine"),
)


class Root:
    """Facts of the root file system below ``top``."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.release: dict[str, str] = next((found for found in map(self._release, _RELEASES) if found), {})
        if not self.release:
            raise NotPacked(f"{top} is no root file system: there is neither /usr/lib/os-release nor /etc/os-release")
        self.name = self.release.get("PRETTY_NAME") or self.release.get("NAME") or "unknown system"
        self.machine = self._machine()
        self.base = self._base()

    def check_name(self, file_name: str) -> None:
        """Refuse a file name in which installimage reads another distribution, version or architecture."""
        try:
            named = config_words.parse_image_name(file_name)
        except config_words.InvalidImageName as error:
            raise NotPacked(f"name {file_name!r}: {error}") from error
        own = self.release.get("ID", "")
        own = _DISTROS.get(own, own)
        if own != named.distro:
            raise NotPacked(
                f"name {file_name!r}: installimage takes it for {named.distro}, and the root file system is {own}"
            )
        digits = re.sub(r"[^0-9]", "", self.release.get("VERSION_ID", ""))
        if named.version and digits and not str(named.version).startswith(digits):
            raise NotPacked(
                f"name {file_name!r}: its version is {named.version}, and the root file system is {self.name}; begin "
                f"the number with {digits}"
            )
        if self.machine and named.machine != self.machine:
            raise NotPacked(f"name {file_name!r}: it says {named.machine}, the programs are {self.machine}")

    def faults(self) -> list[str]:
        """What speaks against a node image of it: not prebaked, or one machine's identity is in it."""
        found = []
        if not self.base.get("prebaked"):
            found.append("/etc/kubenode/base.json does not say that base was prebaked")
        if self._text("etc/machine-id").strip() not in ("", "uninitialized"):
            found.append("/etc/machine-id is one machine's; node_cleanup empties it")
        for folder in ("etc/ssh", "etc/dropbear/initramfs"):
            keys = [name for name in self._names(folder) if _KEYS.match(name)]
            if keys:
                found.append(f"/{folder} holds host keys ({', '.join(sorted(keys))})")
        for path, why in _OF_ONE:
            if self._exists(path):
                found.append(f"/{path} is there: {why}")
        return found

    def epoch(self) -> int:
        """The time of the newest file that a package brought, in seconds; without packages that of os-release."""
        newest = 0
        for listing in sorted(name for name in self._names(_DPKG) if name.endswith(".list")):
            for path in self._text(_DPKG + "/" + listing, 64 * _MOST).splitlines():
                if path.startswith("/usr/"):
                    newest = max(newest, self._file_time(path))
        return newest or max(self._file_time("/" + path) for path in _RELEASES)

    def _file_time(self, path: str) -> int:
        try:
            info = os.lstat(self.top + path)
        except OSError:
            return 0
        return int(info.st_mtime) if stat.S_ISREG(info.st_mode) else 0

    def _release(self, path: str) -> dict[str, str]:
        values = {}
        for line in self._text(path).splitlines():
            match = re.match(r"([A-Z_0-9]+)=(.*)\Z", line.strip())
            if match:
                values[match.group(1)] = match.group(2).strip("\"'")
        return values

    def _machine(self) -> str:
        for path in _PROGRAMS:
            head = self._bytes(path, 20)
            if head[:4] == b"\x7fELF":
                number = int.from_bytes(head[18:20], "big" if head[5:6] == b"\x02" else "little")
                return _ELF.get(number, f"machine type {number}")
        return ""

    def _base(self) -> dict[str, Any]:
        try:
            base = json_value(self._text("etc/kubenode/base.json") or "{}")
        except ValueError:
            base = {}
        return base if isinstance(base, dict) else {}

    def _exists(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.top, path))

    def _names(self, folder: str) -> list[str]:
        if not self._plain(folder):
            return []
        try:
            return os.listdir(os.path.join(self.top, folder))
        except OSError:
            return []

    def _text(self, path: str, most: int = _MOST) -> str:
        return self._bytes(path, most).decode("utf-8", "replace")

    def _bytes(self, path: str, most: int) -> bytes:
        """The begin of a regular file; empty when there is none. Links in the file system must not lead out of it."""
        if not self._plain(os.path.dirname(path)):
            return b""
        try:
            fd = os.open(os.path.join(self.top, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            data = b""
            while len(data) < most:
                piece = os.read(fd, most - len(data))
                if not piece:
                    break
                data += piece
            return data
        finally:
            os.close(fd)

    def _plain(self, folder: str) -> bool:
        """Whether a folder is reached without a link."""
        path = self.top
        for word in folder.split("/"):
            path = os.path.join(path, word)
            if os.path.islink(path):
                return False
        return True
