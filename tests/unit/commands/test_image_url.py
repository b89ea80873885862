# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the image URL may say, and what of it may be shown."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import ImageUrl


@pytest.mark.parametrize(
    ("text", "location", "shown"),
    [
        ("http://h/a.raw", "http://h/a.raw", "http://h/a.raw"),
        ("https://h:8443/d/a.raw?sig=s3cret#grow=no", "https://h:8443/d/a.raw?sig=s3cret", "https://h:8443/d/a.raw"),
        ("http://u:pw@[2001:db8::1]:81/a", "http://[2001:db8::1]:81/a", "http://[2001:db8::1]:81/a"),
        ("file:///srv/a.raw#sha256=none", "file:///srv/a.raw", "file:///srv/a.raw"),
    ],
)
def test_what_is_requested_and_what_is_shown(text, location, shown):
    url = ImageUrl(text)
    assert url.location() == location
    assert url.shown() == shown


def test_the_checksum_file_lies_beside_the_image_with_the_same_query():
    assert ImageUrl("http://h/a.raw?k=v#grow=no").location(".sha256") == "http://h/a.raw.sha256?k=v"


def test_login_becomes_a_header():
    url = ImageUrl("http://us%40er:p%3Aw@h/a")
    assert url.authorization == "Basic " + base64.b64encode(b"us@er:p:w").decode()
    assert ImageUrl("http://h/a").authorization == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("oci://r/i:1", "'oci'"),
        ("/srv/a.raw", "''"),
        ("http:///a.raw", "host is missing"),
        ("http://h/", "path of the image"),
        ("http://h:99999/a", "ort"),
        ("http://h:0/a", "ort"),
        ("http://h:1_0/a", "ort"),
        ("http://h:+5/a", "ort"),
        ("http://[/a", ""),
        ("http://h/a b", "percent-encoded"),
        ("http://h/\u00e4", "percent-encoded"),
        ("http://h/a#sha265=00", "'sha265'"),
        ("http://h/a#grow=no&grow=yes", "given twice"),
        ("http://h/a#grow=maybe", "grow=maybe"),
        ("http://h/a#keys=", "keys= is neither yes nor no"),
        ("http://h/a#stall=0", "stall=0"),
        ("http://h/a#stall=x", "stall=x"),
    ],
)
def test_refused(text, named):
    with pytest.raises(Refused) as caught:
        ImageUrl(text)
    assert named in str(caught.value)
    assert str(caught.value).startswith("image URL: ")


@pytest.mark.parametrize("name", ["adapt", "grow", "keys"])
def test_switches_that_are_on_unless_the_url_says_no(name):
    assert ImageUrl("http://h/a").wants(name)
    assert ImageUrl(f"http://h/a#{name}=yes").wants(name)
    assert not ImageUrl(f"http://h/a#{name}=no").wants(name)
