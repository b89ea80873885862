# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A matrix and uploads become builds, or one error with every finding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import builds as images
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image.builds import faults

DIGEST = "0123456789abcdef" * 4
TYPES = {"x86": "cx23", "arm": "cax11"}
URL = "https://images.example.com/d/disk.raw.xz"


def builds(matrix=None, uploads=None, bases=None, **more):
    about = {"server_types": TYPES, "owner": "me", "role_version": "0.1.0", "variables": {}}
    return images.builds({"matrix": matrix or {}, "uploads": uploads or [], **about, **more}, bases)


def refused(*arguments, **more):
    with pytest.raises(images.BuildsNotUsable) as caught:
        builds(*arguments, **more)
    return str(caught.value)


def matrix(**more):
    return {"kubernetes": ["1.36.4"], "base": ["debian-13"], **more}


def test_a_matrix_is_every_combination_but_the_excluded_ones():
    found = builds(
        {
            "kubernetes": ["1.35.8", "1.36.4"],
            "architecture": ["x86", "arm"],
            "base": ["debian-13", {"name": "own", "image_url": URL}],
            "exclude": [{"architecture": "arm", "base": "own"}, {"kubernetes": "1.35.8", "base": "own"}],
        }
    )
    assert [(one["name"], one["architecture"], one["kind"], one["server_type"]) for one in found] == [
        ("debian-13-kubernetes-1.35.8", "x86", "boot", "cx23"),
        ("debian-13-kubernetes-1.35.8", "arm", "boot", "cax11"),
        ("debian-13-kubernetes-1.36.4", "x86", "boot", "cx23"),
        ("own-kubernetes-1.36.4", "x86", "write", "cx23"),
        ("debian-13-kubernetes-1.36.4", "arm", "boot", "cax11"),
    ]
    assert len({one["machine"] for one in found}) == len(found)
    assert found[3]["command"] == "image-url-command-raw-disk"


def test_a_version_without_sums_is_refused_by_the_name_that_the_user_gave_it():
    text = refused(matrix(kubernetes=["1.36.4", "1.99.0"]))
    assert "1 finding, nothing was created or changed" in text
    assert "- kubenode_image_matrix.kubernetes is '1.99.0'; no sha256 of kubelet 1.99.0 is pinned; give them as" in text
    assert "base_kubernetes_version" not in text

    sums = {"base_checksums": {"kubelet": {"1.99.0": {"amd64": DIGEST}}}}
    own = matrix(kubernetes=["1.99.0"])
    assert len(builds(own, variables=sums)) == 1
    text = refused({**own, "architecture": ["x86", "arm"]}, variables=sums)
    assert "1 finding, nothing was created or changed" in text
    assert "kubelet 1.99.0 for arm64 is pinned; give it as base_checksums: {kubelet: {'1.99.0': {arm64: …" in text
    excluded = {**own, "architecture": ["x86", "arm"], "exclude": [{"architecture": "arm"}]}
    assert len(builds(excluded, variables=sums)) == 1
    assert len(builds(own, variables={"base_manage_kubelet": False})) == 1


def test_every_variable_of_base_is_checked_before_a_machine_is_made():
    text = refused(matrix(), variables={"base_containerd_version": "9.9.9", "base_runc_version": "latest"})
    assert "- base_runc_version is 'latest'; use a release number" in text
    assert "base_containerd_version is '9.9.9'; no sha256 of containerd 9.9.9 is pinned" in refused(
        matrix(), variables={"base_containerd_version": "9.9.9"}
    )
    uploads = [{"name": "raw", "image_url": URL, "sha256": DIGEST}]
    assert builds(None, uploads, variables={"base_runc_version": "latest"}), "an upload has no base"


def test_the_options_of_the_snapshot_module():
    (build,) = builds(matrix(name="{base}-{architecture}"), force=True, keep=2, labels={"pool": "a"})
    wanted = dict(build["snapshot"])
    assert wanted.pop("digest") == build["digest"]
    assert wanted == {
        "name": "debian-13-x86",
        "architecture": "x86",
        "kubernetes_version": "1.36.4",
        "base_image": "debian-13",
        "server": build["machine"],
        "running": "shutdown",
        "role_version": "0.1.0",
        "force": True,
        "keep": 2,
        "labels": {"pool": "a"},
    }
    (build,) = builds(matrix(), keep="")
    assert "keep" not in build["snapshot"]


def test_the_digest_follows_the_content_and_nothing_else():
    def digest(given_matrix=None, bases=None, **more):
        return builds(given_matrix or matrix(), bases=bases, **more)[0]["digest"]

    same = digest()
    assert digest(owner="you", force=True) == same
    assert digest(variables={"base_download_headers": {"Authorization": "x"}, "base_prebake_clean": []}) == same
    others = [
        digest(variables={"base_swap": "keep"}),
        digest(role_version="0.2.0"),
        digest(matrix(kubernetes=["1.36.3"])),
        digest(matrix(architecture=["arm"])),
        digest(matrix(base=[{"name": "debian-13", "image_url": URL}])),
        digest(bases=[{"name": "debian-13", "architecture": "x86", "id": 7}]),
        digest(bases=[{"name": "debian-13", "architecture": "x86", "id": 8}]),
    ]
    assert len({same, *others}) == len(others) + 1
    assert digest(bases=[{"name": "debian-13", "architecture": "arm", "id": 7}]) == same


