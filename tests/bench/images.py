# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server beside nginx with sendfile, which serves the same images as whole files; and writing such a file.

All servers run at the same time and are asked in turns, so that what else the machine does meets each. A figure is the
median of the turns, its ratio the median of the ratios of each turn. KUBENODE_BENCH_IMAGES="256 1024": sizes in MiB;
ICC=/path/to/binary: the static server of image-customization-controller takes part.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dev.pytest_collection  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.iso import inspect
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import materialise
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import whole as whole_base
from tests.bench import _image_load as load
from tests.bench._figures import RESULTS, figure, show, write
from tests.bench._image_peers import NGINX, Server, icc, nginx, ours
from tests.unit.liveimage.maker import Layout, make
from tests.web_servers import certificate

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
        self.lines: list[dict[str, Any]] = []

    def add(self, name: str, value: float, unit: str, against: str, ratio: float | None, how: str) -> None:
        """Print one and keep it."""
        line = figure(name, value, unit, how, against) | {"ratio": None if ratio is None else round(ratio, 3)}
        show([line])
        self.lines.append(line)

    def compare(self, name: str, unit: str, how: str, found: Mapping[str, list[float]], target: str) -> None:
        """Medians of turns, ours and each peer's side by side; the target is that beside the first peer."""
        mine, *peers = found
        for peer in peers:
            ratio = statistics.median(one / other for one, other in zip(found[mine], found[peer], strict=True))
            against = f"{peer}: {statistics.median(found[peer]):.3f}; {target if peer == peers[0] else 'no target'}"
            self.add(name, statistics.median(found[mine]), unit, against, ratio, how)


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


