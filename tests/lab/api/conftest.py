# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bare HTTP client for the API, and the usual objects."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import requests

from lab.api import actions as lab_actions
from tests.key_pairs import public_key
from tests.waiting import until

#: between two looks: a wait of minutes stays below 3600 requests an hour
PAUSE = 0.06


class Api:
    """Sends requests as they are and keeps out of the way."""

    def __init__(self, lab, token=None):
        self.lab = lab
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {token or lab.token}"

    def __call__(self, method, path, body=None, **options):
        return self.session.request(method, self.lab.endpoint + path, json=body, timeout=600, **options)

    def good(self, method, path, body=None, **options):
        """The JSON of an answer that must be a success."""
        answer = self(method, path, body, **options)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    def refused(self, method, path, body=None, **options):
        """(HTTP status, code) of an answer that must be an error envelope."""
        answer = self(method, path, body, **options)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "details"}
        assert error["message"]
        return answer.status_code, error["code"]

    def wait(self, action):
        """The action when it has ended."""

        def ended():
            seen = self.good("GET", f"/actions/{action['id']}")["action"]
            return seen if seen["status"] != "running" else None

        return action if action["status"] != "running" else until(ended, f"the end of {action['command']}", pause=PAUSE)

    def create(self, name="n1", wait=True, **options):
        """A server, powered off unless reported otherwise; returns its id."""
        body = {"name": name, "server_type": "cx23", "image": "ubuntu-24.04", "start_after_create": False} | options
        answer = self.good("POST", "/servers", body)
        for action in [answer["action"], *answer["next_actions"]] if wait else []:
            self.wait(action)
        return answer["server"]["id"]

    def act(self, server, name, body=None):
        """Run a server action to its end."""
        return self.wait(self.good("POST", f"/servers/{server}/actions/{name}", body)["action"])

    def server(self, server):
        """A server as the API shows it now."""
        return self.good("GET", f"/servers/{server}")["server"]

    def until(self, server, **wanted):
        """Wait until the server shows these values."""

        def shown():
            seen = self.server(server)
            return seen if all(seen[key] == value for key, value in wanted.items()) else None

        return until(shown, f"server {server} with {wanted}", pause=PAUSE, show=lambda: self.server(server))

    def key(self, name="k1"):
        """A new SSH key; returns its id."""
        return self.good("POST", "/ssh_keys", {"name": name, "public_key": public_key()})["ssh_key"]["id"]

    def boots(self, name="n1"):
        """What a machine booted, in order."""
        machines = {machine["name"]: machine for machine in self.lab.control("GET", "/machines")["machines"]}
        return [boot["source"] for boot in machines[name]["boots"]]


@pytest.fixture
def api(lab_dry):
    return Api(lab_dry)


@pytest.fixture
def server(api):
    """The id of a server that was never on."""
    return api.create()


@pytest.fixture
def over(monkeypatch):
    """An event: actions that are slow (3600 s) last until the test sets it."""
    over = threading.Event()

    async def sleep(seconds):
        assert seconds in (0, 3600)
        while seconds and not over.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr(lab_actions, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return over
