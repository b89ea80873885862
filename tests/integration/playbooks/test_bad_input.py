# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every wrong input is one clear message, and nothing is created."""

from pathlib import Path

import hcloud
import pytest
import yaml

from tests.integration.testbeds import NOWHERE
from tests.key_pairs import key_pair

#: variables of one machine that are wrong → words of its finding: the field, the value, the fix
OF_A_MACHINE = {
    "url-that-go-refuses": ({"kubenode_image_url": "https://exa mple.com/x"}, ["kubenode_image_url", "exa mple.com"]),
    "relative-url": ({"kubenode_image_url": "debian.raw"}, ["kubenode_image_url", "debian.raw"]),
    "url-of-another-scheme": (
        {"kubenode_image_url": "ftp://files.example/d.raw"},
        ["kubenode_image_url", "ftp://files.example/d.raw", "image-url-command-raw-disk cannot take it", "use http, "],
    ),
    "digest-too-short": (
        {"kubenode_image_url": "https://i.example/x.raw#sha256=aa"},
        ["kubenode_image_url", "https://i.example/x.raw", "sha256=aa is not 64 hex digits; correct the URL"],
    ),
    "no-digest": (
        {"kubenode_image_url": "https://i.example/x", "kubenode_require_digest": True},
        ["kubenode_image_url", "although kubenode_require_digest is set"],
    ),
    "command-with-a-path": (
        {"kubenode_image_url_command": "/tmp/image-url-command-x"},
        ["kubenode_image_url_command", "/tmp/image-url", "the directory as kubenode_command_dir"],
    ),
    "command-with-dots": (
        {"kubenode_image_url_command": "image-url-command-a..b"},
        ["kubenode_image_url_command", "image-url-command-a..b"],
    ),
    "command-without-prefix": (
        {"kubenode_image_url_command": "write-disk"},
        ["kubenode_image_url_command", "set kubenode_command_names to any"],
    ),
    "command-not-there": (
        {"kubenode_image_url_command": "image-url-command-none"},
        ["kubenode_image_url_command", "image-url-command-none", "set kubenode_command_dir"],
    ),
    "two-of-them": (
        {"kubenode_image_url": "nonsense", "kubenode_image_url_command": "x"},
        ['kubenode_image_url "nonsense"', 'kubenode_image_url_command "x"'],
    ),
    "url-without-command": ({"kubenode_image_url_command": None}, ["kubenode_image_url_command: missing"]),
    "command-without-url": ({"kubenode_image_url": None}, ["kubenode_image_url: missing"]),
    "devices-with-a-path": ({"kubenode_root_devices": ["/dev/sda"]}, ["kubenode_root_devices", "/dev/sda"]),
    "bootstrap-not-there": (
        {"kubenode_bootstrap_data_file": "/nowhere/user-data"},
        ["kubenode_bootstrap_data_file", "/nowhere/user-data"],
    ),
    "bootstrap-twice": (
        {"kubenode_bootstrap_data": "#cloud-config"},
        ["kubenode_bootstrap_data and kubenode_bootstrap_data_file are both set"],
    ),
    "token-of-two-lines": ({"kubenode_registry_token": "a\nb"}, ["kubenode_registry_token holds a control character"]),
    "hook-that-never-ends": (
        {"kubenode_pre_provision_command": "ask", "kubenode_pre_provision_timeout": "soon"},
        ["kubenode_pre_provision_timeout", "soon"],
    ),
    "port-of-letters": ({"kubenode_os_port": "ssh"}, ["kubenode_os_port", "ssh"]),
    "host-name-of-two-words": ({"kubenode_hostname": "a b"}, ["kubenode_hostname 'a b'", "RFC 1123"]),
    "address-with-an-option": (
        {"kubenode_address": "127.0.0.1 -o ProxyCommand=id"},
        ["kubenode_address", "ProxyCommand=id", "it is no address"],
    ),
    "host-with-an-option": ({"ansible_host": "-oProxyCommand=id"}, ["ansible_host", "ssh would read it"]),
    "bootstrap-of-neither-kind": (
        {"kubenode_bootstrap_data": {"a": "s3cr3t"}, "kubenode_bootstrap_data_file": None},
        ["kubenode_bootstrap_data", "neither cloud-init nor Ignition"],
    ),
    "token-of-a-list": (
        {"kubenode_registry_token": ["user:s3cr3t"]},
        ["kubenode_registry_token (hidden): give a text, not a list"],
    ),
    "command-names": ({"kubenode_command_names": "all"}, ["kubenode_command_names 'all': use one of prefixed, any"]),
    "digest-policy": ({"kubenode_require_digest": "maybe"}, ["kubenode_require_digest 'maybe': give true or false"]),
    "adopt-of-a-word": ({"kubenode_adopt": "perhaps"}, ["kubenode_adopt 'perhaps': give true or false"]),
    "labels-of-a-list": ({"kubenode_labels": ["a"]}, ["kubenode_labels", "give a dictionary"]),
}
#: the same, of what only the API knows
OF_THE_CATALOGUE = {
    "no-server-type": ({"kubenode_server_type": None}, ["kubenode_server_type: missing"]),
    "unknown-server-type": ({"kubenode_server_type": "cx9000"}, ["kubenode_server_type", "cx9000"]),
    "unknown-location": ({"kubenode_location": "moon1"}, ["kubenode_location", "moon1"]),
    "unknown-image": ({"kubenode_placeholder_image": "plan9"}, ["kubenode_placeholder_image", "plan9"]),
    "unknown-network": ({"kubenode_networks": ["lan"]}, ["kubenode_networks", "lan"]),
    "label-of-ours": (
        {"kubenode_labels": {"kubenode.provision/machine": "x"}},
        ["kubenode_labels", "who made a server"],
    ),
}
#: variables of the whole run
OF_THE_RUN = {
    "key that is not registered": (
        {"ansible_ssh_private_key_file": "{other_key}"},
        ["kubenode_ssh_keys: ", "stage", "{other_key}"],
    ),
    "no key file": (
        {"ansible_ssh_private_key_file": "/nowhere/key"},
        ["ansible_ssh_private_key_file '/nowhere/key': there is no such file"],
    ),
    "no key name": ({"kubenode_ssh_keys": None}, ["kubenode_ssh_keys"]),
    "empty list of keys": ({"kubenode_ssh_keys": []}, ["kubenode_ssh_keys"]),
    "unknown key name": ({"kubenode_ssh_keys": ["missing"]}, ["kubenode_ssh_keys: ", "missing"]),
}


