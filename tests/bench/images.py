# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server beside nginx with sendfile, which serves the same images as whole files; and writing such a file.

Both servers run at the same time and are asked in turns, so that what else the machine does meets both. A figure is the
median of the turns, its ratio the median of the ratios of each turn. KUBENODE_BENCH_IMAGES="256 1024": sizes in MiB.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dev.pytest_collection  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.iso import inspect
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import whole as whole_base
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.writing import materialise
from tests.bench import _image_load as load
from tests.bench._image_peers import Server, nginx, ours
from tests.unit.liveimage.maker import Layout, make

RESULTS = Path(__file__).parents[2] / "build" / "bench"
MIB = 1024 * 1024
SIZES = [int(size) for size in os.environ.get("KUBENODE_BENCH_IMAGES", "256 1024").split()]
HOSTS, TURNS = 8, 5
NAME = "/web-1.iso"
NETWORK = """\
interfaces:
  - name: eno1
    type: ethernet
    state: up
    ipv4: {{enabled: true, dhcp: false, address: [{{ip: 10.0.{0}.{1}, prefix-length: 16}}]}}
routes: {{config: [{{destination: 0.0.0.0/0, next-hop-address: 10.0.255.254, next-hop-interface: eno1}}]}}
"""


class Figures:
    """Lines of the result file."""

    def __init__(self) -> None:
        """None yet."""
        self.lines: list[dict[str, Any]] = []

    def add(self, figure: str, value: float, unit: str, against: str, ratio: float | None, how: str) -> None:
        """Print one and keep it."""
        rounded = None if ratio is None else round(ratio, 3)
        self.lines.append({"figure": figure, "value": round(value, 3), "unit": unit, "against": against,
                           "ratio": rounded, "how": how})  # fmt: skip
        print(f"{figure}: {value:.3f} {unit} ({against}, ratio {rounded})", flush=True)

    def compare(self, figure: str, unit: str, how: str, mine: list[float], peer: list[float], target: str) -> None:
        """Medians of turns, side by side."""
        ratio = statistics.median(one / other for one, other in zip(mine, peer, strict=True))
        against = f"nginx: {statistics.median(peer):.3f}; {target}"
        self.add(figure, statistics.median(mine), unit, against, ratio, how)


def content(folder: Path, size: int) -> Path:
    """An ISO laid out like CoreOS's, of this many MiB, without holes."""
    base = make(folder / f"base-{size}.iso", Layout(miniso=False))
    with base.open("ab") as file:
        for _turn in range(size - base.stat().st_size // MIB):
            file.write(os.urandom(MIB))
        file.truncate(size * MIB)
    return base


def hosts(folder: Path, count: int) -> Path:
    """So many hosts as static mode reads them."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"web-{number}.yaml").write_text(NETWORK.format(number // 250, number % 250 + 1), encoding="utf-8")
    return folder


def in_turns(first: Callable[[], float], second: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Both measured alternately."""
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS):
        for place in (0, 1) if turn % 2 else (1, 0):
            found[place].append((first, second)[place]())
    return found


def speed(figures: Figures, mine: Server, size: int, www: Path, folder: Path) -> None:
    """Small ranges, first bytes and whole images, beside nginx with one and with two workers."""
    target = {1: "at least 1", 8: "at least 0.8"}
    for workers in (2, 1):
        how = f"wrk, each connection reads one of {HOSTS} images of {size // MIB} MiB, nginx with {workers} worker(s)"
        with nginx(www, folder / f"nginx-{workers}", workers) as peer:
            for connections in (1, 8):
                cost: dict[Server, list[float]] = {mine: [], peer: []}

                def per_second(server: Server, connections: int, cost: dict[Server, list[float]]) -> float:
                    seen = load.ranges(server, connections, size, HOSTS)
                    cost[server].append(seen.cpu)
                    return seen.per_second

                both = in_turns(*(partial(per_second, one, connections, cost) for one in (mine, peer)))
                name = f"4 KiB random ranges, {connections} connection(s), nginx with {workers} worker(s)"
                figures.compare(name, "requests/s", how, *both, target[connections])
                figures.compare(f"{name}: CPU per request", "µs", how, cost[mine], cost[peer], "no target")
            if workers == 2:
                both = in_turns(
                    lambda: load.first_byte(mine, "/web-1.iso"), lambda: load.first_byte(peer, "/web-1.iso")
                )
                figures.compare(
                    "first byte of a warm server", "ms", "new connection, median of 200", *both, "at most 1 ms"
                )
                both = in_turns(lambda: load.whole(mine, HOSTS, 1, 3), lambda: load.whole(peer, HOSTS, 1, 3))
                figures.compare("CPU per GB of whole images", "s", "one reader", *both, "at most 1.1")
                both = in_turns(lambda: load.whole(mine, HOSTS, 8, 8), lambda: load.whole(peer, HOSTS, 8, 8))
                figures.compare("CPU per GB of whole images, 8 readers", "s", "eight readers", *both, "at most 1.1")


