# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching an image command through everything that can happen to it; waiting costs no time here."""

from __future__ import annotations

import base64
import json

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import watch
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import OTHER_KEY, SILENT, Unreachable

BOOT, JOB = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6", "a" * 64


class Rescue:
    """A rescue whose command prints a log over time and ends; speaks the runner's protocol."""

    def __init__(self, log: bytes = b"", ends: float = 10.0, limit: int = 420, chunk: int = 1 << 18) -> None:
        self.now, self.log, self.ends, self.limit, self.chunk = 0.0, log, ends, limit, chunk
        self.boot, self.job, self.silent, self.polls, self.resets = BOOT, JOB, (0.0, 0.0), 0, 0
        self.silence = Unreachable(SILENT, "Connection timed out")
        self.messages = {0.0: ""}
        self.silences: list[float] = []

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        words = script.split()
        assert words[:3] == ["sh", "/root/.kubenode/runner.sh", "status"]
        self.polls += 1
        if self.silent[0] <= self.now < self.silent[1]:
            self.now += 5
            raise self.silence
        offset, wait = int(words[3]), float(words[4])
        self.now = max(self.now, min(self.now + wait, self.ends)) + 0.02
        done = self.now >= self.ends
        written = self.log if done else self.log[: int(len(self.log) * self.now / self.ends)]
        new = written[offset : offset + self.chunk]
        message = [text for since, text in self.messages.items() if since <= self.now][-1]
        output = base64.b64encode(json.dumps({"message": message}).encode()).decode()
        lines = {
            "job": self.job, "boot": self.boot, "state": "exited" if done else "running", "exit": "0" if done else "",
            "seconds": min(self.now, self.ends), "limit": self.limit, "marker": int(done), "left": 0,
            "interleaved": len(written), "offset": offset, "bytes": len(new), "output": output,
            "log": base64.b64encode(new).decode(), "end": 1,
        }  # fmt: skip
        return 0, "kubenode-runner=1\n" + "".join(f"{key}={value}\n" for key, value in lines.items())

    def close(self) -> None:
        self.resets += 1

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def watch(self, limit: float = 420, longest: float = 2.0) -> tuple[protocol.Status, bytes, list[str]]:
        logs, messages = [], []
        watcher = watch.Watcher(
            self, JOB, BOOT, logs.append, messages.append,
            clock=lambda: self.now, sleep=self.sleep, silent=self.silences.append,
        )  # fmt: skip
        status = watcher.until_end(limit, longest)
        return status, b"".join(logs), messages


def test_the_whole_log_arrives_once_and_the_end_is_noticed_at_once():
    rescue = Rescue(log=bytes(range(256)) * 100, ends=60)
    status, log, _messages = rescue.watch()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert log == rescue.log
    assert rescue.now < 60.1
    assert rescue.polls < 40


def test_a_log_that_grows_faster_than_it_is_read_is_caught_up_without_waiting():
    rescue = Rescue(log=b"x" * 100_000, ends=4, chunk=1000)
    _status, log, _messages = rescue.watch()
    assert log == rescue.log
    assert rescue.now < 12


@pytest.mark.parametrize(("seconds", "said"), [(50, 0), (100, 1), (300, 1)])
def test_a_machine_that_does_not_answer_is_named_once(seconds, said):
    rescue = Rescue(ends=20)
    rescue.silent = (10.0, 10.0 + seconds)
    status, _log, _messages = rescue.watch()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert [60 <= one < 80 for one in rescue.silences] == [True] * said


def test_progress_is_reported_once_per_change():
    rescue = Rescue(ends=20)
    rescue.messages = {0.0: "", 2.0: "10 %", 8.0: "50 %\x1b", 15.0: ""}
    assert rescue.watch()[2] == ["10 %", "50 %\\x1b"]


def test_a_silence_is_sat_out():
    rescue = Rescue(log=b"abc" * 100, ends=60)
    rescue.silent = (10.0, 50.0)
    status, log, _messages = rescue.watch()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert log == rescue.log
    assert rescue.resets >= 3


def test_a_silence_beyond_the_limit_is_a_failure():
    rescue = Rescue(ends=10_000, limit=100)
    rescue.silent = (20.0, 10_000.0)
    with pytest.raises(watch.WatchFailed) as failure:
        rescue.watch(limit=100)
    assert "SSH did not come back within the limit of 100 s (Connection timed out)" in str(failure.value)
    assert 160 < rescue.now < 180


def test_the_limit_of_a_command_that_was_attached_to_is_its_own():
    rescue = Rescue(ends=300, limit=420)
    assert rescue.watch(limit=10)[0].exit_code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"boot": BOOT.replace("9", "8")}, "the rescue was rebooted"),
        ({"job": "b" * 64}, "another image command has taken the place"),
        (
            {"silence": Unreachable(OTHER_KEY, "x"), "silent": (0.0, 9.0)},
            "the machine rebooted while the image command",
        ),
        ({"limit": 0}, "still runs 60 s after its limit"),
    ],
)
def test_what_ends_the_watch(change, words):
    rescue = Rescue(ends=100)
    rescue.__dict__.update(change)
    with pytest.raises(watch.WatchFailed) as failure:
        rescue.watch()
    assert words in str(failure.value)


class Bare(Rescue):
    """A rescue that was booted again with the same host keys: it knows no runner."""

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        """What a shell says there."""
        return 127, "sh: 0: cannot open /root/.kubenode/runner.sh\n"


def test_a_runner_that_is_gone_ends_the_watch():
    with pytest.raises(watch.WatchFailed) as failure:
        Bare().watch()
    assert "the runner of the image command does not answer (exit code 127" in str(failure.value)


def test_bytes_are_counted_until_the_command_gives_none():
    rescue = Rescue(ends=30)
    counts = [(None, None)]
    watcher = watch.Watcher(
        rescue, JOB, BOOT, lambda _log: None, lambda _message: None, clock=lambda: rescue.now, sleep=rescue.sleep,
        measured=lambda done, total: counts.append((done, total)),
    )  # fmt: skip
    plain = rescue.run

    def run(script: str, *arguments: str) -> tuple[int, str]:
        code, answer = plain(script, *arguments)
        if 5 < rescue.now < 20:
            output = {"message": "writing", "bytes": {"done": int(rescue.now / 5) * 100, "total": 1000}}
            text = base64.b64encode(json.dumps(output).encode()).decode()
            answer = "".join(
                f"output={text}\n" if line.startswith("output=") else f"{line}\n" for line in answer.splitlines()
            )
        return code, answer

    rescue.run = run
    watcher.until_end(420, 2.0)
    assert counts == [(None, None), (100, 1000), (200, 1000), (300, 1000), (None, None)]
