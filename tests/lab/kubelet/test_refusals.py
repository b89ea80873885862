# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stand-in does not start with, as the kubelet of its minor would not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.kubelet import VERSIONS
from tests.lab.kubelet.conftest import Factory
from tests.lab.kubelet.process import Kubelet


@pytest.mark.parametrize("version", VERSIONS)
def test_version(kubelet: Factory, version: str) -> None:
    assert kubelet(version).run("--version") == (0, f"Kubernetes v{version}\n")


def _refused(kubelet: Kubelet, *flags: str) -> str:
    status, said = kubelet.run(f"--config={kubelet.config}", *flags)
    assert status == 1, said
    assert '"command failed"' in said
    return said


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("1.34.11", "--container-runtime=remote"),
        ("1.35.8", "--pod-infra-container-image=registry.k8s.io/pause:3.10"),
        ("1.36.4", "--network-plugin=cni"),
        ("1.36.4", "--tls-curve-preference=23"),
    ],
)
def test_flags_the_minor_does_not_know(kubelet: Factory, version: str, flag: str) -> None:
    assert f"failed to parse kubelet flag: unknown flag: {flag.split('=')[0]}" in _refused(kubelet(version), flag)


def test_a_deprecated_flag_is_taken_and_told(kubelet: Factory) -> None:
    one = kubelet("1.34.11")
    one.configure(noSuchField=1)  # ends it after the flags were read
    said = _refused(one, "--pod-infra-container-image=registry.k8s.io/pause:3.10")
    assert "Flag --pod-infra-container-image has been deprecated" in said
    assert "unknown flag" not in said


def test_a_flag_without_its_value(kubelet: Factory) -> None:
    assert "flag needs an argument: --node-ip" in _refused(kubelet(), "--node-ip")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rotateCertificate": True}, 'unknown field \\"rotateCertificate\\"'),
        ({"authentication": {"x509": {"clientCaFile": "/x"}}}, 'unknown field \\"authentication.x509.clientCaFile\\"'),
        ({"registerWithTaints": [{"key": "a", "effekt": "b"}]}, 'unknown field \\"registerWithTaints[0].effekt\\"'),
        ({"maxPods": "many"}, "cannot unmarshal 'many' into field maxPods of type int"),
        ({"clusterDNS": "10.96.0.10"}, "into field clusterDNS of type list"),
        ({"shutdownGracePeriod": 60}, "cannot unmarshal 60 into field shutdownGracePeriod of type duration"),
        ({"cgroupDriver": "openrc"}, "cgroupDriver 'openrc' must be cgroupfs or systemd"),
        (
            {"shutdownGracePeriod": "10s", "shutdownGracePeriodCriticalPods": "20s"},
            "shutdownGracePeriod must be >= shutdownGracePeriodCriticalPods",
        ),
        ({"kind": "KubeProxyConfiguration"}, "is registered for version"),
        ({"kind": None}, "Object 'Kind' is missing"),
    ],
)
def test_configurations(kubelet: Factory, fields: dict[str, object], said: str) -> None:
    one = kubelet()
    one.configure(**fields)
    assert said in _refused(one)


def test_a_field_of_a_later_minor(kubelet: Factory) -> None:
    one = kubelet("1.35.8")
    one.configure(memoryReservationPolicy="None")
    assert 'unknown field \\"memoryReservationPolicy\\"' in _refused(one)


def test_a_key_that_stands_there_twice(kubelet: Factory) -> None:
    one = kubelet()
    one.config.write_text(one.config.read_text(encoding="utf-8") + "cgroupDriver: cgroupfs\n", encoding="utf-8")
    assert 'key \\"cgroupDriver\\" already set in map' in _refused(one)


def test_lenient_as_the_real_one_when_asked(kubelet: Factory) -> None:
    one = kubelet()
    one.environment["KUBELET_STANDIN_STRICT"] = "0"
    one.configure(rotateCertificate=True, cgroupDriver="openrc")  # the second one ends it
    said = _refused(one)
    assert "Using lenient decoding as strict decoding failed" in said
    assert "cgroupDriver" in said


def test_drop_ins_are_merged_in_their_order(kubelet: Factory, tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (folder / "10-a.conf").write_text(head + "cgroupDriver: first\n", encoding="utf-8")
    (folder / "20-b.conf").write_text(head + "cgroupDriver: second\nmemorySwap: {}\n", encoding="utf-8")
    (folder / "30-c.yaml").write_text(head + "cgroupDriver: third\n", encoding="utf-8")  # not .conf
    assert "cgroupDriver 'second' must be" in _refused(kubelet(), f"--config-dir={folder}")
    (folder / "40-d.conf").write_text("cgroupDriver: systemd\n", encoding="utf-8")
    assert "Object 'Kind' is missing" in _refused(kubelet(name="b"), f"--config-dir={folder}")


def test_active_swap(kubelet: Factory) -> None:
    one = kubelet()
    with (one.folder / "swaps").open("a", encoding="utf-8") as table:
        table.write("/swap.img file 1048572 0 -2\n")
    said = _refused(one)
    assert "running with swap on is not supported" in said
    assert "/swap.img" in said


def test_cgroup_v1(kubelet: Factory) -> None:
    one = kubelet()
    (one.folder / "cgroup" / "cgroup.controllers").unlink()
    assert "configured to not run on a host using cgroup v1" in _refused(one)


def test_no_container_runtime(kubelet: Factory) -> None:
    one = kubelet()
    one.configure(authentication={"webhook": {"enabled": False}}, authorization={"mode": "AlwaysAllow"})
    one.forget_runtime()
    said = _refused(one)
    assert "validate CRI v1 runtime API for endpoint" in said
    assert "connection refused" in said


def test_webhooks_without_an_api_server(kubelet: Factory) -> None:
    assert "no client provided, cannot use webhook authentication" in _refused(kubelet())


@pytest.mark.parametrize(
    "label",
    ["node-role.kubernetes.io/worker=", "node-restriction.kubernetes.io/x=1", "x.k8s.io/y=1", "kubernetes.io/role=a"],
)
def test_labels_a_node_may_not_give_itself(kubelet: Factory, label: str) -> None:
    said = _refused(kubelet(), f"--node-labels={label},example.com/fine=yes")
    assert "labels specified with --node-labels: [%s]" % label.split("=")[0] in said


def test_cloud_provider_is_external_or_nothing(kubelet: Factory) -> None:
    assert "unsupported value" in _refused(kubelet(), "--cloud-provider=hcloud")


def test_kubeconfig_that_is_not_there(kubelet: Factory) -> None:
    one = kubelet()
    assert "unable to load bootstrap kubeconfig" in _refused(one, *one.flags("n")[1:])
