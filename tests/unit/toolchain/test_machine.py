# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interpreters, Debian packages, copies of the checkout, what is kept in the cache, and the commands of dev."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.toolchain import SetupError, environments, paths
from dev.toolchain import __main__ as toolchain
from dev.toolchain.paths import CHECKOUT
from tests.folders import put


def program(path: Path, text: str) -> Path:
    return put(path, text, 0o755)


def test_shims_that_do_not_run_are_no_interpreters(tmp_path, monkeypatch):
    minor = sys.version_info.minor
    broken = program(tmp_path / "shims" / f"python3.{minor}", "#!/bin/sh\nexit 127\n")
    real = program(tmp_path / "real" / f"python3.{minor}", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    monkeypatch.setenv("PATH", f"{broken.parent}:{real.parent}")
    assert environments.version_of(broken) is None
    assert environments.version_of(real) == sys.version_info[:2]
    assert environments.search_path() == [str(real.parent)]


def test_interpreter_of_no_such_version_is_none():
    assert environments.find((3, 90), (3, 91)) is None


def test_debian_groups_are_read_and_unknown_ones_named():
    assert "git" in environments.wanted_packages(["base"])
    assert set(environments.wanted_packages(["base"])) < set(environments.wanted_packages(["base", "lab"]))
    with pytest.raises(SetupError, match="group nothing is not in"):
        environments.wanted_packages(["nothing"])


def test_copy_follows_the_checkout(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path / "cache"))
    program(checkout / "dev/tool", "one")
    program(checkout / "old.txt", "old")
    program(checkout / ".gitignore", "*.tmp\n")
    program(checkout / "left.tmp", "ignored")
    os.symlink("tool", checkout / "dev/link")
    subprocess.run(["git", "-C", str(checkout), "init", "--quiet"], check=True)

    copy = paths.copied_tree("test", checkout)
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == [
        ".gitignore",
        "dev",
        "dev/link",
        "dev/tool",
        "old.txt",
    ]
    assert os.access(copy / "dev/tool", os.X_OK)

    (checkout / "old.txt").unlink()
    program(checkout / "dev/tool", "two")
    os.symlink("tool", checkout / "dev/later")
    program(copy / "dev/later", "a file when the copy was made")
    program(copy / "tests/output/junk", "left by a tool")
    assert paths.copied_tree("test", checkout) == copy
    assert (copy / "dev/tool").read_text(encoding="utf-8") == "two"
    assert (copy / "dev/later").is_symlink()
    assert sorted(path.name for path in copy.iterdir()) == [".gitignore", "dev"]


def test_debian_list_is_sorted_and_without_doubles():
    for group in ("base", "lab", "test"):
        packages = environments.wanted_packages([group])
        assert packages == sorted(set(packages))


def test_what_is_kept_is_made_once_and_again_after_a_failure(tmp_path, monkeypatch):
    made = []

    def make(folder):
        made.append(folder.exists())
        folder.mkdir()
        if len(made) == 1:
            raise SetupError("no network")

    with pytest.raises(SetupError, match="no network"):
        environments._once(tmp_path / "cache/kept", "a thing", make)
    assert environments._once(tmp_path / "cache/kept", "a thing", make) == tmp_path / "cache/kept"
    assert environments._once(tmp_path / "cache/kept", "a thing", make) == tmp_path / "cache/kept"
    assert made == [False, False], "what the first try left is gone, and the third has nothing to do"


@pytest.mark.parametrize(("own", "seconds"), [({}, "600"), ({"UV_COMPILE_BYTECODE_TIMEOUT": "5"}, "5")])
def test_every_call_of_uv_has_time_to_compile_one_large_file(tmp_path, monkeypatch, own, seconds):
    uv = program(tmp_path / "uv", '#!/bin/sh\necho "$*: $UV_COMPILE_BYTECODE_TIMEOUT" >>"$0.said"\ncat >>"$0.said"\n')
    monkeypatch.delenv("UV_COMPILE_BYTECODE_TIMEOUT", raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environments, "uv", lambda: uv)
    environments.run_uv(["venv"])
    environments.run_uv(["pip", "install"], text="a==1\n")
    assert (tmp_path / "uv.said").read_text() == f"venv: {seconds}\npip install: {seconds}\na==1\n"


def test_a_command_says_in_one_line_what_the_machine_lacks(capsys, monkeypatch):
    def lacking(arguments):
        raise SetupError(f"no disk space for {arguments[0]}")

    monkeypatch.setattr("dev.toolchain.docs.main", lacking)
    assert toolchain.main("docs", "--all") == 1
    assert capsys.readouterr().err == "setup: failed: no disk space for --all\n"


def test_every_link_of_dev_is_a_command():
    links = [path for path in (CHECKOUT / "dev").iterdir() if path.is_symlink()]
    assert len(links) > 5
    for link in links:
        assert os.readlink(link) == "tool"
        assert callable(toolchain.function_of(link.name))


def test_what_the_makefile_and_programs_of_dev_start_is_there():
    """A program that starts another one of dev names it beside itself."""
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    started = set(re.findall(r"\bdev/([a-z-]+)", makefile))
    for path in (CHECKOUT / "dev").iterdir():
        if path.is_file() and path.suffix == "" and not path.is_symlink():
            started.update(re.findall(r'\$\(dirname -- "\$0"\)/([\w-]+)', path.read_text(encoding="utf-8")))
    assert {"run", "image-server"} <= started
    assert [name for name in sorted(started) if not os.access(CHECKOUT / "dev" / name, os.X_OK)] == []


@pytest.mark.parametrize(("program", "kept"), [("ansible-playbook", True), ("python", False)])
def test_what_a_person_tells_ansible_reaches_ansible_and_no_test(monkeypatch, program, kept):
    started = []
    monkeypatch.setattr(environments.os, "execve", lambda *arguments: started.append(arguments))
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "kubenode.provision.provision_report")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", "/elsewhere")
    environments.run([program, "--version"])
    ((_path, _command, environment),) = started
    assert ("ANSIBLE_CALLBACKS_ENABLED" in environment) == kept
    assert environment["ANSIBLE_COLLECTIONS_PATH"].startswith(str(paths.linked_tree()))
