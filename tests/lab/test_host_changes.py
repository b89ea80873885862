# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab says it will install and change on its host, before it does; which commands it names."""

import json
from pathlib import Path

import pytest

from lab import cli, images
from lab.cache import root
from lab.cli import build_changes, host_changes
from lab.cluster.running_cluster import RunningCluster
from lab.errors import ClusterError, ImageError
from lab.images.recipe import RECIPES
from lab.machines import backend
from lab.state import State


@pytest.fixture(name="state")
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setenv("KUBENODE_LAB_DIR", str(tmp_path / "labs"))
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path / "cache"))
    return State("default")


def _built(name: str) -> None:
    folder = root() / "images" / RECIPES[name].digest
    folder.mkdir(parents=True)
    (folder / "image.json").write_text(json.dumps({"name": name, "files": {}, "sha256": {}}))


def test_a_dry_lab_changes_nothing_but_its_state(state: State) -> None:
    assert host_changes("dry", state) == [
        f"keeps its state in {state.folder}",
        "starts one process that listens on 127.0.0.1 only; kind dry needs no root and boots nothing",
    ]


def test_images_that_are_missing_are_named(state: State) -> None:
    assert any(line.startswith("builds rescue, debian of Debian packages in") for line in host_changes("nspawn", state))
    _built("debian")
    lines = host_changes("nspawn", state, dedicated=True)
    assert any(line.startswith("builds rescue, tarball of") for line in lines)
    assert any("knlabN" in line for line in lines)
    _built("rescue")
    assert not any(line.startswith("builds") for line in host_changes("qemu", state))
    assert build_changes(("rescue", "debian")) == []
    assert build_changes(("rescue", "tarball"))[0].startswith("builds tarball of")


def test_packages_that_are_missing_are_named(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lab.cli", "lab.images"):
        monkeypatch.setattr(f"{module}.find", lambda program: None if program in ("dnsmasq", "mmdebstrap") else program)
    (line,) = (line for line in host_changes("nspawn", state) if "apt-get install" in line)
    assert line.startswith("installs no Debian package on this host; it lacks some, run first: apt-get install ")
    assert {"dnsmasq-base", "mmdebstrap"} <= set(line.split())


def test_explain_does_nothing_else(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--kind", "dry", "--explain"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "lab 'default' would do on this host:"
    assert not state.folder.exists()


def test_a_command_in_a_message_can_be_typed_in_a_checkout(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClusterError, match="start it with: dev/run python -m lab cluster up"):
        RunningCluster.found(lambda *_asked: {"cluster": None})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="run once as root: dev/run python -m lab images build"):
        images.ensure("rescue")
    said: list[str] = []
    setting = tmp_path / "max_user_instances"
    setting.write_text("128\n")
    monkeypatch.setenv("KUBENODE_LAB_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.setattr(backend, "_INOTIFY", setting)
    backend._allow_many_inits(said.append)
    assert said[0].endswith("('dev/run python -m lab purge' puts it back)")
