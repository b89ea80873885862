# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's artifact over HTTP: what an earlier run left is gone on with, and a digest judges the whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import fetch
from tests.unit.common.test_download import DATA, Web, cut, rest, send

SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def web(monkeypatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    web = Web()
    yield web
    web.close()


def get(web: Web, part: Path, **more: object) -> int:
    return fetch.Fetcher(**{"retries": 3, "timeout": 60, **more}).fetch(web.url, str(part), SHA)  # type: ignore[arg-type]


def test_a_cut_connection_and_a_cut_run_are_gone_on_with(web, tmp_path):
    web.answers = [cut(1000), rest(1000)]
    assert get(web, tmp_path / "part") == len(DATA)
    assert (tmp_path / "part").read_bytes() == DATA
    assert get(web, tmp_path / "part") == 0
    web.answers, web.requests = [cut(1000), rest(1000)], []
    with pytest.raises(
        fetch.FetchError, match=f"cannot be fetched: the connection ended after 1000 of {len(DATA)} bytes"
    ):
        get(web, tmp_path / "other", retries=0)
    assert get(web, tmp_path / "other", retries=0) == len(DATA) - 1000
    assert (tmp_path / "other").read_bytes() == DATA
    assert web.asked() == [(None, None), ("bytes=1000-", None)]


def test_a_part_of_another_file_is_thrown_away(web, tmp_path):
    (tmp_path / "part").write_bytes(b"x" * 1000)
    web.answers = [rest(1000), send(200, DATA)]
    assert get(web, tmp_path / "part") == 2 * len(DATA) - 1000
    (tmp_path / "part").write_bytes(DATA + b"more")
    web.answers = [send(416), send(200, DATA)]
    get(web, tmp_path / "part")
    (tmp_path / "part").write_bytes(DATA[:1000])
    web.answers = [send(206, Content_Range="bytes 0-9/10"), send(200, DATA)]
    get(web, tmp_path / "part")
    web.answers = [cut(1000), send(200, DATA)]
    (tmp_path / "part").unlink()
    assert get(web, tmp_path / "part") == len(DATA) + 1000
    assert (tmp_path / "part").read_bytes() == DATA


def test_the_wrong_content_is_named_and_not_asked_for_again(web, tmp_path):
    web.answers = [send(200, b"other")]
    wrong = f"has the wrong content: expected sha256 {SHA}, got {hashlib.sha256(b'other').hexdigest()}"
    with pytest.raises(fetch.FetchError, match=wrong):
        get(web, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == b""
    assert len(web.requests) == 1


def test_a_busy_server_is_asked_as_often_as_the_user_says_and_leaves_no_file(web, tmp_path):
    web.answers = [send(503, Retry_After="0"), send(429), send(502), send(200, DATA)]
    assert get(web, tmp_path / "part") == len(DATA)
    web.answers, web.requests = [send(500)], []
    with pytest.raises(fetch.FetchError, match="cannot be fetched: HTTP 500"):
        get(web, tmp_path / "other")
    assert (len(web.requests), (tmp_path / "other").exists()) == (4, False)


def test_what_does_not_fit_is_not_begun(web, tmp_path):
    web.answers = [send(200, whole=1 << 60)]
    with pytest.raises(fetch.FetchError, match=r"needs 1152921504606846976 bytes in .* where \d+ are free"):
        get(web, tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_no_header_of_the_user_goes_to_another_server(web, tmp_path):
    other = Web()
    other.answers, web.answers = [send(200, DATA)], [send(302, Location="/y"), send(302, Location=other.url)]
    get(web, tmp_path / "part", headers={"X-Key": "hunter2", "User-Agent": "me", "Range": "bytes=0-1"})
    assert [(request["X-Key"], request["User-Agent"], request.get("Range")) for request in web.requests] == [
        ("hunter2", "me", None)
    ] * 2
    assert ("X-Key" in other.requests[0], other.requests[0]["User-Agent"]) == (False, "me")
    other.close()


def test_a_password_in_the_url_is_sent_and_not_shown(web, tmp_path):
    web.answers = [send(404)]
    url = web.url.replace("//", "//user:p%40ss@") + "?sig=hunter2hunter2#part"
    with pytest.raises(fetch.FetchError) as caught:
        fetch.Fetcher().fetch(url, str(tmp_path / "part"), SHA)
    assert web.requests[0]["Authorization"] == "Basic dXNlcjpwQHNz"
    assert str(caught.value).startswith(f"{web.url} cannot be fetched: HTTP 404")
