# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ignition: what is written is read back, two of them become one, what Ignition would refuse is refused here."""

from __future__ import annotations

import base64
import functools
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import ignition
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=2000), st.text(max_size=500).map(str.encode), st.just(b"a" * 5000)))
def test_every_content_survives(data):
    resource = ignition.source(data)
    assert ignition.content(resource) == data
    assert resource["source"].isascii()
    assert len(resource["source"]) <= 4 * ((len(data) + 2) // 3) + 20


def test_long_text_is_packed():
    assert ignition.source(b"line\n" * 1000)["compression"] == "gzip"


def test_a_configuration_has_only_what_it_was_given():
    config = ignition.Config().file("/etc/motd", "hello\n", 0o644).unit("a.service", "[Unit]\n", enabled=True)
    config.user("core", ["ssh-ed25519 AAAA"]).user("core", ["ssh-ed25519 AAAA", "ssh-ed25519 BBBB"])
    assert json.loads(ignition.render(config.to_dict())) == {
        "ignition": {"version": "3.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA", "ssh-ed25519 BBBB"]}]},
        "storage": {
            "files": [
                {"path": "/etc/motd", "mode": 420, "overwrite": True, "contents": {"source": "data:,hello%0A"}},
            ]
        },
        "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\n", "enabled": True}]},
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.file("etc/motd", ""), "not absolute"),
        (lambda c: c.file("/etc/../motd", ""), "not plain"),
        (lambda c: c.file("/etc//motd", ""), "not plain"),
        (lambda c: c.file("/etc/mo\ntd", ""), "not plain"),
        (lambda c: c.file("/a", "").file("/a", ""), "given twice"),
        (lambda c: c.unit("a", ""), "no name of a systemd unit"),
        (lambda c: c.unit("../a.service", ""), "no name of a systemd unit"),
        (lambda c: c.unit("a.service", "").unit("a.service", ""), "given twice"),
        (lambda c: c.user("Root", []), "no user name"),
    ],
)
def test_bad_parts_are_refused(call, message):
    with pytest.raises(ImageError, match=message):
        call(ignition.Config())


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ([], "no JSON object"),
        ({}, "'ignition.version' None"),
        ({"ignition": {"version": "2.3.0"}}, "'ignition.version' '2.3.0'"),
        ({"storage": {"files": {}}}, "storage.files is no list"),
        ({"storage": {"files": [{"path": "x"}]}}, "storage.files[0].path: path 'x' is not absolute"),
        ({"storage": {"files": [{"path": "/x"}], "links": [{"path": "/x"}]}}, "'/x' is also storage.files[0]"),
        ({"storage": {"files": [{"path": "/x", "mode": "0644"}]}}, "'0644' is no file mode"),
        ({"storage": {"files": [{"path": "/x", "contents": {"source": "file:///etc/x"}}]}}, "no URL that Ignition"),
        ({"storage": {"files": [{"path": "/x", "contents": {"source": "data:;base64,%%%"}}]}}, "is damaged"),
        ({"storage": {"files": [{"path": "/x", "contents": {"source": "data:;base64,AAAA", "compression": "gzip"}}]}},
         "is damaged"),
        ({"systemd": {"units": [{"name": "a.service"}, {"name": "a.service"}]}}, "'a.service' is given twice"),
        ({"systemd": {"units": [{"name": 3}]}}, "no name of a systemd unit"),
        ({"passwd": {"users": [{"name": "a b"}]}}, "no user name"),
        ({"passwd": []}, "passwd is no object"),
        ({"storage": "x"}, "storage is no object"),
        ({"storage": {"files": [None]}}, "storage.files[0] is no object"),
        ({"storage": {"files": [{"path": "/x", "append": {"source": "data:,"}}]}}, "files[0].append is no list"),
        ({"storage": {"files": [{"path": "/x", "mode": "a" * 5000}]}}, "… is no file mode"),
        ({"systemd": {"units": [{"name": "a.service", "contents": 5}]}}, "systemd.units[0].contents is no text"),
        ({"systemd": {"units": [{"name": "a.service", "enabled": "no"}]}}, "units[0].enabled is no truth value"),
        ({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": "a"}]}}, "sshAuthorizedKeys is no list"),
        ({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [5]}]}}, "sshAuthorizedKeys[0] is no text"),
        ({"passwd": {"groups": [{"name": []}]}}, "passwd.groups[0].name is no text"),
        ({"x": float("nan")}, "x is no number that JSON has"),
        ({"x": ["\ud800"]}, "x[0] is no text in UTF-8"),
        ({"\ud800": 1}, "the configuration has a key that is no text in UTF-8"),
        ({"x": functools.reduce(lambda inner, _turn: [inner], range(90), 0)}, "is nested deeper than 64 levels"),
    ],
)  # fmt: skip
def test_what_ignition_would_refuse(config, problem):
    if isinstance(config, dict) and config and "ignition" not in config:
        config = {"ignition": {"version": "3.2.0"}, **config}
    assert problem in "\n".join(ignition.problems(config))
    with pytest.raises(ImageError, match="not valid"):
        ignition.parse(json.dumps(config))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)
