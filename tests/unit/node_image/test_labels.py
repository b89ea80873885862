# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of node images: always such that the API takes them, and equal only for what is the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import labels
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import is_label_value, label_findings

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
