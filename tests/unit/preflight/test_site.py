# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How machines of a mixed fleet are made, their batches, and which nodes may be upgraded."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import intents
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, site

URL = {"kubenode_image_url": "https://i.example/x", "kubenode_image_url_command": "image-url-command-raw-disk"}


def hosts(*names, **variables):
    return [{"inventory_hostname": name, **URL, **variables} for name in names]


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        ({"kubenode_image_url": "x"}, "hcloud_image_url"),
        ({"kubenode_server_type": "cx23"}, "hcloud_image_url"),
        ({"kubenode_image_name": "node-1.37"}, "hcloud_image_name"),
        ({"kubenode_server_number": 321, "kubenode_image_url": "x"}, "robot_image_url"),
        ({"kubenode_server_ip": "192.0.2.1", "kubenode_server_type": "cx23"}, "robot_image_url"),
        ({"hrobot_server_number": 321, "kubenode_image": {"name": "x"}}, "robot_installimage"),
        ({"kubenode_server_number": None, "kubenode_image": {"name": "x"}}, "hcloud_image_url"),
    ],
)
def test_what_makes_a_machine(variables, way):
    assert site.way({"inventory_hostname": "n1", **variables}) == way
    assert way in site.WAYS


@pytest.mark.parametrize(
    ("serial", "sizes"),
    [
        (1, [1, 1, 1, 1, 1]),
        ("2", [2, 2, 1]),
        (9, [5]),
        ("40%", [2, 2, 1]),
        ("1%", [1, 1, 1, 1, 1]),
        ("100%", [5]),
        ([1, "40%"], [1, 2, 2]),
        ([1, 3], [1, 3, 1]),
    ],
)
def test_batches_of_a_size_are_those_of_a_play(serial, sizes):
    plan = site.batch_plan(hosts("a", "b", "c", "d", "e"), serial)
    assert plan["errors"] == []
    assert [len(batch["machines"]) for batch in plan["batches"]] == sizes
    assert [name for batch in plan["batches"] for name in batch["machines"]] == ["a", "b", "c", "d", "e"]
    assert [batch["place"] for batch in plan["batches"]] == list(range(len(sizes)))
    assert plan["batches"][-1]["name"] == f"{len(sizes)} of {len(sizes)}"


def test_batches_of_a_variable_are_its_values_in_the_order_of_the_inventory():
    fleet = [{**host, "zone": zone} for host, zone in zip(hosts("a", "b", "c", "d"), ("z", 7, "z", "x"), strict=True)]
    batches = site.batch_plan(fleet, "zone")["batches"]
    assert [batch["machines"] for batch in batches] == [["a", "c"], ["b"], ["d"]]
    assert [batch["name"] for batch in batches] == ["1 of 3 (zone z)", "2 of 3 (zone 7)", "3 of 3 (zone x)"]


@pytest.mark.parametrize(
    ("serial", "words"),
    [
        (0, "kubenode_serial is 0: give a number of machines"),
        (-1, "kubenode_serial is -1"),
        (True, "kubenode_serial is True"),
        ("0%", "kubenode_serial is '0%'"),
        ("120%", "kubenode_serial is '120%'"),
        ("1.5", "kubenode_serial is '1.5'"),
        ([], "kubenode_serial is []"),
        ([1, "zone"], "kubenode_serial is [1, 'zone']"),
        ({"a": 1}, "kubenode_serial is {'a': 1}"),
        ("kubenode_lokation", "kubenode_serial is kubenode_lokation, which is no variable of any host of this run"),
        ("zone", "kubenode_serial is zone, but b has no such variable with one value; set it for every host"),
        ("zones", "kubenode_serial is zones, which is no variable"),
    ],
)
def test_a_serial_that_says_nothing_is_one_error(serial, words):
    fleet = hosts("a", "b", zones=["x"])
    fleet[0]["zone"] = "x"
    plan = site.site_plan(fleet, serial)
    assert len(plan["errors"]) == 1
    assert plan["errors"][0].startswith(words)
    assert plan["batches"] == []


@pytest.mark.parametrize("serial", [0, "zone", "x y"])
def test_an_error_names_the_variable_that_the_playbook_reads(serial):
    (error,) = site.batch_plan(hosts("a", "b"), serial, "kubenode_image_serial")["errors"]
    assert error.startswith("kubenode_image_serial is ")
    assert "kubenode_serial" not in error


def test_all_machines_are_one_batch_unless_it_is_said():
    assert [batch["machines"] for batch in site.site_plan(hosts("a", "b"))["batches"]] == [["a", "b"]]


def test_machines_of_which_nothing_says_how_they_are_made():
    bare = [{"inventory_hostname": "a"}, {"inventory_hostname": "b", "kubenode_server_number": 7}]
    cloud, metal = site.site_plan([*bare, *hosts("c")])["errors"]
    assert cloud.startswith("nothing says how a is made: a cloud machine needs kubenode_image_name")
    assert metal.startswith("nothing says how b is made: a dedicated server needs kubenode_image (installimage)")


def test_one_private_key_serves_the_whole_run():
    fleet = [*hosts("a", ansible_ssh_private_key_file="~/one"), *hosts("b", "c", ansible_ssh_private_key_file="~/two")]
    (error,) = site.site_plan(fleet)["errors"]
    assert error.startswith("ansible_ssh_private_key_file must be the same for all machines of a run")
    assert "and is ~/one for a, ~/two for b;" in error
    assert site.site_plan(fleet[1:])["errors"] == []


