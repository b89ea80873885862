# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""User data as cloud-init and Ignition read it: golden, within its limit, nothing secret readable."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.user_data import InputError
from tests.unit.node_userdata.examples import FULL, SMALL, rendered, written

GOLDEN = Path(__file__).parent / "golden"
FORMATS = ["cloud-init", "ignition"]
SETUP = (Path(user_data.__file__).parent / "setup.sh").read_text(encoding="utf-8")


def decoded(text: str, name: str) -> str:
    """The user data with its files in clear text, for people who read a golden file; setup.sh is elsewhere."""
    contents = written(text, name)
    assert contents[user_data.SETUP] == (0o700, SETUP)
    data = yaml.safe_load(text) if name == "cloud-init" else json.loads(text)
    for entry in data["write_files"] if name == "cloud-init" else data["storage"]["files"]:
        shown = contents[entry["path"]][1] if entry["path"] != user_data.SETUP else "(setup.sh)"
        if name == "cloud-init":
            entry["content"] = shown
        else:
            entry["contents"]["source"] = shown
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("label", "inputs"), [("full", FULL), ("small", SMALL)])
def test_golden(name, label, inputs):
    path = GOLDEN / f"{label}.{name}.json"
    text = decoded(rendered(inputs, name), name)
    if os.environ.get("KUBENODE_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_cloud_init_begins_with_its_marker():
    assert rendered(SMALL).startswith("#cloud-config\n")


@pytest.mark.parametrize("name", FORMATS)
def test_only_root_reads_a_file_with_a_secret(name):
    secret = ["abcdef.0123456789abcdef", "x-y", "key = 'value'", "http://proxy:3128"]
    for path, (mode, content) in written(rendered(FULL, name), name).items():
        if any(part in content for part in secret):
            assert mode & 0o077 == 0, path


@pytest.mark.parametrize("name", FORMATS)
def test_limit_is_exact_and_the_overrun_is_reported(name):
    size = len(rendered(FULL, name, limit=0).encode())
    assert rendered(FULL, name, limit=size)
    with pytest.raises(InputError, match=f"is {size} bytes, 1 more than the {size - 1} allowed"):
        rendered(FULL, name, limit=size - 1)


def test_default_limit_is_hetzners():
    with pytest.raises(InputError, match="more than the 32768 allowed"):
        rendered({**FULL, "cloud_config": "x" * 32768})


def test_the_same_inputs_give_the_same_text():
    again = {key: FULL[key] for key in reversed(list(FULL))}
    assert rendered(FULL) == rendered(again)


def test_identity_changes_with_what_is_to_be_done_not_with_the_token():
    def identity(**changed):
        return written(rendered({**FULL, **changed}), "cloud-init")[user_data.FOLDER + "/id"]

    assert identity() == identity(token="fedcba.0123456789abcdef")
    assert identity() != identity(kubelet_version="1.35.8")


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
PRINTABLE = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=30)


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(cloud_config=TEXT.filter(bool), value=TEXT, comment=PRINTABLE)
def test_values_arrive_as_they_were(name, cloud_config, value, comment):
    key = f"ssh-ed25519 AAAA {comment}".strip()
    inputs = {
        **SMALL,
        "cloud_config": cloud_config,
        "ssh_authorized_keys": [key],
        "vars": {"join_labels": {"k": value}},
    }
    text = rendered(inputs, name)
    contents = written(text, name)
    assert contents[user_data.CLOUD_CONFIG] == (0o600, cloud_config)
    assert json.loads(contents[user_data.FOLDER + "/vars.json"][1]) == {"join_labels": {"k": value}}
    if name == "cloud-init":
        assert yaml.safe_load(text)["ssh_authorized_keys"] == [key]
    else:
        assert json.loads(text)["passwd"]["users"] == [{"name": "core", "sshAuthorizedKeys": [key]}]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"provision_source": None}, "provision_source: is missing"),
        ({"provision_source": "http://x/y"}, "provision_source: has no digest"),
        ({"provision_source": 5}, "provision_source: must be text"),
        ({"phase": "join"}, "api_server: is missing"),
        ({"phase": "both"}, "phase: is 'both'"),
        ({"prebake": True, "phase": "join"}, "prebake: ends after base"),
        ({"prebake": "yes"}, "prebake: is 'yes'"),
        ({"hostname": "Node 1"}, "hostname: is 'Node 1'"),
        ({"ssh_authorized_keys": "ssh-rsa AAAA"}, "ssh_authorized_keys: must be a list"),
        ({"vars": {"other": 1}}, "vars: has 'other'"),
        ({"vars": {"base_http_proxy": "ftp://x"}}, "vars: has a base_http_proxy"),
        ({"vars": {"base_http_proxy": ["x"]}}, "vars: has a base_http_proxy"),
        ({"vars": {"base_no_proxy": "a\nb"}}, "vars: has a base_no_proxy"),
        ({"vars": {"base_sysctls": {"a": {1, 2}}}}, "vars: holds something that JSON does not know"),
        ({"vars": {"base_sysctls": float("nan")}}, "vars: holds something"),
        ({"attempts": 0}, "attempts: is 0"),
        ({"attempts": True}, "attempts: is True"),
        ({"ssh_user": "a b"}, "ssh_user: is 'a b'"),
        ({"tokens": "x"}, "tokens: is no input"),
    ],
)
def test_wrong_inputs_are_named(changed, message):
    with pytest.raises(InputError) as caught:
        rendered({**SMALL, **changed})
    assert str(caught.value).startswith(message)


def test_everything_wrong_is_reported_at_once():
    with pytest.raises(InputError) as caught:
        rendered({"hostname": "A", "token": "B", "extra": 1})
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["extra", "hostname", "token"]


def test_unknown_format():
    with pytest.raises(InputError, match="choose one of cloud-init, ignition"):
        rendered(SMALL, "butane")


@settings(deadline=None)
@given(st.text(string.printable, max_size=60))
def test_no_hostname_breaks_out_of_its_line(name):
    try:
        text = rendered({**SMALL, "hostname": name})
    except InputError:
        return
    assert yaml.safe_load(text).get("hostname") == (name or None)
