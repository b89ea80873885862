# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.callback import provision_report
from ansible_collections.kubenode.provision.plugins.callback.provision_report import TAILS, table
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import results
from tests.unit.report import reports


@pytest.fixture
def report() -> results.Report:
    return results.Report()


def step(start, end, seconds, at="2026-11-21T00:00:00.000Z"):
    return {"machine": "x", "from": start, "to": end, "at": at, "seconds": seconds}


def fleet(*machines, api_calls=0):
    return {"machines": list(machines), "api_calls": api_calls}


def begun(name, seconds):
    """The result of a machine that is there now."""
    transitions = [step("", "Initializing", seconds)]
    return {"name": name, "boot_state": "Initializing", "changed": True, "transitions": transitions}


def test_fleet_and_machine_results_become_one_machine(report):
    report.add("localhost", fleet({**begun("n1", 3.0), "boot_state": "BootingToRescue", "api_calls": 3}, api_calls=7))
    written = [step("BootingToRescue", "RunningImageCommand", 38.0)]
    report.add("n1", {"boot_state": "BootingToRealOS", "changed": True, "transitions": written})
    (machine,) = report.machines
    assert (machine["name"], machine["boot_state"], machine["seconds"]) == ("n1", "BootingToRealOS", 41.0)
    assert (machine["api_calls"], report.api_calls) == (3, 7)


def test_address_and_id_are_what_was_heard_last(report):
    report.add("localhost", fleet({"name": "n1", "boot_state": "Initializing", "id": 4711, "ipv4": "203.0.113.5"}))
    second = {"name": "n2", "boot_state": "", "server_number": 321, "ipv6_address": "2001:db8::1"}
    report.add("localhost", fleet(second))
    report.add("n1", {"name": "n1", "boot_state": "OperatingSystemRunning", "address": "10.0.0.5"})
    report.add("n3", {"boot_state": "OperatingSystemRunning", "id": True, "address": ["10.0.0.6"]})
    found = [(machine["address"], machine["id"]) for machine in report.machines]
    assert found == [("10.0.0.5", 4711), ("2001:db8::1", 321), (None, None)]
    text = "\n".join(table(report))
    assert "  n1: 10.0.0.5, id 4711\n  n2: 2001:db8::1, id 321\n" in text
    assert "  n3:" not in text


def made_and_removed():
    """Results of a temporary machine: created, verified, deleted in the end; and of one that stays."""
    new = {"boot_state": "Initializing", "status": "off", "changed": True, "price_hourly": 0.0064}
    for name, number in (("gone", 1), ("stays", 2)):
        created = {"server_created": "2026-11-21T10:00:00Z", "ipv4": f"203.0.113.{number}"}
        yield {**new, "name": name, "id": number, **created}
        yield {"name": name, "boot_state": "OperatingSystemRunning", "verified": True}
    yield {"name": "gone", "id": 1, "ipv4": "203.0.113.1", "boot_state": "", "status": "deleted", "changed": True}


def test_a_machine_that_was_removed_does_not_run_and_is_said_to_be_removed(report):
    for result in made_and_removed():
        report.add("localhost", fleet(result), now=reports.STARTED + 3600)
    gone, stays = report.machines
    assert (gone["removed"], gone["address"], gone["id"]) == ("2026-11-21T11:00:00.000Z", None, 1)
    assert (stays["removed"], stays["address"]) == (None, "203.0.113.2")
    text = "\n".join(table(report))
    assert "Machines: 2, 1 running a verified system, 2 changed, 0 failed, 1 removed\n" in text
    assert "  gone: removed, id 1\n  stays: 203.0.113.2, id 2" in text


@pytest.mark.parametrize("why", ["the API did not answer", "no server is called n1, but old (id 1) has its label"])
def test_a_machine_that_was_not_found_by_a_failed_look_is_not_removed(report, why):
    report.add("localhost", fleet({"name": "n1", "boot_state": "Initializing", "id": 1, "status": "running"}))
    looked = {"name": "n1", "boot_state": "", "id": None, "status": None, "failed": True, "msg": why}
    report.add("localhost", fleet(looked), failed=True)
    (machine,) = report.machines
    assert (machine["removed"], machine["id"], machine["reason"]) == (None, 1, why)


def test_a_machine_that_failed_is_still_a_failed_one_when_it_was_removed(report):
    report.add("localhost", fleet({"name": "n1", "boot_state": "Initializing", "id": 1, "status": "off"}))
    report.add("n1", {"msg": "no space left"}, failed=True)
    report.add("localhost", fleet({"name": "n1", "id": 1, "boot_state": "", "status": "deleted", "msg": "deleted"}))
    (machine,) = report.machines
    assert (machine["failed"], machine["reason"], bool(machine["removed"])) == (True, "no space left", True)