def test_each_machine_is_checked_by_what_its_own_kind_uses(monkeypatch):
    said = []
    monkeypatch.setattr(conflicts, "warn", said.append)
    fleet = [
        *hosts("c1", "c2", kubenode_wipe=["S1"], kubenode_drift="report"),
        *hosts("m1", kubenode_server_number=7, kubenode_wipe=["S1"], kubenode_drift="report"),
    ]
    fleet[1]["kubenode_drift"] = "fail"
    fleet[2]["kubenode_image"] = {"name": "x"}
    found = conflicts.variable_findings(fleet, "site")
    assert [text.partition(":")[0] for text in found if text.startswith("m1")] == ["m1"]
    assert "robot_installimage writes kubenode_image, an image command kubenode_image_url" in "".join(found)
    assert sum("kubenode_drift is" in text for text in found) == 1
    assert [text for text in said if "kubenode_wipe" in text] == [
        "kubenode_wipe, set for c1, c2, is not used by hcloud_image_url: it names disks of dedicated servers; "
        "kubenode_reinstall is the word here"
    ]
    unlike = [{**host, "kubenode_serial": place} for place, host in enumerate(hosts("a", "b"))]
    (text,) = conflicts.variable_findings(unlike, "site")
    assert text.startswith("kubenode_serial is 0 for a and 1 for b, but it counts for the whole run")


def test_which_names_machines_can_have():
    hosts = ["node-1", "Here_1", "127.0.0.1", "localhost", "a" * 64, "rescue", "n1.example.com"]
    assert site.machine_names(hosts) == ["node-1", "n1.example.com"]


UPGRADE = "kubenode.provision/node_upgrade"


def asked(wanted="1.37.1", **seen):
    node = {"exists": True, "ready": True, "kubelet_version": "v1.36.4", "cordoned_by": None, **seen.pop("node", {})}
    reached = {"node": {"units": {"kubelet.service": {"active": seen.pop("kubelet", "active")}}}}
    about = {"need_bootstrap": False, "server_version": "v1.37.2", "node": node, **seen}
    base = {"kubernetes_version": wanted}
    return [{"inventory_hostname": "n1", "kubenode_asked": about, "kubenode_reached": reached, "__base_inputs": base}]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (asked(), ""),
        (asked(node={"kubelet_version": "v1.37.1"}), ""),
        (asked("1.37.0", node={"kubelet_version": "v1.37.1"}), ""),
        (asked("1.34.4", node={"kubelet_version": "v1.34.1"}), ""),
        (asked(node={"kubelet_version": None}), ""),
        (asked("1.38.0"), "n1: kubelet 1.38.0 is newer than the API server, which is v1.37.2; upgrade the control"),
        (asked("1.33.9"), "n1: kubelet 1.33.9 is more than 3 minor versions older than the API server"),
        (asked("1.36.9", node={"kubelet_version": "v1.37.1"}), "n1: its kubelet is v1.37.1, and base_kubernetes_ver"),
        (asked(server_version=""), "n1: the API server does not report its version"),
        (asked(need_bootstrap=True), "n1: its Node or its kubelet's certificate is gone"),
        (asked(node={"exists": False}), "n1: its Node or its kubelet's certificate is gone"),
        (asked(kubelet="inactive"), "n1: kubelet.service is inactive on it; start it (systemctl start kubelet)"),
        (
            asked(kubelet="activating"),
            "n1: kubelet.service is activating on it: it begins right now, or again and again",
        ),
        (asked(kubelet="failed", node={"kubelet_version": "v1.37.1"}), "n1: kubelet.service is failed on it"),
        (
            asked(node={"ready": False}),
            "n1: its Node is NotReady, before anything was done to it; see journalctl -u kub",
        ),
        (asked(node={"ready": False, "kubelet_version": "v1.37.1"}), "n1: its Node is NotReady, before"),
        # an earlier run was cut off there, and goes on
        (asked(kubelet="inactive", node={"ready": False, "cordoned_by": UPGRADE}), ""),
        (asked(node={"ready": False, "cordoned_by": UPGRADE, "kubelet_version": "v1.37.1"}), ""),
        (
            asked(kubelet="failed", node={"cordoned_by": UPGRADE, "kubelet_version": "v1.37.1"}),
            "n1: kubelet.service is",
        ),
        (asked(node={"ready": False, "cordoned_by": "kubenode.provision/node_reboot"}), "n1: its Node is NotReady"),
        ([{**asked()[0], "kubenode_asked": {"skipped": True}}], "n1: it is no node yet; kubenode.provision.site"),
    ],
)
def test_which_kubelets_a_node_cannot_have(host, words):
    found = site.upgrade_problems(host)
    assert ([text.startswith(words) for text in found]) == ([True] if words else [])


def test_new_systems_are_what_is_made_and_what_is_named_once(tmp_path):
    fleet = hosts("made", "runs", "named", kubenode_reinstall=["named", "used", "other"]) + hosts(
        "used", kubenode_reinstall=["used"]
    )
    done = intents.make("used", "5" * 32, "reinstall", begun=True)
    intents.write(intents.file_of(str(tmp_path), "used"), done | {"state": "done"})
    looked = [{"name": "made", "created": True}, {"name": "runs", "created": False}]
    assert site.new_systems(fleet, looked, str(tmp_path)) == ["made", "named"]
    assert site.new_systems(fleet, looked, str(tmp_path / "lost")) == ["made", "named", "used"]
