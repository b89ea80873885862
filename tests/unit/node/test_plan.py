# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that every plan keeps, and what single choices do to it."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup, node_artifacts
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import (
    base_inputs,
    base_plan,
    host_settings,
    kubelet,
    runtime,
    software,
    trust,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.base_plan import base_plan as filter_plan
from tests.unit.node.facts import NAMES, READ_AT, data, given, node
from tests.unit.node.openpgp_keys import DOCKER_LIKE
from tests.unit.node.samples import CA, unhurried

PROXY = {"http_proxy": "http://u:geheim@proxy.example:1"}
LOGIN = {"docker.io": [{"url": "https://m.example", "username": "u", "password": "geheim"}]}
CHOICES = [
    {},
    {"container_runtime": "docker", "containerd_source": "distribution"},
    {"containerd_source": "distribution", "version_check": "warn"},
    {**PROXY, "registry_mirrors": LOGIN, "extra_ca": [CA], "selinux": "permissive", "firewall": "open", "ipvs": True},
]


def by_id(plan):
    return {item["id"]: item for item in plan}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_every_plan(name, choice):
    machine, taken = node(name), given(**CHOICES[choice])
    if base_plan.refusals(machine, taken, READ_AT, READ_AT):
        # nothing is planned for it; which these are, test_refusals says
        return
    plan = base_plan.settings(machine, taken)
    seen: set[str] = set()
    for item in plan:
        assert item["id"] not in seen, item["id"]
        assert item["id"].startswith(item["step"] + "/")
        # a unit learns only of what comes before it
        for reference in [*item.get("on", []), *item.get("restart_on", [])]:
            later = {other["id"] for other in plan} - seen
            assert reference not in later, (item["id"], reference)
        seen.add(item["id"])
        for field in ("path", "target"):
            assert item.get(field, "/").startswith("/")
        assert "geheim" not in json.dumps(item)
        if item["kind"] == "file" and "content" in item:
            assert item["content"].endswith("\n")
    order = [base_inputs.STEPS.index(item["step"]) for item in plan]
    assert order == sorted(order)


def test_secret_files_travel_apart_and_are_root_only():
    taken = given(**PROXY, registry_mirrors=LOGIN)
    secrets = base_plan.secrets(node("debian-13"), taken)
    assert set(secrets) == {"proxy/containerd", "proxy/kubelet", "proxy/apt", "runtime/certs-docker.io"}
    plan = by_id(base_plan.settings(node("debian-13"), taken))
    assert {plan[name]["mode"] for name in secrets} == {"0600"}
    assert all("content" not in plan[name] for name in secrets)


def test_steps_come_in_their_order_for_any_choice():
    taken = given()
    steps = ["health", "runtime", "kernel", "preflight"]
    found = [item["step"] for item in base_plan.settings(node("debian-13"), taken, steps)]
    assert list(dict.fromkeys(found)) == ["kernel", "runtime", "health"]
    assert base_plan.settings(node("debian-13"), taken, "swap") == [
        {"id": "swap/swap", "step": "swap", "kind": "swap", "mode": "off"}
    ]
    with pytest.raises(ValueError, match="step 'swop' is unknown"):
        base_plan.settings(node("debian-13"), taken, ["swop"])


@pytest.mark.parametrize("step", [step for step in base_inputs.STEPS if step != "facts"])
def test_a_switch_takes_a_step_out(step):
    plan = base_plan.settings(node("debian-13"), given(**{"manage_" + step: False}))
    assert step not in {item["step"] for item in plan}


KEYS = ["vm.swappiness", "kernel.panic", "net.core.somaxconn", "vm.panic_on_oom"]
TAKEN = given()


@unhurried
@for_all(st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 99)))
def test_own_sysctls_win(own):
    taken = {**TAKEN, "sysctls": own}
    values = host_settings.sysctls(taken)
    for key, value in own.items():
        assert values.get(key) == (None if value is None else str(value))
    plan = by_id(host_settings.kernel(node("debian-13"), taken))
    lines = plan["kernel/sysctl-file"]["content"].splitlines()
    # what is written and what is applied are the same
    assert [f"{key} = {value}" for key, value in plan["kernel/sysctl"]["values"].items()] == [
        line for line in lines if line[0] not in "#-"
    ]


