# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The in-rescue runner, for real: its commands run here, below a directory of their own."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from tests.folders import put, put_programs
from tests.unit.rescue.system import JOB, ON_DEMAND, Rescue, alive, cgroups
from tests.waiting import until

#: Hides the cgroup tree, so that the runner has to find processes by their session and their mark.
WITHOUT_CGROUPS = [
    "unshare",
    "--mount",
    "--propagation",
    "slave",
    "sh",
    "-c",
    'mount -t tmpfs none /sys/fs/cgroup && exec "$@"',
    "sh",
]

#: Keeps a command running until the test writes the file ``go``.
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"


@pytest.fixture
def rescue(tmp_path):
    rescue = Rescue(tmp_path, [])
    yield rescue
    rescue.end()


@pytest.fixture(params=["cgroup", pytest.param("session", marks=pytest.mark.root)])
def either(request, tmp_path):
    rescue = Rescue(tmp_path, WITHOUT_CGROUPS if request.param == "session" else [])
    yield rescue
    rescue.end()


def runner_pid(rescue: Rescue) -> int:
    lines = dict(line.split("=", 1) for line in (rescue.dir / "state").read_text().split())
    return int(lines["runner"])


def test_a_command_starts_and_ends_in_the_first_second_of_a_system(rescue):
    clock = put(rescue.base / "uptime", "0.08 0.00\n")
    runner = rescue.base / protocol.RUNNER
    runner.write_text(runner.read_text().replace("/proc/uptime", str(clock)))
    rescue.start("echo IMAGE_URL_DONE")
    assert rescue.wait("exited").succeeded(protocol.MARKER_AND_EXIT_CODE)


def test_success_is_reported_with_both_streams_and_their_times(rescue):
    first = rescue.start(f"echo one; echo two >&2; {UNTIL_GO}; sleep 0.3; echo IMAGE_URL_DONE")
    assert first.state == protocol.RUNNING
    assert first.job == JOB
    until(lambda: rescue.status().log.count(b"\n") == 2, "both lines in the log", show=rescue.status)
    between = rescue.status().seconds
    rescue.go()
    status = rescue.wait()
    assert (status.state, status.exit_code, status.marker, status.left) == (protocol.EXITED, 0, True, 0)
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stdout") == b"one\nIMAGE_URL_DONE\n"
    assert rescue.fetch("stderr") == b"two\n"
    lines = [line.split(" ", 2) for line in status.log.decode().splitlines()]
    assert sorted((stream, text) for _seconds, stream, text in lines) == [
        ("err", "two"), ("out", "IMAGE_URL_DONE"), ("out", "one"),
    ]  # fmt: skip
    seconds = [float(line[0]) for line in lines]
    assert 0 <= seconds[0] <= seconds[1] <= between
    assert between + 0.29 <= seconds[2]
    assert between + 0.29 <= status.seconds


def test_an_answer_costs_a_busy_machine_few_processes(rescue):
    """Fifty machines are asked every second or two; each process of theirs is a millisecond."""
    rescue.start(f"echo one; echo '{{}}' >output.json; {UNTIL_GO}")
    until(lambda: rescue.status().log, "a line in the log", show=rescue.status)
    until((rescue.base / "output.json").exists, "the message")
    for name in ("flock", "stat", "head", "tail", "base64", "wc", "cat", "sed", "grep", "tr"):
        counted = f'#!/bin/sh\necho {name} >>"$KUBENODE_BASE/counted"\nPATH=${{PATH#*:}} exec {name} "$@"\n'
        put(rescue.base / "bin" / name, counted, 0o755)
    status = rescue.status()
    assert status.log.endswith(b"one\n")
    assert sorted((rescue.base / "counted").read_text().split()) == [
        "base64", "base64", "flock", "head", "head", "stat", "tail",
    ]  # fmt: skip
    rescue.go()


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
    rescue.start("echo $$ > pid; sleep 600")
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
        limit=ON_DEMAND,
    )
    pids = [either.wait_for(name) for name in ("child", "escaped", "orphan", "grandchild")]
    assert all(alive(pid) for pid in pids)
    before = either.status()
    either.end_limit()
    status = either.wait()
    assert (status.state, status.left, status.limit) == (protocol.TIMEOUT, 0, ON_DEMAND)
    assert not status.succeeded(protocol.MARKER_ONLY)
    assert [pid for pid in pids if alive(pid)] == []
    assert status.seconds >= before.seconds + 1  # the grace
    assert either.fetch("stdout") == b"started\n"


