# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which server types and locations a machine may have, and in which order they are tried."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import cloud_orders as choices
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit


def kind(name, *places, architecture="x86", disk=40, **more):
    """A server type; a location with a dash behind it is sold out."""
    locations = [
        {"id": "fnha".index(place[0]) + 1, "name": place.rstrip("-"), "available": not place.endswith("-")}
        for place in places
    ]
    return {"id": 0, "name": name, "architecture": architecture, "disk": disk, "locations": locations, **more}


def image(number, architecture="x86", size=5):
    return {"id": number, "name": "system", "architecture": architecture, "disk_size": size}


TYPES = [
    kind("cx23", "fsn1", "nbg1", "hel1"),
    kind("cx33", "fsn1", "nbg1", "hel1-"),
    kind("cpx11", "ash"),
    kind("cax11", "fsn1-", "nbg1-", architecture="arm"),
    kind("cx11", "fsn1", deprecation={"unavailable_after": "2024-09-06T00:00:00Z"}),
]
IMAGES = [image(1), image(2, "arm")]


def catalog_of(images):
    return SimpleNamespace(listed={"server_types": TYPES}.get, image_candidates=lambda _wanted, labelled: images)


def found(server_type, location=None, images=(), written=True, exists=False, **more):
    catalog = catalog_of(list(images or IMAGES))
    machine = {"server_type": server_type, "location": location, **more}
    return [
        (one.server_type["name"], one.location, one.image["id"])
        for one in choices.find_choices(machine, catalog, "system", written, exists)
    ]


def refused(*arguments, **more):
    with pytest.raises(Unfit) as caught:
        found(*arguments, **more)
    return str(caught.value)


@pytest.mark.parametrize("several", [["cx23", "cx33"], "cx23,cx33", " cx23 , cx33 ", ["cx23", "cx33", "cx23"]])
def test_all_locations_with_the_first_type_then_with_the_next(several):
    assert found(several, ["nbg1", "fsn1"]) == [
        ("cx23", "nbg1", 1), ("cx23", "fsn1", 1), ("cx33", "nbg1", 1), ("cx33", "fsn1", 1),
    ]  # fmt: skip


def test_one_of_each_and_none():
    assert found("cx23", "2") == [("cx23", "nbg1", 1)]
    assert found(["cx23", "cx33"]) == [("cx23", None, 1), ("cx33", None, 1)]
    assert refused(None).startswith("server_type: missing")
    assert refused([]).startswith("server_type: missing")


def test_what_is_sold_out_is_passed_over_while_something_is_left():
    assert found(["cx33", "cx23"], ["hel1", "fsn1"]) == [
        ("cx33", "fsn1", 1), ("cx23", "hel1", 1), ("cx23", "fsn1", 1),
    ]  # fmt: skip
    text = refused("cax11", ["fsn1", "nbg1"])
    assert "'cax11' is sold out in 'fsn1' at the moment" in text
    assert "'cax11' is sold out in 'nbg1' at the moment" in text


def test_a_server_that_exists_is_not_refused_for_what_is_sold_out():
    assert found("cax11", "fsn1", exists=True) == [("cax11", "fsn1", 2)]
    assert found("cx11", "fsn1", exists=True) == [("cx11", "fsn1", 1)]
    assert "can no longer be ordered" in refused("cx11", "fsn1")


def test_pairs_that_do_not_exist_are_passed_over_and_what_is_in_none_is_refused():
    assert found(["cx23", "cpx11"], ["fsn1", "ash"]) == [("cx23", "fsn1", 1), ("cpx11", "ash", 1)]
    assert refused(["cx23", "cpx11"], ["fsn1"]).startswith("location: server type 'cpx11' is not offered in 'fsn1'")
    assert refused(["cx23", "cx33"], ["fsn1", "ash"]) == (
        "location: none of the server types cx23, cx33 is offered in 'ash'; leave it out"
    )
    assert "'mars' does not exist" in refused(["cx23"], ["mars"])
    assert "server_type: 'cx99' does not exist" in refused(["cx23", "cx99"])


def test_each_type_needs_an_image_of_its_architecture():
    assert found(["cx23", "cax11"], written=False) == [("cx23", None, 1), ("cax11", None, 2)]
    assert "exists for x86 only, but server type 'cax11' is arm" in refused(
        ["cx23", "cax11"], images=[image(1)], written=False
    )
    assert "needs a disk of 80 GB" in refused(["cx23"], images=[image(1, size=80)])


def test_what_is_written_to_a_disk_has_one_architecture():
    text = refused(["cx23", "cax11"])
    assert text.startswith("server_type: cx23 is x86, cax11 is arm, but what is written to a disk has one architecture")
    assert refused(["cx23"], architecture="arm").startswith("architecture: arm is wanted, but server type 'cx23'")


def test_machines_of_a_group_are_spread_over_the_locations():
    catalog = catalog_of(IMAGES)
    wanted = {"server_type": ["cx23", "cx33"], "location": ["fsn1", "nbg1"]}
    there = choices.members_of(
        7,
        [
            {"placement_group": {"id": 7}, "location": {"name": "fsn1"}},
            {"placement_group": {"id": 8}, "location": {"name": "nbg1"}},
            {"placement_group": None, "location": {"name": "nbg1"}},
        ],
    )
    assert there == Counter({"fsn1": 1})
    orders = [
        [
            (one.server_type["name"], one.location)
            for one in choices.spread(choices.find_choices(wanted, catalog, "system", True, False), there)
        ]
        for _number in range(3)
    ]
    assert [order[0] for order in orders] == [("cx23", "nbg1"), ("cx23", "fsn1"), ("cx23", "nbg1")]
    assert orders[0] == [("cx23", "nbg1"), ("cx23", "fsn1"), ("cx33", "nbg1"), ("cx33", "fsn1")]


def test_what_was_answered_for_another_machine_is_not_asked_again():
    catalog = catalog_of(IMAGES)
    first, second = choices.find_choices(
        {"server_type": "cx23", "location": ["fsn1", "nbg1"]}, catalog, "system", True, False
    )
    room = choices.Room(8)
    assert room.of([first, second], None) == (first, [])
    room.none_for(first, None, "resource_unavailable")
    choice, passed = room.of([first, second], None)
    assert (choice, passed) == (second, [{"server_type": "cx23", "location": "fsn1", "error": "resource_unavailable"}])
    # no host for one placement group says nothing about another one
    assert room.of([first, second], 7) == (first, [])
    room.none_for(second, None, "placement_error")
    choice, passed = room.of([first, second], None)
    assert choice is None
    assert str(choices.out_of_room(passed)).startswith(
        "the API had no room for cx23 in fsn1 (resource_unavailable), cx23 in nbg1 (placement_error). Name further"
    )


def test_what_was_taken_instead_is_said():
    passed = [{"server_type": "cx23", "location": None, "error": "resource_unavailable"}]
    assert choices.instead({"server_type": "cx33", "location": "nbg1"}, passed) == (
        "cx33 in nbg1, as there was no room for cx23 (resource_unavailable)"
    )
    assert choices.instead({"server_type": "cx33", "location": "nbg1"}, []) == ""


@pytest.mark.parametrize("asked", ["cx33", ["cx23", "cx33"], ["cx23", " cx33"]])
def test_any_of_several_is_no_drift(asked):
    assert installed.drift({"server_type": "cx33"}, {"server_type": asked}) == []


def test_drift_from_several():
    (one,) = installed.drift({"location": "ash"}, {"location": ["fsn1", "nbg1"]})
    assert (one["runs"], one["wanted"]) == ("ash", "fsn1 or nbg1")