def test_no_ipv6_no_keys_of_it():
    assert not [key for key in host_settings.sysctls(given(ipv6=False)) if "ipv6" in key]


UPLINKS = [("eth0", True), ("enp1s0", True), ("veth1", False), ("eth0.100", False)]


@pytest.mark.parametrize(("interface", "named"), UPLINKS)
def test_only_an_uplink_takes_router_advertisements(interface, named):
    facts_ = node("debian-13", network={"default": {"4": None, "6": {"interface": interface}}})
    values = by_id(host_settings.kernel(facts_, given()))["kernel/sysctl"]["values"]
    assert (f"net.ipv6.conf.{interface}.accept_ra" in values) is named
    assert "net.ipv6.conf.default.accept_ra" not in values


@pytest.mark.parametrize(
    ("version", "schema"),
    [("1.6.20", 2), ("1.7.24", 2), ("2.0.4", 3), ("2.1.9", 3), ("2.2.9", 3), ("2.3.0", 4), ("2.4.2", 4)],
)
def test_the_schema_is_that_of_the_version_that_will_read_it(version, schema):
    facts_ = node("debian-13", packages={"containerd": version + "-1"})
    document = runtime.containerd_config(facts_, given(containerd_source="distribution"))
    assert document["version"] == schema
    text = json.dumps(document)
    assert ("io.containerd.grpc.v1.cri" in text) is (schema == 2)
    assert ('"bin_dirs"' in text) is (version >= "2.1")


@pytest.mark.parametrize(
    ("tables", "schema"),
    [
        ({"metrics": {"address": "127.0.0.1:1338"}}, 3),
        ({"grpc": {"max_recv_message_size": 1 << 25}}, 3),
        ({"debug": {"address": "/run/containerd/debug.sock"}}, 3),
        ({"debug": {"level": "debug"}, "plugins": {"io.containerd.server.v1.metrics": {"address": "::1:1338"}}}, 4),
        ({"version": 3}, 3),
    ],
)
def test_tables_of_the_older_schema_are_given_in_it(tables, schema):
    """Schema 4 has the daemon's servers among its plugins, and does not read these tables."""
    document = runtime.containerd_config(node("debian-13"), given(containerd_config=tables))
    assert document["version"] == schema


def test_the_schema_is_that_of_the_version_that_was_asked_for():
    """That one is installed in place of the one that is there, which may be newer or older."""
    facts_ = node("debian-13", packages={"containerd.io": "2.3.4-1"})
    keys = {
        "repository_keys": {"docker": DOCKER_LIKE.text},
        "repository_key_fingerprints": {"docker": [DOCKER_LIKE.fingerprint]},
    }
    for version, schema in (("1.7.28", 2), ("2.2.0", 3), ("2.3.0", 4)):
        inputs = given(containerd_source="repository", containerd_version=version, **keys)
        assert runtime.containerd_config(facts_, inputs)["version"] == schema


def test_the_user_has_the_last_word_in_the_configuration():
    images = "io.containerd.cri.v1.images"
    own = {"plugins": {images: {"snapshotter": None, "max_concurrent_downloads": 7}}, "debug": {"level": "debug"}}
    plan = by_id(base_plan.settings(node("debian-13"), given(containerd_config=own), "runtime"))
    document = tomllib.loads(plan["runtime/config"]["content"])
    assert document["plugins"][images]["max_concurrent_downloads"] == 7
    assert "snapshotter" not in document["plugins"][images]
    assert document["plugins"][images]["pinned_images"]["sandbox"] == "registry.k8s.io/pause:3.10.2"
    assert document["debug"] == {"level": "debug"}


def test_hosts_toml_is_what_was_asked_for():
    header = {"X-Two": ["a", 'b"\\']}
    mirror = {"url": "https://m.example/v2/", "header": header, "ca": "/etc/ssl/own.pem", "override_path": True}
    plan = by_id(
        runtime.registry_files(
            node("debian-13"), given(registry_mirrors={"quay.io:8443": [mirror, {"url": "http://n.example"}]})
        )
    )
    item = plan["runtime/certs-quay.io:8443"]
    assert item["path"] == "/etc/containerd/certs.d/quay.io:8443/hosts.toml"
    document = tomllib.loads(item["content"])
    assert document["server"] == "https://quay.io:8443"
    assert list(document["host"]) == ["https://m.example/v2", "http://n.example"]
    assert document["host"]["https://m.example/v2"] == {
        "capabilities": ["pull", "resolve"],
        "ca": ["/etc/ssl/own.pem"],
        "override_path": True,
        "header": header,
    }


