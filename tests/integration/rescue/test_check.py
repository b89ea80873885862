# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""image_url_check, run as a user runs it; it needs no machine."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.integration.controller import Controller
from tests.integration.runs import Run

GOOD = {
    "name": "node-1",
    "image_url": "https://u:secret-pw@x.example/a.raw?sig=secret-sig",
    "command": "image-url-command-a",
}


class User(Controller):
    """A user with image commands and a key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        self.commands = folder / "commands"
        self.commands.mkdir()
        command = self.commands / GOOD["command"]
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)

    def check(self, *machines: dict, **options: object) -> Run:
        given = {"command_dir": str(self.commands), "ssh_private_key": str(self.key), **options}
        return self.module("localhost", "image_url_check", "-vvv", machines=list(machines), **given)


@pytest.fixture
def user(tmp_path) -> User:
    """A user whose inputs are all right."""
    return User(tmp_path)


def test_a_digest_can_be_asked_for(user):
    pinned = f"https://x.example/a.raw#stall=9&sha256={'a' * 64}"
    run = user.check(
        {**GOOD, "require_digest": True},
        {**GOOD, "require_digest": True, "name": "node-2", "image_url": pinned},
        {**GOOD, "require_digest": True, "name": "node-3", "image_url": "oci://u:secret-pw@r.example/a:v1"},
        {**GOOD, "name": "node-4"},
    ).fails()
    assert [one["failed"] for one in run["machines"]] == [True, False, True, False]
    assert "it names no digest although require_digest is set; give #sha256=" in run["machines"][0]["msg"]
    assert "it names no digest although require_digest is set; give NAME@sha256:" in run["machines"][2]["msg"]
    assert "secret" not in run.output


def test_what_is_right_is_resolved_and_nothing_is_shown(user):
    (user.folder / "user-data").write_text("#cloud-config\n")
    run = user.check(
        {**GOOD, "bootstrap_data_file": str(user.folder / "user-data")},
        {**GOOD, "name": "node-2", "bootstrap_data": {"ignition": {"version": "3.4.0", "key": "secret-ign"}}},
    ).ok()
    assert run["changed"] is False
    first, second = run["machines"]
    assert first == {
        "name": "node-1",
        "changed": False,
        "failed": False,
        "msg": "",
        "image_url": "https://x.example/a.raw",
        "command_path": str(user.commands / GOOD["command"]),
        "command_sha256": hashlib.sha256(b"#!/bin/sh\n").hexdigest(),
        "command_shipped": False,
    }
    assert second["name"] == "node-2"
    assert "secret" not in run.output


def test_one_message_lists_every_finding(user):
    (user.folder / "empty").write_text("\n")
    run = user.check(
        {"name": "no-scheme", "image_url": "x.example/a.raw", "command": GOOD["command"]},
        {"name": "no-prefix", "image_url": "https://x/y", "command": "raw-disk"},
        {"name": "escape", "image_url": "https://x/y", "command": "../image-url-command-a"},
        {"name": "missing", "image_url": "https://x/y", "command": "image-url-command-nowhere"},
        {"name": "only-url", "image_url": "https://u:secret-pw@x/y"},
        {"name": "only-command", "command": GOOD["command"]},
        {"name": "neither"},
        {**GOOD, "name": "two-data", "bootstrap_data": "secret-a", "bootstrap_data_file": "b"},
        {**GOOD, "name": "no-file", "bootstrap_data_file": str(user.folder / "nowhere")},
        {**GOOD, "name": "empty-file", "bootstrap_data_file": str(user.folder / "empty")},
        {**GOOD, "name": "empty-data", "bootstrap_data": ""},
        {**GOOD, "name": "no-device", "root_devices": []},
        {**GOOD, "name": "bad/name"},
        {**GOOD, "name": "twice"},
        {**GOOD, "name": "twice"},
        ssh_private_key=str(user.folder / "no-key"),
    ).fails()
    lines = run["msg"].splitlines()
    assert lines[0] == "17 findings, nothing was created or changed:"
    for expected in (
        '- no-scheme: image_url "x.example/a.raw": it is neither an absolute URL (scheme://…) nor an absolute path',
        "- no-prefix: command \"raw-disk\": it does not begin with 'image-url-command-'; rename the program",
        "- escape: command \"../image-url-command-a\": it holds a '/'; give the name alone",
        f'- missing: command "image-url-command-nowhere": there is no {user.commands}/image-url-command-nowhere',
        "- only-url: command: missing; name the image command",
        "- only-command: image_url: missing; give what the image command gets",
        "- neither: image_url: missing",
        "- neither: command: missing",
        "- two-data: bootstrap_data and bootstrap_data_file are both set; use one of them",
        f'- no-file: bootstrap_data_file "{user.folder}/nowhere": it cannot be read',
        f'- empty-file: bootstrap_data_file "{user.folder}/empty": it is empty',
        "- empty-data: bootstrap_data is empty; leave the option out",
        "- no-device: root_devices []: the list is empty",
        '- bad/name: name "bad/name": it is no host name (RFC 1123)',
        "- twice: name: it stands in the list more than once",
        f"- ssh_private_key '{user.folder}/no-key': there is no such file",
    ):
        assert any(line.startswith(expected) for line in lines), f"{expected}\nis not in\n{run['msg']}"
    assert {machine["name"] for machine in run["machines"] if not machine["failed"]} == set()
    assert "secret" not in run.output


def test_a_vaulted_file_is_bootstrap_data(user, monkeypatch):
    password = user.folder / "password"
    password.write_text("vault password\n")
    data = user.folder / "user-data"
    data.write_text("#cloud-config\n")
    vault = ["ansible-vault", "encrypt", "--vault-password-file", str(password), str(data)]
    subprocess.run(vault, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    user.check({**GOOD, "bootstrap_data_file": str(data)}).ok()


def test_a_shipped_command_is_found(user):
    run = user.check({**GOOD, "command": "image-url-command-raw-disk"}).ok()
    assert run["machines"][0]["command_shipped"] is True


def test_no_machine_is_a_finding(user):
    user.check().fails("machines is empty")


def test_how_the_new_system_is_reached_is_looked_at(user, tmp_path):
    wrong = {"os_user": "a b", "os_port": "ssh", "os_private_key": str(tmp_path / "none")}
    good = {"os_user": "admin", "os_port": 2222, "os_private_key": str(user.key)}
    run = user.check({**GOOD, **wrong}, {**GOOD, **good, "name": "node-2"})
    assert [one["failed"] for one in run["machines"]] == [True, False]
    for text in (
        "os_user: 'a b' is no user name",
        "os_port: 'ssh' is no port; use a number from 1 to 65535",
        f"os_private_key: there is no file '{tmp_path / 'none'}' on the controller",
    ):
        assert text in run["machines"][0]["msg"]
