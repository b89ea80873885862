# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The written image becomes this machine's: grown, named, seeded, recorded."""

import hashlib
import json
import os
import stat

import pytest
import yaml

from tests.integration.commands.conftest import Target
from tests.integration.commands.disks import (
    BIOS,
    CLOUD_CONFIG,
    EFI,
    LINUX,
    MIB,
    SYSTEM,
    Part,
    build,
    loop,
    make_fs,
    mount,
    node,
    sh,
    table,
)

pytestmark = pytest.mark.root
IGNITION = '{"ignition": {"version": "3.4.0"}}'


def install(web, target, image: bytes, bootstrap: str = CLOUD_CONFIG, switches: str = ""):
    """Serve the image and install it."""
    web.site.files["/d/disk.raw"] = image
    url = f"{web.site.url}/d/disk.raw?k=v#sha256={hashlib.sha256(image).hexdigest()}{switches}"
    return target.install(url, bootstrap)


@pytest.fixture
def look(target, tmp_path):
    """Return a function that mounts a partition of the target and runs the checks on it."""

    def inner(number: int, check, *options: str):
        with mount(node(target.device, number), tmp_path / "look", *options) as top:
            return check(top)

    return inner


def size_of(top) -> int:
    found = os.statvfs(top)
    return found.f_blocks * found.f_frsize


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_the_root_takes_the_whole_disk(web, target, look, tmp_path, label):
    image = build(tmp_path / "image", [Part(1, kind=BIOS), Part(60, "ext4", SYSTEM)], label)
    before = table(tmp_path / "image")["partitions"]
    install(web, target, image).ok()
    after = table(target.device)["partitions"]
    assert after[0]["size"] == before[0]["size"]
    assert after[1]["size"] * 512 > 1020 * MIB
    for key in ("start", "type", "uuid", "name", "attrs"):
        assert after[1].get(key) == before[1].get(key), key
    assert look(2, size_of) > 900 * MIB
    sh("e2fsck", "-fn", node(target.device, 2))
    if label == "gpt":
        assert "No problems found" in sh("sgdisk", "--verify", target.device)