def test_no_shape_breaks_the_check(shape):
    for config in (shape, {"storage": shape}, {"storage": {"files": shape}}, {"systemd": {"units": [shape]}},
                   {"storage": {"files": [{"path": "/x", "contents": shape, "append": shape, "mode": shape}]}},
                   {"passwd": {"users": [{"name": shape}]}}, {"ignition": shape}):  # fmt: skip
        assert all(isinstance(problem, str) for problem in ignition.problems(config))


def test_a_resource_may_not_grow_without_end():
    bomb = gzip.compress(bytes(65 * 1024 * 1024))
    wrong = {
        bomb: "has more than 67108864 bytes",
        bomb[:-4]: "has more",
        gzip.compress(b"a")[:-1]: "no whole gzip file",
        gzip.compress(b"a") * 2: "no whole gzip file",
    }
    for packed, reason in wrong.items():
        url = "data:;base64," + base64.b64encode(packed).decode()
        with pytest.raises(ImageError, match=reason):
            ignition.content({"source": url, "compression": "gzip"})


def test_null_says_nothing_in_what_is_merged():
    config = ignition.Config().file("/a", "1").user("core", ["ssh-rsa AA"]).to_dict()
    more = {"ignition": {"version": "3.2.0"}, "storage": None, "passwd": {"users": None}, "systemd": None}
    assert ignition.merge(config, more) == {**config, "systemd": None}
    keys = {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": None}]}}
    assert ignition.merge(config, keys)["passwd"] == config["passwd"]
    assert ignition.merge(ignition.merge(more, keys), config)["passwd"] == config["passwd"]


def test_null_can_be_shown():
    files = [{"path": "/a", "mode": None, "contents": None, "append": None}]
    config = {"ignition": {"version": "3.2.0"}, "storage": {"files": files}}
    assert ignition.problems(config) == []
    assert ignition.shown(config)["storage"]["files"] == [{"path": "/a", "mode": None}]


def test_two_become_one():
    first = (
        ignition.Config().file("/a", "1").file("/b", "1").unit("a.service", "1").user("core", ["ssh-rsa AA"]).to_dict()
    )
    second = ignition.Config().file("/b", "2").file("/c", "2").unit("a.service", "2").to_dict()
    second["ignition"] = {"version": "3.3.0"}
    second["passwd"] = {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa BB"]}, {"name": "root"}]}
    second["kernelArguments"] = {"shouldExist": ["quiet"]}
    merged = ignition.merge(first, second)
    assert ignition.problems(merged) == []
    assert merged["ignition"]["version"] == "3.3.0"
    assert {one["path"]: ignition.content(one["contents"]) for one in merged["storage"]["files"]} == {
        "/a": b"1", "/b": b"2", "/c": b"2",
    }  # fmt: skip
    assert merged["systemd"]["units"] == [{"name": "a.service", "contents": "2"}]
    assert merged["passwd"]["users"][0]["sshAuthorizedKeys"] == ["ssh-rsa AA", "ssh-rsa BB"]
    assert merged["kernelArguments"] == {"shouldExist": ["quiet"]}


def test_merging_with_nothing_changes_nothing():
    config = ignition.Config().file("/a", "1").user("core", ["ssh-rsa AA"]).to_dict()
    empty = {"ignition": {"version": "3.2.0"}}
    assert ignition.merge(config, empty) == config == ignition.merge(empty, config)
    assert ignition.merge(config, config) == config


def test_shown_without_secrets():
    config = ignition.Config().file("/etc/open", "text\n", 0o644).file("/etc/secret", "hunter2", 0o600)
    config.file("/etc/more", "line\n", append=True)
    document = config.to_dict()
    document["passwd"] = {"users": [{"name": "core", "passwordHash": "hunter2"}]}
    text = json.dumps(ignition.shown(document))
    assert "hunter2" not in text
    assert ignition.source(b"hunter2")["source"] not in text
    assert '"text\\n"' in text
    assert '"line\\n"' in text
    assert "(7 bytes)" in text
    assert document["passwd"]["users"][0]["passwordHash"] == "hunter2"