def test_the_limit_is_counted_in_seconds(rescue):
    rescue.start("sleep 600; echo IMAGE_URL_DONE", limit=1)
    status = rescue.wait()
    assert (status.state, status.limit, status.marker) == (protocol.TIMEOUT, 1, False)
    assert status.seconds >= 1


def test_a_command_that_heeds_term_is_not_waited_for(rescue):
    rescue.grace = "1000"  # longer than this test waits
    rescue.start("trap 'echo cleaned up; kill $!; exit 143' TERM; sleep 600 & echo set > trap; wait", limit=ON_DEMAND)
    rescue.wait_for("trap")
    rescue.end_limit()
    status = rescue.wait()
    assert (status.state, status.exit_code) == (protocol.TIMEOUT, 143)
    assert rescue.fetch("stdout") == b"cleaned up\n"


def test_a_marker_printed_after_the_limit_is_no_success(rescue):
    rescue.grace = "1000"
    rescue.start("trap 'echo IMAGE_URL_DONE; exit 0' TERM; sleep 600 & echo set > trap; wait", limit=ON_DEMAND)
    rescue.wait_for("trap")
    rescue.end_limit()
    status = rescue.wait()
    assert (status.state, status.marker) == (protocol.TIMEOUT, True)
    assert not status.succeeded(protocol.MARKER_ONLY)


def test_what_the_command_leaves_behind_is_ended_with_it(either):
    either.start(
        "setsid -f sh -c 'echo $$ > left; exec sleep 600'; until [ -s left ]; do sleep 0.05; done; echo IMAGE_URL_DONE"
    )
    status = either.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert not alive(either.wait_for("left"))


@pytest.mark.root
def test_what_becomes_another_program_is_not_missed(tmp_path):
    """Between two programs a process has no environment, by which it is found without a cgroup."""
    for number in range(12):
        rescue = Rescue(put(tmp_path / str(number) / "again", "exec sh ./again\n").parent, WITHOUT_CGROUPS)
        leave = "setsid -f sh -c 'echo $$ > left; exec sh ./again'"
        rescue.start(f"{leave}; until [ -s left ]; do sleep 0.01; done; echo IMAGE_URL_DONE")
        assert rescue.wait().left == 0
        assert not alive(rescue.wait_for("left"))


def test_stop_ends_a_running_command(either):
    either.start("sleep 300 & echo $! > child; wait")
    child = either.wait_for("child")
    assert protocol.parse_status(either.runner("stop").stdout).state == protocol.KILLED
    assert not alive(child)


def test_a_killed_runner_is_noticed_and_the_limit_still_holds(either):
    either.start("echo $$ > command; while :; do sleep 0.1; done", limit=ON_DEMAND)
    command = either.wait_for("command")
    os.kill(runner_pid(either), signal.SIGKILL)
    assert either.wait().state == protocol.LOST
    assert alive(command)
    either.end_limit()
    until(lambda: not alive(command), "the end of the command by the watchdog", show=either.status)


def test_a_start_after_a_killed_runner_ends_the_old_command_first(either):
    either.start("trap '' TERM; echo $$ > command; while :; do sleep 0.1; done")
    old = either.wait_for("command")
    os.kill(runner_pid(either), signal.SIGKILL)
    assert either.wait().state == protocol.LOST
    either.start(f"grep -q '^State:.[^ZX]' /proc/{old}/status 2>/dev/null && echo two writers; echo IMAGE_URL_DONE")
    status = either.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert either.fetch("stdout") == b"IMAGE_URL_DONE\n"


def test_a_second_start_attaches_and_another_job_is_refused(rescue):
    run = rescue.start("echo ran >> runs; sleep 600").run
    rescue.wait_for("runs")
    again = rescue.runner("start", JOB, "30")
    assert protocol.parse_status(again.stdout).run == run
    other = rescue.runner("start", "b" * 64, "30")
    assert other.returncode == 75
    assert "another command is running" in other.stderr
    assert (rescue.base / "runs").read_text() == "ran\n"


