# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps a machine takes, with which options, and what one step hands to the next."""

from __future__ import annotations

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import install_plan, machine_install
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.install_plan import (
    HCLOUD,
    INSTALLIMAGE,
    ROBOT,
)

HOST = {
    "inventory_hostname": "node-1",
    "kubenode_image_url": "https://images.example.com/a.raw",
    "kubenode_image_url_command": "image-url-command-raw-disk",
    "kubenode_image": {"name": "Debian-1300-trixie-amd64-base.tar.gz"},
    "kubenode_root_device_hints": {"smallest": True},
}
SAID = {
    "name": "node-1", "failed": False, "installed": False, "proven": False, "in_rescue": True, "id": 7,
    "server_number": 8,
    "ipv4": "192.0.2.1", "boot_state": "BootingToRescue", "boot_state_since": "2026-11-21T10:00:00.000Z",
    "installation": "i" * 8, "consent": "fresh", "previous_boot_id": "b", "host_keys": ["ssh-ed25519 AAAA"],
}  # fmt: skip


def planned(playbook: str, host: dict | None = None, said: dict | None = None, **more: object) -> dict:
    (machine,) = install_plan.plan([{**HOST, **(host or {})}], playbook, [{**SAID, **(said or {})}], "/dir", **more)
    return machine


def steps(machine: dict) -> list[str]:
    return [step for step in machine_install.STEPS if step in machine]


@pytest.mark.parametrize(
    ("playbook", "expected"),
    [
        (HCLOUD, ["image_url_command", "machine_boot"]),
        (ROBOT, ["machine_disks", "image_url_command", "machine_boot"]),
        (INSTALLIMAGE, ["machine_disks", "robot_installimage", "machine_boot"]),
    ],
)
def test_every_step_has_options_that_its_module_takes(playbook, expected):
    machine = planned(playbook, {"kubenode_pre_provision_command": "ask"}, token="secret")
    assert steps(machine) == ["pre_provision_command", *expected]
    for step in steps(machine):
        specification = machine_install.STEPS[step][0]()
        late = {"root_devices": ["sda"], "boot_state": "BootingToRescue"} if step == "robot_installimage" else {}
        checked = ArgumentSpecValidator(specification).validate({**machine[step], **late})
        assert checked.error_messages == [], step
        if step != "machine_boot":
            assert machine[step]["addresses"] == ["192.0.2.1"]
    assert steps(planned(playbook)) == expected


def test_who_is_left_alone():
    assert planned(HCLOUD, said={"failed": True, "msg": "why"})["refused"] == "why"
    assert steps(planned(ROBOT, said={"in_rescue": False})) == []
    for playbook in install_plan.PLAYBOOKS:
        assert steps(planned(playbook, said={"installed": True, "proven": True})) == []
        found = planned(playbook, {"kubenode_adopt": True}, {"installed": True})
        assert steps(found) == ["machine_boot"]
        assert (found["machine_boot"]["reboot"], found["machine_boot"]["adopt"]) == (False, True)
    assert steps(planned(HCLOUD, stay=["node-1"])) == ["image_url_command"]
    assert steps(planned(HCLOUD, said={"installed": True}, stay=["node-1"])) == []
    build = {"kubenode_build": {}, "kubenode_pre_provision_command": "ask"}
    assert "pre_provision_command" not in planned(HCLOUD, build)


@pytest.mark.parametrize(("said", "adopts"), [("false", False), (False, False), (None, False), ("yes", True)])
def test_a_value_that_denies_adopts_nothing(said, adopts):
    found = planned(ROBOT, {"kubenode_adopt": said}, {"installed": True})
    checked = ArgumentSpecValidator(machine_install.STEPS["machine_boot"][0]()).validate(found["machine_boot"])
    assert checked.validated_parameters["adopt"] is adopts


def test_only_a_cloud_machine_gets_another_try():
    assert planned(HCLOUD)["may_be_late"]
    assert not planned(HCLOUD, last_try=True)["may_be_late"]
    assert not planned(ROBOT)["may_be_late"]
    assert "second_try" not in planned(HCLOUD)
    assert planned(HCLOUD, second_try=True)["second_try"]


