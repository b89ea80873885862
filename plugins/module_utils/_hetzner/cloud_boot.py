# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The way of one machine into its rescue, and back out: each step of the tables in ``sights`` carried out."""

from __future__ import annotations

from .._common import boot_states, intents
from .._common import consent as consents
from . import boot_decision, ssh
from .actions import ActionFailed
from .cloud_servers import BOOTING, OTHER_RUN, never_started
from .errors import ApiError, MachineError, NoAnswer, Refused, TimeLimit
from .intent_store import NONE
from .retry import Deadline

#: Arming is known to end in an unknown error now and then, and to work when it is asked for again.
ARMING_TRIES = 3
#: Seconds after which a run that made or armed a server, and did not go on with it, is taken for one that has ended.
GOES_ON = 6.0
#: Seconds for which one that armed a server at the same time may take to start it.
STARTS = 60.0
#: Seconds in which a rescue is disabled, however long a stuck action locks the server.
DISARMING_TAKES = 60.0
#: Seconds between two looks by SSH, and how long a system that was told to reboot may go on answering.
LOOK_EVERY = 2.0
REBOOT_GRACE = 60.0
#: Seconds to find out who answers when the machine will be rebooted in any case.
SHORT_LOOK = 8.0


class NotArrived(MachineError):
    """The machine was started and its rescue did not answer in time; it can be armed again."""


