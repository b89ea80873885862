# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller: image commands, host keys, logs, records, private keys; and text made harmless."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import random
import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import Masker
from ansible_collections.kubenode.provision.plugins.module_utils._common.ssh_access import (
    InvalidHostKey,
    parse_host_key,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, printable
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import fleet_check
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import machine_boot
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.image_inputs import (
    LARGEST_SENT_ALONG,
    CommandNotUsable,
    find_command,
    find_pre_provision_command,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.rescue_programs import IMAGE_COMMANDS
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.watch import Logs
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import (
    OTHER_KEY,
    REFUSED,
    SILENT,
    KnownHosts,
    classify,
)
from tests.key_pairs import key_pair
from tests.waiting import until

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
BOOT = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6"
NAME = "image-url-command-x"


# --- image commands


def put(path: Path, mode: int = 0o755, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_command_is_read_from_the_directory(tmp_path):
    put(tmp_path / NAME, text="#!/bin/sh\necho hi\n")
    found = find_command(NAME, str(tmp_path))
    assert (found.path, found.head, found.shipped) == (str(tmp_path / NAME), b"#!/bin/sh\necho hi\n", False)
    assert len(found.sha256) == 64


def test_a_link_within_the_directory_is_followed(tmp_path):
    # A mounted ConfigMap looks like this.
    put(tmp_path / "..2026" / NAME)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / NAME).symlink_to(f"..data/{NAME}")
    assert find_command(NAME, str(tmp_path)).head == b"#!/bin/sh\n"


def test_a_shipped_command_is_found_by_name_unless_the_directory_has_one(tmp_path):
    for name in IMAGE_COMMANDS:
        found = find_command(name, str(tmp_path / "nowhere"))
        assert (found.shipped, found.path) == (True, f"kubenode.provision/{name}")
        own = put(tmp_path / name)
        assert find_command(name, str(tmp_path)).path == str(own)


#: what is put into a folder, and why it is no program that can be used
UNUSABLE = [
    (lambda base: None, "there is no"),
    (lambda base: put(base / NAME, 0o644), "is not executable; chmod +x"),
    (lambda base: put(base / NAME, text=""), "is empty"),
    (lambda base: put(base / NAME, text=" \n"), "is empty"),
    (lambda base: put(base / NAME, text="#!/bin/sh\r\ntrue\r\n"), "CRLF"),
    (lambda base: put(base / NAME, text="#!/usr/bin/env python3\r"), "CRLF"),
    (lambda base: put(base / NAME, text="echo hi\n"), "names no interpreter (#!/bin/sh)"),
    (lambda base: put(base / NAME, text="\ufeff#!/bin/sh\n"), "byte order mark"),
    (lambda base: put(base / NAME, text="#!\n"), "the interpreter ''"),
    (lambda base: put(base / NAME, text="#!python3\n"), "the interpreter 'python3'"),
    (lambda base: put(base / NAME, text="#!/bin/sh " + "x" * 200 + "\n"), "more than 127 bytes"),
    (lambda base: (base / NAME).mkdir(), "is not a file"),
    (lambda base: (base / NAME).symlink_to("nowhere"), "leads nowhere"),
    (lambda base: (base / NAME).symlink_to(NAME), "leads nowhere"),
    (lambda base: (base / NAME).symlink_to(put(base.parent / "outside" / NAME)), "outside of"),
]


@pytest.mark.parametrize(("make", "why"), UNUSABLE)
def test_a_command_that_cannot_be_used_is_refused(tmp_path, make, why):
    base = tmp_path / "shared"
    base.mkdir()
    make(base)
    with pytest.raises(CommandNotUsable) as refusal:
        find_command(NAME, str(base))
    assert why in str(refusal.value)


@pytest.mark.parametrize("name", IMAGE_COMMANDS)
def test_where_a_folder_cannot_be_looked_at_no_shipped_command_is_taken_instead(tmp_path, name):
    folder = str(tmp_path / ("x" * 300))  # the system's error is one for root, too
    for find in (find_command, partial(find_pre_provision_command, find_file=str)):
        with pytest.raises(CommandNotUsable, match="cannot be looked at: File name too long; let the user that runs"):
            find(name, folder)


@pytest.mark.parametrize(
    "content",
    [
        b"#!/bin/sh\necho 'a\r'\n",
        b"#! /usr/bin/env python3\n",
        b"#!/bin/sh",
        b"\x7fELF\x02\r\n",
        b"#!/usr/bin/python3\nPK\x03",
    ],
)
def test_what_a_machine_can_run_is_taken(tmp_path, content):
    put(tmp_path / NAME).write_bytes(content)
    assert find_command(NAME, str(tmp_path)).head == content


@pytest.mark.parametrize(("size", "is_large"), [(1 << 20, False), ((1 << 20) + 1, True), (5_000_000, True)])
def test_a_large_command_is_read_in_pieces(tmp_path, size, is_large):
    content = random.Random(size).randbytes(size - 10)
    put(tmp_path / NAME).write_bytes(b"#!/bin/sh\n" + content)
    found = find_command(NAME, str(tmp_path))
    assert (found.is_large, found.size, found.sha256) == (
        is_large, size, hashlib.sha256(b"#!/bin/sh\n" + content).hexdigest(),
    )  # fmt: skip
    assert len(found.head) <= LARGEST_SENT_ALONG
    assert b"".join(found.pieces()) == b"#!/bin/sh\n" + content
    if not is_large:
        assert found.head == b"#!/bin/sh\n" + content


@pytest.mark.parametrize(("head", "why"), [(b"echo hi\n", "names no interpreter"), (b"\n", "is empty")])
def test_a_large_command_that_no_machine_can_run_is_refused(tmp_path, head, why):
    put(tmp_path / NAME).write_bytes(head + b"\n" * 2_000_000)
    with pytest.raises(CommandNotUsable, match=why):
        find_command(NAME, str(tmp_path))


def test_the_shipped_commands_go_along_with_the_call_that_starts_them():
    for name in IMAGE_COMMANDS:
        command = find_command(name, "/nowhere")
        assert (command.is_large, hashlib.sha256(command.head).hexdigest()) == (False, command.sha256)
        assert b"".join(command.pieces()) == command.head


def test_a_bad_name_does_not_leave_the_directory(tmp_path):
    put(tmp_path / NAME)
    with pytest.raises(CommandNotUsable):
        find_command(f"../{tmp_path.name}/{NAME}", str(tmp_path))


# --- host keys


def hosts(tmp_path: Path, run: str = "run-1", phase: str = "rescue") -> KnownHosts:
    return KnownHosts(str(tmp_path / "pins"), "Node-1", phase, run)


def options(known_hosts: KnownHosts) -> dict[str, str]:
    return dict(word[2:].split("=", 1) for word in shlex.split(known_hosts.ssh_options()))


def test_a_first_contact_is_accepted_and_a_proven_one_is_strict(tmp_path):
    pin = hosts(tmp_path)
    pin.prepare()
    assert options(pin)["StrictHostKeyChecking"] == "accept-new"
    assert options(pin)["HostKeyAlias"] == "node-1.rescue"
    assert options(pin)["UserKnownHostsFile"] == f'"{tmp_path}/pins/Node-1.rescue"'
    pin.path.write_text(f"node-1.rescue {KEY}\n")
    pin.prove(BOOT)
    assert options(pin)["StrictHostKeyChecking"] == "yes"
    assert (pin.boot_id, pin.of_this_run, hosts(tmp_path, "run-2").of_this_run) == (BOOT, True, False)
    assert pin.path.read_text().splitlines()[1] == f"node-1.rescue {KEY}"
    assert pin.path.stat().st_mode & 0o077 == 0
    assert pin.path.parent.stat().st_mode & 0o077 == 0
    pin.prove(BOOT.replace("9", "8"))
    assert pin.path.read_text().count("# kubenode") == 1
    pin.forget_unproven()
    assert pin.boot_id
    pin.forget()
    pin.forget()
    assert (pin.boot_id, pin.fingerprints()) == ("", [])


def test_keys_known_in_advance_are_never_forgotten(tmp_path):
    pin = hosts(tmp_path)
    pin.prepare()
    pin.require([KEY])
    pin.forget()
    pin.forget_unproven()
    assert options(pin)["StrictHostKeyChecking"] == "yes"
    found = subprocess.run(["ssh-keygen", "-lf", pin.path], capture_output=True, text=True, check=True).stdout
    assert pin.fingerprints() == [found.split()[1]]
    looked_up = subprocess.run(["ssh-keygen", "-F", pin.alias, "-f", pin.path], capture_output=True, check=True)
    assert KEY.encode() in looked_up.stdout


def test_the_steps_of_a_rescue_keep_the_boot_that_one_of_them_has_proven(tmp_path):
    """A reboot goes to the rescue of that boot; without it, the next contact is one with the installed system."""
    pin = hosts(tmp_path)
    pin.prepare()
    pin.require([KEY])
    pin.prove(BOOT)
    pin.require([KEY])
    assert pin.boot_id == BOOT
    pin.require([KEY.replace("AAAA", "AAAB", 1)])
    assert pin.boot_id == "", "a rescue with other keys is another boot"


def test_a_directory_with_odd_characters_reaches_ssh_as_it_is(tmp_path):
    pin = KnownHosts(str(tmp_path / "a b%c'd"), "node-1", "os", "run-1")
    arguments = shlex.split(pin.ssh_options())
    shown = subprocess.run(["ssh", "-G", *arguments, "host"], capture_output=True, text=True, check=True).stdout
    assert f"userknownhostsfile {pin.path}\n" in shown


@pytest.mark.parametrize("line", [KEY, KEY + " comment with words", "  " + KEY + "\n"])
def test_public_keys_are_read(line):
    assert parse_host_key(line) == KEY


@pytest.mark.parametrize(
    "line", ["", "ssh-ed25519", "ssh-ed25519 %%", "ssh-rsa " + KEY.split()[1], "* " + KEY, "a\nb c", "SHA256:abc"]
)
def test_what_is_no_public_key_is_refused(line):
    with pytest.raises(InvalidHostKey):
        parse_host_key(line)


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (
            "Failed to connect to the host via ssh: ssh: connect to host x port 22: Connection refused",
            SILENT,
            "refused",
        ),
        ("ssh: connect to host x port 22: No route to host\r\n", SILENT, "No route"),
        ("Connection timed out during banner exchange", SILENT, "timed out"),
        ("Warning: Permanently added 'x'\nroot@x: Permission denied (publickey).", REFUSED, "Permission denied"),
        ("Received disconnect: Too many authentication failures", REFUSED, "Too many"),
        ("@@ REMOTE HOST IDENTIFICATION HAS CHANGED! @@\nHost key verification failed.", OTHER_KEY, "not the pinned"),
        ("No ED25519 host key is known for x and you have requested strict checking.", OTHER_KEY, "not the pinned"),
    ],
)
def test_a_failed_connection_says_who_is_there(error, kind, detail):
    found = classify(error)
    assert found.kind == kind
    assert detail in found.detail


