# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that may stop a machine: how it is found, started, judged, and started no second time."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from ansible.errors import AnsibleFileNotFound

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import InvalidName
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import pre_provision, protocol
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import image_inputs
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.image_inputs import (
    CommandNotUsable,
    find_pre_provision_command,
)
from tests import folders
from tests.unit.rescue.system import alive
from tests.unit.rescue.test_controller_files import NAME as COMMAND
from tests.unit.rescue.test_controller_files import UNUSABLE, put
from tests.waiting import until

RUNNER = Path(jobs.__file__).with_name("runner.sh").read_text()
NAME = "check-hardware"
BOOT = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6"


# --- its name and its file


@pytest.mark.parametrize("name", ["check-hardware", "a1b", "x_y.z-9", "image-url-command-x"])
def test_names_that_caph_takes(name):
    assert pre_provision.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "a", "ab", "Check", "9check", "check-", "check.", ".check", "che ck", "check\n", "chéck", "a/b",
        "image-url-command", "bootstrap.data", "output.json",
    ],
)  # fmt: skip
def test_other_names_are_refused(name):
    with pytest.raises(InvalidName):
        pre_provision.check_name(name)


def test_a_name_that_is_too_short_is_not_said_to_have_wrong_letters_alone():
    with pytest.raises(InvalidName, match="three characters at least"):
        pre_provision.check_name("ab")


def as_given(path: str) -> str:
    if not Path(path).is_file():
        raise AnsibleFileNotFound(file_name=path)
    return path


def test_a_name_is_a_file_of_the_directory_and_a_path_is_a_path(tmp_path):
    put(tmp_path / "shared" / NAME, text="#!/bin/sh\n# shared\n")
    put(tmp_path / "own" / NAME, text="#!/bin/sh\n# own\n")
    named = find_pre_provision_command(NAME, str(tmp_path / "shared"), as_given)
    own = find_pre_provision_command(str(tmp_path / "own" / NAME), str(tmp_path / "shared"), as_given)
    assert (named.head, own.head) == (b"#!/bin/sh\n# shared\n", b"#!/bin/sh\n# own\n")


@pytest.mark.parametrize(("make", "why"), UNUSABLE)
@pytest.mark.parametrize("by_path", [False, True])
def test_a_file_that_cannot_be_used_is_one_finding_with_variable_and_value(tmp_path, make, why, by_path):
    base = tmp_path / "shared"
    base.mkdir()
    make(base)
    given = str(base / COMMAND) if by_path else COMMAND
    found, findings = image_inputs.examine_pre_provision({"pre_provision_command": given}, str(base), lambda path: path)
    assert found is None
    (finding,) = findings
    assert finding.startswith(f'pre_provision_command "{given}": ')
    assert why in finding


def test_a_path_that_ansible_does_not_find(tmp_path):
    with pytest.raises(CommandNotUsable, match="there is no such file"):
        find_pre_provision_command("./none", str(tmp_path), as_given)


@pytest.mark.parametrize("seconds", [0, -1, "soon", True, 1.5, 86401, "１０", ""])
def test_a_time_limit_that_is_none(tmp_path, seconds):
    _found, findings = image_inputs.examine_pre_provision({"pre_provision_timeout": seconds}, str(tmp_path), as_given)
    (finding,) = findings
    assert finding.startswith("pre_provision_timeout ")


@pytest.mark.parametrize("seconds", [None, 1, "300", 86400])
def test_without_a_program_nothing_is_looked_for(tmp_path, seconds):
    spec = {"pre_provision_command": "", "pre_provision_timeout": seconds}
    assert image_inputs.examine_pre_provision(spec, str(tmp_path / "none"), as_given) == (None, [])


# --- its start, below a directory of its own


