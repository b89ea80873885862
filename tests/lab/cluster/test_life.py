# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a control plane begins and ends: on the command line, twice, and when its lab is killed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import cli
from lab.cluster.kube_api import KubeClient
from tests.waiting import until

pytestmark = pytest.mark.cluster
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """``python -m lab …`` with its state in a folder of its own; what is up is taken down."""
    monkeypatch.setenv("KUBENODE_LAB_DIR", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main(arguments)
        return status, *capsys.readouterr()

    yield run
    run("down")


def programs(folder: Path) -> list[int]:
    """The processes that work in this folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if Path(os.readlink(link)) == folder:
                found.append(int(link.parent.name))
        except OSError:
            continue  # ended meanwhile, or not ours
    return sorted(found)


def test_up_twice_is_one_down_leaves_nothing_and_a_killed_lab_takes_it_along(command: Command, tmp_path: Path) -> None:
    status, _out, err = command("cluster", "up")
    assert status == 1
    assert "is not up; start it with" in err
    assert command("up", "--kind", "dry")[0] == 0
    assert command("cluster", "status")[0] == 1
    assert "start it with: dev/run python -m lab cluster up" in command("cluster", "token")[2]
    first = command("cluster", "up")
    assert first[0] == 0, first
    about = json.loads(command("cluster", "status", "--json")[1])
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert about["running"] == dict.fromkeys(names, True)
    folder = Path(about["folder"])
    before = programs(folder)
    assert len(before) == len(names)
    assert command("cluster", "up")[1] == first[1]
    assert programs(folder) == before
    assert command("cluster", "kubeconfig")[1].strip() == about["kubeconfig"]
    token = command("cluster", "token", "--ttl", "60")[1].strip()
    assert KubeClient(about["endpoint"], Path(about["ca_file"]), token=token).get("/api")["kind"] == "APIVersions"
    assert token not in (tmp_path / "default/log").read_text()
    assert "is down" in command("cluster", "down")[1]
    assert programs(folder) == []
    assert not folder.exists()
    assert "is not up" in command("cluster", "down")[1]

    assert command("cluster", "up")[0] == 0
    assert len(programs(folder)) == len(names)
    os.kill(json.loads((tmp_path / "default/state.json").read_text())["pid"], signal.SIGKILL)
    until(lambda: not programs(folder), "the end of the control plane of a killed lab", show=lambda: programs(folder))
    assert command("up", "--kind", "dry")[0] == 0
    assert not folder.exists()
    assert command("cluster", "status")[0] == 1
