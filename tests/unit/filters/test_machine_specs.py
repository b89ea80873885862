# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.filter.machine_specs import machine_specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.spec import IMAGES
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import specification


@pytest.mark.parametrize(
    ("purpose", "variables", "found"),
    [
        # only what a host sets is passed on
        (
            "hcloud_machine",
            {"kubenode_server_type": "cx23", "kubenode_adopt": False, "unrelated": 1},
            {"server_type": "cx23", "adopt": False},
        ),
        # a dynamic inventory is the fallback
        (
            "hcloud_machine",
            {"hcloud_server_type": "cx33", "hcloud_location": "fsn1"},
            {"server_type": "cx33", "location": "fsn1"},
        ),
        (
            "hcloud_machine",
            {"hcloud_server_type": "cx33", "kubenode_server_type": "cx43"},
            {"server_type": "cx43"},
        ),
        (
            "image_url_check",
            {"kubenode_image_url": "https://i/x", "kubenode_image_url_command": "c"},
            {"image_url": "https://i/x", "command": "c"},
        ),
        # the policy about digests reaches every check
        ("image_url_check", {"kubenode_require_digest": True}, {"require_digest": True}),
        ("installimage_check", {"kubenode_require_digest": True}, {"require_digest": True}),
    ],
)
def test_variables_of_a_host_become_options_of_its_machine(purpose, variables, found):
    assert machine_specs([{"inventory_hostname": "n1", **variables}], purpose) == [{"name": "n1", **found}]


@pytest.mark.parametrize(
    ("image", "place"),
    [
        ({"url": "https://user:secret@i/x.tar.gz", "name": "Debian-1200-x.tar.gz"}, "https://i/x.tar.gz"),
        ({"name": "Debian-1300-trixie-amd64-base.tar.gz"}, IMAGES + "/Debian-1300-trixie-amd64-base.tar.gz"),
        ({"path": "/root/x.tar.gz", "name": None}, "/root/x.tar.gz"),
        ({"file": "images/x.tar.gz", "name": "Debian-1200-x.tar.gz"}, ""),
    ],
)
def test_an_image_of_installimage_is_named_as_its_record_does(image, place):
    host = {"inventory_hostname": "n1", "kubenode_image": image}
    wanted = {"image_url": place, "image_digest": "", "command": "installimage"}
    assert machine_specs([host], "wanted") == [{"name": "n1", **wanted}]


def test_every_host_that_cannot_be_a_machine_is_named():
    hosts = [{"inventory_hostname": name} for name in ("n1", "rescue", "Node_1")]
    with pytest.raises(AnsibleFilterError, match=r"nothing was changed: the host 'rescue' .*; the host 'Node_1' "):
        machine_specs(hosts, "robot_rescue")


@pytest.mark.parametrize("hosts", [[None], [{"name": "n1"}], ["n1"]])
def test_other_input_is_refused(hosts):
    with pytest.raises(AnsibleFilterError, match="hostvars"):
        machine_specs(hosts, "hcloud_machine")


def test_an_unknown_purpose_is_refused():
    with pytest.raises(AnsibleFilterError, match="'robot'"):
        machine_specs([], "robot")


@pytest.mark.parametrize("purpose", ["access", "image_url_check", "installimage_check"])
def test_how_the_new_system_is_reached_is_checked_before_anything_is_created(purpose):
    hosts = [{"inventory_hostname": "n1", "kubenode_os_user": "admin", "kubenode_os_port": "ssh"}]
    assert machine_specs(hosts, purpose) == [{"name": "n1", "os_user": "admin", "os_port": "ssh"}]


@pytest.mark.parametrize("purpose", ["access", "image_url_check", "installimage_check"])
@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({"ansible_port": 2222}, 2222),
        ({"ansible_port": "2222"}, "2222"),
        ({"kubenode_os_port": 2200, "ansible_port": 2222}, 2200),
        ({"ansible_port": "ssh"}, None),
        ({}, None),
    ],
)
def test_the_port_of_the_installed_system_is_the_inventorys(purpose, variables, port):
    """The error about a wrong ``ansible_port`` names that variable."""
    (machine,) = machine_specs([{"inventory_hostname": "n1", **variables}], purpose)
    assert machine.get("os_port") == port


def test_the_way_of_ansibles_own_connection_is_that_of_the_api_phase(monkeypatch):
    """All that may tell it about a jump host counts; what Ansible gives to each ssh of its own does not."""
    hosts = [
        {"inventory_hostname": "a", "ansible_ssh_common_args": "-J hop", "ansible_ssh_extra_args": "-o Port=24"},
        {"inventory_hostname": "b", "ansible_ssh_args": "-F own"},
        {"inventory_hostname": "c"},
    ]
    assert [one.get("ssh_args") for one in machine_specs(hosts, "access")] == ["-J hop -o Port=24", "-F own", None]
    monkeypatch.setenv("ANSIBLE_SSH_COMMON_ARGS", "-J of-the-environment")
    found = [one["ssh_args"] for one in machine_specs(hosts, "access")]
    assert found == ["-J hop -o Port=24", "-F own -J of-the-environment", "-J of-the-environment"]


def test_whether_ssh_gets_to_a_machine_without_a_public_address_is_judged_by_its_way():
    """An address that the user names is a way of its own, and one with IPv4 needs none."""
    hosts = [
        {"inventory_hostname": "a", "kubenode_enable_ipv4": False, "ansible_ssh_common_args": "-J hop"},
        {"inventory_hostname": "b", "kubenode_enable_ipv4": "no"},
        {"inventory_hostname": "c", "kubenode_enable_ipv4": False, "kubenode_address": "10.0.1.11"},
        {"inventory_hostname": "d", "ansible_ssh_common_args": "-J hop"},
    ]
    found = machine_specs(hosts, "hcloud_machine")
    assert [one.get("ssh_args") for one in found] == ["-J hop", "", None, None]


@pytest.mark.parametrize(("given", "counts"), [({}, "once"), ({"kubenode_first_contact": "reset"}, "reset")])
def test_a_permission_of_the_first_contact_in_an_inventory_may_be_left_over(monkeypatch, given, counts):
    monkeypatch.setattr(specification, "of_the_command_line", lambda: given)
    hosts = [{"inventory_hostname": "n1", "kubenode_first_contact": "reset"}]
    assert machine_specs(hosts, "robot_rescue") == [{"name": "n1", "first_contact": counts}]
    refused = [{"inventory_hostname": "n1", "kubenode_first_contact": "refuse"}]
    assert machine_specs(refused, "robot_rescue") == [{"name": "n1", "first_contact": "refuse"}]
