# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pre_provision_command on a machine that really boots a rescue, through a lost connection and for what cannot run."""

import json
import stat

import pytest

pytestmark = pytest.mark.nspawn

#: More than one piece of an upload, behind the end of the script.
LARGE = "exit 0\n" + "#" * (17 * 1024 * 1024)
#: Ends every SSH connection, and the server for some seconds.
CUT = """
echo asked >>/root/asked; echo begun
while [ ! -e /root/cut ]; do sleep 0.1; done; sleep 1
systemctl stop ssh
for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in sshd*) kill -9 ${p#/proc/};; esac; done
sleep 4; mkdir -p /run/sshd; systemd-run --quiet /usr/sbin/sshd -D; sleep 1
echo "token reg:s3cr3t-token of https://user:s3cr3t-password@images.example/a.raw, password: s3cr3t-bootstrap"
"""


def program(controller, script, name="check-hardware"):
    path = controller.command_dir / name
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return name


def options(controller, script, **more):
    """Options of the module for a program with this script."""
    return {
        "command": program(controller, script),
        "command_dir": str(controller.command_dir),
        "log_dir": str(controller.logs),
        "known_hosts_dir": str(controller.pins),
        "rescue_timeout": 600,
        **more,
    }


@pytest.mark.long
def test_a_lost_connection_neither_ends_nor_repeats_a_large_program(controller):
    controller.machine("hook-a")
    hidden = {
        "secrets": ["reg:s3cr3t-token", "https://user:s3cr3t-password@images.example/a.raw"],
        "bootstrap_data": "#cloud-config\npassword: s3cr3t-bootstrap\n",
    }
    running = controller.start_module(
        "hook-a", "pre_provision_command", "-v", **options(controller, CUT + LARGE, **hidden)
    )
    running.until("out begun")
    controller.ssh("hook-a", "touch /root/cut")
    run = running.wait().ok()
    assert (run["ran"], run["attached"], run["rc"], run["permanent"]) == (True, False, 0, False)
    assert (run["boot_state"], run["transitions"]) == ("BootingToRescue", [])
    assert controller.ssh("hook-a", "cat /root/asked") == "asked\n"
    log = controller.logs / "hook-a.pre-provision.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    for text in (log.read_text(), str(run["output_tail"])):
        assert "token ******** of https://********@images.example/a.raw, ********" in text


@pytest.mark.long
def test_the_rescue_that_reboots_under_the_program_is_no_word_on_the_machine(controller):
    controller.machine("hook-b")
    given = options(controller, "echo begun; exec sleep infinity\n")
    running = controller.start_module("hook-b", "pre_provision_command", "-v", **given)
    running.until("out begun")
    controller.act("hook-b", "enable_rescue", {"type": "linux64", "ssh_keys": [controller.key_id]})
    controller.act("hook-b", "reset")
    run = running.wait().fails("This run has written nothing; run again")
    assert run["permanent"] is False


@pytest.mark.long
def test_what_cannot_run_stops_the_machine_and_leaves_nothing_behind(shared):
    def stopped(script, says, **more):
        run = shared.module("shared", "pre_provision_command", **options(shared, script, **more)).fails(says)
        assert run["msg"].startswith(
            "shared: the pre-provision command stopped this machine before this run wrote anything: it "
        )
        assert (run["permanent"], run["in_rescue"], run["boot_state"]) == (True, True, "ProvisioningFailed")

    # what an earlier run may write and has not begun to is given up, the rest of its intent is not
    file = shared.folder / "intent.json"
    intent = {"machine": "shared", "installation": "a" * 32, "state": "open"}
    claim = {"disks": [{"serial": "one", "wwn": ""}], "at": "2026-11-23T09:00:00.000Z"}
    file.write_text(json.dumps({**intent, **claim, "begun": False}))
    says = "the interpreter in the command's first line (/no/such/shell)"
    stopped("#!/no/such/shell\n", says, intent_file=str(file))
    assert json.loads(file.read_text()) == intent
    begun = {**intent, **claim, "begun": True}
    file.write_text(json.dumps(begun))
    says = "126 means that a program was found and could not be run in the rescue"
    stopped("#!/root\n", says, intent_file=str(file))
    assert json.loads(file.read_text()) == begun
    hang = "trap '' TERM; setsid -f sh -c 'trap \"\" TERM; exec sleep 700000'; echo begun; sleep 700000 & wait; wait\n"
    stopped(hang, "did not end within 3 s and was killed with all its processes", timeout=3)
    left = shared.ssh("shared", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 700' || true")
    assert left.strip() == "0"
