# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight: which machines are refused, and which are only warned of."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import (
    base_inputs,
    base_plan,
    software,
    systems,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_plan import preflight
from tests.unit.node.facts import CHECKOUT, NAMES, READ_AT, given, node
from tests.unit.node.openpgp_keys import DOCKER_LIKE, KUBERNETES_LIKE
from tests.unit.node.samples import unhurried

DEFAULT = given()
KEYS = {
    "repository_keys": {"kubernetes": KUBERNETES_LIKE.text},
    "repository_key_fingerprints": {"kubernetes": [KUBERNETES_LIKE.fingerprint]},
}
KEYS_OF_DOCKER = {
    "repository_keys": {"docker": DOCKER_LIKE.text},
    "repository_key_fingerprints": {"docker": [DOCKER_LIKE.fingerprint]},
}


def against(facts, before=READ_AT, after=READ_AT, **variables):
    return base_plan.refusals(facts, given(**variables) if variables else DEFAULT, before, after)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_every_supported_system_is_welcome(name, arch):
    assert against(node(name, arch=arch)) == []


def test_without_the_rights_of_root_nothing_else_is_said():
    (refusal,) = against(node("debian-13", uid=1000, arch="riscv64"))
    assert refusal.startswith("the role needs the rights of root, but tasks run as user id 1000; set become: true")


OTHERS = [("debian", "11"), ("ubuntu", "20.04"), ("centos", "9"), ("rocky", "8.10"), ("amzn", "2"), ("debian", "")]


@pytest.mark.parametrize(("identity", "version"), OTHERS)
def test_another_system_is_refused_with_the_list(identity, version):
    facts = node("debian-13", os={"id": identity, "version_id": version, "pretty_name": "Some OS"})
    (refusal,) = against(facts)
    assert refusal == f"Some OS is not supported; supported are {systems.SUPPORTED}"


def words(text):
    return {*re.findall(r"[\w.]+", text)}


def test_every_release_has_facts_here_and_is_named_to_the_user():
    releases = {f"{identity}-{version}": one for (identity, version), one in systems.RELEASES.items()}
    assert {*releases, "flatcar"} == {*NAMES}
    assert [one.name for one in releases.values() if not {*one.name.split()} <= words(systems.SUPPORTED)] == []
    for document in ("README.md", "docs/base.md", "docs/provision.md"):
        said = words((CHECKOUT / document).read_text(encoding="utf-8"))
        assert [one.name for one in releases.values() if one.version not in said] == [], document


@pytest.mark.parametrize("name", ["rocky-9", "debian-13"])
def test_a_system_whose_packages_are_part_of_an_image(name):
    """RHEL CoreOS calls itself rhel, in the version of its RHEL."""
    facts = node(name, read_only_usr=True)
    facts["os"]["pretty_name"] = "Red Hat Enterprise Linux CoreOS 9.6.20260616-0 (Plow)"
    (refusal,) = against(facts)
    assert refusal.startswith("Red Hat Enterprise Linux CoreOS 9.6.20260616-0 (Plow) has a read-only /usr, as systems")
    assert refusal.endswith("Amazon Linux 2023, Flatcar")


def test_another_architecture_is_refused():
    assert against(node("debian-13", arch="riscv64")) == [
        "the machine's architecture is riscv64; supported are amd64 and arm64"
    ]


@pytest.mark.parametrize(("version", "refused"), [("1.34.11", False), ("1.35.8", True), ("1.36.4", True)])
@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_cgroup_1_is_refused_from_1_35_on_with_any_option(version, refused, check):
    facts = node("debian-13", cgroup=1)
    inputs = given(kubernetes_version=version, version_check=check)
    assert bool(base_plan.refusals(facts, inputs, READ_AT, READ_AT)) is refused
    assert any("cgroup v1" in text for text in base_plan.warnings(facts, inputs)) is not refused


def test_an_old_containerd_is_refused_or_warned_of():
    facts = node("debian-13", packages={"containerd": "1.7.24~ds1-6+deb13u1"})
    (refusal,) = against(facts, containerd_source="distribution")
    assert refusal.startswith("containerd 1.7.24 is too old for Kubernetes 1.37, which needs 2.3.0, 2.4.0 or newer")
    inputs = given(containerd_source="distribution", version_check="warn")
    assert base_plan.refusals(facts, inputs, READ_AT, READ_AT) == []
    assert base_plan.warnings(facts, inputs) == [refusal.removesuffix(", or base_version_check to 'warn'")] != [refusal]


def a_node(joined=True, **versions):
    """A machine of a cluster, with programs of these versions."""
    there = {name: {"path": f"/usr/local/bin/{name}", "version": version} for name, version in versions.items()}
    files = {path: {"exists": joined} for path in cleanup.IS_NODE}
    return node("debian-13", files=files, binaries=there)


