# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the passphrase of an encrypted system is handed, and when the new system runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate, system_probe
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.known_hosts import KnownHosts
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import (
    OTHER_KEY,
    REFUSED,
    SILENT,
    Unreachable,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
PASSWORD = "correct-horse"
GONE, OTHER, NO = Unreachable(SILENT, "timed out"), Unreachable(OTHER_KEY, "key"), Unreachable(REFUSED, "denied")
EARLY = (1, "Try again later\n")
OPENED = (0, "Please unlock disk luks-1\ncryptsetup: luks-1 set up successfully\n")


class World:
    """A machine as the answers to one ssh after the other; waiting costs no time."""

    def __init__(
        self, tmp_path: Path, *answers: object, boot: str = "", known: bool = True, login: tuple = (None, None, None)
    ) -> None:
        self.now, self.answers, self.given, self.boot = 0.0, list(answers), [], boot
        self.login, self.logged_in = login, (None, None, None)
        self.initramfs = KnownHosts(str(tmp_path), "node-1", "initramfs", "run-1")
        self.system = KnownHosts(str(tmp_path), "node-1", "os", "run-1")
        self.initramfs.require([KEY])
        if known:
            self.system.require([KEY])
        self.used = self.initramfs

    def use(self, known_hosts: KnownHosts) -> None:
        self.used = known_hosts

    def log_in(self, user: str | None, port: int | None, private_key: str | None) -> None:
        self.logged_in = (user, port, private_key)

    def ask(self, data: bytes) -> tuple[int, str]:
        assert self.used is self.initramfs, "the passphrase goes to the initramfs alone"
        assert self.logged_in == ("root", 22, None)
        self.given.append(data)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, _script: str) -> tuple[int, str]:
        assert self.used is self.system
        if not self.boot or self.logged_in != self.login:
            raise OTHER
        return 0, self.boot

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def unlock(self) -> bool:
        ways = gate.Way(self.initramfs, "root", 22), gate.Way(self.system, *self.login)
        return gate.unlock(self, *ways, PASSWORD, "old", 300.0, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize(
    "answers",
    [
        (OTHER, GONE, GONE, EARLY, OPENED, GONE),
        (OPENED, OPENED, NO),
        (OPENED, (1, "Error: Timeout reached while waiting for askpass.\n"), OTHER),
        # the server went away before it could say how it ended
        ((255, OPENED[1]), GONE),
        # LUKS is slow, and the next one has nothing to do any more
        ((1, "Error: Timeout reached while waiting for PID 312.\n"), (0, ""), GONE),
    ],
)
def test_every_device_is_opened_until_the_server_goes_away(tmp_path, answers):
    world = World(tmp_path, *answers)
    assert world.unlock() is True
    assert set(world.given) == {PASSWORD.encode()}, "no line end, which would belong to it"


def test_a_wrong_passphrase_is_tried_once(tmp_path):
    world = World(tmp_path, EARLY, (1, "cryptsetup: cryptsetup failed, bad password or options?\n"))
    with pytest.raises(gate.GateClosed) as caught:
        world.unlock()
    assert caught.value.final
    assert "does not take the passphrase" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert len(world.given) == 2


def test_a_system_that_another_user_unlocked_is_left_to_the_gate(tmp_path, monkeypatch):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    assert World(tmp_path, OTHER, boot="new").unlock() is False
    # the rescue that goes down shows another key, too
    with pytest.raises(gate.GateClosed, match=r"not unlocked within 300 s; at last: key"):
        World(tmp_path, OTHER, boot="old").unlock()


@pytest.mark.parametrize(
    ("answer", "login"),
    [(OTHER, ("admin", None, "/key")), (GONE, (None, 2222, None)), (OTHER, ("admin", 2222, "/key"))],
)
def test_a_system_that_runs_is_found_by_its_own_user_and_port(tmp_path, monkeypatch, answer, login):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    world = World(tmp_path, answer, boot="new", login=login)
    assert world.unlock() is False
    assert world.now == 0.0


def test_without_a_known_key_of_the_system_another_key_has_a_minute(tmp_path):
    world = World(tmp_path, OTHER, OTHER, GONE, OTHER, known=False)
    assert world.unlock() is False
    assert world.now >= 3 * gate.PAUSE + gate.OTHER_SYSTEM


def test_a_system_that_an_earlier_run_proved_is_asked_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    world = World(tmp_path, OTHER, boot="new", known=False)
    world.system.path.write_text(f"{world.system.alias} {KEY}\n")
    world.system.prove("3d1b7e4a-0f5c-4f0e-9a53-0d4d3c1f2a11")
    assert world.unlock() is False
    assert world.now == 0.0


@pytest.mark.parametrize(("answer", "words"), [(GONE, "timed out"), (NO, "denied"), (EARLY, "Try again later")])
def test_an_initramfs_that_never_asks_is_given_up(tmp_path, answer, words):
    with pytest.raises(gate.GateClosed, match=f"at last: {words}"):
        World(tmp_path, answer).unlock()


def test_keys_that_an_earlier_run_kept_count(tmp_path):
    kept = KnownHosts(str(tmp_path), "node-1", "initramfs", "run-2")
    assert not kept.require_known()
    assert not kept.strict
    World(tmp_path, GONE)
    assert kept.require_known()
    assert kept.strict
