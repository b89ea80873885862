# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cannot be installed: one clear error each, and disks that are as they were, or empty again."""

import os
import random
import shlex
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from tests.integration.installimage.conftest import IMAGE

pytestmark = pytest.mark.nspawn

BOOT = {"mount": "/boot", "filesystem": "ext4", "size": "1G"}
ROOT = {"mount": "/", "filesystem": "ext4", "size": "all"}
VAR = {"mount": "/var", "filesystem": "ext4", "size": "all"}


def error_of(run) -> str:
    """The message of a run that must have failed."""
    assert run.failed, run.output
    return run["msg"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"swraid": 1}, "root_devices: RAID level 1 needs at least 2 disks, and 1 is named"),
        ({"partitions": [BOOT, ROOT, VAR]}, 'partitions[2].size "all": partitions[1] takes all of the disk already'),
        ({"partitions": [BOOT, ROOT], "uefi": "true"}, "there is no ESP, but the rescue was booted by UEFI"),
        ({"image": {"name": "debian-12.tar.zst"}}, "installimage reads the architecture from the name"),
        ({"root_devices": ["sda"]}, "this name may belong to another disk after the next boot"),
        ({"hostname": "a b"}, 'hostname "a b"'),
    ],
)
def test_what_can_be_known_is_refused_before_the_machine_is_contacted(controller, wrong, reason):
    given = {"image": {"name": IMAGE}, "root_devices": ["wwn-0x5002538d40aa0001"], **wrong}
    controller.reach("absent", "198.18.255.254")
    run = controller.run("absent", "robot_installimage", **given)
    assert reason in error_of(run)
    assert error_of(run).count("\n") == 0
    assert not controller.pins.exists() or not list(controller.pins.iterdir())


def test_check_mode_shows_the_configuration_and_touches_nothing(controller):
    controller.reach("absent", "198.18.255.254")
    partitions = [BOOT, {**ROOT, "crypt": True}]
    given = {"image": {"name": IMAGE}, "root_devices": ["wwn-0x5002538d40aa0001"], "crypt_password": "correct-horse"}
    run = controller.run("absent", "robot_installimage", "--check", "--diff", partitions=partitions, **given).ok()
    assert run["changed"]
    for line in ("DRIVE1 wwn-0x5002538d40aa0001", "PART / ext4 all crypt", "CRYPTPASSWORD ********", "HOSTNAME absent"):
        assert f"+{line}" in run.output
    assert "correct-horse" not in run.output
    assert not controller.logs.exists()


def test_what_the_rescue_knows_is_refused_before_a_disk_is_written(controller):
    controller.machine("inst-uefi", "3G", "64M", uefi=True)
    devices = controller.devices("inst-uefi")

    def refused(reason: str, **wrong: object) -> None:
        run = controller.install("inst-uefi", **wrong)
        assert reason in error_of(run)
        assert (run["began"], run["changed"], run["permanent"]) == (False, False, True)

    refused("there is no ESP, but the rescue was booted by UEFI", partitions=[BOOT, ROOT])
    controller.ssh("inst-uefi", f"mkfs.ext4 -q -F -L data /dev/disk/by-id/nvme-{devices[1]}")
    marks = controller.marks("inst-uefi")
    refused(f"that folder holds {IMAGE}", image={"name": IMAGE.replace("base", "none")})
    refused("its digest is sha256:", image={"name": IMAGE, "digest": "sha256:" + "0" * 64})
    refused("is not empty: nvme1n1: ext4", root_devices=devices[1:])
    assert controller.marks("inst-uefi") == marks


def test_what_may_go_goes_only_when_all_else_was_found_right(controller):
    """C7: with a wrong image the disks keep what they hold, although it may go."""
    controller.machine("inst-held")
    (device,) = controller.devices("inst-held")
    intent = controller.folder / "inst-held.json"
    controller.ssh("inst-held", f"mkfs.ext4 -q -F -L data /dev/disk/by-id/nvme-{device}")
    hints = {"root_device_hints": {"smallest": True}, "wipe": [device], "state": "ready", "device_strings": "by-id"}
    hints["claim_file"] = str(intent)
    found = controller.run("inst-held", "machine_disks", empty="later", **hints)
    assert (found["changed"], found["wiped"], [one["wwn"] for one in found["to_empty"]]) == (False, [], [device])
    marks = controller.marks("inst-held")

    def refused(reason: str, **wrong: object) -> None:
        run = controller.install("inst-held", empty=found["to_empty"], intent_file=str(intent), **wrong)
        assert reason in error_of(run)
        assert (run["began"], run["changed"], run["permanent"]) == (False, False, True)
        assert controller.marks("inst-held") == marks

    refused(f"that folder holds {IMAGE}", image={"name": IMAGE.replace("base", "none")})
    # and the permission of this run ended with it: the next one asks for it again
    without = {key: value for key, value in hints.items() if key != "wipe"}
    later = controller.run("inst-held", "machine_disks", empty="later", **without)
    assert "is not empty. It holds:" in error_of(later)
    refused("its digest is sha256:", image={"name": IMAGE, "digest": "sha256:" + "0" * 64})
    refused("HTTP 404", image={
        "url": f"{controller.lab.images_url}/none/{IMAGE}", "digest": "sha256:" + "0" * 64})  # fmt: skip
    changed = [{**found["to_empty"][0], "content_id": "0" * 8}]
    run = controller.install("inst-held", empty=changed)
    assert "does not hold any more what was found before; nothing was erased" in error_of(run)
    assert controller.marks("inst-held") == marks

    controller.install("inst-held", empty=found["to_empty"]).ok()
    assert "emptying: " in controller.log("inst-held", "stdout")


