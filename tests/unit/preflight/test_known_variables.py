# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the playbooks' variables, and what is said of one that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.filter.machine_specs import machine_specs
from ansible_collections.kubenode.provision.plugins.module_utils._common import names, ssh_access
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, leaving, specification
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import image_inputs

CHECKOUT = Path(__file__).resolve().parents[3]
SPECS = "plugins/plugin_utils/preflight/machine_specs.py"


def named_in(pattern: str, *folders: str) -> set[str]:
    """The variables that are named in the files of these folders; those between two underscores are internal."""
    files = [
        path
        for folder in folders
        for path in [CHECKOUT / folder, *(CHECKOUT / folder).rglob("*")]
        if path.is_file() and path.suffix in (".yml", ".j2", ".md", ".py")
    ]
    names = {name for path in files for name in re.findall(pattern, path.read_text(encoding="utf-8"))}
    return {name for name in names if not name.startswith("kubenode__") and not name.endswith("_")}


def test_the_names_are_those_of_docs_and_playbooks():
    documented = named_in(
        r"`(?!kubenode_provision_|kubenode_image_server_(?:hosts|images))(kubenode_[a-z0-9_]+)", "docs", "README.md"
    )  # no metric is one
    used = named_in(r"\b(kubenode_[a-z0-9_]+)", "playbooks", "roles", "plugins/filter", SPECS)
    ours = set(specification.variables())
    assert documented - specification.OF_PLAYBOOKS == ours
    assert used - ours == specification.OF_PLAYBOOKS


def misspelt(name: str) -> str:
    return (
        f"{name} is no variable of kubenode.provision; did you mean kubenode_image_url? A variable of your own needs a "
        "name that does not begin with kubenode_"
    )


def test_a_misspelt_variable_is_refused_with_the_nearest_one():
    host = {"kubenode_image_ulr": "x", "kubenode__dir": "/", "kubenode_armed": {}, "kubenode_wipe": [], "other": 1}
    hosts = [{**host, "inventory_hostname": f"n{number}"} for number in range(1, 6)]
    (found,) = conflicts.variable_findings(hosts, "robot_image_url")
    assert found == misspelt("kubenode_image_ulr, set for n1, n2, n3 and 2 more,")
    assert specification.unknown(hosts) == []


def test_a_misspelt_variable_of_the_command_line_is_said_to_be_there(monkeypatch):
    monkeypatch.setattr(specification, "of_the_command_line", lambda: {"kubenode_image_ulr": "x"})
    hosts = [{"inventory_hostname": f"n{number}", "kubenode_image_ulr": "x"} for number in range(1, 6)]
    assert specification.misspelt(hosts) == [misspelt("kubenode_image_ulr, given by -e,")]


@pytest.mark.parametrize(
    ("name", "playbook", "near"),
    [
        ("kubenode_image_typo", "preprov_images", "kubenode_image_http_proxy"),
        ("kubenode_image_agent", "preprov_images", "kubenode_image_agent_image"),
        ("kubenode_image_iso", "preprov_images", "kubenode_image_base_iso"),
        ("kubenode_image_iso", "hcloud_image_url", "kubenode_image_url"),
    ],
)
def test_a_variable_of_the_playbook_at_hand_is_suggested_first(name, playbook, near):
    assert near in {one.name for one in specification.taken_by(playbook)}
    (found,) = specification.misspelt([{"inventory_hostname": "a", name: 1}], playbook)
    assert f"did you mean {near}? " in found


def test_a_name_that_is_far_from_all_of_ours_is_only_reported():
    hosts = [{"inventory_hostname": "a", "kubenode_zzz": 1}]
    assert specification.unknown(hosts) == [
        "kubenode_zzz, set for a, is no variable of kubenode.provision and does nothing"
    ]
    assert specification.misspelt(hosts) == []


@pytest.mark.parametrize("playbook", sorted(specification.playbooks()))
def test_every_playbook_refuses_a_misspelt_variable(playbook):
    files = [f"{playbook}.yml", "tasks/leave_check.yml", f"tasks/{playbook}_check.yml"]
    paths = [CHECKOUT / "playbooks" / file for file in files]
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    assert f"kubenode__checked_for: {playbook}\n" in text


def test_machines_that_are_to_leave_are_refused_before_they_are_looked_for():
    hosts = [{"inventory_hostname": "n1", "kubenode_evict_froce": True}]
    assert "did you mean kubenode_evict_force?" in leaving.plan(hosts)["errors"][0]


def test_a_misspelt_variable_of_a_role_is_named_too():
    hosts = [{"inventory_hostname": "a", "base_kubernetes_versoin": "1.36.4", "base_something_of_the_users": 1}]
    assert specification.unknown_of_roles(hosts, ["base", "join"]) == [
        "base_kubernetes_versoin, set for a, is no variable of kubenode.provision and does nothing; "
        "base_kubernetes_version is one"
    ]


