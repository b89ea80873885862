# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's half of image_url_command, below a directory of its own."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol, targets
from tests.folders import put
from tests.waiting import until

RUNNER = Path(jobs.__file__).with_name("runner.sh").read_text()
OK = b"#!/bin/sh\necho ran >>runs; cat bootstrap.data; echo $OCI_REGISTRY_AUTH_TOKEN; echo IMAGE_URL_DONE\n"


def job(command: bytes = OK, bootstrap: bytes = b"data\n", token: str = "tok", limit: int = 1000) -> jobs.Job:
    arguments = ["https://x/y", "node-1", "sda"]
    return jobs.Job(command, bootstrap, arguments, token, limit, protocol.MARKER_AND_EXIT_CODE, RUNNER)


def run(argv: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
    """As AnsibleModule.run_command, which runs it on a machine."""
    environment = {**os.environ, **environ_update}
    process = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout, process.stderr


def ended(one: jobs.Job, base: Path) -> protocol.Status:
    def status() -> protocol.Status:
        answer = subprocess.run(
            ["sh", base / protocol.RUNNER, "status"], env={"KUBENODE_BASE": str(base)}, capture_output=True, check=True
        )
        return protocol.parse_status(answer.stdout.decode())

    return until(lambda: found if (found := status()).state != protocol.RUNNING else None, "the end of the job")


@pytest.fixture
def base(tmp_path):
    yield tmp_path
    if (tmp_path / protocol.RUNNER).exists():
        environment = {"KUBENODE_BASE": str(tmp_path), "KUBENODE_GRACE": "1"}
        subprocess.run(["sh", tmp_path / protocol.RUNNER, "stop"], env=environment, capture_output=True, check=False)


def test_files_are_in_place_and_the_job_runs(base):
    status, attached = jobs.start_or_attach(job(), run, str(base))
    assert (attached, status.job) == (False, job().digest)
    assert ended(job(), base).succeeded(protocol.MARKER_AND_EXIT_CODE)
    assert (base / ".kubenode/stdout").read_text() == "data\ntok\nIMAGE_URL_DONE\n"
    assert oct((base / ".kubenode").stat().st_mode & 0o777) == "0o700"
    assert oct((base / protocol.COMMAND).stat().st_mode & 0o777) == "0o700"
    assert oct((base / protocol.BOOTSTRAP).stat().st_mode & 0o777) == "0o600"
    assert not list(base.rglob("*.new"))


def test_a_job_that_succeeded_is_attached_to_and_another_one_starts(base):
    jobs.start_or_attach(job(), run, str(base))
    ended(job(), base)
    # Token and limit do not make another job.
    status, attached = jobs.start_or_attach(job(token="other", limit=99), run, str(base))
    assert (attached, status.state) == (True, protocol.EXITED)
    assert (base / "runs").read_text() == "ran\n"
    status, attached = jobs.start_or_attach(job(bootstrap=b"other\n"), run, str(base))
    assert attached is False
    ended(job(), base)
    assert (base / "runs").read_text() == "ran\nran\n"


@pytest.mark.parametrize(
    ("installation", "more", "attached"),
    [
        ("a" * 32, {"erases": True}, True),
        ("b" * 32, {"erases": True}, False),
        ("b" * 32, {"empty": ["sda"]}, False),
        # a controller that lost what it knew goes on with what is there
        ("b" * 32, {}, True),
    ],
)
def test_a_job_that_erases_disks_is_not_done_by_one_of_another_installation(base, installation, more, attached):
    first = dataclasses.replace(job(), installation="a" * 32)
    jobs.start_or_attach(first, run, str(base))
    ended(first, base)
    wanted = dataclasses.replace(job(), installation=installation, **more)
    found = jobs.start_or_attach(wanted, run, str(base), decide=targets.decider(wanted, str(base)))[1]
    assert found is attached
    assert jobs.installation_in(str(base)) == ("a" * 32 if attached else "b" * 32)
    ended(wanted, base)
    assert (base / "runs").read_text() == ("ran\n" if attached else "ran\nran\n")


def test_a_running_job_is_attached_to_and_another_one_is_refused(base):
    long = job(b"#!/bin/sh\necho ran >>runs; sleep 600\n")
    jobs.start_or_attach(long, run, str(base))
    status, attached = jobs.start_or_attach(long, run, str(base))
    assert (attached, status.state) == (True, protocol.RUNNING)
    with pytest.raises(jobs.JobError) as refusal:
        jobs.start_or_attach(job(), run, str(base))
    assert "another image command is running" in str(refusal.value)
    assert f"sh {base}/.kubenode/runner.sh stop" in str(refusal.value)
    assert (base / protocol.COMMAND).read_bytes() == long.command


def test_a_job_that_failed_is_started_again(base):
    once = job(b"#!/bin/sh\n[ -e tried ] || { : >tried; exit 1; }\necho IMAGE_URL_DONE\n")
    jobs.start_or_attach(once, run, str(base))
    assert ended(once, base).exit_code == 1
    assert jobs.start_or_attach(once, run, str(base))[1] is False
    assert ended(once, base).succeeded(protocol.MARKER_AND_EXIT_CODE)


def test_two_controllers_at_once_start_one_command(base):
    long = job(b"#!/bin/sh\necho ran >>runs; sleep 1; echo IMAGE_URL_DONE\n")
    with ThreadPoolExecutor(4) as pool:
        attached = pool.map(lambda _number: jobs.start_or_attach(long, run, str(base))[1], range(4))
    assert sorted(attached) == [False, True, True, True]
    ended(long, base)
    assert (base / "runs").read_text() == "ran\n"


def test_a_lock_that_cannot_be_taken_starts_nothing(base, monkeypatch):
    def no_locks(_fd: int, _seconds: float) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(jobs.safe_files, "lock", no_locks)
    with pytest.raises(jobs.JobError, match=r"nothing was started: the lock \S+ cannot be taken \(No locks") as caught:
        jobs.start_or_attach(job(), run, str(base))
    assert not caught.value.begun
    assert not (base / protocol.COMMAND).exists()


# --- a command that was uploaded before


def uploaded(base: Path, content: bytes = OK, sent: bytes | None = None) -> jobs.Job:
    """A job like `job` whose command lies in the rescue already; ``sent``: what lies there instead."""
    sha256 = hashlib.sha256(content).hexdigest()
    put(base / protocol.COMMANDS / sha256, content if sent is None else sent)
    like = job(content)
    about = {"sha256": sha256, "size": len(content), "digest": like.digest}
    one = jobs.Job(b"", like.bootstrap, like.arguments, like.token, like.limit, like.rule, RUNNER, uploaded=about)
    return jobs.Job.unpack(one.pack())


def test_an_uploaded_command_is_the_same_job(base):
    one = uploaded(base)
    assert one.digest == job().digest
    assert jobs.start_or_attach(one, run, str(base))[1] is False
    assert ended(one, base).succeeded(protocol.MARKER_AND_EXIT_CODE)
    command = base / protocol.COMMAND
    assert (command.read_bytes(), command.stat().st_mode & 0o777) == (OK, 0o700)
    assert not list(base.glob("*.staged"))
    for same in (one, job()):
        assert jobs.start_or_attach(same, run, str(base))[1] is True
    assert (base / "runs").read_text() == "ran\n"


def test_a_lost_connection_that_holds_the_upload_open_blocks_no_other(base):
    one = uploaded(base)
    with (base / protocol.COMMANDS / one.uploaded["sha256"]).open("ab"):
        jobs.start_or_attach(one, run, str(base))
        assert ended(one, base).succeeded(protocol.MARKER_AND_EXIT_CODE)


@pytest.mark.parametrize(
    "sent",
    [OK[:-1], OK + b"x", OK.replace(b"ran", b"bad"), b"", None],
    ids=["short", "long", "other", "empty", "removed"],
)
def test_an_uploaded_command_that_is_not_whole_is_refused_before_a_disk_is_touched(base, sent):
    one, prepared = uploaded(base, sent=sent), []
    if sent is None:
        (base / protocol.COMMANDS / one.uploaded["sha256"]).unlink()
    with pytest.raises(jobs.JobError, match="nothing was started"):
        jobs.start_or_attach(one, run, str(base), prepare=lambda *given: prepared.append(given))
    assert prepared == []
    assert sorted(path.name for path in base.iterdir()) == [".kubenode"]


def test_a_start_that_is_refused_leaves_no_copy_of_the_command(base):
    def refuse(_run: object, _job: object) -> None:
        raise jobs.JobError("the disk is not empty")

    with pytest.raises(jobs.JobError, match="not empty"):
        jobs.start_or_attach(uploaded(base), run, str(base), prepare=refuse)
    assert sorted(path.name for path in base.iterdir()) == [".kubenode"]


@pytest.mark.parametrize("changed", [True, False])
def test_what_is_refused_after_the_disks_were_made_ready_says_whether_one_was_changed(base, changed):
    """Also where the runner answers nonsense: what was emptied has begun, and what was not has not."""
    broken = job()
    broken.runner = "echo hello\n"
    with pytest.raises(jobs.JobError) as error:
        jobs.start_or_attach(broken, run, str(base), prepare=lambda *_given: changed)
    assert error.value.begun is changed


def test_a_link_in_the_way_is_not_followed(base):
    victim = base / "victim"
    victim.write_text("untouched")
    (base / f"{protocol.BOOTSTRAP}.new").symlink_to(victim)
    jobs.start_or_attach(job(), run, str(base))
    assert victim.read_text() == "untouched"


def test_a_runner_that_answers_nonsense_is_an_error(base):
    (base / ".kubenode").mkdir()
    (base / protocol.RUNNER).write_text("echo hello\n")
    with pytest.raises(jobs.JobError) as error:
        jobs.start_or_attach(job(), run, str(base))
    assert "answers nonsense" in str(error.value)
