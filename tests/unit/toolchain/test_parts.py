# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which parts of the tests a run takes, and what it says of those it leaves out."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from _pytest.mark.expression import Expression

from dev.toolchain import test as parts
from dev.toolchain.paths import CHECKOUT
from tests.waiting import until


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Parts whose pytest is a line of Python: exit with a code, or wait until the deadline."""
    monkeypatch.setattr(parts, "RESULTS", tmp_path)
    monkeypatch.setattr(parts, "tree_digest", lambda: "tree-1")
    monkeypatch.setattr(parts, "_environments", lambda part: None)

    def part(name: str, code: str, minutes: int = 1) -> parts.Part:
        return parts.Part(name, "checks", minutes, (code,), builds=())

    original = parts._wait

    def wait(command, environment, left):
        counts = json.dumps({"passed": 3, "failed": int("exit(1)" in command[-1]), "skipped": 2})
        target = environment["KUBENODE_TEST_COUNTS"]
        lines = f"import os, pathlib, time; pathlib.Path({target + '.new'!r}).write_text({counts!r})"
        lines += f"; os.rename({target + '.new'!r}, {target!r})"
        return original([sys.executable, "-c", f"{lines}; {command[-1]}"], environment, left)

    monkeypatch.setattr(parts, "_wait", wait)
    monkeypatch.setattr(parts, "variables", lambda name="": {})
    # in the background of a shell Ctrl-C is ignored, and so it would be by our children
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield part
    signal.signal(signal.SIGINT, before)


def test_the_shell_of_a_user_changes_no_test(house, monkeypatch):
    shell = {"CI": "true", "HCLOUD_TOKEN": "real", "HROBOT_API_PASSWORD": "real", "KUBENODE_LAB_ROBOT_PASSWORD": "mine"}
    shell |= {"PYTEST_ADDOPTS": "-x", "PYTHONHASHSEED": "7", "HOME": "/root", "KUBENODE_LAB_DIR": "/large"}
    monkeypatch.setattr(parts, "variables", lambda name="": dict(shell))
    seen = []
    monkeypatch.setattr(parts, "_wait", lambda command, environment, left: seen.append(environment) or 0)
    assert parts.run([house("one", "exit(0)")], None, True, ()) == 0
    made = {"PYTHONHASHSEED", "KUBENODE_TEST_COUNTS", "PYTEST_DEBUG_TEMPROOT"}
    assert set(seen[0]) == {"HOME", "KUBENODE_LAB_DIR", *made}
    assert seen[0]["PYTHONHASHSEED"] == "0"
    assert not Path(seen[0]["PYTEST_DEBUG_TEMPROOT"]).exists()  # removed, since all passed


def test_runs_share_no_folder_and_failures_keep_theirs(house, monkeypatch):
    folders = []

    def failing(command, environment, left):
        folders.append(Path(environment["PYTEST_DEBUG_TEMPROOT"]))
        assert folders[-1].is_dir()
        return 1

    monkeypatch.setattr(parts, "_wait", failing)
    parts.run([house("one", ""), house("two", "")], None, True, ())
    assert len(set(folders)) == 2
    for folder in folders:
        folder.rmdir()


def test_a_failure_does_not_end_the_run(house, capsys):
    code = parts.run([house("one", "exit(1)"), house("two", "exit(0)")], None, True, ())
    output = capsys.readouterr().out.splitlines()
    assert code == 1
    assert output[-1] == "6 passed, 1 failed, 4 skipped"
    assert [line.split()[0] for line in output if line.endswith("FAILED")] == ["one"]


def test_what_failed_is_said_once_more_at_the_end(house):
    lines = []
    reasons = ["call failed: tests/a.py::test_a", "  assert False"]
    failed = parts.Result(house("one", ""), 1.0, 1, failed=1, reasons=reasons)
    parts._summary([failed, parts.Result(house("two", ""), 1.0, 0)], ["three: no time"], lines.append)
    assert lines[-3:] == ["0 passed, 1 failed, 0 skipped", *reasons]


def test_what_passed_on_this_tree_is_not_run_again(house, capsys, monkeypatch):
    both = [house("one", "exit(1)"), house("two", "exit(0)")]
    parts.run(both, None, False, ())
    capsys.readouterr()
    assert parts.run(both, None, False, ()) == 1
    output = capsys.readouterr().out
    assert "not run: two: passed on this very tree" in output
    assert output.splitlines()[-1] == "3 passed, 1 failed, 2 skipped"
    monkeypatch.setattr(parts, "tree_digest", lambda: "tree-2")
    parts.run(both, None, False, ())
    assert "not run" not in capsys.readouterr().out


def test_what_does_not_fit_is_named_and_fails_nothing(house, capsys, monkeypatch):
    clock = itertools.count(1000.0, 30.0)
    monkeypatch.setattr(parts, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    code = parts.run([house("long", "exit(0)", 90), house("short", "exit(0)", 1)], 1000.0 + 3600, True, ())
    output = capsys.readouterr().out
    assert code == 0
    assert "not run: long: needs about 90 min" in output
    assert output.splitlines()[-1] == "3 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize(("tail", "code"), [("", 0), ("#exit(1)", 1)])
def test_a_part_that_the_deadline_ends_fails_only_for_what_failed(house, capsys, monkeypatch, tail, code):
    class UntilDeadline(subprocess.Popen):
        """Its deadline is there as soon as it has written its counts."""

        def wait(self, timeout=None):
            if timeout is not None and timeout > parts.GRACE and "sleep" in self.args[-1]:
                until((parts.RESULTS / "slow.json").exists, "the counts")
                timeout = 0
            return super().wait(timeout)

    monkeypatch.setattr(parts.subprocess, "Popen", UntilDeadline)
    part = house("slow", f"time.sleep(600){tail}", 0)
    ended = parts.run([part, house("two", "exit(0)", 0)], parts.time.monotonic() + 3600, True, ())
    output = capsys.readouterr().out
    assert ended == code
    assert ("FAILED" in output) is bool(code)
    assert ("ended at the deadline" in output) is not bool(code)


def test_every_long_marker_has_a_part_and_no_default_test_has_one():
    chosen = [" ".join(part.arguments) for part in parts.LONG]
    for marker in parts.LONG_MARKERS:
        assert any(f"-m {marker}" in words for words in chosen)
        assert marker in parts.DEFAULT.arguments[parts.DEFAULT.arguments.index("-m") + 1]


@pytest.fixture
def building(house, tmp_path, monkeypatch):
    """A part whose builds are lines of Python; whether it builds before its tests or beside them."""
    monkeypatch.setattr(parts.os, "geteuid", lambda: 0)
    popen = parts.subprocess.Popen

    def start(command, **kwargs):
        return popen([sys.executable, "-c", command[-1]] if command[1:3] == ["-m", "lab"] else command, **kwargs)

    monkeypatch.setattr(parts.subprocess, "Popen", start)

    def part(beside: bool, *builds: str) -> parts.Part:
        return dataclasses.replace(house("one", "exit(0)"), beside=beside, builds=tuple((line,) for line in builds))

    return part


@pytest.mark.parametrize(("ends", "made"), [("exit(3)", ["one"]), ("", ["one", "two"])])
def test_builds_before_the_tests_follow_each_other_until_one_fails(building, tmp_path, monkeypatch, ends, made):
    folder = tmp_path / "made"
    folder.mkdir()
    lines = [f"import pathlib; pathlib.Path({str(folder / name)!r}).touch(); {ends}" for name in ("one", "two")]
    assert parts.run([building(False, *lines)], None, True, ()) == int(bool(ends))
    assert sorted(path.name for path in folder.iterdir()) == made
    assert (tmp_path / "one.json").exists() is not bool(ends), "tests began although something was not built"


@pytest.mark.parametrize(("ends", "code"), [("exit(3)", "3"), ("", "0")])
def test_images_are_built_beside_the_tests_that_need_none(building, tmp_path, monkeypatch, ends, code):
    go = tmp_path / "go"
    os.mkfifo(go)
    seen = []

    def tests(command, environment, left):
        with open(environment["KUBENODE_TEST_BUILDING"], encoding="ascii") as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            go.write_text("go")
            fcntl.flock(file, fcntl.LOCK_SH)
            seen.append(file.read())
        return 0

    monkeypatch.setattr(parts, "_wait", tests)
    assert parts.run([building(True, f"open({str(go)!r}).read()", ends)], None, True, ()) == 0
    assert seen == [code]


def test_what_is_built_ends_with_the_tests(building, tmp_path, monkeypatch):
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    monkeypatch.setattr(parts, "_wait", lambda command, environment, left: len(alive.read_text()) - 4)
    line = f"import signal; open({str(alive)!r}, 'w').write('here'); signal.pause()"
    assert parts.run([building(True, line, "exit(0)")], None, True, ()) == 0


@pytest.mark.parametrize(
    ("kibibytes", "mounted", "used"), [(20 << 20, True, True), (8 << 20, True, False), (20 << 20, False, False)]
)
def test_disks_are_in_memory_where_there_is_plenty(tmp_path, monkeypatch, kibibytes, mounted, used):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {kibibytes + 1} kB\nMemAvailable: {kibibytes} kB\n")
    monkeypatch.setattr(parts.Path, "is_mount", lambda _path: mounted)
    monkeypatch.setattr(parts.shutil, "disk_usage", lambda _path: SimpleNamespace(free=20 << 30))
    assert parts.memory(parts.PLENTY, tmp_path, meminfo) == (tmp_path if used else None)
    assert parts.memory(1, tmp_path, tmp_path / "none") is None


def test_the_benchmark_of_large_fleets_is_the_first_play_of_the_playbook():
    """It stands there a second time, since a play cannot be taken out of a playbook."""

    def first(path):
        play = yaml.safe_load(path.read_text(encoding="utf-8"))[0]
        return yaml.safe_dump({key: play[key] for key in play if key != "hosts"}).replace("../../playbooks/", "")

    assert first(CHECKOUT / "tests/bench/scale.yml") == first(CHECKOUT / "playbooks/hcloud_image_url.yml")


@pytest.mark.parametrize("one", parts.LONG_MARKERS)
@pytest.mark.parametrize("other", parts.LONG_MARKERS)
def test_a_test_with_any_markers_is_in_a_part(one, other):
    chosen = [part.arguments[part.arguments.index("-m") + 1] for part in parts.LONG if "-m" in part.arguments]
    assert any(Expression.compile(words).evaluate(lambda name: name in (one, other)) for words in chosen)


QUOTED = """-k 'a or "b"' -k "it's" tests/unit"""


@pytest.fixture
def further(monkeypatch):
    """What dev/test hands on to pytest, of a run that does nothing."""
    seen = []
    monkeypatch.setattr(parts, "run", lambda chosen, deadline, again, further: seen.append(further) or 0)
    before = signal.getsignal(signal.SIGINT)
    yield seen
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("target", ["test", "test-long-qemu"])
def test_quotation_marks_in_pytest_args_are_those_of_a_shell(further, target):
    command = ["make", "--dry-run", target, f"PYTEST_ARGS={QUOTED}"]
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
    made = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, check=True).stdout.decode()
    words = shlex.split(made)
    assert words[0] == "dev/test"
    assert parts.main(words[1:]) == 0
    assert further == [["-k", 'a or "b"', "-k", "it's", "tests/unit"]]


def test_a_quotation_mark_that_is_not_closed_is_said(further, capsys):
    with pytest.raises(SystemExit) as ended:
        parts.main(["--pytest=-k 'a or b"])
    assert ended.value.code == 2
    assert """--pytest: "-k 'a or b" cannot be split into arguments (No closing quotation)""" in capsys.readouterr().err
    assert further == []


def test_without_further_arguments_pytest_gets_none(further):
    assert parts.main([]) == 0
    assert further == [[]]
