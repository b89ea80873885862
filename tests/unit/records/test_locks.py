# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine has one run at a time; what a killed run left behind stops no other."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.action import machine_lock
from ansible_collections.kubenode.provision.plugins.action.machine_lock import Holder, LockError, Locks, here, this_run

#: Takes a lock and says whether it has it; ends with its standard input.
TAKE = """
import os, sys
from ansible_collections.kubenode.provision.plugins.action.machine_lock import Locks, this_run
print(bool(Locks(sys.argv[1]).take(["node-1", "node-2"], this_run(os.getpid()))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(str(tmp_path / "locks"))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another run."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_run_takes_a_machine_again_and_others_do_not(locks, other, tmp_path):
    run, another = this_run(os.getpid()), this_run(other.pid)
    assert locks.take(["node-1", "node-2"], run) == {}
    assert locks.take(["node-1", "node-2"], run) == {}
    assert stat.S_IMODE((tmp_path / "locks/node-1.json").stat().st_mode) == 0o600
    assert locks.take(["node-2", "node-3"], another) == {"node-2": run}
    assert locks.others(["node-1", "node-2", "node-3"], another) == {"node-1": run, "node-2": run}
    assert not (tmp_path / "locks/node-3.json").exists(), "all or none"


def test_the_way_out_leaves_machines_that_the_run_can_do_without():
    run = Holder(7, "s", here(), "2026-11-28T08:59:01Z")
    some = machine_lock._busy_text({"a": run, "b": run}, ["a", "b", "c"])
    assert some.endswith("Wait for its end, or leave them out: --limit 'all:!a:!b'")
    assert machine_lock._busy_text({"a": run, "b": run}, ["b", "a"]).endswith("Wait for its end")


def test_a_killed_run_stops_no_other(locks, other):
    dead = this_run(other.pid)
    assert dead.lives
    locks.take(["node-1"], dead)
    other.kill()
    other.wait()
    assert not dead.lives
    assert locks.take(["node-1"], this_run(os.getpid())) == {}


def test_another_process_with_the_number_of_a_dead_one_is_another_run(locks):
    run = this_run(os.getpid())
    locks.take(["node-1"], replace(run, start="1"))
    assert locks.take(["node-1"], run) == {}


@pytest.mark.parametrize(("since", "reported"), [("2020-01-01T00:00:00Z", False), ("", False), (None, True)])
def test_of_another_controller_only_its_name_is_known(locks, since, reported):
    run = this_run(os.getpid())
    theirs = replace(run, place=f"ci-7 {run.place.split(' ', 1)[1]}", since=run.since if since is None else since)
    locks.take(["node-1"], theirs)
    found = locks.take(["node-1"], run)
    assert [(holder.host, holder.lives) for holder in found.values()] == [("ci-7", False)] * reported
    assert locks.others(["node-1"], replace(run, start="0")) == {"node-1": run}, "it was taken"


def test_two_at_once_are_one_after_the_other(tmp_path):
    command = [sys.executable, "-c", TAKE, str(tmp_path / "locks")]
    environment = {**os.environ, "PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"]}
    runs = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _process in range(4)
    ]
    try:
        assert sorted(run.stdout.readline() for run in runs) == ["False\n", "True\n", "True\n", "True\n"]
    finally:
        for run in runs:
            run.communicate()


def test_a_folder_that_is_none_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LockError, match=r"cannot be written .*make .*file/locks writable"):
        Locks(str(tmp_path / "file/locks")).take(["node-1"], this_run(os.getpid()))


@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.fixed_dictionaries(
            {},
            optional={
                key: st.one_of(st.none(), st.integers(), st.text(max_size=9), st.just("9" * 5000))
                for key in ("pid", "start", "place", "since")
            },
        ).map(lambda found: json.dumps(found).encode()),
    )
)
def test_a_damaged_file_stops_no_run(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("locks")
    (folder / "node-1.json").write_bytes(content)
    found = Locks(str(folder)).take(["node-1"], this_run(os.getpid()))
    assert not any(holder.lives for holder in found.values())
    assert json.loads((folder / "node-1.json").read_text())["place"] == here()


def test_only_what_no_other_run_holds_is_released(locks, other, tmp_path):
    run = this_run(os.getpid())
    locks.take(["node-1"], run)
    locks.take(["node-2"], this_run(other.pid))
    locks.release(["node-1", "node-2", "node-3"], run)
    assert [path.name for path in (tmp_path / "locks").iterdir()] == ["node-2.json"]
    other.kill()
    other.wait()
    locks.release(["node-2"], run)
    assert list((tmp_path / "locks").iterdir()) == []


def test_what_is_shown_has_no_second_line(locks):
    strange = Holder(1, "1", "evil\nhost\x1b[31m x y", "2026-01-01T00:00:00Z")
    locks.take(["node-1"], strange)
    (found,) = [locks._read("node-1")]
    assert found is not None
    assert not set(found.host + found.since) & set("\n\x1b")