def test_two_starts_at_once_run_the_command_once(rescue):
    rescue.install("echo ran >> runs; sleep 1; echo IMAGE_URL_DONE")
    both = [
        subprocess.Popen(
            rescue.argv("start", JOB, "1000"),
            env=rescue.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _process in range(2)
    ]  # fmt: skip
    for process in both:
        process.communicate(timeout=600)
    rescue.wait()
    assert (rescue.base / "runs").read_text() == "ran\n"


def test_the_end_of_a_quick_command_is_never_missed(tmp_path):
    # A signal that reaches a child before it has become another program is lost; many quick runs at once meet that.
    def many(number: int) -> None:
        (tmp_path / str(number)).mkdir()
        rescue = Rescue(tmp_path / str(number), [])
        for _run in range(5):
            rescue.start("echo IMAGE_URL_DONE", limit=1000)
            assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)

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
    rescue.start(f"{UNTIL_GO}; echo IMAGE_URL_DONE", limit=10_000)
    began = time.monotonic()
    early = protocol.parse_status(rescue.runner("status", "0", "0.2").stdout)
    assert early.state == protocol.RUNNING
    assert time.monotonic() - began >= 0.2
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(rescue.runner, "status", "0", "5000")  # longer than a runner may take here
        until(lambda: waiting_for(rescue.dir / "lock"), "the poll that waits")
        rescue.go()
        late = protocol.parse_status(poll.result().stdout)
    assert late.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert late.next_offset == late.log_size


def waiting_for(lock: Path) -> bool:
    """Whether a poll waits for this lock."""
    wanted = f"flock -s -w 5000 {lock} true".replace(" ", "\0").encode()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in process.read_bytes():
                return True
    return False


def test_progress_is_read_from_output_json(rescue):
    rescue.start(
        'echo \'{"message": "42 %"}\' >output.json; until [ -e seen ]; do sleep 0.05; done\n'
        "printf '{\"mess' >output.json; : >half; sleep 600"
    )
    rescue.wait_for("output.json")
    assert rescue.status().message == "42 %"
    (rescue.base / "seen").touch()
    until((rescue.base / "half").exists, "half of a message")
    assert rescue.status().message == ""


def test_many_lines_are_recorded_completely(rescue):
    rescue.start(
        "i=0; while [ $i -lt 50000 ]; do echo line $i of a chatty command; i=$((i+1)); done; echo IMAGE_URL_DONE"
    )
    status = rescue.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    stdout = rescue.fetch("stdout")
    assert stdout.count(b"\n") == 50001
    interleaved = rescue.fetch("interleaved").splitlines()
    assert [line.split(b" ", 2)[2] for line in interleaved] == stdout.splitlines()


def test_slow_records_are_completed_after_the_end_of_the_command(rescue):
    slow = f'while read -r line; do sleep 0.5; echo "$line" | {shutil.which("tee")} -a "$1" "$2"; done 9>"$2"'
    put_programs(rescue.base / "bin", {"tee": slow})
    rescue.start("for i in 1 2 3 4 5 6 7 8; do echo $i; done; echo IMAGE_URL_DONE")
    assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stdout") == b"1\n2\n3\n4\n5\n6\n7\n8\nIMAGE_URL_DONE\n"
    assert rescue.fetch("interleaved").count(b"\n") == 9


@pytest.mark.root
@pytest.mark.parametrize(
    ("each", "words"),
    [
        ("echo o $i; echo e $i >&2", "oe"),
        ("echo o $i; echo p $i; echo e $i >&2; echo f $i >&2", "opef"),
        ("printf 'o %s\\np %s\\n' $i $i; echo e $i >&2", "ope"),
        ("/bin/echo o $i; /bin/echo e $i >&2", "oe"),
        ("echo o $i | tee /dev/stderr | sed s/o/p/", "op"),
        ("echo o $i >/dev/stdout; echo e $i >/dev/stderr", "oe"),
    ],
)
def test_both_streams_are_recorded_in_the_order_in_which_they_were_written(rescue, each, words):
    """Two pipes alone do not show it: before, every second pair of `echo o; echo e >&2` was exchanged."""
    count = 300 if "/" not in each else 60
    rescue.start(f"i=0; while [ $i -lt {count} ]; do {each}; i=$((i + 1)); done; echo IMAGE_URL_DONE")
    assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)
    lines = [line.split(" ", 2)[1:] for line in rescue.fetch("interleaved").decode().splitlines()]
    stream = {"o": "out", "p": "out", "e": "err", "f": "err"}
    if ">/dev/" in each:
        # opened again, a pipe takes more than one write before the first one is read: each stream has its own order
        wanted = {"out": [*(f"o {i}" for i in range(count)), "IMAGE_URL_DONE"], "err": [f"e {i}" for i in range(count)]}
        assert {name: [text for one, text in lines if one == name] for name in wanted} == wanted
        return
    assert lines[-1] == ["out", "IMAGE_URL_DONE"]
    if "tee" in each:
        # two programs at once: what is certain is that the copy was there before what was made of it
        shown = [text for name, text in lines if name == "out"]
        assert shown[:-1] == [f"p {i}" for i in range(count)]
        assert [text for name, text in lines if name == "err"] == [f"o {i}" for i in range(count)]
        return
    assert lines[:-1] == [[stream[word], f"{word} {i}"] for i in range(count) for word in words]


