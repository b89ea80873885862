# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_rescue against machines that keep their power state only: what is armed, reset, refused, and what it costs."""

import pytest


def test_a_first_provisioning_costs_two_requests_a_machine_before_its_proof(account):
    account.add("n1", "n2", "n3")
    key = {"name": "mine", "data": account.public_key}
    account.robot("POST", "/key", key)
    account.forget_requests()
    run = account.rescue(prove=False).ok()
    paths = [(one["method"], one["path"]) for one in account.requests()]
    assert sorted(paths[:3]) == [("GET", "/key"), ("GET", "/reset"), ("GET", "/server")]
    assert paths[0] == ("GET", "/server")
    assert len(paths) == 3 + 2 * 3 == run.result["api_calls"]
    for name, result in run.machines.items():
        assert account.boots(name)[-1] == "rescue"
        assert account.resets(name) == ["sw"]
        assert [reset["way"] for reset in result["resets"]] == ["sw"]
        assert [change["to"] for change in result["transitions"]] == ["EnablingRescue", "BootingToRescue"]
        assert (result["changed"], result["in_rescue"], result["armed"], result["api_calls"]) == (True, None, True, 2)
        assert result["server_number"] == account.numbers[name]
    # Known by its material, with any name there.
    assert [entry["key"]["name"] for entry in account.robot("GET", "/key")] == ["mine"]


def test_the_gentlest_reset_the_server_offers_is_sent(account):
    account.add("ax", reset=["power", "power_long", "hw", "man"])
    account.add("none", reset=["man", "power_long"])
    run = account.rescue(prove=False, on_error="report")
    assert account.resets("ax") == ["hw"]
    failed = run.machines["none"]
    assert (failed["failed"], failed["permanent"]) == (True, True)
    assert "offered: man, power_long" in failed["msg"] or "offered: power_long, man" in failed["msg"]
    assert account.resets("none") == []
    assert account.rescue_of("none")["active"] is False


def test_an_unknown_key_is_registered_once_under_its_name(account):
    account.add("n1")
    for _time in range(2):
        assert not account.rescue(prove=False, ssh_key_name="fleet").failed
    assert [entry["key"]["name"] for entry in account.robot("GET", "/key")] == ["fleet"]


def test_check_mode_names_the_reset_and_changes_nothing(account):
    account.add("n1")
    account.add("ax", reset=["hw"])
    account.forget_requests()
    run = account.rescue(None, "--check", "--diff")
    assert run.result["changed"]
    assert run.machines["n1"]["msg"] == "would arm the rescue and reset by sw"
    assert run.machines["ax"]["msg"] == "would arm the rescue and reset by hw"
    assert run.output.count('\n+    "rescue": true\n') == 2
    assert {one["method"] for one in account.requests()} == {"GET"}
    assert account.resets("n1") == account.resets("ax") == []


@pytest.mark.parametrize(
    ("kind", "order", "said"),
    [
        ("rescue", {"os": "vkvm"}, "rescue (vkvm)"),
        ("rescue", {"os": "linux"}, "rescue (linux)"),
        ("linux", {"dist": "Debian 12 base", "lang": "en"}, "linux (Debian 12 base)"),
    ],
)
def test_what_a_person_has_ordered_for_the_next_boot_is_not_replaced_unsaid(account, kind, order, said):
    account.add("n1")
    account.robot("POST", f"/boot/{account.numbers['n1']}/{kind}", order)
    check = account.rescue(None, "--check")
    what = f"; it would replace what Robot has for the next boot: {said}"
    assert check.machines["n1"]["msg"] == f"would arm the rescue and reset by sw{what}"
    run = account.rescue(None, "-v", prove=False).ok()
    run.says(f"n1: Robot had {said} for its next boot; the rescue of this run has replaced that")
    assert account.boots("n1")[-1] == "rescue"


def test_wrong_credentials_cost_exactly_one_login(account):
    account.add(*(f"n{number}" for number in range(6)))
    account.forget_requests()
    run = account.rescue(prove=False, env={"HROBOT_API_PASSWORD": "wrong-one"}).fails("HROBOT_API_USER", "10 minutes")
    assert "wrong-one" not in run.output
    assert [(one["path"], one["status"]) for one in account.requests()] == [("/server", 401)]
    # Two more would have locked the address out.
    assert not account.rescue(prove=False).failed