def in_turns(works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """All of them measured alternately, in one order and the other."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(TURNS):
        for name in list(works)[:: 1 if turn % 2 else -1]:
            found[name].append(works[name]())
    return found


def ranges_beside(figures: Figures, servers: Mapping[str, Server], size: int) -> None:
    """Small ranges with heads that only differ in their digits, and with heads that differ in all."""
    targets = {(False, 1): 1.0, (True, 1): 0.6, (False, 8): 0.8, (True, 8): 0.7, (False, 64): 0.8, (True, 64): 0.8}
    for (varied, connections), target in targets.items():
        cost: dict[str, list[float]] = {name: [] for name in servers}

        def per_second(name: str, connections: int, varied: bool, cost: dict[str, list[float]]) -> float:
            seen = load.ranges(servers[name], connections, size, HOSTS, varied=varied)
            cost[name].append(seen.cpu)
            return seen.per_second

        found = in_turns({name: partial(per_second, name, connections, varied, cost) for name in servers})
        name = f"4 KiB random ranges, {'varied' if varied else 'same'} heads, {connections} connection(s)"
        how = f"wrk, {HOSTS} images of {size // MIB} MiB"
        figures.compare(name, "requests/s", how, found, f"at least {target}")
        figures.compare(f"{name}: CPU per request", "µs", how, cost, "no target")


def whole_beside(figures: Figures, servers: Mapping[str, Server], what: str, cpu: str, speed: str) -> None:
    """Whole images, by one reader and by eight: what they cost, and how fast they come."""
    for readers in (1, 8):
        quick: dict[str, list[float]] = {name: [] for name in servers}

        def cost(name: str, readers: int, quick: dict[str, list[float]]) -> float:
            seen = load.whole(servers[name], HOSTS, readers, max(3, readers))
            quick[name].append(seen.speed)
            return seen.cpu

        found = in_turns({name: partial(cost, name, readers, quick) for name in servers})
        name = f"whole images{what}, {readers} reader(s)"
        figures.compare(f"CPU per GB of {name}", "s", "images in the page cache", found, cpu)
        figures.compare(f"speed of {name}", "GB/s", "read and thrown away", quick, speed)


@contextlib.contextmanager
def with_icc(servers: Mapping[str, Server], folder: Path, base: Path) -> Iterator[Mapping[str, Server]]:
    """These servers and ICC, where its binary is given: a fresh one, since readers that leave early break it."""
    if not os.environ.get("ICC"):
        yield servers
        return
    with icc(os.environ["ICC"], folder / "hosts", base, folder / "icc.log") as one:
        until_served(one, f"/web-{HOSTS - 1}.iso")
        yield {**servers, "ICC": one}


def speed(figures: Figures, mine: Server, size: int, base: Path, folder: Path) -> None:
    """Small ranges, first bytes and whole images, beside nginx plain, with files kept open, with one worker."""
    www = materialised(mine, folder / "www")
    print(f"nginx was given (its cache only where the name says so): {' '.join(NGINX.split())}", flush=True)
    with contextlib.ExitStack() as running:
        servers = {"ours": mine}
        kinds = (("nginx", 2, False), ("nginx with open_file_cache", 2, True), ("nginx, 1 worker", 1, False))
        for name, workers, cached in kinds:
            servers[name] = running.enter_context(nginx(www, folder / name.replace(" ", "-"), workers, cached=cached))
        with with_icc(servers, folder, base) as all_servers:
            ranges_beside(figures, all_servers, size)
        with with_icc(servers, folder, base) as all_servers:
            works = {name: partial(load.first_byte, one, NAME) for name, one in all_servers.items()}
            how = "new connection, median of 200"
            figures.compare("first byte of a warm server", "ms", how, in_turns(works), "at most 1 ms")
        with with_icc(servers, folder, base) as all_servers:
            whole_beside(figures, all_servers, "", "at most 1", "no target")
    pair = folder / "tls"
    pair.mkdir()
    certificate(pair)
    with (
        ours(folder / "hosts", base, folder / "ours-tls.log", pair) as secured,
        nginx(www, folder / "nginx-tls", 2, certificate=pair) as peer,
    ):
        until_served(secured, f"/web-{HOSTS - 1}.iso")
        whole_beside(figures, {"ours": secured, "nginx": peer}, ", TLS", "no target", "at least 0.9")


def memory(figures: Figures, mine: Server, size: int) -> float:
    """Resident memory while more and more readers come; returns it after all of them."""
    found = {}
    for readers in (1, 8, 64):
        load.ranges(mine, readers, size, HOSTS)
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
    return len(load.piece(server, NAME, area.offset, area.length).rstrip(b"\0"))


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

    works = {
        "ours": lambda: timed(lambda: materialise(overlay, str(target))),
        "cp --reflink=never and sync": lambda: copy('&& sync "$1"'),
    }
    how = f"{base.stat().st_size // MIB} MiB, both until the bytes are on disk"
    figures.compare("file mode", "s", how, in_turns(works), "at most 1.1")
    target.unlink()


def main() -> int:
    """Measure, print one line a figure, write the result file."""
    folder = RESULTS / "images"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    figures = Figures()
    with contextlib.suppress(PermissionError):  # both servers and their readers before all other processes here
        os.nice(-10)
    try:
        few, after = hosts(folder / "hosts", HOSTS), {}
        for size in SIZES:
            base = content(folder, size)
            with ours(few, base, folder / "ours.log") as mine:
                for number in range(HOSTS):
                    until_served(mine, f"/web-{number}.iso")
                if size == max(SIZES):
                    speed(figures, mine, size * MIB, base, folder)
                after[size] = memory(figures, mine, size * MIB)
        if len(after) > 1:
            low, high = after[min(after)], after[max(after)]
            name = f"RSS with {max(after)} MiB over {min(after)} MiB"
            figures.add(name, high - low, "MB", f"{low:.1f} MB", high / low, "after 64 readers")
        start(figures, folder / f"base-{min(SIZES)}.iso", folder)
        writing(figures, folder, folder / f"base-{max(SIZES)}.iso")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write("images", figures.lines)
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