def test_an_upload_is_written_as_it_is_and_known_by_its_digest():
    (build,) = builds(uploads=[{"name": "talos", "image_url": URL, "sha256": DIGEST.upper()}])
    assert build["image_url"] == f"{URL}#sha256={DIGEST}&adapt=no"
    assert build["snapshot"]["digest"] == DIGEST
    assert build["snapshot"]["running"] == "cut"
    assert build["snapshot"]["base_image"] == "disk.raw.xz"
    (again,) = builds(
        uploads=[{"name": "talos", "image_url": f"{URL}#sha256={DIGEST}&stall=60", "architecture": "arm"}]
    )
    assert again["image_url"] == f"{URL}#sha256={DIGEST}&adapt=no&stall=60"


def test_an_upload_of_a_file_here_and_of_a_qcow2_from_elsewhere():
    given_uploads = [
        {"name": "a", "path": "/srv/a.raw", "sha256": DIGEST},
        {"name": "b", "image_url": URL, "sha256": DIGEST, "format": "qcow2"},
    ]
    here, elsewhere = builds(uploads=given_uploads, cache_dir="/cache")
    assert (here["source"]["path"], here["download"], here["base_image"]) == ("/srv/a.raw", None, "a.raw")
    assert (elsewhere["source"]["path"], elsewhere["download"]) == (f"/cache/{DIGEST}.qcow2", URL)
    assert "image_url" not in here
    assert here["source"]["name"] != elsewhere["source"]["name"]


@pytest.mark.parametrize(
    ("given_matrix", "finding"),
    [
        (["1.36.4"], "kubenode_image_matrix: a dictionary is needed"),
        (matrix(kubernetes=["1.36"]), "'1.36': give a full version"),
        (matrix(kubernetes=[]), "kubenode_image_matrix.kubernetes: empty"),
        (matrix(base=[]), "kubenode_image_matrix.base: empty"),
        (matrix(base=[{"image_url": URL}]), "give the name of an image"),
        (matrix(base=[{"name": "a", "image": "b", "image_url": URL}]), "exclude each other"),
        (matrix(base=[{"name": "a", "command": "image-url-command-x"}]), "command needs image_url"),
        (matrix(base=[{"name": "a", "image_url": "images/a.raw"}]), "'a': image_url: "),
        (matrix(base=[{"name": "a", "url": URL}]), "unknown key url"),
        (matrix(versions=[1]), "unknown key versions"),
        (matrix(architecture=["amd64"]), "'amd64': use x86 or arm"),
        (matrix(name="{kubernetes}-{arch}"), "{arch} is none of"),
        (matrix(name="x"), ""),
        (matrix(name="n" * 64), "(64 characters) does not fit into a label"),
        (matrix(base=["debian 13"]), "does not fit into a label"),
        (matrix(exclude=["1.36.4"]), "exclude '1.36.4'"),
        (matrix(exclude=[{"version": "1.36.4"}]), "kubenode_image_matrix.exclude"),
        (matrix(kubernetes=["1.36.4", "1.36.3"], name="same"), "two builds are named 'same' for x86"),
    ],
)
def test_findings_of_a_matrix(given_matrix, finding):
    if not finding:
        assert builds(given_matrix)[0]["name"] == "x"
        return
    assert finding in refused(given_matrix)


@pytest.mark.parametrize(
    ("upload", "finding"),
    [
        ({"image_url": URL}, "give a dictionary with name, sha256, and image_url or path"),
        ({"name": "a", "sha256": DIGEST}, "give one of image_url and path"),
        ({"name": "a", "image_url": URL, "path": "a.raw", "sha256": DIGEST}, "give one of image_url and path"),
        ({"name": "a", "path": "a.raw"}, "the 64 hexadecimal digits of the file are needed"),
        ({"name": "a", "path": "a.vmdk", "sha256": DIGEST, "format": "vmdk"}, "format 'vmdk': use raw"),
        ({"name": "a", "image_url": URL}, "the 64 hexadecimal digits of the file are needed"),
        ({"name": "a", "image_url": URL + "#sha256=none"}, "the 64 hexadecimal digits of the file are needed"),
        ({"name": "a", "image_url": f"{URL}#sha256={'f' * 64}", "sha256": DIGEST}, "differ"),
        ({"name": "a", "image_url": f"{URL}#sha256={DIGEST}&grow=yes"}, "'grow' of image_url has no place here"),
        ({"name": "a", "image_url": URL, "sha256": DIGEST, "architecture": "amd64"}, "'amd64': use x86 or arm"),
        ({"name": "a", "image_url": URL, "sha256": DIGEST, "compression": "xz"}, "unknown key compression"),
    ],
)
def test_findings_of_an_upload(upload, finding):
    assert finding in refused(uploads=[upload])


