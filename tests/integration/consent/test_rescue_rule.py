# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is this the rescue? The place of its root file system decides, not its name."""

import pytest

from tests.waiting import until

pytestmark = pytest.mark.nspawn


@pytest.mark.long
def test_a_rescue_that_was_renamed_is_a_rescue_still(cloud):
    """P5: installimage renames the rescue that it runs in, and may fail afterwards."""
    renames = cloud.command("renames", "hostname renamed-1; exit 1\n")
    cloud.inventory({"renamed-1": renames})
    cloud.run().fails()
    assert cloud.shell("renamed-1", "hostname") == "renamed-1\n"

    cloud.testbed.write_inventory(["renamed-1"])
    cloud.run().ok()
    assert cloud.boots("renamed-1") == ["rescue", "disk"]
    assert cloud.shell("renamed-1", "cat /etc/kubenode-proof") == "made by the bootstrap data\n"


def test_a_system_on_a_disk_that_is_called_rescue_is_not_written(cloud):
    """P6: only the name is a rescue's."""
    keys = [key["id"] for key in cloud.call("GET", "/ssh_keys")["ssh_keys"]]
    body = {
        "name": "named-1",
        "server_type": "cx23",
        "location": "fsn1",
        "image": "debian-13",
        "ssh_keys": keys,
        "labels": {"kubenode.provision/machine": "named-1"},
        "user_data": "#cloud-config\nhostname: rescue\nwrite_files: [{path: /etc/precious, content: data}]\n",
    }
    cloud.call("POST", "/servers", body)
    until(lambda: cloud.boots("named-1"), "the first boot")
    cloud.wait_for("named-1")
    assert cloud.shell("named-1", "cloud-init status --wait >/dev/null; hostname").strip() == "rescue"
    boot = cloud.wait_for("named-1")

    cloud.inventory({"named-1": cloud.command("writes", "echo gone >/etc/precious\necho IMAGE_URL_DONE\n")})
    cloud.run()
    assert cloud.wait_for("named-1") == boot, cloud.output
    assert cloud.shell("named-1", "cat /etc/precious") == "data"

    # nor is it one for those who leave it or reboot it: what looks like a mark of the rescue lies on a disk
    cloud.shell("named-1", "mkdir -p /root/.oldroot/nfs")
    reboot = cloud.testbed.playbook_command()
    reboot[reboot.index(cloud.testbed.playbook)] = "kubenode.provision.node_reboot"
    anybody = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    for variable in (
        f"ansible_host={cloud.testbed.address('named-1')}",
        f"ansible_ssh_common_args='{anybody}'",
        f"kubenode_dir={cloud.testbed.folder}/colleague",
    ):
        reboot += ["-e", variable]
    answers = cloud.begin([*reboot, "--check"], cwd=cloud.testbed.folder).wait().ok()
    assert "a run without --check would stop here" not in answers.output, answers.output
    cloud.into_rescue("named-1")
    refused = cloud.begin(reboot, cwd=cloud.testbed.folder).wait().fails()
    refused.says("it is in its rescue; boot it to its disk")
