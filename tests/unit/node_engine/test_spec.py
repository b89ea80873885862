# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused before anything is looked at, and what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import fetch, host, info, node_artifacts
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine


def setting(kind: str = "file", **fields: object) -> dict:
    """A setting that is good as far as nothing else is given."""
    return {"id": "a", "step": "s", "kind": kind, **fields}


GOOD = [
    setting(path="/a", content=""),
    setting(path="/a", content_b64="AA==", mode="0600", owner="kube", group="kube-cert", validate=["x", "--f=%s"]),
    setting("directory", path="/a"),
    setting("link", path="/a", target="../b"),
    setting("absent", path="/run/x", recursive=True),
    setting("module", name="br_netfilter", optional=True),
    setting("sysctl", values={"net.ipv4.ip_forward": 1, "kernel/panic": "10"}, optional=["kernel.panic"]),
    setting("swap", mode="off"),
    setting("unit", name="systemd-journald", enabled=None, state="restarted_on", restart_on=["artifact:x"], wait=0),
    setting("unit", name="dev-disk-by\\x2duuid-1.swap", masked=True, enabled=False, state="stopped"),
    setting("handler", argv=["update-ca-certificates"], on=["packages"]),
    setting("hold", packages=["kubelet"], held=True),
    setting("selinux", mode="permissive"),
    setting("firewall", ports=["10250/tcp", "30000-32767/udp"]),
    setting("hostname", name="node-1.example.com"),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda given: given["kind"])
def test_good_settings(good):
    assert engine.setting_errors([good]) == []


def test_every_kind_is_covered():
    assert {good["kind"] for good in GOOD} == set(engine.KINDS)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (setting("fiel", path="/a"), "kind is 'fiel'; it must be one of absent, directory, file,"),
        (setting(path="a", content=""), "path must be an absolute path"),
        (setting(path="/a/../b", content=""), "path must be a normalised path (/b)"),
        (setting(path="/a\n/b", content=""), "path must not contain control characters"),
        (setting(path="/", content=""), "path must not be the root directory"),
        (setting(path="//a", content=""), "path must be an absolute path"),
        (setting(path="/a"), "exactly one of content, content_b64, content_secret"),
        (setting(path="/a", content="", content_b64=""), "exactly one of content, content_b64, content_secret"),
        (setting(path="/a", content="", mode=420), 'mode must be an octal number in quotes, such as "0644"'),
        (setting(path="/a", content="", mode="4755"), "mode must be an octal number"),
        (setting(path="/a", content="", mod="0644"), "there is no field mod for the kind file"),
        (setting(path="/a", content=5), "content must be text"),
        (setting(path="/a", content_b64="!"), "content_b64 must be base64"),
        (setting(path="/a", content="", secret="yes"), "secret must be true or false"),
        (setting(path="/a", content="", validate=["visudo"]), 'validate must have "%s"'),
        (setting("absent", path="/etc", recursive=True), "trees are removed only at or below /etc/kubernetes"),
        (setting("absent", path="/run", recursive=True), "trees are removed only"),
        (setting("link", path="/a"), "target is missing"),
        (setting("module", name="-r"), "is not the name of a kernel module"),
        (setting("sysctl", values={"a.b": "1\n2"}), "has for a.b a value that is neither a number nor a line of text"),
        (setting("sysctl", values={"a.b": True}), "neither a number nor a line"),
        (setting("sysctl", values={"../x": "1"}), "is not the name of a sysctl"),
        (setting("swap", mode=False), "mode must be one of off, limited, keep"),
        (setting("unit", name="--now"), "is not the name of a systemd unit"),
        (setting("unit", name="x", state="restarted"), "state must be one of started, stopped, restarted_on, null"),
        (setting("unit", name="x", wait="30"), "wait must be a number of seconds"),
        (setting("unit", name="x", masked=True, state="started"), "a masked unit can be neither enabled nor started"),
        (setting("handler", argv=[], on=["b"]), "argv must be a list that is not empty"),
        (setting("handler", argv="true", on=["b"]), "argv must be a list"),
        (setting("hold", packages=["a b"], held=True), "is not the name of a package"),
        (setting("firewall", ports=["10250"]), "must look like 10250/tcp"),
        (setting("firewall", ports=["9-8/tcp"]), "is not a range of ports"),
        (setting("firewall", ports=["70000/tcp"]), "is not a range of ports"),
        (setting("hostname", name="Node_1"), "name is 'Node_1': it is no host name (RFC 1123)"),
        ({"kind": "swap", "mode": "off", "id": "a"}, "step is missing"),
        ("nonsense", "settings[0] must be a dictionary"),
    ],
)
def test_bad_settings(bad, says):
    (error,) = engine.setting_errors([bad])
    assert says in error


def test_all_errors_are_reported_at_once():
    found = engine.setting_errors(
        [setting(path="x", content="", mode=1), setting("swap", mode="on"), setting("swap", mode="off")]
    )
    assert len(found) == 5
    assert sum("this id occurs twice" in error for error in found) == 2


def test_two_settings_for_one_path():
    (error,) = engine.setting_errors(
        [setting(path="/a", content=""), {**setting("link", path="/a", target="b"), "id": "b"}]
    )
    assert error == "b: /a is already the path of a"


