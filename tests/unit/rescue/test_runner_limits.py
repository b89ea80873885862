# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The in-rescue runner and commands that cannot run, print without end, or leave no room on the disk."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from tests.unit.rescue.test_runner import JOB, Rescue, rescue

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