# --- logs and text


def test_logs_are_complete_private_and_without_secrets(tmp_path):
    logs = Logs(str(tmp_path / "logs"), "node-1", Masker(["s3cr3t", None, "", "abc"]))
    logs.begin()
    assert logs.append(b"0.1 out the s3c") == []
    assert logs.append(b"r3t is abc\n0.2 err \xff\nrest") == ["0.1 out the ******** is abc", "0.2 err \ufffd"]
    assert logs.interleaved.read_bytes() == b"0.1 out the ******** is abc\n0.2 err \xff\n"
    assert logs.store("stdout", gzip.compress(b"x s3cr3t y")) == b"x ******** y"
    for file in logs.directory.iterdir():
        assert file.stat().st_mode & 0o077 == 0
    logs.begin()
    assert logs.interleaved.read_bytes() == b""
    with pytest.raises(gzip.BadGzipFile):
        logs.store("stdout", b"no gzip")


@given(st.lists(st.integers(0, 90), max_size=6))
def test_a_secret_in_pieces_is_masked_as_a_whole(tmp_path_factory, cuts):
    logs = Logs(str(tmp_path_factory.mktemp("logs")), "node-1", Masker(["s3cr3t-and-long"]))
    logs.begin()
    data = b"0.1 out x s3cr3t-and-long y\n0.2 err s3cr3t-and-long\n0.3 out s3cr3t-and-longs3cr3t-and-long\n"
    places = [0, *sorted(cuts), len(data)]
    shown = [line for begin, end in itertools.pairwise(places) for line in logs.append(data[begin:end])]
    assert shown == ["0.1 out x ******** y", "0.2 err ********", "0.3 out ****************"]
    assert b"s3cr" not in logs.interleaved.read_bytes()


