# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers, times, addresses and JSON of machines, servers, clusters and users that are none."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import tarfile
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text as texts
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import retry_after
from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server, container_images, facts, fetch
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import tokens
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import files
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import SettingError
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import (
    base_inputs,
    join_inputs,
    kubelet_config,
    systems,
    user_data,
)
from tests.unit.common import odd

SHA = "5f" * 32
DIGIT_TEXTS = [text for text in odd.WORDS if not (text.isascii() and text.isdigit())]


# --- downloads


def test_a_host_that_is_none_is_an_error(tmp_path):
    with pytest.raises(fetch.FetchError, match="no URL"):
        fetch.Fetcher(retries=1, timeout=10).fetch("http://a..b/", str(tmp_path / "x"), SHA)


@odd.examples()
@given(odd.texts)
def test_how_long_a_server_asks_to_wait_is_a_number_or_nothing(text):
    assert 0 <= retry_after({"Retry-After": text}) < 1 << 63


# --- what machines and people write


@odd.examples(*(f"x x {text}" for text in odd.NUMBERS))
@given(odd.texts)
def test_sizes_of_swap_and_memory_are_numbers(text):
    assert all(entry["size"] >= 0 for entry in facts.swaps("head\n" + text))
    assert facts.memory_bytes(f"MemTotal:   {text} kB") >= 0
    assert facts.systemd_version(f"systemd {text}") is None or re.match("[0-9]{1,9}", text)


def test_addresses_may_be_any_json():
    assert facts.addresses(odd.DEEP) == []


@pytest.mark.parametrize("name", ["²", "٣", "1_000", "-1", "4294967295", "9" * 20, "9" * 5000])
def test_an_owner_that_is_no_number_does_not_exist(name):
    with pytest.raises(SettingError, match="does not exist"):
        files.owner(SimpleNamespace(check_mode=False), {"owner": name})
    assert files.owner(SimpleNamespace(check_mode=False), {"owner": "4294967294", "group": "0"}) == (4294967294, 0)


@odd.examples("1.2.²", "٣.1.1", "1." + "9" * 5000, "1.2." + "9" * 20, "1.2.3\n", "9" * 5000 + ".1")
@given(odd.texts)
def test_a_version_is_one_or_none(text):
    found = systems.numbers(text)
    assert found is None or all(0 <= part < 1 << 63 for part in found)
    assert not systems.is_release(text) or re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", text)


@odd.examples(*odd.NUMBERS, "9" * 5000 + "G", "²h", "1_0m", "٣s", "1h\n")
@given(odd.texts)
def test_sizes_and_spans_are_ones_or_none(text):
    plain = re.fullmatch("[0-9]+[A-Za-z0-9]*", text) is not None
    assert base_inputs.size(text) is None or plain
    assert base_inputs.seconds(text) is None or plain
    with contextlib.suppress(tokens.InvalidToken):
        assert 60 <= tokens.ttl_seconds(text) <= 86400


@pytest.mark.parametrize("text", DIGIT_TEXTS)
def test_numbers_of_the_command_line_are_ascii_digits(text):
    assert base_inputs._number(text) == text
    assert join_inputs._converted(text, int) == text
    assert base_inputs._number("45") == join_inputs._converted("45", int) == 45


