# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host keys that a machine may show, in one file for each machine and phase; the user's known_hosts stays as it is.

A rescue makes new host keys at every boot and no cloud API lists them, so the first contact is trusted (a pin). The pin
counts from the moment the gate proved which system answered, and holds for that boot within that run: another run, or a
boot that we asked for ourselves, starts with a new first contact. Any other change of the key is refused.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common import ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.safe_files import replacing


class KnownHosts:
    """The known_hosts file of one machine in one phase (``rescue`` or ``os``)."""

    def __init__(self, directory: str, name: str, phase: str, run: str) -> None:
        self.path = Path(directory) / ssh_access.known_hosts_name(name, phase)
        self.alias = ssh_access.alias(name, phase)
        self._run = run
        self.strict = False

    def ssh_options(self) -> str:
        """The options for ssh, as one string of shell words."""
        options = {
            "UserKnownHostsFile": ssh_access.quoted(str(self.path)),
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
        return ssh_access.proven_in(self._read())[0]

    @property
    def of_this_run(self) -> bool:
        """Whether the pin was proven in this run."""
        boot, run = ssh_access.proven_in(self._read())
        return bool(boot) and run == self._run

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
        self._write(ssh_access.known_hosts(self.alias, keys))

    def require_known(self) -> bool:
        """Only the keys in the file, which an earlier run was given; False when there are none."""
        self.strict = any(line and not line.startswith("#") for line in self._read().splitlines())
        return self.strict

    def prove(self, boot_id: str) -> None:
        """The system that showed these keys is the right one: pin them to this boot."""
        self._write(ssh_access.header(boot_id, self._run) + ssh_access.without_header(self._read()))

    def shows_one_of(self, lines: Iterable[str]) -> bool:
        """Whether a key that was shown is among these public key lines."""
        theirs = {" ".join(line.split()[:2]) for line in lines}
        return not theirs.isdisjoint(ssh_access.key_lines(self._read()))

    def fingerprints(self) -> list[str]:
        """SHA-256 fingerprints of the keys, as ssh-keygen prints them."""
        return ["SHA256:" + ssh_access.sha256_fingerprint(key) for key in ssh_access.key_lines(self._read())]

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, text: str) -> None:
        with replacing(str(self.path)) as (file, _draft):
            file.write(text.encode("utf-8"))