class Journey:
    """One machine on its way. ``tools`` is what all journeys share: servers, board, shell, key ids and limits."""

    def __init__(self, tools, run, server, sight, given):
        self.tools = tools
        self.run = run
        self.server = server
        self.sight = sight
        self.given = given
        self.answer: ssh.Answer | None = None
        self.destination = boot_states.BOOTING_TO_RESCUE
        #: Whether this run may have left the rescue enabled.
        self.armed = False
        #: Another run may be at work: how far the history went that was read, and whether the server was locked.
        self._known = -1
        self._alone = True
        self.deadline = Deadline(tools.timeout, "a server that can be armed")

    @property
    def address(self):
        """Where SSH reaches the machine."""
        return self.run.result.get("ipv4") or self.run.result.get("ipv6_address")

    def decide(self, table):
        """Ask ``table`` until its answer is final, finding out what it lacks."""
        find_out = {
            boot_decision.SETTLE: self.settle,
            boot_decision.ASK_HISTORY: self.ask_history,
            boot_decision.PROBE: self.look,
            boot_decision.ASK_RESCUE: self.ask_rescue,
        }
        while True:
            step = table(self.sight)
            self._limit_anew("a settled server" if step in find_out else "the armed rescue")
            if step not in find_out:
                return step
            find_out[step]()

    def settle(self):
        """Wait until the server is neither being created nor in between two states."""
        action = self.given.get("create_action") or {}
        if self.sight.status == "initializing" and action.get("id"):
            self.tools.board.wait(dict(action, status="running"), self.deadline)
            self.sight.status = "off"
            return
        pause = 2.0
        while self.sight.status in boot_decision.PASSING:
            self.deadline.sleep(pause, "the server's status is still '%s'" % self.sight.status)
            pause = min(5.0, pause * 1.5)
            server = self.tools.servers.by_id(self.server, self.deadline)
            if server is None:
                raise MachineError("the server vanished; create it again with hcloud_machine")
            self.server = server
            self.sight.status, self.sight.armed = server["status"], bool(server.get("rescue_enabled"))
        self.run.result["status"] = self.sight.status

    def ask_history(self):
        """Read whether the server ever booted; a run that made or armed it just now is let go on."""
        while True:
            history = self.tools.servers.history(self.server, self.deadline)
            if any(one.get("command") == "create_server" and one.get("status") == "error" for one in history):
                raise Refused(_UNMADE % self.run.name)
            newest = max([action["id"] for action in history] or [0])
            if self._known not in (-1, newest) and not never_started(history):
                raise Refused(OTHER_RUN % self.run.name)
            self._known, self._alone = newest, False
            self.sight.never_started = never_started(history)
            age = self.tools.servers.age(history[0]) if self.sight.never_started else None
            if age is None or age >= GOES_ON or self.tools.intents.of(self.run.name) is not None:
                return
            self.deadline.sleep(GOES_ON - max(0.0, age), "another run may have made it just now")

    def ask_rescue(self):
        """Find out whether the rescue that answers was started for an open intent."""
        if not self.tools.intents.kept:
            # Nothing is written here; who writes has only disks that hold nothing.
            self.sight.intended = consents.EMPTY
            return
        intent = self.tools.intents.of(self.run.name)
        history = self.tools.servers.history(self.server, self.deadline)
        shown = self.answer.intent if self.answer is not None else None
        self.sight.intended = started_for(self.run.name, self.run.result["installation"], intent, shown, history)

    def look(self):
        """Find out by SSH who answers; what runs may have used up the word that would let it go."""
        sight = self.sight
        hurry = sight.reinstall or sight.rearm or sight.unproven == NONE
        seconds = min(self.tools.rescue_timeout, SHORT_LOOK) if hurry else self.tools.rescue_timeout
        deadline = Deadline(seconds, "an answer by SSH")
        while True:
            answer = self._probe()
            if answer.kind == ssh.SYSTEM or (sight.unproven and answer.listens) or deadline.left() < LOOK_EVERY:
                break
            deadline.sleep(LOOK_EVERY, "")
        sight.answer, sight.listens = _who(answer), answer.listens
        sight.reinstall = sight.reinstall and self.tools.may_go(self.run, answer)
        self._note(answer)

    def arm(self, disarm_first):
        """Arm the rescue for the next boot and wait until it is."""
        servers, board = self.tools.servers, self.tools.board
        if disarm_first:
            # It is unknown for which keys it is armed, and for how long still.
            board.wait(servers.disable_rescue(self.server, self.deadline), self.deadline)
        self.armed = True
        for tries_left in range(ARMING_TRIES - 1, -1, -1):
            action = servers.enable_rescue(self.server, self.tools.key_ids, self.deadline, self._met_a_lock)
            self.run.timeline.to(boot_states.ENABLING_RESCUE)
            try:
                board.wait(action, self.deadline)
                if not self._alone:
                    self._leave_to_the_first(action)
                self.run.result["armed_here"] = True
                self.tools.intents.armed(self.run.name, action=action["id"])
                return
            except ActionFailed:
                if not tries_left:
                    raise

    def _met_a_lock(self):
        """Something else is done to the server; if that is an arming, we are not the only ones."""
        self._alone = False

    def _leave_to_the_first(self, ours):
        """Of two runs that armed the server at once the first one goes on; raises Refused when that is not this one."""
        servers, created = self.tools.servers, (self.given.get("create_action") or {}).get("id") or 0
        known = max(self._known, created)
        if known <= 0:
            return  # it was started before, and a word of the user lets it go
        until = Deadline(min(STARTS, self.deadline.left()), "a start by the other run")
        while True:
            history = servers.history(self.server, self.deadline, recent=True)
            new = [one for one in history if one["id"] > known and one.get("status") != "error"]
            if any(one["command"] in BOOTING for one in new):
                break
            first = [one for one in new if one["command"] == "enable_rescue" and one["id"] < ours["id"]]
            if not first:
                return
            if until.left() < LOOK_EVERY:
                return  # it has ended; what it armed is ours now
            until.sleep(LOOK_EVERY, "")
        server = servers.by_id(self.server, self.deadline)
        if server is not None and server.get("rescue_enabled"):
            # Armed after that start: the next boot must lead to what the other run writes.
            self.tools.board.wait(servers.disable_rescue(self.server, self.deadline), self.deadline)
        self.armed = False
        self.tools.intents.gave_up(self.run.name, for_good=True)
        raise Refused(OTHER_RUN % self.run.name)

    def give_up(self):
        """Take back what is armed, so that the next boot leads to the disk; returns what to tell."""
        deadline = Deadline(min(self.tools.timeout, DISARMING_TAKES), "the disarmed rescue")
        try:
            self.tools.board.wait(self.tools.servers.disable_rescue(self.server, deadline), deadline)
        except (MachineError, ApiError, NoAnswer) as error:
            return ". The rescue may still be enabled for the next boot (%s): disable it in the console" % error
        self.armed = False
        return ". The rescue is disarmed: the next boot leads to the disk"

    def start(self):
        """Power on."""
        self.tools.servers.power_on(self.server, self.deadline)
        self._booting()

    def reset(self):
        """Hard reset; waited for, so that whoever answers afterwards has booted anew."""
        action = self.tools.servers.reset(self.server, self.deadline)
        self.tools.board.wait(action, self.deadline)
        self._booting()

    def reboot(self):
        """Reboot by SSH, which costs no request; a system that does not obey is reset."""
        previous = self.run.result["previous_boot_id"]
        if self.tools.shell.reboot(self.run.name, self.address) and self._went_down(previous):
            self._booting()
        else:
            self.reset()

    def prove(self):
        """Wait until a new boot of the right system answers; raises NotArrived with what was seen instead."""
        rescue = self.destination == boot_states.BOOTING_TO_RESCUE
        deadline = Deadline(self.tools.rescue_timeout, "the rescue" if rescue else "the system on the disk")
        way_on = _WAY_ON if rescue else "Look at its console; the rescue is not armed any more"
        self.run.result["in_rescue"] = False
        while True:
            answer = self._probe()
            self._note(answer)
            if answer.boot_id not in (None, self.run.result["previous_boot_id"]):
                if answer.in_rescue == rescue:
                    return
                raise NotArrived("%s did not come up: %s. %s" % (deadline.what, answer.describe(), way_on))
            try:
                deadline.sleep(LOOK_EVERY, answer.describe())
            except TimeLimit as error:
                raise NotArrived("%s. %s" % (error, way_on)) from error

    def refuse(self, step):
        """Raise why the machine is left as it is."""
        seen = self.answer.describe() if self.answer is not None else ""
        used = self.run.result.get("used")
        raise Refused(
            (_REFUSALS[step] + (". Besides, %s" % used.replace("%", "%%") if used else ""))
            % {
                "name": self.run.name,
                "status": self.sight.status,
                "seen": seen,
                "limit": self.tools.rescue_timeout,
                "word": consents.extra_var("reinstall", [self.run.name]),
            }
        )

    def _limit_anew(self, what):
        """Every state has the whole time limit for itself."""
        self.deadline = Deadline(self.tools.timeout, what)

    def _booting(self):
        self.run.timeline.to(self.destination)
        self.run.result["status"] = "running"

    def _went_down(self, previous):
        """Whether a system that was told to reboot stopped answering under its old boot id."""
        deadline = Deadline(REBOOT_GRACE, "the reboot")
        while deadline.left() > LOOK_EVERY:
            answer = self._probe()
            if answer.kind == ssh.SILENT or (answer.boot_id and answer.boot_id != previous):
                return True
            deadline.sleep(LOOK_EVERY, "")
        return False

    def _probe(self):
        if not self.address:
            raise MachineError(
                "machine '%s' has no public address, so that SSH cannot reach it; enable IPv4 or IPv6" % self.run.name
            )
        return self.tools.shell.probe(self.run.name, self.address)

    def _note(self, answer):
        """Write down who answered."""
        self.answer, result = answer, self.run.result
        if answer.kind != ssh.SYSTEM:
            return
        result.update(in_rescue=answer.in_rescue, hostname=answer.hostname, boot_id=answer.boot_id)
        result["installed_record"] = answer.installed
        if answer.in_rescue:
            self.tools.shell.pin(self.run.name)


