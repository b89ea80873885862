# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The private key of the controller must open what is armed with the registered keys."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.login_keys import (
    material,
    public_half,
    resolve_keys,
)
from tests.key_pairs import key_pair


def registered(number, name, public_key):
    return {"id": number, "name": name, "public_key": public_key}


def test_material_ignores_the_comment():
    assert material("ssh-ed25519 AAAA me@here") == material("ssh-ed25519 AAAA\n")
    assert material("") is None
    assert material(None) is None


def test_public_half_is_derived_from_the_key_itself(tmp_path):
    public = key_pair(tmp_path / "key")
    (tmp_path / "key.pub").write_text("ssh-ed25519 WRONG stale\n")
    assert material(public_half(str(tmp_path / "key"))) == material(public)


def test_public_half_of_a_key_with_passphrase_is_the_file_beside_it(tmp_path):
    public = key_pair(tmp_path / "key", passphrase="secret words")
    assert material(public_half(str(tmp_path / "key"))) == material(public)
    (tmp_path / "key.pub").unlink()
    with pytest.raises(Unfit, match=r"no readable '.*key.pub' beside it"):
        public_half(str(tmp_path / "key"))


def test_missing_private_key(tmp_path):
    with pytest.raises(Unfit, match=r"ssh_private_key: '.*nothing' is no file"):
        public_half(str(tmp_path / "nothing"))


def test_keys_by_their_labels():
    keys = [registered(number, name, f"ssh-ed25519 AAAA{number}") for number, name in ((1, "a"), (2, "b"), (3, "c"))]
    asked = []

    def with_labels(selector):
        asked.append(selector)
        return keys[1:] if selector == "team=ops" else []

    wanted = ["b", {"label_selector": "team=ops"}]
    assert [key["id"] for key in resolve_keys(wanted, keys, with_labels=with_labels)] == [2, 3]
    assert asked == ["team=ops"]
    with pytest.raises(Unfit, match="ssh_keys: no SSH key of the project has the labels 'team=dev'"):
        resolve_keys([{"label_selector": "team=dev"}], keys, with_labels=with_labels)
    for entry in ({"label_selector": ""}, {"selector": "a"}, {"label_selector": "a", "name": "b"}):
        with pytest.raises(Unfit, match="is no key; give its name or id, or "):
            resolve_keys([entry], keys, with_labels=with_labels)


def test_the_private_key_must_be_among_the_named_keys(tmp_path):
    mine, other = key_pair(tmp_path / "mine"), key_pair(tmp_path / "other")
    keys = [registered(1, "other", other), registered(2, "mine", mine)]
    assert [key["id"] for key in resolve_keys(["other", 2], keys, mine, "mine")] == [1, 2]
    with pytest.raises(Unfit, match="opens none of 'other'; name 'mine', which is its public half"):
        resolve_keys(["other"], keys, mine, "mine")
    with pytest.raises(Unfit, match="register its public half"):
        resolve_keys(["other"], keys[:1], mine, "mine")
    with pytest.raises(Unfit, match="ssh_keys: empty"):
        resolve_keys([], keys)
    with pytest.raises(Unfit, match="'third' does not exist; there are: mine, other"):
        resolve_keys(["third"], keys)
