# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_rescue against machines that keep their power state only: what is armed, started, refused."""

KEYS = {"ssh_keys": ["deploy"], "prove": False}


def create(project, *names):
    return project.run("hcloud_machine", machines=[project.machine(name) for name in names], wait=False)


def test_new_machines_are_armed_and_started_without_waiting_in_between(project):
    run = create(project, "n1", "n2")
    assert run.machines["n1"]["create_action"]["command"] == "create_server"
    armed = project.run("hcloud_rescue", machines=run.result["machines"], ssh_private_key=str(project.key), **KEYS).ok()
    for name in ("n1", "n2"):
        assert project.commands(name) == ["create_server", "enable_rescue", "start_server"]
        result = armed.machines[name]
        assert [change["to"] for change in result["transitions"]] == ["EnablingRescue", "BootingToRescue"]
        assert (result["changed"], result["in_rescue"], result["boot_id"]) == (True, None, None)
        assert result["transitions"][0]["from"] == "Initializing"


def test_an_interrupted_run_goes_on_with_machines_that_never_started(project):
    create(project, "n1")
    project.run("hcloud_rescue", machines=[{"name": "n1"}], **KEYS).ok()
    assert project.commands("n1") == ["create_server", "enable_rescue", "start_server"]


def test_a_rescue_armed_by_another_user_is_armed_again(project):
    run = create(project, "n1")
    server = run.machines["n1"]["id"]
    key = project.call("GET", "/ssh_keys")["ssh_keys"][0]["id"]
    project.call("POST", f"/servers/{server}/actions/enable_rescue", {"type": "linux64", "ssh_keys": [key]})
    assert not project.run("hcloud_rescue", machines=[{"name": "n1"}], **KEYS).failed
    assert project.commands("n1")[1:] == ["enable_rescue", "disable_rescue", "enable_rescue", "start_server"]


def started_and_off(project, name):
    run = create(project, name)
    server = run.machines[name]["id"]
    project.call("POST", f"/servers/{server}/actions/poweron")
    project.call("POST", f"/servers/{server}/actions/poweroff")


def test_a_machine_that_started_before_is_refused_unless_named(project):
    started_and_off(project, "n1")
    before = project.commands("n1")
    run = project.run("hcloud_rescue", machines=[{"name": "n1"}], **KEYS).fails()
    assert "its disk may hold something" in run.machines["n1"]["msg"]
    assert project.commands("n1") == before
    assert project.servers()["n1"]["rescue_enabled"] is False

    project.run("hcloud_rescue", machines=[{"name": "n1"}], reinstall=["n1"], **KEYS).ok()
    assert project.commands("n1")[len(before) :] == ["enable_rescue", "start_server"]


def test_results_of_a_creation_long_ago_are_not_believed(project):
    run = create(project, "n1")
    old = {**run.machines["n1"], "boot_state_since": "2026-01-01T00:00:00.000Z"}
    server = old["id"]
    project.call("POST", f"/servers/{server}/actions/poweron")
    project.call("POST", f"/servers/{server}/actions/poweroff")
    refused = project.run("hcloud_rescue", machines=[old], **KEYS).fails()
    assert "was started before" in refused.machines["n1"]["msg"]


def test_servers_of_others_and_missing_ones_are_refused(project):
    project.call("POST", "/servers", {"name": "old", "server_type": "cx23", "image": "debian-12"})
    run = project.run("hcloud_rescue", machines=[{"name": "old"}, {"name": "none"}], **KEYS).fails()
    assert "was not made by this collection" in run.machines["old"]["msg"]
    assert "there is no server 'none'" in run.machines["none"]["msg"]
    assert project.commands("old") == ["create_server", "start_server"]


def test_check_mode_changes_nothing(project):
    create(project, "n1")
    run = project.run("hcloud_rescue", "--check", "--diff", machines=[{"name": "n1"}], **KEYS)
    assert run.result["changed"]
    assert run.machines["n1"]["msg"] == "would arm the rescue and power on"
    assert project.commands("n1") == ["create_server"]
    planned = project.run("hcloud_machine", "--check", machines=[project.machine("n2")])
    run = project.run("hcloud_rescue", "--check", machines=planned.result["machines"], **KEYS)
    assert run.machines["n2"]["msg"] == "would arm the rescue and power on"


def test_a_silent_machine_is_refused_and_rearmed_only_after_it_was_armed(project):
    armed = project.run("hcloud_rescue", machines=create(project, "n1").result["machines"], **KEYS)
    limits = {**KEYS, "prove": True, "rescue_timeout": 3, "ssh_args": "-o ProxyCommand=false"}
    silent = project.run("hcloud_rescue", machines=[{"name": "n1"}], **limits).fails()
    assert "it was not clear which system" in silent.machines["n1"]["msg"]
    before = project.commands("n1")

    again = project.run("hcloud_rescue", machines=armed.result["machines"], rearm=True, on_error="report", **limits)
    assert project.commands("n1")[len(before) :] == ["enable_rescue", "reset_server", "disable_rescue"]
    result = again.machines["n1"]
    assert (result["failed"], result["in_rescue"], result["boot_state"]) == (True, False, "BootingToRescue")
    assert "was not reached within 3 s" in result["msg"]
    assert "rearm" in result["msg"]


def test_state_os_disarms_a_machine_that_is_off(project):
    run = create(project, "n1")
    key = project.call("GET", "/ssh_keys")["ssh_keys"][0]["id"]
    server = run.machines["n1"]["id"]
    project.call("POST", f"/servers/{server}/actions/enable_rescue", {"type": "linux64", "ssh_keys": [key]})
    assert project.servers()["n1"]["rescue_enabled"]
    disarmed = project.run("hcloud_rescue", machines=[{"name": "n1"}], state="os")
    assert disarmed.result["changed"]
    assert not project.servers()["n1"]["rescue_enabled"]
    again = project.run("hcloud_rescue", machines=[{"name": "n1"}], state="os")
    assert not again.result["changed"]


def test_input_that_cannot_work_is_refused_before_anything(project):
    create(project, "n1")
    cases = [
        ({"ssh_keys": ["missing"]}, "ssh_keys: 'missing' does not exist"),
        ({"ssh_keys": []}, "ssh_keys: empty"),
        ({"ssh_keys": ["deploy"], "reinstall": "n1"}, "reinstall: 'n1' is neither a list of names nor a dictionary"),
        ({"ssh_keys": ["deploy"], "reinstall": {"n1": "all"}}, "reinstall: n1: 'all' is no id of an installation"),
        ({"ssh_keys": ["deploy"], "ssh_user": "-x"}, "ssh_user: '-x' is no user name"),
    ]
    for options, message in cases:
        project.run("hcloud_rescue", machines=[{"name": "n1"}], prove=False, **options).fails(message)
    assert project.commands("n1") == ["create_server"]


def test_a_name_of_another_machine_in_reinstall_does_no_harm(project):
    create(project, "n1")
    project.run("hcloud_rescue", machines=[{"name": "n1"}], prove=False, ssh_keys=["deploy"], reinstall=["n2"]).ok()
    assert "enable_rescue" in project.commands("n1")
