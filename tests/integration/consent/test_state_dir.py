# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`provision --state-dir DIR`: of what lies in DIR, only what the program made and can prove to be its own goes."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from provision import state_folder
from tests.integration.provisioner.conftest import machine, program, sources

from .conftest import intact

__all__ = ["machine", "program", "sources"]
pytestmark = [pytest.mark.root]

OLD = hashlib.sha256(b"an older program").hexdigest()


def older(state: Path, name: str = state_folder.PREFIX + OLD[:16]) -> Path:
    """What another version of the program unpacked."""
    state.mkdir(mode=0o700, exist_ok=True)
    folder = state / name
    folder.mkdir(mode=0o700)
    (folder / state_folder.MARK).write_text(f"kubenode.provision payload {OLD} inode {folder.stat().st_ino}\n")
    (folder / "site").mkdir()
    (folder / "site/module.py").write_text("x")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--phase", "base"], 0),
        (["--phase", "base", "--check"], 0),
        (["--phase", "all"], 2),
        (["--phase", "base", "--set", "base_prebak=true"], 2),
        (["--frobnicate"], 2),
    ],
)
def test_folders_of_others_stay(machine, precious, arguments, code):
    machine.state.mkdir(mode=0o755)
    shutil.move(precious, machine.state / "www")
    shutil.copytree(machine.state / "www", machine.state / "0123456789abcdef")
    shutil.copytree(machine.state / "www", machine.state / ".draft-by-hand")
    (machine.state / "lock").write_text("mine")
    machine.run(*arguments, code=code)
    assert (machine.state / "lock").read_text() == "mine"
    assert all(intact(machine.state / name) for name in ("www", "0123456789abcdef", ".draft-by-hand"))


def test_what_looks_like_ours_and_is_not_proven_stays(machine, precious):
    state = machine.state
    state.mkdir(mode=0o700)
    copied = older(state)
    shutil.copytree(copied, state / "copy")
    copied.rename(state / "renamed")
    (state / "copy").rename(copied)  # our name, our mark, another inode
    unmarked = older(state, state_folder.DRAFT + "unmarked")
    (unmarked / state_folder.MARK).unlink()
    os.symlink(precious / "file", unmarked / state_folder.MARK)
    shared = older(state, state_folder.DRAFT + "shared")
    shared.chmod(0o777)
    foreign = older(state, state_folder.DRAFT + "foreign")
    os.chown(foreign, 4321, 4321)
    (state / (state_folder.PREFIX + "f" * 16)).symlink_to(precious)
    older(precious, state_folder.PREFIX + OLD[:16])
    machine.run("--phase", "base")
    for folder in (copied, state / "renamed", unmarked, shared, foreign, precious / (state_folder.PREFIX + OLD[:16])):
        assert (folder / "site/module.py").exists(), folder
    assert intact(precious)


def test_our_own_goes_once_the_options_are_accepted(machine):
    old, draft = older(machine.state), older(machine.state, state_folder.DRAFT + "abc")
    for code, *arguments in ((2, "--phase", "all"), (0, "--phase", "base", "--check")):
        machine.run(*arguments, code=code)
        assert old.exists()
        assert draft.exists()
    machine.run("--phase", "base")
    assert not old.exists()
    assert not draft.exists()


def test_what_is_mounted_in_an_older_one_stays(machine, precious):
    old = older(machine.state)
    (old / "on").mkdir()
    line = 'mount --bind "$0" "$1" && shift && exec "$@"'
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", line, str(precious), str(old / "on")]
    done = subprocess.run(
        [*command, *machine.command("--phase", "base")], text=True, capture_output=True, check=False,
        env={"PATH": os.environ["PATH"], "REPORT_DIR": str(machine.reported)}, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{old}/on is mounted" in done.stderr
    assert not (old / "site").exists()
    assert intact(precious)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_in_the_place_of_the_lock_is_not_written(machine, precious, kind):
    machine.state.mkdir(mode=0o700)
    path = machine.state / state_folder.LOCK
    path.write_text("precious") if kind == "file" else path.symlink_to(precious / "file")
    done = machine.run("--phase", "base", code=1)
    assert str(path) in done.stderr
    assert path.read_text() == "precious"


def test_a_folder_in_the_place_of_the_payload_is_not_run(machine):
    machine.run("--phase", "base")
    (payload,) = machine.state.glob(state_folder.PREFIX + "*")
    (payload / state_folder.MARK).unlink()
    done = machine.run("--phase", "base", code=1)
    assert f"{payload} is not what this program unpacked" in done.stderr
