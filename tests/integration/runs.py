# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of Ansible, finished and going on, and what every task of theirs said."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ansible.release import __version__ as ansible_core

from tests.integration import programs
from tests.waiting import until

#: Tasks that run on the controller alone; all others are a round trip to the machine.
LOCAL = {
    "assert", "debug", "fail", "include_tasks", "include_vars", "machine_lock", "set_fact", "validate_argument_spec",
}  # fmt: skip
#: The environment of a run on machines that never answer, so that nothing waits for them.
QUICK = {"ANSIBLE_TIMEOUT": "2", "ANSIBLE_SSH_ARGS": "-o ControlMaster=no"}
#: Seconds until a run counts as hanging.
LIMIT = 800
#: Seconds until a person who interrupted a run does so again.
PATIENCE = 180
#: the line of a failed task, or of one item of its loop, with its result as JSON
_FAILURE = re.compile(r"^(?:fatal: \[[^]]*\]: \w+!|failed: \[[^]]*\] \(item=.*?\)) => (\{.*\})$", re.MULTILINE)


def with_reasons(output: str) -> str:
    """What ansible-core 2.18 printed, with the reason of every failure before its line, as later ones print it.

    2.18 prints the result as JSON alone, where quotes and ends of lines are escaped.
    """

    def with_reason(failure: re.Match[str]) -> str:
        reason = json.loads(failure[1]).get("msg")  # none where the result is hidden
        return f"[ERROR]: {reason}\n{failure[0]}" if reason else failure[0]

    return _FAILURE.sub(with_reason, output)


class Run:
    """One finished run: its exit code, everything that was printed, and what every task said of every host."""

    def __init__(self, rc: int, output: str, record: Path | None = None) -> None:
        self.rc, self.output = rc, output
        lines = record.read_text(encoding="utf-8").splitlines() if record and record.exists() else []
        self.results: list[dict[str, Any]] = [json.loads(line) for line in lines]

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return self.rc != 0

    def ok(self) -> Self:
        """Itself, since it had to succeed."""
        assert not self.failed, self.output
        return self

    def fails(self, *words: str) -> Self:
        """Itself, since it had to fail; ``words`` are in the message of its one task."""
        assert self.failed, self.output
        for word in words:
            assert word in self["msg"], (word, self["msg"])
        return self

    def says(self, *words: str) -> Self:
        """Itself, since these words are in what it printed, however its lines were broken."""
        for word in words:
            assert word in self.output or word in " ".join(self.output.split()), (word, self.output)
        return self

    def findings(self, *names: str) -> dict[str, str]:
        """What its one message says of each of these machines; a finding begins with the name of its machine."""
        message = " ".join(self.output[self.output.index("[ERROR]") :].split())
        words = re.split(f"\\b({'|'.join(map(re.escape, names))})'?: ", message)
        found = dict.fromkeys(names, "")
        for name, text in zip(words[1::2], words[2::2], strict=True):
            found[name] += text
        return found

    @property
    def result(self) -> dict[str, Any]:
        """The result of the one task of the run, which is the one of a module on one host."""
        assert self.results, f"no result in:\n{self.output}"
        (entry,) = self.results
        return entry["result"]

    def __getitem__(self, key: str) -> Any:
        return self.result[key]

    @property
    def machines(self) -> dict[str, dict[str, Any]]:
        """The results of the machines of a module for a fleet, by name."""
        return {machine["name"]: machine for machine in self.result["machines"]}

    def of(self, host: str, kind: str = "ok") -> list[dict[str, Any]]:
        """What the tasks of one host said."""
        return [entry for entry in self.results if entry["host"] == host and entry["kind"] == kind]

    def remote(self, host: str) -> list[str]:
        """The names of the tasks that ran on a machine, in order."""
        return [entry["task"] for entry in self.of(host) if entry["action"].rpartition(".")[2] not in LOCAL]

    def changed(self, host: str) -> list[str]:
        """The names of the tasks that changed something."""
        return [entry["task"] for entry in self.of(host) if entry["result"].get("changed")]

    def settings(self, host: str) -> set[str]:
        """The ids of all settings that changed, or would in check mode."""
        steps = [step for entry in self.of(host) for step in entry["result"].get("steps", [])]
        return {step["id"] for step in steps if step["changed"]}

    def fetched(self, host: str) -> list[str]:
        """The names of the downloads that were made, or would be in check mode."""
        found = [one for entry in self.of(host) for one in entry["result"].get("artifacts", [])]
        return sorted(one["name"] for one in found if one["changed"])

    def error(self, host: str) -> str:
        """What the failed task of a host said."""
        (entry,) = self.of(host, "failed")
        return entry["result"]["msg"]


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            found += map(int, path.read_text().split())
    return found


class Running:
    """A command in the background: its output is in a file, and its processes are a group that can be signalled."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, cwd: Path) -> None:
        self.log, self._record = folder / "output.txt", folder / "record.jsonl"
        self.process = programs.start(command, environment, cwd, self.log)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        output = self.log.read_text(errors="replace")
        return with_reasons(output) if ansible_core.startswith("2.18.") else output

    def until(self, happened: str | Callable[[], object], what: str = "") -> None:
        """Wait until it has printed a text, or until a check is true; it must not end before."""
        what = what or str(happened)

        def check() -> bool:
            ended = self.process.poll() is not None
            true = happened in self.output if isinstance(happened, str) else bool(happened())
            assert true or not ended, f"the run ended before: {what}\n{self.output}"
            return true

        # a check may ask an API that counts its requests: one in a second comes back
        until(check, what, seconds=LIMIT, pause=0.05 if isinstance(happened, str) else 0.3, show=lambda: self.output)

    def until_task(self, name: str) -> None:
        """Wait until a task is at work, which has started another program: a signal in the moment of a fork is lost."""
        self.until(f"TASK [{name}")
        self.until(lambda: any(children(worker) for worker in children(self.process.pid)), f"the work of {name}")

    def interrupt(self, number: int = signal.SIGINT) -> Run:
        """Signal the whole group, as a terminal does, and wait for the end.

        Where ansible-core 2.19 forks a worker in the moment of the signal, the worker ends without a result and Ansible
        waits for it without end (two of forty interrupted runs of ``sleep``); a worker that ends while it hands over a
        text of Ansible's own leaves the queue locked (three of eighty, right after the text of ``pause`` was read). A
        person presses Ctrl-C again then, which ends Ansible at once, without the end of its callbacks.
        """
        for _press in range(2):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(PATIENCE)
        return self.wait()

    def wait(self, limit: float = LIMIT) -> Run:
        """Wait for the end; what hangs is killed."""
        try:
            rc = self.process.wait(limit)
        except BaseException:
            self.kill()
            raise
        return Run(rc, self.output, self._record)

    def kill(self) -> None:
        """End what is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
