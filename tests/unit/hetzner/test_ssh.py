# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH client's command line, and which parts of an answer are trusted."""

from __future__ import annotations

import base64
import errno
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, safe_files, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import boot_flow, ssh
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import ssh as ssh_module
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import FleetError, MachineError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import (
    DENIED,
    KILLED,
    LONGEST_OUTPUT,
    SILENT,
    SYSTEM,
    Answer,
    Ssh,
    make_ssh,
    parse_failure,
    parse_probe,
    run_limited,
)
from tests.folders import put
from tests.unit.common.answers import of_probe
from tests.waiting import until

IN_RAM = "1 1 0:2 / / rw - rootfs rootfs rw"
ON_DISK = "1 1 8:2 / / rw - ext4 /dev/sda2 rw"
BOOT_ID = "0d1f3c55-39a4-4a1c-bf0e-3c2a7a2b8d11"
RECORD = '{"machine": "n1", "image_url": "https://example.com/a=b", "size": 3}'
RESCUE = {
    "uid": "0",
    "hostname": "renamed",
    "root": IN_RAM,
    "rescue_marks": "oldroot,motd",
    "boot_id": BOOT_ID,
    "os": "Debian GNU/Linux 12 (bookworm)",
    "record": RECORD,
}


def test_a_rescue_is_recognised():
    answer = parse_probe(of_probe(**RESCUE))
    assert answer.in_rescue
    assert answer.boot_id == BOOT_ID
    assert answer.os_name == "Debian GNU/Linux 12 (bookworm)"
    assert answer.installed == {"machine": "n1", "image_url": "https://example.com/a=b"}


@pytest.mark.parametrize("other", [{"root": ON_DISK}, {"root": ""}, {"rescue_marks": ""}, {"uid": "1000"}])
def test_what_is_no_rescue_under_any_name(other):
    answer = parse_probe(of_probe(**{**RESCUE, "hostname": "rescue", **other}))
    assert not answer.in_rescue
    assert f"which is no rescue: {answer.origin.why_no_rescue}" in answer.describe()


@pytest.mark.parametrize("part", ["end=1\n", "--\nend=1\n", "=\n--\nend=1\n"])
def test_half_an_answer_is_a_system_of_which_little_is_known(part):
    """It does not show the record that says which permission is used up, and is no silence either."""
    text = of_probe(**RESCUE).replace("Cg==", "CgA=")
    answer = parse_probe(text[: -len(part)])
    assert (answer.kind, answer.boot_id, answer.whole) == (SYSTEM, BOOT_ID, False)
    assert (answer.installed, answer.in_rescue) == (None, False)
    assert "its answer is not whole" in answer.describe()
    assert parse_probe(text.replace("CgA=", "Cg==")).whole


def test_half_an_answer_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(boot_flow, "LOOK_EVERY", 0)
    whole, asked = parse_probe(of_probe(**RESCUE)), []
    answers, noted = [replace(whole, whole=False, installed=None), replace(whole, whole=False), whole], []

    def probe():
        asked.append(True)
        return answers[len(asked) - 1]

    flow = SimpleNamespace(
        look_seconds=lambda: 60, probe=probe, note=noted.append, seen=SimpleNamespace(unproven="", answer=None)
    )
    boot_flow.BootFlow.look(flow)
    assert (noted, flow.seen.answer) == ([whole], "rescue")


def test_half_an_answer_is_not_given_up():
    """A name that stays in an inventory would send a healthy node into its rescue when its record is not read."""
    flow = SimpleNamespace(
        run=SimpleNamespace(name="n1"),
        fleet=SimpleNamespace(words=consent.Words("reinstall", ["n1"]), intents=boot_flow.IntentStore(None, {})),
        result={},
    )
    half = parse_probe(of_probe(**{**RESCUE, "root": ON_DISK, "record": ""}).removesuffix("end=1\n"))
    assert not boot_flow.BootFlow.may_go(flow, half)
    assert flow.result["used"] == (
        "kubenode_reinstall names n1, but its answer is not whole, so what is installed there is not known; run again, "
        "or boot it into its rescue yourself"
    )
    whole = parse_probe(of_probe(**{**RESCUE, "root": ON_DISK, "record": ""}))
    assert boot_flow.BootFlow.may_go(flow, whole), "it shows that nothing of ours is installed there"


