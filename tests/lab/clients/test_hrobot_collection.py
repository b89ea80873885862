# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""community.hrobot, unmodified, against a dry lab: its endpoint is fixed, so the name is led to the lab.

The playbooks run in a mount namespace of their own, in which /etc/hosts leads the service's name to the lab's TLS
front; the lab's CA is named by SSL_CERT_FILE.
"""

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from lab.robot.tls import HOST
from tests.key_pairs import public_key

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.root, pytest.mark.long]

#: $1 is bound over /etc/hosts, the rest is run.
IN_NAMESPACE = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


@pytest.fixture
def robot(lab, tmp_path):
    """A lab with two dedicated servers and a TLS front."""
    running = lab(kind="dry", robot_tls=tmp_path / "tls")
    running.dedicated({"number": 4711, "name": "n1"}, {"number": 4712, "name": "n2", "reset": ["hw", "power"]})
    return running


def run(lab, folder, *command):
    """Run a command in the namespace; returns its output."""
    tls = lab.lab.robot_tls
    front = urlsplit(tls["endpoint"])
    assert front.port == 443, "the modules know no other port"
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{front.hostname} {HOST}\n")
    env = os.environ | lab.env
    env |= {"HOME": str(folder), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False"}
    env["SSL_CERT_FILE"] = tls["ca_file"]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "slave", "sh", "-c", IN_NAMESPACE, "sh", folder / "hosts", *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(lab, folder, tasks, **out):
    """Run tasks on localhost; returns the values of ``out``."""
    variables = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    defaults = {
        "group/community.hrobot.robot": {
            "hetzner_user": "{{ lookup('env', 'HROBOT_API_USER') }}",
            "hetzner_password": "{{ lookup('env', 'HROBOT_API_PASSWORD') }}",
            "rate_limit_retry_timeout": 0,
        }
    }
    dump = {
        "ansible.builtin.copy": {"dest": str(folder / "out.json"), "content": "{{ out | to_json }}", "mode": "0600"},
        "vars": {"out": out},
    }
    content = {"hosts": "localhost", "gather_facts": False, "vars": variables, "module_defaults": defaults}
    (folder / "play.yml").write_text(yaml.safe_dump([content | {"tasks": [*tasks, dump]}]))
    run(lab, folder, "ansible-playbook", "-i", "localhost,", "-c", "local", "play.yml")
    return json.loads((folder / "out.json").read_text())


def test_key_rescue_reset_and_infos(robot, tmp_path):
    key = public_key()
    seen = play(
        robot,
        tmp_path,
        [
            {"community.hrobot.ssh_key_info": {}, "register": "no_keys"},
            {"community.hrobot.ssh_key": {"state": "present", "name": "k1", "public_key": key}, "register": "added"},
            {"community.hrobot.ssh_key": {"state": "present", "name": "k2", "public_key": key}, "register": "renamed"},
            {"community.hrobot.ssh_key_info": {}, "register": "keys"},
            {"community.hrobot.server_info": {"full_info": True}, "register": "servers"},
            {"community.hrobot.server": {"server_number": 4711, "server_name": "node"}, "register": "server"},
            {
                "community.hrobot.boot": {
                    "server_number": 4711,
                    "install_linux": {"dist": "Debian 12 base", "lang": "en"},
                },
                "register": "linux",
            },
            {
                "community.hrobot.boot": {
                    "server_number": 4711,
                    "rescue": {"os": "linux", "authorized_keys": ["{{ added.fingerprint }}"]},
                },
                "register": "rescue",
            },
            {
                "community.hrobot.boot": {
                    "server_number": 4711,
                    "rescue": {"os": "linux", "authorized_keys": [key]},
                },
                "register": "again",
            },
            {"community.hrobot.reset_info": {"server_number": 4711}, "register": "ways"},
            {"community.hrobot.reset": {"server_number": 4711, "reset_type": "hardware"}},
            {"community.hrobot.boot": {"server_number": 4711, "regular_boot": True}, "register": "booted"},
            {"community.hrobot.ssh_key": {"state": "absent", "fingerprint": "{{ added.fingerprint }}"}},
        ],
        no_keys="{{ no_keys.ssh_keys }}",
        renamed="{{ renamed.changed }}",
        keys="{{ keys.ssh_keys }}",
        servers="{{ servers.servers }}",
        server="{{ server.server.server_name }}",
        linux="{{ linux.configuration_type }}",
        password="{{ rescue.password | length }}",
        again="{{ again.changed }}",
        ways="{{ ways.reset }}",
        booted="{{ booted.changed }}",
    )
    assert seen["no_keys"] == []
    assert (seen["renamed"], [key["name"] for key in seen["keys"]]) == (True, ["k2"])
    assert [(server["server_number"], server["server_name"]) for server in seen["servers"]] == [
        (4711, "n1"),
        (4712, "n2"),
    ]
    assert all(server["rescue"] is True for server in seen["servers"]), "full_info asks for each server"
    assert (seen["server"], seen["linux"]) == ("node", "install_linux")
    assert int(seen["password"]) > 0
    assert seen["again"] is False, "the same rescue is not armed twice"
    assert {"software", "hardware", "power", "manual"} <= set(seen["ways"]["type"])
    assert seen["ways"]["operating_status"] == "running"
    assert seen["booted"] is False, "the reset consumed the rescue"
    (machine,) = (row for row in robot.control("GET", "/machines")["machines"] if row["number"] == 4711)
    assert [boot["source"] for boot in machine["boots"]] == ["disk", "rescue"]
    assert machine["boots"][1]["authorized_keys"] == [key.rpartition(" ")[0]]


def test_addresses_firewalls_and_switches(robot, tmp_path):
    robot.dedicated({"number": 4713, "name": "n3", "failover": ["192.0.2.10"]})
    (address,) = (row["address"] for row in robot.control("GET", "/machines")["machines"] if row["number"] == 4711)
    rule = {"name": "ssh", "ip_version": "ipv4", "dst_port": "22", "protocol": "tcp", "action": "accept"}
    wall = {"server_number": 4711, "state": "present", "rules": {"input": [rule]}, "wait_delay": 1}
    switch = {"vlan": 4010, "name": "inner", "servers": ["4711", "4712"], "wait_delay": 1}
    names = ("named", "again", "led", "walled", "same", "switched", "left")
    tasks = [
        {"community.hrobot.reverse_dns": {"ip": address, "value": "n1.example.com"}},
        {"community.hrobot.reverse_dns": {"ip": address, "value": "n1.example.com"}},
        {"community.hrobot.failover_ip": {"failover_ip": "192.0.2.10", "value": address}},
        {"community.hrobot.firewall": wall},
        {"community.hrobot.firewall": wall},
        {"community.hrobot.v_switch": switch},
        {"community.hrobot.v_switch": switch | {"servers": ["4712"]}},
    ]
    seen = play(
        robot,
        tmp_path,
        [task | {"register": name} for task, name in zip(tasks, names, strict=True)],
        rules="{{ same.firewall.rules.input }}",
        members="{{ left.v_switch.server | map(attribute='server_number') | list }}",
        **{name: "{{ " + name + ".changed }}" for name in names},
    )
    assert {name: seen[name] for name in names} == dict.fromkeys(names, True) | {"again": False, "same": False}
    assert [(item["name"], item["dst_port"], item["action"]) for item in seen["rules"]] == [("ssh", "22", "accept")]
    assert seen["members"] == [4712]


def test_refusals_reach_the_user(robot, tmp_path):
    robot.control("POST", "/robot/limits", {"route": "POST /reset/{server}", "remaining": 1})
    tasks = [
        {"community.hrobot.reset": {"server_number": 4712, "reset_type": "software"}},
        {"community.hrobot.reset": {"server_number": 1, "reset_type": "hardware"}},
        {"community.hrobot.server": {"server_number": 1, "server_name": "x"}},
    ]
    names = ("missing_type", "limit", "unknown")
    seen = play(
        robot,
        tmp_path,
        [task | {"register": name, "ignore_errors": True} for task, name in zip(tasks, names, strict=True)],
        **{name: "{{ " + name + ".msg }}" for name in names},
    )
    assert seen["missing_type"] == "The chosen reset method is not supported for this server"
    assert "RATE_LIMIT_EXCEEDED" in seen["limit"]
    assert "Maximum allowed requests: 50" in seen["limit"]
    assert seen["unknown"] == "This server does not exist, or you do not have access rights for it"


def test_the_inventory_of_our_documentation(robot, tmp_path):
    robot.dedicated({"number": 4713, "name": "n3", "product": "AX52"})
    text = (ROOT / "docs/robot.md").read_text().partition("```yaml\n# inventory.robot.yml\n")[2].partition("```")[0]
    (tmp_path / "inventory.robot.yml").write_text(text)
    seen = json.loads(run(robot, tmp_path, "ansible-inventory", "-i", "inventory.robot.yml", "--list"))
    assert {name: host["hrobot_server_number"] for name, host in seen["_meta"]["hostvars"].items()} == {"n3": 4713}
