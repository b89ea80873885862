# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins in URLs, and what a registry asks for."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import web
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import ImageUrl

GALAXY = Path(__file__).resolve().parents[3] / "galaxy.yml"


def test_the_version_is_the_collections():
    assert re.findall(r"^version: *(\S+)", GALAXY.read_text(encoding="utf-8"), re.MULTILINE) == [web.VERSION]


@pytest.mark.parametrize(
    ("login", "sent"),
    [
        ("user:pass", b"user:pass"),
        ("user", b"user:"),  # RFC 7617 wants the colon
        ("us%3Aer:p%40s:s", b"us:er:p@s:s"),
        ("user:%ff", b"user:\xff"),
        (":", b":"),
    ],
)
def test_the_check_and_the_image_command_send_the_same_login(login, sent):
    url = f"https://{login}@host.example/image.raw"
    header = "Basic " + base64.b64encode(sent).decode()
    assert web.split_login(url) == ("https://host.example/image.raw", header)
    assert ImageUrl(url).authorization == header


def test_a_url_without_a_login_has_no_header():
    assert web.split_login("https://host.example/a?b#c") == ("https://host.example/a?b", "")


def test_a_token_server_is_asked_by_tls_alone():
    values = {"realm": "https://login.example/token?a=b", "service": "registry"}
    assert web.token_server(values, "https", "team/app") == (
        "https://login.example/token?a=b&service=registry&scope=repository%3Ateam%2Fapp%3Apull",
        "login.example",
    )
    assert web.token_server({"realm": "http://login.example"}, "http", "app")[1] == "login.example"
    with pytest.raises(web.BadRedirect):
        web.token_server({"realm": "http://login.example"}, "https", "app")
    with pytest.raises(ValueError, match="Port"):
        web.token_server({"realm": "https://login.example:x"}, "https", "app")


@pytest.mark.parametrize(
    ("answer", "token"),
    [(b'{"token":"t"}', "t"), (b'{"access_token":"t"}', "t"), (b'{"token":"a b"}', ""), (b"[]", ""), (b"\xff", "")],
)
def test_the_token_of_an_answer(answer, token):
    assert web.token_in(answer) == token
