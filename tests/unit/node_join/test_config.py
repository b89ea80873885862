# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's configuration: merged, filtered by minor, checked against the table of fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import kubelet, kubelet_config

FIELDS = kubelet_config.FIELDS["1.36"]


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"maxPod": 5}, "maxPod: this kubelet knows no such field; did you mean maxPods?"),
        ({"maxpods": 5}, "did you mean maxPods?"),
        ({"authentication": {"webhok": {}}}, "authentication.webhok: .* did you mean webhook?"),
        ({"maxPods": "5"}, "maxPods: it is '5', but must be a whole number"),
        ({"rotateCertificates": "true"}, "rotateCertificates: it is 'true', but must be true or false"),
        ({"clusterDNS": "10.96.0.10"}, "clusterDNS: .* must be a list"),
        ({"clusterDNS": [10]}, r"clusterDNS\[0\]: it is 10, but must be a text"),
        ({"shutdownGracePeriod": "60"}, "shutdownGracePeriod: .* a duration such as 30s"),
        ({"evictionHard": ["a"]}, "evictionHard: .* must be a dictionary"),
        ({"registerWithTaints": [{"kye": "a"}]}, r"registerWithTaints\[0\].kye: "),
    ],
)
def test_fields_that_are_refused(given_, said):
    with pytest.raises(kubelet_config.InvalidConfig, match=said):
        kubelet_config.check_fields(given_, FIELDS)


def test_fields_that_are_taken():
    kubelet_config.check_fields(
        {
            "apiVersion": kubelet_config.API_VERSION,
            "kind": kubelet_config.KIND,
            "maxPods": 50,
            "evictionHard": {"memory.available": "200Mi", "anything": "1%"},
            "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
            "logging": {"format": "json"},
            "memorySwap": None,
        },
        FIELDS,
    )


def defaults(swap="off", read_only_usr=False, **inputs):
    variables = {
        "cluster_dns": [],
        "cluster_domain": "cluster.local",
        "max_pods": 0,
        "provider_id": "",
        "serving_certs": "self-signed",
        "template_path": [],
        **inputs,
    }
    facts = {
        "kube_reserved": None,
        "read_only_usr": read_only_usr,
        "resolv": {},
        "shutdown": {},
        "runtime_socket": "unix:///run/containerd/containerd.sock",
        "swap": swap,
        "system_reserved": None,
        "taints": [],
    }
    return kubelet_config.defaults(variables, facts)


@pytest.mark.parametrize("minor", sorted(kubelet_config.FIELDS))
@pytest.mark.parametrize("swap", ["off", "limited", "keep"])
def test_defaults_are_fields_of_every_minor(minor, swap):
    made = defaults(swap=swap, cluster_dns=["10.96.0.10"], max_pods=5, provider_id="x://1", read_only_usr=True)
    kubelet_config.check_fields(made, kubelet_config.FIELDS[minor])
    assert kubelet_config.taken_fields(made, minor, kubelet_config.FIELDS[minor]) == made
    assert made["failSwapOn"] is (swap == "off")
    assert ("memorySwap" in made) is (swap == "limited")
    # the traps: none of these is the kubelet's own default
    assert (made["rotateCertificates"], made["cgroupDriver"], made["readOnlyPort"]) == (True, "systemd", 0)
    assert made["authentication"]["anonymous"] == {"enabled": False}
    assert made["authorization"]["mode"] == "Webhook"
    assert (made["seccompDefault"], made["tlsMinVersion"], made["podPidsLimit"]) == (True, "VersionTLS12", 4096)


def test_an_old_minor_gets_no_field_it_refuses():
    made = kubelet_config.taken_fields(defaults(provider_id="x://1"), "1.20", None)
    assert not {
        "seccompDefault",
        "shutdownGracePeriod",
        "containerRuntimeEndpoint",
        "providerID",
        "maxParallelImagePulls",
    } & set(made)
    assert made["cgroupDriver"] == "systemd"


@pytest.mark.parametrize(
    ("resolv", "file"),
    [
        ({}, ""),
        ({"/etc/resolv.conf": []}, "/etc/resolv.conf"),
        ({"/etc/resolv.conf": ["192.0.2.1"], kubelet_config.RESOLVED: ["192.0.2.2"]}, "/etc/resolv.conf"),
        ({"/etc/resolv.conf": ["127.0.0.53"], kubelet_config.RESOLVED: ["192.0.2.2"]}, kubelet_config.RESOLVED),
        ({"/etc/resolv.conf": ["127.0.0.1"]}, "/etc/resolv.conf"),
    ],
)
def test_pods_are_not_sent_to_the_stub_of_the_machine(resolv, file):
    assert kubelet_config.resolv_conf(resolv) == file


def test_one_eviction_signal_does_not_drop_the_others():
    made = kubelet_config.merged_config({}, {"evictionHard": {"memory.available": "1Gi", "imagefs.available": None}})
    assert made["evictionHard"]["memory.available"] == "1Gi"
    assert made["evictionHard"]["nodefs.available"] == "10%"
    assert "imagefs.available" not in made["evictionHard"]
    both = kubelet_config.merged_config(
        {}, {"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True}
    )
    assert both["evictionHard"] == {"memory.available": "1Gi"}


def test_pulls_one_by_one_are_one_at_a_time():
    made = kubelet_config.merged_config(defaults(), {"serializeImagePulls": True})
    assert "maxParallelImagePulls" not in made
    with pytest.raises(kubelet_config.InvalidConfig, match="serializeImagePulls false"):
        kubelet_config.merged_config(defaults(), {"serializeImagePulls": True, "maxParallelImagePulls": 4})


@pytest.mark.parametrize(
    ("memory", "reserved"),
    [
        (512 << 20, 128 << 20),  # never more than a quarter
        (1 << 30, 256 << 20),
        (4 << 30, 1 << 30),
        (8 << 30, int(1.8 * (1 << 30))),
        (16 << 30, int(2.6 * (1 << 30))),
    ],
)
def test_memory_that_is_kept_back(memory, reserved):
    assert abs(kubelet.memory_reserved(memory) - reserved) <= 1


@pytest.mark.parametrize(("cpus", "milli"), [(1, 60), (2, 70), (4, 80), (8, 90)])
def test_cpu_that_is_kept_back(cpus, milli):
    assert kubelet.cpu_reserved(cpus) == milli


@given(st.integers(1, 512), st.integers(128 << 20, 4 << 40), st.none() | st.integers(1 << 30, 10 << 40))
def test_a_machine_keeps_most_of_itself(cpus, memory, disk):
    reserved = kubelet.auto_reserved(cpus, memory, disk)
    kubelet_config.check_fields({"kubeReserved": reserved}, FIELDS)
    assert 0 < int(reserved["memory"][:-2]) << 20 <= memory // 4 + (1 << 20)
    assert int(reserved["cpu"][:-1]) <= cpus * 60
    if disk:
        assert int(reserved["ephemeral-storage"][:-2]) << 20 <= disk // 2
