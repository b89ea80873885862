# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tar archive becomes a system of its own, or the disk stays as it is, or it says that it does not boot."""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.integration.commands.conftest import ROOTFS_TAR, Target
from tests.integration.commands.disks import BIOS, CLOUD_CONFIG, EFI, MIB, PATH, mount, node, sh, table
from tests.integration.commands.trees import archive, member, pack, tiny
from tests.waiting import until

pytestmark = pytest.mark.root
ROOT = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    """A root file system with everything that an archive can carry."""
    top = tiny(tmp_path_factory.mktemp("tree"))
    (top / "bin/sudo").write_text("setuid")
    os.chown(top / "bin/sudo", 0, 7)
    (top / "bin/sudo").chmod(0o4750)
    os.link(top / "bin/sudo", top / "bin/sudoedit")
    os.setxattr(top / "bin/dash", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    os.setxattr(top / "etc", "user.note", b"\xff\x00binary")
    with (top / "var.img").open("wb") as sparse:
        sparse.truncate(64 * MIB)
        sparse.seek(32 * MIB)
        sparse.write(b"island")
    os.mkfifo(top / "pipe")
    (top / "dev").mkdir()
    os.mknod(top / "dev/null", 0o20666, os.makedev(1, 3))
    layer = top / "opt/layer"  # of overlayfs, as containerd keeps them
    layer.mkdir(parents=True)
    os.mknod(layer / "removed", 0o20000, os.makedev(0, 0))
    os.setxattr(layer, "trusted.overlay.opaque", b"y")
    (top / "etc/ümläut").write_text("x")
    (top / ("long" * 40)).symlink_to("/nowhere/at/all")
    os.utime(top / "etc", ns=(1_000_000_000_123_456_789, 1_000_000_000_123_456_789))
    return top


@pytest.fixture(scope="session")
def image(tree) -> bytes:
    """It, packed."""
    return pack(tree, "--xattrs", "--xattrs-include=*", "--sparse", "--format=posix")


@pytest.fixture
def disk(target) -> Target:
    """A target for this command."""
    target.program = ROOTFS_TAR
    return target


def publish(web, data: bytes, switches: str = "", fault: tuple = ()) -> str:
    """Serve an archive; return its URL with the digest."""
    web.site.files["/node.tar"] = data
    web.site.faults["/node.tar"] = [fault] if fault else []
    return f"{web.site.url}/node.tar#sha256={hashlib.sha256(data).hexdigest()}{switches}"


def listing(top: Path) -> list[str]:
    """Everything about the files of a tree but the folders' sizes."""
    found = sh("find", top, "-xdev", "-mindepth", "1", "!", "-type", "d", "-printf", "%P %y %m %U %G %s %T@ %l %n\n")
    found += sh("find", top, "-xdev", "-type", "d", "!", "-name", "lost+found", "-printf", "%P %y %m %U %G %T@\n")
    return sorted(found.splitlines())


def test_everything_arrives_and_the_disk_boots(web, disk, tree, image, tmp_path):
    disk.install(publish(web, image), CLOUD_CONFIG).ok()
    found = table(disk.device)["partitions"]
    assert [one["type"] for one in found] == [BIOS, EFI, ROOT]
    assert "No problems found" in sh("sgdisk", "--verify", disk.device)
    assert disk.read(0, 8) == b"BOOTCODE"
    assert not any(disk.read(2 * MIB, MIB)), "what was on the ESP would boot"
    root = node(disk.device, 3)
    uuid = sh("blkid", "-p", "-s", "UUID", "-o", "value", root).strip()
    with mount(root, tmp_path / "look") as top:
        assert f"UUID={uuid} / ext4 errors=remount-ro 0 1" in (top / "etc/fstab").read_text().splitlines()
        assert (top / "var/lib/cloud/seed/nocloud/user-data").read_text() == CLOUD_CONFIG
        record = json.loads((top / "etc/kubenode/installed.json").read_text())
        assert record["image_digest"] == f"sha256:{hashlib.sha256(image).hexdigest()}"
        assert record["command"] == "image-url-command-rootfs-tar"
        installed = (top / "boot/grub/installed").read_text().splitlines()
        assert installed[-1] == f"--target=i386-pc --recheck --no-floppy {disk.device}"
        assert "OCI_REGISTRY" not in (top / "boot/grub/environment").read_text()
        assert os.getxattr(top / "bin/dash", "security.capability").hex().startswith("01000002")
        assert os.getxattr(top / "etc", "user.note") == b"\xff\x00binary"
        assert os.getxattr(top / "opt/layer", "trusted.overlay.opaque") == b"y"
        assert (top / "opt/layer/removed").is_char_device()
        assert (top / "bin/sudo").stat().st_ino == (top / "bin/sudoedit").stat().st_ino
        assert (top / "var.img").stat().st_blocks * 512 < MIB
        assert (top / "var.img").read_bytes()[32 * MIB : 32 * MIB + 6] == b"island"
        ours = ("boot", "etc", "var", "var.img", "dev", "run", "sys", "proc", "tmp", "")
        changed = {line.split(" ")[0] for line in set(listing(tree)) ^ set(listing(top))}
        assert {name for name in changed if name.split("/")[0] not in ours} == set()
    sh("e2fsck", "-fn", root)


def test_a_layout_of_ones_own(web, disk, image, tmp_path):
    layout = "&layout=esp:64M,swap:64M,/boot:ext4:64M,/var:xfs:320M,/:btrfs"
    disk.install(publish(web, gzip.compress(image, 1), layout), CLOUD_CONFIG).ok()
    sizes = [one["size"] * 512 // MIB for one in table(disk.device)["partitions"]]
    assert sizes[:5] == [1, 64, 64, 64, 320]
    with mount(node(disk.device, 6), tmp_path / "look") as top:
        lines = [line.split()[1:] for line in (top / "etc/fstab").read_text().splitlines() if line.startswith("UUID=")]
        assert ["/", "btrfs", "defaults", "0", "0"] in lines
        assert ["/boot", "ext4", "defaults", "0", "2"] in lines
        assert ["/var", "xfs", "defaults", "0", "0"] in lines
        assert ["none", "swap", "sw", "0", "0"] in lines
        assert list((top / "boot").iterdir()) == []
    with mount(node(disk.device, 4), tmp_path / "look") as top:
        assert (top / "vmlinuz-1").exists()
        assert (top / "grub/grub.cfg").exists()
    with mount(node(disk.device, 5), tmp_path / "look") as top:
        assert (top / "lib/cloud/seed/nocloud/user-data").exists()


HOSTILE = {
    "absolute": (member("/etc/passwd", b"x"), "leads out"),
    "dots": (member("usr/../../etc/passwd", b"x"), "leads out"),
    "hard-link-outside": (member("etc/shadow", kind=tarfile.LNKTYPE, linkname="../../etc/shadow"), "leads out"),
    "hard-link-absolute": (member("etc/shadow", kind=tarfile.LNKTYPE, linkname="/etc/shadow"), "leads out"),
    "device": (member("srv/disk", kind=tarfile.BLKTYPE, devmajor=8), "device node outside of /dev"),
    "no whiteout": (member("srv/null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3), "device node outside of /dev"),
    "unknown-kind": (member("strange", kind=b"Q"), "unknown kind"),
    "owner": (member("file", uid=2**32), "belongs to"),
}


@pytest.mark.parametrize("length", ["kept", "streamed"])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_out_of_the_new_system_is_refused(web, disk, image, name, length):
    hostile, why = HOSTILE[name]
    disk.install(publish(web, archive(hostile, base=image), fault=UNSIZED[length]), CLOUD_CONFIG).fails(
        why, "this command wrote nothing" if length == "kept" else "unbootable again"
    )
    assert disk.untouched() if length == "kept" else disk.unbootable()
    assert not Path("/etc/passwd").read_text().startswith("x")


#: Without a length it may not fit into RAM.
UNSIZED = {"kept": (), "streamed": ("unsized",)}


@pytest.mark.parametrize("length", UNSIZED)
@pytest.mark.parametrize("fault", ["digest", "truncated", "damaged"])
def test_what_is_not_whole_is_not_a_system(web, disk, image, fault, length):
    data = {
        "digest": image,
        "truncated": image[: len(image) // 2],
        "damaged": image[:512] + b"\xff" * 512 + image[1024:],
    }
    url = publish(web, data[fault], fault=UNSIZED[length])
    disk.install(f"{web.site.url}/node.tar#sha256={'0' * 64}" if fault == "digest" else url, CLOUD_CONFIG).fails(
        {"digest": "expected 000", "truncated": "truncated", "damaged": "damaged"}[fault]
    )
    assert disk.untouched() if length == "kept" else disk.unbootable()


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("boot/vmlinuz-1", "no kernel"),
        ("usr/sbin/grub-install", "no grub-install"),
        ("usr/lib/grub/i386-pc", "grub/i386-pc"),
        ("usr/bin/cloud-init", "no cloud-init program"),
        ("etc/os-release", "no os-release"),
    ],
)
def test_what_would_not_start_is_refused(web, disk, tree, gone, why):
    image = pack(tree, "--sparse", "--format=posix", f"--exclude=./{gone}")
    disk.install(publish(web, image), CLOUD_CONFIG).fails(why)
    assert disk.untouched()


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("/:ntfs", "is none of ext4"),
        ("/boot:ext4:64M", "the root / is missing"),
        ("/:ext4,/var:ext4:1G", "only the last"),
        ("/etc:ext4:1G,/:ext4", "cannot be a partition"),
        ("/var:ext4:2G,/:ext4", "the disk has 1024 MiB"),
        ("/var:ext4:64K,/:ext4", "no size"),
    ],
)
def test_layouts_that_make_no_sense(web, disk, image, layout, why):
    disk.install(publish(web, image, f"&layout={layout}")).fails(why)
    assert web.site.seen == []
    assert disk.untouched()


def test_an_archive_that_does_not_fit_is_not_written(web, disk, image):
    large = archive(member("var/large", bytes(80 * MIB)), base=image)
    disk.install(publish(web, gzip.compress(large, 1), "&layout=/var:ext4:64M,/:ext4"), CLOUD_CONFIG).fails(
        "/var needs 83 MB, its partition has 67 MB"
    )
    assert disk.untouched()


def test_an_archive_that_turns_out_too_large_is_half_written_and_says_so(web, disk, image):
    large = archive(member("var/large", b"x" * 40 * MIB), base=image)
    url = publish(web, gzip.compress(large, 1), "&layout=/var:ext4:32M,/:ext4", ("unsized",))
    disk.install(url, CLOUD_CONFIG).fails("No space left", "unbootable again")
    assert disk.unbootable()


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"<html>no such image</html>" * 99, "error page"), (bytes(510) + b"\x55\xaa" + bytes(MIB), "raw disk image")],
)
def test_what_is_no_archive(web, disk, data, why):
    assert why in disk.install(publish(web, data)).stderr
    assert disk.untouched()


