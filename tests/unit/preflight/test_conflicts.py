# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that contradict each other, that a playbook does not use, or that count for a whole run."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, specification
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
IMAGE = {"kubenode_image_name": "debian-13", "kubenode_image_url": "https://u:secret@i.example/x.raw"}


def test_every_proof_of_a_new_system_goes_to_its_own_port():
    for path in PLAYBOOKS.rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        if "kubenode.provision.machine_boot:" in text and "expect: rescue" not in text:
            assert re.search("kubenode_{1,2}os_port", text), path.name


def test_the_tables_name_variables_and_playbooks_that_exist():
    rows = [*conflicts.UNUSED, *conflicts.FOREIGN]
    names = [name for row in rows for name in (row.variable, row.unless, row.of) if name]
    names += [name for pair in conflicts.PAIRS for name in (pair.one, pair.other) if name.startswith("kubenode_")]
    assert set(names) - set(specification.variables()) == set()
    playbooks = {one for row in (*rows, *conflicts.PAIRS) for one in row.playbooks}
    assert {one for one in playbooks if not (PLAYBOOKS / f"{one}.yml").is_file()} == set()


def test_what_is_read_once_for_the_run_is_in_the_table():
    """A task with run_once reads a variable of the first host, not those of the others."""
    tasks = re.split(r"\n(?=- name: )", "\n".join(path.read_text() for path in sorted(PLAYBOOKS.glob("tasks/*.yml"))))
    once = [task for task in tasks if "\n  run_once: true" in task]
    read = {name for task in once for name in re.findall(r"\{\{ (kubenode_[a-z_]+) \| default", task)}
    assert (read & set(specification.variables())) - set(conflicts.OF_THE_RUN) == set()


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "hcloud_image_name"])
def test_a_name_and_a_url_of_an_image_are_one_error(playbook):
    hosts = [{"inventory_hostname": f"n{number}", **IMAGE} for number in range(1, 6)]
    (sentence,) = conflicts.refused(hosts, playbook)
    assert sentence.startswith('n1, n2, n3 and 2 more: kubenode_image_name is "debian-13" and kubenode_image_url is ')
    assert "leave one of the two out" in sentence
    assert "secret" not in sentence
    for name in IMAGE:
        assert conflicts.refused([{"inventory_hostname": "n1", **IMAGE, name: None}], playbook) == []
    # the temporary machines of node images have both, and users have neither of theirs
    assert conflicts.refused([{"inventory_hostname": "n1", **IMAGE, "kubenode_build": {}}], playbook) == []


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "robot_image_url", "robot_installimage"])
def test_an_image_of_installimage_and_a_url_are_one_error(playbook):
    image = {"url": "https://u:secret@i.example/x.tar.gz"}
    host = {"inventory_hostname": "n1", "kubenode_image": image, "kubenode_image_url": IMAGE["kubenode_image_url"]}
    (sentence,) = conflicts.refused([host], playbook)
    assert "kubenode_image is " in sentence
    assert "kubenode_image_url is " in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize("variable", conflicts.OF_THE_RUN)
def test_what_counts_for_the_run_is_the_same_for_all(variable):
    playbook = conflicts.OF_THE_RUN[variable][0]
    hosts = [{"inventory_hostname": "a", variable: 4}, {"inventory_hostname": "b"}]
    (sentence,) = conflicts.refused(hosts, playbook)
    shown = "(hidden)" if specification.variables()[variable].secret else "4"
    assert sentence.startswith(f"{variable} is {shown} for a and not set for b, but it counts for the whole run")
    assert conflicts.refused([{**host, variable: 4} for host in hosts], playbook) == []


def test_a_dedicated_server_is_no_cloud_machine():
    (sentence,) = conflicts.refused([{"inventory_hostname": "n1", "kubenode_server_number": 321}], "hcloud_image_url")
    assert sentence == "n1: kubenode_server_number is 321: " + conflicts.FOREIGN[0].instead


@pytest.mark.parametrize("no", [False, "false", "no", 0])
def test_a_machine_without_a_public_address_has_no_rescue(no):
    host = {"inventory_hostname": "n1", "kubenode_enable_ipv4": no, "kubenode_enable_ipv6": no}
    (sentence,) = conflicts.refused([host], "hcloud_image_url")
    assert sentence.startswith(
        "n1: kubenode_enable_ipv4 and kubenode_enable_ipv6 are false, but hcloud_image_url writes"
    )
    assert conflicts.refused([host], "hcloud_image_name") == []
    assert conflicts.refused([{**host, "kubenode_enable_ipv6": True}], "hcloud_image_url") == []


