# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image commands are uploaded before they are started, and when."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import (
    commands,
    image_inputs,
    program_run,
    upload,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.image_inputs import (
    LARGEST_SENT_ALONG,
    find_command,
)
from tests.folders import put
from tests.unit.rescue.test_protocol import answer

NAME = "image-url-command-x"


class Rescue:
    """The machine: what its runner says, and how often it was asked."""

    def __init__(self, answer: str = "") -> None:
        self.answer, self.calls = answer, 0

    def run(self, _script: str) -> tuple[int, str]:
        self.calls += 1
        return 0, self.answer


def inputs(folder: Path, size: int) -> image_inputs.Inputs:
    put(folder / NAME, b"#!/bin/sh\n" + b"x" * (size - 10), 0o755)
    return image_inputs.Inputs("node-1", "https://x/y", find_command(NAME, str(folder)), b"data", ["sda"])


def run_of(given: image_inputs.Inputs, rescue: Rescue) -> Any:
    run = commands.ImageCommandRun.__new__(commands.ImageCommandRun)
    run.command, run._remote = given.command, rescue
    uploaded = commands._uploaded(given)
    rule = protocol.MARKER_AND_EXIT_CODE
    run._job = jobs.Job(b"", given.bootstrap, given.arguments, "", 1, rule, "", uploaded=uploaded)
    run._flow = SimpleNamespace(timeline=SimpleNamespace(to=lambda state: None))
    return run


@pytest.fixture
def sent(monkeypatch) -> list[tuple[Any, ...]]:
    """What was uploaded."""
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(program_run.upload, "upload", lambda _remote, *given: sent.append(given[:4]))
    return sent


def test_a_small_command_costs_no_call(tmp_path, sent):
    rescue = Rescue()
    run_of(inputs(tmp_path, LARGEST_SENT_ALONG), rescue)._before_start(None)
    assert (rescue.calls, sent) == (0, [])


def test_a_large_command_goes_below_the_folder_of_the_run(tmp_path, sent):
    given = inputs(tmp_path, LARGEST_SENT_ALONG + 1)
    run_of(given, Rescue())._before_start(None)
    sha256 = given.command.sha256
    assert sent == [(upload.COMMAND, tmp_path / NAME, f"/root/.kubenode/commands/{sha256}", f"sha256:{sha256}")]


def test_its_bytes_are_its_identity(tmp_path):
    given = inputs(tmp_path, LARGEST_SENT_ALONG + 1)
    content = (tmp_path / NAME).read_bytes()
    digest = protocol.job_digest(content, given.bootstrap, given.arguments)
    assert commands._uploaded(given)["digest"] == digest


@pytest.mark.parametrize(
    ("state", "code", "of_this_job", "uploads"),
    [
        ("running", "", True, False),
        ("exited", "0", True, False),
        ("exited", "1", True, True),
        ("exited", "0", False, True),
        # the machine refuses it
        ("running", "", False, False),
    ],
)
def test_it_is_uploaded_only_for_a_start(tmp_path, sent, state, code, of_this_job, uploads):
    rescue = Rescue()
    run = run_of(inputs(tmp_path, LARGEST_SENT_ALONG + 1), rescue)
    job = run._job.digest if of_this_job else "0" * 64
    rescue.answer = answer(job=job, state=state, exit=code, marker="1")
    run._before_start(None)
    assert (rescue.calls, bool(sent)) == (1, uploads)


def test_a_command_that_went_away_names_itself(tmp_path):
    given = inputs(tmp_path, LARGEST_SENT_ALONG + 1)
    (tmp_path / NAME).unlink()
    with pytest.raises(commands.AnsibleActionFail, match=rf"node-1: command .*{NAME}: it cannot be read"):
        commands._uploaded(given)
