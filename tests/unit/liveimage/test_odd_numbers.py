# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and ports of live images that are none."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import agent
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import document
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import answers, monitoring
from tests.unit.common import odd


@odd.examples()
@given(odd.texts)
def test_the_limit_of_a_watchdog_is_a_number_or_none(text):
    seconds = monitoring.watchdog({"WATCHDOG_USEC": text}, 1)
    assert seconds == pytest.approx(int(text) / 3e6 if re.fullmatch("[0-9]{1,18}", text) else 0)


@pytest.mark.parametrize("text", odd.NUMBERS)
def test_a_word_by_its_place_is_a_number(text):
    with pytest.raises(ImageError):
        document.Fields({"mode": text}, "x").choice("mode", ("a", "b"), numbered=True)
    assert document.Fields({"mode": "1"}, "x").choice("mode", ("a", "b"), numbered=True) == "b"


HEAD = b"GET /x HTTP/1.1\r\nHost: h\r\nRange: bytes=%b\r\n\r\n"


@example(b"5-9")
@example(b"5-")
@example(b"-5")
@example(b"-")
@example(b"\xb2-9")
@example(b"5-9\n")
@example(b"9" * 20 + b"-1")
@example(b"1-2-3")
@given(st.binary(max_size=30) | st.text(alphabet="0123456789-", max_size=42).map(str.encode))
def test_the_digits_of_a_plain_head(wanted):
    found = re.fullmatch(rb"([0-9]{1,19})-([0-9]{1,19})", wanted)
    assert answers.fast_request(HEAD % wanted) == (("/x", int(found[1]), int(found[2])) if found else None)


@pytest.mark.parametrize("text", ["http://h:0", "http://[", "http://h:99999", "http://h:²", "http://h:1_0"])
def test_a_url_of_the_agent_has_a_port(text):
    with pytest.raises(ImageError):
        agent.urls("x", (text,), 6385)
    assert agent.urls("x", ("http://h", "http://h:"), 6385) == ("http://h:6385", "http://h:6385")
