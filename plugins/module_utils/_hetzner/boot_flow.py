# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The boot flow: one call of hcloud_rescue or robot_rescue takes all its machines into their rescue, or out of it.

For each machine: observe it and decide (`boot_decision`), arm and boot it, prove what came up, record that in intent
and result. What the providers do differently is in ``cloud_rescue`` and ``robot_rescue``: one class for a call, and one
for a machine.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._common import boot_states, installed, intents, probe
from .._common import consent as consents
from . import boot_decision as decision
from .api_failures import LOOK_EVERY, ApiError, Deadline, EndedEarly, MachineError, NoAnswer, Refused, raise_if_ended
from .api_types import Machine
from .boot_decision import NONE, PORT, ObservedState
from .fleet_run import MachineRun, difference, name_findings, refuse_findings
from .ssh import DENIED, SILENT, SYSTEM, Answer, Ssh

#: Seconds to find out who answers when the machine will be rebooted in any case.
SHORT_LOOK = 8.0
#: Seconds for which a system must refuse our key until that is its answer: one that boots may have no keys yet.
REFUSAL_TAKES = 15.0

_TOWARDS = {
    "rescue": decision.towards_rescue,
    "os": decision.towards_os,
    "disarmed": decision.towards_disarmed,
}
#: Steps that begin with a reboot by SSH, of whichever machine answers.
_BY_SSH = (decision.ARM_AND_REBOOT, decision.LEAVE_RESCUE)
#: Steps that change nothing.
_HARMLESS = (decision.ATTACH, decision.LEAVE)

#: What an intent holds of that which a machine is wanted to be.
_ABOUT = ("image_url", "image_digest", "command")

_RESCUE_OF_OTHERS = (
    "%s is in a rescue that was not started for an open installation of ours: a person may be repairing it. It was "
    "left as it is. To keep its system, reboot it to its disk; to write it, name it: %s"
)


#: How the user can say that it is the right one, as one that has no public address of its own may be.
_OTHER_WAYS = ", or name the host keys of its system (kubenode_host_keys)"