def test_ignition_needs_a_disk_image(web, disk, image):
    disk.install(publish(web, image), '{"ignition": {"version": "3.4.0"}}').fails("Ignition")
    assert disk.untouched()


def test_a_boot_loader_that_fails_leaves_nothing_that_boots(web, disk, image):
    broken = member("usr/sbin/grub-mkconfig", b"#!/bin/sh\necho no disk >&2\nexit 3\n", mode=0o755)
    disk.install(publish(web, archive(broken, base=image)), CLOUD_CONFIG).fails("exit code 3: no disk")
    assert disk.unbootable()


@pytest.mark.parametrize("length", UNSIZED)
def test_sigterm_leaves_nothing_that_boots_and_no_process_that_writes(web, disk, image, length):
    url = publish(web, archive(member("large", bytes(40 * MIB)), base=image))
    web.site.faults["/node.tar"] = [("slow", 0.05, *UNSIZED[length])]
    process = subprocess.Popen(
        disk.command(url, CLOUD_CONFIG), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": PATH},
        start_new_session=True,
    )  # fmt: skip
    awaited = "fetching" if length == "kept" else "unpacking"
    until(lambda: disk.message().startswith(awaited), awaited, show=disk.message)
    process.send_signal(signal.SIGTERM)
    _stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 143
    assert ("this command wrote nothing" if length == "kept" else "unbootable again") in stderr
    assert disk.untouched() if length == "kept" else disk.unbootable()
    assert list(Path("/dev").glob(f".kubenode-{process.pid}-*")) == []
    assert subprocess.run(["pgrep", "--session", str(process.pid)], stdout=-3, check=False).returncode == 1
