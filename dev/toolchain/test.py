# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/test: the default tests, or parts of the long run, each part in one pytest; one summary and one exit code.

dev/fuzz: property tests with random data for a given time. dev/bench: the benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from . import SetupError, environments, say
from .environments import variables
from .paths import CHECKOUT, memory, tree_digest

RESULTS = CHECKOUT / "build" / "test"
#: markers of the tests that only the long run has; every other test is a default test
LONG_MARKERS = ("qemu", "cluster", "fleet", "long")
#: seven workers for the two cores of the smallest machine, since tests wait for machines; a worker takes whole files,
#: since the tests of a file share a lab
PARALLEL = ("-n", "7", "--dist", "loadfile", "--no-loadscope-reorder")
#: tests that no ansible-core takes part in: once is enough
ONCE = ("tests/unit/liveimage/fuzz", "tests/unit/commands", "tests/unit/toolchain")
LAB = ("base", "lab", "go", "test")
#: variables of a user's shell that give tests other accounts, other data or another way to run, by their beginnings
FOREIGN = (
    "CI", "HCLOUD_", "HROBOT_", "HYPOTHESIS_", "KUBENODE_BUILT", "KUBENODE_HYPOTHESIS", "KUBENODE_LAB_", "PYTEST_",
    "ROBOT_",
)  # fmt: skip
NOTHING_CHOSEN = 5  # pytest's exit code when the arguments leave no test of a part
#: bytes of free memory from which on the disks of machines lie there; five workers had filled five GiB of it
PLENTY = 16 << 30
#: variables by which dev/pytest_suites.py learns where to write its counts, and what is still being built
COUNTS, BUILDING = "KUBENODE_TEST_COUNTS", "KUBENODE_TEST_BUILDING"
GRACE = 120  # seconds in which an interrupted pytest closes its labs and prints what it found


@dataclass(frozen=True)
class Part:
    """One run of pytest: what it checks, how long it takes on two cores, and what it needs."""

    name: str
    checks: str
    #: minutes on two cores with full caches and without KVM; a run with a deadline begins no part that would not fit
    minutes: int
    arguments: tuple[str, ...]
    core: str = "2.19"
    #: groups of dev/debian-packages.txt
    packages: tuple[str, ...] = LAB
    #: arguments of `python -m lab` that build what the tests need, before any test's time limit begins
    builds: tuple[tuple[str, ...], ...] = (("images", "build", "--all"),)
    environment: dict[str, str] = field(default_factory=dict)
    #: whether tests that need nothing of this run meanwhile (dev/pytest_suites.py makes the others wait)
    beside: bool = False
    #: whether the disks of its machines fit into the memory of a large host
    small_disks: bool = False


def _marked(marker: str, *without: str) -> tuple[str, ...]:
    chosen = " and ".join([marker, *(f"not {other}" for other in without)])
    return (*PARALLEL, "-m", chosen, "tests/lab", "tests/integration", "tests/unit/toolchain")


def _units(core: str) -> Part:
    arguments = ("-n", "3", *(f"--ignore={folder}" for folder in ONCE), "tests/unit")
    return Part(f"units-{core}", f"the unit tests on ansible-core {core}", 3, arguments, core, ("base",), ())


#: what an operator meets: playbooks as installed, from a folder of the user's own
_OF_OPERATORS = (
    *(f"integration/playbooks/test_{name}.py" for name in ("paths", "documents", "whole_run", "bad_input", "progress")),
    "integration/playbooks/test_hcloud_image_url.py::test_from_nothing_to_a_verified_system_and_again",
    "integration/hcloud/test_networks.py",
    *(f"integration/leaving/test_{name}.py" for name in ("hcloud_delete", "robot_release_dry")),
    *("unit/common", "unit/disks", "unit/docs", "unit/filters", "unit/hetzner", "unit/hetzner_robot"),
    *("unit/preflight", "unit/report"),
)


