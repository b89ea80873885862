# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong variables end the role before any machine is asked: one error with the variable, the value and the way out."""

from __future__ import annotations

import pytest

from tests.integration.controller import Controller
from tests.integration.runs import Run

#: host → its wrong variables, and what its error has to say
ROWS = {
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


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run in which every host has something wrong, and no host could be reached."""
    controller = Controller(None, tmp_path_factory.mktemp("controller"))
    for name, (variables, _words) in ROWS.items():
        # a connection fails at once, as unreachable
        controller.hosts[name] = {"ansible_host": "127.0.0.1", "ansible_port": 1, **variables}
    return controller.play("kubenode.provision.node_base", "--forks", "4")


@pytest.mark.parametrize("name", ROWS)
def test_one_error_names_variable_value_and_way_out(play: Run, name: str):
    error = play.error(name)
    for word in ROWS[name][1]:
        assert word in error


def test_no_machine_was_asked(play: Run):
    assert [entry for entry in play.results if entry["kind"] == "unreachable"] == []
    assert {entry["host"] for entry in play.results if entry["kind"] == "failed"} == set(ROWS)


def test_secrets_are_in_no_error(play: Run):
    assert "hunter2" not in play.error("proxy")


def test_swap_off_without_quotes_is_understood(tmp_path):
    """YAML reads ``off`` as false."""
    controller = Controller(None, tmp_path)
    controller.hosts["unquoted"] = {"ansible_host": "127.0.0.1", "ansible_port": 1, "base_swap": False}
    play = controller.play("kubenode.provision.node_base")
    assert [entry["task"].rpartition("| ")[2] for entry in play.of("unquoted", "unreachable")] == ["Read the facts"]
