# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_release over HTTP, on servers that do not answer: check mode, bad input, and a rescue that is armed."""

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents
from tests.integration.accounts import RobotAccount
from tests.integration.runs import QUICK

from .kubernetes_double import node, pod

PLAYBOOK = "kubenode.provision.robot_release"


@pytest.fixture
def account(lab_dry, tmp_path):
    account = RobotAccount(lab_dry, tmp_path)
    account.add("silent-1", "silent-2")
    for name, number in account.numbers.items():
        account.hosts[name].update({"kubenode_server_number": number, "kubenode_look_timeout": 0})
    yield account
    account.stop()


def run(account, *flags, **variables):
    return account.play(PLAYBOOK, *flags, env=QUICK, kubenode_dir=str(account.folder / "kubenode"), **variables)


def writes(account):
    return [one for one in account.requests() if one["method"] != "GET"]


def test_check_mode_says_and_changes_nothing(account, api):
    api.add(node("silent-1", "m", addresses=[account.row("silent-1")["address"]]), pod("web", "silent-1"))
    account.arm("silent-1")
    account.forget_requests()
    given = {"kubenode_release": ["silent-1"], "kubenode_kubeconfig": str(api.kubeconfig)}
    for more, stops in (({}, True), ({"kubenode_wipe": ["S1"], "kubenode_ignore_unreachable": True}, False)):
        done = run(account, "--check", "--diff", **given, **more).ok().says("does not answer, would evict 1 pods")
        assert ("a run without --check would stop here" in done.output) is stops
        words = ["would arm the rescue and reset by", "would empty S1 (", "would switch it off"]
        assert [word in " ".join(done.output.split()) for word in words] == [bool(more.get("kubenode_wipe"))] * 3
    assert (writes(account), api.writes) == ([], [])
    assert account.rescue_of("silent-1")["active"] is True


def test_a_rescue_that_is_armed_is_disarmed_and_no_disk_is_touched(account):
    account.arm("silent-1")
    account.arm("silent-2")
    before = account.boots("silent-1")
    run(account, kubenode_release=["silent-1"]).fails().says("-e kubenode_ignore_unreachable=true")
    assert account.rescue_of("silent-1")["active"] is True
    run(account, kubenode_release=["silent-1"], kubenode_ignore_unreachable=True).ok().says("rescue disarmed")
    assert [account.rescue_of(name)["active"] for name in ("silent-1", "silent-2")] == [False, True]
    assert (account.boots("silent-1"), account.resets("silent-1")) == (before, [])
    run(account, kubenode_release=["silent-1"], kubenode_ignore_unreachable=True).ok().says("changed=0")


def test_a_machine_that_an_interrupted_run_took_down_is_gone_on_with(account):
    kept = account.folder / "kubenode/intents/silent-1.json"
    intent = intents.make("silent-1", installed.new_installation(), "release")
    for fits, changed in (
        (False, {"consent": "reinstall"}),
        (False, {"state": "seen"}),
        (False, {"machine": "silent-2"}),
        (False, {"armed_at": "2026-01-01T00:00:00Z"}),
        (True, {}),
    ):
        intents.write(str(kept), {**intent, **changed})
        if fits:
            done = run(account, "--check", kubenode_release=["silent-1"]).ok()
            assert "a run without --check would stop here" not in done.output
            assert "FAILED: " not in done.output
            assert "silent-1 failed: " not in done.output
            run(account, kubenode_release=["silent-1"]).ok().says("does not answer, forgotten here: ")
        else:
            run(account, kubenode_release=["silent-1"]).fails().says("-e kubenode_ignore_unreachable=true")
        assert kept.exists() is not fits


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["kubenode_release names no machine", "silent-1, silent-2"]),
        ({"kubenode_release": ["silent-1"], "kubenode_wipe": ["all"]}, ["kubenode_wipe: 'all' names no disk"]),
        ({"kubenode_release": ["silent-1"], "kubenode_power_off": "later"}, ["kubenode_power_off is 'later'"]),
        ({"kubenode_release": {"silent-1": "x"}}, ["'x' is no id of an installation"]),
    ],
)
def test_bad_input_is_refused_before_any_request(account, given, words):
    account.forget_requests()
    run(account, **given).fails().says(*words)
    assert account.requests() == []


def test_a_server_that_is_not_there(account):
    account.hosts["silent-2"]["kubenode_server_number"] = 999999
    account.forget_requests()
    (run(account, kubenode_release=["silent-1", "silent-2"], kubenode_ignore_unreachable=True).fails().says("999999"))
    assert writes(account) == []


def test_disks_that_the_inventory_names_are_not_emptied(account):
    account.hosts["silent-1"]["kubenode_wipe"] = ["DATA1"]
    before = account.boots("silent-1")
    account.forget_requests()
    done = run(account, kubenode_release=["silent-1"], kubenode_ignore_unreachable=True).fails()
    done.says("silent-1: kubenode_wipe stands in the inventory")
    assert account.requests() == []
    run(account, kubenode_release=["silent-1"], kubenode_ignore_unreachable=True, kubenode_wipe=[]).ok()
    assert (account.boots("silent-1"), account.resets("silent-1")) == (before, [])