@pytest.mark.long
def test_a_disk_that_changes_after_the_look_is_not_written(controller):
    """A person makes a file system there, just when the program asks for the network of the rescue."""
    controller.machine("inst-late")
    (device,) = controller.devices("inst-late")
    disk = f"/dev/disk/by-id/nvme-{device}"
    begun = f"{protocol.BASE}/{specs.WORK}/images"
    person = (
        f'#!/bin/sh\n[ ! -d {begun} ] || {{ rm "$0"; mkfs.ext4 -q -F -L kept {disk}; }} >&2\nexec /usr/bin/ip "$@"\n'
    )
    controller.ssh("inst-late", f"printf %s {shlex.quote(person)} >/usr/local/sbin/ip; chmod 755 /usr/local/sbin/ip")
    run = controller.install("inst-late")
    assert "is not empty: nvme0n1: ext4" in error_of(run)
    assert (run["began"], run["changed"]) == (False, False)
    assert controller.ssh("inst-late", f"blkid -p -s LABEL -o value {disk}").strip() == "kept"


def tarball(path: Path, content: bytes = b"", size: int = 0) -> Path:
    """An archive with one file of this content, or of so many zeros."""
    big = path.parent / "var/big"
    big.parent.mkdir(exist_ok=True)
    big.write_bytes(content)
    os.truncate(big, size or len(content))
    subprocess.run(["tar", "--zstd", "-C", str(path.parent), "-cf", str(path), "var/big"], check=True)
    return path


@pytest.mark.long
def test_what_fails_on_the_way_leaves_empty_disks_and_the_reason(controller, tmp_path):
    controller.machine("inst-fails")
    folder = tmp_path / "images"
    folder.mkdir()

    def failed(*reasons: str, **wrong: object) -> object:
        run = controller.install("inst-fails", **wrong)
        for reason in reasons:
            assert reason in error_of(run), run.output
        assert (run["began"], run["blanked"]) == (True, True)
        assert run["boot_state"] == "ProvisioningFailed"
        assert "debug.txt ends with:" in run["msg"]
        assert run["debug_tail"]
        assert controller.blank("inst-fails")
        return run

    full = tarball(folder / "Debian-1200-full-amd64-x.tar.zst", size=1600 << 20)
    run = failed("a file system was full", "tar: var/big: ", image={"file": str(full)}, partitions=[
        {"mount": "/", "filesystem": "ext4", "size": "1500M"}])  # fmt: skip
    assert not run["permanent"], "what a step says may have had a reason that does not come again"
    assert "uploaded" in run.output

    broken = tarball(folder / "Debian-1200-broken-amd64-x.tar.zst", random.Random(1).randbytes(32 << 20))
    os.truncate(broken, 20 << 20)
    failed("the image cannot be unpacked", image={"file": str(broken)})

    failed("post_install_script failed in the new system with exit code 42", "and that is why",
           post_install_script="echo and that is why; exit 42")  # fmt: skip
    assert "and that is why" in controller.log("inst-fails", "post-install")

    # installimage itself ends well here: an image without what Debian's packages of GRUB make
    without = f"/root/{IMAGE.replace('base', 'nogrub')}"
    controller.ssh("inst-fails", f"zstd -dc /root/.oldroot/nfs/images/{IMAGE} | "
                   f"tar --delete ./boot/grub ./etc/default/grub | zstd -1 -qo {without}")  # fmt: skip
    run = failed("the new system would not start: there is no /boot/grub/grub.cfg", image={"path": without})
    assert run["permanent"]
    failed("the new system would not start: there is no boot loader at the beginning of /dev/nvme0n1",
           post_install_script="head -c 440 /dev/zero | dd of=/dev/nvme0n1 conv=notrunc status=none")  # fmt: skip

    failed("it was killed at the time limit", post_install_script="sleep 100000", timeout=20)
    left = controller.ssh("inst-fails", "pgrep -f '[i]nstallimage -a' || true; ls -d /installimage.* || true")
    assert not [line for line in left.splitlines() if line.isdigit()]