class IntentStore:
    """The intents of a fleet on the controller, opened before a rescue is armed.

    Without a folder, nothing is written and nothing is known.
    """

    def __init__(self, folder: str | None, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._wanted = wanted

    @property
    def kept(self) -> bool:
        """Whether anything is remembered at all."""
        return bool(self._folder)

    def open(self, run: MachineRun, consent: str, **more: Any) -> None:
        """Write down what is about to be done to a machine; a second try of the same installation goes on."""
        if not self._folder:
            return
        about = {key: value for key, value in (self._wanted.get(run.name) or {}).items() if key in _ABOUT}
        installation = run.result["installation"]
        try:
            kept = self.of(run.name)
            if kept and intents.is_open(kept, run.name, installation) and not kept.get("disarmed"):
                return
            intent = intents.make(run.name, installation, consent, **dict(about, **more))
            succeeded = intents.seen_to_succeed(kept, more.get("replaces"))
            if succeeded is not None:
                # What is there until this one begins, which may never be.
                intent["replaced_succeeded"] = succeeded
            intents.write(intents.file_of(self._folder, run.name), intent)
        except intents.IntentError as error:
            raise MachineError(f"nothing was armed: {error}") from error

    def armed(self, name: str, **how: Any) -> None:
        """What distinguishes the arming that just happened from others."""
        intent = self._read(name, intents.read_open)
        if not self._folder or intent is None:
            return
        try:
            intents.write(intents.file_of(self._folder, name), dict(intent, armed=how))
        except intents.IntentError as error:
            raise MachineError(f"armed, but {error}") from error

    def gave_up(self, name: str, for_good: bool) -> None:
        """The arming was taken back: a rescue that comes now is not ours. ``for_good``: it is not tried again."""
        with contextlib.suppress(intents.IntentError, MachineError):  # the error that led here says more
            intent = self._read(name, intents.read_open)
            if not self._folder or intent is None:
                return
            path = intents.file_of(self._folder, name)
            if for_good:
                intents.close(path, intents.GIVEN_UP)
            else:
                intents.write(path, dict(intent, disarmed=True))

    def contact(self, name: str, installation: str, proven: bool = False) -> None:
        """A system answered of which nothing else is kept here: no intent, but the first contact was made."""
        kept = self.of(name)
        if not self._folder or (kept is not None and (not kept.get("contact") or kept.get("proven") or not proven)):
            return
        made = intents.make(name, installation or installed.new_installation(), "", contact=True, proven=proven)
        try:
            path = intents.file_of(self._folder, name)
            intents.write(path, dict(made, state=intents.SEEN, ended_at=made["armed_at"]))
        except intents.IntentError as error:
            raise MachineError(str(error)) from error

    def seen(self, name: str, proven: bool) -> None:
        """A system answered: nothing on its disks may be written for this intent any more."""
        if self._folder:
            try:
                intents.close(intents.file_of(self._folder, name), intents.DONE if proven else intents.SEEN)
            except intents.IntentError as error:
                raise MachineError(str(error)) from error

    def of(self, name: str) -> dict[str, Any] | None:
        """The intent of a machine; None when there is none."""
        return self._read(name, intents.read)

    def _read(self, name: str, how: Callable[[str], dict[str, Any] | None]) -> dict[str, Any] | None:
        try:
            return how(intents.file_of(self._folder, name)) if self._folder else None
        except intents.IntentError as error:
            raise MachineError(str(error)) from error

    def unproven(self, name: str, installation: str = "") -> str:
        """PORT or NONE when the user asks for no more, and a run of this controller has finished what is there."""
        proof, intent = (self._wanted.get(name) or {}).get("proof"), self.of(name)
        if not intent or intent.get("machine") != name or intent.get("state") != intents.DONE:
            return ""
        same = intent["installation"] == (installation or intent["installation"])
        return str(proof) if same and proof in (PORT, NONE) else ""

    def replaced(self, name: str, installation: str) -> str:
        """What was there before an installation that was armed for and never begun; empty when that is not known."""
        intent = self.of(name)
        if not intent or intent["installation"] != installation or not self._unbegun(intent, name):
            return ""
        return installed.installation_of({"installation": intent.get("replaces")})

    @staticmethod
    def _unbegun(intent: Mapping[str, Any], name: str) -> bool:
        return intent.get("machine") == name and intent.get("state") != intents.DONE and not intent.get("begun")

    def unfinished(self, name: str) -> str:
        """The installation that this controller began and never saw proven; empty when there is none."""
        intent = self.of(name)
        if not intent or intent.get("machine") != name or intent.get("state") == intents.DONE:
            return ""
        if self._unbegun(intent, name):
            # It was armed for this installation, and nothing was written: the system that runs is of another one.
            return ""
        return str(intent["installation"])


@dataclass
class BootOptions:
    """What both modules are asked for; names are those of the options."""

    #: Each machine: its ``name``, and what an earlier step returned of it.
    machines: Sequence[Machine]
    state: str = "rescue"
    #: The variable whose entries permit to give up a present system, and its value.
    word: tuple[str, Any] = ("reinstall", ())
    rearm: bool = False
    prove: bool = True
    #: Seconds for each step at the API.
    timeout: float = 360
    check_mode: bool = False
    wanted: Sequence[Mapping[str, Any]] = ()
    fail_for_drift: bool = False
    intents_dir: str | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any], word: tuple[str, Any], check_mode: bool) -> BootOptions:
        """From the parameters of a module that has `boot_options`."""
        return cls(
            params["machines"],
            state=params["state"],
            word=word,
            rearm=params["rearm"],
            prove=params["prove"],
            timeout=params["timeout"],
            check_mode=check_mode,
            wanted=params["wanted"],
            fail_for_drift=params["drift"] == "fail",
            intents_dir=params["intents_dir"],
        )


def boot_options() -> dict[str, Any]:
    """The argument spec that both modules have, that of the documentation fragment ``hetzner.boot_rescue`` included."""
    return {
        "machines": {"type": "list", "elements": "dict", "required": True},
        "state": {"type": "str", "choices": ["rescue", "os", "disarmed"], "default": "rescue"},
        "reinstall": {"type": "raw", "default": []},
        "wanted": {"type": "list", "elements": "dict", "default": []},
        "drift": {"type": "str", "choices": ["report", "fail"], "default": "report"},
        "intents_dir": {"type": "path"},
        "rearm": {"type": "bool", "default": False},
        "prove": {"type": "bool", "default": True},
        "ssh_private_key": {"type": "path", "no_log": False},
        "ssh_args": {"type": "str", "default": ""},
        "access": {"type": "list", "elements": "dict", "default": []},
        "known_hosts_dir": {"type": "path"},
        "timeout": {"type": "int", "default": 360},
    }


