# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""_cost.py FOLDER COMMAND…: runs it, and writes what the controller paid for it to FOLDER/cost.json.

Counted is the command with everything it started, also what outlives it (ssh masters, which are ended then). The lab's
machines are children of the lab and so stay apart. ``ssh`` is counted when it is started, not when it forks.
"""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PR_SET_CHILD_SUBREAPER = 36
#: Seconds from one look at the memory to the next.
TICK = 2.0
#: Seconds for what outlived the command to end.
ENDING = 5.0
#: One byte a process.
COUNTING = """#!/bin/sh
printf . >>'{count}'
exec '{ssh}' "$@"
"""


@dataclass
class Cost:
    """``seconds``: wall; ``ended``: time of day; ``cpu``: seconds; ``ssh``: processes; ``memory``: MiB at the peak."""

    code: int
    seconds: float
    ended: float
    cpu: float
    ssh: int
    memory: float


def paid(command: Sequence[str], environment: Mapping[str, str], folder: Path, output: IO[str]) -> Cost:
    """Run a contestant from ``folder``; the time is its own, without that of this program."""
    words = [sys.executable, str(Path(__file__).resolve()), str(folder), *command]
    subprocess.run(words, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, check=True)
    return Cost(**json.loads((folder / "cost.json").read_text(encoding="ascii")))


def descendants(pid: int) -> Iterator[int]:
    """Every process below ``pid`` that still runs."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split():
                yield int(child)
                yield from descendants(int(child))


def memory(pids: Iterator[int]) -> float:
    """MiB of the processes; what several share counts once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def counted(folder: Path) -> Path:
    """Make the folder with the ``ssh`` that counts; its counts are in ``count`` beside it."""
    place, ssh = folder / "counted", shutil.which("ssh")
    place.mkdir()
    (place / "count").touch()
    (place / "ssh").write_text(COUNTING.format(count=place / "count", ssh=ssh), encoding="utf-8")
    (place / "ssh").chmod(0o755)
    return place


def end_what_is_left() -> None:
    """What the command left running became ours; its time counts as soon as it has ended."""
    left = time.monotonic() + ENDING
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < left:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)


def main() -> int:
    """Run the command of the arguments."""
    folder = Path(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be kept")
    place = counted(folder)
    environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    started, peak = time.monotonic(), 0.0
    command = subprocess.Popen(sys.argv[2:], env=environment)
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = command.wait(TICK)
            break
        peak = max(peak, memory(descendants(os.getpid())))
    seconds, ended = time.monotonic() - started, time.time()
    end_what_is_left()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "code": code,
        "seconds": seconds,
        "ended": ended,
        "cpu": used.ru_utime + used.ru_stime,
        "ssh": (place / "count").stat().st_size,
        "memory": max(peak, used.ru_maxrss / 1024),
    }
    (folder / "cost.json").write_text(json.dumps(result) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