def test_a_machine_that_is_made_again_is_there_and_one_that_another_deleted_is_not(report):
    left = {"name": "n1", "boot_state": "", "id": 1, "address": "203.0.113.1", "status": "deleted"}
    report.add("localhost", fleet(left))
    report.add("localhost", fleet({"name": "n1", "boot_state": "Initializing", "id": 2, "status": "off"}))
    assert (report.machines[0]["removed"], report.machines[0]["id"]) == (None, 2)
    report.add("localhost", fleet({"name": "n1", "boot_state": "", "id": None, "status": None}))
    assert report.machines[0]["removed"]
    report.add("localhost", fleet({"name": "n2", "boot_state": "", "id": None, "status": None}))
    assert report.machines[1]["removed"] is None, "there was none"


def test_what_ends_the_whole_run_is_reported_once_and_of_no_machine(report):
    report.hosts.update(["n1", "n2", "n3"])
    for _time in range(2):
        report.fail({"msg": "api_token: the API refused the token"})
    assert (bool(report), report.machines) == (True, [])
    lines = table(report)
    assert lines[0] == "Run failed before any machine: api_token: the API refused the token"
    assert lines[1] == "Not attempted: n1, n2, n3"
    assert len([line for line in lines if "api_token" in line]) == 1
    assert "Nothing changed" not in "\n".join(lines)
    report.add("localhost", fleet({"name": "n1", "boot_state": "Initializing", "changed": True}))
    text = "\n".join(table(report))
    assert "Run failed: api_token" in text
    assert "Not attempted: n2, n3\n" in text
    assert "1 changed, 0 failed, 1 not finished" in text
    data = report.as_dict()
    assert (data["errors"], data["not_attempted"]) == (["api_token: the API refused the token"], ["n2", "n3"])


def test_a_machine_that_fails_before_anything_was_done_with_it_is_reported(report):
    quarantined = {"msg": "n2: in quarantine since yesterday"}
    assert not report.add("user-1", {"msg": "no"}, failed=True), "a task of a user's own play"
    report.add("localhost", fleet({"name": "n1", "boot_state": "OperatingSystemRunning", "proven": True}))
    assert report.add("n2", quarantined, failed=True, ours=True)
    assert [(one["name"], one["failed"]) for one in report.machines] == [("n1", False), ("n2", True)]
    text = "\n".join(table(report))
    assert "Machines: 2, " in text
    assert "n2 failed: in quarantine since yesterday" in text
    assert "Nothing changed" not in text


def test_machines_of_batches_that_did_not_begin_were_not_attempted():
    report, batches = results.Report(), [{"machines": ["n3", "n1"]}, {"machines": ["n2", "n4"]}]
    report.hosts.update(["n1", "n2", "n3", "n4"])
    plan = {"errors": [], "batches": batches, "ways": {}}
    assert not report.add("n3", {"ansible_facts": {"kubenode_site": {**plan, "errors": ["no"]}}})
    assert report.not_attempted() == []
    assert not report.add("n3", {"ansible_facts": {"kubenode_site": plan}})
    assert not report, "a run that began nothing has nothing to report"
    report.add("n3", {"boot_state": "Initializing", "msg": "boom"}, failed=True)
    report.phase("n1", "base", 1.0, 2.0, changed=True, failed=None)
    assert report.not_attempted() == report.as_dict()["not_attempted"] == ["n2", "n4"]
    assert table(report)[0] == "Not attempted: n2, n4"


def test_the_same_transition_is_counted_once(report):
    result = {"boot_state": "Initializing", "transitions": [step("", "Initializing", 3.0)]}
    report.add("n1", result)
    report.add("n1", result)
    assert [one["count"] for one in report.durations()] == [1]


def test_results_of_a_loop_are_collected(report):
    report.add("localhost", {"results": [fleet({"name": "n1", "boot_state": "Initializing"}, api_calls=2)]})
    assert [machine["name"] for machine in report.machines] == ["n1"]


def test_foreign_results_are_ignored(report):
    report.add("n1", {"msg": "hello", "machines": ["a", "b"]})
    report.add("n1", {"transitions": "not a list"}, failed=True)
    assert not report


def test_durations_follow_the_order_of_the_states(report):
    report.add("n1", {"boot_state": "x", "transitions": [step("BootingToRealOS", "OperatingSystemRunning", 5.0)]})
    report.add("n1", {"boot_state": "x", "transitions": [step("", "Initializing", 1.0)]})
    assert [one["to"] for one in report.durations()] == ["Initializing", "OperatingSystemRunning"]


def test_a_machine_that_passed_on_its_second_try_is_not_failed(report):
    report.add("n1", {"boot_state": "BootingToRescue", "msg": "not in the rescue"}, failed=True)
    assert report.machines[0]["failed"]
    report.add("n1", {"boot_state": "OperatingSystemRunning", "changed": True})
    assert not report.machines[0]["failed"]