def test_all_findings_come_together():
    error = refused(matrix(kubernetes=["1.36"], architecture=["mips"]), [{"name": "a"}])
    assert error.startswith("4 findings, nothing was created or changed:\n- ")
    assert "kubenode_image_server_types names no server type for mips" in error


@pytest.mark.parametrize("value", [-1, 0, "0", "all", True, [1]])
def test_numbers_that_count_only_in_the_end_are_refused_in_the_plan(value):
    error = refused(matrix(versions=[1]), keep=value, timeout=value)
    assert error.startswith("3 findings, nothing was created or changed:\n- ")
    assert f"- kubenode_image_keep {value!r}: give a number of snapshots, at least 1; leave it out to keep all" in error
    assert f"- kubenode_image_timeout {value!r}: give whole seconds, at least 1" in error
    assert builds(matrix(), keep="2", timeout=None)[0]["snapshot"]["keep"] == "2"


def test_nothing_to_build_and_a_version_given_twice():
    assert "both empty" in refused()
    error = refused(matrix(), variables={"base_kubernetes_version": "1.35.8"})
    assert "base_kubernetes_version is '1.35.8' although" in error
    assert builds(matrix(), variables={"base_kubernetes_version": "1.36.4"})


@settings(deadline=None)
@given(st.text(), st.text(), st.text())
def test_a_machine_s_name_is_always_a_host_name_and_follows_owner_and_image(owner, name, architecture):
    made = images.machine_name(owner, name, architecture)
    assert len(made) == len("kubenode-image-") + 12
    assert made == images.machine_name(owner, name, architecture)
    assert made != images.machine_name(owner + "x", name, architecture)


def test_outcomes_have_failures_too():
    found = builds(matrix(kubernetes=["1.35.8", "1.36.4"]))
    made = [
        {"name": found[0]["name"], "architecture": "x86", "id": 7, "image_size": 1.5, "failed": False, "msg": "made"}
    ]
    hosts = {found[1]["machine"]: {"kubenode__problem": "Prebake base:\n no route"}}
    outcomes = images.outcomes(found, made, hosts)
    assert [(one["id"], one["failed"]) for one in outcomes] == [(7, False), (None, True)]
    assert outcomes[1]["msg"] == "failed: Prebake base: no route"
    assert images.outcomes(found, made, {})[1]["msg"] == "failed: it was not reached; run again"
    lines = images.table(outcomes)
    assert lines[1].split() == ["debian-13-kubernetes-1.35.8", "x86", "7", "1.50", "made"]
    assert len({line.index(word) for line, word in zip(lines, ("architecture", "x86", "x86"), strict=True)}) == 1


# --- what speaks against an image of a machine


KUBELET = "/usr/local/bin/kubelet"
FIT = {
    "base": {"prebaked": True, "kubernetes": {"version": "1.36.4"}, "runtime": {"name": "containerd"}},
    "units": {
        "kubelet": {"enabled": "enabled", "active": "inactive"},
        "containerd": {"enabled": "enabled", "active": "active"},
    },
    "files": {"/etc/kubernetes/kubelet.conf": {"exists": False}},
    "swaps": [],
    "artifacts": {"kubelet": {"files": {KUBELET: {"same": True}}}},
}


def test_a_fit_machine():
    assert faults(FIT, "1.36.4") == []


def units(name, **more):
    return {"units": {**FIT["units"], name: {**FIT["units"][name], **more}}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"base": {**FIT["base"], "prebaked": False}}, "does not say that base was prebaked"),
        ({"base": {**FIT["base"], "kubernetes": {"version": "1.36.3"}}}, "Kubernetes is 1.36.3, not 1.36.4"),
        (units("kubelet", enabled="disabled"), "the kubelet would not start at boot"),
        (units("kubelet", active="active"), "the kubelet runs"),
        (units("containerd", active="failed"), "containerd does not run"),
        ({"files": {"/etc/kubernetes/kubelet.conf": {"exists": True}}}, "kubelet.conf is there: it has joined"),
        ({"swaps": [{"name": "/swap.img"}]}, "swap is on: /swap.img"),
        ({"artifacts": {"kubelet": {"files": {KUBELET: {"same": False}}}}}, f"{KUBELET} of kubelet is not as it was"),
        ({"artifacts": {"kubelet": {"files": {KUBELET: None}}}}, f"{KUBELET} of kubelet is not as it was"),
    ],
)
def test_each_fault_is_found_alone(change, fault):
    (found,) = faults({**FIT, **change}, "1.36.4")
    assert fault in found


def test_a_machine_that_reported_nothing_is_not_fit():
    assert len(faults({}, "1.36.4")) == 4
    assert faults({**FIT, "swaps": [{"name": "/swap.img"}]}, "1.36.4", "keep") == []
