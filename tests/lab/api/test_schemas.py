# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request bodies: what is taken, what is refused, and how."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api import schemas
from lab.api.api_errors import ApiError

GOOD = {"name": "n1", "server_type": "cx23", "image": "debian-12"}


def refusal(model, body):
    with pytest.raises(ApiError) as caught:
        schemas.parse(model, body)
    assert (caught.value.status, caught.value.code) == (422, "invalid_input")
    return caught.value


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"server_type": 114, "image": 161547269, "location": 1},
        {"ssh_keys": ["k", 5], "labels": {"a": ""}, "user_data": "#cloud-config\n", "start_after_create": False},
        {"public_net": {"enable_ipv4": True, "enable_ipv6": False}, "firewalls": [{"firewall": 1}], "networks": [1]},
        {"ssh_keys": None, "labels": None, "location": None, "start_after_create": None},
        {"name": "a" * 63},
        {"name": "node-1.example.org"},
        {"user_data": "x" * 32768},
    ],
)
def test_good_servers(more):
    assert schemas.parse(schemas.ServerCreate, GOOD | more)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": "bad_name"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "a..b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"server_type": True}, "server_type"),
        ({"server_type": 1.5}, "server_type"),
        ({"image": None}, "image"),
        ({"ssh_keys": "k"}, "ssh_keys"),
        ({"ssh_keys": [None]}, "ssh_keys.0"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"user_data": "ü" * 16385}, "user_data"),
        ({"start_after_create": "false"}, "start_after_create"),
        ({"public_net": {"ipv5": 1}}, "public_net.ipv5"),
        ({"firewalls": [1]}, "firewalls.0"),
        ({"networks": ["net"]}, "networks.0"),
    ],
)
def test_bad_servers(more, field):
    error = refusal(schemas.ServerCreate, GOOD | more)
    assert field in [entry["name"] for entry in error.details["fields"]]


def test_unknown_field():
    error = refusal(schemas.ServerCreate, GOOD | {"rescue": "linux64"})
    assert error.message == "unknown field name 'rescue'"


def test_every_missing_field_is_named():
    error = refusal(schemas.ServerCreate, {})
    assert [entry["name"] for entry in error.details["fields"]] == ["name", "server_type", "image"]
    assert error.message == "invalid input in field 'name', 'server_type', 'image'"


@pytest.mark.parametrize("body", [{"type": "linux32"}, {"ssh_keys": ["name"]}, {"ssh_keys": 5}, {"keys": []}])
def test_rescue_takes_key_ids_and_linux64_only(body):
    refusal(schemas.EnableRescue, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*schemas.ServerCreate.model_fields, "other"])


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_body_is_taken_or_refused_field_by_field(body):
    refused = None
    try:
        schemas.parse(schemas.ServerCreate, body)
    except ApiError as error:
        refused = error
    assert refused is None or (refused.code == "invalid_input" and refused.details["fields"])
