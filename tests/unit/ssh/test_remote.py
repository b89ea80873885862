# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to a machine: when an ssh is started, which one, and what is known without one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader

from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.known_hosts import KnownHosts
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import SILENT, Remote, Unreachable

#: In the place of ssh: notes its arguments, and the other side is this machine; -G prints what ssh_config says.
SSH = r"""#!/bin/sh
echo "$(echo "$*" | tr "\n" " ")" >>{folder}/calls
case " $* " in *" -G "*) cat {folder}/config; exit 0 ;; esac
for command; do :; done
exec sh -c "$command"
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ssh").write_text(SSH.format(folder=folder))
        (folder / "ssh").chmod(0o755)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.config(hostname="127.0.0.1", port=self.port)

    def config(self, **settings: object) -> None:
        (self.folder / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    def remote(self, **options: object) -> Remote:
        connection = connection_loader.get("ansible.builtin.ssh", PlayContext(), None)
        connection.set_options()
        for option, value in {"host": "node-1", "ssh_executable": str(self.folder / "ssh"), **options}.items():
            connection.set_option(option, value)
        remote = Remote(connection)
        remote.use(self.known_hosts("rescue"))
        return remote

    def known_hosts(self, phase: str) -> KnownHosts:
        return KnownHosts(str(self.folder), "node-1", phase, "run-1")

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def logins(self) -> list[str]:
        return [call for call in self.calls if " -G " not in call and "kubenode-" in call]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.server.close()


def test_one_ssh_carries_all_scripts(machine):
    remote = machine.remote()
    assert remote.look() is False
    assert remote.run("echo $((1 + $1))", "1") == (0, "2\n")
    assert remote.run("cat", data=b"x") == (0, "x")
    remote.use(machine.known_hosts("rescue"))
    assert remote.is_open
    remote.look()
    assert remote.run("exit 3") == (3, "")
    assert len(machine.logins) == 1
    (login,) = machine.logins
    assert "ControlPath=none" in login
    assert "HostKeyAlias=node-1.rescue" in login
    remote.close()
    assert not remote.is_open


#: What an initramfs does for our key, with any command; then an ssh that gets no further than the handshake.
FORCED = r"""#!/bin/sh
echo "$*" >>{folder}/calls
[ -e {folder}/slow ] && echo "Connection timed out during banner exchange" >&2 && exit 255
echo "Please unlock disk"; cat >{folder}/stdin; echo "set up successfully" >&2; exit 255
"""


def test_one_question_has_its_data_on_stdin_and_in_no_argument(machine):
    remote = machine.remote()
    (machine.folder / "ssh").write_text(FORCED.format(folder=machine.folder))
    remote.use(machine.known_hosts("initramfs"))
    assert remote.ask(b"correct-horse") == (255, "Please unlock disk\nset up successfully\n")
    assert (machine.folder / "stdin").read_bytes() == b"correct-horse"
    (machine.folder / "slow").touch()
    with pytest.raises(Unreachable) as caught:
        remote.ask(b"correct-horse")
    assert caught.value.kind == SILENT
    with pytest.raises(Unreachable):
        remote.ask(b"correct-horse")
    assert ["ConnectTimeout=30" in call for call in machine.calls] == [False, False, True]
    assert not [call for call in machine.calls if "horse" in call]
    assert all("HostKeyAlias=node-1.initramfs" in call for call in machine.calls)


def test_other_host_keys_or_another_login_are_another_connection(machine):
    remote = machine.remote()
    remote.run("true")
    remote.use(machine.known_hosts("os"))
    assert not remote.is_open
    remote.run("true")
    remote.log_in("admin", 2222, "/a key")
    assert not remote.is_open
    remote.run("true")
    remote.log_in("admin", 2222, "/a key")
    assert remote.is_open
    remote.close()
    assert len(machine.logins) == 3
    assert "User=admin" in machine.logins[2]
    assert "Port=2222" in machine.logins[2]


def test_no_ssh_is_started_where_no_port_is_open(machine):
    remote = machine.remote()
    machine.server.close()
    for _look in range(3):
        with pytest.raises(Unreachable, match=r"port [0-9]+: Connection refused") as caught:
            remote.look()
        assert caught.value.kind == SILENT
    assert machine.logins == []
    assert len(machine.calls) == 1


@pytest.mark.parametrize(
    "way", [{"proxycommand": "nc %h"}, {"proxyjump": "a@b"}, {"bindaddress": "192.0.2.1"}, {"bindinterface": "eth9"}]
)
def test_where_only_ssh_finds_the_way_it_is_asked(machine, way):
    machine.config(hostname="127.0.0.1", port=machine.port, **way)
    remote = machine.remote()
    machine.server.close()
    assert remote.look() is False
    assert remote.run("echo in") == (0, "in\n")
    remote.close()


@pytest.mark.parametrize("config", [{"port": "²"}, {"port": 0}, {}])
def test_a_config_without_a_port_is_no_reason_not_to_try(machine, config):
    machine.config(**config)
    remote = machine.remote()
    assert remote.look() is False
    assert remote.run("echo in") == (0, "in\n")
    remote.close()


def test_a_system_that_goes_down_is_not_asked_until_it_is_gone(machine):
    remote = machine.remote()
    remote.run("true")
    remote.leave()
    assert not remote.is_open
    with pytest.raises(Unreachable, match="going down"):
        remote.look()
    for reboots in (1, 2):
        gone, _port = remote._leaving
        gone._process.kill()
        gone._process.wait()
        assert remote.look() is False, "it is the port of the system that goes down"
        machine.server.close()
        with pytest.raises(Unreachable, match="refused"):
            remote.look()
        machine.server = socket.create_server(("127.0.0.1", machine.port))
        assert remote.look() is True
        assert len(machine.logins) == reboots
        remote.run("true")
        remote.leave()
    remote.end()


def test_a_system_that_does_not_go_down_is_asked_again(machine, monkeypatch):
    remote = machine.remote()
    remote.run("true")
    monkeypatch.setattr("ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote._LEAVING", 0.0)
    remote.leave()
    assert remote.look() is False
    assert remote.run("echo in") == (0, "in\n")
    remote.close()


def test_the_end_closes_also_what_waits_for_a_reboot(machine):
    remote = machine.remote()
    remote.run("true")
    remote.leave()
    going, _until = remote._leaving
    remote.end()
    assert going._process.returncode is not None


def test_a_lost_connection_says_so_once_and_the_next_script_connects_again(machine):
    remote = machine.remote()
    with pytest.raises(Unreachable, match="closed"):
        remote.run("kill -9 $$")
    assert remote.run("echo in") == (0, "in\n")
    remote.close()
    assert len(machine.logins) == 2


def test_with_a_password_each_script_is_a_call_of_the_connection(machine):
    remote = machine.remote(password="secret")
    seen = []

    def call(command: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        seen.append(json.dumps([command, (in_data or b"").decode(), sudoable]))
        return (255, b"", b"Permission denied") if len(seen) > 1 else (0, b"out\r\n", b"")

    remote._connection.exec_command = call
    assert remote.look() is False
    assert remote.run("echo $1", "a b", data=b"in") == (0, "out\n")
    assert json.loads(seen[0]) == ["/bin/sh -c 'echo $1' sh 'a b'", "in", False]
    with pytest.raises(Unreachable) as caught:
        remote.run("echo")
    assert caught.value.kind == "refused"
    assert machine.calls == []


def test_other_connections_than_ssh_work(tmp_path):
    connection = connection_loader.get("ansible.builtin.local", PlayContext(), None)
    connection.set_options()
    remote = Remote(connection)
    remote.use(KnownHosts(str(tmp_path), "node-1", "rescue", "run-1"))
    assert remote.look() is False
    assert remote.run("cat; echo $1; exit 4", "x", data=b"in ") == (4, "in x\n")
    remote.close()