def test_a_password_rotated_under_way_ends_everything_below_the_lock_out(account):
    names = [f"n{number}" for number in range(8)]
    account.add(*names)
    account.fault(point="boot", machine="n3", effect="password_rotated")
    account.forget_requests()
    account.rescue(prove=False).fails("HROBOT_API_PASSWORD")
    assert 1 <= [one["status"] for one in account.requests()].count(401) < 3
    account.forget_faults()


def test_the_password_is_nowhere_to_be_seen(account):
    account.add("n1")
    run = account.rescue(None, "-vvv", prove=False, robot_password=account.lab.robot_password).ok()
    assert account.lab.robot_password not in run.output
    last = account.robot("GET", f"/boot/{account.numbers['n1']}/rescue/last")["rescue"]
    assert last["password"]
    assert last["password"] not in run.output


def test_resets_are_counted_before_the_first_change(account):
    account.add("n1", "n2", "n3")
    account.forget_requests()
    account.rescue(prove=False, max_resets=2).fails(
        "3 machines need a reset by the Robot API, which takes 2 an hour; 2 can be sent now", "on_reset_limit"
    )
    assert {one["method"] for one in account.requests()} == {"GET"}
    assert [account.resets(name) for name in account.numbers] == [[], [], []]


def test_resets_that_an_earlier_call_sent_count(account):
    account.add("n1", "n2")
    first = account.rescue(account.machines("n1"), prove=False, max_resets=1)
    handed_on = [{**first.machines["n1"], "boot_state": ""}, *account.machines("n2")]
    account.rescue(handed_on, prove=False, max_resets=2).fails(
        "2 machines need a reset by the Robot API, which takes 2 an hour; 1 can be sent now"
    )


def test_a_limit_that_others_used_up_fails_no_machine_for_good(account):
    names = [f"n{number}" for number in range(5)]
    account.add(*names)
    account.lab.control("POST", "/robot/limits", {"route": "POST /reset/{server}", "remaining": 3})
    run = account.rescue(prove=False, on_error="report", timeout=25)
    sent = [name for name in names if account.resets(name)]
    assert len(sent) == 3
    for name in names:
        result = run.machines[name]
        assert result["failed"] is (name not in sent)
        assert result["permanent"] is False
        assert result["boot_state"] == ("BootingToRescue" if name in sent else "EnablingRescue")
        if name not in sent:
            assert "not this machine's fault" in result["msg"]
            assert result["resets"] == []


def test_a_403_mid_fleet_is_waited_out(account):
    names = [f"n{number}" for number in range(5)]
    account.add(*names)
    # A window of seconds is used in place of the hour.
    body = {"route": "POST /reset/{server}", "remaining": 3, "interval": 20}
    account.lab.control("POST", "/robot/limits", body)
    account.rescue(prove=False).ok()
    assert [account.resets(name) for name in names] == [["sw"]] * 5
    refused = [one for one in account.requests("POST", "/reset") if one["status"] == 403]
    assert 1 <= len(refused) <= 4


def test_what_another_user_armed_is_disarmed_first(account):
    account.add("n1", "n2")
    account.robot("POST", f"/boot/{account.numbers['n1']}/rescue", {"os": "linux"})
    linux = {"dist": "Debian 12 base", "lang": "en"}
    offered = account.robot("GET", f"/boot/{account.numbers['n2']}/linux")["linux"]
    linux = {"dist": offered["dist"][0], "lang": offered["lang"][0]}
    account.robot("POST", f"/boot/{account.numbers['n2']}/linux", linux)
    assert not account.rescue(prove=False).failed
    public = " ".join(account.public_key.split()[:2])
    for name in account.numbers:
        assert account.boots(name)[-1] == "rescue"
        assert account.row(name)["boots"][-1]["authorized_keys"] == [public]


@pytest.mark.parametrize("fault", [{"drop": True}, {"status": 502}, {"status": 500, "code": "BOOT_ACTIVATION_FAILED"}])
def test_arming_whose_answer_is_lost_or_bad_ends_well(account, fault):
    account.add("n1", "n2")
    account.fault(point="request", api="robot", method="POST", path=r"/boot/.*", **fault)
    account.fault(point="request", api="robot", method="POST", path=r"/boot/.*", after_effect=True, skip=1, **fault)
    account.rescue(prove=False).ok()
    for name in account.numbers:
        assert account.boots(name)[-1] == "rescue"
        assert account.resets(name) == ["sw"]