@pytest.fixture(scope="module")
def dry(operator):
    """A lab for input that must be refused before anything boots; servers of it would be seen."""
    lab = operator("dry")
    key_pair(lab.testbed.folder / "other")
    return lab


def servers(testbed):
    client = hcloud.Client(token=testbed.environment["HCLOUD_TOKEN"], api_endpoint=testbed.lab["endpoint"])
    return [server.name for server in client.servers.get_all()]


def inventory(dry, names=("wrong-1",), **variables):
    """An inventory in which everything is right but the given variables; None leaves a variable out."""
    other = str(dry.testbed.folder / "other")
    variables = {key: other if value == "{other_key}" else value for key, value in variables.items()}
    dry.testbed.image_url = lambda: NOWHERE
    dry.testbed.write_inventory(list(names), **{"kubenode_image_url": NOWHERE, **variables})
    return other


@pytest.mark.parametrize(
    "machines",
    [OF_A_MACHINE, OF_THE_CATALOGUE],
    ids=["inputs", "catalogue"],
)
def test_what_is_wrong_with_a_machine_is_reported_before_anything_is_created(dry, machines):
    inventory(dry, names=machines)
    content = yaml.safe_load(dry.testbed.inventory.read_text())
    content["machines"]["hosts"] = {name: variables for name, (variables, _words) in machines.items()}
    dry.testbed.inventory.write_text(yaml.safe_dump(content))
    findings = dry.run().fails().findings(*machines)
    for name, (_variables, words) in machines.items():
        assert all(word in findings[name] for word in words), (name, findings[name], dry.output)
    assert "Traceback" not in dry.output
    assert "s3cr3t" not in dry.output
    assert servers(dry.testbed) == []