def test_who_waits_comes_later():
    unit = {**setting("unit", name="x", restart_on=["a"]), "id": "u"}
    assert engine.setting_errors([setting(path="/a", content=""), unit]) == []
    assert engine.setting_errors([unit, setting(path="/a", content="")]) == [
        "u: it waits for a, which does not come before it"
    ]
    assert engine.setting_errors([{**unit, "restart_on": ["u"]}]) == [
        "u: it waits for u, which does not come before it"
    ]


@given(st.text())
def test_a_path_that_passes_is_one_line_and_has_no_detours(path):
    if host.path_error(path) is None:
        assert path.startswith("/")
        assert not set(path.split("/")) & {".", ".."}
        assert "\n" not in path


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4))
def test_no_value_breaks_the_checks(value):
    for kind, fields in engine.KINDS.items():
        for field in fields:
            engine.setting_errors([setting(kind, **{field: value})])
        engine.setting_errors([{**setting(kind), "id": value, "step": value}])
    engine.setting_errors([setting(value)])  # type: ignore[arg-type]


def test_queries():
    empty = dict.fromkeys(("packages", "binaries", "units", "files", "sysctls", "modules"), ())
    assert info.query_errors(empty) == []
    good = {"binaries": ["containerd", "/opt/cni/bin/bridge"], "units": ["kubelet", "a@b.service"], "files": ["/x"]}
    assert info.query_errors({**empty, **good}) == []
    bad = {"packages": ["--admindir=x"], "binaries": ["a/b"], "units": ["-H"], "files": ["x"], "modules": ["a b"]}
    assert len(info.query_errors({**empty, **bad})) == 5


SHA = "0" * 64


def artifact(**fields: object) -> dict:
    """An artifact that is good as far as nothing else is given."""
    good = {"name": "runc", "version": "1", "url": "https://x/runc", "sha256": SHA, "kind": "binary"}
    return {**good, "install": [{"path": "/usr/local/sbin/runc", "mode": "0755"}], "links": [], **fields}


TAR = {"kind": "tar", "install": [{"member": "bin/*", "directory": "/usr/local/bin"}]}


def test_good_artifacts():
    assert node_artifacts.artifact_errors([artifact(), artifact(name="b", **TAR)]) == []
    assert node_artifacts.artifact_errors([artifact(sha256=None, sha512=SHA * 2)]) == []
    link = {"path": "/usr/bin/x", "target": "../local/bin/x"}
    assert node_artifacts.artifact_errors([artifact(links=[link], url="http://u:p@127.0.0.1:80/x?y#z")]) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "../x"}, "name '../x'"),
        ({"url": "ftp://x/y"}, "url must be an http or https URL"),
        ({"url": "https://x/y z"}, "url must be an http or https URL"),
        ({"url": "file:///etc/shadow"}, "url must be"),
        ({"url": "https://:pass@/x"}, "url must be"),
        ({"url": "https://x:99999/"}, "url must be"),
        ({"sha256": "A" * 64}, "must be 64 lower-case hexadecimal digits"),
        ({"sha256": ""}, "exactly one of sha256 and sha512 must be given"),
        ({"sha512": SHA * 2}, "exactly one of sha256 and sha512 must be given"),
        ({"sha256": "", "sha512": SHA}, "must be 128 lower-case hexadecimal digits"),
        ({"install": []}, "install must be a list"),
        ({"install": [{"path": "/a"}, {"path": "/b"}]}, "a binary is installed once"),
        ({"install": [{"directory": "/a"}]}, "a binary is installed at a path"),
        ({"install": [{"path": "/a", "mode": "4755"}]}, "mode '4755' must be an octal number"),
        ({"install": [{"path": "relative"}]}, "must be an absolute path"),
        ({**TAR, "install": [{"member": "../x", "path": "/a"}]}, "member '../x' must be a path inside the archive"),
        ({**TAR, "install": [{"member": "x"}]}, "exactly one of path and directory"),
        ({**TAR, "install": [{"path": "/a"}]}, "member None must be a path inside"),
        ({"links": [{"path": "x", "target": "y"}]}, "path 'x' must be an absolute path"),
        ({"checksum": "x"}, "there is no field checksum"),
    ],
)
def test_bad_artifacts(fields, says):
    found = node_artifacts.artifact_errors([artifact(**fields)])
    assert any(says in error for error in found), found
    assert "pass" not in "".join(found)


def test_two_artifacts_with_one_name_or_one_path():
    assert len(node_artifacts.artifact_errors([artifact(), artifact()])) == 1
    assert node_artifacts.artifact_errors([artifact(), artifact(name="b")]) == [
        "b: /usr/local/sbin/runc is already a file of runc"
    ]


def test_urls_are_shown_without_what_is_secret():
    url = "https://user:p%40ss@host:8443/a/b?X-Signature=0123456789&n=1#f"
    assert fetch.public(url) == "https://host:8443/a/b"
    assert fetch.secrets([url]) == {"p%40ss", "p@ss", "0123456789"}
    assert fetch.secrets(["https://host/a@b:c@d"]) == set()
