# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files, directories, links and their removal, below a folder in place of the machine's root."""

from __future__ import annotations

import base64
import os

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import host
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine, files
from tests.unit.node_engine.machine import Machine, setting


@pytest.fixture
def machine(tmp_path):
    """An empty machine."""
    return Machine(tmp_path)


def everything(machine: Machine) -> list[str]:
    """Every path but /run."""
    found = [str(path.relative_to(machine.root)) for path in machine.root.rglob("*")]
    return sorted(path for path in found if path.split("/")[0] != "run")


def test_a_file_is_written_once_and_kept(machine):
    wanted = [setting("file", path="/etc/a/b.conf", content="hello\n", mode="0640")]
    (planned,) = machine.plan(wanted)
    assert (planned.step.changed, planned.step.reason) == (True, "does not exist")
    assert everything(machine) == [], "a plan changes nothing"
    assert machine.apply(wanted) == {"file": True}
    assert machine.file("/etc/a/b.conf").read_text() == "hello\n"
    assert machine.file("/etc/a/b.conf").stat().st_mode & 0o7777 == 0o640
    assert machine.file("/etc/a").stat().st_mode & 0o7777 == 0o755
    assert machine.apply(wanted) == {"file": False}
    machine.file("/etc/a/b.conf").chmod(0o644)
    assert machine.plan(wanted)[0].step.reason == "mode is 0644"
    assert machine.apply(wanted) == {"file": True}
    machine.put("/etc/a/b.conf", "other\n", 0o640)
    diff = engine.diffs(machine.plan(wanted))[0]
    assert (diff["before"], diff["after"]) == ("other\n", "hello\n")
    assert machine.apply(wanted) == {"file": True}
    assert everything(machine) == ["etc", "etc/a", "etc/a/b.conf"], "nothing temporary is left"


def test_a_folder_that_another_thread_makes_meanwhile_is_no_error(machine, monkeypatch):
    """Artifacts are installed side by side, and each keeps what it has seen in one folder."""
    look = host.missing_parents

    def late(on: host.Host, path: str) -> list[str]:
        missing = look(on, path)
        for folder in missing[:-1]:
            machine.file(folder).mkdir()
        return missing

    monkeypatch.setattr(host, "missing_parents", late)
    assert host.make_parents(machine.host, "/etc/kubenode/artifacts/kubelet.json") == ["/etc/kubenode/artifacts"]
    assert everything(machine) == ["etc", "etc/kubenode", "etc/kubenode/artifacts"]


def test_a_file_in_the_place_of_a_folder_is_an_error(machine):
    machine.put("/etc/kubenode", "", 0o644)
    with pytest.raises(FileExistsError):
        host.make_parents(machine.host, "/etc/kubenode/artifacts/kubelet.json")


def test_any_bytes_may_be_content(machine):
    data = bytes(range(256))
    wanted = [setting("file", path="/x", content_b64=base64.b64encode(data).decode())]
    assert engine.diffs(machine.plan(wanted))[0]["after"].startswith("(256 bytes, sha256 ")
    assert machine.apply(wanted) == {"file": True}
    assert machine.file("/x").read_bytes() == data
    assert machine.apply(wanted) == {"file": False}


def test_a_secret_is_shown_nowhere_and_readable_by_its_owner_only(machine):
    given = [setting("file", path="/token", content_secret="token")]
    wanted, errors = engine.with_secrets(given, {"token": "hunter2hunter2"})
    assert errors == []
    assert "hunter2" in repr(engine.secret_values(wanted))
    assert "hunter2" not in repr(engine.masked(wanted))
    planned = machine.plan(wanted)
    shown = [engine.result(item) for item in planned], engine.diffs(planned)
    assert "hunter2" not in repr(shown)
    assert machine.apply(wanted) == {"file": True}
    assert machine.file("/token").stat().st_mode & 0o7777 == 0o600
    machine.put("/token", "old secret", 0o600)
    diff = engine.diffs(machine.plan(wanted))[0]
    assert diff["before"] != diff["after"], "that it changes is no secret"
    assert "secret" in diff["before"]
    assert "old secret" not in repr(diff)
    assert engine.with_secrets(given, {})[1] == ["file: content_secret names 'token', which is no text in secrets"]