AHEAD = [
    ("kubelet", "v1.36.9", "base_kubernetes_version is 1.36.4"),
    ("containerd", "2.9.0", "base_containerd_version is 2.3.5"),
    ("runc", "1.9.0", "base_runc_version is 1.5.1"),
]


@pytest.mark.parametrize(("program", "version", "said"), AHEAD)
def test_a_node_does_not_go_back_unasked(program, version, said):
    wanted = {"kubernetes_version": "1.36.4", "containerd_version": "2.3.5", "runc_version": "1.5.1"}
    needed = [("kubelet", "1.36.4"), ("containerd-static", "2.3.5"), ("containerd", "2.3.5"), ("runc", "1.5.1")]
    sums = {name: {one: {"amd64": "a" * 64}} for name, one in needed}
    (refusal,) = against(a_node(**{program: version}), checksums=sums, **wanted)
    plain = version.lstrip("v")
    assert refusal.startswith(f"{program} {plain} is on this node, and {said}: a node does not go back")
    assert refusal.endswith(f"set {said.split()[0]} to {plain}, or base_allow_downgrade to true")
    for facts, allowed in [
        (a_node(joined=False, **{program: version}), {}),
        (a_node(**{program: version}), {"allow_downgrade": True}),
        (a_node(**{program: said.split()[-1]}), {}),
        (a_node(**{program: "0.1.0" if program != "kubelet" else "1.36.1"}), {}),
        (a_node(**{program: None}), {}),
    ]:
        assert against(facts, checksums=sums, **wanted, **allowed) == []


@pytest.mark.parametrize(("version", "allowed"), [("1.35.8", {}), ("1.37.0", {"allow_downgrade": True})])
def test_a_node_gets_another_minor_version_by_node_upgrade_alone(version, allowed):
    inputs, facts = given(kubernetes_version="1.36.4", **allowed), a_node(kubelet="v" + version)
    (refusal,) = base_plan.refusals(facts, inputs, READ_AT, READ_AT)
    # which goes to newer versions only
    assert ("kubenode.provision.node_upgrade takes nodes there one by one" in refusal) is not allowed
    assert f"Set base_kubernetes_version to {version}, or, for a node that you have drained" in refusal
    drained = given(kubernetes_version="1.36.4", allow_other_minor=True, **allowed)
    assert base_plan.refusals(facts, drained, READ_AT, READ_AT) == []
    assert base_plan.refusals(facts, inputs, READ_AT, READ_AT, steps=["runtime", "cni"]) == []


@pytest.mark.parametrize(("wanted", "refused"), [("2.2.8", True), ("2.2.9", False), ("2.3.0", False), ("", False)])
def test_a_package_of_a_node_does_not_go_back_either(wanted, refused):
    """apt goes back to a version that is asked for."""
    inputs = given(containerd_source="repository", containerd_version=wanted, version_check="warn", **KEYS_OF_DOCKER)
    facts = a_node(containerd="2.2.9")
    found = base_plan.refusals(facts, inputs, READ_AT, READ_AT)
    assert [text.partition(":")[0] for text in found] == (
        [f"containerd 2.2.9 is on this node, and base_containerd_version is {wanted}"] if refused else []
    )
    assert base_plan.refusals(facts, inputs, READ_AT, READ_AT, steps=["runtime"]) == []
    kubelet = given(kubelet_source="repository", kubernetes_version="1.36.4", **KEYS)
    (refusal,) = base_plan.refusals(a_node(kubelet="v1.37.1"), kubelet, READ_AT, READ_AT, steps=["packages"])
    assert refusal.startswith("kubelet 1.37.1 is on this node")


@pytest.mark.parametrize(
    ("unit", "step"),
    [("kubelet.service", "kubelet"), ("containerd.service", "runtime"), ("kubenode-runtime-probe.timer", "health")],
)
def test_a_unit_that_is_masked_on_a_node_stays_so(unit, step):
    units = {unit: {"load": "masked", "active": "inactive", "enabled": "masked"}}
    facts = node("debian-13", files={path: {"exists": True} for path in cleanup.IS_NODE}, units=units)
    (refusal,) = against(facts)
    assert refusal.startswith(f"{unit} is masked on this node: its operator does not want it to run; unmask it")
    assert refusal.endswith(f"set base_manage_{step} to false")
    assert unit in base_plan.queries(DEFAULT)["units"]
    others = [one for one in base_inputs.managed(DEFAULT) if one != step]
    assert base_plan.refusals(facts, DEFAULT, READ_AT, READ_AT, steps=others) == []
    assert against(node("debian-13", units=units)) == []


@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_a_runtime_that_base_does_not_manage_is_not_judged(check):
    facts = node("debian-13", packages={"containerd": "1.7.24~ds1-6+deb13u1"})
    inputs = given(containerd_source="distribution", manage_runtime=False, version_check=check)
    assert base_plan.refusals(facts, inputs, READ_AT, READ_AT) == []
    assert base_plan.warnings(facts, inputs) == []


