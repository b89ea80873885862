# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks: every hash is there once, and no pin of this checkout is without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.toolchain import environments
from dev.toolchain.environments import LOCKS

HASH = " \\\n    --hash=sha256:"
OLD, NEW = HASH + "a" * 64, HASH + "b" * 64 + HASH + "c" * 64
LOCKED = {
    # one package in two versions, of which each Python gets one
    "main": {
        "core==2.19.1": OLD,
        "docutils==0.22 ; python_version < '3.13'": OLD,
        "docutils==0.23": NEW,
        "yaml==6": NEW,
    },
    "core-2.18": {"core==2.18.9": NEW, "yaml==6 ; python_version >= '3.12'": NEW},
    "image-server": {"yaml==6": NEW},
}


def put(folder: Path, locks: dict[str, environments.Lock]) -> None:
    for name, lock in locks.items():
        (folder / f"{name}.txt").write_text(environments.written(lock))


def test_what_was_split_is_whole_again(tmp_path):
    put(tmp_path, environments.split(LOCKED))
    assert {name: environments.whole(name, tmp_path) for name in LOCKED} == LOCKED


def test_every_hash_is_there_once(tmp_path):
    short = environments.split(LOCKED)
    text = "".join(environments.written(lock) for lock in short.values())
    assert text.count(NEW) == 3, "of core 2.18.9, docutils 0.23, yaml 6"
    assert text.count(OLD) == 2, "of core 2.19.1, docutils 0.22"
    assert list(short["hashes"]) == ["core==2.18.9", "core==2.19.1", "docutils==0.22", "docutils==0.23"]
    assert short["image-server"] == LOCKED["image-server"], "a container is built of it alone"


def test_a_pin_without_hashes_stays_without(tmp_path):
    put(tmp_path, {"main": {"core==2.19.1": ""}, "hashes": {"core==2.19.2": OLD}})
    assert environments.whole("main", tmp_path) == {"core==2.19.1": ""}, "what uv refuses"


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_of_this_checkout_has_hashes(name):
    lock = environments.whole(name)
    assert lock
    assert all(environments.parsed(f"{pin}{hashes}\n") == {pin: hashes} and hashes for pin, hashes in lock.items())
    lines = (environments.REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    assert sum(line[0] not in " #" for line in lines) == len(lock), "all of them are read"