@pytest.mark.parametrize("skew", [float("nan"), float("inf"), True, "²", 0])
def test_a_clock_skew_is_a_number_of_seconds(skew):
    problems = base_inputs.Problems()
    given_inputs = {
        "journald_max": "1G", "min_disk": "1G", "shutdown_grace_period": "60s", "shutdown_grace_period_critical": "20s",
        "kubelet_watchdog": "", "max_clock_skew": skew,
        "runtime_probe": {"interval": "10s", "timeout": "10s", "threshold": 3},
    }  # fmt: skip
    base_inputs._check_sizes(given_inputs, problems)
    assert len(problems) == 1
    assert "max_clock_skew" in problems[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_field_of_the_kubelet_is_no_number_beyond_numbers(value):
    with pytest.raises(kubelet_config.InvalidConfig, match="must be a number"):
        kubelet_config.check_fields({"eventBurst": value}, {"eventBurst": "float"})


@pytest.mark.parametrize("address", ["fe80::1%eth0", "2001:db8::1%; reboot", 5, True, "²", "1_0.0.0.1", "٣.0.0.1"])
def test_an_address_of_a_node_has_no_zone(address):
    with pytest.raises(join_inputs.InvalidAddress):
        join_inputs.check_addresses([address])


@pytest.mark.parametrize("url", ["https://[", "https://h:0", "https://h:99999", "https://h:²", "https://h:+5"])
def test_an_api_server_has_an_address_and_a_port(url):
    for check in (api_server.split_server, user_data.api_server):
        with pytest.raises(ValueError, match="https://"):
            check(url)


@pytest.mark.parametrize("url", ["http://[/x", "http://h:0/x", "http://h:99999/x", "http://h:1_0/x", "http://h:+5/x"])
def test_a_source_and_a_proxy_are_urls(url):
    with pytest.raises(ValueError, match="must be an http"):
        user_data.url_and_digest(f"{url}#sha256={SHA}")
    with pytest.raises(ValueError, match="must be an http"):
        user_data.proxy(url)


# --- clusters


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
def test_an_api_server_whose_name_is_none_does_not_answer(host):
    with pytest.raises(api_server.ApiError) as caught:
        api_server.Api(f"https://{host}:6443", None, timeout=1).get("/version")
    assert caught.value.code == "api_unreachable"


def test_an_answer_may_be_any_json():
    assert api_server._json_answer(odd.DEEP.encode()) is None
    head = base64.urlsafe_b64encode(odd.DEEP.encode()).decode().rstrip("=")
    for signature in (f"{head}..x", 5, ["x"], {"a": 1}):
        data = {"kubeconfig": "{}", "jws-kubeconfig-abcdef": signature}
        with pytest.raises(api_server.DiscoveryError):
            api_server.discovered_ca({"data": data}, [], "abcdef.0123456789abcdef")
    with pytest.raises(api_server.DiscoveryError):
        api_server.discovered_ca({"data": {"kubeconfig": odd.DEEP}}, ["sha256:" + SHA], None)


@pytest.mark.parametrize("moment", ["991301000000Z", "990000000000Z", "990132000000Z", "990101240000Z", "990101006000Z",
                                    "990230000000Z", "99010100000²Z", "٩90101000000Z"])  # fmt: skip
def test_a_time_in_a_certificate_that_is_none_is_refused(moment):
    with pytest.raises(api_server.BadCertificate):
        api_server._time((0x17, moment.encode()))
    with pytest.raises(api_server.BadCertificate):
        api_server._time((0x18, b"20" + moment.encode()))


@given(st.binary(max_size=20))
def test_any_time_in_a_certificate_is_one_or_refused(content):
    for tag in (0x17, 0x18):
        try:
            assert isinstance(api_server._time((tag, content)), float)
        except api_server.BadCertificate:
            continue


def test_times_in_certificates():
    assert api_server._time((0x17, b"700101000001Z")) == 1.0
    assert api_server._time((0x18, b"20380119031408Z")) == 2.0**31


@odd.examples("2026-13-01T00:00:00Z", "²", "9" * 5000)
@given(st.none() | st.integers() | st.text(max_size=30))
def test_what_is_no_time_of_a_request_is_none(text):
    assert texts.moment(text) is None or re.match("[0-9]{4}-", str(text))
    assert texts.moment("2026-01-01T00:00:00Z") == 1767225600


def test_the_index_of_an_image_archive_may_be_any_json(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(odd.DEEP)
        packed.addfile(entry, io.BytesIO(odd.DEEP.encode()))
    with pytest.raises(container_images.ArchiveError):
        container_images.names_in_archive(tmp_path / "x.tar")
