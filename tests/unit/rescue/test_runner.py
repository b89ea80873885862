# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The in-rescue runner, for real: its commands run here, below a directory of their own."""

from __future__ import annotations

import base64
import gzip
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol

RUNNER = Path(jobs.__file__).with_name("runner.sh")
JOB = "a" * 64
#: Hides the cgroup tree, so that the runner has to find processes by their session and their mark.
WITHOUT_CGROUPS = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]


class Rescue:
    """A directory that stands for /root of a rescue system."""

    def __init__(self, base: Path, prefix: list[str]) -> None:
        self.base, self.prefix = base, prefix
        self.dir = base / protocol.STATE_DIR
        self.dir.mkdir(mode=0o700)
        (base / protocol.RUNNER).write_bytes(RUNNER.read_bytes())
        (base / protocol.BOOTSTRAP).write_text("#cloud-config\n")
        self.grace = "1"

    def install(self, command: str) -> None:
        path = self.base / protocol.COMMAND
        path.write_text("#!/bin/sh\n" + command)
        path.chmod(0o700)
        (self.dir / "arguments").write_text("https://image.example/a b.raw?x='y'\nnode-1\nsda sdb\n")
        (self.dir / "token").write_text("user:pass word")

    def runner(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ, KUBENODE_BASE=str(self.base), KUBENODE_GRACE=self.grace)
        return subprocess.run(
            [*self.prefix, "sh", str(self.base / protocol.RUNNER), *arguments],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip

    def start(self, command: str, limit: int = 200, job: str = JOB) -> protocol.Status:
        self.install(command)
        answer = self.runner("start", job, str(limit))
        assert answer.returncode == 0, answer.stderr
        return protocol.parse_status(answer.stdout)

    def status(self, offset: int = 0) -> protocol.Status:
        return protocol.parse_status(self.runner("status", str(offset)).stdout)

    def wait(self, seconds: float = 150, state: str | None = None) -> protocol.Status:
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            if status.state == state if state else status.state != protocol.RUNNING:
                return status
            assert time.monotonic() < deadline, f"still {status.state} after {seconds} s"
            time.sleep(0.05)

    def wait_for(self, name: str, seconds: float = 60) -> str:
        deadline = time.monotonic() + seconds
        while not ((path := self.base / name).exists() and path.read_text().strip()):
            assert time.monotonic() < deadline, f"{name} did not appear"
            time.sleep(0.02)
        return path.read_text().strip()

    def fetch(self, name: str) -> bytes:
        return gzip.decompress(protocol.parse_fetch(self.runner("fetch", name).stdout))


@pytest.fixture
def rescue(tmp_path):
    rescue = Rescue(tmp_path, [])
    yield rescue
    rescue.runner("stop")


@pytest.fixture(params=["cgroup", pytest.param("session", marks=pytest.mark.root)])
def either(request, tmp_path):
    rescue = Rescue(tmp_path, WITHOUT_CGROUPS if request.param == "session" else [])
    yield rescue
    rescue.runner("stop")


def alive(pid: str | int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def runner_pid(rescue: Rescue) -> int:
    lines = dict(line.split("=", 1) for line in (rescue.dir / "state").read_text().splitlines())
    return int(lines["runner"])


def test_success_is_reported_with_both_streams_and_their_times(rescue):
    first = rescue.start("echo one; echo two >&2; sleep 0.3; echo IMAGE_URL_DONE")
    assert first.state == protocol.RUNNING
    assert first.job == JOB
    status = rescue.wait()
    assert (status.state, status.exit_code, status.marker, status.left) == (protocol.EXITED, 0, True, 0)
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert 0.3 <= status.seconds < 5
    assert rescue.fetch("stdout") == b"one\nIMAGE_URL_DONE\n"
    assert rescue.fetch("stderr") == b"two\n"
    lines = [line.split(" ", 2) for line in status.log.decode().splitlines()]
    assert sorted((stream, text) for _seconds, stream, text in lines) == [
        ("err", "two"), ("out", "IMAGE_URL_DONE"), ("out", "one"),
    ]  # fmt: skip
    assert 0.3 <= float(lines[-1][0]) <= status.seconds


def test_arguments_environment_and_surroundings_are_caphs(rescue):
    rescue.start(
        'printf "%s|" "$@"; echo; echo "$OCI_REGISTRY_AUTH_TOKEN"; pwd; readlink /proc/self/fd/0; umask;'
        " read -r line </proc/$$/stat; set -- ${line##*) }; [ $4 = $$ ] && echo own session; echo IMAGE_URL_DONE"
    )
    assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stdout").decode().splitlines() == [
        f"https://image.example/a b.raw?x='y'|{rescue.base}/bootstrap.data|node-1|sda sdb|",
        "user:pass word",
        str(rescue.base),
        "/dev/null",
        "0022",
        "own session",
        "IMAGE_URL_DONE",
    ]


def test_the_token_is_in_no_argument_and_no_file_once_the_command_runs(rescue):
    rescue.start("echo $$ > pid; sleep 20")
    rescue.wait_for("pid")
    assert not (rescue.dir / "token").exists()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"user:pass word" not in process.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    for file in rescue.dir.iterdir():
        if file.is_file():
            assert b"user:pass word" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("command", "exit_code", "marker", "strict", "lenient"),
    [
        ("echo IMAGE_URL_DONE; exit 1", 1, True, False, True),
        ("echo IMAGE_URL_DONE; echo late >&2", 0, True, True, True),
        ("echo IMAGE_URL_DONE; echo; echo '   '", 0, True, True, True),
        ("printf 'all IMAGE_URL_DONE now'", 0, True, True, True),
        ("echo IMAGE_URL_DONE; echo more", 0, False, False, False),
        ("echo IMAGE_URL_DONE >&2", 0, False, False, False),
        ("true", 0, False, False, False),
        ("kill -9 $$", 137, False, False, False),
        ("exec /nonexistent/program", 127, False, False, False),
        ("printf '\\000\\377\\nIMAGE_URL_DONE\\000\\n'", 0, True, True, True),
    ],
)
def test_success_needs_the_marker_on_the_last_line_of_stdout(rescue, command, exit_code, marker, strict, lenient):
    rescue.start(command)
    status = rescue.wait()
    assert (status.state, status.exit_code, status.marker) == (protocol.EXITED, exit_code, marker)
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE) is strict
    assert status.succeeded(protocol.MARKER_ONLY) is lenient


