# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_cleanup on machines with something mounted or linked where it cleans: that stays, and the plan says so."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import intact

pytestmark = [pytest.mark.root]

CODE = """
import json, os
from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host
machine, mine = {machine!r}, {precious!r}
for folder in ("tmp/t", "var/tmp", "var/log/apt", "home/anna/.ssh", "home/bob", "root/.ssh", "etc/ssh", "var/lib/cloud",
               "var/cache/apt/archives", "var/lib/apt/lists", "var/lib/systemd/coredump", "var/crash", "var/lib/dhcp"):
    os.makedirs(os.path.join(machine, folder))
for name in ("tmp/left", "tmp/t/left", "etc/machine-id", "etc/hostname", "var/log/syslog", "etc/ssh/ssh_host_rsa_key"):
    with open(os.path.join(machine, name), "w") as file:
        file.write("0123456789abcdef")
os.chdir(machine)
for line in {lines!r}:
    sh(line.replace("MINE", mine))
host = Host(machine)
found = cleanup.Reach(host)
items = cleanup.ITEMS
found_actions = cleanup.actions(host, items, (), found)
warnings = cleanup.apply(host, found_actions)
again = [action.path for action in cleanup.actions(host, items)]
there = {{name: os.path.exists(os.path.join(machine, name)) for name in {asked!r}}}
print((sorted({{action.path for action in found_actions}}), found.left, warnings, again, there))
"""


@pytest.fixture
def cleaned(tmp_path, precious, in_namespace) -> Callable:
    """Clean a machine after shell lines that ran in its root; (paths, left, warnings, paths of a second run, there)."""

    def clean(*lines: str, asked: tuple[str, ...] = ()):
        machine = tmp_path / "machine"
        machine.mkdir()
        code = CODE.format(machine=str(machine), precious=str(precious), lines=lines, asked=asked)
        return ast.literal_eval(in_namespace(code))

    return clean


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("mount --bind MINE tmp/t", "/tmp/t"),
        ("mkdir tmp/t/deep && mount --bind MINE tmp/t/deep", "/tmp/t"),
        ("mkdir var/tmp/x && mount --bind MINE var/tmp/x", "/var/tmp/x"),
        ("mount --bind MINE var/lib/cloud", "/var/lib/cloud/file"),
        ("mount --bind MINE var/cache/apt/archives", "/var/cache/apt/archives/file"),
        ("mount --bind MINE var/lib/apt/lists", "/var/lib/apt/lists/file"),
        ("mount --bind MINE var/log/apt", "/var/log/apt"),
        ("mkdir -p var/log/journal/a && mount --bind MINE var/log/journal/a", "/var/log/journal/a"),
        ("mount --bind MINE var/crash", "/var/crash/file"),
        ("mount --bind MINE var/lib/dhcp", "/var/lib/dhcp/file"),
        ("mount --bind MINE/file etc/machine-id", "/etc/machine-id"),
        ("mount --bind MINE/file etc/hostname", "/etc/hostname"),
        ("mount --bind MINE/file var/log/syslog", "/var/log/syslog"),
        ("mount --bind MINE/file etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_rsa_key"),
        ("cp MINE/file MINE/authorized_keys && mount --bind MINE home/anna/.ssh", "/home/anna/.ssh/authorized_keys"),
        ("cp MINE/file MINE/.bash_history && mount --bind MINE home/bob", "/home/bob/.bash_history"),
        ("cp MINE/file MINE/.bash_history && ln -s MINE home/eve", "/home/eve/.bash_history"),
        ("cp MINE/file MINE/authorized_keys && rmdir root/.ssh && ln -s MINE root/.ssh", "/root/.ssh/authorized_keys"),
        ("rmdir var/lib/dhcp && ln -s MINE var/lib/dhcp", "/var/lib/dhcp/file"),
    ],
)
def test_what_is_mounted_or_linked_stays(cleaned, precious, line, at):
    before = {path for path in precious.rglob("*") if path.is_file()}
    paths, left, warnings, again, _there = cleaned(line)
    assert intact(precious)
    assert before <= {path for path in precious.rglob("*") if path.is_file()}
    for name in ("authorized_keys", ".bash_history"):
        assert name not in line or (precious / name).read_text() == "precious"
    assert at not in paths
    assert any(text.startswith(at + " is left as it is: ") for text in left)
    assert warnings == []
    assert not [path for path in again if path not in ("/etc/machine-id",)]


@pytest.mark.parametrize("place", ["tmp", "var/tmp", "home", "var", "root"])
def test_a_machine_with_partitions_of_its_own_is_cleaned(cleaned, place):
    files = f"{place}/.bash_history" if place == "root" else f"{place}/.hidden"
    where = {"home": "home/carl/.bash_history", "var": "var/crash/dump"}.get(place, files)
    line = f"mount -t tmpfs none {place} && mkdir -p $(dirname {where}) && touch {where}"
    paths, left, warnings, again, there = cleaned(line, asked=(where,))
    assert "/" + where in paths
    assert (left, warnings, again) == ([], [], [])
    assert not there[where]


def test_a_file_system_that_others_may_share_is_left(cleaned):
    paths, left, _warnings, _again, _there = cleaned("mount -t proc none var/tmp")
    assert not [path for path in paths if path.startswith("/var/tmp")]
    assert any("/var/tmp is a mounted file system (proc)" in text for text in left)


def test_a_mount_that_comes_between_looking_and_removing_stays(tmp_path, precious, in_namespace):
    machine: Path = tmp_path / "machine"
    for folder in ("tmp/t/on", "var/log"):
        (machine / folder).mkdir(parents=True)
    (machine / "var/log/syslog").write_text("lines")
    out = in_namespace(
        f"""
        from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
        from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host
        host = Host({str(machine)!r})
        found_actions = cleanup.actions(host, ["tmp", "logs"])
        sh("mount --bind {precious} {machine}/tmp/t/on; mount --bind {precious}/file {machine}/var/log/syslog")
        try:
            print(cleanup.apply(host, found_actions))
        except OSError as error:
            print(error.filename, error.strerror)
        """
    )
    assert out.strip() == "/var/log/syslog another file is mounted over it"
    assert intact(precious)