def test_a_role_that_runs_alone_warns_of_a_misspelt_variable():
    names = ["image_server_agent_imag", "image_server_url", "image_server_state", "image_server_of_the_users"]
    assert conflicts.role_findings(names, "image_server", "images-1") == [
        "image_server_agent_imag, set for images-1, is no variable of kubenode.provision and does nothing; "
        "image_server_agent_image is one"
    ]


# --- values of variables that no machine can be made with are found before anything is created


@pytest.mark.parametrize("name", ["a", "Node-1", "n1.example.com", "a" * 63, "rescue", "42", "3com.example"])
def test_host_names_that_a_machine_can_have(name):
    assert names.host_name_error(name) is None
    assert names.address_error(name) is None


@pytest.mark.parametrize(
    "name",
    ["a b", "-a", "a-", "a_b", "a..b", "a.", "", "a" * 64, ".".join(["a" * 63] * 4), "ä", "\u212a", "a\n", None, 7],
)
def test_host_names_that_no_machine_can_have(name):
    assert "RFC 1123" in names.host_name_error(name)
    assert "RFC 1123" in names.address_error(name)


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "fe80::1%eth0"])
def test_addresses(address):
    assert names.address_error(address) is None


@pytest.mark.parametrize(
    "address", ["127.0.0.1 -o ProxyCommand=id", "-oProxyCommand=id", "1.2.3", "256.1.1.1", "fe80::1% -o x", "root@h", 7]
)
def test_what_ssh_is_never_given_as_a_host(address):
    assert names.address_error(address)
    assert ssh_access.access_findings({"address": address})


def test_a_secret_of_a_wrong_kind_is_not_shown():
    host = {"inventory_hostname": "n1", "kubenode_registry_token": ["user:s3cr3t"]}
    assert specification.mistyped(host, "hcloud_image_url") == {
        "kubenode_registry_token": "kubenode_registry_token (hidden): give a text, not a list"
    }


