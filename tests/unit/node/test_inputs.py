# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role's variables are refused for, and what they become."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from hypothesis import given as for_all
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs, trust
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_inputs import PlanError
from tests.unit.node.facts import data, given
from tests.unit.node.openpgp_keys import BOTH, DOCKER_LIKE, KUBERNETES_LIKE
from tests.unit.node.samples import CA, unhurried

KEYS = {"kubernetes": KUBERNETES_LIKE.text, "docker": DOCKER_LIKE.text}
PRIVATE_KEY = CA.replace("CERTIFICATE", "PRIVATE KEY")
MIRROR = {"url": "https://mirror.example"}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kubernetes_version": "v1.36.4"}, "base_kubernetes_version is 'v1.36.4'"),
    ({"kubernetes_version": 1.36}, "base_kubernetes_version is 1.36;"),
    ({"kubernetes_version": ""}, "base_kubernetes_version is ''"),
    ({"kubernetes_version": "1.36.99"}, "base_checksums: {kubelet: {'1.36.99':"),
    ({"containerd_version": "9.9.9"}, "base_checksums: {containerd: {'9.9.9':"),
    ({"containerd_source": "distribution", "containerd_version": "2.2.7"}, "the distribution decides"),
    ({"container_runtime": "crio"}, "use one of containerd, docker"),
    ({"swap": "on"}, "base_swap is 'on'; use one of off, limited, keep"),
    ({"ipvs": "maybe"}, "base_ipvs is 'maybe'; use true or false"),
    ({"manage_swap": 2}, "base_manage_swap is 2"),
    ({"bin_dir": "/opt/../etc"}, "base_bin_dir"),
    ({"bin_dir": "opt/bin"}, "base_bin_dir"),
    ({"bin_dir": '/opt/b"in'}, "base_bin_dir"),
    ({"packages_extra": "jq"}, "base_packages_extra is 'jq'; use a list"),
    ({"packages_extra": ["jq; reboot"]}, "base_packages_extra"),
    ({"packages_extra": ["-o=x"]}, "base_packages_extra"),
    ({"kernel_modules": ["a/b"]}, "base_kernel_modules"),
    ({"storage_clients": ["nfs", "tape"]}, "base_storage_clients is 'tape'; use some of nfs, cifs"),
    ({"firewall_ports": ["10250"]}, "base_firewall_ports is '10250'"),
    ({"firewall_ports": ["2-1/tcp"]}, "base_firewall_ports"),
    ({"firewall_ports": ["65536/udp"]}, "base_firewall_ports"),
    ({"sysctls": {"net.ipv4.ip_forward": "1\nkernel.panic = 0"}}, "base_sysctls.net.ipv4.ip_forward"),
    ({"sysctls": {"a b": 1}}, "base_sysctls is 'a b'"),
    ({"sysctls": {"net/../../etc": 1}}, "base_sysctls"),
    ({"sysctls": {"kernel.panic": True}}, "base_sysctls.kernel.panic is True"),
    ({"journald_max": "big"}, "base_journald_max is 'big'; use a size such as 512M or 4G"),
    ({"min_disk": "-1G"}, "base_min_disk"),
    ({"shutdown_grace_period": "soon"}, "base_shutdown_grace_period"),
    ({"shutdown_grace_period": "10s"}, "base_shutdown_grace_period_critical is '20s'"),
    ({"kubelet_watchdog": "5s"}, "base_kubelet_watchdog is '5s'; use a span of 10s or more"),
    ({"runtime_probe": {"threshold": 0}}, "base_runtime_probe.threshold is 0"),
    ({"runtime_probe": {"interval": "0s"}}, "base_runtime_probe.interval is '0s'"),
    ({"runtime_probe": {"intervall": "9s"}}, "base_runtime_probe"),
    ({"max_clock_skew": 0}, "base_max_clock_skew is 0"),
    ({"mirror": "ftp://mirror.example"}, "base_mirror is 'ftp://mirror.example'"),
    ({"mirrors": {"dl.k8s.io": "mirror.example"}}, "base_mirrors.dl.k8s.io"),
    ({"http_proxy": 'http://proxy.example/"'}, "base_http_proxy"),
    ({"no_proxy": "a\nb"}, "base_no_proxy"),
    ({"checksums": {"kubelet": {"1.36.4": {"amd64": "ABC"}}}}, "base_checksums.kubelet.1.36.4.amd64 is 'ABC'"),
    ({"checksums": {"kubelet": "abc"}}, "base_checksums.kubelet"),
    ({"registry_mirrors": {"../etc": [MIRROR]}}, "base_registry_mirrors is '../etc'"),
    ({"registry_mirrors": {"docker.io": MIRROR}}, "base_registry_mirrors.docker.io"),
    ({"registry_mirrors": {"docker.io": [{"url": "https://u:p@mirror.example"}]}}, "give the credentials as username"),
    ({"registry_mirrors": {"docker.io": [{**MIRROR, "username": "u"}]}}, "give username and password together"),
    ({"registry_mirrors": {"docker.io": [{**MIRROR, "mirrors": 1}]}}, "use the fields url, ca,"),
    ({"registry_mirrors": {"docker.io": [{**MIRROR, "header": {"X": "a\nb"}}]}}, "registry_mirrors.docker.io.header"),
    ({"registry_mirrors": {"docker.io": [{**MIRROR, "ca": PRIVATE_KEY}]}}, "registry_mirrors.docker.io.ca"),
    ({"registry_mirrors": {"quay.io": [MIRROR]}, "container_runtime": "docker"}, "mirrors docker.io only"),
    ({"extra_ca": [PRIVATE_KEY]}, "base_extra_ca[0]"),
    ({"extra_ca": CA}, "use a list"),
    ({"images": ["a b"]}, "base_images is 'a b'"),
    ({"sandbox_image": "pause\n"}, "base_sandbox_image"),
    ({"snapshotter": "../x"}, "base_snapshotter"),
    ({"image_archives": [{"url": "https://x.example/a.tar"}]}, "base_image_archives"),
    ({"image_archives": [{"path": "a.tar", "sha256": "0" * 64}]}, "base_image_archives.path"),
    ({"kubelet_source": "repository"}, "DE15B14486CD377B9E876E1A234654DA9A296436"),
    ({"kubelet_source": "repository", "repository_keys": KEYS}, f"key {KUBERNETES_LIKE.fingerprint}"),
]