def test_an_ordinary_task_that_fails_later_fails_the_machine(report):
    report.add("n1", {"boot_state": "OperatingSystemRunning"})
    report.add("n1", {"msg": "disk full"}, failed=True)
    assert report.machines[0]["reason"] == "disk full"


def test_a_machine_that_is_given_up_on_its_way_has_the_time_that_it_took(report):
    """The last task of a machine that did not reach its rescue is no step of ours."""
    on_its_way = {"from": "EnablingRescue", "to": "BootingToRescue", "at": "2026-11-21T10:00:10.000Z", "seconds": 2.0}
    report.add("n1", {"boot_state": "BootingToRescue", "transitions": [on_its_way]})
    for _time in range(2):
        report.add("n1", {"msg": "no rescue"}, failed=True, now=reports.STARTED + 95.5)
    (machine,) = report.machines
    assert (machine["boot_state"], machine["reason"]) == ("ProvisioningFailed", "no rescue")
    assert machine["transitions"][1:] == [
        {
            "machine": "n1",
            "from": "BootingToRescue",
            "to": "ProvisioningFailed",
            "at": "2026-11-21T10:01:35.500Z",
            "seconds": 85.5,
        }
    ]
    # one that runs its new system fails in what comes later, and no clock of ours goes backwards
    report.add("n2", {"boot_state": "OperatingSystemRunning"})
    report.add("n2", {"msg": "no join"}, failed=True, now=reports.STARTED)
    report.add("n3", {"boot_state": "BootingToRescue", "transitions": [on_its_way]})
    report.add("n3", {"msg": "no rescue"}, failed=True, now=reports.STARTED)
    assert report.machines[1]["transitions"] == []
    assert report.machines[2]["transitions"][1]["seconds"] == 0.0


def test_table_names_the_figures_and_the_failure(report):
    for name, seconds in (("n1", 10.0), ("n2", 30.0)):
        report.add("localhost", fleet(begun(name, seconds), api_calls=2))
    report.add("n2", {"boot_state": "ProvisioningFailed", "msg": "rescue \x1b[31mlost\x07\n"}, failed=True)
    text = "\n".join(table(report))
    assert "(none) → Initializing        2     20.0     10.0     30.0     10.0     30.0" in text
    assert "API calls: 4 in all, 2.0 per machine" in text
    assert "n2 failed: rescue  [31mlost" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(("calls", "machines", "said"), [(1, 4, "0.3"), (3, 4, "0.8"), (1, 3, "0.3"), (0, 1, "0.0")])
def test_a_half_is_rounded_up(report, calls, machines, said):
    report.add("n1", fleet(*({"name": f"n{number}", "boot_state": "x"} for number in range(machines)), api_calls=calls))
    assert f"API calls: {calls} in all, {said} per machine" in "\n".join(table(report))


def test_a_run_without_changes_says_so(report):
    report.add("localhost", fleet({"name": "n1", "boot_state": "OperatingSystemRunning", "changed": False}))
    assert "Nothing changed" in "\n".join(table(report))
    assert "Nothing changed" not in "\n".join(table(report, touched=True))


def test_a_check_says_what_would_be_changed(report):
    report.add("localhost", fleet({"name": "n1", "boot_state": "BootingToRescue", "changed": True}))
    assert "0 running a verified system, 1 would be changed, 0 failed" in "\n".join(table(report, check=True))
    assert "0 running a verified system, 1 changed, 0 failed" in "\n".join(table(report))


