# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_cleanup finds and removes, on machines that are folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done, Host
from tests.folders import put

DEFAULT = [item for item in cleanup.ITEMS if item not in cleanup.ASKED]
MACHINE = {
    "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "/etc/hostname": "node-1\n",
    "/etc/ssh/ssh_host_ed25519_key": "secret",
    "/etc/ssh/ssh_host_ed25519_key.pub": "public",
    "/etc/ssh/sshd_config": "Port 22\n",
    "/etc/kubenode/installed.json": "{}",
    "/etc/kubenode/base.json": "{}",
    "/etc/kubelet.conf": "no cluster",
    "/usr/bin/cloud-init": "#!",
    "/var/lib/cloud/instances/i-1/user-data.txt": "token",
    "/etc/netplan/50-cloud-init.yaml": "network",
    "/var/lib/apt/lists/deb_Packages": "lists",
    "/var/lib/apt/lists/lock": "",
    "/var/lib/apt/lists/partial/half": "half",
    "/var/cache/apt/archives/x.deb": "package",
    "/var/cache/apt/pkgcache.bin": "cache",
    "/var/log/syslog": "lines",
    "/var/log/empty.log": "",
    "/var/log/syslog.1": "old",
    "/var/log/apt/history.log.2.gz": "older",
    "/var/log/cloud-init-output.log": "secrets",
    "/var/log/journal/0123/system.journal": "journal",
    "/var/lib/systemd/random-seed": "seed",
    "/root/.bash_history": "export TOKEN=x",
    "/home/anna/.python_history": "x",
    "/root/.ssh/authorized_keys": "ssh-ed25519 A",
    "/tmp/left": "over",
    "/tmp/.hidden/file": "over",
    "/tmp/systemd-private-1-x/tmp/own": "in use",
    "/tmp/ansible_node_cleanup_payload_1/payload.zip": "this module",
    "/var/tmp/kept/inner": "in use by this run",
    "/usr/local/bin/kubelet": "binary",
}
CLEAN = {
    "/etc/hostname",
    "/etc/ssh/sshd_config",
    "/etc/kubenode/base.json",
    "/etc/kubelet.conf",
    "/usr/bin/cloud-init",
    "/var/lib/apt/lists/lock",
    "/var/log/syslog",
    "/var/log/empty.log",
    "/root/.ssh/authorized_keys",
    "/tmp/systemd-private-1-x/tmp/own",
    "/tmp/ansible_node_cleanup_payload_1/payload.zip",
    "/var/tmp/kept/inner",
    "/usr/local/bin/kubelet",
    "/etc/machine-id",
    cleanup.HOST_KEYS_UNIT,
    cleanup.HOST_KEYS_WANTED,
    cleanup.SEED_DROP_IN,
}


class Machine:
    """A folder that looks like a machine, and the programs it ran."""

    def __init__(self, root, content):
        self.root, self.ran = root, []
        for path, text in content.items():
            self.write(path, text)
        (root / "usr/bin/cloud-init").exists() and os.chmod(root / "usr/bin/cloud-init", 0o755)
        self.host = Host(str(root), self._run_all)

    def _run_all(self, commands):
        self.ran += [argv for argv, _seconds, _stdin in commands]
        return [Done(0, "", "") for _command in commands]

    def write(self, path, text):
        put(self.root / path.lstrip("/"), text)

    def files(self):
        """Path → content of everything that is no folder; links by their target."""
        found = {}
        for folder, names, files in os.walk(self.root):
            for name in [*files, *[name for name in names if os.path.islink(os.path.join(folder, name))]]:
                real = os.path.join(folder, name)
                path = "/" + os.path.relpath(real, self.root)
                found[path] = "-> " + os.readlink(real) if os.path.islink(real) else Path(real).read_text()
        return found

    def clean(self, items=DEFAULT, kept=("/var/tmp/kept/inner",)):
        actions = cleanup.actions(self.host, items, kept)
        before = self.files()
        cleanup.apply(self.host, actions)
        assert before != self.files() or not actions
        return actions


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, MACHINE)


def test_looking_changes_nothing(machine):
    before = machine.files()
    assert cleanup.actions(machine.host, cleanup.ITEMS)
    assert machine.files() == before
    assert machine.ran == []


def test_identity_caches_and_logs_go_and_all_else_stays(machine):
    machine.clean()
    files = machine.files()
    assert set(files) == CLEAN
    assert files["/etc/machine-id"] == files["/var/log/syslog"] == ""
    assert files[cleanup.HOST_KEYS_UNIT] == cleanup.HOST_KEYS_TEXT
    assert files["/usr/local/bin/kubelet"] == "binary"


def test_the_second_run_finds_nothing(machine):
    machine.clean()
    assert cleanup.actions(machine.host, DEFAULT, ["/var/tmp/kept/inner"]) == []