def _artefact(core: str) -> Part:
    arguments = ("-n", "3", "--dist", "loadfile", *(f"tests/{name}" for name in _OF_OPERATORS))
    checks = f"the built collection on ansible-core {core}: every command of README and the guides, what operators meet"
    return Part(f"artefact-{core}", checks, 14, arguments, core, environment={"KUBENODE_BUILT": "yes"})


#: sequences drawn from seeds: what they find is looked into, and kept as a test of its own
WALKS = ("tests/integration/consent/test_walk.py", "tests/integration/consent/test_walk_machines.py")
#: the matrix of faults at the size of a fleet
FAULTS = "tests/integration/faults"
AWX = "tests/integration/awx"
#: what `make test` runs
DEFAULT = Part(
    "default",
    "whether the product works: unit tests, the lab, modules and playbooks, machines that boot, a molecule scenario",
    12,
    (*PARALLEL, "-m", f"not ({' or '.join(LONG_MARKERS)})", "tests"),
    beside=True,
    small_disks=True,
)
#: the parts of the long run, in the order in which CI takes them
LONG = (
    *(_units(core) for core in ("2.18", "2.20", "2.21")),
    Part(
        "machines",
        "interruptions, faults and rare ways of provisioning, on container machines; releases of two clones",
        32,
        (*_marked("long", "qemu", "cluster"), *(f"--ignore={path}" for path in (*WALKS, FAULTS, AWX))),
        small_disks=True,
    ),
    Part("fleet", "50 container machines at once", 25, _marked("fleet")),
    Part(
        "node",
        "nodes of a real control plane: join, kubelet, first boot, the controller for live images",
        25,
        _marked("cluster", "qemu"),
    ),
    Part("qemu", "whole virtual machines: boot loaders, kernels, RAID, UEFI, nodes", 60, _marked("qemu")),
    Part(
        "random",
        "every property test with a random seed, which is printed",
        8,
        (*PARALLEL, "-m", f"hypothesis and not ({' or '.join(LONG_MARKERS)})", "tests"),
        environment={"KUBENODE_HYPOTHESIS": "random", "PYTHONHASHSEED": "random"},
    ),
    Part(
        "walk",
        "the long consent walk: operators, other people and killed runs in any order, in memory and on machines",
        25,
        (*PARALLEL, "-m", "long", *WALKS),
        small_disks=True,
    ),
    Part(
        "faults", "every fault over a fleet, until it is quiet", 30, (*PARALLEL, "-m", "long", FAULTS), small_disks=True
    ),
    Part(
        "awx",
        "jobs of AWX in an execution environment, and the image server's container",
        12,
        ("-m", "long", AWX),
        packages=(*LAB, "containers"),
    ),
    *(_artefact(core) for core in ("2.18", "2.19", "2.20", "2.21")),
)
PARTS = {part.name: part for part in (DEFAULT, *LONG)}


@dataclass
class Result:
    """How one part ended."""

    part: Part
    seconds: float
    code: int | None  # pytest's exit code; None where the deadline of the run ended it
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: passed, failed, skipped and seconds on all workers, by suite
    suites: dict[str, list[float]] = field(default_factory=dict)
    #: what failed, and the lines that say why
    reasons: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether the part ran to its end without a failure."""
        return self.code == 0

    @property
    def bad(self) -> bool:
        """Whether something failed; a part that the deadline ended may have passed until then."""
        return self.failed > 0 or self.code not in (0, None)


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen parts; 0 when every part that ran passed."""
    description = __doc__.partition("\n")[0].partition(": ")[2]
    parser = argparse.ArgumentParser(prog="dev/test", description=description)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"{', '.join(PARTS)}, or long: all of these but the first, which is run where none is named",
    )
    parser.add_argument("--list", action="store_true", help="print the parts, what they check and how long they take")
    parser.add_argument("--seconds", type=int, help="how long the whole run may take; says what did not fit")
    parser.add_argument("--again", action="store_true", help="run parts again that passed on this very tree")
    parser.add_argument("--pytest", default="", help="further arguments for pytest, quoted as in a shell, in one word")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(f"{part.name:12} {part.minutes:3} min  {part.checks}" for part in PARTS.values()))
        return 0
    words = chosen.parts or [DEFAULT.name]
    names = [name for word in words for name in ([part.name for part in LONG] if word == "long" else [word])]
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"part {unknown[0]} is unknown; there are {', '.join(PARTS)}")
    try:
        further = shlex.split(chosen.pytest)
    except ValueError as error:
        parser.error(f"--pytest: {chosen.pytest!r} cannot be split into arguments ({error}); close what is quoted")
    # started in the background of a shell we ignore Ctrl-C, and so would every program that a test interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    deadline = time.monotonic() + max(0, chosen.seconds) if chosen.seconds is not None else None
    again = chosen.again or len(names) == 1 or bool(further)
    return run([PARTS[name] for name in names], deadline, again, further)


