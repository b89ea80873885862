# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message about a program that failed ends with what it printed last."""

from __future__ import annotations

import base64
import gzip
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import Masker
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import commands, program_run, watch
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow
from tests.unit.rescue.test_protocol import answer

WHY = "n1: the image command failed: it ended with exit code 0 and the last line of its stdout does not contain "
WHY += "IMAGE_URL_DONE. Log: {folder}/n1/image-url-command.log"


class Rescue:
    """Hands out what its command has printed, as the runner does."""

    def __init__(self, **printed: bytes) -> None:
        self.printed = printed

    def run(self, script: str, *_arguments: str) -> tuple[int, str]:
        stream = script.rpartition(" ")[2]
        return 0, base64.b64encode(gzip.compress(self.printed[stream])).decode() + "\nend=1\n"


@pytest.fixture
def failed(tmp_path, monkeypatch):
    """The result of an image command that ended with 0, without its last line."""

    def run(start=lambda system: (False, False), boot_state="", **printed):
        options = {
            "boot_state": boot_state,
            "known_hosts_dir": str(tmp_path),
            "host_keys": [],
            "intent_file": "",
            "poll": 1,
        }
        flow, masker = Flow(options, "n1"), Masker(["hunter22"], [])
        job = SimpleNamespace(rule=protocol.MARKER_AND_EXIT_CODE, digest="", limit=1, devices=[])
        logs = watch.Logs(str(tmp_path), "n1", masker)
        one = commands.ImageCommandRun(Rescue(**printed), options, flow, job, logs, masker)
        one.command = SimpleNamespace(head=b"#!/bin/sh\n")
        status = protocol.parse_status(answer(state="exited", exit="0"))
        monkeypatch.setattr(one, "_start", start)
        monkeypatch.setattr(one, "_written", lambda: None)
        monkeypatch.setattr(
            program_run.gate, "pass_rescue", lambda *_arguments: SimpleNamespace(boot_id="", hostname="rescue")
        )
        monkeypatch.setattr(
            program_run.watch, "Watcher", lambda *_a, **_k: SimpleNamespace(until_end=lambda *_limits: status)
        )
        return one.result({})

    return run


@pytest.mark.parametrize(
    ("stdout", "stderr", "ends"),
    [
        (b"almost\n", b"", ["stdout ends with:", "  almost"]),
        (b"almost\n", b"\n \n", ["stdout ends with:", "  almost"]),
        (b"almost\n", b"boom\n", ["stderr ends with:", "  boom"]),
        (b"\n1\n2\n\n3\n4\n5\n6", b"", ["stdout ends with:", *(f"  {one}" for one in range(2, 7))]),
        (b"\x1b[31mred\nhunter22\n", b"", ["stdout ends with:", r"  \x1b[31mred", "  ********"]),
        (b"\xff\0\n", b"", ["stdout ends with:", "  \N{REPLACEMENT CHARACTER}\\x00"]),
        (b"", b"", []),
    ],
    ids=["no-stderr", "blank-stderr", "both", "many", "hostile", "bytes", "nothing"],
)
def test_an_image_command_without_its_last_line_is_shown_by_its_output(failed, tmp_path, stdout, stderr, ends):
    result = failed(stdout=stdout, stderr=stderr)
    assert result["failed"]
    assert result["msg"].splitlines() == [WHY.format(folder=tmp_path), *ends]


@pytest.mark.parametrize(
    ("why", "said", "states"),
    [
        ("nothing was started: it cannot be fetched", "n1: nothing was started: it cannot be fetched", []),
        ("SSH was lost; run again", "n1: the image command failed: SSH was lost; run again", ["RunningImageCommand"]),
    ],
)
def test_a_command_that_was_not_started_has_not_failed_and_the_machine_was_not_written(failed, why, said, states):
    def refuse(_system):
        raise program_run.StartFailed(why)

    result = failed(start=refuse, boot_state="BootingToRescue", stdout=b"of an earlier run\n", stderr=b"")
    assert (result["failed"], result["changed"], result["msg"]) == (True, False, said)
    assert [step["to"] for step in result["transitions"]] == [*states, "ProvisioningFailed"]


def test_a_long_line_is_cut_as_in_the_results(failed):
    result = failed(stdout=b"x" * 100_000 + b"\n", stderr=b"")
    assert result["msg"].splitlines()[-1] == f"  {result['stdout_tail'][-1]}"
    assert len(result["stdout_tail"][-1]) <= 500


def test_what_installimage_printed_is_not_shown_beside_its_debug_txt():
    shown = {"stdout_tail": ["# starting"], "stderr_tail": [], "debug_tail": ["no space"]}
    assert program_run.RescueRun._ending(shown) == ""
    assert program_run.RescueRun._ending({**shown, "stderr_tail": ["boom"]}) == "\nstderr ends with:\n  boom"
    assert program_run.RescueRun._ending({**shown, "debug_tail": []}) == "\nstdout ends with:\n  # starting"
