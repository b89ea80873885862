# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_rescue against machines that really boot: which system answers is proved by SSH."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.controller import pinned

INSTALLATION = "kubenode.provision/installation"
VERIFIED = {"machine": "real-d", "installation": "5f" * 16, "verified_at": "2026-11-23T00:00:00Z"}

pytestmark = pytest.mark.nspawn


class Fleet:
    """The machines of one test, and the options every step of it shares."""

    def __init__(self, project, *names: str) -> None:
        self.project = project
        self.names = names
        self.options = {
            "ssh_keys": [project.key_name],
            "ssh_private_key": str(project.key),
            "known_hosts_dir": str(project.pins),
            "rescue_timeout": 600,
        }

    def create(self) -> list[dict]:
        """Create the machines; returns their results."""
        machines = [self.project.machine(name) for name in self.names]
        return self.project.run("hcloud_machine", machines=machines, wait=False).result["machines"]

    def rescue(self, machines: list[dict] | None = None, *flags: str, **more: object):
        """Run hcloud_rescue for the machines, or for their bare names."""
        given = machines or [{"name": name} for name in self.names]
        return self.project.run("hcloud_rescue", *flags, machines=given, **{**self.options, **more})

    def ssh(self, result: dict, command: str) -> str:
        """Run a command on a machine, trusting only the host key that hcloud_rescue pinned."""
        self.project.reach(result["name"], result["ipv4"])
        return self.project.ssh(result["name"], command, pinned(self.project.pins / f"{result['name']}.rescue"))


def user_known_hosts() -> list[str]:
    """The known_hosts file of the user who runs the tests, which other tests may write to."""
    path = Path("~/.ssh/known_hosts").expanduser()
    return path.read_text().splitlines() if path.exists() else []


def test_new_machines_arrive_in_the_rescue_and_stay_there(real_project):
    fleet, before = Fleet(real_project, "real-a", "real-b", "real-c"), user_known_hosts()
    run = fleet.rescue(fleet.create(), "-vvv").ok()
    for result in run.machines.values():
        assert result["in_rescue"]
        assert result["hostname"] == "rescue"
        assert fleet.ssh(result, "cat /proc/sys/kernel/random/boot_id; hostname").split() == [
            result["boot_id"],
            "rescue",
        ]
    assert real_project.pins.stat().st_mode & 0o077 == 0
    added = real_project.folder / "added"
    added.write_text("".join(f"{line}\n" for line in user_known_hosts() if line not in before))
    for result in run.machines.values():
        named = subprocess.run(["ssh-keygen", "-F", result["ipv4"], "-f", added], capture_output=True, check=False)
        assert named.stdout == b""
    assert real_project.key.read_text().splitlines()[1] not in run.output
    # a way that leads to another machine reboots neither that one nor this one
    elsewhere = {"name": "real-a", "ssh_args": f"-o HostName={run.machines['real-b']['ipv4']}"}
    fleet.rescue([{"name": "real-a"}], state="os", access=[elsewhere]).fails(
        f"the server that answers is another one: it has {run.machines['real-b']['ipv4']}"
    )

    again = fleet.rescue().ok()
    assert not again.result["changed"]
    for name, result in again.machines.items():
        assert result["in_rescue"]
        assert result["boot_id"] == run.machines[name]["boot_id"]
        assert result["previous_boot_id"] is None
    assert again.result["api_calls"] == 2