def test_a_file_that_is_only_created_is_left(machine):
    machine.put("/x", "mine", 0o600)
    assert machine.apply([setting("file", path="/x", content="theirs", create_only=True)]) == {"file": False}
    assert machine.file("/x").read_text() == "mine"


def test_content_that_its_validator_refuses_is_not_written(machine):
    machine.put("/x", "good")
    machine.programs["check"] = Done(1, "", "line 1: nonsense")
    wanted = setting("file", path="/x", content="bad", validate=["check", "%s"])
    with pytest.raises(engine.ApplyError, match="line 1: nonsense"):
        machine.apply([wanted])
    assert machine.file("/x").read_text() == "good"
    assert everything(machine) == ["x"]
    wanted.update(secret=True)
    with pytest.raises(engine.ApplyError) as caught:
        machine.apply([wanted])
    assert "nonsense" not in str(caught.value)


def test_a_link_in_the_place_of_a_file_is_not_followed(machine):
    machine.put("/target", "precious")
    machine.file("/x").symlink_to("target")
    assert machine.apply([setting("file", path="/x", content="new", mode="0644")]) == {"file": True}
    assert machine.file("/target").read_text() == "precious"
    assert not machine.file("/x").is_symlink()


def test_directories_and_links(machine):
    wanted = [setting("directory", path="/d/e", mode="0700"), setting("link", path="/d/l", target="/dev/null")]
    assert machine.apply(wanted) == {"directory": True, "link": True}
    assert machine.file("/d/e").stat().st_mode & 0o7777 == 0o700
    assert os.readlink(machine.file("/d/l")) == "/dev/null"
    assert machine.apply(wanted) == {"directory": False, "link": False}
    machine.file("/d/l").unlink()
    machine.put("/d/l", "a file")
    assert machine.apply(wanted) == {"directory": False, "link": True}
    assert everything(machine) == ["d", "d/e", "d/l"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("file", {"content": "x"}),
        ("link", {"target": "y"}),
        ("absent", {}),
    ],
)
def test_a_directory_in_the_way_is_an_error_before_anything_changes(machine, kind, fields):
    machine.put("/d/precious", "x")
    wanted = [setting("file", "first", path="/first", content="x"), setting(kind, path="/d", **fields)]
    with pytest.raises(engine.PlanError, match="directory"):
        machine.apply(wanted)
    assert everything(machine) == ["d", "d/precious"]


def test_removal(machine):
    machine.put("/file")
    machine.file("/link").symlink_to("/nowhere")
    machine.file("/empty").mkdir()
    wanted = [setting("absent", path, path=path) for path in ("/file", "/link", "/empty", "/never")]
    assert machine.apply(wanted) == {"/file": True, "/link": True, "/empty": True, "/never": False}
    assert everything(machine) == []
    assert not any(machine.apply(wanted).values())


def test_trees_are_removed_in_their_places_only(machine):
    machine.put("/etc/kubernetes/pki/ca.crt")
    machine.file("/etc/kubernetes/out").symlink_to("/elsewhere")
    machine.put("/elsewhere/precious")
    wanted = [setting("absent", path="/etc/kubernetes", recursive=True)]
    assert machine.apply(wanted) == {"absent": True}
    assert everything(machine) == ["elsewhere", "elsewhere/precious", "etc"]
    for path in ("/etc", "/run", "/var/lib", "/etc/kubernetesx", "/home/x"):
        assert not files.tree_allowed(path), path
    for path in ("/etc/kubernetes", "/var/lib/kubelet/pods", "/run/kubenode", "/etc/containerd/certs.d"):
        assert files.tree_allowed(path), path


