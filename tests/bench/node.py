# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""base and join on one machine at 10 ms latency: tasks, first run, second run.

The peer makes the same state the way most roles do: one task a setting, one module a file (node_peer.yml). Its machine
is of the same image in the same lab, the files it writes are those that our run wrote, and our own base, run in check
mode on the peer's machine afterwards, says what is still different.
"""

import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL, Node
from lab.running import RunningLab
from tests.bench._figures import RESULTS, figure, show, write
from tests.integration.controller import Controller
from tests.integration.mirrored import real
from tests.integration.runs import LOCAL, Run

PEER = Path(__file__).with_name("node_peer.yml")
DELAY = Path(__file__).with_name("delay.py")
EACH_WAY = 5  # ms
MARK = "/root/bench-mark"
#: where base and join write files of their own, apart from what they download
PLACES = (
    "/etc/modules-load.d", "/etc/sysctl.d", "/etc/systemd", "/etc/apt/apt.conf.d", "/etc/containerd",
    "/etc/crictl.yaml", "/usr/local/lib/kubenode", "/etc/kubernetes/kubelet.env", "/etc/kubernetes/pki",
    "/var/lib/kubelet/config.yaml",
)  # fmt: skip
HOW = f"one nspawn machine, 10 ms round trip, kubelet {KUBERNETES}, same image and lab for both"


def executions(play: Run, host: str) -> int:
    """How often something ran on the machine: each item of a loop is a run of its own."""
    remote = [entry for entry in play.of(host) if entry["action"].rpartition(".")[2] not in {*LOCAL, "meta"}]
    return sum(len(entry["result"].get("results", [0])) for entry in remote)


class Bench:
    """One lab, two machines, one controller."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        """Start the control plane, too."""
        self.lab, self.cluster = lab, lab.cluster()
        self.controller = Controller(lab, folder)
        self.settings: dict[str, Any] = {
            **real(lab, KUBERNETES),
            "join_api_server": self.cluster.endpoint,
            "join_ca_file": str(self.cluster.ca_file),
            "join_kubelet_config": SHARED_GROUPS,
        }

    def node(self, name: str) -> Node:
        """A fresh machine behind a long line."""
        node = self.lab.node(name, disk="8G")
        node.run(SHARED_KERNEL)
        proxy = f"ProxyCommand='{sys.executable} {DELAY} %h %p {EACH_WAY}'"
        self.controller.add_nodes(
            node, ansible_ssh_common_args=f"{node.inventory['ansible_ssh_common_args']} -o {proxy}"
        )
        return node

    def timed(self, playbook: Any, host: str, *arguments: str, **variables: Any) -> tuple[Run, float]:
        """Run a playbook on one machine; it has to end well."""
        started = time.monotonic()
        play = self.controller.play(
            playbook, *arguments, hosts=[host], **{**self.settings, "join_token": self.cluster.token(), **variables}
        )
        seconds = time.monotonic() - started
        if play.rc:
            raise SystemExit(f"{playbook} failed on {host}:\n{play.output[-4000:]}")
        return play, seconds

    def repeated(self, playbook: Any, host: str, **variables: Any) -> tuple[Run, float]:
        """The last of three runs that have nothing to do, and the median of their seconds."""
        runs = [self.timed(playbook, host, **variables) for _run in range(3)]
        return runs[-1][0], statistics.median(seconds for _play, seconds in runs)


def for_the_peer(files: list[dict[str, str]], ours: Node, peer: Node) -> list[dict[str, str]]:
    """The same files as the other machine needs them: its own name and address."""
    found = []
    for file in files:
        content = file["content"].replace(ours.address, peer.address)
        found.append({**file, "content": content.replace(f"={ours.name} ", f"={peer.name} ")})
    return found


def written(node: Node) -> list[dict[str, str]]:
    """The files that came since `mark`, with their content: what the peer has to write, too."""
    found = []
    for path in node.run(f"find {' '.join(PLACES)} -type f -newer {MARK} 2>/dev/null | sort; true").split():
        mode, content = node.run(f"stat -c %a {path}; cat {path}").split("\n", 1)
        found.append({"path": path, "mode": mode.zfill(4), "content": content + "\n"})
    node.run(f"sleep 1; touch {MARK}")
    return found


def main() -> int:
    """Measure, print one line a figure, write the result file."""
    folder = RESULTS / "node"
    shutil.rmtree(folder, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with RunningLab(kind="nspawn", name="bench-node") as lab:
        bench = Bench(lab, folder)
        ours, peer = bench.node("ours"), bench.node("peer")
        ours.run(f"touch {MARK}; sleep 1")
        base, base_seconds = bench.timed("kubenode.provision.node_base", "ours")
        base_files = written(ours)
        join, join_seconds = bench.timed("kubenode.provision.node_join", "ours")
        join_files = for_the_peer(written(ours), ours, peer)
        again, again_seconds = bench.repeated("kubenode.provision.node", "ours")
        variables = {
            "peer_files": base_files,
            "peer_packages": _packages(base),
            "peer_join_files": join_files,
            "peer_checksums": bench.settings["base_checksums"],
            "peer_mirror": lab.mirror_url,
        }
        theirs, peer_seconds = bench.timed(str(PEER), "peer", **variables)
        theirs_again, peer_again_seconds = bench.repeated(str(PEER), "peer", **variables)
        left, _seconds = bench.timed("kubenode.provision.node_base", "peer", "--check")
    single = "one task a setting"
    rows: list[tuple[Any, ...]] = [
        ("base: runs of a module on the machine", executions(base, "ours"), "tasks", "at most 15"),
        ("join: runs of a module on the machine", executions(join, "ours"), "tasks", "at most 8"),
        ("both: runs of a module on the machine", executions(base, "ours") + executions(join, "ours"),
         "tasks", single, executions(theirs, "peer")),
        ("both, first run", base_seconds + join_seconds, "s", single, peer_seconds),
        ("both, second run, median of three", again_seconds, "s", single, peer_again_seconds),
        ("both, second run: runs of a module", executions(again, "ours"), "tasks", single,
         executions(theirs_again, "peer")),
        ("settings that the peer's machine still lacks", len(left.settings("peer")), "settings",
         ", ".join(sorted(left.settings("peer"))) or "none"),
    ]  # fmt: skip
    lines = [figure(name, value, unit, HOW, *beside) for name, value, unit, *beside in rows]
    show(lines)
    write("node", lines)
    return 0 if not again.changed("ours") else 1


def _packages(play: Run) -> list[str]:
    for entry in play.of("ours"):
        if entry["action"].endswith(".apt"):
            return list(entry["result"]["invocation"]["module_args"]["name"] or [])
    return []


if __name__ == "__main__":
    sys.exit(main())