@pytest.mark.long
def test_out_of_the_rescue_left_alone_and_back_on_demand(real_project):
    fleet = Fleet(real_project, "real-d")
    fleet.options["intents_dir"] = str(real_project.folder / "intents")
    rescued = fleet.rescue(fleet.create()).machines["real-d"]
    found = fleet.rescue().result["machines"]
    assert (found[0]["in_rescue"], found[0]["armed_here"]) == (True, False)
    run = fleet.rescue(state="os").ok()
    left = run.machines["real-d"]
    assert (left["in_rescue"], left["previous_boot_id"]) == (False, rescued["boot_id"])
    assert [change["to"] for change in left["transitions"]] == ["BootingToRealOS", "OperatingSystemRunning"]
    assert not fleet.rescue(state="os").result["changed"]

    alone = fleet.rescue().machines["real-d"]
    assert (alone["changed"], alone["installed"], alone["in_rescue"]) == (False, True, False)
    assert alone["boot_state"] == "OperatingSystemRunning"
    assert alone["msg"].startswith("left alone: hostname 'real-d'")
    assert alone["boot_id"] == left["boot_id"]

    # it becomes the system of an installation that was verified
    server = real_project.servers()["real-d"]
    labels = {**server["labels"], INSTALLATION: VERIFIED["installation"]}
    real_project.call("PUT", f"/servers/{server['id']}", {"labels": labels})
    real_project.reach("real-d", left["ipv4"])
    record = shlex.quote(json.dumps(VERIFIED))
    real_project.ssh("real-d", f"mkdir -p /etc/kubenode && echo {record} >/etc/kubenode/installed.json && sync")

    commands = real_project.commands("real-d")
    # C2: a run that found its rescue, and whose owner booted it back meanwhile: it is not sent there once more
    again = fleet.rescue(found, rearm=True, prove=False).machines["real-d"]
    assert (again["installed"], again["changed"], again["boot_id"]) == (True, False, left["boot_id"]), again
    assert real_project.commands("real-d") == commands

    planned = fleet.rescue(None, "--check", reinstall=["real-d"]).machines["real-d"]
    assert planned["msg"] == "would arm the rescue and reboot"
    assert real_project.commands("real-d") == commands

    back = fleet.rescue(reinstall=["real-d"]).machines["real-d"]
    assert back["in_rescue"]
    assert back["previous_boot_id"] == left["boot_id"]
    assert back["boot_id"] not in (left["boot_id"], rescued["boot_id"])
    # Rebooted by SSH: the API was only asked to arm.
    assert real_project.commands("real-d")[len(commands) :] == ["enable_rescue"]

    # nothing was written for it, so that what was there before is what is expected when it is booted back
    assert back["installation"] not in ("", VERIFIED["installation"])
    assert not fleet.rescue(state="os").failed
    there = fleet.rescue().machines["real-d"]
    assert (there["installation"], there["proven"]) == (VERIFIED["installation"], True), there
    assert real_project.servers()["real-d"]["labels"][INSTALLATION] == VERIFIED["installation"]
    planned = fleet.rescue(None, "--check", reinstall=["real-d"]).machines["real-d"]
    assert planned["msg"] == "would arm the rescue and reboot", "the word was not used up"


@pytest.mark.long
def test_a_machine_whose_rescue_did_not_come_up_is_recognised_and_armed_once_more(real_project):
    fleet = Fleet(real_project, "real-e", "real-f")
    real_project.fault(point="boot", machine="real-e", effect="ignore_rescue")
    run = fleet.rescue(fleet.create(), on_error="report")
    missed = run.machines["real-e"]
    assert (missed["failed"], missed["in_rescue"], missed["boot_state"]) == (True, False, "BootingToRescue")
    assert "the rescue did not come up: hostname 'real-e'" in missed["msg"]
    assert run.machines["real-f"]["in_rescue"]
    arrived = run.machines["real-f"]["boot_id"]

    again = fleet.rescue(run.result["machines"], rearm=True).ok()
    assert again.machines["real-e"]["in_rescue"]
    assert again.machines["real-e"]["previous_boot_id"] == missed["boot_id"]
    assert again.machines["real-f"]["boot_id"] == arrived
    assert not again.machines["real-f"]["changed"]


@pytest.mark.long
def test_an_installed_system_is_never_rearmed(real_project):
    fleet = Fleet(real_project, "real-g")
    real_project.fault(point="boot", machine="real-g", effect="ignore_rescue")
    missed = fleet.rescue(fleet.create(), on_error="report").machines["real-g"]
    real_project.reach("real-g", missed["ipv4"])
    record = 'mkdir -p /etc/kubenode && echo \'{"machine": "real-g"}\' > /etc/kubenode/installed.json'
    real_project.ssh("real-g", record)
    commands = real_project.commands("real-g")
    kept = fleet.rescue([missed], rearm=True).machines["real-g"]
    assert kept["installed_record"] == {"machine": "real-g"}
    assert kept["boot_id"] == missed["boot_id"]
    # it was enabled for the boot that missed it, and would wait for the next one
    assert real_project.commands("real-g") == [*commands, "disable_rescue"]


@pytest.mark.long
def test_a_key_that_the_running_system_does_not_know_is_a_refusal(real_project):
    fleet = Fleet(real_project, "real-h")
    fleet.rescue(fleet.create())
    other = real_project.new_key("other")
    real_project.call("DELETE", f"/ssh_keys/{real_project.key_id}")
    body = {"name": real_project.key_name, "public_key": other.with_suffix(".pub").read_text()}
    real_project.key_id = real_project.call("POST", "/ssh_keys", body)["ssh_key"]["id"]
    commands = real_project.commands("real-h")
    run = fleet.rescue(ssh_private_key=str(other), rescue_timeout=30).fails()
    assert "does not let us in" in run.machines["real-h"]["msg"]
    assert real_project.commands("real-h") == commands

    forced = fleet.rescue(ssh_private_key=str(other), reinstall=["real-h"]).ok()
    assert forced.machines["real-h"]["in_rescue"]
    assert real_project.commands("real-h")[len(commands) :] == ["enable_rescue", "reset_server"]