@pytest.mark.parametrize("what", OF_THE_RUN)
def test_what_is_wrong_with_the_run_is_reported_before_anything_is_created(dry, what):
    variables, words = OF_THE_RUN[what]
    other = inventory(dry, **variables)
    dry.run().fails()
    for word in words:
        assert word.replace("{other_key}", other) in dry.output
    assert "Traceback" not in dry.output
    assert servers(dry.testbed) == []


def test_a_command_that_is_not_executable(dry):
    folder = dry.testbed.folder / "commands"
    folder.mkdir(exist_ok=True)
    (folder / "image-url-command-plain").write_text("#!/bin/sh\n")
    inventory(dry, kubenode_command_dir=str(folder), kubenode_image_url_command="image-url-command-plain")
    dry.run().fails().says("image-url-command-plain", "executable")
    assert servers(dry.testbed) == []


def test_variables_without_a_value_are_not_set(dry):
    """Those that tasks hand over; Ansible would refuse None in its own words when the servers are made."""
    inventory(dry, kubenode_throttle=None, kubenode_progress=None)
    dry.run("--check").ok()
    assert servers(dry.testbed) == []


def test_machines_of_one_run_share_their_keys(dry):
    inventory(dry, names=["wrong-1", "wrong-2"])
    dry.run("-e", "{kubenode_ssh_keys: \"{{ ['key-of-' ~ inventory_hostname] }}\"}").fails().says(
        "key-of-wrong-1", "key-of-wrong-2"
    )
    assert servers(dry.testbed) == []


#: variables of later steps, and what is said of them
OF_LATER_STEPS = {
    "kubenode_command_timeout": ("soon", "kubenode_command_timeout 'soon': give a whole number"),
    "kubenode_boot_timeout": (-5, "kubenode_boot_timeout -5: give a number of seconds, at least 1"),
    "kubenode_success": ("perhaps", "kubenode_success 'perhaps': use one of marker_and_exit_code, marker"),
    "kubenode_host_keys": (["nonsense"], "kubenode_host_keys 'nonsense': use the line of the .pub file"),
    "kubenode_cloud_init_timeout": ("١٢٠", "kubenode_cloud_init_timeout '١٢٠': give a whole number"),
    "kubenode_wait_cloud_init": ("sometimes", "kubenode_wait_cloud_init 'sometimes': give true or false"),
    "kubenode_proof": ("hope", "kubenode_proof 'hope': use one of nonce, disk, ssh, port, none"),
    "kubenode_drift": ("later", "kubenode_drift 'later': use one of report, fail"),
    "kubenode_throttle": ("few", "kubenode_throttle 'few': give a whole number"),
    "kubenode_progress": ("bar", "kubenode_progress 'bar': use one of fleet, lines, none"),
    "kubenode_address": ("192.0.2.1", "kubenode_address '192.0.2.1': another machine has it, too"),
}


def test_what_only_later_steps_take_is_looked_at_before_anything_is_created(dry):
    """In one run for two machines; a wrong type hides what else is wrong with the options of the same step."""
    inventory(dry, names=["wrong-1", "wrong-2"], **{name: value for name, (value, _words) in OF_LATER_STEPS.items()})
    dry.run().fails()
    message = dry.output[dry.output.index("[ERROR]") :]
    hidden = {"kubenode_boot_timeout", "kubenode_host_keys"}
    for name, (_value, words) in OF_LATER_STEPS.items():
        for machine in ("wrong-1", "wrong-2"):
            assert (f"{machine}: {words}" in message) is (name not in hidden), words
    inventory(dry, **{name: OF_LATER_STEPS[name][0] for name in hidden})
    dry.run("--check").fails()
    assert any(OF_LATER_STEPS[name][1] in dry.output for name in hidden)
    assert servers(dry.testbed) == []


NAMED = ({"kubenode_image_name": "debian-13"}, 'kubenode_image_name is "debian-13" and kubenode_image_url')
TARBALL = ({"kubenode_image": {"name": "x"}}, 'kubenode_image is {"name": "x"} and kubenode_image_url is')
CONTRADICTIONS = {
    "hcloud_image_url": NAMED, "hcloud_image_name": NAMED, "robot_image_url": TARBALL, "robot_installimage": TARBALL,
}  # fmt: skip


