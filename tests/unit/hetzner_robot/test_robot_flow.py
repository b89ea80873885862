# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot flow of a dedicated server, where an earlier call ended before it had reset the server."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, intents
from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import OwnRun
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import Origin
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import boot_decision as decision
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import reset_escalation
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    FleetError,
    MachineError,
    Refused,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import BootOptions
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import (
    RobotFlow,
    RobotOptions,
    RobotRescue,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_servers import HW, SSH, SW
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import SYSTEM, Answer

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4pPmbmyBoyKVvgrhFAnkLS1cHwDX5dHz4kDLBQ8YJt"


class Robot:
    """An account with one server whose rescue is armed; takes note of the resets."""

    own_run = None

    def __init__(self):
        self.resets = []

    def read(self, path, _deadline, machine=None):
        return {"rescue": {"active": True}} if path.endswith("/rescue") else {"reset": {"operating_status": "running"}}

    def change(self, _method, _path, _deadline, _look, machine=None, data=None):
        return {}

    def reserve(self, _kind, _deadline):
        pass

    def request(self, _method, _path, _deadline, machine=None, data=None, reserved=False):
        self.resets.append(data["type"])
        return {"reset": {}}


def silent():
    """SSH to a machine that does not answer."""
    return SimpleNamespace(
        proved_system=lambda _name: False,
        where_another_key_is=lambda _name: "",
        shows_a_known_key=lambda _name: False,
        host_keys=lambda _name, _address: [],
        probe_elsewhere=lambda _name, _address: None,
        keys_of_last_probe=lambda _name: [KEY],
    )


def flow_of(robot, given, words=(), *, intents_dir=None, look_only=False):
    """The flow of one machine; the rescue is not waited for."""
    options = BootOptions(
        [given], word=("reinstall", words), rearm=True, prove=False, timeout=60.0, intents_dir=intents_dir
    )
    more = RobotOptions(
        {SW: 600.0, HW: 600.0}, (None, None), look_timeout=1.0, give_back_after=180, look_only=look_only
    )
    fleet = RobotRescue(robot, silent(), options, more)
    run = fleet.run_of(given)
    run.result.update(server_number=7, ipv4="192.0.2.1")
    return RobotFlow(fleet, run, given)


def test_a_server_that_was_never_reset_is_not_given_back_but_reset(monkeypatch):
    monkeypatch.setattr(reset_escalation, "LOOK_AGES", -1.0)  # the turn within the hourly limit took long
    robot = Robot()
    flow = flow_of(robot, {"name": "n1", "boot_state": boot_states.BOOTING_TO_RESCUE})
    flow.resets.offered = [SW, HW]
    flow.step = decision.CONTINUE
    flow.bring_about(decision.CONTINUE)
    assert robot.resets == [SW]
    assert [reset["way"] for reset in flow.result["resets"]] == [SW]


@pytest.mark.parametrize("named", [False, True])
def test_a_rescue_that_a_person_starts_while_the_run_waits_for_its_turn_is_refused(monkeypatch, named):
    robot, attached = Robot(), []
    flow = flow_of(robot, {"name": "n1", "first_contact": "reset"}, ["n1"] if named else [])
    flow.seen.answer = decision.SILENT
    flow.resets.offered = [HW]
    flow.step = decision.ARM_AND_RESET
    monkeypatch.setattr(flow.resets, "wait_for_turn", lambda: True)
    monkeypatch.setattr(flow, "look", lambda: setattr(flow.seen, "answer", decision.RESCUE))
    monkeypatch.setattr(flow, "_ask_keys", lambda: attached.append(setattr(flow.seen, "keys_proven", True)))
    if named:
        flow.bring_about(flow.step)
    else:
        with pytest.raises(Refused, match="booted into a rescue while this run waited for its turn"):
            flow.bring_about(flow.step)
    assert (robot.resets, len(attached)) == ([], int(named))


@pytest.mark.parametrize("consent", ["reinstall", "create"])
def test_a_system_that_comes_up_while_the_run_waits_is_reset_only_when_the_user_named_it(monkeypatch, consent):
    """A permission that has led to the system which runs counts no more."""
    robot, record = Robot(), {"machine": "n1", "installation": "1" * 32, "consent": consent}
    flow = flow_of(robot, {"name": "n1"}, ["n1"])
    flow.seen.answer, flow.seen.reinstall, flow.step = decision.SILENT, True, decision.ARM_AND_RESET
    flow.resets.offered = [HW]
    monkeypatch.setattr(flow.resets, "wait_for_turn", lambda: True)
    monkeypatch.setattr(flow, "look", lambda: setattr(flow.seen, "answer", decision.INSTALLED))
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, hostname="n1", boot_id="b", installed=record))
    flow.bring_about(flow.step)
    assert robot.resets == ([] if consent == "reinstall" else [HW])
    assert flow.result["msg"].startswith("left alone") == (consent == "reinstall")


