# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""As many machines write at once as may; the others wait in their rescue, which is looked at again after that."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import Masker
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import program_run, watch
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow, Turns
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import SILENT, Unreachable
from tests.waiting import until


class Writer(threading.Thread):
    """A machine that writes until it is let go."""

    def __init__(self, turns: Turns, needed: bool = True) -> None:
        super().__init__(daemon=True)
        self.turns, self.needed = turns, needed
        self.waits, self.writes, self.may_end = (threading.Event() for _event in range(3))
        self.waited: bool | None = None
        self.start()

    def run(self) -> None:
        turn = self.turns.take(lambda: self.needed, self.waits.set)
        self.waited = turn.waited
        self.writes.set()
        self.may_end.wait()
        turn.leave()

    def end(self) -> None:
        self.may_end.set()
        self.join()


def test_as_many_write_as_may_and_the_first_one_there_is_the_next():
    turns = Turns(2)
    machines = []
    for number in range(5):
        machines.append(Writer(turns))
        until((machines[-1].writes if number < 2 else machines[-1].waits).is_set, "its turn or its wait")
    assert [one.writes.is_set() for one in machines] == [True, True, False, False, False]
    for number, ends in enumerate((1, 0, 2)):
        machines[ends].end()
        until(machines[number + 2].writes.is_set, "the turn of the next one")
        assert [one.writes.is_set() for one in machines[number + 3 :]] == [False] * (2 - number)
    for one in machines:
        one.end()
    assert [one.waited for one in machines] == [False, False, True, True, True]


def test_without_a_limit_all_write_and_no_machine_is_asked():
    def asked() -> bool:
        raise AssertionError("a machine was asked")

    assert Turns().take(asked, asked).waited is False
    assert Turns(1).take(asked, asked).waited is False


@pytest.mark.parametrize("first", [True, False])
def test_what_runs_already_waits_for_no_turn_and_has_one_where_there_is_room(first):
    turns = Turns(1)
    attached = [Writer(turns, needed=False)] if first else []
    machine = Writer(turns)
    until((machine.waits if first else machine.writes).is_set, "its wait or its turn")
    attached += [Writer(turns, needed=False)]
    until(lambda: all(one.writes.is_set() for one in attached), "what runs already")
    for one in (*attached, machine):
        one.end()
    assert (machine.waited, machine.writes.is_set()) == (first, True)


def test_a_turn_is_given_back_once():
    turns = Turns(1)
    turn = turns.take(lambda: True, lambda: None)
    turn.leave()
    turn.leave()
    second = Writer(turns)
    until(second.writes.is_set, "the second one")
    third = Writer(turns)
    until(third.waits.is_set, "the third one")
    second.end()
    third.end()
    assert third.waited


class Machine:
    """A rescue; ``boots`` are the boot ids that it tells when its turn has come, one after the other, None: silence."""

    def __init__(self, *boots: str | None) -> None:
        self.boots = list(boots)

    def run(self, script: str, *_arguments: str) -> tuple[int, str]:
        assert script == "cat /proc/sys/kernel/random/boot_id"
        boot = self.boots.pop(0)
        if boot is None:
            raise Unreachable(SILENT, "Connection timed out")
        return 0, f"{boot}\n"


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """The run of a machine that has to wait for its turn; ``gates`` are what its rescue answers, look by look."""
    turns = Turns(1)
    other = Writer(turns)
    until(other.writes.is_set, "the other machine")

    def run(machine, gates, would_start=lambda *_arguments: True):
        options = {"boot_state": "BootingToRescue", "known_hosts_dir": str(tmp_path), "host_keys": []}
        flow, masker = Flow(options, "n1", turns), Masker([], [])
        flow.timeline.heard = lambda state: state == boot_states.WAITING_IN_RESCUE and other.may_end.set()
        one = program_run.RescueRun(machine, options, flow, None, watch.Logs(str(tmp_path), "n1", masker), masker)
        answers = iter(gates)

        def look(*_arguments):
            assert one._turn._leave is None, "it keeps its place while it is looked for"
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(boot_id=answer, hostname="rescue", is_rescue=True)

        monkeypatch.setattr(program_run.gate, "pass_rescue", look)
        monkeypatch.setattr(program_run, "would_start", would_start)
        monkeypatch.setattr(one, "_have_run", lambda system, about: flow.result(ran=system.boot_id, **about))
        result = one.result({"log_file": "x"})
        assert list(answers) == machine.boots == [], "a look that is missing"
        other.end()
        assert not turns.take(lambda: True, lambda: None).waited, "it keeps its place"
        return result

    yield run
    other.end()


def test_a_rescue_that_is_still_there_is_written(waiting):
    result = waiting(Machine("a"), ["a"])
    assert (result["ran"], result["boot_id"], result["boot_state"]) == ("a", "a", "WaitingInRescue")
    assert [step["to"] for step in result["transitions"]] == ["WaitingInRescue"]


def test_one_that_was_out_of_reach_passes_the_gate_once_more(waiting):
    result = waiting(Machine(None), ["a", "a"])
    assert (result["ran"], result["boot_id"]) == ("a", "a")


@pytest.mark.parametrize("instead", [None, "b"])
def test_another_boot_of_the_rescue_is_written_by_nothing(waiting, instead):
    """Whose rescue it is, and what its disks hold, was asked in the boot before."""
    result = waiting(Machine(instead), ["a", "b"])
    assert "ran" not in result
    assert (result["failed"], result["boot_id"], result["boot_state"]) == (True, "b", "ProvisioningFailed")
    assert "nothing was written: another rescue answers, which this run has not started. The next run" in result["msg"]


def test_a_rescue_that_is_gone_after_the_wait_is_written_by_nothing(waiting):
    gone = program_run.gate.GateClosed("another system answers", SimpleNamespace(boot_id="c", hostname="n1"), True)
    result = waiting(Machine("c"), ["a", gone])
    assert "ran" not in result
    assert (result["failed"], result["in_rescue"], result["permanent"], result["boot_id"]) == (True, True, True, "c")
    assert result["msg"] == (
        "n1: it was lost while it waited in its rescue, and nothing was written: another system answers. "
        "The next run looks at what it runs then"
    )
    assert result["boot_state"] == "ProvisioningFailed"


def test_a_machine_that_cannot_be_asked_takes_a_turn(waiting):
    def lost(*_arguments):
        raise Unreachable(SILENT, "Connection timed out")

    assert waiting(Machine("a"), ["a"], lost)["ran"] == "a"