@pytest.mark.parametrize("playbook", CONTRADICTIONS)
def test_two_variables_of_which_one_would_silently_win_are_one_error(dry, playbook, monkeypatch):
    variables, words = CONTRADICTIONS[playbook]
    inventory(dry, kubenode_image_ulr="x", kubenode_notify_url="https://hook.example/s3cr3t", **variables)
    with_report = playbook == "hcloud_image_name"
    if not with_report:
        monkeypatch.delitem(dry.testbed.environment, "ANSIBLE_CALLBACKS_ENABLED")
    dry.forget_requests()
    with dry.playing(playbook):
        done = dry.run()
    assert done.failed
    reported = " ".join(done.output.split())
    assert f"wrong-1: {words}" in reported
    assert "leave one of the two out. Nothing was changed." in reported
    assert "kubenode_image_ulr, set for wrong-1, is no variable" in reported
    assert ("kubenode_notify_url is set, but nothing will be sent" in reported) is not with_report
    assert "s3cr3t" not in reported
    assert dry.asked() == []


#: playbook → variables of a host that do not exist, and what is said of them
MISSPELT = {
    "preprov_images": ({"kubenode_image_base_izo": "x"}, ["did you mean kubenode_image_base_iso?"]),
    "node_base": (
        {"base_kubernets_version": "1.36.4", "base_camp": "mine", "kubenode_pipelning": True},
        ["base_kubernetes_version is one", "did you mean kubenode_pipelining?"],
    ),
    "node": ({"join_api_servr": "x", "join_token": ""}, ["join_api_server is one"]),
    "node_image_snapshot": ({"kubenode_image_matrx": {}}, ["did you mean kubenode_image_matrix?"]),
}


@pytest.mark.parametrize("playbook", MISSPELT)
def test_every_playbook_reports_a_variable_that_does_not_exist(dry, playbook):
    """The nearest name is suggested; one with our prefix is refused before anything else is looked at."""
    variables, words = MISSPELT[playbook]
    inventory(dry, ansible_host="127.0.0.1", ansible_port=1, **variables)
    content = yaml.safe_load(dry.testbed.inventory.read_text())
    content["all"] = {"vars": variables}  # also for localhost
    dry.testbed.inventory.write_text(yaml.safe_dump(content))
    with dry.playing(playbook):
        done = dry.run("--check")
    reported = " ".join(done.output.split())
    for word in words:
        assert word in reported
    assert "base_camp" not in reported
    assert ("own needs a name that does not begin with kubenode_. Nothing was changed." in reported) is (
        "did you mean" in " ".join(words)
    )


@pytest.mark.parametrize(
    ("token", "reason"), [("missing", "HCLOUD_TOKEN"), ("refused", "unauthorized"), ("read-only", "token_readonly")]
)
def test_tokens(dry, token, reason):
    inventory(dry)
    testbed = dry.testbed
    with pytest.MonkeyPatch.context() as patch:
        if token == "missing":
            patch.delitem(testbed.environment, "HCLOUD_TOKEN")
        else:
            given = "A" * 64 if token == "refused" else Path(testbed.lab["token_file"] + "-read-only").read_text()
            patch.setitem(testbed.environment, "HCLOUD_TOKEN", given)
        dry.run().fails().says("api_token: ", reason)
    assert servers(testbed) == []


def test_a_foreign_server_is_adopted_only_on_demand(dry):
    client = hcloud.Client(token=dry.testbed.environment["HCLOUD_TOKEN"], api_endpoint=dry.testbed.lab["endpoint"])
    image = client.images.get_by_name_and_architecture("ubuntu-24.04", "x86")
    server_type = client.server_types.get_by_name("cx23")
    created = client.servers.create("foreign-1", server_type, image, start_after_create=False)
    try:
        inventory(dry, names=["foreign-1"])
        dry.run().fails().says("foreign-1", "adopt")
        assert client.servers.get_by_id(created.server.id).labels == {}
    finally:
        client.servers.get_by_id(created.server.id).delete()