def test_a_tree_behind_a_link_is_left(machine):
    machine.put("/data/kubelet/x/precious")
    machine.file("/var/lib").mkdir(parents=True)
    machine.file("/var/lib/kubelet").symlink_to(machine.file("/data/kubelet"))
    with pytest.raises(engine.PlanError, match="behind a link"):
        machine.apply([setting("absent", path="/var/lib/kubelet/x", recursive=True)])
    assert machine.file("/data/kubelet/x/precious").exists()


def test_a_tree_in_which_something_stays_mounted_is_left(machine):
    machine.put("/var/lib/kubelet/pods/1/volume/precious")
    mount = machine.file("/var/lib/kubelet/pods/1/volume")
    machine.put("/proc/self/mountinfo", f"1 1 8:1 / / rw - ext4 x rw\n2 1 8:2 / {mount} rw - nfs server rw\n")
    machine.programs["umount"] = Done(32, "", "target is busy")
    with pytest.raises(engine.ApplyError, match="cannot be unmounted: target is busy"):
        machine.apply([setting("absent", path="/var/lib/kubelet", recursive=True)])
    assert machine.ran == [f"umount -- {mount}"]
    assert (mount / "precious").exists()


def test_mounts_are_found_deepest_first():
    places = ("/", "/a", "/a/b", "/a/b/c\\040d", "/ab")
    info = "".join(f"{number} 0 8:1 / {place} rw - ext4 x rw\n" for number, place in enumerate(places))
    assert files.mounts_below(info, "/a") == ["/a/b/c d", "/a/b"]
    assert files.is_mount(info, "/a")
    assert not files.is_mount(info, "/a/b/c")


def test_a_mode_alone_is_shown_and_restarts_nothing(machine):
    wanted = [setting("file", path="/etc/a.conf", content="a\n"), setting("handler", argv=["tell"], on=["file"])]
    machine.put("/etc/a.conf", "a\n", 0o600)
    planned = machine.plan(wanted)
    (diff,) = engine.diffs(planned)
    assert diff["before"].startswith("/etc/a.conf 0600 "), diff
    assert diff["after"].startswith("/etc/a.conf 0644 "), diff
    assert machine.apply(wanted) == {"file": True, "handler": False}
    assert machine.ran == []
    machine.put("/etc/a.conf", "b\n")
    assert machine.apply(wanted) == {"file": True, "handler": True}


def test_a_mode_of_a_directory_is_shown_with_its_path(machine):
    machine.file("/d").mkdir(mode=0o700)
    (diff,) = engine.diffs(machine.plan([setting("directory", path="/d")]))
    assert (diff["before"].split()[:3], diff["after"].split()[:3]) == (
        ["/d", "directory", "0700"],
        ["/d", "directory", "0755"],
    )


@pytest.mark.parametrize("kind", [{"kind": "file", "content": "new\n"}, {"kind": "absent"}])
def test_a_link_that_is_replaced_or_removed_is_shown_with_its_target(machine, kind):
    machine.file("/x").symlink_to("/root/mine.toml")
    own = setting("file")
    wanted = [{"id": "x", "step": "s", "path": "/x", **kind}]
    if kind["kind"] == "file":
        wanted[0].update(owner=own["owner"], group=own["group"])
    (diff,) = engine.diffs(machine.plan(wanted))
    assert "link to /root/mine.toml" in diff["before_header"]
    assert diff["before"] == "link to /root/mine.toml\n"


def test_a_file_that_becomes_a_link_is_shown_with_its_text(machine):
    machine.put("/x.conf", "by hand\n")
    (diff,) = engine.diffs(machine.plan([setting("link", path="/x.conf", target="/dev/null")]))
    assert diff["before_header"].startswith("/x.conf (0644 ")
    assert (diff["before"], diff["after"]) == ("by hand\n", "link to /dev/null\n")


