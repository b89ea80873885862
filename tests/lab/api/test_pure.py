# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Cloud API's pure parts: bodies, pages, label selectors, rate limit, SSH keys."""

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api import schemas
from lab.api.http import Bucket, Page, link_header, sort
from lab.api.metadata_only import fingerprint
from lab.api.schemas import ApiError, label_problems, parse_selector
from tests.clock import Clock
from tests.key_pairs import key_pair

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


@pytest.mark.parametrize(
    ("model", "body", "named"),
    [
        (schemas.SshKeyCreate, {"labels": {"!": ""}}, "'name', 'public_key', 'labels'"),
        (schemas.NamedUpdate, {"labels": 5, "name": 5}, "'name', 'labels'"),
        (schemas.NetworkCreate, {"labels": 5, "name": "a", "subnets": 5}, "'ip_range', 'labels', 'subnets'"),
        (schemas.AttachToNetwork, {"network": 1, "alias_ips": 5, "ip_range": 5}, "'alias_ips', 'ip_range'"),
        (schemas.ServiceCreate, {"destination_port": 0}, "'protocol', 'destination_port'"),
    ],
)
def test_wrong_fields_are_named_in_the_order_of_the_request(model, body, named):
    assert refusal(model, body).message == f"invalid input in field {named}"


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


KEYS = {"id": lambda item: item[0], "name": lambda item: item[1]}


@given(st.integers(0, 300), st.integers(1, 50))
def test_following_next_page_sees_everything_once(total, size):
    items, seen, number = list(range(total)), [], 1
    while number:
        page = Page(number, size)
        seen += page.cut(items)
        meta = page.meta(total)
        assert meta["total_entries"] == total
        number = meta["next_page"]
    assert seen == items


@given(st.integers(0, 300), st.integers(1, 50), st.integers(1, 40))
def test_meta_is_consistent(total, size, number):
    meta = Page(number, size).meta(total)
    assert meta["last_page"] >= 1
    assert (meta["last_page"] - 1) * size < max(total, 1) <= max(meta["last_page"] * size, 1)
    assert (meta["next_page"] is None) == (number >= meta["last_page"])
    assert (meta["previous_page"] is None) == (number == 1)
    if meta["previous_page"]:
        assert meta["previous_page"] <= meta["last_page"]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ({}, Page(1, 25)),
        ({"page": "3"}, Page(3, 25)),
        ({"per_page": "50"}, Page(1, 50)),
        ({"per_page": "1000"}, Page(1, 50)),
    ],
)
def test_query(query, page):
    assert Page.from_query(query) == page


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "²", "+1"])
@pytest.mark.parametrize("name", ["page", "per_page"])
def test_bad_query(name, text):
    with pytest.raises(ApiError) as refusal:
        Page.from_query({name: text})
    assert refusal.value.details["fields"][0]["name"] == name


def test_link_header():
    meta = Page(2, 10).meta(35)
    assert link_header(meta, lambda number: f"http://x/?page={number}") == (
        '<http://x/?page=1>; rel="prev", <http://x/?page=3>; rel="next", <http://x/?page=4>; rel="last"'
    )


def test_sort():
    items = [(3, "b"), (1, "b"), (2, "a")]
    assert sort(items, [], KEYS) == [(1, "b"), (2, "a"), (3, "b")]
    assert sort(items, ["id:desc"], KEYS) == [(3, "b"), (2, "a"), (1, "b")]
    assert sort(items, ["name", "id:desc"], KEYS) == [(2, "a"), (3, "b"), (1, "b")]
    assert sort(items, ["name:desc"], KEYS) == [(1, "b"), (3, "b"), (2, "a")]


@pytest.mark.parametrize("term", ["size", "id:up", "", ":asc"])
def test_bad_sort(term):
    with pytest.raises(ApiError) as refusal:
        sort([], [term], KEYS)
    assert refusal.value.code == "invalid_input"


@given(st.lists(st.tuples(st.integers(), st.text(max_size=3)), max_size=20))
def test_sort_keeps_all_items(items):
    assert sorted(sort(items, ["name:desc", "id"], KEYS)) == sorted(items)


SERVERS = {
    "a": {"env": "prod", "tier": "1"},
    "b": {"env": "dev"},
    "c": {"tier": "2", "example.org/owner": "me"},
    "d": {},
    "e": {"env": ""},
}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "abcde"),
        ("env=prod", "a"),
        ("env==prod", "a"),
        ("env = prod", "a"),
        ("env=", "e"),
        ("env!=prod", "bcde"),
        ("env", "abe"),
        ("!env", "cd"),
        ("! env", "cd"),
        ("env in (prod,dev)", "ab"),
        ("env in (prod, dev)", "ab"),
        ("env notin (prod,dev)", "cde"),
        ("env,tier", "a"),
        ("env in (prod,dev),!tier", "b"),
        ("example.org/owner=me", "c"),
        ("tier in (1,2),env!=prod", "c"),
    ],
)
def test_selectors(selector, names):
    matches = parse_selector(selector)
    assert "".join(name for name, labels in SERVERS.items() if matches(labels)) == names


@pytest.mark.parametrize(
    "selector",
    ["=", "a=b=c", "a in", "a in (b", "a in ()c", "-a", "a b", "a=%", "a,,b", "a=b,", "!", "a in (b c)", "a!b"],
)
def test_nonsense_is_refused(selector):
    with pytest.raises(ApiError) as refusal:
        parse_selector(selector)
    assert (refusal.value.status, refusal.value.code) == (422, "invalid_input")
    assert refusal.value.details["fields"][0]["name"] == "label_selector"


