# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""References, logins and manifests, without a registry."""

from __future__ import annotations

import base64
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import OciUrl
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.oci import (
    Descriptor,
    Login,
    OciImage,
    as_object,
    parse_challenge,
    public_key,
)

HEX = "ab" * 32
CONFIG = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": f"sha256:{HEX}", "size": 2}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("oci://r.example/a/b:v1", "https://r.example/v2/a/b/manifests/v1"),
        ("oci://r.example:5000/a:v1#plain-http=yes", "http://r.example:5000/v2/a/manifests/v1"),
        (f"oci://[::1]:5000/a:v1@sha256:{HEX}", f"https://[::1]:5000/v2/a/manifests/sha256:{HEX}"),
        ("oci://docker.io/debian:13", "https://registry-1.docker.io/v2/library/debian/manifests/13"),
        ("oci://docker.io/me/debian:13", "https://registry-1.docker.io/v2/me/debian/manifests/13"),
    ],
)
def test_where_a_manifest_is(text, location):
    url = OciUrl(text)
    assert url.location("manifests", url.reference) == location


@given(st.text(alphabet="oci:/@.ab1#-_? \n", max_size=30))
def test_any_text_is_a_reference_or_refused(text):
    for candidate in (text, "oci://r.example/" + text):
        try:
            url = OciUrl(candidate)
        except Refused:
            continue
        assert url.reference
        assert "@" not in url.host
        assert not set(url.location("manifests", url.reference)) & set(" \n#?")


def login(token: str, text: str = "oci://r.example/a:v1") -> Login:
    return Login(OciUrl(text), token, "tests", 0.01, lambda said: None)


def test_a_user_waits_for_the_question_and_is_asked_once():
    one = login("robot:päss")
    assert one.header == ""
    assert one.renew(['Basic realm="x"'])
    assert base64.b64decode(one.header.split()[1]).decode() == "robot:päss"
    assert not one.renew(['Basic realm="x"'])


def test_a_token_is_shown_at_once_then_as_caph_shows_it():
    one = login("ghp_token")
    assert one.header == "Bearer ghp_token"
    assert one.renew(["Bearer realm=https://x"])
    assert base64.b64decode(one.header.split()[1]) == b"ghp_token"
    assert not one.renew(["Bearer realm=https://x"])


@pytest.mark.parametrize("realm", ["http://r.example/token", "file:///etc/passwd", "token"])
def test_a_login_is_not_sent_in_the_clear(realm):
    with pytest.raises(Refused, match="refused"):
        login("robot:pw").renew([f'Bearer realm="{realm}"'])


@pytest.mark.parametrize("token", ["a b", "line\nbreak", "ü"])
def test_a_token_that_is_none_is_refused_and_not_shown(token):
    with pytest.raises(Refused) as caught:
        login(token)
    assert token not in str(caught.value)


def test_challenges_are_taken_apart():
    text = 'Bearer realm="https://x/t?a=b",service="s, with comma",scope="repository:a:pull",error=invalid_token'
    scheme, values = parse_challenge(text)
    assert (scheme, values["realm"], values["service"]) == ("bearer", "https://x/t?a=b", "s, with comma")
    assert values["error"] == "invalid_token"


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"digest": "sha256:x", "size": 1}, {"digest": f"sha256:{HEX}", "size": -1},
        {"digest": f"sha256:{HEX}", "size": True}, {"digest": f"sha256:{HEX}", "size": "1"},
        {"digest": f"md5:{HEX}", "size": 1},
    ],
)  # fmt: skip
def test_descriptors_that_are_none(value):
    with pytest.raises(Refused, match="manifest is damaged"):
        Descriptor(value)


class Manifests:
    """A registry of made-up manifests: every answer in its turn."""

    def __init__(self, *found: dict):
        self.url, self.found, self.asked = OciUrl("oci://r.example/a:v1"), list(found), []

    def manifest(self, reference: str) -> tuple:
        self.asked.append(reference)
        return self.found.pop(0), f"sha256:{HEX}"

    def document(self, descriptor, what):
        return {"os": "linux", "architecture": "amd64"}


def entry(number: int, **platform_: str) -> dict:
    return {"digest": "sha256:" + str(number) * 64, "size": 1, "platform": platform_}


def plain(*layers: dict, **more) -> dict:
    return {"config": CONFIG, "layers": [{"digest": f"sha256:{HEX}", "size": 9, **one} for one in layers], **more}


def test_the_manifest_for_this_machine_is_chosen():
    entries = [
        entry(1, os="linux", architecture="arm64", variant="v8"), entry(2, os="windows", architecture="amd64"),
        entry(3, os="unknown", architecture="unknown"), entry(4, os="linux", architecture="amd64"),
    ]  # fmt: skip
    registry = Manifests({"manifests": entries}, plain({}))
    assert OciImage(registry).digest == f"sha256:{HEX}"
    assert registry.asked == ["v1", "sha256:" + "4" * 64]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([{"manifests": [entry(1, os="linux", architecture="s390x")]}], "there is linux/s390x"),
        ([{"manifests": []}], "nothing with a platform"),
        ([{"manifests": "x"}], "nothing with a platform"),
        ([{"manifests": [], "layers": []}], "index and manifest at once"),
        ([{"schemaVersion": 1, "fsLayers": []}], "no image manifest"),
        ([plain()], "has no layers"),
        ([plain({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"})], "encrypted"),
        ([{"manifests": [entry(1, os="linux", architecture="amd64")]}] * 4, "no image manifest"),
    ],
)
def test_manifests_that_cannot_be_installed(found, why):
    with pytest.raises(Refused, match=why):
        OciImage(Manifests(*found))


def test_one_of_several_files():
    titles = [{"annotations": {"org.opencontainers.image.title": name}} for name in ("a", "b", "b")]
    image = OciImage(Manifests(plain(*titles)))
    assert image.only_layer("a").title == "a"
    for title in ("", "b", "c"):
        with pytest.raises(Refused, match="a, b, b"):
            image.only_layer(title)


@given(st.binary(max_size=40))
def test_documents_are_objects_or_refused(data):
    try:
        assert isinstance(as_object(data, "thing"), dict)
    except Refused as error:
        assert "no JSON object" in str(error)


@pytest.mark.parametrize("key", ["", "x" * 39, "a" * 40 + "!", "-----BEGIN PUBLIC KEY-----"])
def test_keys_that_are_none(key):
    with pytest.raises(Refused, match="cosign-key="):
        public_key(key)


def test_a_plus_may_have_become_a_space():
    assert "a+" * 20 in public_key("a " * 20 + "a" * 40)