def test_a_hanging_command_is_killed_at_its_limit_with_everything_it_started(either):
    either.start(
        "trap '' TERM\n"
        "sleep 300 & echo $! > child\n"
        "setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do sleep 0.1; done' &\n"
        "setsid -f sh -c 'trap \"\" TERM; echo $$ > orphan; exec sleep 300'\n"
        "(sleep 301 & echo $! > grandchild)\n"
        "echo started; while :; do sleep 0.1; done",
        limit=1,
    )
    pids = [either.wait_for(name) for name in ("child", "escaped", "orphan", "grandchild")]
    assert all(alive(pid) for pid in pids)
    status = either.wait()
    assert (status.state, status.left, status.limit) == (protocol.TIMEOUT, 0, 1)
    assert not status.succeeded(protocol.MARKER_ONLY)
    assert [pid for pid in pids if alive(pid)] == []
    assert status.seconds >= 2  # limit and grace
    assert either.fetch("stdout") == b"started\n"


def test_a_command_that_heeds_term_is_not_waited_for(rescue):
    rescue.grace = "100"
    rescue.start("trap 'echo cleaned up; kill $!; exit 143' TERM; sleep 300 & wait", limit=1)
    status = rescue.wait()
    assert (status.state, status.exit_code) == (protocol.TIMEOUT, 143)
    assert status.seconds < 100
    assert rescue.fetch("stdout") == b"cleaned up\n"


