# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps that empty disks: what lies on top goes first, and no other disk is named."""

from __future__ import annotations

import contextlib
import errno
import os

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts, wiping
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.job import JobError
from tests.unit.disks import recorded

MOUNTS = "31 1 252:0 / /mnt/old rw - ext4 /dev/mapper/vg0-root rw\n32 31 9:0 / /mnt/old/boot rw - ext3 /dev/md0 rw\n"
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n/dev/dm-1  partition\t8388604\t0\t-2\n"


def order(raw: disk_facts.Raw, *disks: str) -> list[str]:
    return [step.what for step in wiping.plan(raw, list(disks))]


def test_raid_with_volumes_in_order():
    steps = order(recorded.raid1_with_lvm(mountinfo=MOUNTS, swaps=SWAPS), "nvme0n1", "nvme1n1")
    assert steps[:11] == [
        "unmount /mnt/old/boot",
        "unmount /mnt/old",
        "stop swapping on /dev/mapper/vg0-swap",
        "erase the signatures on /dev/md0",
        "stop RAID /dev/md0",
        "deactivate volume group vg0",
        "erase the signatures on /dev/md1",
        "stop RAID /dev/md1",
        "see that nothing else uses /dev/nvme0n1",
        "see that nothing else uses /dev/nvme1n1",
        "erase the RAID superblock of /dev/nvme0n1p2",
    ]
    assert steps[-1] == "forget the partitions of /dev/nvme1n1"
    assert not any("sda" in step for step in steps)
    for name in ("nvme0n1", "nvme1n1"):
        tables = steps.index(f"erase the signatures of /dev/{name}")
        assert max(steps.index(step) for step in steps if f"{name}p" in step) < tables


def test_one_disk_alone_has_steps_for_itself_alone():
    raw = recorded.windows()
    for step in wiping.plan(raw, ["sda"]):
        assert "sdb" not in step.what
        assert not any("sdb" in word for word in step.argv)
        assert not step.path.startswith("/dev/sdb")


def test_a_blank_disk_is_only_zeroed():
    assert order(recorded.raid1_with_lvm(), "sda") == [
        "see that nothing else uses /dev/sda",
        "erase the signatures of /dev/sda",
        "write zeros over the first 65 MiB and the last MiB of /dev/sda",
        "forget the partitions of /dev/sda",
    ]


def stacked(top: str, name: str, number: str = "252:7") -> disk_facts.Raw:
    """A partition, a volume group on it, something on its volume."""
    inner = recorded.block(name, recorded.GIB, top, kname="dm-7", path=f"/dev/mapper/{name}", number=number)
    volume = recorded.block(
        "my--vg-data--1", recorded.GIB, "lvm", (inner,), kname="dm-6", path="/dev/mapper/my--vg-data--1", number="252:6"
    )
    part = recorded.block("sda1", recorded.GIB, "part", (volume,))
    return disk_facts.Raw(
        recorded.lsblk(recorded.sata("a", (part,))),
        pvs=recorded.report("pv", {"pv_name": "/dev/sda1", "vg_name": "my-vg", "vg_uuid": "1"}),
    )


def test_encryption_on_a_volume_is_closed_before_its_group():
    steps = wiping.plan(stacked("crypt", "secret"), ["sda"])
    argvs = [step.argv for step in steps if step.argv and not step.optional]
    assert argvs[:2] == [["cryptsetup", "close", "secret"], ["lvm", "vgchange", "--activate", "n", "my-vg"]]


def test_a_device_mapper_without_a_group_is_removed_by_itself():
    steps = [step.argv for step in wiping.plan(stacked("dm", "own"), ["sda"]) if step.argv and not step.optional]
    assert steps[0] == ["dmsetup", "remove", "--retry", "own"]


@pytest.mark.parametrize("kind", ["mpath", "rom", "bcache"])
def test_what_we_do_not_know_how_to_take_down_is_refused(kind):
    with pytest.raises(wiping.PlanError, match="by hand"):
        wiping.plan(stacked(kind, "odd"), ["sda"])


def test_two_raids_on_each_other():
    outer = recorded.block("md1", recorded.GIB, "raid0", number="9:1")
    inner = [recorded.block(name, recorded.GIB, "raid1", (outer,), number=f"9:{name[-1]}") for name in ("md2", "md3")]
    raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a", (inner[0],)), recorded.sata("b", (inner[1],))))
    stops = [step.argv[-1] for step in wiping.plan(raw, ["sda", "sdb"]) if step.argv[:2] == ["mdadm", "--stop"]]
    assert stops == ["/dev/md1", "/dev/md2", "/dev/md3"]


def test_a_disk_that_cannot_be_emptied_says_what_to_do(monkeypatch):
    def fail(*_given):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(wiping, "zero_edges", fail)
    step = wiping.Step("write zeros over /dev/sda", kind="zero", path="/dev/sda", size=1 << 30)
    with pytest.raises(wiping.WipeError) as refused:
        wiping._carry_out_all(lambda *_words, **_how: (0, "", ""), [step], 0.0)
    assert str(refused.value) == (
        "could not write zeros over /dev/sda: Input/output error: bad sectors, or a broken disk or cable. Look at "
        "dmesg and smartctl in the rescue, and have the disk replaced"
    )


@pytest.mark.parametrize("after", ["erased", "verified"])
def test_what_fails_after_the_erasing_says_that_disks_were_changed(monkeypatch, tmp_path, after):
    """Else the controller would say that nothing was changed, and the word of the user would not be used up."""
    looks = iter({"erased": [1, 1, None], "verified": [1, 1, 1, None]}[after])
    raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a")))

    def read(*_given: object, **_more: object) -> disk_facts.Raw:
        if next(looks) is None:
            raise targets.disk_gather.GatherError("lsblk does not list the disks")
        return raw

    monkeypatch.setattr(targets.disk_gather, "read", read)
    monkeypatch.setattr(targets.wiping, "still", lambda _target, _disks: {"name": "sda"})
    monkeypatch.setattr(targets.wiping, "_locked", lambda *_given: contextlib.nullcontext())
    monkeypatch.setattr(targets.wiping, "_carry_out_all", lambda *_given: ["erased"])
    monkeypatch.setattr(targets.job, "progress", lambda *_given: {"running": False})
    with pytest.raises(JobError, match="everything was erased, but lsblk does not list the disks") as failed:
        targets.wipe_disks(lambda *_given, **_more: (0, "", ""), [{}], base=str(tmp_path))
    assert failed.value.begun is True


def test_a_lock_that_cannot_be_taken_says_that_nothing_was_changed(monkeypatch, tmp_path):
    """Else the next run would take the disks for those that this one had begun to write."""
    disk = tmp_path / "sda"
    with pytest.raises(wiping.WipeError, match=f"{disk} cannot be locked: No such file or directory; nothing") as gone:
        wiping._lock(str(disk), [], 0.0)
    disk.touch()

    def no_locks(_fd: int, _seconds: float) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(wiping.safe_files, "lock", no_locks)
    with pytest.raises(wiping.WipeError, match=f"{disk} cannot be locked: No locks available") as refused:
        wiping._locked([str(disk)], 0.0).__enter__()
    assert not gone.value.begun
    assert not refused.value.begun