@pytest.mark.parametrize(("version", "watched"), [("1.31.9", False), ("1.32.0", True), ("1.36.4", True)])
def test_the_watchdog_is_for_kubelets_that_ping(version, watched):
    sums = {"kubelet": {version: {"amd64": "a" * 64, "arm64": "b" * 64}}}
    plan = by_id(base_plan.settings(node("debian-13"), given(kubernetes_version=version, checksums=sums), "kubelet"))
    text = plan["kubelet/unit"]["content"]
    assert ("WatchdogSec=30s" in text) is watched
    assert ("Type=notify" in text) is watched


def test_a_watchdog_can_be_turned_off():
    plan = by_id(base_plan.settings(node("debian-13"), given(kubelet_watchdog=""), "kubelet"))
    assert "Watchdog" not in plan["kubelet/unit"]["content"]


@pytest.mark.parametrize("name", NAMES)
def test_apparmors_parser_is_there_where_the_kernel_confines_by_it(name):
    """Images made of packages lack it; then containers run unconfined, and Docker's do not start."""
    debian = name.startswith(("debian", "ubuntu"))
    assert ("apparmor" in software.wanted(node(name), given())) is debian
    assert "apparmor" not in software.wanted(node(name, container=True), given())


def test_packages_that_are_there_are_not_asked_for():
    taken = given(packages_extra=["jq=1.7", "htop"])
    names = software.wanted(node("debian-13"), taken)
    there = dict.fromkeys(names, "1.0-1")
    assert software.missing_packages(node("debian-13", packages=there), taken) == ["jq=1.7"]
    there["jq"] = "1.7"
    assert software.missing_packages(node("debian-13", packages=there), taken) == []
    assert software.sources(node("debian-13", packages=there), taken) == []


@pytest.mark.parametrize("name", ["rocky-10", "almalinux-10", "rhel-10"])
def test_the_modules_of_the_running_kernel(name):
    """The RHEL family 10 has br_netfilter in a package of its own, whose newest may be another kernel's."""
    version, kernel = "6.12.0-124.8.1.el10_1", "6.12.0-124.8.1.el10_1.x86_64"
    machine_ = node(name, kernel=kernel)
    assert f"kernel-modules-extra-{version}" in software.missing_packages(machine_, given())
    there = {"kernel-modules-extra": version}
    assert not any("kernel" in one for one in software.missing_packages({**machine_, "packages": there}, given()))
    older = {"kernel-modules-extra": "6.12.0-55.el10"}
    assert f"kernel-modules-extra-{version}" in software.missing_packages({**machine_, "packages": older}, given())
    # the kernel of another vendor, of the machine below a container, or the user's own business
    for other in ({"kernel": "6.18.1-1.elrepo.x86_64"}, {"container": True}):
        assert "kernel-modules-extra" not in software.wanted({**machine_, **other}, given())
    assert "kernel-modules-extra" not in software.wanted(machine_, given(manage_kernel=False))


def test_what_brings_its_modules_needs_no_package():
    for name in ("rocky-9", "amzn-2023", "debian-13"):
        assert not any("kernel" in one for one in software.wanted(node(name), given()))


def test_every_needed_package_is_looked_at():
    for choice in CHOICES:
        taken = given(**choice, storage_clients=["nfs", "iscsi"], packages_extra=["jq=1.7"])
        asked = base_plan.queries(taken)["packages"]
        for name in NAMES:
            assert set(software.wanted(node(name), taken)) <= set(asked)


def test_join_finds_in_the_look_of_base_all_that_it_asks_for():
    asked = base_plan.queries(given(), joins=True)
    for what, names in kubelet.queries().items():
        assert set(names) <= set(asked[what])
    assert set(base_plan.queries(given())["files"]) == set(cleanup.JOINED)