@pytest.mark.parametrize(("variables", "message"), REFUSED)
def test_one_error_names_variable_value_and_fix(variables, message):
    with pytest.raises(PlanError) as refused:
        given(**variables)
    assert message in str(refused.value)


def test_everything_wrong_is_reported_at_once():
    with pytest.raises(PlanError) as refused:
        given(swap="on", journald_max="x", mirror="y")
    assert len(str(refused.value).splitlines()) == 3


SECRETS = [
    {"http_proxy": "http://user:geheim@proxy example"},
    {"registry_mirrors": {"docker.io": [{"url": "https://u:geheim@m.example"}]}},
    {"registry_mirrors": {"docker.io": [{**MIRROR, "username": "u:v", "password": "geheim"}]}},
    {"registry_mirrors": {"docker.io": [{**MIRROR, "header": {"Authorization": "geheim\n"}}]}},
    {"registry_mirrors": {"docker.io": "geheim"}},
]


@pytest.mark.parametrize("variables", SECRETS)
def test_an_error_never_shows_a_credential(variables):
    with pytest.raises(PlanError) as refused:
        given(**variables)
    assert "geheim" not in str(refused.value)


def test_prefix_or_not():
    assert given(swap="keep") == base_inputs.normalised({"base_swap": "keep", "base_unknown": 1, "other": 2}, data())


WORDS = [
    ("yes", True),
    ("true", True),
    ("False", False),
    ("no", False),
    (True, True),
    ("1", True),
    ("N", False),
    (0, False),
]


@pytest.mark.parametrize(("word", "meant"), WORDS)
def test_the_command_line_gives_text(word, meant):
    taken = given(ipvs=word, max_clock_skew="45", runtime_probe={"threshold": "3"})
    assert taken["ipvs"] is meant
    assert taken["max_clock_skew"] == 45
    assert taken["runtime_probe"] == {"interval": "10s", "timeout": "10s", "threshold": 3}


