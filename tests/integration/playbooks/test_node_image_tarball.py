# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of node images on the lab: packed in a rescue, cut off, made once, installed on dedicated servers that boot."""

import functools
import json
import os
import signal
import subprocess
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.action.machine_lock import Locks, this_run
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import labels as node_image_labels
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image.builds import builds_here
from lab import images
from lab.api.resources import Image
from lab.images.raw_image import put_files, write_disk
from lab.machines.store import copy_sparse
from tests.integration.controller import pinned
from tests.integration.playbooks.test_node_image import ImageAccount
from tests.web_servers import Server

pytestmark = [pytest.mark.root, pytest.mark.nspawn]

PLAYBOOK = "kubenode.provision.node_image_tarball"
TARBALL = "Debian-1200-bookworm-amd64-kubenode-1.36.4.tar.zst"
RAW = "debian-12-kubernetes-1.36.4-amd64.raw.zst"
PREBAKED = json.dumps({"prebaked": True, "kubernetes": {"version": "1.36.4"}})
URL = "https://images.example.com/never-fetched.tar.zst#sha256=" + "0" * 64
#: With the snapshot there, nothing is built of this.
BASE = {"name": "debian-12", "image_url": URL, "command": "image-url-command-rootfs-tar"}
UNFIT = {**BASE, "name": "unfit"}
SPEED = {"kubenode_tarball_level": 1}


def matrix(*bases: dict[str, str]) -> dict[str, Any]:
    return {"kubernetes": ["1.36.4"], "base": list(bases)}


def add_snapshot(lab, file: Path, base: dict[str, str]) -> None:
    """A snapshot as node_image_snapshot would have left it."""
    (build,) = builds_here({"matrix": matrix(base), "server_types": {"x86": "cx23"}, "owner": "tests"})
    labels = node_image_labels.all_labels(build["snapshot"])

    async def add() -> None:
        cloud = lab.lab.cloud
        known = next(iter(cloud.images.values()))
        number = cloud.new_id("image")
        fields = {"type": "snapshot", "name": None, "description": build["name"], "architecture": "x86"}
        about = {"disk_size": 5, "os_flavor": "debian", "os_version": None, "created": known.created}
        cloud.images[number] = Image(id=number, **fields, **about, labels=labels, file=file)

    lab.in_loop(add)


@pytest.fixture(scope="module")
def account(lab_nspawn, tmp_path_factory):
    """A project with the snapshot of a system that suits dedicated servers."""
    made = ImageAccount(lab_nspawn, tmp_path_factory.mktemp("tarballs"))
    tree = made.folder / "tree"
    tree.mkdir()
    archive = images.ensure("tarball").files["tarball"]
    subprocess.run(["tar", "--extract", "--xattrs", "--numeric-owner", "-f", archive, "-C", tree], check=True)
    (tree / "etc/kubenode").mkdir()
    (tree / "etc/kubenode/base.json").write_text(PREBAKED)
    write_disk(tree, made.folder / "good.raw", 2048)
    add_snapshot(lab_nspawn, made.folder / "good.raw", BASE)
    yield made
    made.close()


def files(account) -> set[str]:
    folder = account.folder / "kubenode/tarballs"
    return {path.name for path in folder.iterdir()}


@pytest.mark.long
def test_cut_off_while_packing_and_run_again(account, lab_nspawn):
    before = set(account.servers())
    options: dict[str, Any] = {**SPEED, "kubenode_image_matrix": matrix(BASE)}
    running = account.start(PLAYBOOK, **options)
    partial = account.folder / f"kubenode/tarballs/{TARBALL}.partial"
    running.until(lambda: partial.exists() and partial.stat().st_size > 1 << 20, "a part of the file")
    running.interrupt(signal.SIGKILL)
    assert len(account.builders()) == 1
    assert TARBALL not in files(account)

    unfit = account.folder / "unfit.raw"
    copy_sparse(images.ensure("debian").files["raw"], unfit)
    put_files(unfit, {"/etc/machine-id": ("0123456789abcdef0123456789abcdef\n", 0o444)})
    add_snapshot(lab_nspawn, unfit, UNFIT)
    # two images, of which one is no node image: that one fails, the other is made, no machine stays
    options = {
        **SPEED,
        "kubenode_image_matrix": matrix(BASE, UNFIT),
        "kubenode_tarball_formats": ["tarball", "raw"],
    }
    options["kubenode_tarball_systems"] = {"unfit": "Debian-1200-other"}
    account.run(PLAYBOOK, **options).fails().says("/etc/machine-id is one machine's")
    assert set(account.servers()) == before
    assert files(account) == {one + end for one in (TARBALL, RAW) for end in ("", ".json", ".sha256")}


@pytest.mark.long
@pytest.mark.parametrize(("forms", "names"), [(["tarball"], {TARBALL}), (["tarball", "raw"], {TARBALL, RAW})])
def test_it_is_made_once(account, forms, names):
    before = set(account.servers())
    options: dict[str, Any] = {**SPEED, "kubenode_image_matrix": matrix(BASE), "kubenode_tarball_formats": forms}
    account.run(PLAYBOOK, **options).ok()
    assert files(account) >= {name + end for name in names for end in ("", ".json", ".sha256")}
    folder = account.folder / "kubenode/tarballs"
    subprocess.run(["sha256sum", "--check", "--quiet", *(f"{name}.sha256" for name in names)], cwd=folder, check=True)
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    account.run(PLAYBOOK, **options).ok().says("changed=0", "exists")
    assert times == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(account.servers()) == before


