# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host keys that a machine may show, in one file for each machine and phase; the user's known_hosts stays as it is.

A rescue makes new host keys at every boot and no cloud API tells them, so the first contact is trusted (a pin). The pin
counts from the moment the gate proved which system answered, and holds for that boot within that run: another run, or a
boot that we asked for ourselves, starts with a new first contact. Any other change of the key is refused.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import base64_bytes

_HEADER = re.compile(r"# kubenode boot=(?P<boot>[0-9a-f-]{36}) run=(?P<run>\S+)\n")
_KEY_TYPE = re.compile(r"[a-z0-9@.-]{1,64}\Z")


class InvalidHostKey(ValueError):
    """Not a public host key; the text says why."""


def parse_host_key(line: str) -> str:
    """``type base64`` of a public key line (``ssh-ed25519 AAAA… comment``); raises :class:`InvalidHostKey`."""
    fields = line.split()
    if len(fields) < 2 or not _KEY_TYPE.match(fields[0]):
        raise InvalidHostKey("use the line of the .pub file: 'ssh-ed25519 AAAA…'")
    blob = base64_bytes(fields[1])
    if blob is None:
        raise InvalidHostKey("its second word is not base64; use the line of the .pub file")
    name = fields[0].encode()
    if blob[:4] != len(name).to_bytes(4, "big") or blob[4 : 4 + len(name)] != name:
        raise InvalidHostKey("its base64 is not a key of type %s; use the line of the .pub file" % fields[0])
    return " ".join(fields[:2])


class KnownHosts:
    """The known_hosts file of one machine in one phase (``rescue`` or ``os``)."""

    def __init__(self, directory: str, name: str, phase: str, run: str) -> None:
        self.path = Path(directory) / f"{name}.{phase}"
        # An alias is what ssh looks up, whatever address or jump host leads there.
        self.alias = f"{name}.{phase}".lower()
        self._run = run
        self.strict = False

    def ssh_options(self) -> str:
        """The options for ssh, as one string of shell words."""
        options = {
            "UserKnownHostsFile": '"%s"' % str(self.path).replace("%", "%%"),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": self.alias,
            "StrictHostKeyChecking": "yes" if self.strict or self.boot_id else "accept-new",
            "UpdateHostKeys": "no",
            "CheckHostIP": "no",
            "HashKnownHosts": "no",
        }
        return " ".join(shlex.quote(f"-o{key}={value}") for key, value in options.items())

    @property
    def boot_id(self) -> str:
        """The boot for which the pin was proven in this or an earlier run; empty when nothing was proven."""
        match = _HEADER.match(self._read())
        return match["boot"] if match else ""

    @property
    def of_this_run(self) -> bool:
        """Whether the pin was proven in this run."""
        match = _HEADER.match(self._read())
        return match is not None and match["run"] == self._run

    def prepare(self) -> None:
        """Make the directory, readable for us alone."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def forget(self) -> None:
        """Trust the next contact again; keys that were known in advance stay."""
        if not self.strict:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()

    def forget_unproven(self) -> None:
        """What an unproven contact left does not count."""
        if not self.boot_id:
            self.forget()

    def require(self, keys: list[str]) -> None:
        """Only these keys are the machine's."""
        self.strict = True
        self._write("".join(f"{self.alias} {key}\n" for key in keys))

    def require_known(self) -> bool:
        """Only the keys in the file, which an earlier run was given; False when there are none."""
        self.strict = any(line and not line.startswith("#") for line in self._read().splitlines())
        return self.strict

    def prove(self, boot_id: str) -> None:
        """The system that showed these keys is the right one: pin them to this boot."""
        self._write(f"# kubenode boot={boot_id} run={self._run}\n" + _HEADER.sub("", self._read()))

    def shows_one_of(self, lines: Iterable[str]) -> bool:
        """Whether a key that was shown is among these public key lines."""
        theirs = {" ".join(line.split()[:2]) for line in lines}
        ours = [line.split() for line in self._read().splitlines() if not line.startswith(("#", "@"))]
        return any(" ".join(fields[1:3]) in theirs for fields in ours if len(fields) >= 3)

    def fingerprints(self) -> list[str]:
        """SHA-256 fingerprints of the keys, as ssh-keygen prints them."""
        found = []
        for line in self._read().splitlines():
            fields = line.split()
            blob = base64_bytes(fields[2]) if len(fields) >= 3 and not line.startswith(("#", "@")) else None
            if blob:
                digest = hashlib.sha256(blob).digest()
                found.append("SHA256:" + base64.b64encode(digest).decode().rstrip("="))
        return found

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, text: str) -> None:
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(self.path)
