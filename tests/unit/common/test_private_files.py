# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small private files: whole or not at all."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.kubenode.provision.plugins.action import machine_install
from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files
from tests.clock import Clock


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


def test_a_full_disk_is_no_error_of_ours():
    found = machine_install._unexpected("n1", OSError(errno.ENOSPC, "No space left on device", "/k/logs/n1/stdout.log"))
    assert found["msg"] == (
        "n1: /k/logs/n1/stdout.log cannot be written (No space left on device); make room on the disk of /k/logs/n1, "
        "or let kubenode_dir name another folder"
    )
    assert "please report it" in machine_install._unexpected("n1", OSError(errno.EBADF, "Bad file", "/k/x"))["msg"]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "n1.json"
    victim.write_text("kept")
    path.symlink_to(victim)
    safe_files.write_json(str(path), {})
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("kept", "{}\n", False)


# --- locks


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Take the lock of a file whose kernel answers with these errors, one after the other; how long that took."""
    clock = Clock()
    monkeypatch.setattr(safe_files, "time", clock)

    def take(*errors: int) -> tuple[bool, float]:
        answers = iter(errors)

        def flock(_fd: int, _how: int) -> None:
            number = next(answers, 0)
            if number:
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr(safe_files.fcntl, "flock", flock)
        return safe_files.lock(0, 10.0), clock.now

    take.clock = clock
    return take


def test_a_lock_is_waited_for(lock):
    assert lock() == (True, 0.0)
    assert lock(errno.EWOULDBLOCK, errno.ENOLCK, errno.EWOULDBLOCK) == (True, pytest.approx(0.3))


def test_a_lock_that_another_one_keeps_is_not_taken(lock):
    taken, seconds = lock(*[errno.EWOULDBLOCK] * 1000)
    assert not taken
    assert seconds == pytest.approx(10.0, abs=0.2)


@pytest.mark.parametrize(("number", "seconds"), [(errno.ENOLCK, 10.0), (errno.ENOSYS, 0.0), (errno.EBADF, 0.0)])
def test_a_lock_that_cannot_be_taken_is_an_error(lock, number, seconds):
    """Only what may pass, no memory for locks, is waited for."""
    with pytest.raises(OSError, match=os.strerror(number)):
        lock(*[number] * 1000)
    assert lock.clock.now == pytest.approx(seconds, abs=0.2)