def seen_as_wanted(artifact):
    folder = artifact["install"][0].get("directory")
    paths = [entry.get("path") or folder + "/bridge" for entry in artifact["install"]]
    files = {path: {"mode": "0755", "same": True} for path in paths}
    return {
        "version": "x",
        **dict([node_artifacts.pinned_digest(artifact)]),
        "install": node_artifacts.install_id(artifact),
        "files": files,
    }


def test_only_what_is_not_there_as_it_should_be_is_fetched():
    taken = given()
    wanted = software.artifacts(node("debian-13"), taken)
    there = {artifact["name"]: seen_as_wanted(artifact) for artifact in wanted}
    assert software.missing_artifacts(node("debian-13", artifacts=there), taken) == []
    assert software.artifacts(node("debian-13", artifacts=there), taken) == wanted
    assert software.missing_artifacts(node("debian-13"), taken) == wanted
    for artifact in wanted:
        path = next(iter(there[artifact["name"]]["files"]))
        for state in (None, {"mode": "0755", "same": False}, {"mode": "0700", "same": True}):
            damaged = {**there, artifact["name"]: {**there[artifact["name"]], "files": {path: state}}}
            found = software.missing_artifacts(node("debian-13", artifacts=damaged), taken)
            assert [one["name"] for one in found] == [artifact["name"]]
        for key in (node_artifacts.pinned_digest(artifact)[0], "install"):
            other = {**there, artifact["name"]: {**there[artifact["name"]], key: "other"}}
            found = software.missing_artifacts(node("debian-13", artifacts=other), taken)
            assert [one["name"] for one in found] == [artifact["name"]]


ARCHIVE = "https://dl.k8s.io/release/v1.37.1/kubernetes-node-linux-amd64.tar.gz"


def programs(**variables):
    listed = software.artifacts(node("debian-13"), given(kubernetes_version="1.37.1", **variables))
    return {one["name"]: one for one in listed if one["name"].startswith("kube")}


def test_a_kubelet_without_a_sum_of_its_own_comes_out_of_the_archive_of_all_programs():
    (kubelet,) = programs().values()
    assert (kubelet["url"], kubelet["kind"]) == (ARCHIVE, "tar")
    assert len(kubelet["sha512"]) == 128
    assert "sha256" not in kubelet
    member = {"member": "kubernetes/node/bin/kubelet", "path": "/usr/local/bin/kubelet", "mode": "0755"}
    assert kubelet["install"] == [member]


def test_the_archive_is_fetched_once():
    (both,) = programs(kubeadm=True).values()
    assert [entry["path"] for entry in both["install"]] == ["/usr/local/bin/kubelet", "/usr/local/bin/kubeadm"]


def test_a_sum_of_its_own_wins():
    found = programs(kubeadm=True, checksums={"kubelet": {"1.37.1": {"amd64": "a" * 64}}})
    assert (found["kubelet"]["kind"], found["kubelet"]["sha256"]) == ("binary", "a" * 64)
    assert [entry["path"] for entry in found["kubeadm"]["install"]] == ["/usr/local/bin/kubeadm"]


ALL_STEPS = base_inputs.managed(given())


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (["all"], ALL_STEPS),
        (["nodes"], ALL_STEPS),  # a tag of the user's own on the role
        (["kernel", "swap"], ["kernel", "swap"]),
        (["kernel", "nodes"], ["kernel"]),
        (["preflight"], []),
        (["prebake"], []),
    ],
)
def test_tags_choose_the_steps(run, expected):
    assert base_plan.steps_of_run(given(), run) == expected
    assert "swap" not in base_plan.steps_of_run(given(manage_swap=False), run)


def test_a_mirror_keeps_the_path_of_the_project():
    taken = given(
        kubernetes_version="1.36.4", mirror="https://m.example/all/", mirrors={"dl.k8s.io": "http://k.example/r/"}
    )
    urls = {item["name"]: item["url"] for item in software.artifacts(node("debian-13"), taken)}
    assert urls["kubelet"] == "http://k.example/r/release/v1.36.4/bin/linux/amd64/kubelet"
    assert urls["runc"] == "https://m.example/all/github.com/opencontainers/runc/releases/download/v1.4.3/runc.amd64"


