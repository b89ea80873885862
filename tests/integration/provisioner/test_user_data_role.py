# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role node_user_data: what it refuses and warns about, by the names of its variables."""

import pytest

from tests.integration.controller import Controller
from tests.unit.node_userdata.examples import FULL, SMALL

ROLE = [{"hosts": "all", "gather_facts": False, "roles": ["kubenode.provision.node_user_data"]}]
SOURCE = {"node_user_data_provision_source": SMALL["provision_source"]}
JOINS = {
    **SOURCE,
    "join_api_server": FULL["api_server"],
    "join_ca_cert": FULL["ca_cert"],
    "join_token": FULL["token"],
}


@pytest.fixture
def controller(tmp_path):
    controller = Controller(None, tmp_path)
    yield controller
    controller.stop()


def test_what_cannot_make_a_node_is_refused_in_the_words_of_the_role(controller):
    wrong = {
        "no-token": {**JOINS, "join_token": "", "join_token_create": {"kubeconfig": "x"}},
        "leaves": {**JOINS, "join_state": "absent"},
        "both": {**JOINS, "node_user_data_phase": "join", "node_user_data_prebake": True},
        "no-source": {**JOINS, "node_user_data_provision_source": "", "node_user_data_attempts": 0},
        "no-format": {**JOINS, "node_user_data_format": "yaml", "node_user_data_phase": "joint"},
    }
    for name, variables in wrong.items():
        controller.hosts[name] = {"ansible_connection": "local", **variables}
    done = controller.play(ROLE).fails().says(
        "join_token: is missing; phase all joins a cluster, and join_token_create makes one from a controller only",
        "join_state: is absent; phase all joins a cluster, so leave it out",
        "node_user_data_prebake: ends after base, but phase is join",
        "node_user_data_attempts: is 0; it must be",
        "node_user_data_format: is 'yaml'; choose one of cloud-init, ignition; node_user_data_phase: is 'joint'; ",
    )  # fmt: skip
    assert "argument_spec" not in done.output
    assert done.output.count("failed=1") == len(wrong)
    controller.hosts = {"no-source": {"ansible_connection": "local", "node_user_data_phase": "base"}}
    controller.play(ROLE).fails().says("node_user_data_provision_source: is missing; give URL#sha256=DIGEST")


def test_hosts_with_one_file_and_misspelt_variables(controller, tmp_path):
    for name in ("node-1", "node-2", "node-3"):
        controller.hosts[name] = {"ansible_connection": "local", **JOINS}
        controller.hosts[name]["node_user_data_dest"] = str(tmp_path / "data")
    controller.hosts["node-3"]["node_user_data_dest"] = str(tmp_path / "other")
    controller.play(ROLE).fails().says(f"node_user_data_dest: {tmp_path}/data is the file of node-1, node-2; give each")
    assert not (tmp_path / "data").exists()
    controller.hosts["node-1"].update(
        node_user_data_dest=str(tmp_path / "one"), node_user_data_pauze=1, base_kubernets_version="1.36.4"
    )
    controller.play(ROLE).ok().says(
        "node_user_data_pauze, set for node-1, is no variable of kubenode.provision and does nothing",
        "base_kubernets_version, set for node-1, is no variable",
    )
    assert (tmp_path / "one").exists()
