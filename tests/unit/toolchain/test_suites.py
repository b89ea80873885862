# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of tests, the data of property tests, and the table at the end of a run."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from dev.pytest_suites import Progress, why
from tests import conftest
from tests.folders import put_files

CHECKOUT = Path(__file__).resolve().parents[3]
FILES = {
    "tests/unit/test_a.py": "def test_quick(): pass\ndef test_bad(): assert False",
    "tests/lab/test_b.py": "import pytest\n@pytest.mark.timeout(600)\ndef test_long(): pass\ndef test_short(): pass",
    "tests/lab/test_c.py": "import pytest\n@pytest.mark.timeout(1200)\ndef test_longest(): pytest.skip('no')",
    "tests/integration/test_d.py": "import pytest\n@pytest.mark.molecule\ndef test_scenario(): pass",
}
PROPERTY = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_drawn(number):
    print("drawn", number)
"""
MARKERS = "".join(f"\n  {marker}: x" for marker in ("timeout", "images", "mirror", "molecule"))
SETTINGS = f"[pytest]\nmarkers ={MARKERS}\nasyncio_default_fixture_loop_scope = function\n"


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-p", "dev.pytest_suites", "-p", "no:cacheprovider", *arguments]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("KUBENODE_TEST_")}
    environment = {**outer, "PYTHONPATH": str(CHECKOUT), "PYTEST_ADDOPTS": "", **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put_files(tmp_path, FILES)
    return tmp_path


def test_the_longest_files_come_first_and_images_beside_unit_tests(folder):
    _code, output = run(folder, "-v")
    names = [line.partition("::")[2].split()[0] for line in output.splitlines() if "%]" in line]
    assert names == ["test_longest", "test_long", "test_short", "test_scenario", "test_quick", "test_bad"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_suite_has_its_row(folder, workers):
    counts = folder / "counts.json"
    code, output = run(folder, "-n", workers, KUBENODE_TEST_COUNTS=str(counts))
    table = output.partition(" suites ")[2].splitlines()[1:5]
    assert [line.split()[:4] for line in table] == [
        ["passed", "failed", "skipped", "seconds"],
        ["molecule", "1", "0", "0"],
        ["tests/lab", "2", "0", "1"],
        ["tests/unit", "1", "1", "0"],
    ]
    written = json.loads(counts.read_text())
    suites = {name: row[:3] for name, row in written.pop("suites").items()}
    assert suites == {"molecule": [1, 0, 0], "tests/lab": [2, 0, 1], "tests/unit": [1, 1, 0]}
    reasons = ["call failed: tests/unit/test_a.py::test_bad", "  assert False"]
    assert written == {"passed": 4, "failed": 1, "skipped": 1, "reasons": reasons}
    assert code == 1


def test_a_failure_is_named_when_it_happens(folder):
    _code, output = run(folder)
    named = output.index("call failed: tests/unit/test_a.py::test_bad: assert False")
    assert named < output.index("= FAILURES =")


def test_a_failure_of_a_playbook_is_said_in_a_few_lines():
    output = ["AssertionError: assert 2 == 0", *["ok: [a]"] * 50, 'fatal: [b]: FAILED! => {"msg": "no"}']
    output += [*["ok: [c]"] * 50, "PLAY RECAP", "b : failed=1"]
    text = "\n".join(f"E   {line}" for line in output)
    said = why(SimpleNamespace(when="call", nodeid="tests/a.py::test_a", longreprtext="code\n" + text))
    assert said[:2] == ["call failed: tests/a.py::test_a", "  AssertionError: assert 2 == 0"]
    assert '  fatal: [b]: FAILED! => {"msg": "no"}' in said
    assert said[-2:] == ["  PLAY RECAP", "  b : failed=1"]
    assert len(said) <= 15


IMAGES = """
import pytest

@pytest.fixture
def lab_nspawn():
    pass

@pytest.fixture
def machine(lab_nspawn):
    pass

@pytest.mark.mirror
def test_marked(): pass
def test_by_a_fixture(machine): pass
def test_without(): pass
"""


@pytest.mark.parametrize(
    ("marker", "chosen"), [("images", ["test_marked", "test_by_a_fixture"]), ("not images", ["test_without"])]
)
def test_tests_that_need_images_have_their_marker(tmp_path, marker, chosen):
    (tmp_path / "test_i.py").write_text(IMAGES)
    _code, output = run(tmp_path, "-v", "-m", marker)
    assert [line.partition("::")[2].split()[0] for line in output.splitlines() if "PASSED" in line] == chosen


@pytest.mark.parametrize("verdict", ["0", "4", ""])
def test_tests_wait_for_what_is_built_beside_them(tmp_path, verdict):
    (tmp_path / "test_i.py").write_text(IMAGES)
    building, ran = tmp_path / "building", tmp_path / "ran"
    os.mkfifo(ran)
    (tmp_path / "test_j.py").write_text(f"def test_other(): open({str(ran)!r}, 'w').close()")
    with building.open("w") as file, ThreadPoolExecutor() as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        running = pool.submit(run, tmp_path, "-n", "2", "--dist", "loadfile", KUBENODE_TEST_BUILDING=str(building))
        ran.read_text()  # a test that needs no image has run
        file.write(verdict)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
        code, output = running.result()
    assert ("4 passed" if verdict == "0" else "2 passed, 2 errors") in output
    assert ("the lab's images were not built" in output) is (verdict != "0")
    assert code == int(verdict != "0")


def test_what_runs_is_named_once_a_minute():
    lines = []
    reporter = SimpleNamespace(ensure_newline=lambda: None, write_line=lines.append)
    config = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _name: reporter))
    now = [0.0]
    progress = Progress(config, lambda: now[0])
    for second, begun, ended in ((0, "long", ""), (10, "a", ""), (59, "b", "a"), (61, "c", "b"), (80, "", "c")):
        now[0] = second
        if begun:
            progress.pytest_runtest_logstart(begun)
        if ended:
            progress.pytest_runtest_logfinish(ended)
    assert lines == ["running: long (61 s), c (0 s)"]


def drawn(folder: Path, *arguments: str, **variables: str) -> list[str]:
    (folder / "test_p.py").write_text(PROPERTY)
    _code, output = run(folder, "-s", *arguments, "test_p.py", **variables)
    return [line for line in output.splitlines() if line.startswith("drawn")]


def test_property_tests_draw_the_same_data_in_every_run(tmp_path):
    first = drawn(tmp_path)
    assert len(first) > 10
    assert drawn(tmp_path, CI="true") == first


@pytest.mark.parametrize("service", ["", "true"])
def test_a_seed_repeats_a_random_run_and_another_seed_draws_other_data(tmp_path, monkeypatch, service):
    monkeypatch.setenv("CI", service)  # Hypothesis has other defaults where it is set
    first = drawn(tmp_path, "--hypothesis-seed=1", KUBENODE_HYPOTHESIS="random")
    assert drawn(tmp_path, "--hypothesis-seed=1", KUBENODE_HYPOTHESIS="random") == first
    assert drawn(tmp_path, "--hypothesis-seed=2", KUBENODE_HYPOTHESIS="random") != first


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_tests_start_takes_the_signals_that_nohup_and_a_background_ignore(number):
    ignored = signal.signal(number, signal.SIG_IGN)
    try:
        conftest.pytest_configure(SimpleNamespace(pluginmanager=SimpleNamespace(register=lambda _plugin: None)))
        assert signal.getsignal(number) is {1: signal.SIG_DFL, 2: signal.default_int_handler}[number]
    finally:
        signal.signal(number, ignored)
