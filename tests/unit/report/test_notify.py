# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The POST at the end of a run, over real HTTP."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.report import exports
from tests.web_servers import Handler, Server

from .test_metrics import Callback

DOCS = Path(__file__).resolve().parents[3] / "docs/other_systems.md"
SECRET = "s3cr3t-of-the-receiver"
REPORT = {"version": 1, "machines": [{"name": "n1", "verified": True, "changed": True, "transitions": [{"to": "x"}]}]}


class Receiver:
    """A webhook on loopback: ``answers`` in turn, then the last one for ever; keeps what it got."""

    def __init__(self):
        self.answers, self.got = [200], []
        self.silent, self.came = threading.Event(), threading.Event()
        receiver = self

        class Webhook(Handler):
            def do_POST(self):
                receiver.got.append((self.path, dict(self.headers), self.body()))
                receiver.came.set()
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "drop":
                    self.close_connection = True
                    return
                if answer == "silence":
                    receiver.silent.wait(60)
                    return
                self.reply(answer, headers={"Location": "/elsewhere"} if 300 <= answer < 400 else {})

        self.server = Server(Webhook)
        self.url = f"http://user:pa55word@{self.server.host}/hook/T0K3N?key=quer1secret"

    def close(self):
        self.silent.set()
        self.server.close()


@pytest.fixture
def receiver(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(exports, "_PAUSE", 0.01)
    made = Receiver()
    yield made
    made.close()


def tell(receiver, data=None, **options):
    """Send a report; what was said and warned of, without any secret."""
    callback = Callback(**{"notify_url": receiver.url, "notify_secret": SECRET, **options})
    callback.others.send(REPORT if data is None else data)
    text = "\n".join([*callback.said, *callback.warned])
    for secret in (SECRET, "pa55word", "T0K3N", "quer1secret"):
        assert secret not in text
    return callback


def verify_of_the_docs():
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    return names["verify"]


def test_a_machine_that_failed_counts_as_failed_only():
    """With drift: fail, a system that an earlier run verified fails."""
    machines = [{"name": "n1", "verified": True, "failed": True}, {"name": "n2", "verified": True}]
    machines.append({"name": "n3", "verified": True, "removed": "2026-11-21T10:00:00.000Z"})
    sent = json.loads(exports.notification({"machines": machines}))
    assert sent["summary"] == {"machines": 3, "verified": 1, "changed": 0, "failed": 1, "removed": 1}


def test_one_post_that_the_receiver_can_verify(receiver):
    callback = tell(receiver)
    ((path, headers, body),) = receiver.got
    assert path == "/hook/T0K3N?key=quer1secret"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Kubenode-Event"] == "provision_report"
    assert headers["Authorization"] == "Basic dXNlcjpwYTU1d29yZA=="
    verify = verify_of_the_docs()
    assert verify(SECRET, body, headers["X-Kubenode-Signature"])
    assert not verify("another", body, headers["X-Kubenode-Signature"])
    assert not verify(SECRET, body + b" ", headers["X-Kubenode-Signature"])
    assert not verify(SECRET, body, None)
    sent = json.loads(body)
    assert (sent["machines"], sent["truncated"]) == (REPORT["machines"], "")
    assert sent["summary"] == {"machines": 1, "verified": 1, "changed": 1, "failed": 0, "removed": 0}
    port = receiver.server.port
    assert callback.said == [f"Notification: http://127.0.0.1:{port} took {len(body)} bytes (200)"]


def test_without_a_secret_nothing_is_signed(receiver):
    tell(receiver, notify_secret=None)
    assert "X-Kubenode-Signature" not in receiver.got[0][1]


def test_in_check_mode_nothing_is_sent(receiver):
    callback = tell(receiver, {**REPORT, "check": True})
    assert receiver.got == []
    assert re.fullmatch(
        r"Notification: nothing is sent in check mode; a run sends \d+ bytes \(signed\) to http://127.*",
        callback.said[0],
    )


def test_trouble_of_the_server_is_tried_again(receiver):
    receiver.answers = [503, "drop", 429, 204]
    assert tell(receiver).warned == []
    assert len({headers["X-Kubenode-Delivery"] for _path, headers, _body in receiver.got}) == 1
    assert len(receiver.got) == 4


@pytest.mark.parametrize(
    ("answers", "requests", "words"),
    [
        ([500], 4, "the answer is 500 Internal Server Error"),
        ([401], 1, "the answer is 401 Unauthorized"),
        ([302], 1, "redirects are not followed"),
        ([307], 1, "redirects are not followed"),
        (["drop"], 4, "no answer (RemoteDisconnected)"),
    ],
)
def test_a_receiver_that_does_not_take_it_is_a_warning(receiver, answers, requests, words):
    receiver.answers = answers
    (warning,) = tell(receiver).warned
    assert warning.startswith(
        f"The report could not be sent to kubenode_notify_url: http://127.0.0.1:{receiver.server.port}: "
    )
    assert words in warning
    assert len(receiver.got) == requests


def test_a_receiver_that_is_silent_holds_no_run_up(receiver):
    receiver.answers = ["silence"]
    (warning,) = tell(receiver, notify_timeout=0.3).warned
    assert "no answer" in warning
    assert receiver.came.wait(60)  # on a loaded machine the run gives up before the server has read it
    assert len(receiver.got) == 1


def test_a_port_where_no_server_listens(receiver):
    receiver.close()
    (warning,) = tell(receiver).warned
    assert "no answer (ConnectionRefusedError: Connection refused)" in warning


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hooks.example.com/T0K3N", "it does not begin with https:// or http://"),
        ("hooks.example.com:80/T0K3N", "it does not begin with https:// or http://"),
        ("T0K3N", "it does not begin with https:// or http://"),
        ("T0K3N_a://h", "it does not begin with https:// or http://"),
        ("ftp://u:T0K3N@h/x", "it begins with ftp://; use https:// or http://"),
        ("https://", "no host follows https://"),
        ("http://", "no host follows http://"),
        ("http:///T0K3N", "no host follows http://"),
        ("https://[T0K3N", "what follows https:// is no host, or has a port that is none"),
        ("http://h:0/T0K3N", "what follows http:// is no host, or has a port that is none"),
        ("http://h:x/T0K3N", "what follows http:// is no host, or has a port that is none"),
        ("http://h/a T0K3N", "it holds a space or a character that cannot be printed"),
    ],
)
def test_what_is_no_address_is_said_with_nothing_of_it_but_its_scheme(url, why):
    """Every other part may be a secret. The preflight refuses it in the same words."""
    callback = Callback(notify_url=url)
    callback.others.send(REPORT)
    assert callback.warned == [f"The report could not be sent to kubenode_notify_url: {why}"]
    assert exports.wrong_address(url) == why