@pytest.mark.parametrize("word", ["reinstall", "first_contact", ""])
def test_a_rescue_whose_keys_robot_does_not_tell_is_entered_again_with_consent(monkeypatch, word):
    robot = Robot()
    given = {"name": "n1", "boot_state": "", **({"first_contact": "reset"} if word == "first_contact" else {})}
    flow = flow_of(robot, given, ["n1"] if word == "reinstall" else [])
    asked = []

    def unproven(_known, deadline):
        asked.append(deadline.seconds)
        return False

    monkeypatch.setattr(flow.rescue_probe, "wait_for_proof", unproven)
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, origin=Origin(uptime=3600.0)))
    flow.seen.answer, flow.seen.intended, flow.resets.offered = decision.RESCUE, "empty", [HW]
    flow.step = flow.decide()
    assert asked == [10.0], "it has run for an hour: Robot had time to tell its keys"
    if word:
        flow.bring_about(flow.step)
        assert robot.resets == [HW]
        return
    with pytest.raises(MachineError, match="Robot does not tell its host keys") as error:
        flow.bring_about(flow.step)
    assert robot.resets == []
    assert "kubenode_reinstall" in str(error.value)


def test_a_look_does_not_start_a_rescue_of_a_person_again(monkeypatch):
    """It is not known who started it; the permission is for machines that do not let us in."""
    robot = Robot()
    flow = flow_of(robot, {"name": "n1", "boot_state": "", "first_contact": "reset"})
    monkeypatch.setattr(flow.rescue_probe, "wait_for_proof", lambda _known, _deadline: False)
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, origin=Origin(uptime=7200.0)))
    flow.seen.answer, flow.resets.offered = decision.RESCUE, [HW]
    assert flow.seen.may_reset
    flow.step = flow.decide()
    assert flow.step == decision.ATTACH
    with pytest.raises(MachineError, match="Robot does not tell its host keys"):
        flow.bring_about(flow.step)
    assert robot.resets == []


@pytest.mark.parametrize(
    ("look_only", "answer", "off"),
    [
        (True, decision.SILENT, ", nor whether it is switched off,"),
        (True, decision.DENIED, ","),
        (False, decision.SILENT, ","),
    ],
)
def test_a_look_says_that_a_silent_machine_may_be_off(look_only, answer, off):
    """It starts none without a word, and does not ask Robot for the power."""
    flow = flow_of(Robot(), {"name": "n1", "boot_state": ""}, look_only=look_only)
    flow.rescue_probe.words = "SSH does not answer"
    flow.seen.answer, flow.resets.offered = answer, [HW]
    assert flow.decide() == decision.REFUSE_LIVE
    said = flow.refusal(decision.REFUSE_LIVE)
    assert said.startswith(f"we cannot tell what it runs (SSH does not answer){off} so it was not reset and nothing is")


@pytest.mark.parametrize(
    ("look_only", "does"), [(True, "into its rescue, where nothing is written"), (False, "and written again")]
)
def test_what_the_word_does_that_a_refused_machine_needs(look_only, does):
    flow = flow_of(Robot(), {"name": "n1", "boot_state": ""}, look_only=look_only)
    flow.rescue_probe.words = "SSH does not answer"
    said = flow.refusal(decision.REFUSE_SILENT)
    assert f'to have it reset {does}, name it: -e \'{{"kubenode_reinstall": ["n1"]}}\'' in said


def test_the_run_after_a_look_writes_in_the_rescue_that_the_look_has_started(monkeypatch, tmp_path):
    """As the guides print it. A run without that folder, as of another job, takes it for the rescue of a person."""
    kept = str(tmp_path / "intents")
    look = flow_of(
        Robot(), {"name": "n1", "boot_state": "", "first_contact": "reset"}, intents_dir=kept, look_only=True
    )
    look.seen.answer, look.resets.offered = decision.SILENT, [HW]
    answers = {"in_rescue": True, "host_keys": [KEY], "boot_id": "b1"}
    monkeypatch.setattr(look.resets, "escalate", lambda _kind: look.result.update(answers))
    look.step = look.decide()
    assert look.step == decision.ARM_AND_RESET
    look.bring_about(look.step)

    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, boot_id="b1", origin=Origin(uptime=600.0)))
    for folder, step in ((kept, decision.ATTACH), (str(tmp_path / "of-another-job"), decision.REFUSE_RESCUE)):
        write = flow_of(Robot(), {"name": "n1", "boot_state": ""}, intents_dir=folder)
        known = []
        monkeypatch.setattr(
            write.rescue_probe, "wait_for_proof", lambda keys, _deadline, to=known: to.extend(keys) or True
        )
        write.seen.answer = decision.RESCUE
        assert write.decide() == step
        if step == decision.ATTACH:
            assert known == [KEY]
            assert write.result["installation"] == look.result["installation"]


def test_keys_that_an_interrupted_run_has_proven_are_not_asked_for_again(monkeypatch):
    flow = flow_of(Robot(), {"name": "n1"})
    flow._kept = {"armed": {"host_keys": [KEY, "nonsense", 7]}}
    known = []
    monkeypatch.setattr(flow.rescue_probe, "wait_for_proof", lambda keys, _deadline: known.extend(keys) or True)
    flow._ask_keys()
    assert known == [KEY]
    assert flow.seen.keys_proven


