# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of the program `provision` that need no payload: variables as literals, arguments, the cloud-config file."""

from __future__ import annotations

import yaml
from ansible.parsing.dataloader import DataLoader
from hypothesis import given, settings
from hypothesis import strategies as st

from provision import playbook
from provision.program import without_token

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.integers(), inner, max_size=4),
    max_leaves=8,
)


class _Loader(yaml.SafeLoader):
    """Knows Ansible's tag for text that is no template."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


@settings(deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_literals_are_read_as_they_were(values):
    text = playbook.document(values)
    assert yaml.load(text, _Loader) == values
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)


def test_ansible_reads_them_too():
    values = {"a": "{{ x }} 😀 \u2028 \x85 '\"\\", "b": [1, 2.5, None, True], "c": {"d": "e\nf"}}
    assert DataLoader().load(playbook.document(values)) == values


def test_without_token():
    arguments = ["--phase", "join", "--token", "a", "--check", "--token=b", "--token-file", "-"]
    assert without_token(arguments) == ["--phase", "join", "--check", "--token-file", "-"]
    assert without_token(["--token"]) == []


def test_cloud_config_is_kept_privately(tmp_path):
    source, target = tmp_path / "source", tmp_path / "etc/kubernetes/cloud-config"
    source.write_text("[global]\n")
    assert playbook.keep_cloud_config(source, check=True, target=target)
    assert not target.parent.exists()
    assert playbook.keep_cloud_config(source, check=False, target=target)
    assert target.read_text() == "[global]\n"
    assert target.stat().st_mode & 0o777 == 0o600
    assert not playbook.keep_cloud_config(source, check=False, target=target)
    target.chmod(0o644)
    assert playbook.keep_cloud_config(source, check=False, target=target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["cloud-config"]


def test_cloud_config_may_be_its_own_source(tmp_path):
    target = tmp_path / "cloud-config"
    target.write_text("x")
    target.chmod(0o600)
    assert not playbook.keep_cloud_config(target, check=False, target=target)
