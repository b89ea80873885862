# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of options as Ansible hands them to filters: containers that render what they hold when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.filter.machine_specs import machine_specs
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import wrong_value
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, specification


class RenderedList(list):
    """A copy of one of ansible-core 2.19 has a copy of the template engine and of all variables of the host in it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> RenderedList:
        raise AssertionError("a copy was made")


class RenderedDict(dict):
    def __deepcopy__(self, memo: dict[int, Any]) -> RenderedDict:
        raise AssertionError("a copy was made")


class Unreadable(RenderedDict):
    """What it holds has a variable that is not defined yet."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError(f"{key} was read")

    def values(self) -> Any:
        raise AssertionError("all was read")

    items = values


RENDERED = {
    "list": RenderedList(["a", RenderedList(["b"]), RenderedDict(c=RenderedList())]),
    "dict": RenderedDict(a="b", c=RenderedDict(d=RenderedList(["e"]))),
}


def all_options() -> Iterator[dict[str, Any]]:
    """Every option whose value a filter looks at."""
    for variable in specification.variables().values():
        yield variable.kind
    for specified in (options.image_url_check_spec(), options.installimage_check_spec()):
        yield from specified["machines"]["options"].values()
    yield from role_specs.variables("base", "join").values()


@pytest.mark.parametrize("kind", RENDERED)
def test_no_value_is_copied(kind):
    for option in all_options():
        value = RENDERED[kind]
        members = RenderedDict(dict.fromkeys(option.get("options") or {}, value))
        for given in (value, members, RenderedList([members])):
            wrong_value(option, given)


@pytest.mark.parametrize("playbook", sorted(specification.playbooks()))
def test_no_variable_of_a_run_is_copied(playbook):
    taken = [one for one in specification.taken_by(playbook) if one.type in RENDERED]
    host = {one.name: RENDERED[one.type] for one in taken}
    conflicts.variable_findings([{"inventory_hostname": "n1", **host}], playbook)


@pytest.mark.parametrize("purpose", ["hcloud_machine", "image_url_check", "installimage_check"])
def test_no_variable_of_a_machine_is_copied(purpose):
    image = RenderedDict(url="https://i.example/x.tar.gz")
    host = {"inventory_hostname": "n1", "kubenode_labels": RENDERED["dict"], "kubenode_image": image}
    (machine,) = machine_specs([host], purpose)
    assert machine["name"] == "n1"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ({"type": "dict"}, Unreadable(a="b")),
        ({"type": "raw"}, Unreadable(a="b")),
        ({"type": "list", "elements": "dict"}, [Unreadable(a="b")]),
        ({"type": "dict", "options": {"a": {"type": "dict"}}}, {"a": Unreadable(a="b")}),
    ],
)
def test_what_an_option_does_not_describe_is_not_read(option, value):
    assert wrong_value(option, value) == ""


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        ({"type": "list", "elements": "int"}, ["1", "a"], "\"['1', 'a']\": give a list"),
        ({"type": "list", "elements": "str", "choices": ["a"]}, ["a", "b"], "\"['a', 'b']\": use one of a"),
        ({"type": "dict"}, ["a"], "\"['a']\": give a dictionary"),
        ({"type": "list", "elements": "str"}, ("a", "b"), "\"('a', 'b')\": give a list"),
        # as a decimal number it were 1
        ({"type": "int"}, [0, [1], 0], "'[0, [1], 0]': give a whole number"),
        ({"type": "str", "no_log": True}, {"a": "s3cr3t"}, ""),
        ({"type": "int", "no_log": True}, {"a": "s3cr3t"}, "(hidden): give a whole number"),
    ],
)
def test_what_a_container_holds_counts(option, value, wrong):
    assert wrong_value(option, value) == wrong


_IMAGE = {"type": "dict", "options": {"url": {"type": "str", "required": True}, "name": {"type": "str"}}}


_HINTS = options.machine_disks_spec()["root_device_hints"]
_PARTITIONS = options.robot_installimage_spec()["partitions"]


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        (_HINTS, {"raid": ["A", "B"]}, "'{raid: […, …]}': write raid: {wwn: […, …]}"),
        (_HINTS, {"raid": "A"}, "'{raid: …}': raid 'A': give a dictionary with keys of these: wwn"),
        (_HINTS, {"raid": 5}, "'{raid: 5}': raid '5': give a dictionary"),
        (_HINTS, {"raid": {"wwn": {"a": 1}}}, "'{raid: {wwn: {a: 1}}}': raid.wwn \"{'a': 1}\": give a list"),
        (_HINTS, {"raid": {"wwn": [["A"]]}}, "'{raid: {wwn: [[…]]}}': raid.wwn[0] '[…]': give a text, not a list"),
        (_HINTS, {"wwn": ["A"]}, "'{wwn: […]}': wwn '[…]': give a text, not a list"),
        (_HINTS, {"smallest": "maybe"}, "'{smallest: …}': smallest 'maybe': give true or false"),
        (_HINTS, {"kind": "ide"}, "'{kind: …}': kind 'ide': use one of nvme, sata, scsi, virtio"),
        (
            _HINTS,
            {"raid": ["A"], "smallest": "maybe", "wnw": "B"},
            "'{raid: […], smallest: …, wnw: …}': smallest 'maybe': give true or false; write raid: {wwn: […]}; "
            "wnw is no key; use one of by_id, kind, min_size, model, query, raid, rotational, serial, smallest, wwn",
        ),
        (_IMAGE, ["a"], "'[…]': give a dictionary with keys of these: name, url"),
        (
            _PARTITIONS,
            [{"mount": "/", "filesystem": "ext4", "size": "1G", "crypt": "maybe"}],
            "'[{mount: …, filesystem: …, size: …, crypt: …}]': [0].crypt 'maybe': give true or false",
        ),
        (
            _PARTITIONS,
            {"mount": "/"},
            "'{mount: …}': give a list of dictionaries with keys of these: crypt, filesystem, mount, size",
        ),
    ],
)
def test_a_wrong_kind_inside_is_named_without_words_of_python(option, value, wrong):
    assert wrong_value(option, value) == wrong


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        (
            _IMAGE,
            {"url": "https://u:s3cr3t@x", "nmae": "x"},
            "'{url: …, nmae: …}': nmae is no key; use one of name, url",
        ),
        (_IMAGE, {"name": "x"}, "'{name: …}': url is missing"),
        (_IMAGE, "https://u:s3cr3t@x/y", "'https://…@x/y': give a dictionary with keys of these: name, url"),
        (_IMAGE, "Debian", "'Debian': give a dictionary with keys of these: name, url"),
        (
            {"type": "list", "elements": "dict", "options": {"of": {**_IMAGE, "type": "list", "elements": "dict"}}},
            [{"of": [{"url": "x", "c": 1}]}],
            "'[{of: [{url: …, c: 1}]}]': of.c is no key; use one of name, url",
        ),
    ],
)
def test_a_key_that_does_not_exist_is_called_so(option, value, wrong):
    assert wrong_value(option, value) == wrong
