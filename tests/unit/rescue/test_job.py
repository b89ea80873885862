# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's half of image_url_command, below a directory of its own."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
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
    results: list[bool] = []

    def start() -> None:
        results.append(jobs.start_or_attach(long, run, str(base))[1])

    threads = [threading.Thread(target=start) for _thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, True, True, True]
    ended(long, base)
    assert (base / "runs").read_text() == "ran\n"


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
