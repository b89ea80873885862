# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers and registries whose numbers, addresses and JSON are none: every one ends in an error that says so."""

from __future__ import annotations

import io
import tarfile
import urllib.error
from email.message import Message

import pytest
from hypothesis import given

from ansible_collections.kubenode.provision.plugins.module_utils._common.web import LONGEST_WAIT, Interrupted
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.incoming import Source, Transfer
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import (
    ImageUrl,
    OciUrl,
    kind_of_bootstrap,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.oci import (
    Descriptor,
    Login,
    error_code,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.rootfs_tar import (
    LATEST,
    nanoseconds,
)
from tests.unit.common import odd

HEX = "ab" * 32


@pytest.mark.parametrize("place", ["http://a..b/", "http://" + "a" * 64 + ".example/"])
def test_a_host_that_is_none_is_refused(place):
    with pytest.raises(Refused, match="no URL"):
        list(Source(ImageUrl(place + "x.raw"), "tests", pause=0.0).chunks())


def test_an_error_shows_nothing_of_the_login():
    with pytest.raises(Refused) as caught:
        ImageUrl("http://user:[s3cret]@h/x")
    assert "s3cret" not in str(caught.value)


@odd.examples()
@given(odd.texts)
def test_how_long_a_server_asks_to_wait_is_a_number_or_nothing(text):
    headers = Message()
    headers["Retry-After"] = text.replace("\n", " ").replace("\r", " ")
    error = urllib.error.HTTPError("http://h/", 503, "busy", headers, io.BytesIO())
    found = Transfer("http://h/", "tests", 5.0).judge(error)
    if isinstance(found, Interrupted):
        assert 0 <= found.wait <= LONGEST_WAIT
    else:
        assert isinstance(found, Refused)


# --- registries


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_registry_has_a_port(port):
    for host in ("r.example", "[::1]"):
        with pytest.raises(Refused, match="no registry has the port"):
            OciUrl(f"oci://{host}:{port}/a:v1")
    assert OciUrl("oci://[::1]:65535/a:v1").host == "[::1]:65535"
    assert OciUrl("oci://[::1]/a:v1").host == "[::1]"


@pytest.mark.parametrize("realm", ["https://[", "https://h:99999/", "https://h:²/", "https://h:1_0/", "https://[x]/"])
def test_a_login_sent_to_what_is_no_url_is_refused(realm):
    login = Login(OciUrl("oci://r.example/a:v1"), "", "tests", 0.0, lambda said: None)
    with pytest.raises(Refused, match="no URL"):
        login.renew([f'Bearer realm="{realm}",service="x"'])


@pytest.mark.parametrize(
    "body", [odd.DEEP.encode(), b'{"token": ' + odd.DEEP.encode(), b"\xff", b"[]", b'{"token": 5}']
)
def test_a_token_server_that_hands_out_no_token(body):
    with odd.server(odd.answer(body=body, Content_Length=str(len(body)))) as url:
        login = Login(OciUrl("oci://r.example/a:v1#plain-http=yes"), "", "tests", 0.0, lambda said: None)
        with pytest.raises(Refused, match="handed out no token"):
            login.renew([f'Bearer realm="{url}"'])


def test_the_code_of_an_error_may_be_any_json():
    for body in (odd.DEEP.encode(), b'{"errors":' + odd.DEEP.encode(), b"NaN", b'{"errors": [{"code": NaN}]}'):
        assert error_code(urllib.error.HTTPError("http://h/", 403, "no", Message(), io.BytesIO(body))) == ""


@pytest.mark.parametrize("size", [True, 1.0, float("nan"), float("inf"), "5", "²", -1, 1 << 63, 10**400, None])
def test_the_size_of_a_layer_is_a_number_of_bytes(size):
    with pytest.raises(Refused, match="is no size"):
        Descriptor({"digest": f"sha256:{HEX}", "size": size})


# --- what comes with the image


def test_bootstrap_data_may_be_any_json():
    with pytest.raises(Refused, match="bootstrap data"):
        kind_of_bootstrap(b'{"ignition": ' + odd.DEEP.encode())


@odd.examples("1.5", "1.²", "٣.5", "99999999999.123456789", "nan", "-inf", "1e400", "1_0")
@given(odd.texts)
def test_the_time_of_a_member_is_one_that_a_file_can_have(text):
    header = tarfile.TarInfo("x")
    header.pax_headers = {"mtime": text}
    try:
        header.mtime = float(text)  # as tarfile does
    except ValueError:
        header.mtime = 0
    assert 0 <= nanoseconds(header) < (LATEST + 1) * 10**9