def test_output_of_another_program_is_some_system():
    answer = parse_probe("Welcome!\x1b[2J Please choose: ")
    assert (answer.kind, answer.in_rescue, answer.boot_id) == (SYSTEM, False, None)
    assert "\x1b" not in answer.detail


def test_a_record_with_a_byte_that_is_no_utf_8_is_read():
    record = b'{"machine": "n1", "consent": "reinstall", "image_url": "http://x/\xe9.img"}'
    installed = parse_probe(of_probe(record=record)).installed
    assert installed is not None
    assert installed["consent"] == "reinstall"


@pytest.mark.parametrize("text", ["[]", "null", "{", "7", '"x"'])
def test_a_broken_record_is_no_record(text):
    assert parse_probe(of_probe(record=text)).installed is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_hostile_output_never_gets_through(before, value):
    answer = parse_probe(f"{before}\n" + of_probe(os=value, hostname=value, boot_id=value))
    for text in (answer.detail, answer.os_name or "", answer.hostname or "", answer.describe()):
        assert text.isascii()
        assert text.isprintable() or text == ""
    assert answer.boot_id is None or answer.boot_id == value


@pytest.mark.parametrize(
    ("code", "errors", "kind"),
    [
        (255, "root@192.0.2.1: Permission denied (publickey).", DENIED),
        (255, "Received disconnect from 192.0.2.1: Too many authentication failures", DENIED),
        (255, "ssh: connect to host 192.0.2.1 port 22: Connection refused", SILENT),
        (255, "", SILENT),
        (1, "", SYSTEM),
        (127, "sh: not found", SYSTEM),
    ],
)
def test_failures_are_distinguished(code, errors, kind):
    assert parse_failure(code, errors).kind == kind


@pytest.mark.parametrize(
    ("detail", "listens"),
    [
        ("ssh: connect to host 192.0.2.1 port 22: Connection refused", False),
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", False),
        ("ssh: connect to host 192.0.2.1 port 22: No route to host", False),
        ("kex_exchange_identification: read: Connection reset by peer", True),
        ("banner exchange: Connection to 192.0.2.1 port 50000: invalid format", True),
        ("Connection timed out during banner exchange", True),
        ("Connection closed by 192.0.2.1 port 22", True),
    ],
)
def test_what_speaks_no_ssh_listens_all_the_same(detail, listens):
    assert Answer(SILENT, detail).listens is listens


def test_the_command_line_keeps_to_our_own_host_keys():
    shell = Ssh("/run/my pins/%h", "root", 2222, "/keys/id", ["-J", "hop"])
    line = shell.argv("n1", "192.0.2.1", "/run/my pins/%h/n1", "id")
    assert 'UserKnownHostsFile="/run/my pins/%%h/n1"' in line
    assert "GlobalKnownHostsFile=/dev/null" in line
    assert line[-3:] == ["--", "192.0.2.1", "id"]
    assert line.index("StrictHostKeyChecking=accept-new") < line.index("-J")
    assert line[line.index("-i") + 1] == "/keys/id"


def options(tmp_path, **more):
    return {"ssh_user": "root", "ssh_port": 22, "ssh_args": "", "ssh_private_key": None, **more}, str(tmp_path / "pins")


@pytest.mark.parametrize(
    "more",
    [{"ssh_user": "-oProxyCommand=id"}, {"ssh_user": "a b"}, {"ssh_port": 0}, {"ssh_port": 70000}, {"ssh_args": "'"}],
)
def test_options_that_cannot_work(tmp_path, more):
    with pytest.raises(FleetError, match=next(iter(more))):
        make_ssh(*options(tmp_path, **more))


