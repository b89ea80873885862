# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong variables of join end the playbook node before base has asked any machine: one line, wrapped in nothing."""

from __future__ import annotations

import pytest

from tests.integration.controller import Controller
from tests.integration.runs import Run

CLUSTER = {
    "join_api_server": "https://192.0.2.1:6443",
    "join_discovery": {"ca_hashes": ["sha256:" + "0" * 64]},
    "join_token": "abcdef.0123456789abcdef",
}

#: host → its wrong variables, and how its error begins
ROWS = {
    "server": ({"join_api_server": ""}, "join_api_server: it is empty; give the address"),
    "trust": ({"join_discovery": {}}, "join_ca_cert: there is no CA to trust"),
    "taint": ({"join_taints": ["a"]}, "join_taints: 'a' is no taint"),
    "label": ({"join_labels": {"node-role.kubernetes.io/x": ""}}, "join_labels: a kubelet may not set"),
    "words": ({"join_check_name": "maybe"}, "join_check_name: 'maybe' must be true or false"),
    "field": ({"join_kubelet_config": {"maxPod": 1}}, "join_kubelet_config: maxPod: this kubelet knows no such field"),
    "flag": ({"join_kubelet_extra_args": {"evil": "x"}}, "join_kubelet_extra_args: kubelet 1.37 knows no flag --evil"),
    "drop-in": ({"join_kubelet_drop_ins": {"a.conf": "a: ["}}, "join_kubelet_drop_ins: a.conf: not YAML"),
    "token": ({"join_token": "abcdef.GEHEIM"}, "join_token: a bootstrap token is"),
}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run in which every host has something wrong, and no host could be reached."""
    controller = Controller(None, tmp_path_factory.mktemp("controller"))
    for name, (variables, _begin) in ROWS.items():
        # a connection fails at once, as unreachable
        controller.hosts[name] = {"ansible_host": "127.0.0.1", "ansible_port": 1, **CLUSTER, **variables}
    return controller.play("kubenode.provision.node", "--forks", "4")


@pytest.mark.parametrize("name", ROWS)
def test_one_line_names_variable_value_and_way_out(play: Run, name: str):
    error = play.error(name)
    assert error.startswith(ROWS[name][1])
    assert len(error.splitlines()) == 1
    assert "GEHEIM" not in error


def test_no_machine_was_asked(play: Run):
    assert [entry for entry in play.results if entry["kind"] == "unreachable"] == []


def test_truth_as_text_of_the_command_line(tmp_path):
    """Every switch of both roles, as `-e name=word` gives it; the machine that cannot be reached is what ends it."""
    controller = Controller(None, tmp_path)
    controller.hosts["far"] = {"ansible_host": "127.0.0.1", "ansible_port": 1, **CLUSTER}
    words = {"base_prebake": "yes", "base_ipvs": "on", "base_kubeadm": "1", "base_manage_swap": "off"}
    words |= {"join_check_name": "off", "join_ready": "n"}
    flags = [word for name, value in words.items() for word in ("-e", f"{name}={value}")]
    play = controller.play("kubenode.provision.node", *flags)
    assert [entry["host"] for entry in play.results if entry["kind"] == "unreachable"] == ["far"], play.output
