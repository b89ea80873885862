# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server types, locations and images: found, or refused with the way out."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import (
    Unfit,
    check_location,
    pick,
    pick_image,
    pick_server_type,
    prices_of,
)

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


def place(number, name, available=True):
    return {"id": number, "name": name, "available": available}


X86 = {"id": 1, "name": "cx23", "architecture": "x86", "disk": 40, "locations": [place(1, "fsn1"), place(2, "nbg1")]}
ARM = {"id": 2, "name": "cax11", "architecture": "arm", "disk": 40, "locations": [place(3, "hel1", False)]}
OLD = {"id": 3, "name": "cx11", "deprecation": {"unavailable_after": "2024-09-06T00:00:00Z"}}
SOON = {"id": 4, "name": "cx22", "deprecation": {"unavailable_after": "2027-09-06T00:00:00+00:00"}}
TYPES = [X86, ARM, OLD, SOON]


def image(number, **more):
    return {"id": number, "name": None, "architecture": "x86", "disk_size": 5, "status": "available", **more}


def refused(function, *arguments, **more):
    with pytest.raises(Unfit) as caught:
        function(*arguments, **more)
    return str(caught.value)


def test_names_and_ids_are_found():
    assert pick("network", "b", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])["id"] == 2
    assert pick("network", "1", [{"id": 1, "name": "a"}])["name"] == "a"
    assert "'c' does not exist; there are: a" in refused(pick, "network", "c", [{"id": 1, "name": "a"}])
    assert refused(pick, "network", "c", []).endswith("there are: none")


def test_server_types():
    assert pick_server_type("cx23", TYPES, NOW) is X86
    assert pick_server_type("2", TYPES, NOW) is ARM
    assert pick_server_type("cx22", TYPES, NOW) is SOON
    assert "server_type: 'cx11' can no longer be ordered" in refused(pick_server_type, "cx11", TYPES, NOW)
    assert "server_type: 'cx99' does not exist" in refused(pick_server_type, "cx99", TYPES, NOW)


def test_locations():
    assert check_location(None, X86, TYPES) is None
    assert check_location("fsn1", X86, TYPES) == "fsn1"
    assert check_location("2", X86, TYPES) == "nbg1"
    assert "'mars' does not exist; there are: fsn1, hel1, nbg1" in refused(check_location, "mars", X86, TYPES)
    assert "'cx23' is not offered in 'hel1'; it is in: fsn1, nbg1" in refused(check_location, "hel1", X86, TYPES)
    assert "'cax11' is sold out in 'hel1'" in refused(check_location, "hel1", ARM, TYPES)
    assert check_location("anywhere", {"name": "cx23"}, []) == "anywhere"


def test_an_image_of_the_right_architecture_is_picked():
    images = [image(1, name="ubuntu-24.04", architecture="arm"), image(2, name="ubuntu-24.04")]
    assert pick_image("ubuntu-24.04", images, X86)["id"] == 2
    assert pick_image("ubuntu-24.04", images, ARM)["id"] == 1


def test_an_image_is_found_by_label_and_id():
    labelled = image(7, labels={"caph-image-name": "node-1.33"})
    assert pick_image("node-1.33", [labelled], X86) is labelled
    assert pick_image("7", [labelled], X86) is labelled


def test_images_that_cannot_work():
    arm = image(1, name="a", architecture="arm")
    twins = [image(number, labels={"caph-image-name": "a"}) for number in (5, 6)]
    assert "image: 'a' is neither the name nor the id" in refused(pick_image, "a", [], X86)
    assert "'a' exists for arm only, but server type 'cx23' is x86" in refused(pick_image, "a", [arm], X86)
    assert "'a' is ambiguous, it names the images 5, 6" in refused(pick_image, "a", twins, X86)
    assert "needs a disk of 80 GB, server type 'cx23' has 40 GB" in refused(
        pick_image, "a", [image(1, name="a", disk_size=80)], X86
    )
    assert "status creating" in refused(pick_image, "a", [image(1, name="a", status="creating")], X86)


def priced(location, hour, month="4.0"):
    return {"location": location, "price_hourly": {"net": hour}, "price_monthly": {"net": month}}


@pytest.mark.parametrize(
    ("entries", "location", "found"),
    [
        ([priced("fsn1", "0.0064000000"), priced("ash", "0.0080")], "fsn1", (0.0064, 4.0)),
        ([priced("fsn1", "0.0064"), priced("ash", "0.0080")], None, (None, None)),
        ([priced("fsn1", "0.0064"), priced("hel1", "0.0064")], None, (0.0064, 4.0)),
        ([priced("fsn1", "free"), priced("hel1", "0.0064")], "fsn1", (None, 4.0)),
        ([priced("fsn1", "-1", "inf")], "fsn1", (None, None)),
        ([{"location": "fsn1", "price_hourly": "1"}], "fsn1", (None, None)),
        (None, "fsn1", (None, None)),
    ],
)
def test_what_a_type_costs_in_a_location(entries, location, found):
    assert prices_of({"prices": entries}, location) == found
