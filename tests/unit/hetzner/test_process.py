# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs on the controller: their output, their time limit, and floods."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import ssh
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import FleetError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import KILLED, LONGEST_OUTPUT, run_limited
from tests.waiting import until


def test_exit_code_and_both_streams():
    assert run_limited(["sh", "-c", "echo out; echo err >&2; exit 3"], 600) == (3, "out\n", "err\n")


def test_a_missing_program_says_what_to_install():
    with pytest.raises(FleetError, match=r"'no-such-program' cannot be run .* install the OpenSSH client"):
        run_limited(["no-such-program"], 1)


def test_there_is_no_input_and_no_shell():
    assert run_limited(["cat"], 600) == (0, "", "")
    assert run_limited(["printf", "%s", "$(id)"], 600)[1] == "$(id)"


def test_bytes_that_are_no_text_are_replaced():
    assert run_limited(["printf", r"\377a"], 600)[1] == "\ufffda"


def test_the_time_limit_kills():
    assert run_limited(["sleep", "600"], 0.3)[0] == KILLED


def test_a_flood_is_cut_off():
    code, output, errors = run_limited(["yes"], 3600)
    assert (code, len(output), errors) == (KILLED, LONGEST_OUTPUT, "")


def test_a_flood_of_errors_ends_with_the_time(tmp_path, monkeypatch):
    """The pipe takes what is read at most; the time is over when it is full, however long that took."""
    full = tmp_path / "full"

    class Timer(threading.Thread):
        def __init__(self, seconds, kill):
            super().__init__(daemon=True)
            assert seconds == 3
            self.kill = kill

        def run(self):
            until(full.exists, "a full pipe")
            self.kill()

        def cancel(self):
            """It is over."""

    monkeypatch.setattr(ssh, "threading", SimpleNamespace(Timer=Timer))
    # a third descriptor keeps the pipe of stdout open: only the time ends the wait for its end
    flood = f"yes | head -c {LONGEST_OUTPUT} >&2; touch {full}; exec yes 3>&1 >&2"
    code, output, errors = run_limited(["sh", "-c", flood], 3)
    assert (code, output, len(errors)) == (KILLED, "", LONGEST_OUTPUT)