def test_what_records_leaves_no_trace_in_the_surroundings_of_the_command(rescue):
    """Signals that Python ignores, and the locale that it makes of C."""
    rescue.start(
        "grep SigIgn /proc/self/status; env | grep LC_CTYPE; (yes; echo ended $?) | head -n 1; [ -t 1 ] || echo pipe"
    )
    rescue.wait()
    ignored, *rest = rescue.fetch("stdout").decode().splitlines()
    assert int(ignored.split()[1], 16) & (1 << 12 | 1 << 24) == 0
    expected = [f"LC_CTYPE={os.environ['LC_CTYPE']}"] if "LC_CTYPE" in os.environ else []
    assert rest == [*expected, "y", "pipe"]


@pytest.mark.parametrize("broken", ["", "import nothing_of_this_name\n", "raise SystemExit\n"])
def test_a_command_that_nothing_records_is_not_started(rescue, broken):
    """It would wait until its limit for a reader of its pipes."""
    before = cgroups()
    (rescue.dir / "recorder.py").write_text(broken)
    rescue.install("touch ran")
    answer = rescue.runner("start", JOB, "1000")
    assert answer.returncode == 1
    assert "the command did not start: " in answer.stderr
    assert "nothing records the command" in answer.stderr
    assert not (rescue.base / "ran").exists()
    made = cgroups() - before  # also those of tests that run beside this one, which go, too
    until(lambda: not made & cgroups(), "no cgroup that stays")


def test_large_writes_and_lines_without_an_end_come_whole(rescue):
    rescue.start("head -c 300000 /dev/zero | tr '\\000' x; echo e >&2; printf last >&2; printf ' IMAGE_URL_DONE'")
    assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stdout") == b"x" * 300000 + b" IMAGE_URL_DONE"
    assert rescue.fetch("stderr") == b"e\nlast"


def test_no_program_is_started_for_each_line(rescue):
    """Process ids of a namespace of its own count what was started; a fork for each line would make it slow."""
    rescue.install("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; echo IMAGE_URL_DONE")
    script = '"$@" start "$0" 1000 >&2 && "$@" status 0 1000 >&2 && cat /proc/sys/kernel/ns_last_pid'
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave"]
    inside = [*apart, "sh", "-c", script, JOB, *rescue.argv()]
    done = subprocess.run(inside, env=rescue.environment(), capture_output=True, text=True, timeout=600, check=True)
    assert rescue.fetch("interleaved").count(b"\n") == 5001
    assert int(done.stdout) < 2500


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
    left = [Path(root, f"kubenode-{run}") for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
    until(lambda: not any(path.exists() for path in left), "the end of the cgroup")


def test_unknown_words_are_refused(rescue):
    assert rescue.runner("fetch", "../token").returncode == 64
    assert rescue.runner("begin").returncode == 64
    with pytest.raises(protocol.ProtocolError):
        protocol.parse_fetch(base64.b64encode(b"cut").decode())


# --- the in-rescue runner and commands that cannot run, print without end, or leave no room on the disk


__all__ = ["rescue"]


@pytest.mark.parametrize(
    ("first_line", "code", "says"),
    [
        ("#!/usr/bin/no-such-interpreter\n", 127, "was not found"),
        ("#!/bin/sh\r\n", 127, "was not found"),
        ("#!/proc/version\n", 126, "could not be run"),
        ("#!/bin/sh\nexec no-such-program\n", 127, "was not found"),
    ],
)
def test_a_command_that_cannot_be_run_is_explained(rescue, first_line, code, says):
    rescue.install("")
    (rescue.base / protocol.COMMAND).write_text(first_line)
    assert rescue.runner("start", JOB, "20").returncode == 0
    status = rescue.wait()
    assert (status.state, status.exit_code) == (protocol.EXITED, code)
    assert says in protocol.explain_failure(status, protocol.MARKER_AND_EXIT_CODE)
    assert rescue.fetch("stderr")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ("head -c 10485760 /dev/zero >output.json", "has 10485760 bytes"),
        ("echo '<html>' >output.json", "is no JSON"),
        ("yes '[' | head -n 20000 >output.json", "is nested too deeply"),
        ("mkfifo output.json", ""),
        ("ln -s /dev/zero output.json", ""),
    ],
)
def test_a_hostile_output_json_costs_nothing(rescue, make, says):
    rescue.start(f"{make}; echo IMAGE_URL_DONE")
    status = rescue.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert (status.message, bool(status.output_error)) == ("", bool(says))
    assert says in status.output_error
    assert len(rescue.runner("status").stdout) < 200000