def test_numbers_with_gaps_and_a_root_that_is_first_by_number(web, target, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(bytes(70 * MIB))
    lines = [f"{path}14 : size=1M,type={BIOS}", f"{path}15 : size=1M,type={EFI}", f"{path}1 : size=60M,type={LINUX}"]
    sh("sfdisk", "--quiet", path, stdin="\n".join(["label: gpt", *lines]) + "\n")
    with loop(path) as device:
        sh("addpart", device, 1, 3 * 2048, 60 * 2048)
        make_fs(f"{device}p1", Part(60, "ext4", SYSTEM), tmp_path)
    install(web, target, path.read_bytes()).ok()
    found = {one["node"].removeprefix(f"{target.device}p"): one["size"] for one in table(target.device)["partitions"]}
    assert {name: size * 512 // MIB for name, size in found.items()} == {"14": 1, "15": 1, "1": 1020}
    with mount(f"{target.device}p1", tmp_path / "look") as top:
        assert size_of(top) > 900 * MIB


def test_growth_can_be_switched_off(web, target, look, debianish):
    install(web, target, debianish, switches="&grow=no").ok()
    assert target.read(0, MIB) == debianish[:MIB]
    assert look(2, size_of) < 60 * MIB
    assert look(2, lambda top: (top / "var/lib/cloud/seed/nocloud/user-data").exists())


def test_an_image_that_is_not_to_be_adapted_is_written_bit_by_bit(web, target, debianish):
    refused = install(web, target, debianish, CLOUD_CONFIG, "&adapt=no")
    assert "bootstrap data: adapt=no in the image URL leaves no place for it" in refused.stderr
    assert target.untouched()
    install(web, target, debianish, "", "&adapt=no").ok()
    assert target.read(0, len(debianish)) == debianish


def test_a_root_that_is_not_the_last_partition_keeps_its_size(web, target, look, tmp_path):
    image = build(tmp_path / "image", [Part(60, "ext4", SYSTEM), Part(8)])
    outcome = install(web, target, image).ok()
    assert "not the last one" in outcome.stdout
    assert table(target.device)["partitions"][0]["size"] * 512 == 60 * MIB


def test_xfs(web, target, look, tmp_path):
    install(web, target, build(tmp_path / "image", [Part(320, "xfs", SYSTEM)])).ok()
    assert look(1, size_of) > 900 * MIB
    assert look(1, lambda top: (top / "etc/kubenode/installed.json").exists())


def test_btrfs_with_its_root_in_a_subvolume(web, target, look, tmp_path):
    image = build(tmp_path / "image", [Part(160, "btrfs", SYSTEM, subvolumes=("@", "@home"))])
    install(web, target, image).ok()
    assert look(1, size_of) > 900 * MIB
    assert look(1, lambda top: (top / "@/var/lib/cloud/seed/nocloud/user-data").read_text()) == CLOUD_CONFIG


def test_cloud_init_seed(web, target, look, debianish):
    def check(top):
        seed = top / "var/lib/cloud/seed/nocloud"
        assert stat.S_IMODE(seed.stat().st_mode) == 0o700
        assert [stat.S_IMODE(path.stat().st_mode) for path in seed.iterdir()] == [0o600, 0o600]
        assert (seed / "user-data").read_text() == CLOUD_CONFIG
        pin = (top / "etc/cloud/cloud.cfg.d/zz-kubenode-datasource.cfg").read_text()
        assert "datasource_list: [ NoCloud, None ]" in pin
        return dict(line.split(": ") for line in (seed / "meta-data").read_text().splitlines())

    install(web, target, debianish).ok()
    first = look(2, check)
    assert json.loads(first["local-hostname"]) == "node-1"
    install(web, target, debianish).ok()
    assert look(2, check)["instance-id"] != first["instance-id"]


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43 + " me@home"


@pytest.mark.parametrize(("switches", "keys"), [("", [KEY]), ("&keys=yes", [KEY]), ("&keys=no", None)])
def test_keys_of_the_rescue_go_with_the_seed(web, target, look, debianish, switches, keys):
    target.authorize(f'{KEY}\ncommand="reboot" {KEY}\n# none: {KEY}\nuser-data: x\n')
    install(web, target, debianish, switches=switches).ok()
    meta = look(2, lambda top: yaml.safe_load((top / "var/lib/cloud/seed/nocloud/meta-data").read_text()))
    assert meta.get("public-keys") == keys
    assert meta["local-hostname"] == "node-1"


def test_installed_record(web, target, look, debianish):
    install(web, target, debianish).ok()

    def check(top):
        path = top / "etc/kubenode/installed.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        return json.loads(path.read_text())

    record = look(2, check)
    assert record.pop("installed_at").endswith("Z")
    assert record == {
        "machine": "node-1",
        "image_url": f"{web.site.url}/d/disk.raw",
        "image_digest": "sha256:" + hashlib.sha256(debianish).hexdigest(),
        "command": "image-url-command-raw-disk",
    }


def test_without_bootstrap_data_only_the_name_is_set(web, target, look, debianish):
    target.authorize(KEY)
    install(web, target, debianish, "").ok()

    def check(top):
        assert (top / "etc/hostname").read_text() == "node-1\n"
        assert not (top / "var/lib/cloud/seed").exists()
        assert not (top / "etc/cloud/cloud.cfg.d").exists()

    look(2, check)


def test_state_of_an_earlier_boot_does_not_hide_the_seed(web, target, look, tmp_path):
    files = {"var/lib/cloud/instances/i-1/obj.pkl": "old", "var/lib/cloud/instance": "-> /var/lib/cloud/instances/i-1"}
    install(web, target, build(tmp_path / "image", [Part(60, "ext4", {**SYSTEM, **files})])).ok()
    assert look(1, lambda top: (top / "var/lib/cloud/instance").is_symlink()) is False


def test_links_of_the_image_lead_into_the_image(web, target, look, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    files = {
        str(outside)[1:] + "/": "",
        "etc/kubenode": f"-> {outside}",
        "var/lib/cloud": "-> ../../opt/cloud",
        "opt/cloud/": "",
    }
    install(web, target, build(tmp_path / "image", [Part(60, "ext4", {**SYSTEM, **files})])).ok()
    assert list(outside.iterdir()) == []
    assert look(1, lambda top: (top / str(outside)[1:] / "installed.json").exists())
    assert look(1, lambda top: (top / "opt/cloud/seed/nocloud/user-data").exists())


def test_var_on_a_partition_of_its_own(web, target, look, tmp_path):
    uuid = "6f1b6a54-0c3e-4e8e-9d6c-6f5a8d6f0a11"
    fstab = {"etc/fstab": f"UUID={uuid} /var ext4 defaults 0 2\n", "var/": ""}
    parts = [Part(40, "ext4", {"lib/": ""}, uuid=uuid), Part(60, "ext4", {**SYSTEM, **fstab})]
    install(web, target, build(tmp_path / "image", parts)).ok()
    assert look(1, lambda top: (top / "lib/cloud/seed/nocloud/user-data").read_text()) == CLOUD_CONFIG
    assert look(2, lambda top: list((top / "var").iterdir())) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"usr/bin/cloud-init": None}, "no cloud-init program"),
        ({"etc/cloud/cloud-init.disabled": ""}, "cloud-init.disabled"),
        ({"etc/os-release": None}, "exactly one root"),
        ({"etc/fstab": "/dev/mapper/vg-var /var xfs defaults 0 0\n"}, "vg-var"),
    ],
)
def test_an_image_that_would_not_read_its_bootstrap_data_is_refused(web, target, tmp_path, change, named):
    files = {name: text for name, text in {**SYSTEM, **change}.items() if text is not None}
    install(web, target, build(tmp_path / "image", [Part(60, "ext4", files)])).fails(named)
    assert target.unbootable()


