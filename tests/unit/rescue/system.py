# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory in which the in-rescue runner runs, for real."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import subprocess
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from tests.folders import put
from tests.waiting import until

RUNNER = Path(jobs.__file__).with_name("runner.sh")
RECORDER = RUNNER.with_name("recorder.py")
JOB = "a" * 64
#: A limit that ends when the test says so: the runner's PATH has a sleep that knows it.
ON_DEMAND = 777
SLEEP = f"""#!/bin/sh
[ "$*" = {ON_DEMAND} ] || exec "$(PATH=${{PATH#*:}} command -v sleep)" "$@"
until [ -e "$KUBENODE_BASE/over" ]; do sleep 0.05; done
"""


class Rescue:
    """A directory in place of /root of a rescue system."""

    def __init__(self, base: Path, prefix: list[str]) -> None:
        self.base, self.prefix = base, prefix
        self.dir = base / protocol.STATE_DIR
        self.dir.mkdir(mode=0o700)
        (base / protocol.RUNNER).write_bytes(RUNNER.read_bytes())
        (self.dir / RECORDER.name).write_bytes(RECORDER.read_bytes())
        (base / protocol.BOOTSTRAP).write_text("#cloud-config\n")
        put(base / "bin/sleep", SLEEP, 0o755)
        self.grace = "1"
        self.cap = 8 << 20  # bytes kept of each log

    def install(self, command: str) -> None:
        put(self.base / protocol.COMMAND, "#!/bin/sh\n" + command, 0o700)
        (self.dir / "arguments").write_text("https://image.example/a b.raw?x='y'\nnode-1\nsda sdb\n")
        (self.dir / "token").write_text("user:pass word")

    def runner(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments), env=self.environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def end(self) -> None:
        """Stop what runs, and what a killed runner has left: its watchdog sleeps until the limit."""
        self.runner("stop")
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if bytes(self.base / protocol.RUNNER) in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGTERM)
        # A runner that was killed has left its cgroup, which would stay on this host.
        state = self.dir / "state"
        lines = state.read_text().splitlines() if state.exists() else []
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        if fields.get("cgroup"):
            until(lambda: _is_removed(Path(fields["cgroup"]).parent), "a cgroup without processes")

    def argv(self, *arguments: str) -> list[str]:
        return [*self.prefix, "sh", str(self.base / protocol.RUNNER), *arguments]

    def environment(self) -> dict[str, str]:
        path = f"{self.base / 'bin'}:{os.environ['PATH']}"
        settings = {"KUBENODE_BASE": str(self.base), "KUBENODE_GRACE": self.grace, "KUBENODE_CAP": str(self.cap)}
        return dict(os.environ, PATH=path, **settings)

    def start(self, command: str, limit: int = 1000, job: str = JOB) -> protocol.Status:
        self.install(command)
        answer = self.runner("start", job, str(limit))
        assert answer.returncode == 0, answer.stderr
        return protocol.parse_status(answer.stdout)

    def status(self, offset: int = 0) -> protocol.Status:
        return protocol.parse_status(self.runner("status", str(offset)).stdout)

    def wait(self, state: str | None = None) -> protocol.Status:
        def ended() -> protocol.Status | None:
            status = self.status()
            return status if (status.state == state if state else status.state != protocol.RUNNING) else None

        return until(ended, f"the state {state or 'after running'}", show=self.status)

    def wait_for(self, name: str) -> str:
        path = self.base / name
        return until(lambda: path.exists() and path.read_text().strip(), f"the file {name}", show=self.status)

    def go(self) -> None:
        (self.base / "go").touch()

    def end_limit(self) -> None:
        (self.base / "over").touch()

    def fetch(self, name: str) -> bytes:
        return gzip.decompress(protocol.parse_fetch(self.runner("fetch", name).stdout))


def _is_removed(cgroup: Path) -> bool:
    for folder in (*cgroup.glob("*/**/"), cgroup) if cgroup.exists() else ():
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not cgroup.exists()


def cgroups() -> set[Path]:
    """Those of runners and labs on this host."""
    return {path for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") for path in Path(root).glob("kubenode-*")}


def alive(pid: str | int) -> bool:
    """Whether a process is there and not just its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
