# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""64 readers at once over 8 images: every byte right, no error, memory flat, also while hosts come, change and go.

Each storm lasts KUBENODE_STORM_SECONDS, 5 by default; `KUBENODE_STORM_SECONDS=30 dev/run pytest … test_storm.py` is the
long one.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.liveimage.program import Program
from tests.integration.liveimage.readers import MIB, Reader, base, expected, network
from tests.waiting import until

SECONDS = float(os.environ.get("KUBENODE_STORM_SECONDS", "5"))
States = Mapping[str, Mapping[str, bytes]]  # path → entity tag → bytes
READERS, HOSTS, SIZE = 64, 8, 12
FLAT = 3 * MIB  # what the memory of a process may grow by: blocks of its allocator, not a reader's bytes


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("bases"), SIZE)


@pytest.fixture(scope="module")
def states(bases: Path) -> States:
    """Both states that each host may be in."""
    return {
        f"/web-{n}.iso": dict(expected(bases, f"web-{n}", network(n, change)) for change in (0, 1))
        for n in range(HOSTS)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(HOSTS):
        (tmp_path / f"web-{n}.yaml").write_text(network(n))
    return tmp_path


def memory(server: Program) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def storm(
    server: Program, states: Mapping[str, Mapping[str, bytes]], gone: tuple[int, ...], during: Callable[[], None]
):
    """Let the readers go for the whole time; what they got, and how much more memory the server has afterwards."""
    readers = [Reader(server.port, states, seed, gone) for seed in range(READERS)]
    for reader in readers:  # connections and allocator are there before memory is looked at
        reader.turn()
    before, over = memory(server), threading.Event()

    def read(reader: Reader) -> None:
        while not over.is_set():
            reader.turn()

    threads = [threading.Thread(target=read, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        ends = time.monotonic() + SECONDS
        # on a busy machine the readers may need longer to be a storm
        while time.monotonic() < ends or sum(reader.statuses.get(206, 0) for reader in readers) <= 2 * READERS:
            assert time.monotonic() < ends + 180, "the readers get nothing"
            during()
            time.sleep(0.05)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for reader in readers:
            reader.close()
    statuses = sum((Counter(reader.statuses) for reader in readers), Counter())
    return [one for reader in readers for one in reader.wrong], statuses, memory(server) - before


def test_the_readers_see_wrong_bytes(bases, states, folder):
    """What the storms rely on: every answer with a body is compared."""
    inverted = bytes(255 - value for value in range(256))
    changed = {path: {tag: one.translate(inverted) for tag, one in known.items()} for path, known in states.items()}
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        server.until_served(*states)
        reader = Reader(server.port, changed, 0, ())
        for _turn in range(50):
            reader.turn()
        reader.close()
        heads = 50 - reader.statuses[206]  # of those that asked for another state
        assert len(reader.wrong) >= 50 - heads > 20


def test_icc_15_1_a_storm_of_readers(bases, states, folder):
    with Program("--nmstate-dir", str(folder), "--max-connections-per-address", "100", bases=bases) as server:
        server.until_served(*states)
        wrong, statuses, growth = storm(server, states, (), lambda: None)
        assert wrong == []
        assert set(statuses) <= {200, 206}
        assert statuses[206] > READERS
        assert growth < FLAT
        assert "answers_cut_total 0" in server.watch("/metrics")


def test_a_storm_while_hosts_come_change_and_go(bases, states, folder):
    """The tag of an answer says which state its bytes are of; an image that is away is 404, or 503 while it is made."""
    turn = 0

    def churn() -> None:
        nonlocal turn
        turn += 1
        number = turn % HOSTS
        file = folder / f"web-{number}.yaml"
        scratch = folder / f".web-{number}"
        if turn % 5 == 0:
            file.unlink(missing_ok=True)
        else:
            scratch.write_text(network(number, turn // HOSTS % 2))
            scratch.rename(file)
        (folder / f"other-{turn % 40}.yaml").write_text(network(100 + turn % 40))
        (folder / f"other-{(turn + 20) % 40}.yaml").unlink(missing_ok=True)

    with Program("--nmstate-dir", str(folder), "--max-connections-per-address", "100", bases=bases) as server:
        server.until_served(*states)
        wrong, statuses, growth = storm(server, states, (404, 503), churn)
        assert wrong == []
        assert set(statuses) <= {200, 206, 404, 412, 503}
        assert statuses[206] > READERS
        assert growth < FLAT + 40 * 8192  # the others that came
        for number in range(HOSTS):
            (folder / f"web-{number}.yaml").write_text(network(number, 1))
            tag, content = list(states[f"/web-{number}.iso"].items())[1]
            path = f"/web-{number}.iso"
            until(lambda path=path, tag=tag: server.head(path).headers.get("ETag") == tag, f"{path} as it is now")
            assert server.get(path).content == content