@pytest.mark.parametrize("row", conflicts.UNUSED, ids=lambda row: f"{row.playbooks[0]}-{row.variable}")
def test_what_a_playbook_does_not_use_is_reported(row):
    host = {"inventory_hostname": "n1", row.variable: "x"}
    if row.of:
        assert conflicts.unused([host], row.playbooks[0]) == []
        host[row.of] = row.values[0]
    (sentence,) = [text for text in conflicts.unused([host], row.playbooks[0]) if text.startswith(row.variable + ",")]
    assert sentence == f"{row.variable}, set for n1, is not used by {row.playbooks[0]}: {row.instead}"
    if row.unless:
        assert conflicts.unused([{**host, row.unless: "y"}], row.playbooks[0]) == []
    assert conflicts.refused([host], "robot_image_url") == []


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "robot_installimage", "site"])
def test_a_notification_that_no_callback_sends_is_warned_about(playbook, monkeypatch):
    for name in ("KUBENODE_NOTIFY_URL", "KUBENODE_METRICS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(report_files, "_current", None)
    hosts = [{"inventory_hostname": "n1", "kubenode_notify_url": "https://hook.example/T0K3N"}]
    (sentence,) = conflicts.unsent(hosts, playbook)
    assert sentence.startswith("kubenode_notify_url is set, but nothing will be sent")
    assert "ANSIBLE_CALLBACKS_ENABLED=kubenode.provision.provision_report" in sentence
    assert "T0K3N" not in sentence
    assert conflicts.unsent([{"inventory_hostname": "n1"}], playbook) == []
    monkeypatch.setenv("KUBENODE_METRICS_FILE", "/srv/fleet.prom")
    (sentence,) = conflicts.unsent([{"inventory_hostname": "n1"}], playbook)
    assert sentence.startswith("KUBENODE_METRICS_FILE is set")
    monkeypatch.setattr(report_files, "_current", object())
    assert conflicts.unsent(hosts, playbook) == []


@pytest.mark.parametrize("playbook", ["hcloud_image_name", "robot_image_url", "site"])
def test_an_address_that_no_report_can_be_sent_to_is_refused(playbook, monkeypatch):
    """The callback learns it when the run has ended."""
    of_the_option = SimpleNamespace(notify_url="")
    monkeypatch.setattr(report_files, "_current", of_the_option)
    hosts = [{"inventory_hostname": "n1", "kubenode_notify_url": "ftp://u:T0K3N@h/T0K3N"}]
    wrong = "it begins with ftp://; use https:// or http://"
    assert conflicts.unsendable(hosts, playbook) == [f"kubenode_notify_url: {wrong}"]
    monkeypatch.setattr(conflicts, "mistyped", lambda *_given: [])
    assert f"kubenode_notify_url: {wrong}" in conflicts.variable_findings(hosts, playbook)
    assert conflicts.unsendable(hosts, "node") == []
    for good in ("https://h/x", "", None):
        assert conflicts.unsendable([{"inventory_hostname": "n1", "kubenode_notify_url": good}], playbook) == []
    of_the_option.notify_url = "http://"
    (sentence,) = conflicts.unsendable([{"inventory_hostname": "n1"}], playbook)
    assert sentence.endswith("(KUBENODE_NOTIFY_URL or ansible.cfg): no host follows http://")
    good = {"inventory_hostname": "n1", "kubenode_notify_url": "https://h/x"}
    assert conflicts.unsendable([good], playbook) == [], "the variable wins"
    monkeypatch.setattr(report_files, "_current", None)
    assert conflicts.unsendable(hosts, playbook) == [], "without the callback nothing is sent: that is a warning"


@pytest.mark.parametrize("playbook", [*conflicts._ROBOT, "robot_inspect", "robot_release", "site"])
@pytest.mark.parametrize(
    ("one", "other", "variable"),
    [
        ({"kubenode_server_number": 4711}, {"kubenode_server_number": "4711"}, "kubenode_server_number is 4711"),
        ({"hrobot_server_number": 4711}, {"kubenode_server_number": 4711}, "kubenode_server_number is 4711"),
        ({"kubenode_server_ip": "2001:DB8::1"}, {"kubenode_server_ip": "2001:db8::1"}, "kubenode_server_ip is 2001"),
    ],
)
def test_a_server_that_two_machines_name_is_found_before_anything_is_locked(playbook, one, other, variable):
    hosts = [{"inventory_hostname": name, **own} for name, own in (("n1", one), ("n2", {}), ("n3", other))]
    (sentence,) = conflicts.shared(hosts, playbook)
    assert sentence.startswith(f"n1, n3: {variable}")
    assert sentence.endswith(" for each of them; give each machine its own")
    assert sentence in conflicts.variable_findings(hosts, playbook)
    assert conflicts.shared(hosts[:2], playbook) == []


def test_an_address_that_two_machines_have_is_found_before_a_look_arms_anything():
    hosts = [{"inventory_hostname": name, "kubenode_address": "192.0.2.1"} for name in ("n1", "n2")]
    (sentence,) = conflicts.shared(hosts, "robot_inspect")
    assert sentence == "n1, n2: kubenode_address is 192.0.2.1 for each of them; give each machine its own"
    named = [{"inventory_hostname": name, "join_node_name": "worker"} for name in ("n1", "n2")]
    for playbook in ("node", "node_join", "site"):
        assert conflicts.shared(named, playbook) == [
            "n1, n2: join_node_name is worker for each of them; give each machine its own"
        ]
    # nodes behind one address may have a port each
    assert conflicts.shared(hosts, "node") == conflicts.shared(hosts, "hcloud_image_name") == []


@pytest.mark.parametrize(
    ("value", "refused"),
    [(-1, True), ("-2", True), (0, False), ("3", False), (None, False), ("x", False), (True, True)],
)
def test_fewer_machines_than_none_is_refused_before_anything_is_made(value, refused):
    hosts = [{"inventory_hostname": "n1", "kubenode_throttle": value}]
    wrong = [f"kubenode_throttle {value}: use a number of machines, or 0 for all of them"] if refused else []
    assert conflicts.unthrottled(hosts, "robot_installimage") == wrong
    assert set(wrong) <= set(conflicts.variable_findings(hosts, "hcloud_image_url"))
    assert conflicts.unthrottled(hosts, "node") == conflicts.unthrottled([], "hcloud_image_url") == []


@pytest.mark.parametrize(("names", "warned"), [(["c", "m"], 0), (["c"], 1)])
def test_a_word_of_the_command_line_is_for_those_of_a_mixed_fleet_that_take_it(monkeypatch, names, warned):
    said: list[str] = []
    monkeypatch.setattr(conflicts, "warn", said.append)
    word = {"kubenode_first_contact": "reset"}
    fleet = {
        "c": {"kubenode_image_name": "debian-13"},
        "m": {"kubenode_server_number": 1, "kubenode_image": {"name": "x"}},
    }
    hosts = [{"inventory_hostname": name, "kubenode_dir": "/x", **fleet[name], **word} for name in names]
    monkeypatch.setattr(specification, "of_the_command_line", lambda: word)
    assert conflicts.variable_findings(hosts, "site") == []
    assert len(said) == warned, said
    said.clear()
    monkeypatch.setattr(specification, "of_the_command_line", dict)
    conflicts.variable_findings(hosts, "site")
    assert len(said) == 1, "that of the inventory says which machine has it in vain"


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        (["n1", "n3"], []),
        (["n9"], ["kubenode_reinstall names n9, which is no host of the inventory; correct it, or leave it out"]),
        (
            {"n9": "0123abcd", "n8": "0123abcd"},
            ["kubenode_reinstall names n8, n9, which are no hosts of the inventory; correct it, or leave it out"],
        ),
        (None, []),
        ("n9", []),
    ],
)
def test_a_permission_for_no_host_of_the_inventory_is_warned_about(given, warned):
    """An entry may name a host that --limit leaves out."""
    hosts = [
        {"inventory_hostname": name, "groups": {"all": ["n1", "n2", "n3"]}, "kubenode_reinstall": given}
        for name in ("n1", "n2")
    ]
    assert conflicts.named_strangers(hosts, "hcloud_image_url") == warned
    assert conflicts.named_strangers(hosts, "node_reboot") == []
    assert conflicts.named_strangers([{**hosts[0], "groups": None}], "hcloud_image_url") == []


@pytest.mark.parametrize("playbook", ["hcloud_image_url", "robot_image_url", "robot_installimage", "robot_inspect"])
def test_a_host_that_can_be_no_machine_is_one_sentence(playbook):
    long = "x" * 64
    found = conflicts.mistyped([{"inventory_hostname": long}, {"inventory_hostname": "n1"}], playbook)
    (sentence,) = set(found)
    assert sentence.startswith(f"the host '{long}' of the inventory cannot be a machine: ")
    assert conflicts.mistyped([{"inventory_hostname": long}], "node_reboot") == []


@pytest.mark.parametrize(
    ("playbook", "variable", "value", "said"),
    [
        ("robot_installimage", "kubenode_image", "Debian", "'Debian': give a dictionary with keys of these: digest, "),
        ("robot_installimage", "kubenode_image", {"name": "x", "nmae": "x"}, "nmae is no key; use one of digest, file"),
    ],
)
def test_a_value_of_another_kind_is_one_sentence(playbook, variable, value, said):
    (sentence,) = set(conflicts.mistyped([{"inventory_hostname": "n1", variable: value}], playbook))
    assert sentence.startswith(f"n1: {variable} ")
    assert said in sentence