@pytest.mark.parametrize(
    "variable", [one for one in specification.variables().values() if one.type != "raw"], ids=lambda one: one.name
)
def test_every_variable_refuses_what_it_cannot_be(variable):
    value = {"a": ["s3cr3t"]} if variable.type != "dict" else ["s3cr3t"]
    found = specification.mistyped({variable.name: value}, variable.playbooks[0])
    assert list(found) == [variable.name]
    assert found[variable.name].startswith(f"{variable.name} ")
    assert "s3cr3t" not in found[variable.name] or not variable.secret
    # what a playbook does not take is not looked at
    assert specification.mistyped({variable.name: value}) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("kubenode_address", "127.0.0.1 -o ProxyCommand=id"), ("kubenode_os_user", "-oProxyCommand=id"),
        ("kubenode_os_port", "22 -v"), ("ansible_host", "-oProxyCommand=id"), ("ansible_user", "a b"),
        ("ansible_port", "ssh"), ("kubenode_os_private_key", ["a"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("playbook", ["hcloud_image_name", "robot_inspect", "robot_release", "node_reboot"])
def test_playbooks_without_a_check_of_their_own_look_at_what_ssh_gets(playbook, variable, value):
    (sentence,) = conflicts.misfits([{"inventory_hostname": "n1", variable: value}], playbook)
    assert sentence.startswith("n1: ")
    assert variable in sentence


def test_only_what_a_playbook_takes_is_looked_at():
    hosts = [{"inventory_hostname": "n1", "kubenode_evict_force": "maybe"}]
    assert conflicts.misfits(hosts, "node_reboot") == ["n1: kubenode_evict_force 'maybe': give true or false"]
    assert conflicts.misfits(hosts, "robot_inspect") == []


def test_a_truth_that_is_a_text_is_no_truth_of_its_own():
    """By ``-e name=false``, and from AWX, a variable is a text; ansible-core 2.19 refuses one as a condition."""
    names = "|".join(one.name for one in specification.variables().values() if one.type == "bool")
    alone = re.compile(rf'"\{{\{{ (?:{names}) \| default\([^)]*\) \}}\}}"')  # a module reads it
    taken = re.compile(rf"\b(?:{names})\b(?: \| default\([^)]*\))?(?! \| default)(?! \| bool)(?! is defined)(?!['=])")
    prose = re.compile(r"'[^']* [^']*'|\}\}[^{]*$")  # words of a message
    wrong = []
    for path in (CHECKOUT / "playbooks").rglob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.lstrip().startswith("#") and taken.search(prose.sub("", alone.sub("", line))):
                wrong.append(f"{path.name}: {line.strip()}")
    assert wrong == []


def test_a_kubeconfig_that_is_not_there_is_reported_before_machines_are_written(tmp_path):
    hosts = [
        {"inventory_hostname": name, "inventory_dir": str(tmp_path), "kubenode_kubeconfig": "config"}
        for name in ("n1", "n2")
    ]
    (sentence,) = conflicts.variable_findings(hosts, "robot_image_url")
    assert sentence.startswith(f"n1: kubenode_kubeconfig: there is no 'config'; looked at {tmp_path}/config, ")
    (tmp_path / "config").write_text("")
    assert conflicts.variable_findings(hosts, "robot_image_url") == []


def test_what_the_check_reports_is_not_reported_before_it():
    hosts = [{"inventory_hostname": "n1", "kubenode_require_digest": "maybe"}]
    assert machine_specs(hosts, "image_url_check") == [{"name": "n1"}]


@pytest.mark.parametrize("data", [{"a": "s3cr3t"}, ["s3cr3t"], 7])
def test_bootstrap_data_that_is_neither_cloud_init_nor_ignition(data):
    findings: list[str] = []
    assert image_inputs.read_bootstrap({"bootstrap_data": data}, lambda path: b"", findings) is None
    assert "neither cloud-init nor Ignition" in findings[0]
    assert "s3cr3t" not in findings[0]


@pytest.mark.parametrize("data", ["#cloud-config\n", '{"a": 1}', {"ignition": {"version": "3.4.0"}}])
def test_bootstrap_data_that_is_handed_over(data):
    findings: list[str] = []
    assert image_inputs.read_bootstrap({"bootstrap_data": data}, lambda path: b"", findings)
    assert findings == []


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
BOOT = "3f0c8a52-8a4e-4a53-9d0a-3d0a5f6a3a11"
PROVEN = {"address": "203.0.113.5", "host_keys": [KEY], "boot_id": BOOT}


def handed_on(known, playbook="node"):
    """The findings about what the job before is said to have handed on."""
    hosts = [{"inventory_hostname": name, "kubenode_known_machines": known} for name in ("n1", "n2")]
    return conflicts.variable_findings(hosts, playbook)


@pytest.mark.parametrize("playbook", ["node", "node_reboot", "hcloud_delete"])
def test_what_a_run_hands_on_is_taken(playbook):
    commented = {**PROVEN, "host_keys": [f"{KEY} root@n2"]}
    for known in ({}, {"n1": PROVEN, "n2": commented, "of.another-run": {"address": "2001:db8::1"}}):
        assert not [text for text in handed_on(known, playbook) if "known_machines" in text]


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"../n1": PROVEN}, "'../n1': no machine can have this name"),
        ({"n1\nssh": PROVEN}, "no machine can have this name"),
        ({7: PROVEN}, "7: no machine can have this name"),
        ({"n1": []}, "'n1': give a dictionary of address, host_keys, boot_id"),
        ({"n1": {}}, "'n1': give a dictionary of address, host_keys, boot_id"),
        ({"n1": {**PROVEN, "ansible_connection": "local"}}, "'n1': give a dictionary of address, host_keys, boot_id"),
        ({"n1": {"address": "-oProxyCommand=id"}}, "address: '-oProxyCommand=id': it is no address"),
        ({"n1": {"address": "{{ lookup('pipe', 'id') }}"}}, "it is no address"),
        ({"n1": {"address": ["203.0.113.5"]}}, "it is no address"),
        ({"n1": {"address": ""}}, "it is no address"),
        ({"n1": {"host_keys": [KEY]}}, "host_keys and boot_id go together; give both or none"),
        ({"n1": {"boot_id": BOOT}}, "host_keys and boot_id go together; give both or none"),
        ({"n1": {**PROVEN, "host_keys": KEY}}, "host_keys: give a list of 1 to 16 public keys"),
        ({"n1": {**PROVEN, "host_keys": []}}, "host_keys: give a list of 1 to 16 public keys"),
        ({"n1": {**PROVEN, "host_keys": [KEY] * 17}}, "host_keys: give a list of 1 to 16 public keys"),
        ({"n1": {**PROVEN, "host_keys": [KEY.partition(" ")[2]]}}, "use the line of the .pub file"),
        ({"n1": {**PROVEN, "host_keys": [f"@cert-authority * {KEY}"]}}, "host_keys: '@cert-authority * ssh-"),
        ({"n1": {**PROVEN, "host_keys": ["ssh-rsa " + KEY.partition(" ")[2]]}}, "is not a key of type ssh-rsa"),
        ({"n1": {**PROVEN, "host_keys": [None]}}, "use the line of the .pub file"),
        ({"n1": {**PROVEN, "boot_id": "0 run=x\nn1.os"}}, "boot_id: '0 run=x\\nn1.os' is no boot id"),
        ({"n1": {**PROVEN, "boot_id": 36}}, "boot_id: 36 is no boot id"),
        ("n1=x", "give a dictionary with the names of machines"),
        ([PROVEN], "give a dictionary with the names of machines"),
    ],
    ids=str,
)
def test_what_no_run_can_have_handed_on_is_refused_before_anything_is_contacted(known, text):
    found = handed_on(known)
    assert any(one.startswith("kubenode_known_machines: ") and text in one for one in found), found
    assert all(one.isprintable() for one in found)