def test_a_bare_off_of_yaml_turns_swap_off():
    assert given(**yaml.safe_load("swap: off"))["swap"] == "off"


def test_own_checksums_are_laid_over_ours():
    ours = data()["checksums"]["kubelet"]["1.36.4"]
    taken = given(kubernetes_version="1.36.4", checksums={"kubelet": {"1.36.4": {"amd64": "a" * 64}}})
    assert taken["checksums"]["kubelet"]["1.36.4"] == {"amd64": "a" * 64, "arm64": ours["arm64"]}


def test_a_version_with_own_checksums_is_taken():
    digests = {"amd64": "a" * 64, "arm64": "b" * 64}
    taken = given(kubernetes_version="1.33.9", checksums={"kubelet": {"1.33.9": digests}}, version_check="warn")
    assert taken["checksums"]["kubelet"] == {"1.33.9": digests}
    assert taken["kubernetes_minor"] == "1.33"


def test_what_is_not_managed_needs_no_checksum():
    assert given(kubernetes_version="1.36.99", manage_kubelet=False)["checksums"].keys() >= {"containerd", "runc"}


def test_every_step_has_its_switch():
    switches = {name for name in role_specs.options("base") if name.startswith("manage_")}
    assert {"manage_" + step for step in base_inputs.STEPS if step != "facts"} == switches


@unhurried
@for_all(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_spans(hours, minutes, rest):
    assert base_inputs.seconds(f"{hours}h{minutes}m{rest}s") == hours * 3600 + minutes * 60 + rest


@pytest.mark.parametrize("text", ["", "1", "s", "1d", "-1s", "1s1m", "1ms", " 1s"])
def test_no_spans(text):
    assert base_inputs.seconds(text) is None


@unhurried
@for_all(st.integers(1, 10**6), st.sampled_from("KMGT"))
def test_sizes(number, unit):
    assert base_inputs.size(f"{number}{unit}") == number * 1024 ** ("KMGT".index(unit) + 1)


@pytest.mark.parametrize("key", [KUBERNETES_LIKE, DOCKER_LIKE])
def test_fingerprints_are_those_gnupg_shows(key):
    assert trust.fingerprint(key.text) == key.fingerprint
    assert trust.fingerprint(key.text.replace("\n", "\r\n")) == key.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "use one whole"),
        (BOTH, "the block holds 2 keys"),
        (KUBERNETES_LIKE.text + DOCKER_LIKE.text, "use one whole"),
        (KUBERNETES_LIKE.text.replace("mDMEaw", "mDMEaa"), None),
        (KUBERNETES_LIKE.text.replace("PUBLIC", "PRIVATE"), "use one whole"),
    ],
)
def test_no_key_is_taken_for_another(text, message):
    if message is None:
        assert trust.fingerprint(text) != KUBERNETES_LIKE.fingerprint
        return
    with pytest.raises(ValueError, match=message):
        trust.fingerprint(text)


@unhurried
@for_all(st.binary(max_size=200))
def test_a_damaged_key_is_an_error_and_nothing_worse(data_):
    text = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n%s\n-----END PGP PUBLIC KEY BLOCK-----\n"
    try:
        found = trust.fingerprint(text % base64.b64encode(data_).decode())
    except ValueError:
        return
    assert len(found) in (40, 64)


def test_a_bundle_is_split():
    other = CA.replace("MIIBjTCCATOg", "MIIBjTCCATOh")
    found = trust.certificates("Subject: x\n" + CA + "\n" + other.replace("\n", "\r\n"))
    assert [text.count("BEGIN") for text in found] == [1, 1]
    assert len({trust.certificate_name(text) for text in found}) == 2
    assert found[0] == CA


@pytest.mark.parametrize("text", ["", "x", PRIVATE_KEY, CA + PRIVATE_KEY, CA.replace("MIIB", "!!!!")])
def test_what_is_no_bundle(text):
    assert trust.certificates(text) == []
