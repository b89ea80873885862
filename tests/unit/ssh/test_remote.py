# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to a machine: when an ssh is started, which one, and what is known without one."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import program_run, rescue_programs
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote as remote_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote as session_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import (
    OTHER_KEY,
    SILENT,
    KnownHosts,
    Lost,
    Remote,
    Session,
    Unreachable,
    is_silent,
    why_not_reached,
)
from tests.clock import Clock
from tests.folders import put
from tests.unit.common.answers import of_probe
from tests.waiting import until


@pytest.mark.root
def test_a_full_disk_is_one_error_with_its_way_out_and_leaves_no_part_of_a_file(tmp_path):
    folder = tmp_path / "kubenode"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "kubenode-test", folder], check=True)
    try:
        kept = KnownHosts(str(folder), "node-1", "os", "run-1")
        kept.path.touch(0o644)  # what ssh leaves of a key that has no room
        (folder / "rest").write_bytes(b"x" * 8192)
        with pytest.raises(AnsibleActionFail) as error:
            kept.prove("b" * 36)
        found = str(error.value)
        assert found.startswith(f"{kept.path} cannot be written (No space left on device)")
        assert found.endswith(f"make room on the disk of {folder}, or let kubenode_dir name another folder")
        assert [one.name for one in folder.iterdir()] == ["rest"]
    finally:
        subprocess.run(["umount", folder], check=True)


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
        put(folder / "ssh", SSH.format(folder=folder), 0o755)
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


def test_a_login_has_time_while_the_port_is_open_and_ends_when_it_is_closed(machine, monkeypatch):
    monkeypatch.setattr(remote_module, "_LOOKS", 0.02)
    remote = machine.remote()
    remote.look()
    put(machine.folder / "ssh", SSH.format(folder=machine.folder).replace("exec", "exec sleep 600 #"), 0o755)
    looked = []
    connect = remote_module._connect

    def look(address: tuple[str, int]) -> None:
        looked.append(address)
        if len(looked) == 3:
            machine.server.close()
        connect(address)

    monkeypatch.setattr(remote_module, "_connect", look)
    with pytest.raises(Unreachable, match=f"connect to 127.0.0.1 port {machine.port}: Connection refused"):
        remote.run("true")
    assert len(looked) == 3, "a machine that is only slow is waited for"
    (login,) = machine.logins
    assert "ConnectTimeout=30" in login, "who answers is there, however slow"
    remote.end()


def test_behind_a_jump_host_an_absent_machine_is_not_waited_for_long(machine):
    machine.config(hostname="127.0.0.1", port=machine.port, proxyjump="a@b")
    remote = machine.remote()
    remote.look()
    remote.run("true")
    remote.close()
    assert "ConnectTimeout=5" in machine.logins[0]


RESCUE = of_probe(
    boot_id="9db909e1-5bfc-4279-8ee4-7ec4a94b92f6",
    uid="0",
    rescue_marks="motd",
    root="1 1 0:2 / / rw - rootfs rootfs rw",
)


def test_a_rescue_that_was_found_is_not_asked_again_over_the_same_connection(machine, monkeypatch):
    script = f"echo asked >>{machine.folder}/asked; printf {RESCUE!r}"
    monkeypatch.setattr(gate.system_probe, "SCRIPT", script)
    remote, given = machine.remote(), {"previous_boot_id": None, "addresses": (), "rescue_timeout": 0}

    def passes() -> int:
        gate.pass_rescue(remote, machine.known_hosts("rescue"), [], given)
        return len((machine.folder / "asked").read_text().splitlines())

    assert [passes(), passes()] == [1, 1]
    remote.close()
    assert passes() == 2, "another connection may lead to another boot"
    with pytest.raises(Unreachable):
        remote.run("kill -9 $$")
    assert passes() == 3
    remote.leave()
    remote.end()
    assert passes() == 4
    given["previous_boot_id"] = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6"
    with pytest.raises(gate.GateClosed):
        passes()
    remote.end()


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


