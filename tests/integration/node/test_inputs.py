# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong variables end a run before any machine is asked: one error with the variable, the value and the way out."""

from typing import Any

import pytest
import yaml

from dev.toolchain.paths import CHECKOUT
from tests.integration.controller import Controller
from tests.integration.runs import Run

BASE, NODE = "kubenode.provision.node_base", "kubenode.provision.node"
#: A connection fails at once, as unreachable.
FAR = {"ansible_host": "127.0.0.1", "ansible_port": 1}
#: host → its wrong variables, and what its error has to say
OF_BASE = {
    "version": ({"base_kubernetes_version": "banana"}, ["base_kubernetes_version", "'banana'", "1.36.4"]),
    "version-v": ({"base_kubernetes_version": "v1.36.4"}, ["base_kubernetes_version", "without v"]),
    "unknown": ({"base_kubernetes_version": "1.36.99"}, ["1.36.99", "base_checksums"]),
    "containerd": ({"base_containerd_version": "9.9.9"}, ["containerd", "9.9.9", "base_checksums"]),
    "runtime": ({"base_container_runtime": "rocket"}, ["base_container_runtime", "containerd, docker"]),
    "swap": ({"base_swap": "sometimes"}, ["base_swap", "off, limited, keep"]),
    "disk": ({"base_min_disk": "much"}, ["base_min_disk", "'much'", "4G"]),
    "sum": (
        {"base_checksums": {"kubelet": {"1.36.4": {"amd64": "0123"}}}},
        ["base_checksums", "0123"],
    ),
    "ca": ({"base_extra_ca": ["no certificate"]}, ["base_extra_ca", "PEM"]),
    "sysctl": ({"base_sysctls": {"net.ipv4 ip_forward\nx": "1"}}, ["base_sysctls"]),
    "module": ({"base_kernel_modules": ["../evil"]}, ["base_kernel_modules", "../evil"]),
    "port": ({"base_firewall_ports": ["10250/icmp"]}, ["base_firewall_ports", "10250/icmp"]),
    "proxy": ({"base_http_proxy": "user:hunter2@nowhere"}, ["base_http_proxy"]),
    "mirror": ({"base_mirror": "ftp://mirror"}, ["base_mirror", "ftp://mirror"]),
    "package": ({"base_packages_extra": ["jq; reboot"]}, ["base_packages_extra", "jq; reboot"]),
    "archive": ({"base_image_archives": [{"url": "https://a/b.tar"}]}, ["base_image_archives", "sha256"]),
    "key": ({"base_kubelet_source": "repository"}, ["base_repository_keys"]),
    "clean": ({"base_prebake_clean": ["everything"]}, ["base_prebake_clean", "machine-id"]),
    "two": (
        {"base_kubernetes_version": "1.2", "base_journald_max": "-1"},
        ["base_kubernetes_version", "base_journald_max"],
    ),
}
CLUSTER = {
    "join_api_server": "https://192.0.2.1:6443",
    "join_discovery": {"ca_hashes": ["sha256:" + "0" * 64]},
    "join_token": "abcdef.0123456789abcdef",
}

#: the same of the role join, in the playbook node, and how the error begins
OF_JOIN = {
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


def refused(folder: pytest.TempPathFactory, playbook: str, rows: dict[str, Any], **right: Any) -> Run:
    """One run in which every host has something wrong beside what is ``right``, and no host could be reached."""
    controller = Controller(None, folder.mktemp("controller"))
    controller.hosts = {name: {**FAR, **right, **variables} for name, (variables, _words) in rows.items()}
    play = controller.play(playbook, "--forks", "4")
    assert [entry for entry in play.results if entry["kind"] == "unreachable"] == [], "a machine was asked"
    assert {entry["host"] for entry in play.results if entry["kind"] == "failed"} == set(rows)
    return play


@pytest.fixture(scope="module")
def of_base(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return refused(tmp_path_factory, BASE, OF_BASE)


@pytest.fixture(scope="module")
def of_join(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return refused(tmp_path_factory, NODE, OF_JOIN, **CLUSTER)


@pytest.mark.parametrize("name", OF_BASE)
def test_one_error_names_variable_value_and_way_out(of_base: Run, name: str):
    error = of_base.error(name)
    for word in OF_BASE[name][1]:
        assert word in error
    assert "hunter2" not in error


@pytest.mark.parametrize("name", OF_JOIN)
def test_one_line_before_base_has_asked_any_machine(of_join: Run, name: str):
    error = of_join.error(name)
    assert error.startswith(OF_JOIN[name][1])
    assert len(error.splitlines()) == 1
    assert "GEHEIM" not in error


def test_swap_off_without_quotes_is_understood(tmp_path):
    """YAML reads ``off`` as false."""
    controller = Controller(None, tmp_path)
    controller.hosts["unquoted"] = {**FAR, "base_swap": False}
    play = controller.play(BASE)
    assert [entry["task"].rpartition("| ")[2] for entry in play.of("unquoted", "unreachable")] == ["Read the facts"]


def test_truth_as_text_of_the_command_line(tmp_path):
    """Every switch of both roles, as `-e name=word` gives it; the machine that cannot be reached is what ends it."""
    controller = Controller(None, tmp_path)
    controller.hosts["far"] = {**FAR, **CLUSTER}
    words = {"base_prebake": "yes", "base_ipvs": "on", "base_kubeadm": "1", "base_manage_swap": "off"}
    words |= {"join_check_name": "off", "join_ready": "n"}
    flags = [word for name, value in words.items() for word in ("-e", f"{name}={value}")]
    play = controller.play(NODE, *flags)
    assert [entry["host"] for entry in play.results if entry["kind"] == "unreachable"] == ["far"], play.output


def test_one_refusal_of_the_preflight_ends_the_role(tmp_path):
    """The role's own task, without a machine, given the result of a preflight."""
    tasks = yaml.safe_load((CHECKOUT / "roles/base/tasks/preflight.yml").read_text())
    (task,) = [one for one in tasks if one["name"].endswith("Refuse what cannot work")]
    controller = Controller(None, tmp_path)
    for name, refusals in (("good", []), ("bad", ["the kernel is too old"])):
        controller.hosts[name] = {"__base_preflight": {"refusals": refusals}}
    went_on = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}}
    play = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": [task, went_on]}
    done = controller.play([play])
    assert done.rc == 2, done.output
    assert "the kernel is too old" in done.output
    assert ("good goes on" in done.output, "bad goes on" in done.output) == (True, False)


@pytest.mark.parametrize("hidden", [("SKIPPED",), ("SKIPPED", "OK")])
def test_a_misspelt_variable_is_seen_whatever_the_callback_leaves_out(tmp_path, hidden):
    """From ansible-core 2.19 on, a warning of a task is left out with the result of the task."""
    controller = Controller(None, tmp_path)
    controller.hosts["far"] = FAR
    flags = ["--check", "-e", "base_manage_kubelett=false"]
    play = controller.play(BASE, *flags, env={f"ANSIBLE_DISPLAY_{one}_HOSTS": "no" for one in hidden})
    assert "base_manage_kubelett" in play.output
    play.says("is no variable of kubenode.provision and does nothing; base_manage_kubelet is one")
    assert play.output.count("[WARNING]: base_manage_kubelett") == 1