OLD_DOCKER = "20.10.24+dfsg1-1+deb12u1"


@pytest.mark.parametrize(
    ("version", "facts", "source", "refused"),
    [
        ("0.4.0", {"candidates": {"docker.io": OLD_DOCKER}}, "tarball", "docker.io"),
        ("0.4.1", {"packages": {"docker.io": OLD_DOCKER}}, "distribution", "docker.io"),
        ("0.4.1", {"packages": {"docker-ce": "5:20.10.24~3-0~debian"}}, "repository", "docker-ce"),
        ("0.4.1", {"candidates": {"docker.io": OLD_DOCKER, "docker-ce": "5:29.1.2-1"}}, "repository", ""),
        ("0.4.1", {"candidates": {"docker.io": "26.1.5+dfsg1-9"}}, "tarball", ""),
        ("0.4.1", {}, "tarball", ""),
        ("0.4.2", {"packages": {"docker.io": OLD_DOCKER}}, "tarball", ""),
        ("", {"packages": {"docker.io": OLD_DOCKER}}, "tarball", ""),
    ],
)
def test_a_docker_that_cri_dockerd_refuses(version, facts, source, refused):
    variables = {
        "container_runtime": "docker",
        "containerd_source": source,
        "cri_dockerd_version": version,
        **KEYS_OF_DOCKER,
    }
    variables |= {"checksums": {"cri-dockerd": {version: {"amd64": "0" * 64}}}} if version else {}
    found = against(node("debian-12", **facts), **variables)
    needs = f"cri-dockerd {version} needs Docker 23 or newer, and {refused} of this machine is 20.10.24; "
    assert [text.startswith(needs) for text in found] == ([True] if refused else [])
    asked = base_plan.queries(given(**variables))
    assert asked["candidates"] is (version in ("0.4.0", "0.4.1"))
    assert {"docker.io", "docker-ce"} <= set(asked["packages"])
    warned = given(**variables, version_check="warn")
    assert base_plan.refusals(node("debian-12", **facts), warned, READ_AT, READ_AT) == []
    whole = [text.removesuffix(", or base_version_check to 'warn'") for text in found]
    assert base_plan.warnings(node("debian-12", **facts), warned) == whole
    assert (whole != found) is bool(refused)


def test_the_candidate_decides_before_anything_is_installed():
    facts = node("ubuntu-24.04", candidates={"containerd": "2.3.1-0ubuntu1~24.04.1"})
    assert against(facts, containerd_source="distribution") == []
    assert against(node("ubuntu-24.04"), containerd_source="distribution") != []


@pytest.mark.parametrize(
    ("name", "variables", "message"),
    [
        ("rocky-9", {"containerd_source": "distribution"}, "has no containerd package; use tarball or repository"),
        ("rocky-9", {"container_runtime": "docker"}, "set base_containerd_source to repository"),
        ("flatcar", {"packages_extra": ["jq"]}, "Flatcar has no package manager"),
        ("amzn-2023", {"storage_clients": ["ceph"]}, "of which Amazon Linux 2023 has no package"),
        ("flatcar", {"storage_clients": ["nfs"]}, "of which Flatcar has no package"),
    ],
)
def test_a_source_that_a_system_does_not_have(name, variables, message):
    (text,) = against(node(name), **variables)
    assert message in text


def test_a_digest_for_the_other_architecture_does_not_help():
    variables = {"kubernetes_version": "1.36.99", "checksums": {"kubelet": {"1.36.99": {"arm64": "a" * 64}}}}
    assert against(node("debian-13", arch="arm64"), **variables) == []
    (refusal,) = against(node("debian-13"), **variables)
    assert refusal.startswith("no sha256 of kubelet 1.36.99 for amd64 is pinned")


def test_the_archive_of_all_programs_is_of_an_architecture_too():
    sums = {"kubernetes-node": {"1.37.99": {"arm64": "a" * 128}}}
    assert against(node("debian-13", arch="arm64"), kubernetes_version="1.37.99", checksums=sums) == []
    (refusal,) = against(node("debian-13"), kubernetes_version="1.37.99", checksums=sums)
    assert refusal.startswith("no sha256 of kubelet 1.37.99 for amd64 is pinned")


def test_a_dynamic_build_does_not_replace_the_static_one():
    sums = {"containerd": {"2.9.0": {"amd64": "a" * 64, "arm64": "b" * 64}}}
    assert against(node("rocky-10"), containerd_version="2.9.0", checksums=sums) == []
    (refusal,) = against(node("rocky-9"), containerd_version="2.9.0", checksums=sums)
    assert "containerd-static 2.9.0" in refusal