def test_an_installed_system_on_the_port_of_its_rescue_is_not_asked_twice(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Ssh, "_run", lambda _self, line: asked.append(line[line.index("-p") + 1]) or (255, "", "no"))
    access = [{"name": "n1", "os_port": "22"}, {"name": "n2", "os_port": "2222"}, {"name": "n3"}]
    params, directory = options(tmp_path, access=access)
    shell = make_ssh(params, directory)
    for name in ("n1", "n2", "n3"):
        shell.probe(name, "192.0.2.1")
    assert asked == ["22", "22", "2222", "22"]
    assert [shell.probe_elsewhere(name, "192.0.2.1") is None for name in ("n1", "n2", "n3")] == [True, False, True]


def test_directory_of_the_pins_is_private(tmp_path):
    params, directory = options(tmp_path)
    make_ssh(params, directory)
    assert (tmp_path / "pins").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FleetError, match="known_hosts_dir"):
        make_ssh(params, directory + '"')


def test_behind_a_jump_host_each_type_of_host_key_is_asked_for(tmp_path, monkeypatch):
    """ssh-keyscan knows no jump hosts, and a connection shows one key: that of the first algorithm that both know."""
    blobs = {}
    for kind in ("ssh-ed25519", "ssh-rsa"):
        blobs[kind] = base64.b64encode(len(kind).to_bytes(4, "big") + kind.encode() + b"key").decode()
    fake = f"""#!/bin/sh
[ "$1" = -G ] && {{ printf 'hostname h\nport 22\nproxyjump jump\n'; exit; }}
for word; do
    case $word in
        UserKnownHostsFile=*) file=${{word#*=}}; file=${{file#?}}; file=${{file%?}} ;;
        HostKeyAlgorithms=*) algorithms=${{word#*=}} ;;
    esac
done
echo "$algorithms" >>{tmp_path}/asked
case $algorithms in
    ""|*ed25519*) echo "host ssh-ed25519 {blobs["ssh-ed25519"]}" >"$file" ;;
    *rsa*) echo "host ssh-rsa {blobs["ssh-rsa"]}" >"$file" ;;
esac
exit 255
"""
    monkeypatch.setenv("PATH", f"{put(tmp_path / 'bin/ssh', fake, 0o755).parent}:/usr/bin:/bin")
    shell = Ssh(str(tmp_path), extra_args=["-J", "jump"])
    (tmp_path / "n1.probe").write_text("what an earlier look showed\n")
    assert shell.host_keys("n1", "192.0.2.1") == [f"{kind} {blobs[kind]}" for kind in ("ssh-ed25519", "ssh-rsa")]
    assert (tmp_path / "asked").read_text().splitlines() == [
        "", "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521", "rsa-sha2-512,rsa-sha2-256,ssh-rsa",
    ]  # fmt: skip
    assert (tmp_path / "n1.probe").read_text() == "what an earlier look showed\n"
    assert not (tmp_path / "n1.shown").exists()


