# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file over a bad network: whole and of one version, or an error that says why; for a stream and for a file."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import web as module
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import Download, DownloadError, retry_after
from tests.unit.common import odd
from tests.web_servers import Handler, Server

DATA = bytes(range(256)) * 40
Answer = Callable[[Handler], None]


def send(code: int = 200, body: bytes = b"", whole: int | None = None, **headers: str) -> Answer:
    """An answer; ``whole``: the length that it promises."""

    def answer(handler: Handler) -> None:
        length = {"Content-Length": str(len(body) if whole is None else whole)}
        handler.head(code, {**{name.replace("_", "-"): value for name, value in headers.items()}, **length})
        handler.wfile.write(body)
        handler.close_connection = True

    return answer


def cut(after: int, **headers: str) -> Answer:
    return send(200, DATA[:after], len(DATA), **headers)


def rest(start: int, data: bytes = DATA, **headers: str) -> Answer:
    return send(206, data[start:], Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}", **headers)


class Web:
    """A server that gives one answer after the other; the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, str]] = []
        web = self

        class Answers(Handler):
            def do_GET(self) -> None:
                web.requests.append(dict(self.headers))
                (web.answers.pop(0) if len(web.answers) > 1 else web.answers[0])(self)

        self.server = Server(Answers)
        self.url = f"{self.server.url}/x"
        self.close = self.server.close

    def asked(self) -> list[tuple[str | None, str | None]]:
        return [(request.get("Range"), request.get("If-Range")) for request in self.requests]


@pytest.fixture
def web(monkeypatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    web = Web()
    yield web
    web.close()


class ToFile(Download):
    """One whose bytes can be thrown away."""

    can_restart = True

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        self.content, self.restarts = b"", 0

    def restart(self) -> None:
        super().restart()
        self.content, self.restarts = b"", self.restarts + 1

    def read(self) -> bytes:
        for chunk in self.chunks():
            self.content += chunk
        return self.content


class ByDigest(ToFile):
    content_addressed = True


def stream(web: Web, **more: object) -> bytes:
    return b"".join(Download("https://shown/x", web.url, pause=0, **more).chunks())  # type: ignore[arg-type]


def file(web: Web, kind: type[ToFile] = ToFile, **more: object) -> bytes:
    return kind("https://shown/x", web.url, pause=0, **more).read()


@pytest.mark.parametrize("read", [stream, file])
def test_it_goes_on_where_it_was_cut_and_says_so(web, read):
    web.answers = [cut(1000, ETag='"a"'), send(503), rest(1000, ETag='"a"')]
    said: list[str] = []
    assert read(web, say=said.append) == DATA
    assert web.asked() == [(None, None), ("bytes=1000-", '"a"'), ("bytes=1000-", '"a"')]
    assert said == [
        "https://shown/x: the connection ended after 1000 of 10240 bytes; trying again",
        "https://shown/x: HTTP 503 Service Unavailable; trying again",
    ]


def test_the_date_of_a_file_is_a_version_and_a_weak_tag_is_none(web):
    date = "Wed, 25 Nov 2026 10:00:00 GMT"
    web.answers = [cut(9, ETag='W/"a"', Last_Modified=date), rest(9, Last_Modified=date)]
    assert stream(web) == DATA
    assert web.asked()[1] == ("bytes=9-", date)


def test_another_version_begins_again_in_a_file_and_ends_a_stream(web):
    other = DATA[::-1]
    web.answers = [cut(1000, ETag='"a"'), send(200, other, ETag='"b"')]
    assert file(web) == other
    web.answers = [cut(1000, ETag='"a"'), send(200, other, ETag='"b"')]
    with pytest.raises(DownloadError, match="https://shown/x: the file changed on the server during the transfer"):
        stream(web)


def test_a_server_that_knows_no_ranges(web):
    web.answers = [cut(1000, ETag='"a"'), send(200, DATA, ETag='"a"')]
    assert stream(web) == DATA
    web.answers = [cut(1000, ETag='"a"'), send(200, DATA, ETag='"a"')]
    assert file(web) == DATA


def test_without_a_version_a_file_begins_again_unless_a_digest_judges_it(web):
    web.answers = [cut(1000), send(200, DATA)]
    assert file(web) == DATA
    for read in (stream, lambda web: file(web, ByDigest)):
        web.answers = [cut(1000), rest(1000)]
        assert read(web) == DATA
    assert web.asked() == [(None, None), (None, None), (None, None), ("bytes=1000-", None)] + [
        (None, None), ("bytes=1000-", None)]  # fmt: skip


@pytest.mark.parametrize("place", ["bytes 999-10239/10240", "bytes 1000-10238/10239", "bytes x-1/2", ""])
def test_another_range_begins_again_in_a_file_and_ends_a_stream(web, place):
    wrong = send(206, b"x", ETag='"a"', Content_Range=place)
    web.answers = [cut(1000, ETag='"a"'), wrong, send(200, DATA, ETag='"a"')]
    assert file(web) == DATA
    assert web.asked()[2] == (None, None)
    web.answers = [cut(1000, ETag='"a"'), wrong]
    with pytest.raises(DownloadError, match="another range"):
        stream(web)


def test_a_file_that_became_shorter_begins_again(web):
    web.answers = [cut(1000, ETag='"a"'), send(416), send(200, b"short")]
    assert file(web) == b"short"
    web.answers = [cut(1000, ETag='"a"'), send(416)]
    with pytest.raises(DownloadError, match="HTTP 416") as caught:
        stream(web)
    assert caught.value.status == 416


def test_a_file_that_changes_all_the_time_is_given_up(web):
    web.answers = [cut(1000, ETag='"a"'), send(416)] * 3
    with pytest.raises(DownloadError, match="keeps changing"):
        file(web)


def test_what_is_there_from_an_earlier_run_is_gone_on_with(web):
    one = ByDigest("x", web.url)
    one.content, one.received = DATA[:100], 100
    web.answers = [rest(100)]
    assert (one.read(), one.size) == (DATA, len(DATA))


# --- numbers that are none


@contextlib.contextmanager
def odd_web(*answers: bytes) -> Iterator[SimpleNamespace]:
    with odd.server(*answers) as url:
        yield SimpleNamespace(url=url)


@pytest.mark.parametrize("length", odd.WORDS)
@pytest.mark.parametrize("read", [stream, file])
def test_a_size_that_is_no_number_is_refused(read, length):
    with odd_web(odd.answer(body=b"an image", Content_Length=length)) as web:
        with pytest.raises(DownloadError, match="as a number"):
            read(web)


def test_a_size_with_blanks_around_it_is_one():
    with odd_web(odd.answer(body=b"an image", Content_Length=" \t 8 ")) as web:
        assert stream(web) == file(web) == b"an image"


@pytest.mark.parametrize("place", [*odd.WORDS, "3"])
def test_a_range_that_was_not_asked_for_begins_again_in_a_file_and_ends_a_stream(place):
    first = odd.answer(body=b"an im", Content_Length="8", ETag='"a"')
    second = odd.answer("206 Partial", b"age", Content_Range=f"bytes {place}-7/8", Content_Length="3", ETag='"a"')
    with odd_web(first, second, odd.answer(body=b"an image", Content_Length="8", ETag='"a"')) as web:
        assert file(web) == b"an image"
    with odd_web(first, second) as web, pytest.raises(DownloadError, match="another range"):
        stream(web)


# --- how often, and for how long


@pytest.fixture
def slept(monkeypatch) -> list[float]:
    found: list[float] = []
    # the module's own clock: other threads of this process may sleep meanwhile
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=found.append))
    return found


def test_pauses_grow_to_a_limit_and_a_byte_resets_them(web, slept):
    web.answers = [send(500)] * 4 + [cut(1, ETag='"a"')] + [send(500)] * 5
    with pytest.raises(DownloadError, match=r"given up after 10 connections: HTTP 500"):
        list(Download("x", web.url, pause=4).chunks())
    assert slept == [4, 8, 15, 15, 4, 8, 15, 15, 15]


def test_a_byte_at_a_time_is_not_borne_for_ever(web, slept):
    def one(handler: Handler) -> None:
        place = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        send(206, DATA[place : place + 1], len(DATA) - place, ETag='"a"',
             Content_Range=f"bytes {place}-{len(DATA) - 1}/{len(DATA)}")(handler)  # fmt: skip

    web.answers = [one]
    with pytest.raises(DownloadError, match="given up after 50 connections: the connection ended after 50 of"):
        stream(web)


def test_a_server_may_ask_to_wait_for_a_minute(web, slept):
    web.answers = [send(429, Retry_After=" 60 "), send(200, DATA)]
    assert stream(web) == DATA
    assert slept == [60]
    web.answers = [send(503, Retry_After="61")]
    with pytest.raises(DownloadError, match="the server asks to come back in 61 s"):
        stream(web)
    assert slept == [60]


def test_no_pause_is_longer_than_the_time_that_is_left(web, slept):
    web.answers = [send(503, Retry_After="30")]
    with pytest.raises(DownloadError, match="given up after 1 connections: HTTP 503"):
        stream(web, deadline=time.monotonic() + 20)
    assert slept == []


def test_a_slow_server_does_not_hide_that_the_time_is_over(web):
    ended = threading.Event()

    def trickle(handler: Handler) -> None:
        send(200, b"x", 1000)(handler)
        while not ended.wait(0.05):
            handler.wfile.write(b"x")

    web.answers = [trickle]
    download = Download("https://shown/x", web.url, pause=0, deadline=time.monotonic() + 600)
    chunks = download.chunks()
    next(chunks)
    download.deadline = time.monotonic() - 1
    with pytest.raises(DownloadError, match=r"within its time; [1-9][0-9]* bytes are there"):
        list(chunks)
    ended.set()


@pytest.mark.parametrize(("code", "final"), [(401, False), (403, False), (404, True), (410, True)])
def test_an_error_status_is_an_error_at_once(web, code, final):
    web.answers = [send(code)]
    with pytest.raises(DownloadError, match=f"https://shown/x: HTTP {code} .*check the URL and who may") as caught:
        stream(web)
    assert (caught.value.status, caught.value.final, len(web.requests)) == (code, final, 1)


# --- redirects


def test_private_headers_stay_with_their_server(web):
    private = {"Authorization": "Bearer hunter2", "X-Key": "hunter2"}
    other = Web()
    other.answers, web.answers = [send(200, DATA)], [send(302, Location="/y"), send(302, Location=other.url)]
    assert stream(web, headers={"User-Agent": "me"}, private=private) == DATA
    assert [request["X-Key"] for request in web.requests] == ["hunter2"] * 2
    assert "hunter2" not in repr(other.requests)
    assert other.requests[0]["User-Agent"] == "me"
    other.close()


def test_a_redirect_to_another_protocol_is_refused(web):
    web.answers = [send(302, Location="ftp://h/x")]
    with pytest.raises(DownloadError, match="the server redirects to ftp, which is not https") as caught:
        stream(web)
    assert caught.value.final


@pytest.mark.parametrize("place", odd.PLACES)
@pytest.mark.parametrize("read", [stream, file])
def test_a_redirect_to_what_is_no_url_is_refused(read, place):
    with odd_web(odd.answer("302 Found", Location=place)) as web, pytest.raises(DownloadError):
        read(web)


def test_odd_urls_end_in_an_error_that_shows_no_piece_of_them():
    with pytest.raises(DownloadError, match="https://shown/x: its URL holds characters that must be percent-encoded"):
        list(Download("https://shown/x", "http://127.0.0.1:1/a b?sig=s3cret").chunks())
    assert retry_after({"Retry-After": "²"}) == 0