def test_the_record_keeps_its_time_until_something_changes():
    taken = {**given(), "collection": "1.0.0"}
    first = base_plan.record(node("debian-13"), {**taken, "at": "2026-01-01T00:00:00Z"})
    again = base_plan.record(node("debian-13", base=first), {**taken, "at": "2027-01-01T00:00:00Z"})
    assert again == first
    other = base_plan.record(node("debian-13", base=first), {**taken, "swap": "keep", "at": "2027-01-01T00:00:00Z"})
    assert (other["at"], other["swap"]) == ("2027-01-01T00:00:00Z", "keep")


def test_a_prebaked_machine_stays_one():
    bake = {**given(prebake=True, images=["a.example/b:1"]), "at": "2026-01-01T00:00:00Z"}
    baked = base_plan.record(node("debian-13"), bake)
    later = base_plan.record(node("debian-13", base=baked), {**given(), "at": "2027-01-01T00:00:00Z"})
    assert later == baked


def test_a_unit_of_ours_goes_when_the_package_takes_over():
    before = node("debian-13", base={"runtime": {"source": "tarball"}})
    plan = by_id(base_plan.settings(before, given(containerd_source="distribution", version_check="warn"), "runtime"))
    assert plan["runtime/unit"]["kind"] == "absent"


def test_the_filter_takes_what_the_role_gives_and_reports_errors_plainly():
    variables = {"base_kubernetes_version": "1.35.8", "base_swap": "keep", "base_http_proxy": "http://me:hunter2@x"}
    taken = json.loads(json.dumps(filter_plan(variables, "inputs", versions=data())))
    machine = node("debian-13")
    assert filter_plan(taken, "settings", node=machine, steps="swap")[0]["mode"] == "keep"
    assert "hunter2" not in json.dumps(filter_plan(taken, "settings", node=machine))
    assert all("hunter2" in text for text in filter_plan(taken, "secrets", node=machine).values())
    assert filter_plan(taken, "images")["pull"] == ["registry.k8s.io/pause:3.10.1"]
    assert "hunter2" not in json.dumps(filter_plan(taken, "preflight", node=machine, steps=["runtime"], before=0.0))
    with pytest.raises(ValueError, match="base_swap is 'on'"):
        filter_plan({"base_swap": "on"}, "inputs", versions=data())
    wrong = {"base_swap": "on", "base_http_proxy": "http://me:hunter2@x y"}
    refused = filter_plan(wrong, "inputs", versions=data(), fail=False)
    assert set(refused) == {"refused"}
    assert "base_swap is 'on'" in refused["refused"]
    assert "hunter2" not in refused["refused"]
    with pytest.raises(ValueError, match="feed it a dictionary"):
        filter_plan([], "images")
    with pytest.raises(ValueError, match="'swop' must be one of variables, inputs"):
        filter_plan(taken, "swop")
    with pytest.raises(ValueError, match="settings needs node"):
        filter_plan(taken, "settings")
    with pytest.raises(ValueError, match="'os' is missing"):
        filter_plan(taken, "settings", node={})


def test_what_is_taken_out_of_a_list_goes_from_the_machine():
    name = trust.certificate_name(trust.certificates(CA)[0])
    mirrors = {"docker.io": [{"url": "https://m.example"}]}
    facts = node("debian-13")
    with_both = base_plan.record(facts, given(extra_ca=[CA], registry_mirrors=mirrors))
    assert (with_both["extra_ca"], with_both["registry_mirrors"]) == ([name], ["docker.io"])
    later = node(
        "debian-13", base={**with_both, "extra_ca": [name, "../../x"], "registry_mirrors": ["docker.io", "../x"]}
    )
    plan = by_id(base_plan.settings(later, given(), ["ca", "runtime"]))
    assert plan["ca/" + name]["path"] == f"/usr/local/share/ca-certificates/kubenode-{name}.crt"
    assert plan["ca/" + name]["kind"] == plan["runtime/certs-docker.io"]["kind"] == "absent"
    assert plan["ca/update"]["on"] == ["ca/" + name]
    assert not [one for one in plan if "../" in one]
    assert not {"extra_ca", "registry_mirrors"} & {*base_plan.record(later, given())}
    kept = base_plan.record(later, given(manage_ca=False, manage_runtime=False))
    assert kept["extra_ca"][0] == name