@pytest.mark.parametrize("url", ["https://h", "HTTPS://u:p@h:8443/x?y#z", "http://[2001:db8::1]:80/"])
def test_an_address_is_one(url):
    assert exports.wrong_address(url) == ""


@pytest.mark.parametrize("seconds", [0, -1, "soon", 601])
def test_a_time_limit_that_is_none(receiver, seconds):
    assert "kubenode_notify_timeout is no number of seconds" in tell(receiver, notify_timeout=seconds).warned[0]
    assert receiver.got == []


def test_the_proxy_of_the_environment_is_used(receiver, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{receiver.server.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    callback = Callback(notify_url="http://hooks.example.com/x")
    callback.others.send(REPORT)
    assert receiver.got[0][0] == "http://hooks.example.com/x"


@pytest.mark.parametrize(("lines", "truncated"), [(10, ""), (7000, "details"), (0, "machines")])
def test_a_body_is_bounded(lines, truncated):
    machine = {"verified": True, "stderr_tail": ["x" * 40] * lines}
    machines = [{**machine, "name": "n1"}, {"name": "n2", "failed": True, "reason": "ä" * 900}]
    if not lines:
        machines += [{"name": f"m{number}", "failed": True, "reason": "r" * 400} for number in range(2000)]
    body = exports.notification({"version": 1, "machines": machines, "finished": "now"})
    assert len(body) <= exports.MOST
    sent = json.loads(body)
    assert (sent["truncated"], sent["version"], sent["finished"]) == (truncated, 1, "now")
    assert sent["summary"]["machines"] == len(machines)
    assert ("stderr_tail" in sent["machines"][0]) == (not truncated)
    if truncated == "machines":
        assert len(sent["machines"]) == exports.SHOWN
        assert set(sent["machines"][0]) == {"name", "failed", "reason"}
