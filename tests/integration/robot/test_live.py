# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that may be in use: they are not reset unasked, and one that is given up is disarmed."""

import json

import pytest

CLOSED = "we cannot tell what it runs"


def untouched(account, *names):
    """Whether no reset reached the machines, nothing is armed, and their next boot is one from their disk."""
    return all(account.resets(name) == [] and not account.rescue_of(name)["active"] for name in names)


@pytest.mark.parametrize("more", [{}, {"look_only": True}, {"first_contact": "refuse"}])
def test_a_powered_server_that_is_silent_is_left_as_it_is(account, more):
    account.add("n1")
    account.add("mute", operating_status=False)
    words = {"first_contact": more.pop("first_contact", None)}
    machines = [{**one, **words} for one in account.machines()]
    account.forget_requests()
    run = account.rescue(machines, prove=False, on_error="report", **more)
    for name in account.numbers:
        assert CLOSED in run.machines[name]["msg"]
        assert "-e kubenode_first_contact=reset" in run.machines[name]["msg"]
        assert not run.machines[name]["changed"]
    assert untouched(account, *account.numbers)
    assert account.requests("POST") == [], "no key is registered either"


def test_a_server_that_is_off_has_no_users_and_is_started(account):
    account.add("off", powered=False, reset=["sw", "hw", "power"])
    machines = account.machines("off", first_contact="refuse")
    looked = account.rescue(machines, prove=False, look_only=True, on_error="report")
    assert CLOSED in looked.machines["off"]["msg"]
    assert untouched(account, "off"), "a look switches no server on"
    account.rescue(machines, prove=False).ok()
    # no time is lost with keys and buttons that start no server
    assert account.resets("off") == ["power"]


@pytest.mark.parametrize("look_only", [True, False])
@pytest.mark.parametrize("words", [{"reinstall": ["off"]}, {"first_contact": "reset"}])
def test_a_server_that_robot_calls_off_is_never_asked_by_keys_or_button(account, look_only, words):
    """Also by a look, and by a permission of the first contact; in as many requests as one that runs."""
    account.add("off", powered=False, reset=["sw", "hw", "power"])
    account.add("on", reset=["sw", "hw", "power"])
    words, costs = dict(words), set()
    contact = words.pop("first_contact", "refuse")
    for name, way in (("off", "power"), ("on", "sw")):
        words = {key: [name] for key in words}
        account.forget_requests()
        account.rescue(account.machines(name, first_contact=contact), prove=False, look_only=look_only, **words).ok()
        assert account.resets(name) == [way]
        asked = [(one["method"], one["path"].replace(str(account.numbers[name]), "N")) for one in account.requests()]
        known = [one for one in asked if one != ("POST", "/key")]
        assert sorted(known) == [
            ("GET", "/key"), ("GET", "/reset/N"), ("GET", "/server"), ("POST", "/boot/N/rescue"), ("POST", "/reset/N"),
        ]  # fmt: skip
        costs.add(len(known))
    assert costs == {5}


def test_a_server_that_is_named_and_off_is_started_at_once(account):
    account.add("off", powered=False, reset=["sw", "hw", "power"])
    account.add("on", reset=["sw", "hw", "power"])
    account.rescue(account.machines(first_contact="refuse"), prove=False, reinstall=["off", "on"]).ok()
    assert {name: account.resets(name) for name in account.numbers} == {"off": ["power"], "on": ["sw"]}


def test_check_mode_reports_the_refusal(account):
    account.add("n1")
    run = account.rescue(account.machines(first_contact="refuse"), "--check", on_error="report")
    assert CLOSED in run.machines["n1"]["msg"]


def test_an_interrupted_run_is_gone_on_with_by_the_same_words(account):
    """Who knows what was done to the machine meanwhile? The intent of the first run does not."""
    account.add("n1")
    intents = str(account.folder / "intents")
    assert not account.rescue(prove=False, intents_dir=intents).failed
    machines = account.machines(first_contact="refuse")
    refused = account.rescue(machines, prove=False, intents_dir=intents, on_error="report")
    assert CLOSED in refused.machines["n1"]["msg"]
    account.rescue(prove=False, intents_dir=intents).ok()
    assert account.resets("n1") == ["sw", "sw"]


def test_a_run_that_gives_up_disarms(account):
    """These machines do not answer: every reset type is tried, and then the next boot is from the disk again."""
    account.add("n1", reset=["hw"], wol=False)
    account.fault(point="boot", machine="n1", effect="dead", times=9)
    intents = account.folder / "intents"
    run = account.rescue(intents_dir=str(intents), hw_timeout=2, on_error="report")
    failed = run.machines["n1"]
    assert (failed["failed"], failed["permanent"], failed["armed"]) == (True, True, False)
    assert failed["msg"].endswith("The rescue is disarmed: the next boot leads to the disk")
    assert account.rescue_of("n1")["active"] is False
    assert json.loads((intents / "n1.json").read_text())["state"] == "given up"


def test_a_permission_that_is_left_over_resets_a_live_server_once(account):
    """As kubenode_first_contact in an inventory: the first run ends without a rescue, and no later run tries again."""
    account.add("n1", reset=["hw"], wol=False)
    account.fault(point="boot", machine="n1", effect="dead", times=9)
    intents = {"intents_dir": str(account.folder / "intents")}
    left = account.machines(first_contact="once")
    first = account.rescue(left, hw_timeout=1, max_resets=2, on_error="report", **intents)
    assert first.machines["n1"]["failed"]
    resets = account.resets("n1")
    assert resets != []
    again = account.rescue(left, hw_timeout=1, on_error="report", **intents)
    assert CLOSED in again.machines["n1"]["msg"]
    assert "it is for the first contact, and that was made: it was given up at " in again.machines["n1"]["msg"]
    assert (account.resets("n1"), account.rescue_of("n1")["active"]) == (resets, False)
    planned = account.rescue(account.machines(first_contact="reset"), "--check", **intents)
    assert "would arm the rescue and reset by hw" in planned.machines["n1"]["msg"]


def test_an_error_of_robot_on_the_way_disarms_too(account):
    account.add("n1")
    number = account.numbers["n1"]
    account.fault(point="request", api="robot", method="POST", path=f"/reset/{number}", status=403, code="X", times=9)
    intents = account.folder / "intents"
    run = account.rescue(prove=False, intents_dir=str(intents), on_error="report")
    assert run.machines["n1"]["failed"]
    assert account.rescue_of("n1")["active"] is False
    kept = json.loads((intents / "n1.json").read_text())
    # another try needs no new word, but a rescue that comes now is another one's
    assert (kept["state"], kept["disarmed"]) == ("open", True)


@pytest.mark.nspawn
def test_a_server_that_refuses_our_key_is_left_as_it_is(real_account):
    account = real_account
    account.add_installed("closed")
    boots = account.boots("closed")
    run = account.rescue(account.machines(first_contact="refuse"), on_error="report")
    assert CLOSED in run.machines["closed"]["msg"]
    assert "does not accept the key" in run.machines["closed"]["msg"]
    assert untouched(account, "closed")
    assert account.boots("closed") == boots