def test_a_secret_that_the_runner_cut_in_two_is_masked(tmp_path):
    logs = Logs(str(tmp_path), "node-1", Masker(["s3cr3t-and-long"]))
    logs.begin()
    gap = b"[kubenode: something is left out here; what follows are the last 65536 bytes]"
    stored = logs.store("stdout", gzip.compress(b"first\nthe s3cr3t-an\n" + gap + b"\nt-and-long is\nlast\n"))
    assert stored == b"first\nthe ********\n" + gap + b"\n******** is\nlast\n"
    long = b"1.0 out " + b"x" * 65526 + b"s3cr3t-and"
    lines = [long, b"1.0 err s3cr", b"1.0 out -long", b"1.0 out s3cr", b"1.1 out " + gap, b"1.1 out d-long", b""]
    assert [line[-12:] for line in logs.append(b"\n".join(lines))] == [
        "xxxx********",
        "1.0 err s3cr",
        "out ********",
        "1.0 out s3cr",
        "65536 bytes]",
        "out ********",
    ]


@given(st.text())
def test_printable_text_obeys_nothing(text):
    for shown in (printable(text), one_line(text)):
        assert not any(character < " " and character not in "\t\n" for character in shown)
        assert not set(shown) & set("\x7f\x9b\u202e\u2066")
        shown.encode()
    assert "\n" not in one_line(text)


