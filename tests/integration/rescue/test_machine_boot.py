# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""machine_boot on machines that really reboot."""

import json

import pytest

pytestmark = pytest.mark.nspawn

DONE = "echo IMAGE_URL_DONE\n"
#: Makes the system that is there show the id of the installation, as an image command of a user's own can do.
SHOWS_ID = r"""
mkdir /tmp/new && mount /dev/sda2 /tmp/new && mkdir /tmp/new/etc/kubenode || exit 1
record='{"machine": "%s", "installation": "%s"}'
printf "$record" "$3" "$KUBENODE_INSTALLATION" >/tmp/new/etc/kubenode/installed.json && umount /tmp/new || exit 1
[ "$(cat /root/.kubenode/installation)" = "$KUBENODE_INSTALLATION" ] || exit 1
"""


def rescued(controller, name: str, script: str = DONE, **more: object) -> dict:
    """A machine whose image command has ended; returns the result of that."""
    controller.machine(name, **more)
    run = controller.command(name, controller.install(name, script)).ok()
    return run.result


def test_the_new_system_is_proven_and_recorded(controller):
    before = rescued(controller, "boot-a", SHOWS_ID + DONE)
    options = {
        "installation": before["installation"],
        "written": before["written"],
        "previous_boot_id": before["boot_id"],
        "boot_state": before["boot_state"],
        "boot_state_since": before["boot_state_since"],
        "image_url": "https://user:pw@images.example/a.raw?x=1#sha256=0",
        "command": "image-url-command-boot-a",
        "hostname": "boot-a",
    }
    run = controller.run("boot-a", "machine_boot", **options).ok()
    assert run["changed"] is True
    system = run["system"]
    assert (system["hostname"], system["previous_boot_id"]) == ("boot-a", before["boot_id"])
    assert system["boot_id"] == controller.ssh("boot-a", "cat /proc/sys/kernel/random/boot_id").strip()
    assert system["boot_id"] != before["boot_id"]
    assert system["os"].startswith("Debian GNU/Linux")
    assert system["cloud_init"]["status"] == "done"
    assert [(change["from"], change["to"]) for change in run["transitions"]] == [
        ("RunningImageCommand", "BootingToRealOS"),
        ("BootingToRealOS", "OperatingSystemRunning"),
    ]
    assert run["boot_state"] == "OperatingSystemRunning"
    record = json.loads(controller.ssh("boot-a", "cat /etc/kubenode/installed.json"))
    assert record == system["installed"]
    assert record["image_url"] == "https://images.example/a.raw"
    assert record["installation"] == before["installation"]
    assert sorted(record) == [
        "command", "image_url", "installation", "installed_at", "machine", "proof", "verified_at",
    ]  # fmt: skip
    assert (run["proof"], run["verified"]) == ("nonce", True)
    shown = controller.ssh("boot-a", "for f in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $f; done")
    assert set(system["host_key_fingerprints"]) <= {line.split()[1] for line in shown.splitlines()}
    assert system["host_key_fingerprints"]

    again = controller.run("boot-a", "machine_boot", **options).ok()
    assert again["changed"] is False
    assert again["boot_id"] == system["boot_id"]

    # The same system may boot again under the keys that were pinned; it is no installation.
    rebooted = controller.run("boot-a", "machine_boot").ok()
    assert (rebooted["proof"], rebooted["verified"]) == ("ssh", False)
    assert rebooted["system"]["previous_boot_id"] == system["boot_id"]
    assert rebooted["boot_id"] != system["boot_id"]