@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_prints_without_end_fills_nothing(rescue, stream):
    rescue.cap = 1 << 20
    lines = "seq -f 'line %09.0f' 1 75000"  # a little more than is kept
    rescue.start(f"echo first >&{stream}; {lines} >&{stream}; echo last >&{stream}; echo IMAGE_URL_DONE")
    status = rescue.wait()
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert sum(path.stat().st_size for path in rescue.dir.iterdir() if path.is_file()) < 3 * 2**20
    data = rescue.fetch("stdout" if stream == 1 else "stderr")
    head, said, end = data.partition(
        b"\n[kubenode: something is left out here; what follows are the last 65536 bytes]\n"
    )
    assert said
    assert head.startswith(b"first\nline 000000001\n")
    assert (len(head), len(end)) == (rescue.cap, 65536)
    assert b"\nline 000075000\nlast\n" in end
    interleaved = rescue.fetch("interleaved")
    mark = b" out " if stream == 1 else b" err "
    assert interleaved.count(mark + b"[kubenode: something is left out here") == 1
    assert mark + b"line 000075000\n" in interleaved
    assert mark + b"last\n" in interleaved


def test_a_line_without_end_fills_nothing(rescue):
    rescue.start("head -c 60000000 /dev/zero | tr '\\0' x; echo; echo IMAGE_URL_DONE")
    peak, limit = 0, time.monotonic() + 120
    while rescue.status().state == protocol.RUNNING and time.monotonic() < limit:
        found = subprocess.run(["pgrep", "-f", str(rescue.dir)], capture_output=True, text=True, check=False).stdout
        for pid in found.split():
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            peak = max(peak, pages * 4096)
    assert rescue.wait().succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert peak < 64 * 2**20
    assert sum(path.stat().st_size for path in rescue.dir.iterdir() if path.is_file()) < 30 * 2**20


@pytest.mark.root
@pytest.mark.parametrize("ending", ["echo IMAGE_URL_DONE", "exit 3", "sleep 600000"])
def test_the_state_is_written_on_a_full_disk(tmp_path, ending):
    base = tmp_path / "ram"
    base.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", base], check=True)
    try:
        rescue = Rescue(base, [])
        fill = f"head -c 20000000 /dev/zero >{base}/fill 2>/dev/null; echo x >{base}/y 2>/dev/null || echo full"
        # only the last one is meant to be ended; the others end by themselves
        rescue.start(f"echo before; {fill}; {ending}", limit=10 if "sleep" in ending else 600)
        status = rescue.wait()
        assert b"full" in (rescue.dir / "stdout.last").read_bytes()
        wanted = {"echo IMAGE_URL_DONE": (protocol.EXITED, 0, True), "exit 3": (protocol.EXITED, 3, False)}
        state, code, marker = wanted.get(ending, (protocol.TIMEOUT, None, False))
        assert (status.state, status.marker) == (state, marker)
        assert code is None or status.exit_code == code
        assert b"before" in rescue.fetch("stdout")
        rescue.runner("stop")
    finally:
        subprocess.run(["umount", "--lazy", base], check=True)