def test_what_is_not_as_it_was_asked_for_is_reported(report):
    state = {"boot_state": "OperatingSystemRunning", "installed": True, "proven": True}
    differs = {"what": "command", "runs": "a", "since": "2026-11-21T10:00:00Z", "wanted": "b"}
    machines = [
        {"name": "n1", **state, "drift": [differs]},
        {"name": "n2", **state, "used": "the word for n2 was used"},
        {"name": "n3", **state, "proven": False},
        {"name": "n4", **state, "failed": True, "msg": "no", "warned": ["n4: disk sdb could start\x1b[31m"]},
    ]
    report.add("localhost", fleet(*machines))
    text = "\n".join(table(report))
    assert "Machines: 4, 2 running a verified system, 0 changed, 1 failed (1 of them on a verified system)" in text
    assert "Not verified: n3" in text
    assert "n1 runs command a since 2026-11-21T10:00:00Z, asked for command b; kubenode_reinstall writes it" in text
    assert "n2: the word for n2 was used" in text
    assert "warning: n4: disk sdb could start [31m" in text
    assert "Nothing changed" not in text


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_failure_shows_what_was_printed_last(report, stream):
    printed = {
        "stderr_tail": ["no space\x1b[31m"],
        "interleaved_tail": ["0.10 out writing", "0.20 err no space\x1b[31m"],
    }
    failed = {"boot_state": "ProvisioningFailed", **printed}
    msg = f"n1: the image command failed: exit code 1. Log: x\n{stream} ends with:\n  no space"
    report.add("localhost", fleet({"name": "n1", "failed": True, "msg": msg, **failed}, {"name": "n2", **failed}))
    n1, n2 = report.as_dict()["machines"]
    assert n1["reason"] == "the image command failed: exit code 1. Log: x"
    assert (n1["stderr_tail"], n1["interleaved_tail"][0]) == (["no space [31m"], "0.10 out writing")
    assert (n2["stderr_tail"], n2["interleaved_tail"]) == ([], [])
    text = "\n".join(table(report))
    assert (
        "n1 failed: the image command failed: exit code 1. Log: x\n    0.10 out writing\n    0.20 err no space" in text
    )
    assert "\x1b" not in text
    report.add("localhost", fleet({"name": "n1", "failed": True, "msg": "n1: later", "boot_state": "x"}))
    assert report.as_dict()["machines"][0]["stderr_tail"] == []


def test_the_table_of_a_large_fleet_stays_short():
    lines = table(reports.run(500)[0])
    failed = [line for line in lines if " failed: " in line]
    assert len(failed) == 25
    assert len(lines) < 100
    assert lines.index(failed[0]) > len(lines) - len(failed) - 40, (
        "what failed is what a person reads first, at the end"
    )
    assert sum("No space left" in line for line in lines) == TAILS


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1), st.floats(min_value=0.01, max_value=1))
def test_percentile_is_a_seen_value_with_the_share_at_or_below_it(values, share):
    found = results.percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_roles_of_the_node_phase_are_rows_of_the_table(report) -> None:
    report.phase("node-1", "base", 10.0, 11.0, changed=False, failed=None)
    report.phase("node-1", "base", 11.5, 14.0, changed=True, failed=None)
    report.phase("node-1", "base", 14.0, 15.0, changed=False, failed=None)
    report.phase("node-1", "join", 15.0, 17.0, changed=False, failed="csr_pending:\nno approver")
    base, join = report.phases()
    assert base == {
        "machine": "node-1", "phase": "base", "started": "1970-01-01T00:00:10.000Z", "seconds": 5.0,
        "changed": True, "failed": False, "reason": None,
    }  # fmt: skip
    assert (join["started"], join["seconds"], join["failed"]) == ("1970-01-01T00:00:15.000Z", 2.0, True)
    assert join["reason"] == "csr_pending: no approver"
    lines = table(report)
    assert [line.split() for line in lines[1:4]] == [
        ["base", "1", *["5.0"] * 5],
        ["join", "1", *["2.0"] * 5],
        ["whole", "machine", "1", *["7.0"] * 5],
    ]
    assert "join: 1 machine, 0 changed, 1 failed" in lines
    assert "  node-1 failed: csr_pending: no approver" in lines
    assert report.as_dict()["changed"]


def test_the_always_section_of_a_block_does_not_mend_what_failed(report) -> None:
    one = {"ansible.builtin.debug": {}}
    whole = {"block": [{"block": [one], "rescue": [one], "always": [one, {"block": [one]}]}]}
    (inner,) = Block.load(whole, play=Play()).copy().block
    assert [provision_report._comes_always(task) for task in (*inner.block, *inner.rescue)] == [False, False]
    assert [provision_report._comes_always(task) for task in (inner.always[0], *inner.always[1].block)] == [True, True]


def test_how_long_a_machine_took_is_known_when_it_left_its_last_state(report) -> None:
    """An inspection ends in the rescue: the minutes in which it was waited for belong to no transition."""

    def step(to: str) -> dict[str, object]:
        return {"machine": "n1", "from": "Initializing", "to": to, "at": "2026-11-21T10:00:00.000Z", "seconds": 19.1}

    report.add("n1", {"boot_state": "BootingToRescue", "transitions": [step("BootingToRescue")]})
    assert not [line for line in table(report) if line.startswith("whole machine")]
    report.add("n1", {"boot_state": "OperatingSystemRunning", "transitions": [step("OperatingSystemRunning")]})
    assert [line.split()[2:4] for line in table(report) if line.startswith("whole machine")] == [["1", "38.2"]]


def test_a_task_that_fails_and_is_rescued_leaves_its_role_well(report) -> None:
    report.phase("node-1", "join", 1.0, 2.0, changed=False, failed="first try")
    report.phase("node-1", "join", 2.0, 3.0, changed=True, failed=None)
    (phase,) = report.phases()
    assert not phase["failed"]
    assert phase["reason"] is None