@pytest.mark.parametrize(
    ("works", "done"),
    [
        ("reboot", ["reboot"]),
        ("systemctl reboot", ["reboot", "systemctl reboot"]),
        ("reboot -f", ["reboot", "systemctl reboot", "sync", "reboot -f"]),
    ],
)
def test_only_a_forced_reboot_waits_until_all_is_written(tmp_path, works, done):
    for name in ("reboot", "systemctl", "sync"):
        ends = f'[ "$*" = "{works}" ] || [ {name} = sync ]'
        text = f'#!/bin/sh\nset -- {name} "$@"\necho "$*" >>{tmp_path}/done\n{ends}\n'
        put(tmp_path / name, text, 0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for boot_id, said in (("9db909e1-5bfc-4279-8ee4-7ec4a94b92f6", "no"), (boot, "sent")):
        words = ["sh", "-c", remote_module.system_probe.REBOOT, "sh", boot_id]
        found = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout == f"reboot={said}\n"
    file = tmp_path / "done"
    until(lambda: file.exists() and file.read_text().splitlines() == done, "the reboot")


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


# --- SSH is lost in the middle: what may be sent again is, for as long as a slow machine may need


class Refusing:
    """Refuses so many scripts, then answers."""

    def __init__(self, refusals, kind=SILENT):
        self.refusals, self.kind, self.closed, self.asked = refusals, kind, 0, 0

    def run(self, _script, *_arguments, data=None):
        self.asked += 1
        if self.asked <= self.refusals:
            raise Unreachable(self.kind, "Connection refused")
        return 0, json.dumps({"failed": False, "disks": []})

    def close(self):
        self.closed += 1


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(remote_module, "time", clock)
    return clock


def test_a_step_waits_for_a_machine_that_is_away_for_half_a_minute(clock):
    remote = Refusing(refusals=9)
    assert program_run.call_step(remote, "look", again=True)["disks"] == []
    assert remote.closed == 9
    assert 20 < clock.now < remote_module.PATIENCE
    assert clock.slept == sorted(clock.slept)


def test_a_step_that_changes_something_is_sent_once(clock):
    remote = Refusing(refusals=1)
    with pytest.raises(program_run.StepFailed, match=r"SSH was lost \(Connection refused\); run again"):
        program_run.call_step(remote, "wipe")
    assert (remote.asked, clock.slept) == (1, [])


@pytest.mark.parametrize(("kind", "least"), [(SILENT, 60), (OTHER_KEY, 0)])
def test_patience_has_an_end(clock, kind, least):
    with pytest.raises(program_run.StepFailed, match="run again"):
        program_run.call_step(Refusing(refusals=10**6, kind=kind), "look", again=True)
    assert least <= clock.now <= least + 5 * bool(least)


# --- the ssh that stays open: every request gets its own answer, whether a script reads, prints or leaves data


#: In the place of ssh: the other side is this machine.
HERE = ("sh", "-c")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(HERE)
    yield session
    session.close()


def test_each_request_gets_its_answer(session):
    assert session.run("echo one; exit 3") == (3, "one\n")
    assert session.run("printf two") == (0, "two")
    assert session.run("") == (0, "")
    assert session.alive


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=4))
@example(["", " ", "\n", "'", "$(id)", "\\", "-"])
def test_arguments_arrive_as_they_are(session, arguments):
    code, text = session.run('printf "%s|" "$#" "$@"', *arguments)
    assert (code, text) == (0, "|".join([str(len(arguments)), *arguments, ""]))


@given(st.binary(max_size=300))
@example(b"")
@example(b"\n-\n\nexit 1\n")
def test_data_is_the_stdin_of_one_script(session, data):
    assert session.run("od -An -v -tx1 | tr -d ' \n'", data=data) == (0, data.hex())
    assert session.run("cat") == (0, "")


def test_data_that_is_not_read_does_no_harm(session):
    assert session.run("exit 4", data=b"x" * 300_000) == (4, "")
    assert session.run("head -c 2; exit 5", data=b"yz" * 200_000) == (5, "yz")
    assert session.run("echo well") == (0, "well\n")


def test_much_goes_both_ways_at_once(session):
    data = random.Random(1).randbytes(3_000_000).hex().encode()
    code, text = session.run("tee /dev/stderr", data=data)
    assert code == 0
    assert text.encode() == data