WORD = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
LABELS = st.dictionaries(WORD, WORD | st.just(""), max_size=4)


@given(LABELS, WORD, WORD)
def test_each_operator_and_its_opposite(labels, key, value):
    assert parse_selector(f"{key}={value}")(labels) == (labels.get(key) == value)
    assert parse_selector(f"{key}={value}")(labels) != parse_selector(f"{key}!={value}")(labels)
    assert parse_selector(f"{key} in ({value})")(labels) != parse_selector(f"{key} notin ({value})")(labels)
    assert parse_selector(key)(labels) != parse_selector(f"!{key}")(labels)


@given(LABELS, st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4))
def test_comma_is_and(labels, pairs):
    terms = [f"{key}={value}" for key, value in pairs]
    assert parse_selector(",".join(terms))(labels) == all(parse_selector(term)(labels) for term in terms)


@given(st.text(max_size=30))
def test_any_text_is_either_a_selector_or_refused(text):
    code, result = None, None
    try:
        result = parse_selector(text)({})
    except ApiError as refusal:
        code = refusal.code
    assert (code == "invalid_input") != (result in (True, False))


@given(LABELS)
def test_good_labels_have_no_problems(labels):
    assert label_problems(labels) == []


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"-a": "x"},
        {"a-": "x"},
        {"a" * 64: "x"},
        {"a": "x" * 64},
        {"a": "-"},
        {"a b": "x"},
        {"A_B/c": "x"},
        {"/c": "x"},
        {"hetzner.cloud/x": "y"},
        {".".join(["a" * 63] * 4) + ".b/c": "x"},
        {"a": "ü"},
        {"a\n": "x"},
    ],
)
def test_bad_labels(labels):
    assert label_problems(labels)


def test_longest_labels():
    prefix = ".".join(["a" * 62] * 4)
    assert len(prefix) == 251
    assert label_problems({f"{prefix}/{'k' * 63}": "v" * 63}) == []


def test_burst_then_one_a_second():
    clock = Clock(1_000_000.0)
    bucket = Bucket(3600, 1.0, clock)
    assert all(bucket.take() for number in range(3600))
    assert not bucket.take()
    clock.now += 0.9
    assert not bucket.take()
    clock.now += 0.2
    assert bucket.take()
    assert not bucket.take()


def test_headers():
    clock = Clock(1_000_000.0)
    bucket = Bucket(100, 1.0, clock)
    assert bucket.headers() == {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "100",
        "RateLimit-Reset": "1000000",
    }
    for _dummy in range(40):
        bucket.take()
    assert bucket.headers()["RateLimit-Remaining"] == "60"
    assert bucket.headers()["RateLimit-Reset"] == "1000040", "when the bucket is full, not when the next token comes"
    clock.now += 10
    assert bucket.headers()["RateLimit-Remaining"] == "70"


def test_drain():
    clock = Clock(1_000_000.0)
    bucket = Bucket(100, 1.0, clock)
    bucket.drain(2)
    assert [bucket.take(), bucket.take(), bucket.take()] == [True, True, False]
    bucket.drain(50)
    assert not bucket.take(), "draining never fills"


@pytest.mark.parametrize(("limit", "refill"), [(0, 1.0), (-1, 1.0), (1, -1.0)])
def test_a_limit_without_sense_is_refused(limit, refill):
    with pytest.raises(ValueError, match="must"):
        Bucket(limit, refill, Clock(1_000_000.0))


@given(
    st.integers(1, 50),
    st.floats(0, 5),
    st.lists(st.floats(-3, 10), max_size=60),
)
def test_never_more_than_limit_plus_refill(limit, refill, steps):
    clock = Clock(1_000_000.0)
    bucket = Bucket(limit, refill, clock)
    taken, forward = 0, 0.0
    for step in steps:
        clock.now += step
        forward += max(0.0, step)
        taken += bucket.take()
        assert 0 <= int(bucket.headers()["RateLimit-Remaining"]) <= limit
    assert taken <= limit + refill * forward + 1e-6


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHw5G9QcFpsLR/cpqDOuQjoqpvdKTVeeNVID2mSSiQzj"


@pytest.mark.parametrize("kind", [("ed25519",), ("rsa", "-b", "2048"), ("ecdsa", "-b", "256")])
def test_same_fingerprint_as_openssh(kind, tmp_path):
    file = tmp_path / "key"
    public = key_pair(file, *kind, comment="a comment")
    seen = subprocess.run(
        ["ssh-keygen", "-l", "-E", "md5", "-f", f"{file}.pub"], check=True, capture_output=True, text=True
    ).stdout
    assert f"MD5:{fingerprint(public)} " in seen


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 %%%",
        "ssh-ed25519 QUJD",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "ssh-rsa " + KEY.split()[1],
        f"{KEY}\n{KEY}",
        "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode(),
    ],
)
def test_no_keys(text):
    with pytest.raises(ValueError, match="public key"):
        fingerprint(text)


@given(st.text(max_size=80))
def test_any_text_is_a_key_or_a_value_error(text):
    try:
        fingerprint(text)
    except ValueError:
        return
    assert text.split()[0].startswith(("ssh-", "ecdsa-", "sk-"))
