# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of machines, as Events and as figures (pure)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster as wire
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import run_events

TAIL = ["0.1 out writing", "0.2 err ********", "4.0 out IMAGE_URL_DONE"]
COMMAND = {
    "msg": "the image command succeeded after 4.0 s",
    "failed": False,
    "in_rescue": True,
    "interleaved_tail": TAIL,
}
BOOT = {"msg": "node-1 answers", "failed": False}


def machine(**more):
    return {"name": "node-1", "failed": False, "late": False, "msg": "x", "steps": {}, **more}


def reported(one, **variables):
    """(reason, type, text, output) of each Event."""
    found = run_events.events([one], {"node-1": variables})
    return [(event["reason"], event.get("type", "Normal"), event["text"], event.get("output")) for event in found]


LINES = ["writing", "********", "IMAGE_URL_DONE"]


def test_a_machine_that_succeeded_has_one_event_with_the_output_of_its_command():
    done = machine(steps={"image_url_command": COMMAND, "machine_boot": BOOT}, verified=True, proof="nonce")
    text = "node-1: the image command succeeded after 4.0 s; the new system is verified (nonce)"
    assert reported(done) == [("ImageURLCommandSucceeded", "Normal", text, LINES)]
    done["steps"] = {"robot_installimage": {**COMMAND, "msg": "installimage succeeded"}}
    assert reported(done)[0][:2] == ("InstallImageSucceeded", "Normal")


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_command_that_failed(stream):
    command = {
        **COMMAND,
        "failed": True,
        "msg": f"node-1: the image command failed: exit code 3\n{stream} ends with:\n  boom",
    }
    failed = machine(failed=True, msg=command["msg"], steps={"image_url_command": command})
    text = "node-1: the image command failed: exit code 3"
    assert reported(failed) == [("ImageURLCommandFailed", "Warning", text, LINES)]


def test_a_command_that_succeeded_on_a_machine_that_failed_later():
    failed = machine(failed=True, msg="node-1: unproven", steps={"image_url_command": COMMAND, "machine_boot": {}})
    assert reported(failed) == [
        ("ImageURLCommandSucceeded", "Normal", "node-1: the image command succeeded after 4.0 s", LINES),
        ("ProvisioningFailed", "Warning", "node-1: unproven", None),
    ]


def test_what_fails_before_the_command_and_what_is_finished_without_it():
    never = {**COMMAND, "failed": True, "in_rescue": False}
    failed = machine(failed=True, msg="its rescue did not answer", steps={"image_url_command": never})
    assert reported(failed) == [("ProvisioningFailed", "Warning", "node-1: its rescue did not answer", None)]
    assert reported(machine(failed=True, msg="no"))[0][0] == "ProvisioningFailed"
    proven = machine(steps={"machine_boot": BOOT}, msg="node-1 answers", verified=False)
    assert reported(proven) == [("ProvisioningSucceeded", "Normal", "node-1: node-1 answers; not verified", None)]


def test_a_machine_that_was_left_alone_or_has_another_try_has_none():
    assert reported(machine()) == []
    late = machine(
        late=True, msg="silent", steps={"image_url_command": {**COMMAND, "failed": True, "in_rescue": False}}
    )
    assert reported(late) == []
    (event,) = run_events.events([late], {}, last_try=True)
    assert (event["reason"], event["text"]) == ("ProvisioningFailed", "node-1: silent")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, {"kind": "Node", "name": "node-1"}),
        ({"kubenode_node_name": "Other"}, {"kind": "Node", "name": "other"}),
        (
            {"kubenode_event_object": {"kind": "Machine", "name": "m", "namespace": "x"}},
            {"kind": "Machine", "name": "m", "namespace": "x"},
        ),
    ],
)
def test_the_object(variables, found):
    assert run_events.object_of("Node-1", variables if variables else {}) == found


@pytest.mark.parametrize("given_object", ["node", {"kind": "Node"}, {"kind": "Node", "name": "a", "uid": "x"}, []])
def test_what_is_no_object(given_object):
    with pytest.raises(run_events.BadObject, match="kubenode_event_object"):
        run_events.object_of("n", {"kubenode_event_object": given_object})


@given(st.text(), st.lists(st.text()))
def test_a_message_fits_and_is_one_line(text, output):
    message = wire.event_message(text, output)
    assert len(message.encode("utf-8", "surrogatepass")) <= wire.LONGEST_MESSAGE
    assert "\n" not in message


def test_the_end_of_the_output_is_kept_whole_characters_only():
    message = wire.event_message("head", ["ä" * 600, "€" * 100 + " END"])
    assert message.startswith("head: … ä")
    assert message.endswith("€ END")
    assert wire.LONGEST_MESSAGE - 4 < len(message.encode()) <= wire.LONGEST_MESSAGE
    assert wire.event_message("ä" * 600, ["x"]) == "ä" * 510 + "…"
    assert wire.event_message("h" * 1020, ["x" * 99]) == "h" * 1020


