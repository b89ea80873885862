# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at an image before the first byte of a disk is emptied for it."""

from __future__ import annotations

import base64
import socket

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import web
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, job, protocol, targets
from tests.web_servers import Handler, Server

LOGIN = "Basic " + base64.b64encode(b"node:p4ss").decode()
TOKEN = base64.b64encode(b"raw-token").decode()


class Images(Server):
    """Images, a registry and its token server; notes every request."""

    def __init__(self):
        super().__init__(Request)
        self.requests: list[tuple[str, str, str]] = []
        self.broken = 0


class Request(Handler):
    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        login = self.headers.get("Authorization", "")
        self.server.requests.append((self.command, self.path, login))
        path = self.path.partition("?")[0]
        if path == "/moved":
            return self.send(302, {"Location": "/image?sig=s3cret"})
        if path == "/away":
            return self.send(302, {"Location": "ftp://127.0.0.1/s3cret"})
        if path == "/busy" and self.server.broken:
            self.server.broken -= 1
            return self.send(503)
        if path == "/signed" and self.command == "HEAD":
            return self.send(403)
        if path == "/signed":
            return self.send(206 if self.headers.get("Range") == "bytes=0-0" else 400)
        if path == "/private":
            return self.send(200 if login == LOGIN else 401)
        if path == "/token":
            return self.send(200 if login == LOGIN else 401, body=b'{"token": "fetched"}')
        if path.startswith("/v2/"):
            return self.registry(path, login)
        return self.send(200 if path in ("/image", "/busy") else 404)

    def registry(self, path, login):
        name = path.split("/manifests/")[0].rpartition("/")[2]
        wanted = {"public": "", "basic": LOGIN, "bearer": "Bearer fetched", "caph": "Bearer " + TOKEN}[name]
        if login != wanted:
            realm = f'Bearer realm="http://{self.server.host}/token",service="here",scope="s"'
            return self.send(401, {"WWW-Authenticate": realm if name == "bearer" else 'Basic realm="x"'})
        return self.send(200 if path.endswith("/v1") else 404)

    def send(self, status, headers=None, body=b""):
        if self.command == "HEAD":
            self.head(status, {**(headers or {}), "Content-Length": str(len(body))})
        else:
            self.reply(status, body, headers)


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Images() as server:
        yield server


def check(url, token=""):
    image_url.check_fetchable(url, token, pause=0, patience=0)


def refusal(url, token=""):
    with pytest.raises(image_url.NotFetchable) as caught:
        check(url, token)
    return str(caught.value)


@pytest.mark.parametrize("path", ["image", "moved", "signed", "image?sig=s3cret#sha256=00"])
def test_what_the_server_hands_out_is_fetchable(server, path):
    check(f"http://{server.host}/{path}")


def test_one_look_is_one_request_without_a_body(server):
    check(f"http://{server.host}/image")
    assert server.requests == [("HEAD", "/image", "")]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("none?sig=s3cret", "cannot be fetched in this rescue: HTTP 404 Not Found; check the URL and who may read it"),
        ("private", "HTTP 401"),
        ("away", "the server redirects from http to ftp, refused"),
    ],
)
def test_what_it_refuses_is_not_and_the_reason_holds_no_secret(server, path, reason):
    text = refusal(f"http://node:s3cret@{server.host}/{path}#keys=no")
    assert text.startswith(f"http://{server.host}/{path.partition('?')[0]} cannot be fetched in this rescue: ")
    assert reason in text
    assert "s3cret" not in text


def test_a_login_goes_by_a_header_to_its_own_host_alone(server):
    check(f"http://node:p4ss@{server.host}/private")
    check(f"http://node:p4ss@{server.host}/moved")
    assert {login for _method, path, login in server.requests if path.startswith("/image")} == {LOGIN}
    assert all("p4ss" not in path for _method, path, _login in server.requests)


def test_a_passing_error_is_waited_for_and_a_lasting_one_is_reported(server):
    server.broken = 5
    check(f"http://{server.host}/busy")
    server.broken = 100
    assert "HTTP 503" in refusal(f"http://{server.host}/busy")