def test_a_password_that_a_person_wrote_is_not_shown(machine):
    drop_in = "[Service]\nEnvironment=HTTP_PROXY=http://me:hunter2@proxy:3128\n"
    (machine.root / "a.conf").write_text(drop_in)
    (machine.root / "b.conf").write_text(drop_in)
    wanted = [
        setting("file", "/a.conf", path="/a.conf", content="[Service]\n"),
        setting("absent", "/b.conf", path="/b.conf", shown=True),
    ]
    found = engine.diffs(machine.plan(wanted))
    assert [diff["before"].count("HTTP_PROXY=http://********@proxy") for diff in found] == [1, 1]
    assert "hunter2" not in repr(found)


def test_what_is_removed_is_shown_and_its_text_only_on_demand(machine):
    machine.put("/a.conf", "by hand\n")
    machine.put("/key", "-----BEGIN PRIVATE KEY-----\nhunter2\n")
    wanted = [setting("absent", path, path=path, shown=True) for path in ("/a.conf", "/key")]
    first, second = engine.diffs(machine.plan(wanted))
    assert first["before_header"].startswith("/a.conf (0644 ")
    assert (first["before"], first["after"], second["before"]) == ("by hand\n", "", "(secret)\n")
    (quiet,) = engine.diffs(machine.plan([setting("absent", path="/a.conf")]))
    assert (quiet["before"], quiet["after"]) == ("/a.conf\n", "")


def test_a_tree_that_is_removed_is_shown_file_by_file(machine):
    machine.put("/var/lib/kubelet/pki/mine.key", "hunter2")
    machine.put("/var/lib/kubelet/pki/own/state", "x")
    machine.file("/var/lib/kubelet/pki/link").symlink_to("/root")
    machine.put("/var/lib/kubelet/pki/volume/precious", "x")
    mount = machine.file("/var/lib/kubelet/pki/volume")
    machine.put("/proc/self/mountinfo", f"1 1 8:1 / / rw - ext4 x rw\n2 1 8:2 / {mount} rw - nfs server rw\n")
    tree = "/var/lib/kubelet/pki"
    (diff,) = engine.diffs(machine.plan([setting("absent", path=tree, recursive=True, shown=True)]))
    assert diff["before"].splitlines() == [tree, tree + "/link", tree + "/mine.key", tree + "/own/state"]
    for number in range(300):
        machine.put(f"{tree}/{number}")
    (diff,) = engine.diffs(machine.plan([setting("absent", path=tree, recursive=True)]))
    assert diff["before"].endswith("(and more)\n")
    assert diff["before"].count("\n") == 201


def test_a_file_that_a_person_wrote_over_ours_stays(machine):
    wanted = [setting("absent", "ours", path="/a.conf", begins="# ours\n")]
    machine.put("/a.conf", "by hand")
    machine.plan(wanted)
    assert machine.warnings == [
        "/a.conf stays, since it is not as the role wrote it; remove it when it is wanted no more"
    ]
    assert machine.apply(wanted) == {"ours": False}
    machine.put("/a.conf", "# ours\nthe rest")
    assert machine.apply(wanted) == {"ours": True}
    assert not machine.file("/a.conf").exists()


def test_a_folder_in_which_a_person_keeps_a_file_stays(machine):
    folder = "/etc/kubernetes/kubelet.conf.d"
    machine.put(folder + "/10-ours.conf")
    machine.put(folder + "/90-hand.conf", "by hand")
    wanted = [
        setting("absent", "ours", path=folder + "/10-ours.conf"),
        setting("absent", "folder", path=folder, keep_full=True),
    ]
    machine.plan(wanted)
    assert machine.warnings == [f"{folder} stays, since it has files that are not the role's: 90-hand.conf"]
    assert machine.apply(wanted) == {"ours": True, "folder": False}
    assert machine.file(folder + "/90-hand.conf").read_text() == "by hand"
    machine.file(folder + "/90-hand.conf").rename(machine.file(folder + "/10-ours.conf"))
    assert machine.apply(wanted) == {"ours": True, "folder": True}
