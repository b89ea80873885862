# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The masker: no secret in any of its forms survives, in one piece, in many, or torn at an end."""

from __future__ import annotations

import base64
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import masking
from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import MASK, Masker

SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=4, max_size=40)
WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789%:/@+=?&~ é", min_size=1, max_size=30)
NOISE = st.binary(max_size=60)
FORMS = (
    str,
    urllib.parse.quote,
    lambda text: urllib.parse.quote(text, safe=""),
    urllib.parse.quote_plus,
    lambda text: urllib.parse.quote(text, safe="").lower() if "%" not in text and text.islower() else text,
    urllib.parse.unquote,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
)


@given(secrets=st.lists(SECRETS, min_size=1, max_size=4), noise=st.lists(NOISE, min_size=2, max_size=5), data=st.data())
def test_no_form_of_a_secret_survives(secrets, noise, data):
    form = data.draw(st.sampled_from(FORMS))(data.draw(st.sampled_from(secrets))).encode()
    masker = Masker(secrets)
    masked = masker.data(form.join(noise))
    # the text beside it may complete another secret, but never this one
    assert len(form) < masking.SHORTEST or form not in masked
    assert masker.data(masked) == masked or MASK.encode() in masked


@given(secret=SECRETS, begin=st.integers(0, 200), end=st.integers(0, 200))
def test_torn_ends_show_no_part_of_a_secret(secret, begin, end):
    raw = secret.encode()
    masked = Masker([secret]).torn(raw[min(begin, len(raw)) :] + b" between " + raw[: min(end, len(raw))])
    for length in range(masking.SHORTEST, len(raw) + 1):
        assert not masked.startswith(raw[-length:])
        assert not masked.endswith(raw[:length])


@given(
    user=WORDS.filter(lambda text: ":" not in text and len(text) >= 4),
    password=WORDS.filter(lambda text: len(text) >= 4),
)
def test_both_halves_of_a_token_and_its_login(user, password):
    token = f"{user}:{password}"
    masker = Masker(masking.of_token(token))
    login = base64.b64encode(token.encode()).decode()
    for form in (token, user, password, login, urllib.parse.quote(password, safe=""), urllib.parse.quote(token)):
        assert form.strip("=") not in masker.text(f"<<{form}>>") or set(form) <= {"*"}


@pytest.mark.parametrize(
    ("url", "hidden", "shown"),
    [
        ("https://anna:s%2Fcret@x.example/a", ["anna", "s%2Fcret", "s/cret", "s%2fcret"], ["x.example"]),
        ("https://x/a?sig=0123456789&v=1&n=short", ["0123456789", "sig=0123456789&v=1&n=short"], ["short", "v=1"]),
        ("https://x/a?X-Amz-Credential=AB%2F2026%2Fs3", ["AB/2026/s3", "AB%2F2026%2Fs3"], []),
        ("https://x/a?0123456789abcdef#sha256=0", ["0123456789abcdef"], ["sha256"]),
        ("https://token-only@x/a", ["token-only", base64.b64encode(b"token-only").decode().rstrip("=")], []),
    ],
)
def test_secrets_of_urls(url, hidden, shown):
    masker = Masker(masking.of_url(url))
    for text in hidden:
        assert text not in masker.text(f"curl: {text}: denied")
        assert text not in masker.text(f"curl: {url}: denied")
    for text in shown:
        assert text in masker.text(f"{text} is shown")


@given(st.lists(st.text(max_size=40), max_size=8))
def test_every_longer_line_of_bootstrap_data(lines):
    data = "\r\n".join(lines).encode()
    masker = Masker([], masking.of_lines(data))
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        line = line.strip()
        if len(line) >= masking.SHORTEST_LINE and set(line) != {ord("*")}:
            assert line not in masker.data(b"cat: " + line + b"\n")


def test_overlapping_secrets_go_as_a_whole():
    assert Masker(["abcdef", "defghi"]).text("x abcdefghi y") == f"x {MASK} y"
    assert Masker(["abcd", "abcdefgh"]).text("abcdefgh abcd") == f"{MASK} {MASK}"


def test_ordinary_text_stays():
    masker = Masker(["abc", "", None], ["x" * 11])
    assert masker.text("abc and more") == "abc and more"
    assert Masker([]).data(b"all of it") == Masker([]).torn(b"all of it") == b"all of it"


class _Counting(bytes):
    """A log that counts how often it is compared with a secret."""

    compared = 0

    def startswith(self, *arguments):
        type(self).compared += 1
        return super().startswith(*arguments)


def test_a_large_log_is_not_compared_with_each_of_many_lines():
    bootstrap = json.dumps({f"key-{number}": f"value of {number}" * 3 for number in range(4000)}, indent=1).encode()
    masker = Masker(["geheim-geheim"], masking.of_lines(bootstrap))
    log = b"12.34 out the quick brown fox writes block 123456 of the disk\n" * 20000 + bootstrap
    masker.data(_Counting(bootstrap))
    alone = _Counting.compared
    masked = masker.data(_Counting(log))
    assert _Counting.compared == 2 * alone > 0, "a line in which no secret begins is compared with none"
    assert b"value of 77" not in masked
    assert b"quick brown fox" in masked


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('Environment="HTTPS_PROXY=http://me:pa@ss@proxy:3128/"', f'Environment="HTTPS_PROXY=http://{MASK}@proxy:3128/"'),
        ('Acquire::http::Proxy "http://me:x@proxy";', f'Acquire::http::Proxy "http://{MASK}@proxy";'),
        ("[host.auth]\npassword = 'x'\nuser = 'me'", f"[host.auth]\npassword = {MASK}\nuser = 'me'"),
        ('Authorization = ["Basic bWU6eA=="]', f"Authorization = {MASK}"),
        ('  "identitytoken": "abc",', f'  "identitytoken": {MASK}'),
        ("KUBELET_ARGS=--v=2 --token=abc.def --port=1", f"KUBELET_ARGS=--v=2 --token={MASK}"),
        # what is no secret stays
        ("authorization:\n  mode: Webhook", None),
        ("authentication: {x509: {}}", None),
        ("  token: true\nsecret=", None),
        ("--authorization-mode=Webhook --authentication-token-webhook=true", None),
        ("see https://example.org/@scope/pkg and me@example.org", None),
    ],
)  # fmt: skip
def test_a_configuration_is_shown_without_its_secrets(line, shown):
    assert masking.configuration(line) == (line if shown is None else shown)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://anna:secretpw@192.0.2.5", f"https://{MASK}@192.0.2.5"),
        ("https://secretpw@x:80/a", f"https://{MASK}@x:80/a"),
        ("https://anna:sec/ret@pw?x@y", f"https://{MASK}@y"),
        ("anna:secretpw@x", f"{MASK}@x"),
        ("anna:secretpw@x://y", f"{MASK}@x://y"),
        ("https:/anna:secretpw@x", f"{MASK}@x"),
        ("https://anna:sec\nretpw@x", f"https://{MASK}@x"),
        ("https://192.0.2.5:6385/v1?a=b", "https://192.0.2.5:6385/v1?a=b"),
        ("", ""),
    ],
)
def test_a_url_that_may_be_damaged_is_shown_without_its_login(url, shown):
    assert masking.without_login(url) == shown
