# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written on cloud machines, and what is not written although an old permission is still set."""

import json

import pytest

from tests.integration.accounts import disk_marks
from tests.key_pairs import public_key

pytestmark = pytest.mark.nspawn

#: a key that no system of the test has
OTHER_KEY = public_key("")


def test_a_node_that_a_person_repairs_in_its_rescue_is_left_alone(cloud):
    """C1: the disk is a person's work, also for a word that was used up before. C2: and so is the power button."""
    words = {"kubenode_reinstall": ["repaired-1"]}
    cloud.inventory({"repaired-1": {}}, **words)
    cloud.run().ok()
    cloud.shell("repaired-1", "touch /etc/precious && sync")
    cloud.into_rescue("repaired-1")
    boots = cloud.boots("repaired-1")

    cloud.inventory({"repaired-1": {}})
    cloud.run().fails().says("not started for an open installation of ours")
    assert cloud.boots("repaired-1") == boots
    cloud.inventory({"repaired-1": {}}, **words)
    cloud.run().fails().says("was used")
    assert cloud.boots("repaired-1") == boots

    # a wrong address leads another machine there
    address = cloud.server("repaired-1")["public_net"]["ipv4"]["ip"]
    cloud.inventory({"lost-1": {"kubenode_address": address}}, kubenode_rescue_timeout=60)
    cloud.run().fails().says(f"the server that answers is another one: it has {address}")
    assert cloud.boots("repaired-1") == boots

    # its owner boots it back while a run is on its way
    cloud.inventory({"repaired-1": {}})
    running = cloud.start()
    running.until("TASK [Create the machines that do not exist")
    cloud.act("repaired-1", "reset")
    running.wait()
    cloud.wait_for("repaired-1")
    assert cloud.boots("repaired-1") == [*boots, "disk"]
    assert cloud.shell("repaired-1", "ls /etc/precious") == "/etc/precious\n"
    cloud.run().ok()


def test_a_server_that_its_owner_has_rebuilt_is_left_alone(cloud):
    """Our record says done, and another system answers: not verified, not written; refusals say the ways out."""
    unknown = {"kubenode_host_keys": []}
    cloud.inventory({"rebuilt-1": unknown})
    cloud.run().ok()
    cloud.act("rebuilt-1", "rebuild", {"image": "debian-12"})
    cloud.wait_for("rebuilt-1")
    boots = cloud.boots("rebuilt-1")
    cloud.run().fails().says("not the pinned one").says("kubenode_host_keys names its key")
    named = 'or -e \'{"kubenode_reinstall": ["rebuilt-1"]}\' writes the machine'
    assert named in cloud.machine("rebuilt-1")["reason"]
    key = cloud.shell("rebuilt-1", "cat /etc/ssh/ssh_host_ed25519_key.pub").strip()
    cloud.inventory({"rebuilt-1": {"kubenode_host_keys": [key]}})
    cloud.run().fails().says("nothing shows that this system is installation").says("kubenode_adopt: true")
    assert not cloud.machine("rebuilt-1")["verified"]
    assert cloud.boots("rebuilt-1") == boots
    cloud.inventory({"rebuilt-1": unknown})
    cloud.run("-e", '{"kubenode_reinstall": ["rebuilt-1"]}').ok()
    assert cloud.record("rebuilt-1")["consent"] == "reinstall"

    # who has a copy of its record, and not its host key, is not the system that was proven
    cloud.shell("rebuilt-1", "rm /etc/ssh/ssh_host_*; ssh-keygen -A >/dev/null; systemctl restart ssh")
    changed = cloud.run()
    assert not cloud.machine("rebuilt-1")["verified"]
    changed.fails().says("not the pinned one").says("kubenode_host_keys names its key")


def test_a_permission_counts_once(cloud):
    """C11: a name that is left in the inventory means nothing the second time; an id says which installation goes."""
    words = {"kubenode_reinstall": ["once-1", "elsewhere-9"]}
    cloud.inventory({"once-1": {}}, **words)
    cloud.run().ok()
    first = cloud.record("once-1")["installation"]
    keys = [key["id"] for key in cloud.call("GET", "/ssh_keys")["ssh_keys"]]
    cloud.act("once-1", "enable_rescue", {"type": "linux64", "ssh_keys": keys})
    cloud.run().ok().says("once-1: its rescue is enabled, so its next boot")
    assert cloud.server("once-1")["rescue_enabled"], "a person enabled it"
    assert "kubenode_reinstall names once-1, but this was used at" in cloud.output
    assert cloud.record("once-1")["installation"] == first

    named = f'{{"kubenode_reinstall": {{"once-1": "{first[:8]}"}}}}'
    cloud.run("-e", named).ok()
    second = cloud.record("once-1")
    assert second["installation"] != first
    assert second["consent"] == "reinstall"
    cloud.run("-e", named).ok()
    assert cloud.record("once-1") == second
    cloud.run("-e", '{"kubenode_reinstall": "once-1"}').fails().says("neither a list of names nor a dictionary")

    # it is proven no more for who knows that its host key is another one
    cloud.run("-e", json.dumps({"kubenode_host_keys": [OTHER_KEY]})).fails().says(
        "answers with a host key that is not the pinned one"
    )
    assert cloud.record("once-1") == second


@pytest.mark.long
def test_a_run_that_wrote_nothing_leaves_no_consent(cloud):
    """Its own pre-provision command stopped it: what `reinstall` allowed then is no word for a later run."""
    keys = [key["id"] for key in cloud.call("GET", "/ssh_keys")["ssh_keys"]]
    ours = {"kubenode.provision/machine": "stopped-1"}
    body = {"name": "stopped-1", "server_type": "cx23", "image": "debian-12", "ssh_keys": keys, "labels": ours}
    cloud.call("POST", "/servers", body)
    cloud.wait_for("stopped-1")
    program = cloud.commands / "look-at-fans"
    program.write_text("#!/bin/sh\n[ -e /root/mended ]\n")
    program.chmod(0o755)
    words = ["-e", '{"kubenode_reinstall": ["stopped-1"]}']
    hook = {"kubenode_pre_provision_command": program.name}

    cloud.inventory({"stopped-1": hook})
    cloud.run(*words).fails().says("the pre-provision command stopped this machine")
    cloud.shell("stopped-1", "touch /root/mended")
    before = disk_marks(cloud, "stopped-1")
    for _run in ("what was mended lets it go on", "and so it does without the command"):
        cloud.run().fails().says("nothing was written, as disk sda is not empty")
        cloud.inventory({"stopped-1": {}})
    assert disk_marks(cloud, "stopped-1") == before

    cloud.run(*words).ok()
    assert cloud.record("stopped-1")["consent"] == "reinstall"
    assert cloud.boots("stopped-1") == ["disk", "rescue", "disk"]


@pytest.mark.long
def test_another_controller_goes_on_with_an_open_intent(cloud):
    """What the first run put into the rescue says that the installation is open."""
    cloud.inventory({"handed-1": cloud.command("breaks", "dd if=/dev/urandom of=/dev/sda bs=1M count=4; exit 1\n")})
    cloud.run().fails()
    cloud.inventory({"handed-1": {}}, kubenode_dir=str(cloud.testbed.folder / "colleague"))
    cloud.run().ok()
    assert cloud.boots("handed-1") == ["rescue", "disk"]
    assert cloud.record("handed-1")["consent"] == "fresh"