class BootFleet(ABC):
    """One call of a module."""

    def __init__(self, api: Any, shell: Ssh, options: BootOptions) -> None:
        self.api = api
        self.shell = shell
        self.options = options
        self.machines: dict[str, Machine] = {one.get("name", ""): one for one in options.machines}
        self.wanted: dict[str, Mapping[str, Any]] = {one.get("name", ""): one for one in options.wanted}
        self.words = consents.Words(*options.word)
        self.intents = IntentStore(options.intents_dir, self.wanted)

    def run(self) -> list[dict[str, Any]]:
        """Returns the results of all machines, in the order given; raises FleetError."""
        # An entry may name machines that are not of this call: of a larger fleet, not created, or left out by --limit.
        refuse_findings(self.words.findings + name_findings(self.options.machines) + self.more_findings())
        runs = [self.run_of(machine) for machine in self.options.machines]
        active = [run for run in runs if not run.result["failed"]]
        if active:
            self.work(active)
        return [run.finish(self.api.calls_of.get(run.name, 0)) for run in runs]

    def more_findings(self) -> list[str]:
        """What is wrong with a provider's own input."""
        return []

    @abstractmethod
    def run_of(self, machine: Machine) -> MachineRun:
        """The run of one machine, going on where the step before it ended."""

    @abstractmethod
    def work(self, active: list[MachineRun]) -> None:
        """Carry out the steps of all machines that did not fail before; raises FleetError."""

    def is_booting(self, machine: Machine) -> bool:
        """Whether this is a second try, and an earlier call of this run sent the machine into its rescue."""
        return self.options.rearm and machine.get("boot_state") == boot_states.BOOTING_TO_RESCUE

    @property
    def may_write(self) -> bool:
        """Whether anything may be changed."""
        return not self.options.check_mode