def test_nothing_is_carried_out_for_a_run_that_was_killed():
    """Also where the first thing to be done is no request: out of the rescue, a machine is rebooted by SSH."""
    robot = Robot()
    robot.own_run = OwnRun(f"kubenode-test-{uuid.uuid4()}")
    flow = flow_of(robot, {"name": "n1"})
    with pytest.raises(FleetError, match="the run that this belongs to has ended"):
        flow.bring_about(decision.LEAVE_RESCUE)


@pytest.mark.parametrize("step", [decision.ARM_AND_REBOOT, decision.LEAVE_RESCUE])
def test_a_machine_that_a_jump_host_leads_to_instead_is_not_rebooted(monkeypatch, step):
    robot = Robot()
    flow = flow_of(robot, {"name": "n1"}, ["n1"])
    flow.step = step
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, hostname="n2", boot_id="b", addresses=("192.0.2.2", "::1")))
    with pytest.raises(Refused, match=r"it has 192\.0\.2\.2; this machine's has 192\.0\.2\.1\. Correct"):
        flow.bring_about(step)
    assert (robot.resets, flow.result["changed"]) == ([], False)


@pytest.mark.parametrize(
    ("addresses", "known", "first"),
    [
        (("192.0.2.1", "10.0.0.1"), False, SSH),
        (("10.0.0.1",), True, SSH),  # a private address, and a host key of its system
        ((), False, SW),  # it does not tell its addresses: Robot resets the right one
        (tuple(f"10.96.0.{number}" for number in range(200)) * 2, False, SW),  # it has more than it tells
    ],
)
def test_only_what_shows_that_it_is_the_server_is_rebooted_by_ssh(monkeypatch, addresses, known, first):
    flow = flow_of(Robot(), {"name": "n1"}, ["n1"])
    flow.resets.offered = [SW, HW]
    flow.seen.answer, flow.seen.reinstall = decision.OTHER, True
    monkeypatch.setattr(flow.fleet.shell, "shows_a_known_key", lambda _name: known)
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, boot_id="b", addresses=addresses))
    flow.refuse(decision.ARM_AND_REBOOT)
    assert flow.first_reset() == first


def test_a_system_that_was_seen_has_had_its_first_contact(tmp_path):
    """Also where the folder of the run was lost: a verified node that is silent later is not reset by the inventory."""
    robot, given = Robot(), {"name": "n1", "first_contact": "once", "rearm": False}
    answered = Answer(SYSTEM, hostname="n1", boot_id=str(uuid.uuid4()))
    inspected = flow_of(robot, given, intents_dir=str(tmp_path), look_only=True)
    inspected.note(answered)
    first = flow_of(robot, given, intents_dir=str(tmp_path))
    assert first.seen.may_reset
    first.note(answered)
    later = flow_of(robot, given, intents_dir=str(tmp_path))
    assert not later.seen.may_reset
    assert "that was made: a system was seen at 20" in later._contact_used
    assert later._kept is None, "no intent of ours: another controller's rescue is judged as before"
    assert flow_of(robot, {"name": "n1", "first_contact": "reset"}, intents_dir=str(tmp_path)).seen.may_reset
    # one that was seen verified is as one that was proven here: it needs its name to be reset, or started
    assert not later.seen.proven
    later.fleet.intents.contact("n1", "", proven=True)
    proven = flow_of(robot, given, intents_dir=str(tmp_path))
    assert proven.seen.proven
    proven.seen.answer = decision.SILENT
    assert "an earlier run saw its new system" in proven.refusal(decision.REFUSE_SILENT)


@pytest.mark.parametrize(
    ("runs", "lets_us_in", "taken"), [("1" * 32, True, True), ("2" * 32, True, False), ("1" * 32, False, False)]
)
def test_the_installation_that_runs_and_is_named_goes_though_another_one_was_begun(
    monkeypatch, tmp_path, runs, lets_us_in, taken
):
    begun = intents.make("n1", "2" * 32, "reinstall", begun=True)
    intents.write(intents.file_of(str(tmp_path), "n1"), {**begun, "state": intents.GIVEN_UP})
    flow = flow_of(Robot(), {"name": "n1"}, {"n1": "1" * 8}, intents_dir=str(tmp_path))
    assert not flow.seen.reinstall, "a machine that cannot be asked is not reset for it"
    assert "names installation 11111111 of n1, but 22222222 is there" in flow.result["used"]
    monkeypatch.setattr(flow, "look", lambda: setattr(flow.seen, "answer", decision.INSTALLED))
    monkeypatch.setattr(RobotFlow, "answer", Answer(SYSTEM, installed={"machine": "n1", "installation": runs}))
    monkeypatch.setattr(type(flow.seen), "lets_us_in", lets_us_in)
    flow.ask_who_answers()
    assert (flow.seen.reinstall, bool(flow.result["used"])) == (taken, not taken)
