# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Bring the machines of a fleet into their rescue, or back out of it (what the module hcloud_rescue does)."""

from __future__ import annotations

import contextlib
import ipaddress
import time

from .._common import boot_states, installed
from .._common import consent as consents
from .._common import intents as kept_intents
from . import boot_decision
from .actions import USUALLY, ActionBoard
from .catalog import Catalog, Unfit
from .cloud_boot import Journey, NotArrived
from .cloud_servers import INSTALLATION_LABEL, Servers, addresses, installation_of, is_ours
from .errors import ApiError, FleetError, MachineError, NoAnswer, Refused
from .fleet import MachineRun, explain, name_findings, refuse_findings, run_all
from .intent_store import Book
from .login_keys import public_half, resolve_keys
from .retry import Deadline

#: A result that says "created in this run" is believed for this long.
FRESH_FOR = 3600.0

_DELETED = "server '%s' was deleted in the meantime; run the playbook again, which makes another one"

#: By the word of the user alone: what lies on the disks says whether the word covers it.
NAMED = "named"

#: What a result of an earlier step hands on when this module has nothing new to say about it.
_HANDED_ON = ("server_type", "location", "image", "created", "adopted")
_KEPT_OF_FAILED = ("id", "ipv4", "ipv6", "ipv6_address", "status", "in_rescue", "boot_id", "previous_boot_id")

_TOWARDS = {
    "rescue": boot_decision.towards_rescue,
    "os": boot_decision.towards_os,
    "disarmed": boot_decision.towards_disarmed,
}
_PLANS = {
    boot_decision.ARM_AND_START: "arm the rescue and power on",
    boot_decision.ARM_AND_REBOOT: "arm the rescue and reboot",
    boot_decision.ARM_AND_RESET: "arm the rescue and reset",
    boot_decision.START: "power on into the armed rescue",
    boot_decision.RESET: "reset into the armed rescue",
    boot_decision.DISARM: "disarm the rescue",
    boot_decision.LEAVE_RESCUE: "leave the rescue by a reboot",
}


class Tools:
    """What the journeys of all machines share."""

    def __init__(self, api, shell, timeout, rescue_timeout, intents, words):
        self.servers = Servers(api)
        self.board = ActionBoard(api)
        self.shell = shell
        self.timeout = timeout
        self.rescue_timeout = rescue_timeout
        self.key_ids = []
        self.intents = intents
        self._words = words

    def may_go(self, run, answer):
        """Whether the word that names a machine still covers what runs on it; says why not."""
        record = kept_intents.record_or_kept(answer.installed, self.intents.of(run.name), run.name, answer.origin.uuids)
        if answer.in_rescue or self._words.covers(run.name, record):
            return True
        run.result["used"] = self._words.why_not(run.name, record)
        return False