def test_a_marker_printed_after_the_limit_is_no_success(rescue):
    rescue.start("trap 'echo IMAGE_URL_DONE; exit 0' TERM; sleep 300 & wait", limit=1)
    status = rescue.wait()
    assert (status.state, status.marker) == (protocol.TIMEOUT, True)
    assert not status.succeeded(protocol.MARKER_ONLY)


def test_what_the_command_leaves_behind_is_ended_with_it(either):
    either.start(
        "setsid -f sh -c 'echo $$ > left; exec sleep 300'; while [ ! -s left ]; do :; done; echo IMAGE_URL_DONE"
    )
    status = either.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert not alive(either.wait_for("left"))


def test_stop_ends_a_running_command(either):
    either.start("sleep 300 & echo $! > child; wait")
    child = either.wait_for("child")
    assert protocol.parse_status(either.runner("stop").stdout).state == protocol.KILLED
    assert not alive(child)


def test_a_killed_runner_is_noticed_and_the_limit_still_holds(either):
    either.start("echo $$ > command; while :; do sleep 0.1; done", limit=10)
    command = either.wait_for("command")
    os.kill(runner_pid(either), signal.SIGKILL)
    assert either.wait(60).state == protocol.LOST
    assert alive(command)
    deadline = time.monotonic() + 100
    while alive(command):
        assert time.monotonic() < deadline, "the watchdog died with the runner"
        time.sleep(0.1)


def test_a_start_after_a_killed_runner_ends_the_old_command_first(either):
    either.start("trap '' TERM; echo $$ > command; while :; do sleep 0.1; done")
    old = either.wait_for("command")
    os.kill(runner_pid(either), signal.SIGKILL)
    assert either.wait(60).state == protocol.LOST
    either.start(f"grep -q '^State:.[^ZX]' /proc/{old}/status 2>/dev/null && echo two writers; echo IMAGE_URL_DONE")
    status = either.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert either.fetch("stdout") == b"IMAGE_URL_DONE\n"


def test_a_second_start_attaches_and_another_job_is_refused(rescue):
    run = rescue.start("echo ran >> runs; sleep 300").run
    rescue.wait_for("runs")
    again = rescue.runner("start", JOB, "30")
    assert protocol.parse_status(again.stdout).run == run
    other = rescue.runner("start", "b" * 64, "30")
    assert other.returncode == 75
    assert "another command is running" in other.stderr
    assert (rescue.base / "runs").read_text() == "ran\n"


def test_two_starts_at_once_run_the_command_once(rescue):
    rescue.install("echo ran >> runs; sleep 1; echo IMAGE_URL_DONE")
    environment = dict(os.environ, KUBENODE_BASE=str(rescue.base))
    both = [
        subprocess.Popen(
            ["sh", str(rescue.base / protocol.RUNNER), "start", JOB, "30"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _process in range(2)
    ]  # fmt: skip
    for process in both:
        process.communicate(timeout=30)
    rescue.wait()
    assert (rescue.base / "runs").read_text() == "ran\n"


def test_the_end_of_a_quick_command_is_never_missed(tmp_path):
    # A signal that reaches a child before it has become another program is lost; many quick runs at once meet that.
    def many(number: int) -> None:
        (tmp_path / str(number)).mkdir()
        rescue = Rescue(tmp_path / str(number), [])
        for _run in range(12):
            rescue.start("echo IMAGE_URL_DONE", limit=100)
            assert rescue.wait(80).succeeded(protocol.MARKER_AND_EXIT_CODE)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(many, number) for number in range(6)]:
            done.result()


def test_a_later_run_starts_with_empty_logs(rescue):
    rescue.start('echo \'{"message": "old"}\' > output.json; echo first; exit 3')
    assert rescue.wait().message == "old"
    rescue.start("echo second; echo IMAGE_URL_DONE")
    status = rescue.wait()
    assert status.message == ""
    assert b"first" not in status.log


def test_a_poll_brings_only_what_is_new(rescue):
    rescue.start("for i in 1 2 3 4 5 6 7 8 9; do echo line $i; sleep 0.1; done; echo IMAGE_URL_DONE")
    log, offset = b"", 0
    while True:
        status = rescue.status(offset)
        assert status.offset == offset
        log, offset = log + status.log, status.next_offset
        if status.state != protocol.RUNNING and offset == status.log_size:
            break
        time.sleep(0.05)
    assert log == rescue.fetch("interleaved")
    assert rescue.status(offset).log == b""


def test_a_poll_that_waits_answers_as_soon_as_the_command_ends(rescue):
    rescue.start("until [ -e seen ]; do sleep 0.05; done; echo IMAGE_URL_DONE")
    began = time.monotonic()
    early = protocol.parse_status(rescue.runner("status", "0", "0.2").stdout)
    assert early.state == protocol.RUNNING
    assert time.monotonic() - began >= 0.2
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rescue.runner, "status", "0", "100")
        time.sleep(0.5)
        assert not waiting.done()
        (rescue.base / "seen").touch()
        late = protocol.parse_status(waiting.result().stdout)
    assert late.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert late.next_offset == late.log_size
    assert time.monotonic() - began < 60


