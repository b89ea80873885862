# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs, files and pending restarts of the machine itself."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import info
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import (
    LATE,
    MISSING,
    PENDING_FILE,
    Done,
    Host,
    Pending,
    run_commands,
    write_file,
)


def test_programs_run_at_the_same_time_in_order_and_within_their_limits():
    # the first one ends only when the second one has begun
    pipe, other = os.pipe()
    os.set_inheritable(pipe, True)
    os.set_inheritable(other, True)
    try:
        first = ["sh", "-c", f"read line </proc/{os.getpid()}/fd/{pipe}; echo got $line"]
        second = ["sh", "-c", f"echo it >/proc/{os.getpid()}/fd/{other}; echo said >&2; exit 3"]
        done = run_commands(
            [(first, 600, None), (second, 600, None), (["cat"], 600, "input"), (["/nonesuch"], 600, None)]
        )
    finally:
        os.close(pipe)
        os.close(other)
    assert done[0] == Done(0, "got it\n", "")
    assert done[1] == Done(3, "", "said\n")
    assert done[2].out == "input"
    assert done[3].code == MISSING


def test_a_program_that_hangs_is_killed_with_its_children():
    (done,) = run_commands([(["sh", "-c", "sleep 1000 & sleep 1000"], 0.5, None)])
    assert done.code == LATE


def test_a_program_that_leaves_a_daemon_is_not_waited_for():
    (done,) = run_commands([(["sh", "-c", "setsid sleep 1000 & echo $!"], 900, None)])
    os.kill(int(done.out), signal.SIGKILL)
    assert (done.code, done.err) == (0, "")


def test_programs_speak_english():
    (done,) = run_commands([(["sh", "-c", "echo $LC_ALL; pwd"], 600, None)])
    assert done.out.split() == ["C", "/"]


def test_programs_are_found_below_the_root(tmp_path):
    (tmp_path / "opt/bin").mkdir(parents=True)
    (tmp_path / "opt/bin/kubelet").touch(mode=0o755)
    (tmp_path / "opt/bin/data").touch(mode=0o644)
    host = Host(str(tmp_path))
    assert host.find("kubelet") == "/opt/bin/kubelet"
    assert host.find("/opt/bin/kubelet") == "/opt/bin/kubelet"
    assert host.find("data") is None
    assert host.find("/opt/bin") is None


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    host = Host(str(tmp_path))
    for path in ("/pipe", "/link", "/nonesuch", "/"):
        assert host.data(path) is None
        assert host.sha256(path) is None
    assert info.file_facts(host, "/pipe")["type"] == "other"
    assert info.file_facts(host, "/link")["type"] == "link"
    assert info.file_facts(host, "/link")["leads_to"] == "other"


def test_what_a_link_leads_to_and_what_is_not_read(tmp_path, monkeypatch):
    for name, target in (("to-file", "file"), ("to-folder", "."), ("to-nothing", "nonesuch")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "file").write_bytes(b"base")
    host = Host(str(tmp_path))

    def said(path: str) -> tuple[str | None, bool]:
        facts = info.file_facts(host, path)
        return facts["leads_to"], facts["sha256"] is not None

    found = [said(path) for path in ("/file", "/to-file", "/to-folder", "/to-nothing", "/nonesuch")]
    assert found == [("file", True), ("file", True), ("directory", False), (None, False), (None, False)]
    monkeypatch.setattr(info, "_MOST_HASHED", 3)
    assert [said(path) for path in ("/file", "/to-file")] == [("file", False), ("file", False)]


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path):
    (tmp_path / "x").write_text("old")

    def refuse(path):
        assert Path(path).read_bytes() == b"new"
        raise ValueError

    with pytest.raises(ValueError):
        write_file(Host(str(tmp_path)), "/x", b"new", 0o600, check=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"


def test_containers(tmp_path):
    host = Host(str(tmp_path))
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/environ").write_bytes(b"A=1\0xcontainer=no\0")
    assert not host.container
    (tmp_path / "proc/1/environ").write_bytes(b"A=1\0container=systemd-nspawn\0")
    assert host.container


def test_kernel_modules(tmp_path):
    folder = tmp_path / "lib/modules" / os.uname().release
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("kernel/net/br_netfilter.ko.xz:\nkernel/ip_vs.ko:\n")
    (folder / "modules.builtin").write_text("kernel/fs/overlayfs/overlay.ko\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/modules").write_text("ip_vs 1 0 - Live 0x0\n")
    (tmp_path / "sys/module/nf_conntrack").mkdir(parents=True)
    names = ["br-netfilter", "ip_vs", "overlay", "nf_conntrack", "nope"]
    found = info.kernel_modules(Host(str(tmp_path)), names)
    assert list(found.values()) == ["available", "loaded", "builtin", "builtin", "missing"]


def test_pending_handlers_outlive_the_run_and_end_when_all_were_reported(tmp_path):
    host = Host(str(tmp_path))
    Pending(host).add(["a", "b"])
    pending = Pending(host)
    assert pending.ids() == pending.ids("unit") == {"a", "b"}
    pending.notified("unit", ["a", "never"])
    again = Pending(host)
    assert again.ids("unit") == {"b"}
    assert again.ids("other") == {"a", "b"}
    again.add(["a"])
    assert Pending(host).ids("unit") == {"a", "b"}, "it changed once more"
    again.drop(["a", "b"])
    assert json.loads((tmp_path / PENDING_FILE.lstrip("/")).read_text()) == {}


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"a": 1}', '{"a"'])
def test_pending_that_cannot_be_read_are_none(tmp_path, text):
    (tmp_path / "run/kubenode").mkdir(parents=True)
    (tmp_path / PENDING_FILE.lstrip("/")).write_text(text)
    assert Pending(Host(str(tmp_path))).ids() == set()
