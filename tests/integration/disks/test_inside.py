# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking into file systems on loop devices of this host: what is found, and that no byte changes."""

import hashlib
import json
import os
import random
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts, disk_gather, wiping
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_tools import Tools
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.job import JobError
from tests.integration.commands.disks import fill, loop, mount, node, sh

pytestmark = pytest.mark.root

LOOP = ("loop",)
SYSTEM = {
    "usr/lib/os-release": 'NAME=Old\nPRETTY_NAME="Old Linux 7"\n',
    "etc/kubenode/installed.json": '{"machine": "n1"}\n',
}
MAKE = {
    "ext4": ["mkfs.ext4", "-q"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
}


class Host:
    """This host, as a machine whose only disks are the given loop devices."""

    def __init__(self, *devices: str) -> None:
        self.devices = devices
        self.tools = Tools(self.run)

    def run(self, argv: list[str], **_more: object) -> tuple[int, str, str]:
        """As AnsibleModule.run_command; it hides the devices of other tests."""
        if any(word.endswith("/lsblk") for word in argv):
            argv = [*argv, *self.devices]
        done = subprocess.run(argv, capture_output=True, text=True, errors="surrogateescape", check=False)
        return done.returncode, done.stdout, done.stderr

    def look(self) -> dict[str, dict]:
        """Facts by path."""
        raw = disk_gather.read(self.tools, LOOP, health=False)
        raw.systems = disk_gather.look_inside(self.tools, raw)
        return {disk["path"]: disk for disk in disk_facts.facts(raw, LOOP)}


@pytest.fixture
def attach(tmp_path):
    """Make loop devices: of an empty file of so many MiB, or of a copy of a file."""
    with ExitStack() as stack:

        def make(name: str, mib: int = 0, content: bytes | None = None) -> str:
            path = tmp_path / name
            path.write_bytes(content or b"")
            if mib:
                os.truncate(path, mib << 20)
            return stack.enter_context(loop(path))

        yield make


def digest(device: str) -> str:
    sh("blockdev", "--flushbufs", device)
    return hashlib.sha256(Path(device).read_bytes()).hexdigest()


def dirty(kind: str, device: str, file: Path, work: Path, files: dict[str, str]) -> bytes:
    """The content of a disk whose power failed while its file system was mounted and written."""
    sh(*MAKE[kind], device)
    with mount(device, work / "top") as top:
        fill(top, files)
    with mount(device, work / "top") as top:
        (top / "later").write_text("x" * 1000)
        with open(top / "gone", "w") as orphan:
            orphan.write("y" * 100_000)
            os.unlink(top / "gone")
            fd = os.open(top, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            sh("sync", "--file-system", top)
            return file.read_bytes()


@pytest.mark.parametrize(("kind", "mib"), [("ext4", 64), ("xfs", 320), ("btrfs", 128)])
def test_a_journal_that_wants_a_replay_is_left_alone(attach, tmp_path, kind, mib):
    source = attach("source", mib)
    content = dirty(kind, source, tmp_path / "source", tmp_path, SYSTEM)
    device = attach("copy", content=content)
    if kind == "ext4":
        assert "needs_recovery" in sh("dumpe2fs", "-h", device), "the test has no dirty journal"
    sh("wipefs", "--all", source)
    before = digest(device)
    found = Host(device).look()[device]["holds"]
    assert len(found) == 1, found
    (entry,) = found
    assert (entry["kind"], entry["type"], entry["system"]) == ("system", kind, "Old Linux 7")
    assert entry["installed"] == {"machine": "n1"}
    assert digest(device) == before
    assert device not in {line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()}


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_links_lead_nowhere_else(attach, tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_text('{"machine": "stolen"}')
    device = attach("disk", 128)
    sh(*MAKE[kind], device)
    with mount(device, tmp_path / "top") as top:
        fill(top, {"usr/lib/os-release": f"-> {secret}", "etc/os-release": f"-> {secret}", "etc/kubenode/": ""})
        (top / "etc/kubenode/installed.json").symlink_to(secret)
        os.mkfifo(top / "etc/kubenode/pipe")
    (entry,) = Host(device).look()[device]["holds"]
    assert (entry["kind"], "installed" in entry) == ("filesystem", False)


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_what_is_no_small_file_is_not_read(attach, tmp_path, kind):
    device = attach("disk", 128)
    sh(*MAKE[kind], device)
    with mount(device, tmp_path / "top") as top:
        fill(top, {"usr/lib/": "", "etc/kubenode/": ""})
        os.mkfifo(top / "usr/lib/os-release")
        (top / "etc/kubenode/installed.json").touch()
        os.truncate(top / "etc/kubenode/installed.json", 1 << 40)
    (entry,) = Host(device).look()[device]["holds"]
    assert entry["kind"] == "filesystem"


def test_a_system_in_a_sub_volume_is_found(attach, tmp_path):
    device = attach("disk", 128)
    sh(*MAKE["btrfs"], device)
    with mount(device, tmp_path / "top") as top:
        sh("btrfs", "subvolume", "create", top / "@")
        fill(top / "@", SYSTEM)
    (entry,) = Host(device).look()[device]["holds"]
    assert (entry["system"], entry["installed"]) == ("Old Linux 7", {"machine": "n1"})


def test_btrfs_over_two_disks_is_one_thing(attach, tmp_path):
    devices = [attach("one", 128), attach("two", 128)]
    sh("mkfs.btrfs", "-q", *devices)
    with mount(devices[0], tmp_path / "top", "-o", f"device={devices[1]}") as top:
        fill(top, SYSTEM)
    found = Host(*devices).look()
    for device in devices:
        (entry,) = found[device]["holds"]
        assert set(entry["disks"]) == {Path(one).name for one in devices}
        assert entry["system"] == "Old Linux 7"


def test_only_the_named_disk_is_emptied(attach, tmp_path):
    named, other = attach("named", 64), attach("other", 64)
    for device in (named, other):
        sh("sfdisk", "--quiet", device, stdin="label: gpt\nsize=20M\nsize=20M\n")
        for number in (1, 2):
            sh("mkfs.ext4", "-q", node(device, number))
    host = Host(named, other)
    before = digest(other)
    found = targets.look_at_disks(host.run, health=False, types=LOOP)["disks"]
    assert [len(disk["holds"]) for disk in found] == [3, 3]
    (target,) = (disk for disk in found if disk["path"] == named)
    answer = targets.wipe_disks(host.run, [target], types=LOOP, base=str(tmp_path))
    assert {disk["path"]: len(disk["holds"]) for disk in answer["disks"]} == {named: 0, other: 3}
    assert digest(other) == before
    assert json.loads(sh("lsblk", "--json", named))["blockdevices"][0].get("children") is None
    assert sh("wipefs", named) == ""


def test_a_disk_that_changed_since_it_was_looked_at_is_left_alone(attach, tmp_path):
    device = attach("disk", 64)
    sh("mkfs.ext4", "-q", device)
    host = Host(device)
    (target,) = targets.look_at_disks(host.run, health=False, types=LOOP)["disks"]
    sh("mkfs.ext4", "-q", "-F", "-L", "precious", device)
    before = digest(device)
    with pytest.raises(JobError, match="does not hold any more") as caught:
        targets.wipe_disks(host.run, [target], types=LOOP, base=str(tmp_path))
    assert not caught.value.begun
    assert digest(device) == before


def test_a_disk_that_a_process_holds_is_left_alone(attach, tmp_path):
    device = attach("disk", 64)
    sh("mkfs.ext4", "-q", "-L", "held", device)
    host = Host(device)
    holder = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        before = digest(device)
        with pytest.raises(wiping.WipeError, match="in use by another program"):
            wiping.wipe(host.tools, [Path(device).name], LOOP, patience=0.5)
        assert digest(device) == before
    finally:
        os.close(holder)


def test_data_of_no_known_kind_is_something(attach, tmp_path):
    device = attach("disk", content=random.Random(1).randbytes(4096) + bytes(8 << 20))
    blank, erased = attach("blank", 8), attach("erased", content=b"\xff" * (8 << 20))
    found = Host(device, blank, erased).look()
    assert [len(found[path]["holds"]) for path in (device, blank, erased)] == [1, 0, 0]
    assert found[device]["holds"][0]["kind"] == "unknown"


def test_a_machine_with_hardly_any_tools_is_described_all_the_same(attach):
    device = attach("disk", 64)
    sh("mkfs.ext4", "-q", device)
    host = Host(device)
    poor = Tools(host.run)
    poor.find = lambda name: Tools(host.run).find(name) if name in ("lsblk", "timeout") else None
    (disk,) = disk_facts.facts(disk_gather.read(poor, LOOP), LOOP)
    assert disk["holds"], "what may hold something is not empty"
    assert disk["health"]["status"] == "unknown"
