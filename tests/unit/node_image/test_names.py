# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image a name means: CAPH's rules, and the newest where the user asks for it."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import (
    Unfit,
    newest_first,
    of_architecture,
    pick_image,
)


def image(number, name=None, label=None, architecture="x86", **more):
    labels = {"caph-image-name": label} if label else {}
    about = {"created": "2026-11-21T00:00:00Z", "status": "available", "disk_size": 40}
    return {"id": number, "name": name, "labels": labels, "architecture": architecture, **about, **more}


def test_a_name_and_a_label_count_alike():
    with pytest.raises(Unfit, match="'a' is ambiguous, it names the images 1, 2"):
        of_architecture("a", [image(1, name="a"), image(2, label="a")], "x86")


def test_other_architectures_do_not_count():
    images = [image(1, label="a"), image(2, label="a", architecture="arm")]
    assert of_architecture("a", images, "arm")["id"] == 2
    with pytest.raises(Unfit, match="'b' exists for arm only, but architecture x86 is wanted"):
        of_architecture("b", [image(3, label="b", architecture="arm")], "x86")


def test_an_id_counts_only_where_nothing_has_the_name():
    assert of_architecture("7", [image(7)], "x86")["id"] == 7
    assert of_architecture("7", [image(7), image(8, label="7")], "x86")["id"] == 8


def test_none_is_an_error():
    with pytest.raises(Unfit, match="neither the name nor the id of an image, nor the label caph-image-name"):
        of_architecture("a", [image(1, name="b")], "x86", newest=True)


def test_the_newest_is_the_newest_available_one():
    images = [
        image(5, label="a", created="2026-11-20T00:00:00Z"),
        image(3, label="a", created="2026-11-21T00:00:00Z"),
        image(4, label="a", created="2026-11-21T00:00:00Z"),
        image(6, label="a", created="2026-11-22T00:00:00Z", status="creating"),
    ]
    assert of_architecture("a", images, "x86", newest=True)["id"] == 4
    assert [one["id"] for one in newest_first(images)] == [6, 4, 3, 5]
    kind = {"name": "cx23", "architecture": "x86", "disk": 40}
    assert pick_image("a", images, kind, newest=True)["id"] == 4