def test_a_server_that_is_not_there(server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/image"
        assert "Connection refused" in refusal(url)
    assert "does not speak TLS" in refusal(f"https://{server.host}/image")


def test_the_proxy_of_the_environment_is_asked(server, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{server.host}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert "HTTP 404" in refusal("http://images.invalid/image")
    assert server.requests[0][:2] == ("HEAD", "http://images.invalid/image")


@pytest.mark.parametrize(
    ("name", "token"), [("public", ""), ("basic", "node:p4ss"), ("bearer", "node:p4ss"), ("caph", "raw-token")]
)
def test_a_registry_is_asked_for_the_manifest_with_the_token(server, name, token):
    check(f"oci://{server.host}/team/{name}:v1#plain-http=yes", token)
    assert "there is no such manifest" in refusal(f"oci://{server.host}/team/{name}:v2#plain-http=yes", token)


@pytest.mark.parametrize(
    ("name", "token", "reason"),
    [
        ("basic", "", "set kubenode_registry_token"),
        ("basic", "node:s3cret", "does not accept kubenode_registry_token"),
        ("bearer", "node:s3cret", "no token from 127.0.0.1: HTTP 401"),
        ("caph", "s3cret", "does not accept kubenode_registry_token"),
    ],
)
def test_a_token_that_the_registry_refuses_is_named_by_its_variable(server, name, token, reason):
    text = refusal(f"oci://{server.host}/team/{name}:v1#plain-http=yes", token)
    assert reason in text
    assert "s3cret" not in text
    assert web.basic(b"node:s3cret") not in text


@pytest.mark.parametrize("url", ["custom://host/x", "/srv/image", "file:///none", "oci://registry/Name", "*"])
def test_other_schemes_are_the_commands_own_business(url):
    check(url)


def started(tmp_path, calls, command=b"x", **more):
    wanted = job.Job(
        command=command, bootstrap=b"", arguments=["http://127.0.0.1:1/x?sig=s3cret", "node-1", "sda"], token="",
        limit=9, rule=protocol.MARKER_AND_EXIT_CODE, runner="", installation="0" * 32, devices=["sda"], **more,
    )  # fmt: skip
    targets.prepare(lambda argv, **_more: calls.append(argv) or (1, "", ""), wanted, str(tmp_path))


@pytest.mark.parametrize("more", [{"consent": "fresh"}, {"consent": "checked+wipe", "empty": [{"name": "sda"}]}])
def test_no_disk_is_looked_at_or_emptied_before_the_image(tmp_path, monkeypatch, more):
    def refuse(url, token):
        raise image_url.NotFetchable("it cannot be fetched")

    monkeypatch.setattr(image_url, "check_fetchable", refuse)
    calls: list[list[str]] = []
    with pytest.raises(job.JobError) as caught:
        started(tmp_path, calls, **more)
    assert "kubenode_image_url it cannot be fetched. No disk was touched." in str(caught.value)
    assert "kubenode_check_image: false" in str(caught.value)
    assert (caught.value.begun, calls) == (False, [])


@pytest.mark.parametrize(
    ("first", "missing"),
    [
        (b"#!/usr/bin/none -e", "/usr/bin/none"),
        (b"#!/usr/bin/env none-such", "none-such"),
        (b"#!/usr/bin/env -S none-such", ""),
        (b"#!/bin/sh", ""),
        (b"\x7fELF", ""),
    ],
)
def test_a_command_whose_interpreter_is_not_there_costs_no_disk(tmp_path, monkeypatch, first, missing):
    monkeypatch.setattr(image_url, "check_fetchable", lambda url, token: None)
    with pytest.raises(job.JobError) as caught:
        started(tmp_path, [], command=first + b"\n", consent="fresh")
    assert (f"names {missing}, which is not in this rescue. No disk was touched" in str(caught.value)) is bool(missing)
    assert ("could not be emptied" in str(caught.value)) is not bool(missing)


def test_who_says_so_is_not_asked_for_the_image(tmp_path, monkeypatch):
    monkeypatch.setattr(image_url, "check_fetchable", lambda url, token: pytest.fail("it was looked at"))
    started(tmp_path, [], consent="checked", check_image=True)  # nothing will be emptied
    with pytest.raises(job.JobError, match="could not be emptied"):
        started(tmp_path, [], consent="fresh", check_image=False)
