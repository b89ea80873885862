# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fleet benchmarks share: one job on one lab, and figures beside a peer's on a lab like it."""

import datetime
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.testbed import Testbed
from lab.state import call_lab
from tests.bench._cost import paid
from tests.bench._figures import each_size, figure
from tests.image_commands import image_command

COMMAND = image_command("raw-disk")
FORKS = "50"
#: As the page of the playbook says to people; for every contestant that is a playbook.
CONFIG = "[defaults]\ninternal_poll_interval = 0.02\n"


#: Prints the name of a machine, its proof, and when cloud-init ended.
PROVE = "hostname; cat /etc/kubenode-proof; stat -Lc %.Y /run/cloud-init/result.json"


@dataclass
class Run:
    """What one job cost: seconds, and requests, CPU seconds, ssh processes and MiB a machine.

    ``late``: seconds from when the last machine could prove itself to the end; ``verified``: from when a machine could
    prove itself until it was called verified, of the slowest one, where the contestant says when; ``resets`` only where
    a machine needs them.
    """

    seconds: float
    platform: float
    requests: float
    failed: int
    resets: float
    cpu: float
    ssh: float
    memory: float
    late: float
    verified: float | None = None


def measure(testbed: Testbed, names: Sequence[str], command: Sequence[str] | None = None) -> Run:
    """Provision the machines by our playbook, or by another ``command``; the testbed's inventory is written."""
    config = testbed.folder / "ansible.cfg"
    config.write_text(CONFIG, encoding="utf-8")
    testbed.environment |= {"ANSIBLE_FORKS": FORKS, "ANSIBLE_CONFIG": str(config)}
    environment = dict(testbed.environment)
    if command:
        environment["ANSIBLE_HOST_KEY_CHECKING"] = "false"
        del environment["ANSIBLE_CALLBACKS_ENABLED"]
    lab = (testbed.lab["endpoint"], testbed.token)
    call_lab(*lab, "DELETE", "/requests")
    with (testbed.folder / "output.txt").open("w") as output:
        cost = paid(command or testbed.playbook_command(), environment, testbed.folder, output)
    requests = call_lab(*lab, "GET", "/requests")["requests"]
    resets = sum(one["method"] == "POST" and one["path"].startswith("/reset/") for one in requests)
    platform = max(one["total"] for one in call_lab(*lab, "GET", "/delays")["machines"].values())
    size = len(names)
    ready = {name: at for name in names if (at := proven_at(testbed, name)) is not None}
    verified = {} if command else verified_at(testbed)
    return Run(
        seconds=cost.seconds,
        platform=platform,
        requests=len(requests) / size,
        failed=size - len(ready),
        resets=resets / size,
        cpu=cost.cpu / size,
        ssh=cost.ssh / size,
        memory=cost.memory / size,
        late=cost.ended - max(ready.values(), default=cost.ended),
        verified=max((verified[name] - at for name, at in ready.items() if name in verified), default=None),
    )


def by_peer(testbed: Testbed, playbook: Path) -> list[str]:
    """The command of a peer that is a playbook."""
    return ["ansible-playbook", "-i", str(testbed.inventory), str(playbook)]


def proven_at(testbed: Testbed, name: str) -> float | None:
    """When the machine could show what its bootstrap data made; None when it does not."""
    address = testbed.address(name)
    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    words = ["ssh", "-q", "-i", str(testbed.private_key), *options, f"root@{address}", PROVE]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    is_proven = said[:2] == [name, "made by the bootstrap data"] and len(said) > 2
    return float(said[2]) if is_proven else None


def verified_at(testbed: Testbed) -> dict[str, float]:
    """When our run called each machine verified."""
    machines = json.loads(testbed.report.read_text(encoding="utf-8"))["machines"]
    steps = [step for one in machines if one["verified"] for step in one["transitions"]]

    def seconds(at: str) -> float:
        return datetime.datetime.fromisoformat(at).timestamp()

    return {step["machine"]: seconds(step["at"]) for step in steps if step["to"] == "OperatingSystemRunning"}


def figures(size: int, runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """The lines of the result file for one size: ours beside each other contestant of the same session."""
    how = f"{size} nspawn machines, hetzner delays, {FORKS} forks, internal_poll_interval 0.02, same seed, same session"
    ours, lines = runs["ours"], []
    machines = f"{size} machine{'s' if size > 1 else ''}"

    def add(name: str, unit: str, of: Callable[[Run], float]) -> None:
        for against, other in runs.items():
            if other is not ours:
                lines.append(figure(f"{name}, {machines}", of(ours), unit, how, against, of(other)))

    add("wall time", "s", lambda run: run.seconds)
    add("wall time over the longest machine's platform delay", "times", lambda run: run.seconds / run.platform)
    add("API requests per machine", "requests", lambda run: run.requests)
    add("CPU of the controller per machine", "s", lambda run: run.cpu)
    add("ssh processes per machine", "processes", lambda run: run.ssh)
    add("peak memory of the controller per 100 machines", "MiB", lambda run: run.memory * 100)
    add("end after the last machine could prove itself", "s", lambda run: run.late)
    if ours.verified is not None:
        add("slowest verdict after a machine could prove itself", "s", lambda run: run.verified or run.late)
    add("machines that do not run their new system", "machines", lambda run: run.failed)
    if any(run.resets for run in runs.values()):
        add("resets per machine", "resets", lambda run: run.resets)
    return lines


def run(name: str, contestants: Mapping[str, str], job: Callable[[int, str], Run]) -> int:
    """Measure every size for ours and ``contestants`` (what ``job`` gets: what it is), write the result file."""

    def measured(size: int) -> list[dict[str, Any]]:
        return figures(size, {words: job(size, whose) for whose, words in {"ours": "ours", **contestants}.items()})

    return each_size(name, "KUBENODE_BENCH_FLEET", "1 10 50", measured, ["machines"])