def test_progress_is_read_from_output_json(rescue):
    rescue.start(
        'echo \'{"message": "42 %"}\' >output.json; until [ -e seen ]; do sleep 0.05; done\n'
        "printf '{\"mess' >output.json; echo now >half; sleep 100"
    )
    rescue.wait_for("output.json")
    assert rescue.status().message == "42 %"
    (rescue.base / "seen").touch()
    rescue.wait_for("half")
    assert rescue.status().message == ""


def test_many_lines_are_recorded_quickly_and_completely(rescue):
    began = time.monotonic()
    rescue.start(
        "i=0; while [ $i -lt 50000 ]; do echo line $i of a chatty command; i=$((i+1)); done; echo IMAGE_URL_DONE"
    )
    status = rescue.wait()
    took = time.monotonic() - began
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    stdout = rescue.fetch("stdout")
    assert stdout.count(b"\n") == 50001
    interleaved = rescue.fetch("interleaved").splitlines()
    assert [line.split(b" ", 2)[2] for line in interleaved] == stdout.splitlines()
    assert took < 100  # about 2 s on an idle core


def test_binary_output_is_kept_byte_for_byte(rescue):
    noise = bytes(range(256)) * 64
    (rescue.base / "noise").write_bytes(noise)
    rescue.start("cat noise; cat noise >&2; echo; echo IMAGE_URL_DONE")
    status = rescue.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stdout") == noise + b"\nIMAGE_URL_DONE\n"
    assert rescue.fetch("stderr") == noise


def test_nothing_is_readable_by_others(rescue):
    rescue.start("echo IMAGE_URL_DONE; sleep 0.2")
    rescue.wait()
    for file in ("state", "stdout", "stderr", "interleaved", "lock"):
        assert (rescue.dir / file).stat().st_mode & 0o077 == 0, file


def test_a_state_of_an_earlier_boot_is_none(rescue):
    rescue.start("echo IMAGE_URL_DONE")
    rescue.wait()
    state = rescue.dir / "state"
    state.write_text(state.read_text().replace("boot=", "boot=0"))
    assert rescue.status().state == protocol.NONE


def test_no_cgroup_is_left_behind(rescue):
    rescue.start("echo IMAGE_URL_DONE")
    rescue.wait()
    run = rescue.status().run
    deadline = time.monotonic() + 5
    while any(Path(root, f"kubenode-{run}").exists() for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_unknown_words_are_refused(rescue):
    assert rescue.runner("fetch", "../token").returncode == 64
    assert rescue.runner("begin").returncode == 64
    with pytest.raises(protocol.ProtocolError):
        protocol.parse_fetch(base64.b64encode(b"cut").decode())