def test_two_root_file_systems(web, target, tmp_path):
    image = build(tmp_path / "image", [Part(40, "ext4", SYSTEM), Part(40, "ext4", SYSTEM)])
    assert "partition 1 (ext4), partition 2 (ext4)" in install(web, target, image).stderr
    install(web, target, image, "").ok()
    assert target.read(0, len(image)) == image


def test_unknown_bootstrap_data_is_refused_before_anything_is_written(web, target, debianish):
    install(web, target, debianish, "machine:\n  type: worker\n").fails("neither cloud-init")
    assert web.site.seen == []
    assert target.untouched()


def test_ignition_for_fedora_coreos(web, target, look, tmp_path):
    boot = Part(30, "ext4", {"ignition.firstboot": "", "ostree/": ""}, label="boot")
    image = build(tmp_path / "image", [Part(1, kind=BIOS), boot, Part(30, "ext4", {}, label="root")])
    install(web, target, image, IGNITION).ok()

    def check(top):
        path = top / "ignition/config.ign"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return path.read_text()

    assert look(2, check) == IGNITION
    assert target.read(0, MIB) == image[:MIB]


def test_ignition_for_flatcar(web, target, look, tmp_path):
    image = build(tmp_path / "image", [Part(120, "btrfs", {"grub.cfg": ""}, label="OEM"), Part(30, "ext4", {})])
    install(web, target, image, IGNITION).ok()
    assert look(1, lambda top: (top / "config.ign").read_text()) == IGNITION


@pytest.mark.parametrize("label", ["boot", "other"])
def test_ignition_for_an_image_that_would_not_read_it(web, target, tmp_path, label):
    image = build(tmp_path / "image", [Part(30, "ext4", {}, label=label), Part(30, "ext4", SYSTEM)])
    install(web, target, image, IGNITION).fails("booted before" if label == "boot" else "no partition labelled boot")
    assert target.unbootable()


def test_an_image_as_large_as_the_disk(web, small, tmp_path):
    path = tmp_path / "image"
    build(path, [Part(126, "ext4", SYSTEM)])
    image = path.read_bytes()
    assert len(image) == 128 * MIB
    assert b"EFI PART" in image[-MIB:]
    install(web, small, image).ok()
    assert "No problems found" in sh("sgdisk", "--verify", small.device)
    assert small.read(126 * MIB) == image[126 * MIB :]


def test_disk_with_sectors_of_4096_bytes(web, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(bytes(130 * MIB))
    with loop(path, "--sector-size", "4096") as device:
        sh("sfdisk", "--quiet", device, stdin="label: gpt\nsize=60M\n")
        make_fs(node(device, 1), Part(60, "ext4", SYSTEM), tmp_path)
    image = path.read_bytes()[: 64 * MIB]
    path.write_bytes(b"\xaa" * (130 * MIB))
    with loop(path, "--sector-size", "4096") as device:
        install(web, Target(device, tmp_path), image).ok()
        found = table(device)
        assert found["sectorsize"] == 4096
        assert found["partitions"][0]["size"] * 4096 > 127 * MIB
        assert "No problems found" in sh("sgdisk", "--verify", device)
        with mount(node(device, 1), tmp_path / "look") as top:
            assert (top / "var/lib/cloud/seed/nocloud/user-data").read_text() == CLOUD_CONFIG


def test_image_for_another_sector_size(web, tmp_path, debianish):
    path = tmp_path / "disk"
    path.write_bytes(b"\xaa" * (130 * MIB))
    with loop(path, "--sector-size", "4096") as device:
        install(web, Target(device, tmp_path), debianish).fails("512-byte sectors, the disk has 4096")
        assert Target(device, tmp_path).untouched()


def test_logical_partitions_are_not_understood(web, target, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(bytes(70 * MIB))
    sh("sfdisk", "--quiet", path, stdin="label: dos\nsize=10M,type=83\ntype=5\nsize=40M,type=83\n")
    image = path.read_bytes()
    install(web, target, image, "").ok()
    assert target.read(0, len(image)) == image
    assert "exactly one root" in install(web, target, image).stderr
    assert target.unbootable()
