# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""healthz and the notes to systemd."""

from __future__ import annotations

import select
import signal
import socket
from pathlib import Path

from tests.lab.kubelet.conftest import Factory
from tests.lab.kubelet.process import LIMIT
from tests.waiting import until


def _next(inbox: socket.socket, limit: float) -> str:
    return inbox.recv(100).decode() if select.select([inbox], [], [], limit)[0] else ""


def test_started_alive_and_hung(kubelet: Factory, tmp_path: Path) -> None:
    one = kubelet()
    one.configure(authentication={"webhook": {"enabled": False}}, authorization={"mode": "AlwaysAllow"})
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(tmp_path / "notify"))
    one.environment.update({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"})
    one.start(f"--config={one.config}")  # no kubeconfig: on its own
    assert _next(inbox, LIMIT) == "READY=1"
    assert one.healthz() == "ok"
    assert [_next(inbox, LIMIT) for _turn in range(3)] == ["WATCHDOG=1"] * 3

    assert one.process is not None
    one.process.send_signal(signal.SIGUSR1)
    one.saying("healthz hangs from now on")
    one.saying("Do not notify watchdog this iteration")
    assert one.healthz(limit=1.0) == "TimeoutError"
    until(lambda: not _next(inbox, 0), "the end of what was sent before")
    assert _next(inbox, 3.0) == ""
    assert one.stop() == 0


def test_the_port_is_taken(kubelet: Factory) -> None:
    first, second = kubelet(name="a"), kubelet(name="b")
    second.port = first.port
    for each in (first, second):
        each.configure(authentication={"webhook": {"enabled": False}}, authorization={"mode": "AlwaysAllow"})
    first.start(f"--config={first.config}")
    until(lambda: first.healthz() == "ok", "healthz")
    status, said = second.run(f"--config={second.config}")
    assert status == 1
    assert "failed to start healthz server" in said