@pytest.mark.parametrize("before", ["nothing", "half of it", "another program"])
@pytest.mark.parametrize("same_python", [True, False])
def test_a_request_finds_the_program_compiled(session, tmp_path, monkeypatch, before, same_python):
    monkeypatch.setattr(program_run, "_FOLDER", f"{tmp_path}/kubenode/steps")
    magic = importlib.util.MAGIC_NUMBER
    if not same_python:
        monkeypatch.setattr(rescue_programs.importlib.util, "MAGIC_NUMBER", b"old\n")
    monkeypatch.setattr(rescue_programs, "steps", rescue_programs.steps.__wrapped__)
    if before != "nothing":  # a controller that was cut off, and a run of another version
        name = "kubenode/steps-0123456789abcdef" if before == "another program" else "kubenode/steps-x.1"
        put(tmp_path / name / "__main__.py", "raise SystemExit(3)")
    compiled = []
    for _request in range(2):
        with pytest.raises(program_run.StepFailed, match="KeyError: 'no step'"):
            program_run.call_step(session, "no step")
        [found] = (tmp_path / "kubenode").rglob("_rescue/__pycache__/steps.*.pyc")
        compiled.append(found)
        assert found.read_bytes()[:4] == magic
    first, second = (path.stat() for path in compiled)
    assert (first.st_mode & 0o077, first.st_mtime_ns) == (0, second.st_mtime_ns)
    assert first.st_mtime_ns == 0 if same_python else first.st_mtime_ns > 0, "what was sent has no time"
    assert not [path for path in (tmp_path / "kubenode").iterdir() if path.suffix and path.name != "steps-x.1"]


def test_a_script_leaves_nothing_to_the_next_one(session):
    session.run("cd /; x=1; exec 1>/dev/null; set -u; trap 'echo trapped' EXIT; m=other; f() { :; }")
    assert session.run('echo "${x-unset}"; pwd') == (0, f"unset\n{os.getcwd()}\n")


def test_what_a_script_leaves_running_does_not_hold_the_answer(session):
    code, text = session.run("sleep 600 </dev/null >/dev/null 2>&1 & echo $!")
    os.kill(int(text), signal.SIGTERM)
    assert code == 0


def test_a_script_cannot_forge_an_answer_without_the_mark(session):
    assert session.run("printf '\\nkubenode-%032d 0\\n' 0; exit 7")[0] == 7


def test_what_the_login_prints_is_dropped():
    session = Session(("sh", "-c", 'echo motd; echo noise >&2; exec "$0" "$@"', "sh", "-c"))
    try:
        assert session.run("echo in") == (0, "in\n")
    finally:
        session.close()


def test_a_refused_login_says_what_ssh_said():
    with pytest.raises(Lost, match=r"^Permission denied$"):
        Session(("sh", "-c", "echo Permission denied >&2; exit 255"))


def test_a_login_that_hangs_ends():
    with pytest.raises(Lost, match="took too long"):
        Session(("sh", "-c", "exec sleep 600"), login=0.2)


def test_an_ssh_that_is_not_there_is_named():
    with pytest.raises(Lost, match="cannot be started: No such file"):
        Session(("/nowhere/ssh",))


def test_a_connection_that_ends_is_noticed_within_a_request_and_between_two():
    session = Session(HERE)
    with pytest.raises(Lost, match="closed"):
        session.run("kill -9 $$")
    session = Session(HERE)
    session._process.send_signal(signal.SIGKILL)
    session._process.wait()
    assert not session.alive
    with pytest.raises(Lost):
        session.run("echo")


def test_an_answer_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(session_module, "MOST", 1_000_000)
    with pytest.raises(Lost, match="more than"):
        Session(HERE).run("yes")


def test_closing_ends_the_other_side():
    session = Session(HERE)
    other_side = int(session.run("echo $$")[1])
    session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(other_side, 0)


def test_why_a_task_did_not_reach_its_machine_is_one_line():
    warning = "@@@@@@@\r\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nIT IS POSSIBLE THAT …\r\n"
    said = why_not_reached(
        f"Task failed: Failed to connect to the host via ssh: {warning}Host key verification failed."
    )
    assert said.startswith("another system answers: its host key is not the one")
    assert "@" not in said
    silent = "Task failed: Failed to connect to the host via ssh: ssh: connect to host 192.0.2.1 port 22:\r\nNo route"
    assert why_not_reached(silent) == f"it does not answer ({' '.join(silent.split())})"
    assert why_not_reached("it is off") == "it does not answer (it is off)"
    assert len(why_not_reached("no " * 500)) < 330


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", True),
        ("ssh: connect to host 192.0.2.1 port 22: No route to host", True),
        ("channel 0: open failed: connect failed: No route to host\r\nConnection closed by UNKNOWN port 65535", True),
        ("Host key for a.os has changed.\r\nHost key verification failed.", False),
        ("root@192.0.2.1: Permission denied (publickey,password).", False),
        ("Connection timed out during banner exchange", False),
        ("Failed to create temporary directory", False),
        ("", False),
    ],
)
def test_silent_is_a_machine_that_takes_no_connection(said, silent):
    assert is_silent(f"Task failed: Failed to connect to the host via ssh: {said}") is silent