def test_the_first_word_of_the_api_phase_counts_and_hosts_without_one_are_left_out():
    later = {**SAID, "failed": True, "msg": "older"}
    hosts = [HOST, {**HOST, "inventory_hostname": "node-2"}]
    (machine,) = install_plan.plan(hosts, HCLOUD, [SAID, later], "/dir")
    assert machine["name"] == "node-1"
    assert "refused" not in machine


def test_what_a_host_sets_goes_before_what_the_run_says():
    machine = planned(HCLOUD, {"kubenode_registry_token": "own", "kubenode_address": "192.0.2.9"}, token="run's")
    assert machine["image_url_command"]["oci_registry_auth_token"] == "own"
    assert machine["address"] == "192.0.2.9"
    assert planned(HCLOUD, token="run's")["image_url_command"]["oci_registry_auth_token"] == "run's"
    assert planned(INSTALLIMAGE, token="run's")["robot_installimage"]["oci_registry_auth_token"] == "run's"
    assert planned(ROBOT)["machine_boot"]["timeout"] == 600
    assert planned(ROBOT, {"kubenode_boot_timeout": 5})["machine_boot"]["timeout"] == 5
    assert planned(INSTALLIMAGE)["machine_boot"]["hostname"] == "node-1"


@pytest.mark.parametrize("playbook", [HCLOUD, ROBOT, INSTALLIMAGE])
def test_every_step_in_the_rescue_waits_for_it_as_long_as_the_user_says(playbook):
    """The first of them is the one that waits; which one that is depends on the kind of machine."""
    machine = planned(playbook, {"kubenode_rescue_timeout": 60, "kubenode_pre_provision_command": "ask"})
    for step in steps(machine)[:-1]:
        assert machine[step].get("rescue_timeout") == 60, step


@pytest.mark.parametrize("playbook", [HCLOUD, ROBOT, INSTALLIMAGE])
def test_the_port_of_the_installed_system_is_the_inventorys(playbook):
    def port(**variables: object) -> object:
        machine = planned(playbook, variables)
        assert all("port" not in option for step in steps(machine)[:-1] for option in machine[step])
        return machine["machine_boot"].get("os_port")

    assert port(ansible_port=2222) == 2222
    assert port(kubenode_os_port=2200, ansible_port=2222) == 2200
    assert port(ansible_port="ssh") is None
    assert port() is None


def whole(machine: dict) -> dict:
    """All that `machine_install.run` looks at; what a machine does not say is nothing."""
    nothing = {"refused": None, "notes": None, "installed": False, "address": None, "may_be_late": False}
    return {**nothing, "second_try": False, **dict.fromkeys(machine_install.STEPS), **machine}


class Host:
    """The connection to a machine."""

    name = "node-1"
    check_mode = False

    def close(self) -> None:
        """It holds nothing."""


def taken(monkeypatch, results: dict[str, dict], machine: dict) -> tuple[dict, dict[str, dict]]:
    """Steps that return these results; what came of the machine, and the options that each step got."""
    given: dict[str, dict] = {}

    def step(name: str):
        def take(_host: Host, options: dict) -> dict:
            given[name] = options
            return {
                "changed": True,
                "failed": False,
                "msg": name,
                "boot_state": name,
                "boot_state_since": "t",
                **results[name],
            }

        return take

    for name, (specification, _step) in list(machine_install.STEPS.items()):
        monkeypatch.setitem(machine_install.STEPS, name, (specification, step(name)))
    return machine_install.run(Host(), whole(machine)), given


