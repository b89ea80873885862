# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short commands on a machine, over Ansible's own connection: jump hosts, ports, keys and become work as everywhere."""

from __future__ import annotations

import re
import shlex

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.plugin_utils._known_hosts import KnownHosts
from ansible_collections.kubenode.provision.plugins.plugin_utils._text import one_line

SILENT, REFUSED, OTHER_KEY = "silent", "refused", "other key"

_PREFIX = re.compile(r"^(Failed to connect to the host via ssh:|ssh:)\s*")
_NOISE = re.compile(r"^(Warning: Permanently added|mux_client|ControlSocket|\Z)")
_SLOW = re.compile(r"banner exchange|kex_exchange|during (key exchange|authentication)", re.IGNORECASE)


class Unreachable(Exception):
    """SSH did not get through. ``kind`` says whether nobody answered or somebody else did."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def classify(error: str) -> Unreachable:
    """What a failed ssh says of who is there."""
    lines = [_PREFIX.sub("", _PREFIX.sub("", line.strip())) for line in error.splitlines()]
    telling = [line for line in lines if not _NOISE.match(line)]
    detail = one_line(telling[-1] if telling else error) or "no reason given"
    if re.search(r"host key verification failed|host identification has changed|No .* host key is known", error, re.I):
        return Unreachable(OTHER_KEY, "it shows a host key that is not the pinned one")
    if re.search(r"permission denied|too many authentication failures", error, re.IGNORECASE):
        return Unreachable(REFUSED, detail)
    return Unreachable(SILENT, detail)


class Remote:
    """The connection of one task, with our host keys when it is SSH."""

    def __init__(self, action: ActionBase) -> None:
        self._action = action
        self._connection = action._connection
        self._is_ssh = self._connection.transport == "ssh"
        self._ssh_args = (self._connection.get_option("ssh_args") or "") if self._is_ssh else ""
        self._known_hosts: KnownHosts | None = None
        self._shared = True
        self._patience = 5
        self._access: list[str] = []
        if self._is_ssh:
            # We retry ourselves, and know better how long.
            self._connection.set_option("reconnection_retries", 0)
            # A terminal would end commands with the connection and turn line ends.
            self._connection.set_option("use_tty", False)

    def use(self, known_hosts: KnownHosts, shared: bool) -> None:
        """Speak under these host keys; ``shared``: over the connection that later commands reuse."""
        self._known_hosts, self._shared = known_hosts, shared
        self._set_arguments()

    def log_in(self, user: str | None, port: int | None, private_key: str | None) -> None:
        """From now on, as this user, on this port, with this key; None leaves what the inventory says."""
        self._access = [f"-oUser={shlex.quote(user)}"] if user else []
        self._access += [f"-oPort={port}"] if port else []
        if private_key:
            quoted = '"' + private_key.replace("%", "%%") + '"'
            self._access += ["-oIdentitiesOnly=yes", shlex.quote(f"-oIdentityFile={quoted}")]
        self._set_arguments()

    def reset(self) -> None:
        """Leave the connection that earlier commands or tasks shared: it may lead to a system that is gone."""
        if self._is_ssh:
            shared, self._shared = self._shared, True
            self._set_arguments()
            self._connection.reset()
            self._shared = shared
            self._set_arguments()

    def run(self, script: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
        """Run a POSIX shell script; returns exit code and stdout, or raises :class:`Unreachable`.

        ``data``: what the script finds on its stdin.
        """
        words = " ".join(shlex.quote(argument) for argument in arguments)
        try:
            answer = self._action._low_level_execute_command(
                f"/bin/sh -c {shlex.quote(script)} sh {words}".rstrip(), in_data=data, executable="/bin/sh"
            )
        except AnsibleConnectionFailure as exc:
            failure = classify(str(exc))
            # On a loaded machine the handshake alone may take longer than an absent machine deserves.
            self._patience = 30 if _SLOW.search(str(exc)) else 5
            self._set_arguments()
            raise failure from exc
        return answer["rc"], answer["stdout"].replace("\r\n", "\n")

    def _set_arguments(self) -> None:
        if not self._is_ssh or self._known_hosts is None:
            return
        self._known_hosts.prepare()
        # ssh takes the first value of an option it finds: ours come before the user's.
        ours = [
            self._known_hosts.ssh_options(),
            f"-oConnectTimeout={self._patience}",
            "-oServerAliveInterval=5 -oServerAliveCountMax=3",
            *self._access,
        ]
        if not self._shared:
            # Opening a master costs a second in Ansible; a probe that may fail does not need one.
            ours.append("-oControlMaster=no -oControlPath=none")
        self._connection.set_option("ssh_args", " ".join([*ours, self._ssh_args]).strip())
