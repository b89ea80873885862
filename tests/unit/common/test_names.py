# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one rule for names of machines, and that everything that takes such a name keeps to it."""

from __future__ import annotations

import re

import pytest
from ansible.errors import AnsibleActionFail, AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.action.machine_quarantine import Quarantine, QuarantineError
from ansible_collections.kubenode.provision.plugins.filter.machine_specs import machine_specs
from ansible_collections.kubenode.provision.plugins.module_utils._common import names
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import name_findings
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as installimage
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.image_inputs import examine

TAKEN = ["node-1", "a", "n1.example.com", "rescue-1", "localhost4", "1a", "42", "10.0.0.x", "a" * 63, "my.rescue"]
REFUSED = {
    "": "no name",
    "rescue": "rescue is what every rescue",
    "rescue.example.com": "rescue is what every rescue",
    "localhost": "localhost is what",
    "localhost.localdomain": "localhost is what",
    "Node-1": "use node-1",
    "RESCUE": "use rescue",
    "node_1": "RFC 1123",
    "-a": "RFC 1123",
    "a-": "RFC 1123",
    "a..b": "RFC 1123",
    ".a": "RFC 1123",
    "$(id)": "RFC 1123",
    "-oProxyCommand=x": "RFC 1123",
    ".": "RFC 1123",
    "..": "RFC 1123",
    "a/b": "RFC 1123",
    "a b": "RFC 1123",
    "a\n": "RFC 1123",
    "ä": "RFC 1123",
    "a" * 64: "RFC 1123",
    "a" * 40 + "." + "b" * 40: "81 characters",
    "192.0.2.10": "ansible_host",
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    assert names.check_machine_name(name) == name


@pytest.mark.parametrize(("name", "why"), REFUSED.items())
def test_refused(name, why):
    with pytest.raises(names.InvalidName, match=re.escape(why)):
        names.check_machine_name(name)


@pytest.mark.parametrize("name", [None, 7, ["a"]])
def test_what_is_no_text_is_no_name(name):
    assert names.machine_error(name)


@given(st.text(max_size=80))
def test_accepted_names_are_safe_as_file_name_and_argument(text):
    if names.machine_error(text) is None:
        assert not set(text) - set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        assert text[0] not in ".-"
        assert ".." not in text


def by_filter(name):
    try:
        machine_specs([{"inventory_hostname": name}], "hcloud_machine")
    except AnsibleFilterError as error:
        return str(error)
    return None


def by_flow(name):
    try:
        Flow({"machine_name": name, "boot_state": ""}, {"inventory_hostname": name})
    except AnsibleActionFail as error:
        return str(error)
    return None


def by_quarantine(name):
    try:
        Quarantine("/nowhere").entry(name)
    except QuarantineError as error:
        return str(error)
    return None


def by_hostname(name):
    try:
        user_data.hostname(name)
    except ValueError as error:
        return str(error)
    return None


def by_settings(name):
    return " ".join(engine.setting_errors([{"id": "a", "step": "a", "kind": "hostname", "name": name}]))


#: everything that takes the name of a machine: from a name to its error, or nothing
PLACES = {
    "hcloud_machine, hcloud_rescue, robot_rescue, robot_server": lambda name: " ".join(name_findings([{"name": name}])),
    "image_url_check": lambda name: " ".join(
        text for text in examine({"name": name}, "/", lambda _path: b"")[1] if text.startswith("name ")
    ),
    "installimage_check, robot_installimage": lambda name: " ".join(installimage.check_hostname(name)),
    "image_url_command, machine_boot, machine_disks": by_flow,
    "machine_quarantine": by_quarantine,
    "machine_specs": by_filter,
    "node_user_data": by_hostname,
    "node_settings": by_settings,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_has_the_same_rule(place):
    for name in [*TAKEN, *filter(None, REFUSED)]:
        same_rule(place, name)


@pytest.mark.parametrize("place", PLACES)
@given(name=st.from_regex(r"[a-zA-Z0-9._-]{1,70}", fullmatch=True))
def test_every_place_has_the_same_rule_for_any_name(place, name):
    same_rule(place, name)


def same_rule(place, name):
    message = PLACES[place](name)
    error = names.machine_error(name)
    assert bool(message) == bool(error)
    assert not error or error in message
    assert not error or repr(name[:30])[1:-1] in message
