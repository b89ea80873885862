# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the steps of the SSH phase have in common: the machine and the way to it, its time line, its host keys."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import (
    boot_states,
    installed,
    intents,
    names,
    safe_files,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._common.ssh_access import (
    InvalidHostKey,
    parse_host_key,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import from_rfc3339, one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets

from ..progress import display
from ..ssh.remote import KnownHosts, Remote
from . import image_inputs


class BadInput(AnsibleActionFail):
    """An input is wrong; nothing was done."""

    def __init__(self, name: str, findings: Sequence[str]) -> None:
        super().__init__(f"{name}: {'; '.join(findings)}")
        self.findings = list(findings)


def run_id() -> str:
    """The same in every task of one run of Ansible, another one in the next run."""
    return os.path.basename(str(C.DEFAULT_LOCAL_TMP))


def parse_host_keys(lines: list[str] | None) -> list[str]:
    """The public host keys of an option ``host_keys``, without comments; fails for a line that is none."""
    keys = []
    for line in lines or []:
        try:
            keys.append(parse_host_key(line))
        except InvalidHostKey as exc:
            raise AnsibleActionFail(f"host_keys {one_line(line, 60)!r}: {exc}") from exc
    return keys


def check_installation(text: str | None) -> str:
    """The option ``installation``; fails for what is no id."""
    if text and not installed.is_installation(text):
        raise AnsibleActionFail(f"installation {one_line(text, 60)!r}: use the id of the step before, or leave it out")
    return text or ""


def check_consent(given: Mapping[str, Any]) -> None:
    """The options ``consent`` and ``reinstall``; fails for words that mean nothing."""
    findings = consents.Words("reinstall", given["reinstall"]).findings
    try:
        targets.kinds_of(given["consent"])
    except ValueError as exc:
        findings.append(str(exc))
    if findings:
        raise AnsibleActionFail("; ".join(findings))


def intent_for(given: Mapping[str, Any], name: str, installation: str, **about: str) -> str:
    """The intent that goes into the rescue, as JSON: the controller's own while it is open, else one of this task."""
    try:
        kept = intents.read(given["intent_file"]) if given["intent_file"] else None
    except intents.IntentError as exc:
        raise AnsibleActionFail(str(exc)) from exc
    if not intents.is_open(kept, name, installation):
        kept = intents.make(name, installation, given["consent"], None, **about)
    return json.dumps({**about, **(kept or {})}, sort_keys=True)


class Turn:
    """The place of one machine among those that write; ``waited``: whether it had to wait for it."""

    def __init__(self, leave: Callable[[], None] | None = None, waited: bool = False) -> None:
        self._leave, self.waited = leave, waited

    def leave(self) -> None:
        """Another machine may write."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class Turns:
    """So many machines of a task write at once; the others wait in their rescue, the first one there is the next."""

    def __init__(self, limit: int = 0) -> None:
        """``limit``: 0 for all of them."""
        self.limit = limit
        self._lock, self._free = threading.Lock(), limit
        self._waiting: deque[threading.Event] = deque()

    def take(self, needed: Callable[[], bool], waits: Callable[[], None]) -> Turn:
        """Wait for a place; what was begun takes one, and waits for none.

        ``needed``: whether the machine would begin to write. ``waits``: called before it waits.
        """
        if not self.limit:
            return Turn()
        if self._takes_free_one():
            return Turn(self._leave)
        if not needed():
            return Turn()
        mine = threading.Event()
        if self._takes_free_one(mine):
            return Turn(self._leave)
        waits()
        mine.wait()
        return Turn(self._leave, waited=True)

    def _takes_free_one(self, otherwise: threading.Event | None = None) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if otherwise is not None:
                self._waiting.append(otherwise)
            return False

    def _leave(self) -> None:
        """Hand the place to the machine that waits longest, so that none that has just come takes it."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class Flow:
    """One machine in one task."""

    def __init__(self, options: Mapping[str, Any], host: str, turns: Turns | None = None) -> None:
        """``host``: its name in the inventory, which is the machine's where no other one is given."""
        self.turns = turns or Turns()
        self.name = options.get("machine_name") or host
        try:
            names.check_machine_name(self.name)
        except names.InvalidName as exc:
            raise AnsibleActionFail(f"machine_name {self.name!r}: {exc}") from exc
        self.timeline = _timeline(self.name, options)
        if self.timeline.state:
            display.state(host, self.timeline.state)
        self.timeline.heard = lambda state: display.state(host, state)
        self._directory = options.get("known_hosts_dir") or os.path.join(C.DEFAULT_LOCAL_TMP, "kubenode-known-hosts")

    def known_hosts(self, phase: str) -> KnownHosts:
        """The host keys of the machine's ``rescue`` or ``os``."""
        known_hosts = KnownHosts(self._directory, self.name, phase, run_id())
        try:
            known_hosts.prepare()
        except OSError as exc:
            text = safe_files.unwritable(self._directory, exc, self._directory)
            raise AnsibleActionFail(f"known_hosts_dir {text}") from None
        return known_hosts

    def result(self, **fields: Any) -> dict[str, Any]:
        """A task result with the machine's name and time line."""
        return {"changed": False, "failed": False, "machine_name": self.name, **fields, **self.timeline.result()}


def _timeline(name: str, options: Mapping[str, Any]) -> boot_states.Timeline:
    state, since = options["boot_state"], options.get("boot_state_since")
    if state not in boot_states.ORDER:
        raise AnsibleActionFail(f"boot_state {state!r}: use one of {', '.join(filter(None, boot_states.ORDER))}")
    try:
        return boot_states.Timeline(name, state, from_rfc3339(since) if since else None)
    except ValueError as exc:
        raise AnsibleActionFail(
            f"boot_state_since {since!r}: use the boot_state_since of the step before ({exc})"
        ) from exc


class Host:
    """One machine, from its first step to its last: all steps share the connection.

    It also has what a step gets from Ansible: files of the controller, check mode, diff mode.
    """

    def __init__(
        self,
        name: str,
        action: ActionBase,
        connect: Callable[[], Any] | None,
        variables: Mapping[str, Any] | None = None,
        turns: Turns | None = None,
    ) -> None:
        """``connect`` makes a connection of Ansible, when a step needs it; without it, options are checked only.

        ``variables``: of the host, when the options come from them. ``turns``: those of the fleet.
        """
        self.name, self.only_checks, self._turns = name, connect is None, turns
        self.check_mode = self.only_checks or bool(action._task.check_mode)
        self.diff = bool(action._task.diff)
        self.find_file = image_inputs.file_finder(action, variables)
        self.read_file = image_inputs.file_reader(action, self.find_file)
        self._connect = connect
        self._remote: Remote | None = None

    @property
    def remote(self) -> Remote:
        """The connection to the machine; it is made when a step first needs it."""
        if self._remote is None:
            if self._connect is None:
                raise RuntimeError("a check of options does not speak to machines")
            self._remote = Remote(self._connect())
        return self._remote

    @property
    def is_reached(self) -> bool:
        """Whether a step before this one speaks to the machine."""
        return self._remote is not None and self._remote.is_open

    def flow(self, given: Mapping[str, Any]) -> Flow:
        """One step with these options."""
        return Flow(given, self.name, self._turns)

    def close(self) -> None:
        if self._remote is not None:
            self._remote.end()


class StepAction(ActionBase):
    """The action plugin of one step, for plays of a user's own: checks the options, and runs it on the task's host."""

    specification: Callable[[], dict[str, Any]]
    step: Callable[[Host, dict[str, Any]], dict[str, Any]]

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=self.specification())[1]
        host = Host(str((task_vars or {}).get("inventory_hostname", "")), self, lambda: self._connection)
        try:
            return named(self.step(host, given), given["variables"])
        except AnsibleActionFail as exc:
            raise AnsibleActionFail(in_variables(str(exc), given["variables"])) from exc
        finally:
            host.close()


def named(result: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """A result whose texts name the variables that hold the options of the step."""
    found = dict(result)
    if found.get("msg"):
        found["msg"] = in_variables(str(found["msg"]), variables)
    if found.get("warnings"):
        found["warnings"] = [in_variables(str(text), variables) for text in found["warnings"]]
    return found
