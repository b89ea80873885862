# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server cannot use, what clients that verify refuse, and what neither minds."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import certificates
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.certificates import judged, loaded
from tests.certificates import Pair, pair
from tests.folders import put

ROOT = pair(authority=True)
MIDDLE = pair(authority=True, issuer=ROOT)
OLD_MIDDLE = pair(authority=True, issuer=ROOT, begin=-9, end=-2)
GOOD = pair("images.example", "192.0.2.1", "2001:db8::1")


def verdict(tmp_path, one: Pair, name: str = "", chain: str = "") -> certificates.Verdict:
    crt, key = put(tmp_path / "crt", one.crt + chain), put(tmp_path / "key", one.pem)
    return judged(loaded(str(crt), str(key)), str(crt), name)


@pytest.mark.parametrize("name", ["", "images.example", "192.0.2.1", "2001:db8::1"])
def test_good(tmp_path, name):
    assert verdict(tmp_path, GOOD, name) == ("", "")


@pytest.mark.parametrize("chain", [MIDDLE.crt, MIDDLE.crt + ROOT.crt, ""], ids=["middle", "root", "leaf"])
def test_a_chain_needs_no_root_that_anything_trusts(tmp_path, chain):
    assert verdict(tmp_path, pair("images.example", issuer=MIDDLE), "images.example", chain) == ("", "")


@pytest.mark.parametrize(
    ("one", "chain", "words"),
    [
        (pair("images.example", begin=-9, end=-1), "", "has expired; give"),
        (pair("images.example", begin=1, end=9), "", "is not valid yet; give"),
        (pair("images.example", issuer=OLD_MIDDLE), OLD_MIDDLE.crt, "has expired; give"),
    ],
    ids=["expired", "early", "chain"],
)
@pytest.mark.parametrize("name", ["", "other.example"])
def test_out_of_date(tmp_path, one, chain, words, name):
    found = verdict(tmp_path, one, name, chain)
    assert words in found.out_of_date
    assert found.refused == ""


@pytest.mark.parametrize("name", ["other.example", "192.0.2.2", "2001:db8::2", "x" * 64 + ".example"])
def test_another_name(tmp_path, name):
    found = verdict(tmp_path, GOOD, name)
    assert found.out_of_date == ""
    assert found.refused.startswith(f"the certificate is not for {name}," if len(name) < 64 else "clients refuse")


def test_for_clients_alone(tmp_path):
    found = verdict(tmp_path, pair("images.example", clients=True))
    assert found == ("", "clients refuse the certificate: unsuitable certificate purpose")


@pytest.mark.parametrize(
    ("crt", "key", "words"),
    [
        (GOOD.crt, pair().pem, "the key is not the certificate's; give the two"),
        (GOOD.crt, pair(bits=2048).pem, "the key is not the certificate's; give the two"),
        (pair(bits=1024), "", "the key is too short: it takes RSA with 2048 bits"),
        ("nothing", GOOD.pem, "one of them is not in PEM"),
        (GOOD.crt, GOOD.crt, "one of them is not in PEM"),
    ],
    ids=["other", "kind", "short", "junk", "no-key"],
)
def test_what_no_server_can_use_is_said_in_words(tmp_path, crt, key, words):
    crt, key = (crt.crt, crt.pem) if isinstance(crt, Pair) else (crt, key)
    with pytest.raises(ImageError) as caught:
        loaded(str(put(tmp_path / "crt", crt)), str(put(tmp_path / "key", key)))
    assert str(caught.value).startswith(words)


def test_a_reason_without_words_of_ours_is_readable(tmp_path):
    with pytest.raises(ImageError, match=r"\ANo such file or directory\Z"):
        loaded(str(tmp_path / "none"), str(tmp_path / "none"))
