# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the Robot webservice that are any JSON: an error of the machine, or a value; never anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import (
    login_keys,
    reset_escalation,
    robot_servers,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_client as robot
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    ApiError,
    Deadline,
    FleetError,
    MachineError,
    NoAnswer,
    Refused,
)

ERRORS = (MachineError, ApiError, NoAnswer)
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
_NAMES = ("active", "authorized_key", "boot", "data", "fingerprint", "host_key", "key", "operating_status", "rescue",
          "reset", "server", "server_ip", "server_ipv6_net", "server_name", "server_number", "type", "wol")  # fmt: skip
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(
    ["::1", "192.0.2.1", "\ud800", login_keys.md5_fingerprint(PUBLIC)]
)  # fmt: skip
ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)
)
#: Each answer with its wrapper, as those without it end at once.
WRAPPED = st.one_of(ANYTHING, *[st.fixed_dictionaries({name: ANYTHING}) for name in ("rescue", "reset", "boot")])


def listed(name):
    """A list of wrapped items, with the fields that are read of them."""
    fields = ("data", "fingerprint", "server_ip", "server_ipv6_net", "server_name", "server_number", "type")
    few = _SCALARS | st.just([]) | st.just({}) | st.just([1])
    return st.lists(
        st.fixed_dictionaries({name: st.dictionaries(st.sampled_from(fields), few, max_size=4)}), max_size=2
    )


class Api:
    """Answers everything with the same; a change is looked for by its own look."""

    def __init__(self, body):
        self.body, self.paths = body, []

    def read(self, path, _deadline, machine=None):
        self.paths.append(path)
        return self.body

    def read_list(self, path, key, deadline):
        return robot.Robot.read_list(self, path, key, deadline)  # type: ignore[arg-type]

    def request(self, _method, path, _deadline, machine=None, data=None, reserved=False):
        self.paths.append(path)
        return self.body

    def change(self, _method, path, _deadline, look, machine=None, data=None):
        self.paths.append(path)
        look()
        return self.body


@example({"reset": None})
@example({"server": None})
@example({"boot": {"../reset/1": {"active": True}}})
@example({"boot": {"rescue": {"active": True}}, "rescue": []})
@example({"rescue": {"active": True, "authorized_key": [{"key": None}, 1, {"key": {"fingerprint": 1}}]}})
@example({"rescue": {"host_key": 1}})
@example({"rescue": {"host_key": [{"key": {"fingerprint": "\ud800"}}]}})
@given(WRAPPED)
def test_a_wrong_answer_about_one_server_is_an_error_of_its_machine(body):
    api = Api(body)
    one, deadline = robot_servers.BootRoutes(api, "n1", 1), Deadline(10, "x")
    for ask in (
        lambda: one.arm([login_keys.md5_fingerprint(PUBLIC)], deadline), lambda: one.disarm(deadline),
        lambda: one.disarm_kind("rescue", deadline), lambda: one.reset("hw", deadline, None),
        lambda: reset_escalation.proven([PUBLIC], reset_escalation.announced(one.rescue(deadline, last=True))),
    ):  # fmt: skip
        with contextlib.suppress(*ERRORS):
            ask()
    try:
        status = one.resets(deadline)[1]
    except ERRORS:
        status = None
    assert status is None or isinstance(status, str)
    try:
        assert one.can_be_woken(deadline) in (True, False)
    except ERRORS:
        assert not isinstance(body, dict)
    assert not [path for path in api.paths if ".." in path]


@example([{"server": {"server_number": 1, "server_ipv6_net": [1], "server_name": {}, "product": 1}}])
@example([{"server": {"server_number": True}}])
@given(listed("server") | ANYTHING)
def test_any_answer_about_all_servers_is_an_error_or_facts(body):
    try:
        servers = robot_servers.read_servers(Api(body), Deadline(10, "x"))
    except FleetError:
        return
    for machine in ({"name": "n1"}, {"name": "n1", "server_ip": "::1"}, {"name": "n1", "server_number": 1}):
        try:
            found = robot_servers.facts(robot_servers.find(machine, servers))
        except Refused:
            continue
        number = found.pop("server_number")
        assert isinstance(number, int)
        assert not isinstance(number, bool)
        assert all(value is None or isinstance(value, str) for value in found.values())


@example([{"key": {"fingerprint": login_keys.md5_fingerprint(PUBLIC), "data": [1]}}])
@given(listed("key"))
def test_any_answer_about_keys_is_known_or_not(body):
    assert login_keys.is_registered(PUBLIC, Api(body).read_list("/key", "key", Deadline(10, "x"))) in (True, False)


@pytest.mark.parametrize("most", [None, "50", True, 0, -1, 1.5, [], {}])
def test_a_limit_that_is_no_number_is_not_believed(most):
    assert robot._most_of({"error": {"max_request": most}}) is None
    assert robot._most_of({"error": {"max_request": most, "max_requests": 20}}) == 20
    assert robot._most_of(most) is None