def test_each_step_gets_what_the_steps_before_it_found(monkeypatch):
    results = {
        "machine_disks": {
            "in_rescue": True,
            "root_devices": ["sdb"],
            "consent": "wipe",
            "to_empty": [{"name": "sdb"}],
            "found_empty": [{"name": "sdc"}],
        },
        "robot_installimage": {
            "installation": "j" * 8,
            "written": [{"name": "sdb"}],
            "boot_id": "c",
            "host_keys": ["k"],
        },
        "machine_boot": {"verified": True, "proof": "nonce"},
    }
    result, given = taken(monkeypatch, results, planned(INSTALLIMAGE))
    assert (result["failed"], result["verified"], result["in_rescue"], result["runs"]) == (False, True, True, True)
    assert result["address"] == "192.0.2.1"
    assert list(result["steps"]) == list(results)
    installed = given["robot_installimage"]
    assert (installed["root_devices"], installed["consent"], installed["empty"]) == (["sdb"], "wipe", [{"name": "sdb"}])
    boot = given["machine_boot"]
    assert (boot["installation"], boot["previous_boot_id"], boot["host_keys"]) == ("j" * 8, "c", ["k"])
    assert boot["boot_state"] == "robot_installimage"

    results["image_url_command"] = results.pop("robot_installimage")
    _result, given = taken(monkeypatch, results, planned(ROBOT, {"kubenode_host_keys": ["ours"]}))
    assert given["image_url_command"]["consent"] == "checked+wipe"
    assert given["image_url_command"]["still_empty"] == [{"name": "sdc"}]
    assert given["machine_boot"]["host_keys"] == ["ours"]


def test_an_encrypted_system_is_unlocked_where_that_was_asked_for(monkeypatch):
    variables = {"kubenode_crypt_password": "correct-horse", "kubenode_remote_unlock": True}
    steps = planned(INSTALLIMAGE, variables)
    assert steps["robot_installimage"]["remote_unlock"] is True
    assert steps["machine_boot"]["unlock_password"] == "correct-horse"
    assert "unlock_password" not in planned(INSTALLIMAGE, {**variables, "kubenode_remote_unlock": "no"})["machine_boot"]
    assert "unlock_password" not in planned(ROBOT, variables)["machine_boot"]
    # found again by a later run, which knows the host key from the earlier one
    found = planned(INSTALLIMAGE, variables, said={"installed": True, "proven": False})
    assert found["machine_boot"]["unlock_password"] == "correct-horse"

    results = {
        "machine_disks": {"root_devices": ["sdb"], "consent": "wipe", "to_empty": []},
        "robot_installimage": {"boot_id": "c", "host_keys": ["k"], "unlock_host_keys": ["u"]},
        "machine_boot": {},
    }
    _result, given = taken(monkeypatch, results, steps)
    assert (given["machine_boot"]["host_keys"], given["machine_boot"]["unlock_host_keys"]) == (["k"], ["u"])


@pytest.mark.parametrize("playbook", [HCLOUD, ROBOT, INSTALLIMAGE])
def test_the_expected_hostname_is_part_of_the_proof(playbook):
    def boot(**variables: object) -> dict:
        return planned(playbook, variables)["machine_boot"]

    assert boot()["hostname"] == "node-1"
    assert boot(kubenode_hostname="web.example.com")["hostname"] == "web.example.com"
    assert boot(kubenode_proof="ssh", kubenode_hostname="web")["hostname"] == "web"
    assert ("hostname" in boot(kubenode_proof="ssh")) is (playbook == INSTALLIMAGE)
    assert boot(kubenode_check_hostname=False)["check_hostname"] is False


def test_used_up_permissions_and_drift_are_reported_of_a_machine_that_is_left_alone(monkeypatch):
    warnings: list[str] = []
    monkeypatch.setattr(machine_install.display, "warning", warnings.append)
    drift = [{"what": "image", "runs": "a", "since": "T", "wanted": "b"}]
    said = {"installed": True, "proven": True, "used": "the word was used up", "drift": drift}
    taken(monkeypatch, {}, planned(HCLOUD, said=said))
    assert warnings == [
        "node-1: the word was used up",
        "node-1: runs image a since T, asked for image b; kubenode_reinstall writes it",
    ]