class RescueFleet:
    """One call of hcloud_rescue."""

    def __init__(
        self,
        api,
        shell,
        machines,
        state="rescue",
        ssh_keys=(),
        prove=True,
        reinstall=(),
        rearm=False,
        timeout=360,
        rescue_timeout=360,
        check_mode=False,
        private_key=None,
        wanted=(),
        fail_for_drift=False,
        intents_dir=None,
    ):
        self._api = api
        self._wanted = {one.get("name"): one for one in wanted}
        self._intents = Book(intents_dir, self._wanted)
        self._words = consents.Words("reinstall", reinstall)
        self._tools = Tools(api, shell, timeout, rescue_timeout, self._intents, self._words)
        self._given = machines
        self._machines = {machine.get("name"): machine for machine in machines}
        self._state = state
        self._ssh_keys = ssh_keys
        self._prove = prove
        self._rearm = rearm
        self._check = check_mode
        self._private_key = private_key
        self._fail_for_drift = fail_for_drift
        self._found = {}

    def run(self):
        """Returns the results of all machines, in the order given; raises FleetError."""
        self._check_input()
        runs = [self._run_of(machine) for machine in self._given]
        active = [run for run in runs if not run.result["failed"]]
        if active:
            self._look(active)
            run_all(self._api, active, self._bring_about)
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _check_input(self):
        # Names of machines that are not of this call do no harm: of a larger fleet, or not created.
        refuse_findings(self._words.findings + name_findings(self._given))

    def _run_of(self, machine):
        """The run of one machine, going on where the step before it ended."""
        run = MachineRun.going_on(machine)
        run.result.update({key: machine[key] for key in _HANDED_ON if key in machine})
        run.result.update(in_rescue=None, boot_id=None, previous_boot_id=None, installed=False)
        run.result.update(installation="", proven=False, drift=[], used="")
        # A machine that missed its rescue has booted what it was made of: what it was armed for stands.
        run.result["consent"] = (machine.get("consent") or "") if self._again(machine) else ""
        run.result["armed_here"] = bool(machine.get("armed_here")) and self._again(machine)
        run.result["fresh"] = bool(machine.get("fresh")) and self._again(machine)
        if machine.get("failed") and not self._again(machine):
            run.result.update({key: machine[key] for key in _KEPT_OF_FAILED if key in machine})
            run.result.update(failed=True, msg=machine.get("msg") or "it failed in an earlier step")
        return run

    def _again(self, machine):
        """Whether this run armed the machine before and it did not arrive."""
        return (
            self._rearm
            and machine.get("boot_state") == boot_states.BOOTING_TO_RESCUE
            and machine.get("armed_here", True)
        )

    def _look(self, active):
        """Read the servers and keys, and judge the budget; nothing is changed."""
        deadline = Deadline(self._tools.timeout, "the check of the input")
        self._found = self._tools.servers.find([run.name for run in active], deadline, ours_first=True)
        if self._state != "rescue":
            return
        self._learn([run.name for run in active if run.name in self._found and self._is_made(run.name)])
        keys = self._keys(active, deadline)
        self._tools.key_ids = [key["id"] for key in keys]
        count = len(active)
        plan = self._api.budget.plan(
            2 * count + 8 * (1 + count // 25), self._tools.timeout, "arming and starting %d machines" % count
        )
        if not plan.possible:
            raise FleetError("API budget: %s" % plan.message)

    def _learn(self, made):
        """Whether this platform is a quick one: servers that are ready long before one usually is say so."""
        young = [name for name in made if _age(self._machines[name]) < USUALLY["create_server"] / 2]
        if any(self._found[name]["status"] != "initializing" for name in young):
            self._tools.board.learn(quick=True)
        elif made:
            self._tools.board.learn(quick=False)

    def _is_made(self, name):
        """Whether the API was creating the server when the step before this one ended."""
        return ((self._machines[name].get("create_action") or {}).get("status")) == "running"

    def _keys(self, active, deadline):
        """The registered keys that may log in to the rescue; those of servers made just now were looked up for them."""
        known = [self._machines[run.name].get("ssh_keys") or [] if self._is_made(run.name) else [] for run in active]
        first = known[0] if all(one == known[0] for one in known) else []
        try:
            public_key = public_half(self._private_key) if self._private_key else None
            if first and all(isinstance(key, dict) for key in first):
                with contextlib.suppress(Unfit):
                    return resolve_keys("ssh_keys", self._ssh_keys, first, public_key, self._private_key)
            registered = Catalog(self._api, deadline).ssh_keys()
            return resolve_keys("ssh_keys", self._ssh_keys, registered, public_key, self._private_key)
        except Unfit as finding:
            raise FleetError("nothing was changed, because of: %s" % finding) from finding

    def _bring_about(self, run):
        given, server = self._machines[run.name], self._found.get(run.name)
        if server is None:
            self._missing(run, given)
            return
        ipv4, ipv6 = addresses(server)
        run.result.update(
            id=server["id"], ipv4=ipv4, ipv6=ipv6, ipv6_address=first_address(ipv6), status=server["status"]
        )
        run.result["installation"] = given.get("installation") or installation_of(server)
        kept = self._intents.of(run.name)
        if kept and kept["installation"] == run.result["installation"]:
            run.result["used"] = self._words.used_by(run.name, kept)
        journey = Journey(self._tools, run, server, self._sight(server, given, run), given)
        try:
            self._carry_out(journey.decide(_TOWARDS[self._state]), journey, run)
        except NotArrived as error:
            told = self._given_up(journey, run) if self._rearm else ""
            run.fail("%s%s" % (error, told), provisioning=False)
        except (MachineError, ApiError, NoAnswer) as error:
            if getattr(error, "code", "") == "not_found":
                raise MachineError(_DELETED % run.name) from error
            kind = Refused if isinstance(error, Refused) else MachineError
            raise kind("%s%s" % (explain(error), self._given_up(journey, run))) from error

    def _given_up(self, journey, run):
        """Take back what is armed: the next boot of the machine is somebody else's. Returns what to tell."""
        if self._check or not (journey.armed or (journey.sight.rearm and journey.sight.armed)):
            return ""
        told = journey.give_up()
        self._intents.gave_up(run.name, for_good=False)
        return told

    def _missing(self, run, given):
        if not (self._check and given.get("created")):
            deleted = given.get("id") and not self._check
            raise Refused(
                (_DELETED if deleted else "there is no server '%s'; create it with hcloud_machine") % run.name
            )
        run.result.update(changed=True, msg="would %s" % _PLANS[boot_decision.ARM_AND_START])

    def _sight(self, server, given, run):
        since = given.get("boot_state_since")
        fresh = bool(given.get("fresh")) and given.get("id") == server["id"]
        young = bool(since) and time.time() - boot_states.from_rfc3339(since) < FRESH_FOR
        return boot_decision.Sight(
            status=server["status"],
            ours=is_ours(server) or bool(given.get("adopt")),
            reinstall=self._words.names(server["name"]) and not run.result["used"],
            rearm=self._again(given),
            fresh=bool(run.result["fresh"]),
            armed=bool(server.get("rescue_enabled")),
            armed_here=bool(given.get("armed_here")),
            # one that is armed already was armed by another run
            never_started=True if fresh and young and not server.get("rescue_enabled") else None,
            unproven=self._intents.unproven(run.name, run.result["installation"]),
        )

    def _carry_out(self, step, journey, run):
        if step.startswith("refuse"):
            journey.refuse(step)
        if step == boot_decision.ATTACH:
            run.timeline.found(boot_states.BOOTING_TO_RESCUE)
            run.result["msg"] = "is in the rescue"
            self._attach(journey, run)
        elif step == boot_decision.LEAVE:
            self._leave(journey, run)
        elif self._check:
            run.result.update(changed=True, msg="would %s" % _PLANS[step], diff=_diff(run.name, step))
        else:
            run.result.update(changed=True, diff=_diff(run.name, step))
            getattr(self, "_" + step)(journey, run)

    def _attach(self, journey, run):
        """On what ground something may be written in the rescue that was found."""
        if journey.sight.rearm:
            return
        if journey.sight.intended:
            # Of a word of the user nothing is left but what had begun, and of that the rescue itself tells.
            fresh = consents.FRESH in journey.sight.intended.split("+")
            run.result["consent"] = consents.FRESH if fresh else consents.EMPTY
        else:
            run.result["consent"] = NAMED
            if not self._check:
                self._begin(journey, run, consents.REINSTALL)

    def _leave(self, journey, run):
        if journey.sight.status == "off" or self._state == "disarmed":
            run.result["msg"] = "is %s and not armed" % journey.sight.status
            return
        run.timeline.found(boot_states.OPERATING_SYSTEM_RUNNING)
        run.result.update(installed=True, msg="left alone: %s" % journey.answer.describe())
        kind, place = journey.server.get("server_type") or {}, journey.server.get("location") or {}
        run.result["installation"] = run.result["installation"] or self._intents.unfinished(run.name)
        expected, record = run.result["installation"], journey.answer.installed
        before = self._intents.replaced(run.name, expected)
        if before and installed.installation_of(record) == before:
            # It was armed for another one, of which nothing was written: what was there is there still.
            run.result["installation"] = before
            if not self._check:
                self._label(journey, run, before)
        facts = {"server_type": kind.get("name"), "location": place.get("name")}
        if run.result["used"]:
            run.result["msg"] += "; %s" % run.result["used"]
        if journey.sight.armed and journey.sight.rearm and not self._check:
            self._tools.board.wait(
                self._tools.servers.disable_rescue(journey.server, journey.deadline), journey.deadline
            )
            run.result["msg"] += "; its rescue is disabled again"
        elif journey.sight.armed:
            # A person enabled it, or a run that was killed; the next reboot would be a surprise.
            run.result["warning"] = "its rescue is enabled, so its next boot leads there; disable it to prevent that"
        if journey.sight.answer in (boot_decision.SILENT, boot_decision.DENIED):
            record = self._unproven(journey, run)
        wanted, kept = self._wanted.get(run.name), self._intents.of(run.name)
        compare(run, record, facts, wanted, self._fail_for_drift, self._tools.shell, kept)
        if not self._check and journey.sight.answer not in (boot_decision.SILENT, boot_decision.DENIED):
            self._intents.seen(run.name, run.result["proven"] and run.result["installation"] == expected)

    def _unproven(self, journey, run):
        """Nothing but our own intent tells what runs."""
        run.result["msg"] += "; not verified, as kubenode_proof: %s says" % journey.sight.unproven
        return self._intents.of(run.name)

    def _arm_and_start(self, journey, run):
        # Nothing but what the server was made of has been on its disk.
        run.result["fresh"] = journey.sight.never_started is True or run.result["fresh"]
        self._new_installation(journey, run)
        journey.arm(disarm_first=journey.sight.armed)
        self._start(journey, run)

    def _start(self, journey, run):
        journey.start()
        self._arrive(journey, run)

    def _new_installation(self, journey, run):
        """What is armed for begins another installation, but for a new server and a second try."""
        result, sight = run.result, journey.sight
        if sight.rearm and result["installation"]:
            return
        named = consents.REINSTALL if self._words.names(run.name) else ""
        if result["fresh"] and result["installation"]:
            result["consent"] = consents.joined(consents.FRESH, named)
            self._intents.open(run, result["consent"], server=journey.server["id"])
            return
        # What was seen may run from another disk, or nothing was seen: the look at the disks decides.
        result["consent"] = NAMED if named else ""
        self._begin(journey, run, named)

    def _begin(self, journey, run, consent):
        """Another installation of a machine that had one before."""
        before = self._intents.replaced(run.name, installation_of(journey.server)) or installation_of(journey.server)
        self._label(journey, run, installed.new_installation())
        goes = self._shown_by_nothing(run.name)
        self._intents.open(run, consent, server=journey.server["id"], replaces=before, goes=goes)

    def _label(self, journey, run, installation):
        run.result["installation"] = installation
        labels = dict(journey.server.get("labels") or {}, **{INSTALLATION_LABEL: installation})
        journey.server = self._tools.servers.relabel(journey.server, labels, journey.deadline)

    def _shown_by_nothing(self, name):
        """UUIDs of a system without a record that the word names by the id of its installation."""
        kept = self._intents.of(name) or {}
        record = kept_intents.record_or_kept(None, kept, name, kept.get("holds") or [])
        return kept.get("holds") if record and self._words.covers(name, record) else []

    def _arm_and_reboot(self, journey, run):
        self._new_installation(journey, run)
        self._remember(journey, run)
        journey.arm(disarm_first=journey.sight.armed)
        journey.reboot()
        self._arrive(journey, run)

    def _arm_and_reset(self, journey, run):
        self._new_installation(journey, run)
        self._remember(journey, run)
        journey.arm(disarm_first=journey.sight.armed)
        self._reset(journey, run)

    def _reset(self, journey, run):
        self._remember(journey, run)
        journey.reset()
        self._arrive(journey, run)

    def _remember(self, journey, run):
        """Whoever answered before the reset must not be taken for who comes after it."""
        seen = journey.answer.boot_id if journey.answer is not None else None
        run.result["previous_boot_id"] = seen or journey.given.get("boot_id")

    def _arrive(self, journey, run):
        run.result.update(in_rescue=None, boot_id=None)
        if self._prove:
            journey.prove()
        run.result["msg"] = "is in the rescue" if self._prove else "is booting into the rescue (not proved)"

    def _disarm(self, journey, run):
        action = self._tools.servers.disable_rescue(journey.server, journey.deadline)
        self._tools.board.wait(action, journey.deadline)
        run.result["msg"] = "disarmed"
        if self._state == "disarmed":
            self._intents.gave_up(run.name, for_good=True)
        if journey.sight.answer in (boot_decision.SILENT, boot_decision.DENIED):
            raise Refused("disarmed, but which system runs is unknown: %s" % journey.answer.describe())

    def _leave_rescue(self, journey, run):
        self._remember(journey, run)
        if journey.sight.armed:
            self._disarm(journey, run)
        journey.destination = boot_states.BOOTING_TO_REAL_OS
        journey.reboot()
        if self._prove:
            journey.prove()
            run.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)
        run.result["msg"] = "left the rescue"


