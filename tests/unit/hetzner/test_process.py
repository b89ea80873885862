# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs on the controller: their output, their time limit, and floods."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import FleetError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.process import (
    KILLED,
    LONGEST_OUTPUT,
    run_limited,
)


def test_exit_code_and_both_streams():
    assert run_limited(["sh", "-c", "echo out; echo err >&2; exit 3"], 10) == (3, "out\n", "err\n")


def test_a_missing_program_says_what_to_install():
    with pytest.raises(FleetError, match=r"'no-such-program' cannot be run .* install the OpenSSH client"):
        run_limited(["no-such-program"], 1)


def test_there_is_no_input_and_no_shell():
    assert run_limited(["cat"], 10) == (0, "", "")
    assert run_limited(["printf", "%s", "$(id)"], 10)[1] == "$(id)"


def test_bytes_that_are_no_text_are_replaced():
    assert run_limited(["printf", r"\377a"], 10)[1] == "\ufffda"


def test_the_time_limit_kills():
    began = time.monotonic()
    assert run_limited(["sleep", "30"], 0.3)[0] == KILLED
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_flood_is_cut_off(stream):
    began = time.monotonic()
    code, output, errors = run_limited(["sh", "-c", f"exec yes >&{stream}"], 3)
    assert code == KILLED
    assert len(output) + len(errors) == LONGEST_OUTPUT
    assert time.monotonic() - began < 10