class Listener:
    """A port, and whether a connection to it was made."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]

    def came(self):
        """Whether there was one, since it listens."""
        self.socket.setblocking(False)
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def test_each_machine_is_reached_by_the_arguments_of_its_own(tmp_path):
    """A proxy of one machine is asked for it, with its address, also for host keys; the other one is asked itself."""
    asked = tmp_path / "asked"
    proxy = put(tmp_path / "proxy", f'#!/bin/sh\necho "$*" >>{asked}\n', 0o755)
    more = "-o HostKeyAlias=of-the-user -oControlMaster=auto"
    way = {"name": "far", "ssh_args": f"-o ProxyCommand='{proxy} %h %p' {more}"}
    shell = make_ssh(*options(tmp_path, access=[way, {"name": "near", "ssh_args": ""}]))
    listener = Listener()
    assert shell.probe("far", "192.0.2.7").kind == SILENT
    assert asked.read_text() == "192.0.2.7 22\n"
    assert shell.host_keys("far", "192.0.2.7") == []
    assert asked.read_text() == "192.0.2.7 22\n" * 2, "ssh-keyscan knows no proxy"
    assert not listener.came()
    shell._port, shell._connect_timeout = listener.port, 1
    shell.host_keys("near", "127.0.0.1")
    assert listener.came()
    assert asked.read_text() == "192.0.2.7 22\n" * 2


def test_a_jump_host_of_the_ssh_configuration_is_seen(tmp_path):
    config = tmp_path / "config"
    config.write_text("Host 192.0.2.7\n ProxyJump hop\nHost 192.0.2.8\n Port 2222\n HostName 192.0.2.9\n")
    shell = make_ssh(*options(tmp_path, ssh_args=f"-F {config}"))
    assert shell._direct_address("a", "192.0.2.7") is None
    assert shell._direct_address("b", "192.0.2.8") == ("192.0.2.9", 22)


def test_arguments_that_cannot_be_split_are_refused_with_their_machine(tmp_path):
    with pytest.raises(FleetError, match=r"far: ssh_args: .*No closing quotation"):
        make_ssh(*options(tmp_path, access=[{"name": "far", "ssh_args": "-o ProxyCommand='x"}]))


def test_a_key_that_cannot_be_kept_ends_one_machine_alone(tmp_path):
    shell = Ssh(str(tmp_path / "gone"))
    with pytest.raises(MachineError, match=r"host key of its rescue cannot be kept in .*gone"):
        shell.pin("n1")
    with pytest.raises(MachineError, match="No such file"):
        shell.pin_keys("n1", ["ssh-ed25519 AAAA"])


def test_a_full_disk_is_named_with_its_way_out(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(safe_files.os, "replace", full)
    with pytest.raises(
        MachineError, match=r"n1.rescue cannot be written \(No space left on device\); make room on the"
    ):
        Ssh(str(tmp_path)).pin_keys("n1", ["ssh-ed25519 AAAA"])
    assert list(tmp_path.iterdir()) == []


def test_host_keys_of_no_machine_are_of_none():
    assert "n1" not in ssh_module._host_keys([{"host_keys": ["ssh-ed25519 AAAA"]}])


# --- programs on the controller: their output, their time limit, and floods


def key(kind, number):
    """A public key of this kind, as a line has it."""
    parts = [kind.encode(), bytes([number]) * 32]
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind} {base64.b64encode(blob).decode()}"


ED, OTHER_ED = key("ssh-ed25519", 1), key("ssh-ed25519", 2)
RSA, ECDSA = key("ssh-rsa", 3), key("ecdsa-sha2-nistp256", 4)


@pytest.mark.parametrize(
    ("pinned", "shown", "another"),
    [
        ([ED], [ED], False),
        ([ED], [OTHER_ED], True),
        ([ED], [ECDSA], False),  # nothing is known of this kind
        ([ED, RSA], [OTHER_ED, RSA], False),
        ([ED], [], False),
    ],
)
def test_a_proven_system_that_shows_another_host_key(tmp_path, pinned, shown, another):
    shell, named = Ssh(str(tmp_path)), Ssh(str(tmp_path), host_keys={"n1": {ED}})
    own, last = Path(shell.pin_file("n1", "os")), Path(shell.pin_file("n1", "probe"))
    last.write_text("".join(f"n1 {one}\n" for one in shown))
    own.write_text("".join(f"n1 {one}\n" for one in pinned))
    assert shell.where_another_key_is("n1") == "", "no run has proven it"
    own.write_text(ssh_access.PROVEN + "x\n" + own.read_text())
    assert shell.where_another_key_is("n1") == (str(own) if another else "")
    assert named.where_another_key_is("n1") == ("" if ED in shown else "kubenode_host_keys")


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