ROOM = [
    ({"/": 4 << 30}, False),
    ({"/": (4 << 30) - 1}, True),
    ({"/": 1, "/var": 5 << 30}, False),
    ({"/": 9 << 30, "/var": 1}, True),
]


@pytest.mark.parametrize(("free", "refused"), ROOM)
def test_room(free, refused):
    assert bool(against(node("debian-13", disk_free=free))) is refused


def test_a_machine_that_has_it_all_needs_no_room():
    full = node("debian-13", disk_free={"/": 1 << 20}, base={"kubernetes": {"version": "1.37.1"}})
    assert against(full) == []
    assert against(full, kubernetes_version="1.37.0") != []


@unhurried
@for_all(st.floats(-3600, 3600), st.floats(0, 600))
def test_a_clock_counts_against_the_time_it_was_read_in(offset, took):
    facts = node("debian-13", time={"unix": READ_AT + took / 2 + offset, "ntp_synchronized": True, "services": {}})
    outside = abs(offset) - took / 2
    # within a millisecond of the limit the sums of floats decide
    if abs(outside - 30) > 0.001:
        assert bool(against(facts, READ_AT, READ_AT + took)) is (outside > 30)


def test_a_clock_without_a_time_service():
    facts = node("debian-13", time={"unix": READ_AT, "ntp_synchronized": False, "services": {}})
    assert against(facts) == []
    assert against(facts, time_sync="check") != []
    facts["time"]["unix"] = 0
    assert "behind the controller's" in against(facts)[0]
    assert against(facts, time_sync="ignore") == []


def test_selinux_that_is_off_cannot_enforce():
    assert "turn it on and reboot" in against(node("rocky-9", selinux="disabled"), selinux="enforcing")[0]
    assert against(node("rocky-9", selinux="disabled"), selinux="permissive") == []
    assert base_plan.warnings(node("debian-13"), given(selinux="enforcing")) != []


def test_every_reason_is_reported_at_once():
    facts = node("debian-13", cgroup=1, disk_free={"/": 0}, time={"unix": 0.0, "services": {}})
    assert len(against(facts)) == 3


# --- the preflight of one look at a machine: all findings together, without anything that may be secret


def checked(facts, steps=None, **variables):
    taken = given(**variables)
    return preflight(facts, taken, base_inputs.managed(taken) if steps is None else steps, READ_AT, READ_AT)


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_machine_lacks_all_that_the_plans_name(name):
    found = checked(node(name))
    assert found["refusals"] == []
    assert found["packages"] == software.missing_packages(node(name), given())
    assert found["artifacts"] == [one["name"] for one in software.missing_artifacts(node(name), given())]
    assert {"runc", "cni-plugins", "kubelet"} <= set(found["artifacts"])


def test_a_refused_machine_gets_no_plan():
    found = checked(node("debian-13", arch="riscv64"))
    assert found["refusals"]
    assert found["packages"] == found["artifacts"] == []


@pytest.mark.parametrize(
    ("steps", "programs"), [([], []), (["swap"], []), (["cni"], ["cni-plugins"]), (["kubelet"], ["kubelet"])]
)
def test_only_the_steps_of_the_run_fetch(steps, programs):
    assert checked(node("debian-13"), steps)["artifacts"] == programs


def test_unmanaged_packages_are_not_missed():
    assert checked(node("debian-13"), manage_packages=False)["packages"] == []


def test_no_address_and_no_credential_is_kept():
    secret = "s3cr3t"
    found = checked(
        node("debian-13"), mirror=f"https://user:{secret}@mirror.example/", http_proxy=f"http://u:{secret}@p:1"
    )
    assert found["artifacts"]
    assert secret not in json.dumps(found)
    assert "mirror.example" not in json.dumps(found)


def test_what_a_person_holds_is_left_and_named():
    facts = node("debian-13", held=["iptables", "socat", "ethtool"], packages={"ethtool": "1:6.14.2-1"})
    (refusal,) = against(facts)
    assert refusal == (
        "on hold on this machine, so that base does not install them: iptables, socat; let them go "
        "(apt-mark unhold iptables socat), or install them yourself"
    )
    assert against(facts, manage_packages=False) == []
    assert preflight(facts, DEFAULT, [], READ_AT, READ_AT)["packages"] == []
    # what dnf locks is a version, which it installs
    assert against(node("rocky-9", held=["iptables-nft"])) == []


def test_only_what_the_role_holds_it_moves():
    inputs = given(kubelet_source="repository", **KEYS)
    facts = node("debian-13", held=["kubelet"], packages={"kubelet": "1.30.0-1.1"})
    found = preflight(facts, inputs, [], READ_AT, READ_AT)
    assert (found["refusals"], found["moves_held"]) == ([], True)
    assert preflight(node("debian-13"), inputs, [], READ_AT, READ_AT)["moves_held"] is False
