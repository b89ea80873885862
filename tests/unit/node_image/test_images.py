# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of nodes in the project: which one a name means, their labels, and which ones are pruned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import labels
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import (
    Unfit,
    newest_first,
    of_architecture,
    pick_image,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import is_label_value, label_findings
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.snapshots import (
    judge,
    named_in_use,
    used_by_servers,
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


# --- labels of node images: always such that the API takes them, and equal only for what is the same


DIGEST = "0123456789abcdef" * 4
WANTED = {"name": "n-1.36", "kubernetes_version": "1.36.4", "base_image": "debian-13", "digest": DIGEST}


@settings(deadline=None)
@given(st.text())
def test_any_text_becomes_a_label_value(text):
    assert is_label_value(labels.label_value(text))


@settings(deadline=None)
@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True))
def test_a_label_value_stays_as_it_is(text):
    assert labels.label_value(text) == text


def test_the_end_of_a_long_value_is_kept():
    url = "https://images.example.com/" + "folder/" * 20 + "debian-13.raw.zst"
    assert labels.label_value(url).endswith("debian-13.raw.zst")


@pytest.mark.parametrize("text", [DIGEST, DIGEST.upper(), "sha256:" + DIGEST])
def test_a_digest_is_shortened_to_what_a_label_holds(text):
    assert labels.short_digest(text) == "sha256-" + DIGEST[:56]
    assert len(labels.short_digest(text)) == 63


@pytest.mark.parametrize("text", ["", None, DIGEST[:-1], DIGEST + "0", DIGEST + "\n", "sha512:" + DIGEST, "g" * 64])
def test_what_is_no_digest(text):
    assert labels.short_digest(text) is None


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {}, optional={option: st.text() for option in ("kubernetes_version", "base_image", "role_version")}
    )
)
def test_all_labels_are_such_that_the_api_takes_them(about):
    assert label_findings(labels.all_labels({**about, "name": "n", "digest": DIGEST})) == []


def test_the_same_is_what_is_ours_and_made_from_the_same():
    image = {"labels": labels.all_labels({**WANTED, "labels": {"pool": "a"}})}
    assert labels.is_same(image, WANTED)
    assert labels.is_same(image, {**WANTED, "base_image": None})
    for other in ({"kubernetes_version": "1.36.5"}, {"base_image": "debian-12"}, {"digest": "f" * 64}):
        assert not labels.is_same(image, {**WANTED, **other})
    foreign = {key: value for key, value in image["labels"].items() if key != labels.MADE_LABEL}
    assert not labels.is_same({"labels": foreign}, WANTED)
    renamed = {**image["labels"], "caph-image-name": "other"}
    assert not labels.is_made_by_us({"labels": renamed})
    assert not labels.is_made_by_us({"labels": None})


@pytest.mark.parametrize(
    ("wanted", "finding"),
    [
        ({"name": "n" * 64}, "(it has 64 characters)"),
        ({"name": "a b"}, "'a b' cannot be the value of the label caph-image-name"),
        ({"name": ""}, "images[3].name: '' cannot"),
        ({"name": "n\n"}, "cannot be the value"),
        ({"name": "n", "labels": {"caph-image-name": "x"}}, "'caph-image-name' is set by the module itself"),
        ({"name": "n", "labels": {"kubenode.provision/role": "x"}}, "is set by the module itself"),
        ({"name": "n", "labels": {"a": "b c"}}, "labels: the value 'b c' of 'a'"),
        ({"name": "n", "digest": "abc"}, "digest: 'abc' is no SHA-256"),
        ({"name": "n", "keep": 0}, "keep: 0; keep at least 1"),
    ],
)
def test_findings_name_field_value_and_way_out(wanted, finding):
    (found,) = labels.findings_of(wanted, 3)
    assert finding in found


def test_good_input_has_no_findings():
    assert labels.findings_of({**WANTED, "labels": {"pool": "a"}, "keep": 1}, 0) == []


# --- pruning: the newest stay, the used stay, what others made stays, and the rest goes


OURS = {"caph-image-name": "n", "kubenode.provision/node-image": "n"}


def snapshot(number, **more):
    about = {"status": "available", "labels": OURS, "created": f"2026-11-21T00:00:{number:02d}Z", "architecture": "x86"}
    return {"id": number, **about, **more}


def ids(images):
    return [one["id"] for one in images]


def test_the_oldest_go():
    doomed, stay = judge([snapshot(1), snapshot(3), snapshot(2)], 1, {})
    assert (ids(doomed), stay) == ([2, 1], {})
    assert judge([snapshot(1), snapshot(2)], 2, {}) == ([], {})
    assert ids(judge([snapshot(1)], 0, {})[0]) == [1]


def test_what_is_used_or_protected_or_foreign_or_unfinished_stays_and_says_why():
    images = [
        snapshot(1, protection={"delete": True}),
        snapshot(2, labels={"caph-image-name": "n"}),
        snapshot(3),
        snapshot(4),
        snapshot(5, status="creating"),
        snapshot(6, status="unavailable"),
        snapshot(7),
    ]
    doomed, stay = judge(images, 1, {3: "server 'a' was made from it"})
    assert ids(doomed) == [6, 4]
    assert stay == {
        1: "protected against deletion",
        2: "not made by this collection",
        3: "server 'a' was made from it",
        5: "still being made",
    }


def test_an_unfinished_snapshot_does_not_count_as_kept():
    assert ids(judge([snapshot(1), snapshot(2, status="creating"), snapshot(3, status="unavailable")], 1, {})[0]) == [3]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["available", "creating"])), unique_by=lambda one: one[0]),
    st.integers(1, 5),
    st.sets(st.integers(0, 59)),
)
def test_never_a_used_one_and_never_fewer_than_keep(given_images, keep, used):
    images = [snapshot(number, status=status) for number, status in given_images]
    doomed, _stay = judge(images, keep, dict.fromkeys(used, "used"))
    available = sorted((one["id"] for one in images if one["status"] == "available"), reverse=True)
    assert not set(ids(doomed)) & (used | set(available[:keep]))
    assert set(available[keep:]) - used == set(ids(doomed))


def test_an_inventory_names_ids_or_all_of_a_name():
    images = [snapshot(1), snapshot(2), snapshot(3, architecture="arm"), snapshot(4, status="creating")]
    assert set(named_in_use(["n"], images)) == {1, 2, 3, 4}
    assert set(named_in_use(["1", 3], images)) == {1, 3}
    assert named_in_use(["other"], images) == {}


def test_what_a_run_hands_out_stays_although_others_are_newer():
    images = [snapshot(1), snapshot(2), snapshot(3), snapshot(4)]
    doomed, stay = judge(images, 2, {}, {2})
    assert (ids(doomed), stay) == ([1], {2: "the image of this run; newer: 4, 3"})
    assert judge(images, 2, {}, {4}) == judge(images, 2, {})


def test_servers_use_what_they_were_made_from():
    servers = [{"name": "a", "image": {"id": 7}}, {"name": "b", "image": None}, {"name": "c", "image": {"id": 7}}]
    assert used_by_servers(servers) == {7: "server 'a' was made from it"}