def run(parts: Sequence[Part], deadline: float | None, again: bool, further: Sequence[str]) -> int:
    """Run the parts one after the other, go on after a failure, and print what ran and what did not."""
    results: list[Result] = []
    left_out: list[str] = []
    for part in parts:
        if not again and _passed_before(part):
            left_out.append(f"{part.name}: passed on this very tree before; --again runs it once more")
            continue
        left = deadline - time.monotonic() if deadline is not None else None
        if left is not None and left < part.minutes * 60:
            left_out.append(f"{part.name}: needs about {part.minutes} min, {max(0, left) / 60:.0f} min are left")
            continue
        results.append(_run(part, left, further))
        if results[-1].good and not further:
            _record(part).write_text(tree_digest(), encoding="ascii")
    if len(parts) > 1:
        _summary(results, left_out)
    return 1 if any(result.bad for result in results) else 0


class Builds:
    """What the lab builds for a part, one thing after the other: before its tests, or beside them."""

    def __init__(self, part: Part) -> None:
        # only root can
        self._left = list(part.builds) if os.geteuid() == 0 else []
        self._environment = variables()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def run(self) -> int:
        """0 when all is built."""
        while self._left and not self._stopped.is_set():
            command = [_python("main"), "-m", "lab", *self._left.pop(0)]
            # no shell around it: dash forgets an interrupt that comes before it has forked
            self._process = subprocess.Popen(
                command, env=self._environment, cwd=CHECKOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
            if self._stopped.is_set():
                _interrupt(self._process)
            try:
                code = self._process.wait()
            except KeyboardInterrupt:
                self.stop()
                raise
            if code:
                return code
        return int(self._stopped.is_set())

    def stop(self) -> None:
        self._stopped.set()
        if self._process is not None and self._process.poll() is None:
            _interrupt(self._process)

    @contextlib.contextmanager
    def beside(self, verdict: Path) -> Generator[None, None, None]:
        """Build meanwhile; the file is locked until the end is known, and holds the exit code then."""
        with verdict.open("w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            thread = threading.Thread(target=self._into, args=(file,))
            thread.start()
            try:
                yield
            finally:
                self.stop()
                thread.join()

    def _into(self, file: TextIO) -> None:
        try:
            file.write(str(self.run()))
            file.flush()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def _run(part: Part, left: float | None, further: Sequence[str]) -> Result:
    """Provide what the part needs, then run its pytest; `left` are the seconds until the deadline."""
    began = time.monotonic()
    RESULTS.mkdir(parents=True, exist_ok=True)
    counts = RESULTS / f"{part.name}.json"
    counts.unlink(missing_ok=True)
    print(f"== {part.name}: {part.checks}", flush=True)
    code: int | None
    try:
        _environments(part)
        builds = Builds(part)
        if part.beside:
            verdict = RESULTS / f"{part.name}.building"
            with builds.beside(verdict):
                code = _tests(part, left, further, {COUNTS: str(counts), BUILDING: str(verdict)})
        else:
            code = builds.run() or _tests(part, left, further, {COUNTS: str(counts)})
    except SetupError as error:
        say(f"failed: {error}")
        code = 1
    found = json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {}
    return Result(part, time.monotonic() - began, code, **found)


def _tests(part: Part, left: float | None, further: Sequence[str], files: dict[str, str]) -> int | None:
    """pytest's exit code, or None when it was ended at the deadline."""
    environment = {**test_variables(name := environments.CORES[part.core]), **part.environment, **files}
    if part.small_disks and (folder := memory(PLENTY)):
        environment.setdefault("KUBENODE_DISKS", str(folder / "kubenode-labs"))
    command = [_python(name), "-m", "pytest", "-q", "--durations=20", *part.arguments, *further]
    if part.environment.get("KUBENODE_HYPOTHESIS") == "random":
        command.append(f"--hypothesis-seed={_seed()}")
    # a folder of its own: another pytest of the same user removes what is older than its three last runs
    environment["PYTEST_DEBUG_TEMPROOT"] = folders = tempfile.mkdtemp(prefix="pytest-")
    if (code := _wait(command, environment, left)) == 0:
        shutil.rmtree(folders, ignore_errors=True)
    return 0 if further and code == NOTHING_CHOSEN else code


def test_variables(name: str) -> dict[str, str]:
    """The process environment of a pytest; sets have the same order in every run."""
    # where labs lie is a matter of the host
    own = ("KUBENODE_LAB_DIR",)
    kept = {key: value for key, value in variables(name).items() if key in own or not key.startswith(FOREIGN)}
    return {**kept, "PYTHONHASHSEED": "0"}


def _seed() -> int:
    seed = random.SystemRandom().randrange(2**32)
    repeat = f"KUBENODE_HYPOTHESIS=random dev/run pytest --hypothesis-seed={seed}"
    print(f"seed {seed}; the same again: {repeat}", flush=True)
    return seed


def _environments(part: Part) -> None:
    environments.ensure_debian(list(part.packages))
    environments.ensure("main")
    environments.ensure(environments.CORES[part.core])


def _python(name: str) -> str:
    return str(environments.ENVIRONMENTS[name].folder / "bin" / "python")


def _wait(command: list[str], environment: dict[str, str], left: float | None) -> int | None:
    """pytest's exit code, or None when it was ended at the deadline."""
    # a group of its own, so that workers and what they started are interrupted with it, as by Ctrl-C at a terminal
    process = subprocess.Popen(command, env=environment, cwd=CHECKOUT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(left)
    except subprocess.TimeoutExpired:
        _interrupt(process)
        return None
    except KeyboardInterrupt:
        _interrupt(process)
        raise


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: first as Ctrl-C does, so that labs are closed."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _record(part: Part) -> Path:
    """The file that says on which tree a part passed last."""
    return RESULTS / f"{part.name}.passed"


def _passed_before(part: Part) -> bool:
    record = _record(part)
    return record.exists() and record.read_text(encoding="ascii") == tree_digest()


def _summary(results: Sequence[Result], left_out: Sequence[str], out: Callable[[str], None] = print) -> None:
    out(f"\n{'part':12} {'minutes':>7} {'passed':>7} {'failed':>7} {'skipped':>7}")
    for result in results:
        verdict = "" if result.good else "  FAILED" if result.bad else "  ended at the deadline: not whole"
        counts = f"{result.passed:7} {result.failed:7} {result.skipped:7}"
        out(f"{result.part.name:12} {result.seconds / 60:7.1f} {counts}{verdict}")
        for name, (passed, failed, skipped, _seconds) in sorted(result.suites.items()):
            out(f"  {name:18} {passed:7} {failed:7} {skipped:7}")
    for line in left_out:
        out(f"not run: {line}")
    total = [sum(getattr(result, name) for result in results) for name in ("passed", "failed", "skipped")]
    out(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    # once more at the end, which is what is kept of a long output
    for line in [line for result in results for line in result.reasons][:60]:
        out(line)


PATCHES = CHECKOUT / ".hypothesis" / "patches"


def fuzz(arguments: list[str] | None = None) -> int:
    """dev/fuzz: explore for a given time; 0 when nothing was found."""
    parser = argparse.ArgumentParser(
        prog="dev/fuzz",
        description="property tests with random data for a given time; what fails becomes an @example in its test.",
    )
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    parser.add_argument("pytest", nargs=argparse.REMAINDER, help="tests and further arguments for pytest")
    chosen = parser.parse_args(arguments)
    environments.ensure_debian(["base"])
    environment = {**test_variables("main"), "KUBENODE_HYPOTHESIS": "fuzz"}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    before = _patches()
    failed = _explore(environment, time.monotonic() + chosen.seconds, chosen.pytest)
    found = sorted(_patches() - before)
    for patch in found:
        _keep(patch)
    print(f"fuzz: {failed} tests failed, {len(found)} patches with examples")
    return 1 if failed else 0


@dataclass
class Round:
    """One run of pytest with a seed of its own."""

    process: subprocess.Popen[bytes]
    counts: Path

    def failed(self) -> int:
        """How many tests found something; an interrupted round reports it, too."""
        if not self.counts.exists():
            return int(self.process.returncode not in (0, 2, 5))  # passed, interrupted, no test chosen
        failed: int = json.loads(self.counts.read_text(encoding="ascii"))["failed"]
        return failed


def _explore(environment: dict[str, str], deadline: float, further: list[str]) -> int:
    """One round a core at a time until the deadline; the number of failed tests."""
    running: list[Round] = []
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < deadline:
            while len(running) < (os.cpu_count() or 1):
                running.append(_begin(environment, Path(folder), further))
            time.sleep(1)
            ended = [item for item in running if item.process.poll() is not None]
            failed += sum(item.failed() for item in ended)
            running = [item for item in running if item not in ended]
        for item in running:
            item.process.send_signal(signal.SIGINT)
        for item in running:
            try:
                item.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                item.process.kill()
                item.process.wait()
            failed += item.failed()
    return failed


def _begin(environment: dict[str, str], folder: Path, further: list[str]) -> Round:
    seed = random.SystemRandom().randrange(2**32)
    print(f"fuzz: a round with seed {seed}", flush=True)
    counts = folder / f"{seed}.json"
    command = [_python("main"), "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    command.append(f"--hypothesis-seed={seed}")
    command += ["-m", f"hypothesis and not ({' or '.join(LONG_MARKERS)})", *(further or ["tests/unit", "tests/lab"])]
    own = {**environment, COUNTS: str(counts)}
    return Round(subprocess.Popen(command, env=own, cwd=CHECKOUT, stdin=subprocess.DEVNULL), counts)


def _patches() -> set[Path]:
    return set(PATCHES.glob("*.patch"))


def _keep(patch: Path) -> None:
    """Put the examples of a patch into their tests; say where it does not fit."""
    done = subprocess.run(
        ["git", "-C", str(CHECKOUT), "apply", "--verbose", str(patch)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(done.stdout.decode(errors="replace").strip())
    if done.returncode:
        print(f"fuzz: {patch} does not apply to these files as they are; it has the examples")


BENCHMARKS = CHECKOUT / "tests" / "bench"
BENCH_RESULTS = CHECKOUT / "build" / "bench"


def bench(arguments: list[str] | None = None) -> int:
    """dev/bench: run the named benchmarks or all; 0 when every one ended well."""
    known = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(
        prog="dev/bench",
        description="the benchmarks below tests/bench, one after the other; each writes build/bench/NAME.json.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all ({', '.join(known)})")
    names = parser.parse_args(arguments).names or known
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"benchmark {unknown[0]} is unknown; there are {', '.join(known) or 'none'}")
    environment = variables()
    BENCH_RESULTS.mkdir(parents=True, exist_ok=True)
    failed = [name for name in names if not _benchmark(name, environment)]
    if failed:
        say("failed: benchmark " + ", ".join(failed))
    return 1 if failed else 0


def _benchmark(name: str, environment: dict[str, str]) -> bool:
    """One benchmark as a program of its own; without a result file it counts as failed."""
    result = BENCH_RESULTS / (name + ".json")
    result.unlink(missing_ok=True)
    done = subprocess.run(["python", str(BENCHMARKS / (name + ".py"))], cwd=CHECKOUT, env=environment, check=False)
    return done.returncode == 0 and result.exists()


if __name__ == "__main__":
    raise SystemExit(main())