DISKS = [{"kind": "sata", "size": "5G"}]


@pytest.mark.long
@pytest.mark.parametrize("how", ["installimage", "raw-disk"])
def test_a_dedicated_server_boots_it(account, lab_nspawn, how):
    number = {"installimage": 7101, "raw-disk": 7102}[how]
    lab_nspawn.dedicated(number=number, disks=DISKS, memory_mib=2048)
    folder = account.folder / "kubenode/tarballs"
    name = f"metal-{number}"
    variables: dict[str, Any] = {
        "ansible_user": "root",
        "kubenode_server_number": number,
        "kubenode_root_device_hints": {"smallest": True},
        "kubenode_look_timeout": 4,
        "kubenode_first_contact": "reset",
        "kubenode_bootstrap_data": "#cloud-config\nruncmd: [touch /etc/proof]\n",
    }
    files = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with Server(files, lab_nspawn.controller) as server:
        if how == "installimage":
            playbook = "kubenode.provision.robot_installimage"
            variables["kubenode_image"] = {"file": str(folder / TARBALL)}
            variables["kubenode_partitions"] = [{"mount": "/", "filesystem": "ext4", "size": "all"}]
        else:
            playbook = "kubenode.provision.robot_image_url"
            digest = (folder / f"{RAW}.sha256").read_text().split()[0]
            url = f"http://{server.host}/{RAW}"
            variables["kubenode_image_url"] = f"{url}#sha256={digest}"
            variables["kubenode_image_url_command"] = "image-url-command-raw-disk"
        account.run(playbook, hosts=(name,), **variables).ok()
    (machine,) = [one for one in lab_nspawn.control("GET", "/machines")["machines"] if one.get("number") == number]
    assert [boot["source"] for boot in machine["boots"]][-2:] == ["rescue", "disk"]
    account.reach(name, machine["address"])
    script = "hostname; ls /etc/proof; cat /etc/kubenode/base.json; echo; findmnt -no SOURCE /"
    trust = pinned(account.folder / f"kubenode/known_hosts/{name}.os")
    output = account.ssh(name, script, trust).splitlines()
    assert output[:3] == [name, "/etc/proof", PREBAKED]


WRONG = {
    "base without a system": ({"kubenode_image_matrix": matrix({**BASE, "name": "own"})}, "no entry for base 'own'"),
    "format": ({"kubenode_tarball_formats": ["zip"]}, "use one of tarball, raw"),
    "name": ({"kubenode_tarball_name": "{system}"}, "is none for installimage"),
    "misleading name": ({"kubenode_tarball_name": "{system}-{architecture}-ubuntu"}, "would take"),
    "level": ({"kubenode_tarball_level": 99}, "kubenode_tarball_level 99: use 1 to 19"),
    "folder": ({"kubenode_tarball_dir": "/proc/images"}, "/proc/images"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_reported_before_anything_is_made(account, what):
    variables, words = WRONG[what]
    before = account.servers()
    account.run(PLAYBOOK, **{"kubenode_image_matrix": matrix(BASE), **variables}).fails().says(words)
    assert "Traceback" not in account.output
    assert account.servers() == before


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_file_that_is_not_ours_stays(account, tmp_path, more):
    before = account.servers()
    (tmp_path / TARBALL).write_text("of another")
    options: dict[str, Any] = {"kubenode_image_matrix": matrix(BASE), "kubenode_tarball_dir": str(tmp_path)}
    words = f"kubenode_tarball_dir: {tmp_path / TARBALL} would be overwritten"
    account.run(PLAYBOOK, *more, **options).fails().says(words)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {TARBALL: "of another"}
    assert account.servers() == before


def test_a_check_says_what_would_be_made(account, tmp_path):
    options: dict[str, Any] = {"kubenode_image_matrix": matrix(BASE), "kubenode_tarball_dir": str(tmp_path / "new")}
    account.run(PLAYBOOK, "--check", **options).ok().says("would be made")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_run_leaves_the_machines_of_another_alone(account, tmp_path, force):
    # the snapshot exists already, and the other run packs it: both names are those of one build
    options: dict[str, Any] = {"kubenode_image_matrix": matrix(BASE), "kubenode_tarball_dir": str(tmp_path / "new")}
    options["kubenode_image_force"] = force
    (build,) = builds_here({"matrix": matrix(BASE), "server_types": {"x86": "cx23"}, "owner": "tests"})
    locks, me = Locks(str(account.folder / "kubenode/locks")), this_run(os.getpid())
    assert locks.take([build["machine"]], me) == {}
    try:
        refused = account.run(PLAYBOOK, **options).fails()
        refused.says(f"{build['machine']}: another run works on it (process {os.getpid()}", "Nothing was changed")
        assert "Remove the machines that an interrupted run left" not in account.output
        account.run(PLAYBOOK, "--check", **options).says(f"{build['machine']}: another run works on it")
    finally:
        locks.release([build["machine"]], me)
