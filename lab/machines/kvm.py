# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether KVM really runs a guest here: /dev/kvm that opens is no proof, a booted kernel is."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab import images
from lab.images import cache

_LIMIT = 60  # seconds; with working hardware help the first line is there within one on an idle host
_MARK = b"Linux version"


def works(progress: Callable[[str], None]) -> tuple[bool, str]:
    """(whether KVM boots the rescue kernel here, why); the answer is kept for this host's kernel and QEMU."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False, "there is no usable /dev/kvm"
    file = cache.root() / "kvm.json"
    fingerprint = [platform.release(), _boot_id(), _version()]
    try:
        known = json.loads(file.read_text())
        if known["for"] == fingerprint:
            return known["works"], known["reason"]
    except (OSError, ValueError, KeyError):
        pass
    progress("probing whether KVM really boots a guest")
    good, reason = _probe(images.ensure("rescue", progress).files["kernel"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"for": fingerprint, "works": good, "reason": reason}))
    return good, reason


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _version() -> str:
    done = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _probe(kernel: Path) -> tuple[bool, str]:
    command = [
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "256", "-machine", "q35", "-nodefaults",
        "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    seen, deadline = b"", time.monotonic() + _LIMIT
    try:
        while time.monotonic() < deadline and _MARK not in seen:
            seen += process.stdout.read() or b""
            if process.poll() is not None:
                break
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    if _MARK in seen:
        return True, "KVM boots a guest here"
    words = seen.decode(errors="replace").strip().splitlines()
    return (
        False,
        f"/dev/kvm is there but boots no guest ({words[0][:120] if words else f'no kernel line within {_LIMIT} s'})",
    )
