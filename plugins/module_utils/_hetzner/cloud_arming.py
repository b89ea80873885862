# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Arm the rescue of a cloud server, where another run may be doing the same, and know later for whom it was armed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .._common import boot_states, intents
from .._common import consent as consents
from .._common.text import moment, whole_number
from .action_board import ActionBoard, ActionFailed
from .api_failures import LOOK_EVERY, Deadline, Refused
from .api_types import Action, Server
from .boot_flow import IntentStore
from .cloud_servers import BOOTING, CLOCK_SLACK, OTHER_RUN, ServerReads, Servers, never_started
from .fleet_run import MachineRun
from .labels import TAKEN_LABEL

#: Arming is known to end in an unknown error now and then, and to work when it is asked for again.
ARMING_TRIES = 3
#: Seconds after which a run that made or armed a server, and did not go on with it, is taken for one that has ended.
GOES_ON = 6.0
#: The same after an action that took so long (seconds) that `ActionBoard` looks at it seldom.
GOES_ON_SLOWLY, SLOW = 30.0, 5.0
#: Seconds for which one that armed a server at the same time may take to start it.
STARTS = 60.0

_UNMADE = (
    "server '%s' was never made: its creation failed, and what is left of it cannot start. Delete it in the console "
    "or with the playbook hcloud_delete, then run again"
)


def given_up_at(action: Action) -> float | None:
    """When other runs take the one that began this action for ended, by the API's clock in epoch seconds (pure).

    None: that is not known. The earliest such time for an action whose end is not known.
    """
    began, ended = moment(action.get("started")), moment(action.get("finished"))
    if began is None or ended is None:
        return None if began is None else began + GOES_ON
    return ended + (GOES_ON_SLOWLY if ended - began >= SLOW else GOES_ON)