def test_nothing_is_named_twice(machine):
    paths = [action.path for action in machine.clean(cleanup.ITEMS)]
    assert sorted(paths) == sorted(set(paths))


def test_host_keys_go_last(machine):
    assert [action.item for action in machine.clean()][-1] == "host-keys"


def test_every_item_alone_touches_only_its_own(tmp_path):
    for item in cleanup.ITEMS:
        machine = Machine(tmp_path / item, MACHINE)
        before = machine.files()
        touched = {action.path for action in machine.clean([item])}
        after = machine.files()
        gone = {path for path in before if before[path] != after.get(path)}
        assert all(any(path == one or path.startswith(one + "/") for one in touched) for path in gone), item


def test_what_is_asked_for_goes(machine):
    machine.clean(cleanup.ASKED)
    assert set(MACHINE) - set(machine.files()) == {"/etc/hostname", "/root/.ssh/authorized_keys"}


def test_links_are_never_followed(machine, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    os.symlink(outside, tmp_path / "tmp/to-folder")
    os.symlink(outside / "precious", tmp_path / "var/log/linked.log")
    os.symlink(outside / "precious", tmp_path / "root/.zsh_history")
    machine.clean()
    assert (outside / "precious").read_text() == "precious"
    assert not (tmp_path / "tmp/to-folder").is_symlink()
    assert not (tmp_path / "root/.zsh_history").is_symlink()


def test_a_log_that_becomes_a_link_is_not_emptied(machine, tmp_path):
    (tmp_path / "precious").write_text("precious")
    actions = cleanup.actions(machine.host, ["logs"])
    os.unlink(tmp_path / "var/log/syslog")
    os.symlink(tmp_path / "precious", tmp_path / "var/log/syslog")
    with pytest.raises(OSError, match="syslog"):
        cleanup.apply(machine.host, actions)
    assert (tmp_path / "precious").read_text() == "precious"


def test_without_cloud_init_the_network_stays(tmp_path):
    machine = Machine(tmp_path, {path: text for path, text in MACHINE.items() if path != "/usr/bin/cloud-init"})
    machine.clean(["cloud-init"])
    assert "/etc/netplan/50-cloud-init.yaml" in machine.files()
    assert "/var/lib/cloud/instances/i-1/user-data.txt" not in machine.files()


def test_a_system_that_makes_its_own_host_keys_gets_no_unit(machine):
    machine.write("/usr/lib/systemd/system/sshd-keygen@.service", "[Unit]")
    machine.clean(["host-keys"])
    assert cleanup.HOST_KEYS_UNIT not in machine.files()


@pytest.mark.parametrize("release", ["ID=flatcar\n", 'NAME="Flatcar"\nID="flatcar"\n'])
def test_flatcar_knows_its_first_boot_by_the_missing_machine_id(machine, release):
    machine.write("/etc/os-release", release)
    machine.clean(["machine-id"])
    assert "/etc/machine-id" not in machine.files()


@pytest.mark.parametrize("content", ["", "uninitialized\n"])
def test_a_machine_without_id_is_left_alone(machine, content):
    machine.write("/etc/machine-id", content)
    assert machine.clean(["machine-id"]) == []


def test_dbus_keeps_a_link_and_loses_a_copy(machine, tmp_path):
    machine.write("/var/lib/dbus/machine-id", "0123456789abcdef0123456789abcdef\n")
    machine.clean(["machine-id"])
    assert "/var/lib/dbus/machine-id" not in machine.files()
    os.symlink("/etc/machine-id", tmp_path / "var/lib/dbus/machine-id")
    assert machine.clean(["machine-id"]) == []


@pytest.mark.parametrize(("unit", "left"), [("open-iscsi.service", cleanup.ISCSI_TEXT), ("iscsi-init.service", None)])
def test_the_iscsi_initiator_takes_a_new_name(machine, unit, left):
    machine.write("/usr/lib/systemd/system/" + unit, "[Unit]")
    machine.write(cleanup.ISCSI_NAME, "InitiatorName=iqn.1993-08.org.debian:01:abc\n")
    machine.clean(["iscsi"])
    assert machine.files().get(cleanup.ISCSI_NAME) == left
    assert cleanup.actions(machine.host, ["iscsi"]) == []


def test_the_journal_is_let_go_before_it_is_removed(machine, tmp_path):
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    machine.clean(["journal"])
    assert machine.ran == [["journalctl", "--rotate"], ["journalctl", "--relinquish-var"]]


@pytest.mark.parametrize("path", cleanup.JOINED)
def test_a_node_of_a_cluster_is_refused(machine, path):
    cleanup.refuse_joined(machine.host)
    machine.write(path, "identity")
    with pytest.raises(cleanup.Refused, match=path):
        cleanup.refuse_joined(machine.host)
