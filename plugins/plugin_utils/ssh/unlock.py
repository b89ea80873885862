# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unlocks an encrypted system that waits in its initramfs: the passphrase goes to the stdin of ssh, and nowhere else.

The SSH server of the initramfs has host keys of its own, which the installation returned. A server with another
key never gets the passphrase.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line

from . import gate, system_probe
from .known_hosts import KnownHosts
from .remote import OTHER_KEY, Remote, Unreachable

#: What cryptroot-unlock says of a passphrase that opens nothing; another try would be as vain.
_WRONG = ("bad password", "maximum number of tries exceeded")
#: What it says of one that opened a device, also when the connection ends before it does.
_OPENED = "set up successfully"
#: Seconds between two tries, and until a system that shows another key is left to the gate of the new system.
PAUSE, STEADY = 2.0, 60.0


class Way(NamedTuple):
    """How one of the two systems of a machine is reached: its host keys and its login, None for the connection's."""

    known_hosts: KnownHosts
    user: str | None = None
    port: int | None = None
    private_key: str | None = None

    def take(self, remote: Remote) -> None:
        """Speak to this system from now on."""
        remote.log_in(self.user, self.port, self.private_key)
        remote.use(self.known_hosts)


def unlock(
    remote: Remote,
    initramfs: Way,
    system: Way,
    password: str,
    previous_boot_id: str | None,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait for the initramfs, and open every device that it asks for; raises :class:`gate.GateClosed`.

    Returns whether a device was opened; False when the new system runs already. The host keys of ``initramfs`` are
    known in advance.
    """
    began, opened, other_since = clock(), False, None
    known = bool(system.known_hosts.fingerprints())
    # On a port of its own, a system that runs shows nothing where the initramfs was.
    apart = system.port != initramfs.port
    while True:
        initramfs.take(remote)
        try:
            code, said = remote.ask(password.encode())
        except Unreachable as exc:
            if opened:
                # After the last device its SSH server goes away.
                return True
            why = exc.detail
            other_since = (clock() if other_since is None else other_since) if exc.kind == OTHER_KEY else None
            if known and (apart or other_since is not None) and _runs(remote, system, previous_boot_id):
                return False
            if not known and other_since is not None and clock() - other_since >= STEADY:
                return False
        else:
            other_since, why = None, one_line(said, 300)
            if any(words in said for words in _WRONG):
                raise gate.GateClosed(
                    "the initramfs does not take the passphrase: it is not the one that the disks were encrypted with "
                    f"({why}). Give the right one as kubenode_crypt_password",
                    None,
                    final=True,
                )
            # Each device is asked for on its own.
            opened = opened or code == 0 or _OPENED in said
        if clock() - began >= timeout:
            raise gate.GateClosed(f"the initramfs was not unlocked within {timeout:.0f} s; at last: {why}", None)
        sleep(PAUSE)


def _runs(remote: Remote, system: Way, previous_boot_id: str | None) -> bool:
    """Whether the new system runs, which a person unlocked; not the one that goes down."""
    system.take(remote)
    try:
        found = system_probe.parse(remote.run(system_probe.SCRIPT)[1])
    except (Unreachable, system_probe.ProbeError):
        return False
    return found.boot_id != previous_boot_id
