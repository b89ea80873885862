# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bare HTTP client for Robot, a clock that tests can set, and the usual objects."""

import pytest
import requests

from lab.robot.account import RobotSettings
from tests.clock import Clock
from tests.key_pairs import public_key
from tests.waiting import until


class Robot:
    """Sends requests as they are and keeps out of the way."""

    def __init__(self, lab, clock=None):
        self.lab = lab
        self.clock = clock
        self.credentials = (lab.robot_user, lab.robot_password)

    def __call__(self, method, path, form=None, auth=None, **options):
        url = self.lab.robot_endpoint + path
        return requests.request(method, url, data=form, auth=auth or self.credentials, timeout=600, **options)

    def good(self, method, path, form=None, **options):
        """The JSON of an answer that must be a success."""
        answer = self(method, path, form, **options)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    def refused(self, method, path, form=None, **options):
        """(HTTP status, code) of an answer that must be an error envelope."""
        answer = self(method, path, form, **options)
        error = answer.json()["error"]
        assert error["status"] == answer.status_code
        assert error["message"]
        return answer.status_code, error["code"]

    def key(self, name="k1", data=None):
        """A new SSH key; returns its fingerprint."""
        return self.good("POST", "/key", {"name": name, "data": data or public_key()})["key"]["fingerprint"]

    def arm(self, number, *fingerprints):
        """Activate the rescue; returns what the API says."""
        form = {"os": "linux", "authorized_key[]": fingerprints}
        return self.good("POST", f"/boot/{number}/rescue", form)["rescue"]

    def rescue(self, number):
        """The rescue configuration as it is now."""
        return self.good("GET", f"/boot/{number}/rescue")["rescue"]

    def last(self, number):
        """The last activation of the rescue."""
        return self.good("GET", f"/boot/{number}/rescue/last")["rescue"]

    def reset(self, number, kind):
        """Press a button."""
        return self.good("POST", f"/reset/{number}", {"type": kind})["reset"]

    def status(self, number):
        """What Robot says of the power."""
        return self.good("GET", f"/reset/{number}")["reset"]["operating_status"]

    def machine(self, number):
        """What the lab says of the machine."""
        (row,) = (row for row in self.lab.control("GET", "/machines")["machines"] if row.get("number") == number)
        return row

    def boots(self, number):
        """What a machine booted, in order."""
        return [boot["source"] for boot in self.machine(number)["boots"]]

    def fault(self, **fault):
        """Append to the script of faults."""
        self.lab.control("POST", "/faults", fault)

    def until(self, condition, what):
        """Wait until a condition holds; the pauses are for Robot's hourly limits."""
        until(condition, what, pause=0.5, show=lambda: self.lab.control("GET", "/machines"))


@pytest.fixture
def clock():
    return Clock(1_790_000_000.0)


@pytest.fixture
def robot(lab, clock):
    """Robot in a fresh lab of dry machines, with a clock that does not move."""
    return Robot(lab(kind="dry", robot_settings=RobotSettings(clock=clock)), clock)


@pytest.fixture
def server(robot):
    """The number of a server that is on."""
    (machine,) = robot.lab.dedicated(number=4711, name="n1")
    assert machine["powered"]
    return 4711