class BootFlow(ABC):
    """One machine in one call. ``given``: what an earlier step returned of it."""

    #: The message when the rescue could not be disarmed; takes the error.
    still_armed: str

    def __init__(self, fleet: Any, run: MachineRun, given: Machine, seen: ObservedState) -> None:
        self.fleet = fleet
        self.options: BootOptions = fleet.options
        self.run = run
        self.result = run.result
        self.given = given
        self.seen = seen
        self.deadline = self.deadline_for("the armed rescue")
        #: How questions are answered and steps are carried out.
        self._steps: dict[str, Callable[[], None]] = {
            decision.PROBE: self.ask_who_answers,
            decision.ASK_RESCUE: self.ask_rescue,
            decision.ATTACH: self.attach,
            decision.LEAVE: self.leave,
            decision.DISARM: self.disarm,
            decision.LEAVE_RESCUE: self.leave_rescue,
            **self.own_steps(),
        }

    # --- what a provider does in its own way

    @property
    @abstractmethod
    def answer(self) -> Answer | None:
        """The last answer by SSH."""

    @abstractmethod
    def own_steps(self) -> dict[str, Callable[[], None]]:
        """The questions and steps that only this provider has, and those that arm and boot."""

    @abstractmethod
    def probe(self) -> Answer:
        """Ask by SSH once which system answers."""

    @abstractmethod
    def look_seconds(self) -> float:
        """How long a machine may be silent before that counts as its answer."""

    @abstractmethod
    def ask_rescue(self) -> None:
        """Find out whether the rescue that answers was started for an open intent."""

    @abstractmethod
    def attach(self) -> None:
        """Use the rescue that answers."""

    @abstractmethod
    def leave(self) -> None:
        """Change nothing, and say what runs."""

    @abstractmethod
    def disarm(self) -> None:
        """Disarm the rescue."""

    @abstractmethod
    def leave_rescue(self) -> None:
        """Reboot a machine out of its rescue."""

    @abstractmethod
    def begin(self, step: str) -> None:
        """Called before a step that changes something."""

    @abstractmethod
    def disarm_again(self) -> None:
        """Take back what this run may have armed."""

    @abstractmethod
    def end_of(self, error: Exception) -> Exception | None:
        """How an error ends the work on this machine; None when the result says it already."""

    @abstractmethod
    def refusal(self, step: str) -> str:
        """Why the machine is left as it is."""

    @abstractmethod
    def plan_of(self, step: str) -> str:
        """For check mode: what would be done."""

    @abstractmethod
    def was_armed(self, step: str) -> bool:
        """For the difference that is shown: whether the rescue was armed before this step."""

    # --- what both do alike

    @property
    def address(self) -> str | None:
        """Where SSH reaches the machine."""
        return self.result.get("address") or self.result.get("ipv4") or self.result.get("ipv6_address")

    def deadline_for(self, what: str) -> Deadline:
        """Every step at the API has the whole time limit for itself."""
        return Deadline(self.options.timeout, what)

    def decide(self) -> str:
        """The next step; finds out what the decision needs to know."""
        table = _TOWARDS[self.options.state]
        while True:
            step = table(self.seen)
            asks = step in decision.QUESTIONS
            self.deadline = self.deadline_for("a settled server" if asks else "the armed rescue")
            if not asks:
                return step
            self._steps[step]()

    def bring_about(self, step: str | None = None) -> None:
        """Carry out what was decided before, or decide now; raises MachineError, ApiError or NoAnswer."""
        try:
            self.carry_out(self.decide() if step is None else step)
        except (MachineError, ApiError, NoAnswer, EndedEarly) as error:
            failure = self.end_of(error)
            if failure is not None:
                raise failure from error

    def carry_out(self, step: str) -> None:
        """Do one final step of the decision, or say in check mode what would be done."""
        self.refuse(step)
        # A reboot by SSH is no request: nothing else asks before it.
        raise_if_ended(self.fleet.api.own_run)
        if step not in _HARMLESS:
            if not self.fleet.may_write:
                self.result.update(changed=True, msg=f"would {self.plan_of(step)}", diff=self.diff(step))
                return
            self.begin(step)
        self._steps[step]()

    def refuse(self, step: str) -> None:
        """Raise Refused for a step that refuses the machine, or one that would reboot another machine."""
        if step.startswith("refuse"):
            raise Refused(self.refusal(step))
        if step in _BY_SSH and self.answer is not None and self.is_server() is False:
            raise Refused(f"{probe.another_server(self.answer.addresses, self.addresses)}{_OTHER_WAYS}")

    @property
    def addresses(self) -> list[str]:
        """The public addresses that the provider tells of the server; a private one, other machines may have, too."""
        return [one for one in (self.result.get("ipv4"), self.result.get("ipv6")) if one]

    def is_server(self) -> bool | None:
        """Whether what answers by SSH is the server that the provider means; None: it does not show that."""
        if self.answer is None:
            return None
        known = self.fleet.shell.shows_a_known_key(self.run.name)
        return known or probe.is_server(self.answer.addresses, self.addresses)

    def rescue_of_others(self, who: str) -> str:
        """Why a rescue that answers is not used."""
        return _RESCUE_OF_OTHERS % (who, self.word_to_write())

    def word_to_write(self) -> str:
        """The option by which a user names this machine."""
        return consents.extra_var("reinstall", [self.run.name])

    def look(self) -> None:
        """Find out by SSH who answers; one lost connection is no silence, one refusal or half an answer no answer."""
        deadline = Deadline(self.look_seconds(), "an answer by SSH")
        refused: Deadline | None = None
        waiting = boot_states.LongWait("asking which system runs", deadline.seconds)
        while True:
            answer = self.probe()
            refused = (refused or Deadline(REFUSAL_TAKES, "a login")) if answer.kind == DENIED else None
            enough = answer.whole and (answer.kind == SYSTEM or (self.seen.unproven and answer.listens))
            enough = enough or (refused is not None and not refused.left())
            if enough or deadline.left() <= LOOK_EVERY:
                break
            if line := waiting.line(deadline.seconds - deadline.left(), answer.describe()):
                self.run.says(line)
            deadline.sleep(LOOK_EVERY, "")
        self.seen.answer, self.seen.listens = who_answers(answer), answer.listens
        self.note(answer)

    def ask_who_answers(self) -> None:
        """Find out who answers, and whether the option that names the machine covers that system."""
        self.look()
        answer = self.answer
        if answer is None:
            return
        if self.seen.reinstall and (self.seen.lets_us_in or not self.seen.dedicated):
            self.seen.reinstall = self.may_go(answer)
        elif self.result["used"] and answer.whole and not answer.in_rescue and self._is_named(answer):
            # What was begun instead of it never came about: the system that the user named runs and says so.
            self.seen.reinstall, self.result["used"] = True, ""

    def _is_named(self, answer: Answer) -> bool:
        return self.seen.lets_us_in and self.fleet.words.names_installation(self.run.name, answer.installed)

    def may_go(self, answer: Answer) -> bool:
        """Whether the option that names the machine covers what runs on it; the result says why not."""
        words = self.fleet.words
        if not words.names(self.run.name):
            return False
        if not answer.whole:
            # The record that was not read may say that the option was used.
            self.result["used"] = (
                f"kubenode_{words.variable} names {self.run.name}, but {answer.detail}, so what is installed there is "
                "not known; run again, or boot it into its rescue yourself"
            )
            return False
        kept = self.fleet.intents.of(self.run.name)
        record = intents.record_or_kept(answer.installed, kept, self.run.name, answer.origin.uuids)
        if answer.in_rescue or words.covers(self.run.name, record):
            return True
        self.result["used"] = words.why_not(self.run.name, record)
        return False

    def note(self, answer: Answer) -> None:
        """Write into the result who answered."""
        if answer.kind == SYSTEM:
            self.result.update(in_rescue=answer.in_rescue, hostname=answer.hostname, boot_id=answer.boot_id)
            self.result["installed_record"] = answer.installed

    def remember(self) -> None:
        """Keep the boot that answers now: it must not be taken for the one that comes after a reset."""
        seen = self.answer.boot_id if self.answer is not None else None
        self.result["previous_boot_id"] = seen or self.given.get("boot_id")

    def give_up(self) -> str:
        """Take back what is armed, so that the next boot leads to the disk; returns a clause for the message."""
        try:
            self.disarm_again()
        except (MachineError, ApiError, NoAnswer) as error:
            return self.still_armed % error
        return ". The rescue is disarmed: the next boot leads to the disk"

    def compare(self, record: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> None:
        """Report of a system that is not changed whether it was verified, and how it differs from what is asked for.

        ``record``: what it shows, which may claim what it likes of an image command that failed here; ``facts``: what
        the provider says. Raises Refused when a difference is to fail.
        """
        result, name = self.result, self.run.name
        kept = self.fleet.intents.of(name)
        result["proven"] = installed.is_proven(record, name, result["installation"])
        if intents.seen_to_succeed(kept, installed.installation_of(record)) is False:
            result["proven"] = False
        if where := self.fleet.shell.where_another_key_is(name):
            result["proven"] = False
            result["msg"] += f"; not verified: the host key that it shows is none of {where}"
        result["drift"] = installed.drift(dict(record or {}, **facts), self.fleet.wanted.get(name))
        words = installed.drift_in_words(result["drift"], (record or {}).get("installed_at"))
        if words:
            result["msg"] += f"; it {words}"
            if self.options.fail_for_drift:
                raise Refused(f"it {words}, or leave kubenode_drift out")

    def diff(self, step: str) -> dict[str, Any]:
        """What a step changes, for diff mode."""
        leaving = step in (decision.DISARM, decision.LEAVE_RESCUE)
        before = {"rescue": step == decision.LEAVE_RESCUE, "armed": self.was_armed(step)}
        after = {"rescue": not leaving, "armed": False}
        return difference(self.run.name, before, after)

    def arrived_in_words(self) -> str:
        """The message of a machine that was sent into its rescue."""
        return "is in the rescue" if self.options.prove else "is booting into the rescue (not proved)"


def who_answers(answer: Answer) -> str:
    """RESCUE, INSTALLED, OTHER, SILENT or DENIED of the decision."""
    if answer.kind == SILENT:
        return decision.SILENT
    if answer.kind == DENIED:
        return decision.DENIED
    if answer.in_rescue:
        return decision.RESCUE
    return decision.INSTALLED if answer.installed else decision.OTHER