# --- records


MINE, OTHER = "a" * 32, "b" * 32


def test_a_record_is_completed_once():
    first = machine_boot.complete_record(
        None, "node-1", MINE, "https://u:p@x/y?z#f", "image-url-command-x", "disk", "now"
    )
    assert first == {
        "machine": "node-1",
        "installation": MINE,
        "image_url": "https://x/y",
        "command": "image-url-command-x",
        "installed_at": "now",
        "verified_at": "now",
        "proof": "disk",
    }
    assert (
        machine_boot.complete_record(first, "node-1", MINE, "https://x/y", "image-url-command-x", "nonce", "later")
        is None
    )
    written = {**first, "installed_at": "before", "digest": "sha256:00"}
    del written["verified_at"]
    done = machine_boot.complete_record(written, "node-1", MINE, None, None, "nonce", "now")
    assert (done["installed_at"], done["verified_at"], done["digest"]) == ("before", "now", "sha256:00")
    assert machine_boot.public_record({"machine": 1, "other": "x", "command": None}) == {"machine": "1"}


def test_a_record_keeps_what_it_says():
    first = {"machine": "node-1", "installation": MINE, "image_url": "https://x/y", "command": "x"}
    assert machine_boot.complete_record(first, "node-1", OTHER, "https://x/z", "z", "nonce", "now") is None
    same = machine_boot.complete_record(first, "node-1", MINE, "https://x/z", "z", "nonce", "now")
    verified = {"installed_at": "now", "verified_at": "now", "proof": "nonce"}
    assert same == {**first, "image_url": "https://x/z", "command": "z", **verified}
    assert machine_boot.complete_record(same, "node-1", MINE, "https://x/y", "y", "nonce", "later") is None
    # the image was made from another machine, and its disk is what was proven
    brought = machine_boot.complete_record(
        {"machine": "builder", "image_url": "x"}, "node-1", MINE, None, None, "disk", "now"
    )
    assert (brought["machine"], "image_url" in brought) == ("node-1", False)


# --- private keys


def test_a_private_key_that_opens_is_taken(tmp_path):
    key_pair(tmp_path / "key")
    fleet_check.check_private_key(str(tmp_path / "key"))


def test_a_private_key_behind_a_passphrase_needs_an_agent(tmp_path, monkeypatch):
    key, other = tmp_path / "key", tmp_path / "other"
    for path in (key, other):
        key_pair(path, passphrase="passphrase")
    key.with_suffix(".pub").unlink()
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(fleet_check.KeyNotUsable) as refusal:
        fleet_check.check_private_key(str(key))
    assert "protected by a passphrase and no agent holds it; ssh-add it" in str(refusal.value)
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
        try:
            ask = tmp_path / "ask"
            put(ask, text="#!/bin/sh\necho passphrase\n")
            environment = {**os.environ, "SSH_AUTH_SOCK": str(socket), "SSH_ASKPASS": str(ask), "DISPLAY": ":0"}
            environment["SSH_ASKPASS_REQUIRE"] = "force"
            listed = ["ssh-add", "-l"]  # 2: no agent answers; the socket is there a moment before it listens
            until(lambda: subprocess.run(listed, env=environment, check=False).returncode != 2, "the agent")
            subprocess.run(["ssh-add", "-q", key], env=environment, stdin=subprocess.DEVNULL, check=True)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            fleet_check.check_private_key(str(key))
            with pytest.raises(fleet_check.KeyNotUsable):
                fleet_check.check_private_key(str(other))
        finally:
            agent.terminate()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: put(path, 0o600, "nonsense\n"), "it is not a private key"),
        (lambda path: (key_pair(path), path.chmod(0o644)), "others may read it, so ssh refuses it; chmod 600"),
    ],
)
def test_a_private_key_that_ssh_cannot_use_is_refused(tmp_path, make, why):
    make(tmp_path / "key")
    with pytest.raises(fleet_check.KeyNotUsable) as refusal:
        fleet_check.check_private_key(str(tmp_path / "key"))
    assert why in str(refusal.value)