def _age(machine):
    """Seconds since a machine of this run came into its boot state; many when that is not known."""
    since = machine.get("boot_state_since")
    return time.time() - boot_states.from_rfc3339(since) if since else FRESH_FOR


def compare(run, record, facts, wanted, fail, shell, kept):
    """Say of a system that is left alone whether it was verified, and how it differs from what is asked for.

    ``kept``: the intent on this controller. A record may claim what it likes of an image command that failed here.
    """
    result = run.result
    result["proven"] = installed.is_proven(record, run.name, result["installation"])
    if kept_intents.seen_to_succeed(kept, installed.installation_of(record)) is False:
        result["proven"] = False
    if shell.shows_another_key(run.name):
        result["proven"] = False
        result["msg"] += "; the host key that it shows is none of kubenode_host_keys"
    result["drift"] = installed.drift(dict(record or {}, **facts), wanted)
    words = installed.drift_in_words(result["drift"], (record or {}).get("installed_at"))
    if words:
        result["msg"] += "; it %s" % words
        if fail:
            raise Refused("it %s, or leave kubenode_drift out" % words)


def first_address(network):
    """The address a server has in its IPv6 network, which the API gives as ``2001:db8::/64``."""
    try:
        return str(next(ipaddress.ip_network(network).hosts())) if network else None
    except (ValueError, StopIteration):
        return None


def _diff(name, step):
    before = {
        "rescue": step == boot_decision.LEAVE_RESCUE,
        "armed": step in (boot_decision.DISARM, boot_decision.START, boot_decision.RESET),
    }
    after = {"rescue": step not in (boot_decision.LEAVE_RESCUE, boot_decision.DISARM), "armed": False}
    return {"before_header": name, "after_header": name, "before": before, "after": after}