@pytest.mark.long
def test_a_system_that_shows_nothing_of_its_installation_is_unproven(controller):
    before = rescued(controller, "boot-f")
    assert before["written"][0]["before"] == sorted(before["written"][0]["holds"] + before["written"][0]["kinds"])
    about = {"installation": before["installation"], "written": before["written"]}
    run = controller.run("boot-f", "machine_boot", previous_boot_id=before["boot_id"], **about).fails()
    assert (run["proof"], run["verified"]) == ("unproven", False)
    assert "nothing shows that the image command changed sda" in run["msg"]
    run = controller.run("boot-f", "machine_boot", reboot=False, proof="ssh", **about).ok()
    assert (run["proof"], run["verified"], run["record_written"]) == ("ssh", False, False)
    for little in ("port", "none"):
        run = controller.run("boot-f", "machine_boot", reboot=False, proof=little, **about).ok()
        assert (run["proof"], run["verified"]) == (little, False)
    controller.run("boot-f", "machine_boot", reboot=False, installation="f" * 32, proof="disk").fails()
    assert controller.ssh("boot-f", "ls /etc/kubenode 2>/dev/null || true") == ""


@pytest.mark.long
def test_a_disk_that_does_not_boot_is_recognised(controller):
    before = rescued(controller, "boot-b")
    # In place of a firmware that falls back to the network: the rescue is armed once more.
    controller.act("boot-b", "enable_rescue", {"type": "linux64", "ssh_keys": [controller.key_id]})
    run = controller.run("boot-b", "machine_boot", previous_boot_id=before["boot_id"]).fails(
        "the disk did not boot: the rescue answers again"
    )
    assert run["boot_state"] == "ProvisioningFailed"

    wiped = controller.install("wipe", "dd if=/dev/zero of=/dev/sda bs=1M count=8 conv=notrunc 2>&1\n" + DONE)
    controller.command("boot-b", wiped)
    silent = controller.run("boot-b", "machine_boot", timeout=8)  # nothing ever boots
    assert silent.failed
    assert "the new system did not answer within 8 s" in silent["msg"]


@pytest.mark.long
def test_only_the_expected_host_keys_and_hostname_are_taken(controller):
    before = rescued(controller, "boot-c")
    wrong = [controller.new_key("host_key").with_suffix(".pub").read_text()]
    # the new system is there before the time that it has for an answer begins
    controller.ssh("boot-c", "systemctl --no-block reboot")
    controller.rebooted("boot-c", before["boot_id"])
    controller.run("boot-c", "machine_boot", previous_boot_id=before["boot_id"], host_keys=wrong, timeout=30).fails(
        "a host key that is not the pinned one"
    )
    right = controller.ssh("boot-c", "cat /etc/ssh/ssh_host_ed25519_key.pub").splitlines()
    controller.run("boot-c", "machine_boot", reboot=False, host_keys=right).ok()
    controller.run("boot-c", "machine_boot", reboot=False, host_keys=right, hostname="other", timeout=30).fails(
        "its hostname is 'boot-c', expected 'other'"
    )
    bad = controller.run("boot-c", "machine_boot", reboot=False, host_keys=["ssh-ed25519 non-sense"])
    assert "host_keys 'ssh-ed25519 non-sense': its second word is not base64" in bad["msg"]


@pytest.mark.long
def test_a_cloud_init_that_ends_with_errors_is_a_failure(controller):
    before = rescued(controller, "boot-d", user_data="#cloud-config\nruncmd:\n  - [sh, -c, 'exit 3']\n")
    run = controller.run("boot-d", "machine_boot", previous_boot_id=before["boot_id"]).fails(
        "cloud-init ended with status error"
    )
    assert run["system"]["cloud_init"]["errors"]
    controller.run("boot-d", "machine_boot", previous_boot_id=before["boot_id"], wait_cloud_init=False).ok()


@pytest.mark.long
def test_a_rescue_can_be_expected(controller):
    controller.machine("boot-e", rescue=False)
    first = controller.run("boot-e", "machine_boot", reboot=False).ok()
    controller.act("boot-e", "enable_rescue", {"type": "linux64", "ssh_keys": [controller.key_id]})
    run = controller.run("boot-e", "machine_boot", expect="rescue", boot_state="EnablingRescue").ok()
    assert run["hostname"] == "rescue"
    assert run["boot_state"] == "BootingToRescue"
    assert run["system"]["previous_boot_id"] == first["boot_id"]


def test_check_mode_contacts_no_machine(controller):
    controller.reach("absent", "127.0.0.1", ansible_port=1)
    run = controller.run("absent", "machine_boot", "--check").ok()
    assert run["changed"] is True
