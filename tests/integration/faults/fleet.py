# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API phase of a fleet under faults, and one oracle for all of them: the lab's own word on every machine.

Machines are `dry`: done is a server that booted its rescue once, armed with our key, and is armed for nothing more.
"""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.accounts import CloudAccount
from tests.integration.runs import LIMIT
from tests.waiting import until

#: What a machine sees of the API when nothing goes wrong.
COMMANDS = ["create_server", "enable_rescue", "start_server"]
#: Requests of a run beside the three of each machine: lists, keys, the catalogue, looks at actions.
SHARED = 20
MOST_RUNS = 4
_MODULES = "ansible_collections.kubenode.provision.plugins.modules."
#: What a reason must name: something that a person can do.
WAY_OUT = re.compile(
    r"\brun (it |the playbook )?(again|once more)|\btry later|choose another|ask Hetzner|make room on the disk of|"
    r"wait for|check that|disable it|name (it|the machine)|look at|raise the time limit|delete something|delete it|"
    r"\bLog: /",
    re.IGNORECASE,
)


@dataclass(repr=False)
class Outcome:
    """What one run said: of each machine it took on, why it failed (nothing when it did not), and of the whole."""

    reasons: dict[str, str]
    whole: str = ""  # why a module failed as a whole
    output: str = ""
    asked: int = 0  # how many machines it was asked for

    @property
    def failed(self) -> dict[str, str]:
        """The machines that failed, and why."""
        return {name: reason for name, reason in self.reasons.items() if reason}

    def take(self, result: Mapping[str, Any], output: str) -> None:
        """Add what a module said of each machine, and printed."""
        self.reasons.update({one["name"]: one["msg"] if one["failed"] else "" for one in result["machines"]})
        self.output += output


@dataclass(repr=False)
class Fleet:
    """Machines of one project."""

    project: CloudAccount
    size: int
    seed: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = [f"n{number:02}" for number in range(1, self.size + 1)]
        self.chance = random.Random(self.seed)
        self.victim = self.chance.choice(self.names)
        self.intents = self.project.folder / "intents"

    # --- the operator

    def machines(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Machines as hcloud_machine takes them."""
        common = {"server_type": "cx23", "location": "fsn1", "ssh_keys": [self.project.key_name]}
        return [{"name": name, **common} for name in names]

    def steps(self, names: Sequence[str], intents: Path | None = None, **more: Any) -> tuple[dict[str, Any], ...]:
        """The options of both modules of the API phase."""
        create = {"machines": self.machines(names), "wait": False, "on_error": "report", **self._limit()}
        rescue = {
            "ssh_keys": [self.project.key_name], "prove": False, "on_error": "report", "rescue_timeout": 3,
            "intents_dir": str(intents or self.intents), **self.options, **more,
        }  # fmt: skip
        return create, rescue

    def _limit(self) -> dict[str, Any]:
        return {"timeout": self.options["timeout"]} if "timeout" in self.options else {}

    def run(self, **more: Any) -> Outcome:
        """One run of the API phase over what is not done yet; ``more``: options of hcloud_rescue."""
        names = self.left()
        create, rescue = self.steps(names, **more)
        made = self.project.process("hcloud_machine", env=self.environment, **create)
        self.outcomes.append(Outcome({}, made.result["msg"] if made.failed else "", made.output, len(names)))
        if made.failed:
            return self.outcomes[-1]
        self.outcomes[-1].take(made.result, made.output)
        there = [machine for machine in made.result["machines"] if not machine["failed"]]
        if not there:
            return self.outcomes[-1]
        armed = self.project.process("hcloud_rescue", env=self.environment, machines=there, **rescue)
        if armed.failed:
            self.outcomes[-1].whole = armed.result["msg"]
            self.outcomes[-1].output += armed.output
        else:
            self.outcomes[-1].take(armed.result, armed.output)
        return self.outcomes[-1]

    def until_quiet(self) -> int:
        """Run again until every machine is done; returns how many runs that took, those before included."""
        while self.left():
            assert len(self.outcomes) < MOST_RUNS, self.described("not quiet")
            self.run()
        return len(self.outcomes)

    def begin(self, module: str, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[bytes]:
        """A module in a process of its own, which may be killed; ``before``: words in front of its command line."""
        folder, _inventory = self.project.run_folder([], {})
        (folder / "arguments").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
        environment = {**self.project.environment, "PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"]}
        with (folder / "arguments").open("rb") as given, (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", _MODULES + module], stdin=given, stdout=output,
                stderr=subprocess.STDOUT, env={**environment, **self.environment}, cwd=folder, start_new_session=True,
            )  # fmt: skip
        process.args = folder / "output"  # type: ignore[assignment]  # where it prints to
        return process

    @staticmethod
    def result(process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What such a process said at its end."""
        process.wait(LIMIT)
        text = Path(str(process.args)).read_text()
        return json.loads(text[text.index("\n{") :])

    # --- the lab

    def rows(self) -> dict[str, dict[str, Any]]:
        """What the lab says of each machine that there is."""
        return {row["name"]: row for row in self.project.lab.control("GET", "/machines")["machines"]}

    def left(self) -> list[str]:
        """The machines that have not booted their rescue, by the lab's word."""
        rows = self.rows()
        return [name for name in self.names if not rows.get(name, {}).get("boots")]

    def sent(self, method: str, end: str = "") -> list[dict[str, Any]]:
        """The requests so far whose path ends like this."""
        return [one for one in self.project.requests() if one["method"] == method and one["path"].endswith(end)]

    # --- the oracle

    def judge(self, victims: Sequence[str] = (), extra: int = 0) -> None:
        """The world after the last run: every machine is done, and nothing is left that was not asked for.

        ``victims``: those whose history may show that something had gone wrong; ``extra``: requests that the fault
        may cost.
        """
        until(lambda: not any(row["locked"] for row in self.rows().values()), "the end of all actions")
        rows = self.rows()
        assert sorted(rows) == self.names, self.described("servers that were not asked for")
        for name, row in rows.items():
            sources = [boot["source"] for boot in row["boots"]]
            assert sources == ["rescue"], self.described(f"{name} booted {sources}")
            keys = row["boots"][0]["authorized_keys"]
            assert keys == [self.project.public_key.strip()], self.described(f"{name} lets {keys} in")
            assert row["status"] == "running", self.described(f"{name} is {row['status']}")
            assert not row["rescue_enabled"], self.described(f"{name}: its rescue is armed again")
        requests = [one for one in self.project.requests() if not one["user_agent"].startswith("Python-urllib")]
        for name in self.names:
            commands = self.project.commands(name)
            assert name in victims or commands == COMMANDS, self.described(f"{name}: {commands}")
        for kind in ("images?type=snapshot", "ssh_keys"):
            kept = self.project.call("GET", f"/{kind}")[kind.partition("?")[0]]
            assert len(kept) == (kind == "ssh_keys"), self.described(f"left: {kept}")
        struck = sum(one["fault"] for one in requests)
        # a machine that a later run finds half done costs its history, twice, and perhaps a disarming
        later = sum(SHARED + 5 * outcome.asked for outcome in self.outcomes[1:])
        # a server that the other controller works on is locked; it is tried and looked at again
        locked = sum(one["status"] == 423 and not one["fault"] for one in requests)
        assert locked <= 4 * self.size, self.described(f"{locked} times a server was locked")
        most = 3 * self.size + SHARED + later + 3 * struck + 2 * locked + extra
        assert len(requests) <= most, self.described(f"{len(requests)} requests, {most} at most")
        for outcome in self.outcomes:
            self.judge_words(outcome.output, *outcome.failed.values(), outcome.whole)

    def judge_words(self, output: str, *reasons: str) -> None:
        """No secret, no traceback, and each reason is one that ends with a way out."""
        lab = self.project.lab
        private = [line for line in self.project.key.read_text().splitlines() if len(line) > 40]
        for secret in (lab.token, lab.robot_password, *private):
            assert secret not in output, "a secret in the output"
        assert "Traceback" not in output, output[-3000:]
        for reason in filter(None, reasons):
            assert "\n" not in reason, reason
            assert WAY_OUT.search(reason), f"no way out: {reason}"

    def described(self, what: str) -> str:
        """What is wrong, and what the runs said."""
        said = [f"{outcome.whole} {outcome.failed}" for outcome in self.outcomes]
        return "\n".join([f"seed {self.seed}: {what}", *said, json.dumps(self.project.lab.control("GET", "/faults"))])
