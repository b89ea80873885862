# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small private files: whole or not at all."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files


def test_a_file_is_private_and_replaces_the_one_before(tmp_path):
    path = tmp_path / "folder" / "n1.json"
    for content in ({"b": 1, "a": [2]}, {"c": 3}):
        safe_files.write_json(str(path), content, durable=False)
    assert path.read_text() == '{\n "c": 3\n}\n'
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    safe_files.write_json(str(path), {"b": 1, "a": 2}, sort_keys=True)
    assert path.read_text() == '{\n "a": 2,\n "b": 1\n}\n'


def test_a_full_disk_leaves_the_file_before_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "n1.json"
    safe_files.write_json(str(path), {"a": 1})

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(safe_files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/n1\.json'"):
        safe_files.write_json(str(path), {"a": 2})
    assert [one.name for one in tmp_path.iterdir()] == ["n1.json"]
    assert path.read_text() == '{\n "a": 1\n}\n'


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "n1.json"
    victim.write_text("kept")
    path.symlink_to(victim)
    safe_files.write_json(str(path), {})
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("kept", "{}\n", False)