def test_the_same_is_one_event_and_another_machine_is_another():
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "fleet", "namespace": "x", "uid": "1"}
    event = {"reason": "R", "type": "Normal", "text": "m", "subject": "node-1"}

    def name(**more):
        return wire.build_event({**event, **more}, about, "now", "here")["metadata"]["name"]

    assert name() == name(text="another")
    assert len({name(), name(subject="node-2"), name(reason="S"), name(type="Warning")}) == 4


def summed(machines, phase=(), calls=0, before=None):
    return run_events.summary(machines, phase, calls, before)


def test_the_figures_of_a_fleet_and_of_the_second_try():
    good = {"name": "a", "changed": True, "verified": True}
    late = {"name": "b", "changed": True, "late": True, "msg": "b: its rescue did not answer"}
    failed = {"name": "c", "failed": True, "msg": "c: boom\nstderr ends with:\n  secret"}
    left = {"name": "d"}
    phase = [
        {"name": "d", "installed": True, "proven": True},
        {"name": "e", "msg": "its rescue is late", "changed": True},
    ]
    first = summed([good, late, failed, left], phase, 7)
    assert first == {
        "machines": 5, "verified": 2, "unverified": 0, "changed": 3, "failed": 3, "api_calls": 7,
        "reasons": {"b": "its rescue did not answer", "c": "boom", "e": "its rescue is late"},
    }  # fmt: skip
    again = summed([{**good, "name": "b"}, {**failed, "name": "e"}], phase, 9, first)
    assert again == {
        "machines": 5, "verified": 3, "unverified": 0, "changed": 3, "failed": 2, "api_calls": 9,
        "reasons": {"c": "boom", "e": "c: boom"},
    }  # fmt: skip


def test_a_second_try_goes_on_with_the_figures_that_any_host_of_the_first_one_keeps():
    first = [machine(name="a", verified=True), machine(name="b", failed=True, late=True, msg="no rescue")]
    phase = [{"name": name, "installed": False} for name in ("x", "a", "b")]
    hostvars = {name: {} for name in ("x", "a", "b")}
    kept = run_events.run_summary(first, phase, hostvars, 5)
    assert kept == summed(first, phase, 5)
    hostvars["a"]["kubenode_summary"] = {"changed": False, "ansible_stats": {"data": {"kubenode_summary": kept}}}
    second = [machine(name="b", verified=True)]
    found = run_events.run_summary(second, phase, hostvars, 9, again=True)
    assert found == summed(second, phase, 9, kept)
    assert (found["machines"], found["verified"], found["failed"]) == (3, 2, 1)
    # the figures of another playbook of the same run are not those of a first try
    assert run_events.run_summary(second, phase, hostvars, 3) == summed(second, phase, 3)
    assert run_events.run_summary(second, phase, {"b": {}}, 7, again=True) == summed(second, phase, 7)


def test_figures_of_later_batches_have_those_of_the_earlier_ones():
    first = [machine(name="a", verified=True, changed=True), machine(name="b", failed=True, msg="boom")]
    kept = run_events.run_summary(first, [], {"a": {}, "b": {}}, 5)
    hostvars = {"b": {"kubenode_summary": {"ansible_stats": {"data": {"kubenode_summary": kept}}}}, "a": {}, "c": {}}
    late, phase = [machine(name="c", late=True, msg="no rescue")], [{"name": "c", "installed": False}]
    second = run_events.run_summary(late, phase, hostvars, 4, earlier=["a", "b"])
    figures = ("machines", "verified", "changed", "failed", "api_calls")
    assert [second[key] for key in figures] == [3, 1, 1, 2, 9]
    assert set(second["reasons"]) == {"b", "c"}
    hostvars["c"]["kubenode_summary"] = {"ansible_stats": {"data": {"kubenode_summary": second}}}
    done = [machine(name="c", verified=True)]
    again = run_events.run_summary(done, phase, hostvars, 6, again=True, earlier=["a", "b"])
    assert [again[key] for key in figures] == [3, 2, 1, 1, 11]
    assert set(again["reasons"]) == {"b"}


def test_no_figures_before_are_none_in_any_form():
    one = [{"name": "a", "verified": True}]
    assert summed(one, before="") == summed(one, before={}) == summed(one, calls="0") == summed(one)


def test_the_figures_of_a_large_fleet_are_small():
    found = summed([{"name": f"n{number}", "failed": True, "msg": "x" * 5000} for number in range(1000)])
    assert found["failed"] == 1000
    assert len(found["reasons"]) == run_events.NAMED
    assert max(map(len, found["reasons"].values())) <= run_events.REASON