def memory(figures: Figures, mine: Server, size: int) -> float:
    """Resident memory while more and more readers come; returns it after all of them."""
    found = {}
    for readers in (1, 8, 64):
        load.ranges(mine, readers, size, HOSTS, 2)
        load.whole(mine, HOSTS, readers, readers)
        found[readers] = mine.rss()
    how = "VmRSS after ranges and whole images by so many readers at once"
    for readers, value in found.items():
        figures.add(f"RSS after {readers} reader(s), {size // MIB} MiB", value, "MB", "at most 40", value / 40, how)
    name, against = f"RSS of 64 readers over 1, {size // MIB} MiB", f"{found[1]:.1f} MB with one"
    figures.add(name, found[64] - found[1], "MB", against, found[64] / found[1], how)
    return found[64]


def start(figures: Figures, base: Path, folder: Path) -> None:
    """From starting the program with 100 hosts to the first byte of the last host's image; memory of 1000 hosts."""
    hundred, seconds = hosts(folder / "hosts-100", 100), []
    for _turn in range(TURNS):
        began = time.monotonic()
        with ours(hundred, base, folder / "start.log") as server:
            until_served(server, "/web-99.iso")
            seconds.append(time.monotonic() - began)
    value = statistics.median(seconds)
    figures.add("start to first byte with 100 hosts", value, "s", "at most 0.3", value / 0.3, "the last host's image")
    used = {}
    for count in (100, 1000):
        with ours(hundred if count == 100 else hosts(folder / "hosts-1000", 1000), base, folder / "many.log") as server:
            for number in range(count):
                until_served(server, f"/web-{number}.iso")
            used[count] = server.rss()
            own = ignition_bytes(server, base)
    each = (used[1000] - used[100]) * 1e6 / 900
    limit = own + 4096
    how = f"VmRSS with 1000 hosts less 100 hosts; compressed Ignition: {own} bytes"
    figures.add("memory per further host", each, "bytes", f"at most {limit}", each / limit, how)


def until_served(server: Server, path: str) -> None:
    """Ask until the image is there."""
    deadline = time.monotonic() + 120
    while load.status(server, path) != 206:
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} is never served")
        time.sleep(0.005)


def ignition_bytes(server: Server, base: Path) -> int:
    """How many bytes the archive in the embed area has: up to the zeros behind it."""
    area = inspect(str(base)).area.extent
    return len(load.piece(server, "/web-1.iso", area.offset, area.length).rstrip(b"\0"))


def writing(figures: Figures, folder: Path, base: Path) -> None:
    """`file` mode beside cp, on a file system that shares no blocks."""
    overlay = whole_base(identify(str(base))).patched([(1_000_000, os.urandom(12_000))])
    target = folder / "written.iso"

    def timed(work: Callable[[], object]) -> float:
        target.unlink(missing_ok=True)
        os.sync()
        began = time.monotonic()
        work()
        return time.monotonic() - began

    def copy(*more: str) -> float:
        command = f'cp --reflink=never "$0" "$1" {" ".join(more)}'
        return timed(lambda: subprocess.run(["sh", "-c", command, str(base), str(target)], check=True))

    mine, synced = in_turns(lambda: timed(lambda: materialise(overlay, str(target))), lambda: copy('&& sync "$1"'))
    ratio = statistics.median(one / other for one, other in zip(mine, synced, strict=True))
    how = f"{base.stat().st_size // MIB} MiB, both until the bytes are on disk"
    against = f"cp --reflink=never and sync: {statistics.median(synced):.3f}; at most 1.1"
    figures.add("file mode", statistics.median(mine), "s", against, ratio, how)
    target.unlink()


def main() -> int:
    """Measure, print one line a figure, write the result file."""
    folder = RESULTS / "images"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    figures = Figures()
    with contextlib.suppress(PermissionError):  # both servers and their readers before whatever else runs here
        os.nice(-10)
    try:
        few, after = hosts(folder / "hosts", HOSTS), {}
        for size in SIZES:
            base = content(folder, size)
            with ours(few, base, folder / "ours.log") as mine:
                for number in range(HOSTS):
                    until_served(mine, f"/web-{number}.iso")
                if size == max(SIZES):
                    speed(figures, mine, size * MIB, materialised(mine, folder / "www"), folder)
                after[size] = memory(figures, mine, size * MIB)
        if len(after) > 1:
            low, high = after[min(after)], after[max(after)]
            name = f"RSS with {max(after)} MiB over {min(after)} MiB"
            figures.add(name, high - low, "MB", f"{low:.1f} MB", high / low, "after 64 readers")
        start(figures, folder / f"base-{min(SIZES)}.iso", folder)
        writing(figures, folder, folder / f"base-{max(SIZES)}.iso")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (RESULTS / "images.json").write_text(json.dumps(figures.lines, indent=2) + "\n", encoding="utf-8")
    return 0


def materialised(mine: Server, www: Path) -> Path:
    """One host's image as a file; it has every host's name, so that both servers have one image in the page cache."""
    www.mkdir()
    load.fetch(mine, "/web-0.iso", www / "web-0.iso")
    for number in range(1, HOSTS):
        os.link(www / "web-0.iso", www / f"web-{number}.iso")
    return www


if __name__ == "__main__":
    sys.exit(main())
