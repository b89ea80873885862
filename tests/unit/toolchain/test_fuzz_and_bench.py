# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/fuzz and dev/bench: their arguments and exit codes; no property test and no benchmark runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dev.toolchain import test as parts
from tests.clock import Clock


@pytest.fixture
def fuzz(tmp_path, monkeypatch):
    """dev/fuzz whose exploring takes no time; a test sets what it finds."""
    found = SimpleNamespace(calls=[], failed=0, patch=None)

    def explore(environment, deadline, further):
        found.calls.append((environment["KUBENODE_HYPOTHESIS"], deadline, further))
        if found.patch is not None:
            (tmp_path / "new.patch").write_text(found.patch)
        return found.failed

    (tmp_path / "old.patch").write_text("of an earlier run\n")
    monkeypatch.setattr(parts, "PATCHES", tmp_path)
    monkeypatch.setattr(parts, "_explore", explore)
    monkeypatch.setattr(parts, "variables", lambda name="": {})
    monkeypatch.setattr(parts.environments, "ensure_debian", lambda groups: None)
    monkeypatch.setattr(parts, "time", Clock())
    before = signal.getsignal(signal.SIGINT)
    yield found
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("words", "seconds", "further"),
    [
        ([], 600, []),
        (["5"], 5, []),
        (["5", "tests/unit/x", "-k", "a or b"], 5, ["tests/unit/x", "-k", "a or b"]),
        (["5", "-k", "a or b"], 5, ["-k", "a or b"]),
    ],
)
def test_fuzzing_takes_seconds_and_then_words_of_pytest(fuzz, words, seconds, further):
    assert parts.fuzz(words) == 0
    assert fuzz.calls == [("fuzz", parts.time.monotonic() + seconds, further)]


@pytest.mark.parametrize("words", [["soon"], ["1.5"], ["--seconds"]])
def test_fuzzing_for_no_number_of_seconds_is_refused(fuzz, capsys, words):
    with pytest.raises(SystemExit) as ended:
        parts.fuzz(words)
    assert (ended.value.code, fuzz.calls) == (2, [])
    assert "dev/fuzz: error:" in capsys.readouterr().err


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 1), (3, 1)])
def test_what_fuzzing_finds_is_its_exit_code(fuzz, capsys, failed, code):
    fuzz.failed = failed
    assert parts.fuzz(["1"]) == code
    assert capsys.readouterr().out == f"fuzz: {failed} tests failed, 0 patches with examples\n"


def test_only_a_patch_of_this_run_is_put_into_its_test(fuzz, tmp_path, monkeypatch, capsys):
    fuzz.patch, kept = "with an example\n", []
    monkeypatch.setattr(parts, "_keep", kept.append)
    assert parts.fuzz(["1"]) == 0
    assert kept == [tmp_path / "new.patch"]
    assert "1 patches with examples" in capsys.readouterr().out


def test_a_patch_that_does_not_fit_is_named(fuzz, tmp_path, capsys):
    fuzz.patch = "no patch\n"
    assert parts.fuzz(["1"]) == 0
    assert f"{tmp_path / 'new.patch'} does not apply" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "counts", "failed"),
    [
        (0, None, 0),
        (2, None, 0),
        (5, None, 0),
        (1, None, 1),
        (-9, None, 1),
        (1, {"failed": 4}, 4),
        (2, {"failed": 1}, 1),
    ],
)
def test_a_round_that_broke_before_it_counted_has_failed(tmp_path, code, counts, failed):
    path = tmp_path / "counts.json"
    if counts is not None:
        path.write_text(json.dumps(counts))
    assert parts.Round(SimpleNamespace(returncode=code), path).failed() == failed


class Round:
    """In place of a round: one that ends at once, or only when it is interrupted."""

    def __init__(self, ends):
        self.process, self.ends, self.signals = self, ends, []

    def poll(self):
        return 0 if self.ends else None

    def send_signal(self, number):
        self.signals.append(number)

    def wait(self, timeout):
        assert self.signals == [signal.SIGINT]
        assert timeout == parts.GRACE

    def failed(self):
        return 1


@pytest.mark.parametrize(("ends", "rounds"), [(True, 6), (False, 2)])
def test_every_core_has_a_round_until_the_deadline(monkeypatch, ends, rounds):
    begun = []
    monkeypatch.setattr(parts, "time", Clock())
    monkeypatch.setattr(parts.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(parts, "_begin", lambda environment, folder, further: begun.append(Round(ends)) or begun[-1])
    assert parts._explore({}, 3, []) == rounds
    assert [one.signals for one in begun] == [[] if ends else [signal.SIGINT]] * rounds


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """dev/bench with benchmarks of one line each; a name maps to its line."""
    monkeypatch.setattr(parts, "BENCHMARKS", tmp_path / "bench")
    monkeypatch.setattr(parts, "BENCH_RESULTS", tmp_path / "results")
    monkeypatch.setattr(parts, "variables", lambda name="": {})
    (tmp_path / "bench").mkdir()
    original = subprocess.run

    def run(command, **kwargs):
        assert command[0] == "python"
        return original([sys.executable, *command[1:]], check=kwargs.pop("check", False), **kwargs)

    monkeypatch.setattr(parts.subprocess, "run", run)

    def made(**lines):
        for name, line in lines.items():
            text = line.replace("RESULT", repr(str(tmp_path / "results" / f"{name}.json")))
            (tmp_path / "bench" / f"{name}.py").write_text(text)

    return made


WRITES = "open(RESULT, 'w').write('{}')"


@pytest.mark.parametrize(("names", "ran"), [([], ["one", "two"]), (["two"], ["two"])])
def test_all_benchmarks_run_or_those_that_are_named(bench, tmp_path, names, ran):
    bench(one=WRITES, two=WRITES, _part="exit(1)")
    assert parts.bench(names) == 0
    assert sorted(path.stem for path in (tmp_path / "results").iterdir()) == ran


def test_an_unknown_benchmark_is_refused_before_any_runs(bench, tmp_path, capsys):
    bench(one=WRITES)
    with pytest.raises(SystemExit) as ended:
        parts.bench(["one", "thre"])
    assert ended.value.code == 2
    assert "benchmark thre is unknown; there are one" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_benchmarks_that_fail_or_leave_no_result_are_named_after_all_ran(bench, tmp_path, capsys):
    bench(broken=f"{WRITES}; exit(1)", last=WRITES, silent="pass")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "silent.json").write_text("of an earlier run")
    assert parts.bench([]) == 1
    said = capsys.readouterr()
    assert "failed: benchmark broken, silent" in said.out + said.err
    assert (tmp_path / "results" / "last.json").exists()
