# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What later runs say of cloud machines whose systems were proven: what differs, and what proves a foreign command."""

import pytest

from tests.integration.testbeds import raw_disk

pytestmark = pytest.mark.nspawn


def test_what_differs_from_the_variables_is_reported(cloud):
    """P7: another image, another command, another kind of server."""
    cloud.inventory({"drift-1": {}})
    cloud.run().ok()
    record = cloud.record("drift-1")
    assert record["proof"] == "nonce"
    seeded = cloud.shell("drift-1", "cat /run/cloud-init/.instance-id")
    assert seeded == f"iid-kubenode-{record['installation']}\n"
    other = {"kubenode_image_url": cloud.testbed.image_url(image="debian13"), "kubenode_server_type": "cx33"}
    cloud.inventory({"drift-1": {}}, **other)
    cloud.run().ok()
    reported = {one["what"] for one in cloud.machine("drift-1")["drift"]}
    assert reported == {"image_url", "image_digest", "server_type"}
    assert f"runs image_url {record['image_url']}" in cloud.output
    assert f" since {record['installed_at']}, asked for image_url " in cloud.output
    assert {one["since"] for one in cloud.machine("drift-1")["drift"]} == {record["installed_at"]}
    assert "Nothing changed" not in cloud.output
    cloud.run("-e", "kubenode_drift=fail").fails().says("drift-1")
    assert cloud.record("drift-1") == record


@pytest.mark.long
def test_a_command_of_the_operators_own_is_judged_by_the_disk(cloud):
    """It brings no id: the disk that it wrote is the one that the new system runs from."""
    own = cloud.command("own", raw_disk(before="unset KUBENODE_INSTALLATION"))
    cloud.inventory({"own-1": own})
    cloud.run().ok()
    record = cloud.record("own-1")
    assert (record["proof"], len(record["installation"])) == ("disk", 32)
    cloud.run().ok().says("Nothing changed")