class Arming:
    """The rescue of one server in one call. ``made``: the action that created the server in this run, or None."""

    def __init__(
        self,
        servers: Servers,
        reads: ServerReads,
        board: ActionBoard,
        intents: IntentStore,
        run: MachineRun,
        made: Action | None,
    ) -> None:
        self._servers = servers
        self._reads = reads
        self._board = board
        self._intents = intents
        self._run = run
        self.made = made
        #: The arming of this call, and when the server was read again after it.
        self._armed: Action | None = None
        self._looked: float | None = None
        #: Whether this run takes over what another one has made or armed.
        self._takes_over = False
        #: Whether this run may have left the rescue enabled.
        self.may_be_armed = False
        #: Another run may be at work: how far the history went that was read, and whether the server was locked.
        self._known = -1
        self._alone = True

    def read_history(self, server: Server, deadline: Deadline) -> bool:
        """Whether the server never booted; a run that made or armed it just now is let go on.

        Raises Refused for a server that was never made, or on which another run is at work.
        """
        while True:
            history = self._servers.history(server, deadline)
            if any(one.get("command") == "create_server" and one.get("status") == "error" for one in history):
                raise Refused(_UNMADE % self._run.name)
            newest = max([action["id"] for action in history] or [0])
            unused = never_started(history)
            if self._known not in (-1, newest) and not unused:
                raise Refused(OTHER_RUN % self._run.name)
            self._known, self._alone = newest, False
            if not unused or self._intents.of(self._run.name) is not None:
                return unused
            pause = self._until_given_up(history[0])
            if pause <= 0:
                self._takes_over = True
                return True
            deadline.sleep(pause, "another run may have made it just now")

    def _until_given_up(self, newest: Action) -> float:
        """Seconds until the run that began the newest action of a server is taken for ended."""
        now, end = self._servers.now(), given_up_at(newest)
        if now is None or end is None:
            return 0.0
        return GOES_ON if newest.get("status") == "running" else min(end - now, GOES_ON_SLOWLY)

    def disarm(self, server: Server, deadline: Deadline) -> None:
        """Disable the rescue, and wait until it is."""
        self._board.wait(self._servers.disable_rescue(server, deadline), deadline)

    def arm(self, server: Server, key_ids: Sequence[int], deadline: Deadline, armed_before: bool) -> None:
        """Enable the rescue for the next boot and wait until it is; only these keys can log in to it.

        Raises Refused when another run has taken the server over.
        """
        if self._takes_over:
            # A run that made it or armed it, and comes late, reads by this what was known of its work.
            self._servers.relabel(server, {**(server.get("labels") or {}), TAKEN_LABEL: str(self._known)}, deadline)
        elif self._is_late(self.made, self._servers.now(), STARTS) and self._taken_after(server, deadline) is not None:
            self._leave()
        if armed_before:
            # It is unknown for which keys it is armed, and for how long still.
            self.disarm(server, deadline)
        self.may_be_armed = True
        for tries_left in range(ARMING_TRIES - 1, -1, -1):
            action = self._servers.enable_rescue(server, key_ids, deadline, self._met_a_lock)
            self._run.timeline.to(boot_states.ENABLING_RESCUE)
            try:
                self._armed = self._board.wait(action, deadline)
                if not self._alone:
                    self._leave_to_the_first(server, action, deadline)
                self._run.result["armed_here"] = True
                self._intents.armed(self._run.name, action=action["id"])
                return
            except ActionFailed:
                if not tries_left:
                    raise

    def _met_a_lock(self) -> None:
        """Something else is done to the server; if that is an arming, we are not the only ones."""
        self._alone = False

    def look_again(self, server: Server, deadline: Deadline, started: Action | None = None) -> None:
        """Before a start, and after it (``started``): leave a server that another run took while this one was late.

        Costs no request when this run is prompt. Raises Refused.
        """
        if self._armed is None:
            return
        now = self._servers.now() if started is None else moment(started.get("started"))
        if self._looked is not None:
            late = now is None or now >= self._looked + GOES_ON - CLOCK_SLACK
        else:
            begun = moment(self._armed.get("started"))
            made = None if self._takes_over else self.made
            late = self._is_late(made, begun) or self._is_late(self._armed, now)
        if not late:
            return
        taken = self._taken_after(server, deadline)
        self._looked = self._servers.now()
        if taken is None:
            return
        if started is not None:
            self._leave_unless_started_first(server, self._armed, started, deadline)
        elif taken < self._armed["id"]:
            self._leave_to_the_first(server, self._armed, deadline)
        else:
            self._leave()

    @staticmethod
    def _is_late(action: Action | None, now: float | None, more: float = 0.0) -> bool:
        """Whether others may take a run that began an action, and goes on ``now``, for ended since ``more`` seconds."""
        if action is None:
            return False
        end = given_up_at(action)
        return now is None or end is None or now >= end + more - CLOCK_SLACK

    def _taken_after(self, server: Server, deadline: Deadline) -> int | None:
        """The newest action that another run knew when it took the server over; None when none has.

        It goes on unless it finds an arming that it did not know, or a start that came before its own.
        """
        present = self._reads.present(server, deadline)
        taken = whole_number(((present or {}).get("labels") or {}).get(TAKEN_LABEL) or "")
        return None if self._takes_over and taken == self._known else taken

    def _leave_unless_started_first(self, server: Server, ours: Action, started: Action, deadline: Deadline) -> None:
        """Raise Refused when another run, which armed the server before our start, starts it, too."""
        waited = 0.0
        while True:
            history = self._servers.history(server, deadline, recent=True)
            new = [one for one in history if one["id"] > ours["id"] and one.get("status") != "error"]
            if any(one["command"] in BOOTING and one["id"] != started["id"] for one in new):
                self._leave()
            armed = any(one["command"] == "enable_rescue" and one["id"] < started["id"] for one in new)
            if not armed or waited >= GOES_ON or deadline.left() < LOOK_EVERY:
                return
            deadline.sleep(LOOK_EVERY, "")
            waited += LOOK_EVERY

    def _leave_to_the_first(self, server: Server, ours: Action, deadline: Deadline) -> None:
        """Of two runs that armed the server at once the first one goes on; raises Refused when that is not this one."""
        known = max(self._known, (self.made or {}).get("id") or 0)
        if known <= 0:
            return  # it was started before, and the user permits it
        waited = 0.0
        while True:
            history = self._servers.history(server, deadline, recent=True)
            new = [one for one in history if one["id"] > known and one.get("status") != "error"]
            if any(one["command"] in BOOTING for one in new):
                break
            first = [one for one in new if one["command"] == "enable_rescue" and one["id"] < ours["id"]]
            if not first:
                return
            if waited >= STARTS or deadline.left() < LOOK_EVERY:
                return  # it has ended; what it armed is ours now
            deadline.sleep(LOOK_EVERY, "")
            waited += LOOK_EVERY
        present = self._servers.by_id(server, deadline)
        if present is not None and present.get("rescue_enabled"):
            # Armed after that start: the next boot must lead to what the other run writes.
            self.disarm(server, deadline)
        self._leave()

    def _leave(self) -> NoReturn:
        self.may_be_armed = False
        self._intents.gave_up(self._run.name, for_good=True)
        raise Refused(OTHER_RUN % self._run.name)


def started_for(
    name: str,
    installation: str,
    kept: Mapping[str, Any] | None,
    carried: Mapping[str, Any] | None,
    history: Sequence[Action],
) -> str:
    """The consent of the open intent for which a server's rescue was started; empty when a person started it (pure).

    ``kept``: the intent on this controller; ``carried``: the one in the rescue; ``history``: the server's actions,
    newest first; ``installation``: what the server was made or armed for.
    """
    done = [action for action in history if action.get("status") != "error"]
    commands = sorted(action.get("command") or "" for action in done)
    again = sum(command in BOOTING for command in commands) > 1
    if carried and intents.is_open(carried, name, installation) and installation:
        return _still(carried, again)
    arming = next((action for action in done if action.get("command") == "enable_rescue"), None)
    if kept and intents.is_open(kept, name, installation) and arming is not None:
        armed = kept.get("armed") or {}
        if armed.get("action") == arming.get("id"):
            return _still(kept, again)
    # Its only boot was that into the rescue which the creating run had armed.
    boots = [command for command in commands if command in BOOTING or command.endswith("_rescue")]
    if installation and "create_server" in commands and boots == ["enable_rescue", "start_server"]:
        return consents.FRESH
    return ""


def _still(intent: Mapping[str, Any], again: bool) -> str:
    """What an intent still allows; ``again``: the server booted more than once, and its disk may have run."""
    kinds = (intent.get("consent") or "").split("+")
    return consents.joined(*(kind for kind in kinds if not (again and kind == consents.FRESH))) or consents.EMPTY