@pytest.mark.parametrize("names", [["n1"], ["n1", "n2"]])
def test_a_busy_robot_is_borne(account, names):
    account.add(*names)
    of_resets = "/reset" if len(names) > 1 else f"/reset/{account.numbers['n1']}"
    for path in ("/server", of_resets, "/key"):
        account.fault(point="request", api="robot", method="GET", path=path, status=503)
    account.forget_requests()
    assert not account.rescue(prove=False).failed
    assert [account.boots(name)[-1] for name in names] == ["rescue"] * len(names)
    assert {one["path"] for one in account.requests("GET") if one["status"] == 503} == {"/server", of_resets, "/key"}


def test_input_that_cannot_work_is_refused_before_anything(account):
    account.add("n1")
    number = account.numbers["n1"]
    cases = [
        ({"machines": [{"name": "n1", "server_number": "x"}]}, "server_number: 'x' is no number"),
        (
            {"machines": [{"name": name, "server_number": number} for name in ("a", "b")]},
            "is the one of machine 'a' too",
        ),
        ({"machines": account.machines("n1", first_contact="yes")}, "first_contact: 'yes' is"),
        ({"reinstall": "n1"}, "reinstall: 'n1' is neither a list of names nor a dictionary"),
        ({"ssh_private_key": None}, "ssh_private_key: missing"),
        ({"ssh_public_key": "ssh-rsa x"}, "ssh_public_key"),
        ({"hw_timeout": 0}, "hw_timeout: 0 is too little"),
        ({"endpoint": "http://example.com"}, "endpoint: http would send"),
    ]
    account.forget_requests()
    for options, message in cases:
        account.rescue(options.pop("machines", None), prove=False, **options).fails(message)
    assert account.requests() == []


def test_one_machine_that_is_no_server_fails_alone(account):
    account.add("n1")
    run = account.rescue([*account.machines(), {"name": "ghost"}], prove=False, on_error="report")
    assert "no server with the name 'ghost'" in run.machines["ghost"]["msg"]
    assert run.machines["ghost"]["permanent"] is False
    assert account.boots("n1")[-1] == "rescue"


def test_names_of_one_server_are_refused_and_all_are_named(account):
    account.add("n1", "n2")
    row = account.row("n1")
    by_number, by_address = {"name": "a", "server_number": row["number"]}, {"name": "b", "server_ip": row["address"]}
    account.robot("POST", f"/server/{row['number']}", {"server_name": "c"})
    machines = [by_number, *account.machines("n2"), by_address, {"name": "c"}]
    account.rescue(machines, prove=False).fails(
        f"the machines 'a' (by server_number), 'b' (by server_ip), 'c' (by its name in Robot) are the same "
        f"server {row['number']}. Leave each server to one of them"
    )
    assert account.resets("n1") == []


def test_a_machine_that_failed_before_is_handed_on(account):
    account.add("n1")
    failed = {**account.machines()[0], "failed": True, "msg": "broken", "boot_state": "BootingToRescue"}
    run = account.rescue([failed], on_error="report")
    assert (run.machines["n1"]["failed"], run.machines["n1"]["msg"]) == (True, "broken")
    permanent = {**failed, "permanent": True}
    assert account.rescue([permanent], on_error="report", rearm=True).machines["n1"]["permanent"] is True
    assert account.requests() == []


def test_state_os_disarms_and_leaves(account):
    account.add("n1")
    account.robot("POST", f"/boot/{account.numbers['n1']}/rescue", {"os": "linux"})
    check = account.rescue(None, "--check", state="os")
    assert check.machines["n1"]["msg"] == "would disarm the rescue"
    assert account.rescue_of("n1")["active"] is True
    run = account.rescue(state="os").ok()
    assert run.machines["n1"]["changed"]
    assert account.rescue_of("n1")["active"] is False
    again = account.rescue(state="os")
    assert not again.result["changed"]
    assert account.resets("n1") == []


def test_a_name_of_another_machine_in_reinstall_does_no_harm(account):
    account.add("n1")
    account.rescue(prove=False, reinstall=["n2"]).ok()
    assert account.boots("n1")[-1] == "rescue"