class Rescue:
    """A directory in the place of /root, and the module's half that runs there."""

    def __init__(self, base: Path) -> None:
        self.base, self.own = base, base / ".kubenode/pre-provision"

    def program(self, script: str, run: str = "run-1", limit: int = 600, head: str = "#!/bin/sh") -> jobs.Job:
        """The job of a program that the controller has put into the rescue."""
        content = f"{head}\n{script}\n"
        (self.own / "upload" / NAME).unlink(missing_ok=True)
        folders.put(self.own / "upload" / NAME, content)
        facts = {"KUBENODE_MACHINE": "node-1", "KUBENODE_PROVIDER": "robot", "KUBENODE_SERVER": None}
        digest = hashlib.sha256(content.encode()).hexdigest()
        return pre_provision.make(NAME, digest, "node-1", facts, limit, RUNNER, run, base=str(self.base))

    def start(self, job: jobs.Job) -> dict[str, bool]:
        return pre_provision.start_or_attach(job, self.run, str(self.base))

    def run(self, argv: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
        """As AnsibleModule.run_command, which runs it on a machine."""
        environment = {**os.environ, "OF_THE_RESCUE": "secret", "KUBENODE_GRACE": "1", **environ_update}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def status(self) -> protocol.Status:
        answer = self.run(["sh", str(self.own / protocol.RUNNER), "status"], {"KUBENODE_BASE": str(self.own)})
        return protocol.parse_status(answer[1])

    def ended(self) -> protocol.Status:
        return until(
            lambda: found if (found := self.status()).state != protocol.RUNNING else None, "the end of the program"
        )

    def output(self, stream: str = "stdout") -> str:
        return (self.own / ".kubenode" / stream).read_text()

    def image_command(self, script: str) -> None:
        """Start an image command in this rescue."""
        arguments = ["https://x/y", "node-1", "sda"]
        command = f"#!/bin/sh\n{script}\n".encode()
        job = jobs.Job(command, b"", arguments, "", 600, protocol.MARKER_AND_EXIT_CODE, RUNNER)
        jobs.start_or_attach(job, self.run, str(self.base))

    def stop(self) -> None:
        for base in (self.own, self.base):
            if (base / protocol.RUNNER).exists():
                self.run(["sh", str(base / protocol.RUNNER), "stop"], {"KUBENODE_BASE": str(base)})


@pytest.fixture
def rescue(tmp_path):
    made = Rescue(tmp_path)
    yield made
    made.stop()


def test_environment_arguments_and_place_are_as_documented(rescue):
    job = rescue.program('echo "$# $(pwd) $0"; cat; env -0 | sort -z | tr "\\0" "\\n"')
    assert rescue.start(job) == {"written": False, "attached": False}
    assert pre_provision.passed(rescue.ended())
    first, *environment = rescue.output().splitlines()
    assert first == f"0 {rescue.base} {rescue.base}/{NAME}"
    # what a shell sets by itself
    found = dict(line.split("=", 1) for line in environment if not line.startswith(("PWD=", "OLDPWD=", "SHLVL=", "_=")))
    assert found.pop("KUBENODE_RUN")
    assert found == {
        "HOME": "/root",
        "KUBENODE_LIMIT": "600",
        "KUBENODE_MACHINE": "node-1",
        "KUBENODE_PROVIDER": "robot",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    assert stat.S_IMODE((rescue.base / NAME).stat().st_mode) == 0o700


def test_the_docs_name_the_whole_environment(rescue):
    text = (Path(__file__).resolve().parents[3] / "docs/hcloud_image_url.md").read_text()
    section = text.split("## A program that may stop a machine", 1)[1].split("\n## ", 1)[0]
    facts = {f"KUBENODE_{name}": "x" for name in ("MACHINE", "PROVIDER", "SERVER")}
    launcher = pre_provision.make(NAME, "", "node-1", facts, 1, RUNNER, "").command.decode()
    given = set(re.findall(r"\b([A-Z_]+)=", launcher))
    named = set(re.findall(r"`([A-Z_]{4,})`", section))
    assert named == given


def test_hostile_facts_stay_facts(rescue):
    job = rescue.program('echo "$KUBENODE_SERVER"')
    facts = {"KUBENODE_SERVER": "'; touch broken; $(touch broken) `touch broken` \""}
    job = pre_provision.make(NAME, job.arguments[0], "node-1", facts, 600, RUNNER, "run-1", base=str(rescue.base))
    rescue.start(job)
    rescue.ended()
    assert rescue.output() == facts["KUBENODE_SERVER"] + "\n"
    assert not (rescue.base / "broken").exists()


def test_a_start_whose_answer_was_lost_is_no_second_one(rescue):
    job = rescue.program("echo asked >>asked; exit 3")
    assert not rescue.start(job)["attached"]
    rescue.ended()
    assert rescue.start(job)["attached"]
    status = rescue.status()
    assert (status.exit_code, (rescue.base / "asked").read_text()) == (3, "asked\n")
    # another run asks again
    assert not rescue.start(rescue.program("echo asked >>asked; exit 3", run="run-2"))["attached"]
    rescue.ended()
    assert (rescue.base / "asked").read_text() == "asked\nasked\n"


def test_a_start_that_was_cut_off_before_the_runner_began_is_done_again(rescue):
    job = rescue.program("echo asked >>asked")
    rescue.start(job)
    rescue.ended()
    (rescue.own / ".kubenode/state").unlink()
    assert not rescue.start(job)["attached"]
    assert pre_provision.passed(rescue.ended())


def test_another_run_waits_for_the_same_program_and_refuses_to_start_another_one(rescue):
    script = "echo asked >>asked; while [ ! -e go ]; do sleep 0.1; done"
    rescue.start(rescue.program(script))
    assert rescue.start(rescue.program(script, run="run-2"))["attached"]
    with pytest.raises(jobs.JobError, match=r"another pre-provision command is running in this rescue, since .* 600 s"):
        rescue.start(rescue.program("exit 0", run="run-2"))
    (rescue.base / "go").touch()
    assert pre_provision.passed(rescue.ended())
    assert (rescue.base / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    ("script", "asked"),
    [("sleep 600000", False), ("echo IMAGE_URL_DONE", False), ("exit 1", True)],
    ids=["running", "succeeded", "failed"],
)
def test_a_machine_that_is_being_written_or_was_is_not_asked(rescue, script, asked):
    rescue.image_command(script)
    if "sleep" not in script:
        until(lambda: not jobs.progress(rescue.run, str(rescue.base))["running"], "the end of the image command")
    assert rescue.start(rescue.program("echo asked >asked")) == {"written": not asked, "attached": False}
    if asked:
        rescue.ended()
    assert (rescue.base / "asked").exists() is asked


def test_at_the_limit_everything_goes_that_it_started(rescue):
    script = "trap '' TERM; setsid -f sh -c 'trap \"\" TERM; echo $$ >left; exec sleep 600000'; sleep 600000"
    rescue.start(rescue.program(script, limit=2))
    status = rescue.ended()
    assert status.state == protocol.TIMEOUT
    assert pre_provision.is_word(status)
    left = rescue.base / "left"  # a slow machine may have come to its end before that
    assert not left.exists() or not alive(left.read_text().strip() or "0")
    assert "did not end within 2 s and was killed" in pre_provision.explain(status, "/bin/sh")


def test_a_missing_interpreter_is_explained(rescue):
    rescue.start(rescue.program("true", head="#!/no/such/shell"))
    status = rescue.ended()
    assert pre_provision.is_word(status)
    assert "127 means that a program was not found in the rescue" in pre_provision.explain(status, "/no/such/shell")
    assert "(/no/such/shell)" in pre_provision.explain(status, "/no/such/shell")


def test_what_lies_in_its_place_is_an_error_and_nothing_runs(rescue):
    job = rescue.program("echo asked >asked")
    (rescue.base / NAME).mkdir()
    with pytest.raises(OSError, match="directory"):
        rescue.start(job)
    assert not (rescue.base / "asked").exists()


# --- its word


def ended(state: str, code: str = "", left: int = 0) -> protocol.Status:
    return protocol.Status({"boot": BOOT, "state": state, "exit": code, "seconds": "1", "left": str(left)})


@pytest.mark.parametrize(
    ("status", "passed", "word", "says"),
    [
        (ended(protocol.EXITED, "0"), True, False, None),
        (ended(protocol.EXITED, "3"), False, True, "exit code 3."),
        (ended(protocol.EXITED, "126"), False, True, "126 means"),
        (ended(protocol.EXITED, "137"), False, True, "exit code 137 (signal 9)"),
        (ended(protocol.TIMEOUT, "143"), False, True, "did not end within"),
        (ended(protocol.EXITED, "0", left=2), False, False, "2 of its processes could not be ended"),
        (ended(protocol.KILLED), False, False, "ended from outside"),
        (ended(protocol.LOST), False, False, "its runner was killed"),
    ],
)
def test_what_an_end_means(status, passed, word, says):
    assert pre_provision.passed(status) is passed
    assert (not passed and pre_provision.is_word(status)) is word
    if says:
        assert says in pre_provision.explain(status, "")