def _who(answer):
    if answer.kind == ssh.SILENT:
        return boot_decision.SILENT
    if answer.kind == ssh.DENIED:
        return boot_decision.DENIED
    if answer.in_rescue:
        return boot_decision.RESCUE
    return boot_decision.INSTALLED if answer.installed else boot_decision.OTHER


def started_for(name, installation, kept, carried, history):
    """The consent of the open intent for which a server's rescue was started; empty when a person started it (pure).

    ``kept``: the intent on this controller; ``carried``: the one in the rescue; ``history``: the server's actions,
    newest first; ``installation``: what the server was made or armed for.
    """
    done = [action for action in history if action.get("status") != "error"]
    commands = sorted(action.get("command") or "" for action in done)
    again = sum(command in BOOTING for command in commands) > 1
    if intents.is_open(carried, name, installation) and installation:
        return _still(carried, again)
    arming = next((action for action in done if action.get("command") == "enable_rescue"), None)
    if intents.is_open(kept, name, installation) and arming is not None:
        armed = kept.get("armed") or {}
        if armed.get("action") == arming.get("id"):
            return _still(kept, again)
    # Its only boot was that into the rescue which the creating run had armed.
    boots = [command for command in commands if command in BOOTING or command.endswith("_rescue")]
    if installation and "create_server" in commands and boots == ["enable_rescue", "start_server"]:
        return consents.FRESH
    return ""


def _still(intent, again):
    """What an intent still allows; ``again``: the server booted more than once, and its disk may have run."""
    kinds = (intent.get("consent") or "").split("+")
    return consents.joined(*(kind for kind in kinds if not (again and kind == consents.FRESH))) or consents.EMPTY


_UNMADE = (
    "server '%s' was never made: its creation failed, and what is left of it cannot start. Delete it in the console "
    "or with the playbook hcloud_delete, then run again"
)

_WAY_ON = "Nothing was overwritten; run hcloud_rescue once more with rearm set to true"

_REFUSALS = {
    boot_decision.REFUSE_FOREIGN: (
        "server '%(name)s' was not made by this collection; to keep what runs there, adopt it (kubenode_adopt: true); "
        "to write it, name it: %(word)s"
    ),
    boot_decision.REFUSE_RESCUE: (
        "server '%(name)s' is in a rescue that was not started for an open installation of ours: somebody may be "
        "repairing it. It was left as it is. To keep its system, reboot it to its disk; to write it, name it: "
        "%(word)s"
    ),
    boot_decision.REFUSE_STATUS: "server '%(name)s' has the status '%(status)s'; run again when it is off or running",
    boot_decision.REFUSE_STARTED: (
        "server '%(name)s' is off but was started before, so its disk may hold something; power it on; to "
        "overwrite it, name it: %(word)s"
    ),
    boot_decision.REFUSE_SILENT: (
        "server '%(name)s' runs, but for %(limit)g s nobody could tell which system: %(seen)s. Look at its console; "
        "to have it power-cycled into the rescue and overwritten, name it: %(word)s"
    ),
    boot_decision.REFUSE_DENIED: (
        "server '%(name)s' runs a system that does not let us in: %(seen)s. Give the key it knows as ssh_private_key; "
        "to have it power-cycled into the rescue and overwritten, name it: %(word)s"
    ),
}