def test_what_a_step_warns_of_is_said_before_the_next_step_and_kept_for_the_report(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(machine_install.display, "warning", said.append)

    def written(host, given):
        said.append("(written)")
        return {"failed": False, "msg": "ok", "boot_state": "s", "boot_state_since": "t", "warnings": ["odd name"]}

    def looked(host, given):
        about = {"root_devices": ["by-id/a"], "consent": "empty", "to_empty": [], "boot_state": "s"}
        return {"failed": False, "msg": "ok", "boot_state_since": "t", "warnings": ["node-1: sdb could boot"], **about}

    steps = dict(machine_install.STEPS)
    monkeypatch.setattr(machine_install, "STEPS", {
        "machine_disks": (steps["machine_disks"][0], looked),
        "robot_installimage": (steps["robot_installimage"][0], written),
    })  # fmt: skip

    result = machine_install.run(Host(), whole(planned(INSTALLIMAGE)))
    assert said == ["node-1: sdb could boot", "(written)", "node-1: odd name"]
    assert result["warned"] == ["node-1: sdb could boot", "node-1: odd name"]


def test_a_failed_step_is_the_last_one(monkeypatch):
    failed = {"failed": True, "in_rescue": True, "permanent": True, "msg": "no"}
    result, given = taken(monkeypatch, {"image_url_command": failed}, planned(HCLOUD))
    assert list(given) == ["image_url_command"]
    assert (result["failed"], result["late"], result["permanent"], result["msg"]) == (True, False, True, "no")
    assert not result["runs"]


@pytest.mark.parametrize(("last_try", "failed"), [(False, False), (True, True)])
def test_a_machine_that_did_not_reach_its_rescue_fails_at_the_last_try(monkeypatch, last_try, failed):
    silent = {"failed": True, "in_rescue": False, "msg": "no SSH server answers"}
    result, _given = taken(monkeypatch, {"image_url_command": silent}, planned(HCLOUD, last_try=last_try))
    assert (result["late"], result["failed"], result["runs"]) == (True, failed, False)


@pytest.mark.parametrize(("second_try", "shown"), [(False, "late"), (True, "failed")])
def test_a_machine_that_is_late_again_is_shown_as_failed(monkeypatch, second_try, shown):
    """Another task disables its rescue and fails then, but no more tries follow."""
    ended = []
    monkeypatch.setattr(machine_install.display, "ended", lambda name, outcome, *_more, **_known: ended.append(outcome))
    silent = {"failed": True, "in_rescue": False, "msg": "no SSH server answers"}
    result, _given = taken(monkeypatch, {"image_url_command": silent}, planned(HCLOUD, second_try=second_try))
    assert (result["late"], result["failed"], ended) == (True, False, [shown])


def test_a_system_that_was_found_and_proven_runs(monkeypatch):
    result, given = taken(monkeypatch, {}, planned(HCLOUD, said={"installed": True, "proven": True}))
    assert (result["runs"], result["changed"], result["msg"]) == (True, False, "nothing to do")
    assert not given


def test_options_that_no_step_takes_fail_the_machine_and_not_the_fleet(monkeypatch):
    result, given = taken(monkeypatch, {}, planned(HCLOUD, {"kubenode_command_timeout": "soon"}))
    assert result["failed"]
    assert "timeout" in result["msg"]
    assert "soon" in result["msg"]
    assert not given


def test_what_a_step_shows_as_a_diff_is_shown_for_the_fleet():
    disk = {"before_header": "disk sda (S1)", "after_header": "disk sda, emptied", "before": "Debian\n", "after": ""}
    file = {"before_header": "node-1", "after_header": "/autosetup", "before": "", "after": "HOSTNAME node-1\n"}
    steps = {"machine_disks": {"diff": [disk]}, "robot_installimage": {"diff": file}, "machine_boot": {}}
    first, second = machine_install.diffs({"name": "node-1", "steps": steps})
    assert (first["before_header"], first["after_header"]) == ("node-1: disk sda (S1)", "node-1: disk sda, emptied")
    assert (second["before_header"], second["after_header"]) == ("node-1", "node-1: /autosetup")
    assert (first["before"], second["after"]) == (disk["before"], file["after"])
