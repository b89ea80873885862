# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hetzner's own Ansible collection, unmodified, run by ansible-playbook and ansible-inventory against a dry lab."""

import json
import os
import subprocess

import pytest
import yaml

from lab.api.cloud_project import Settings
from tests.key_pairs import public_key

pytestmark = pytest.mark.long


@pytest.fixture
def vintage_lab(lab):
    """A lab that still shows data centers: the collection's releases before mid 2026 read that field."""
    return lab(kind="dry", settings=Settings(datacenters=True))


def ansible(lab, folder, *command):
    """Run an Ansible program against a lab."""
    env = os.environ | lab.env | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)


def play(lab, folder, tasks):
    """Run tasks on localhost; returns what they registered as ``result_*``."""
    dump = {
        "ansible.builtin.copy": {"dest": str(folder / "out.json"), "content": "{{ out | to_json }}", "mode": "0600"}
    }
    variables = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    playbook = [{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [*tasks, dump]}]
    (folder / "play.yml").write_text(yaml.safe_dump(playbook))
    done = ansible(lab, folder, "ansible-playbook", "-i", "localhost,", "-c", "local", "play.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text())


def out(**values):
    return {"ansible.builtin.set_fact": {"out": values}}


def test_server_key_rescue_and_infos(vintage_lab, tmp_path):
    server = {
        "name": "n1",
        "server_type": "cx23",
        "image": "ubuntu-24.04",
        "location": "nbg1",
        "ssh_keys": ["k1"],
        "labels": {"role": "worker"},
        "state": "stopped",
    }
    seen = play(
        vintage_lab,
        tmp_path,
        [
            {"hetzner.hcloud.ssh_key": {"name": "k1", "public_key": public_key()}, "register": "key"},
            {"hetzner.hcloud.server": server, "register": "created"},
            {"hetzner.hcloud.server": server, "register": "again"},
            {"hetzner.hcloud.server": server | {"rescue_mode": "linux64"}, "register": "armed"},
            {"hetzner.hcloud.server_info": {"label_selector": "role=worker"}, "register": "servers"},
            {
                "hetzner.hcloud.server": {
                    "name": "n1",
                    "rescue_mode": "linux64",
                    "ssh_keys": ["k1"],
                    "state": "started",
                },
                "register": "started",
            },
            {"hetzner.hcloud.image_info": {"type": "system"}, "register": "images"},
            {"hetzner.hcloud.server": {"name": "n1", "state": "absent"}, "register": "deleted"},
            {"hetzner.hcloud.server_info": {}, "register": "none_left"},
            out(
                created="{{ created.hcloud_server }}",
                again="{{ again.changed }}",
                armed="{{ armed.hcloud_server.rescue_enabled }}",
                password="{{ armed.root_password }}",
                found="{{ servers.hcloud_server_info }}",
                started="{{ started.hcloud_server.status }}",
                images="{{ images.hcloud_image_info | map(attribute='name') | list }}",
                left="{{ none_left.hcloud_server_info }}",
            ),
        ],
    )
    assert seen["created"]["status"] == "off"
    assert seen["created"]["location"] == "nbg1"
    assert seen["again"] is False
    assert seen["armed"] is True
    assert seen["password"]
    assert [server["name"] for server in seen["found"]] == ["n1"]
    assert seen["started"] == "running"
    assert "ubuntu-24.04" in seen["images"]
    assert seen["left"] == []


def test_inventory_plugin(vintage_lab, tmp_path):
    create = {"name": "n1", "server_type": "cx23", "image": "debian-12", "location": "fsn1", "labels": {"role": "cp"}}
    play(vintage_lab, tmp_path, [{"hetzner.hcloud.server": create}, out(done=True)])
    plugin = {"plugin": "hetzner.hcloud.hcloud", "keyed_groups": [{"key": "hcloud_labels.role", "prefix": "role"}]}
    (tmp_path / "lab.hcloud.yml").write_text(yaml.safe_dump(plugin))
    done = ansible(vintage_lab, tmp_path, "ansible-inventory", "-i", "lab.hcloud.yml", "--list")
    assert done.returncode == 0, done.stderr
    inventory = json.loads(done.stdout, object_hook=lambda value: value.get("__ansible_unsafe", value))
    facts = inventory["_meta"]["hostvars"]["n1"]
    assert inventory["role_cp"]["hosts"] == ["n1"]
    assert facts["ansible_host"] == facts["hcloud_ipv4"]
    assert (facts["hcloud_status"], facts["hcloud_location"]) == ("running", "fsn1")


def test_refusals_reach_the_user(vintage_lab, tmp_path):
    task = {
        "hetzner.hcloud.server": {"name": "bad_name", "server_type": "cx23", "image": "debian-12"},
        "register": "refused",
        "ignore_errors": True,
    }
    seen = play(vintage_lab, tmp_path, [task, out(failure="{{ refused.failure }}", msg="{{ refused.msg }}")])
    assert seen["failure"]["code"] == "invalid_input"
    assert "name" in seen["msg"]
