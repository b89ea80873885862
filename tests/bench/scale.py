# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job's first play for 50, 200 and 1,000 dry machines: what the controller pays before the first ssh.

Dry machines boot nothing, so the play ends where the rescue would be waited for. What counts is the growth: the figures
of each size stand beside those of the first. KUBENODE_BENCH_SCALE="50 200" chooses other sizes.
"""

import sys
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dev.testbed import Testbed
from lab.state import call_lab
from tests.bench._cost import Cost, paid
from tests.bench._figures import RESULTS, each_size, figure
from tests.bench._fleet import FORKS, by_peer

PLAY = Path(__file__).with_name("scale.yml")
#: What the controller may spend on a machine (CPU seconds), and what the whole job may cost (requests).
CPU, REQUESTS = 0.3, 3.05


class DryTestbed(Testbed):
    """A lab without images."""

    def image_url(self, suffix: str = "zst", image: str = "debian") -> str:
        """A URL that nothing reads before the first ssh."""
        return f"{self.lab['images_url']}/{image}.raw.{suffix}#sha256={'0' * 64}"


@dataclass
class Scale:
    """One size: what was paid, and the API requests and the machines that were started."""

    size: int
    cost: Cost
    requests: int
    started: int


def job(size: int) -> Scale:
    """Run the play for ``size`` fresh machines in a lab of its own."""
    options = ["--kind", "dry", "--profile", "hetzner", "--seed", "1", "--servers", str(size)]
    with DryTestbed(RESULTS / "scale", "bench-scale", lab_options=options) as testbed:
        testbed.write_inventory([f"bench-{number}" for number in range(1, size + 1)], known_host_key=False)
        lab = (testbed.lab["endpoint"], testbed.token)
        call_lab(*lab, "DELETE", "/requests")
        environment = testbed.environment | {"ANSIBLE_FORKS": FORKS}
        with (testbed.folder / "output.txt").open("w") as output:
            cost = paid(by_peer(testbed, PLAY), environment, testbed.folder, output)
        requests = call_lab(*lab, "GET", "/requests")["requests"]
        started = [
            one for one in requests if one["path"].endswith("/poweron") and one["status"] < HTTPStatus.BAD_REQUEST
        ]
        return Scale(size, cost, len(requests), len(started))


def figures(one: Scale, first: Scale) -> list[dict[str, Any]]:
    """The lines of the result file for one size."""
    size = one.size
    words = f"{first.size} machines"
    values = [
        ("wall time", one.cost.seconds, "s", words, first.cost.seconds),
        ("CPU of the controller per machine", one.cost.cpu / size, "s", "limit", CPU),
        ("CPU of the controller per machine, growth", one.cost.cpu / size, "s", words, first.cost.cpu / first.size),
        ("peak memory of the controller per 100 machines", one.cost.memory / size * 100, "MiB", words,
         first.cost.memory / first.size * 100),
        ("API requests per machine", one.requests / size, "requests", "limit", REQUESTS),
        ("machines that were not sent to their rescue", size - one.started, "machines", words, 0),
    ]  # fmt: skip
    how = f"{size} dry machines, hetzner delays, first play of hcloud_image_url"
    return [figure(f"{name}, {size} machines", value, unit, how, *beside) for name, value, unit, *beside in values]


def main() -> int:
    """Measure every size, print one line a figure, write the result file."""
    measured: list[Scale] = []

    def measure(size: int) -> list[dict[str, Any]]:
        measured.append(job(size))
        return figures(measured[-1], measured[0])

    return each_size("scale", "KUBENODE_BENCH_SCALE", "50 200 1000", measure, ["machines"])


if __name__ == "__main__":
    sys.exit(main())
