# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live image has the layout of CoreOS's, seen with other people's programs."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from lab.coreos import LiveImage
from lab.coreos.live_image import _EPOCH, SOURCES, efi_image, encode_recipe
from lab.errors import ImageError

AREA = 1139


def xorriso(iso: Path, *arguments: str) -> str:
    return subprocess.run(
        ["xorriso", "-indev", str(iso), *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_boots_with_bios_and_uefi_from_cd_and_disk(coreos: LiveImage) -> None:
    reported = xorriso(coreos.iso, "-report_el_torito", "plain", "-report_system_area", "plain")
    images = re.findall(r"^El Torito boot img :\s+\d+\s+(\w+)\s+y\s+none", reported, re.M)
    assert images == ["BIOS", "UEFI"]
    paths = re.findall(r"^El Torito img path :\s+\d+\s+(\S+)", reported, re.M)
    assert paths == ["/isolinux/isolinux.bin", "/images/efiboot.img"]
    assert "isohybrid" in reported
    assert re.search(r"^GPT type GUID\s+:\s+\d+\s+a2a0d0ebe5b9334487c068b6b72699c7", reported, re.M)


def test_volume_is_found_by_its_published_arguments(coreos: LiveImage) -> None:
    reported = xorriso(coreos.iso, "-pvd_info")
    label = re.search(r"^Volume Id\s*: (.*)$", reported, re.M)
    assert label
    assert f"coreos.liveiso={label[1]}" in coreos.arguments.split()
    assert {"ignition.firstboot", "ignition.platform.id=metal"} < set(coreos.arguments.split())


def test_embed_area_is_an_empty_second_initramfs(content: Path) -> None:
    assert json.loads((content / "coreos/igninfo.json").read_bytes()) == {"file": "images/ignition.img"}
    assert (content / "images/ignition.img").read_bytes() == bytes(256 * 1024)
    grub = (content / "EFI/fedora/grub.cfg").read_text()
    assert re.search(r"^\s*initrd /images/pxeboot/initrd.img /images/ignition.img$", grub, re.M)
    isolinux = (content / "isolinux/isolinux.cfg").read_text()
    assert "append initrd=/images/pxeboot/initrd.img,/images/ignition.img " in isolinux


def test_areas_for_kernel_arguments_are_where_they_are_said_to_be(coreos: LiveImage, content: Path) -> None:
    reported = json.loads((content / "coreos/kargs.json").read_bytes())
    assert (reported["default"], reported["size"]) == (coreos.arguments, AREA)
    assert [entry["path"] for entry in reported["files"]] == ["isolinux/isolinux.cfg", "EFI/fedora/grub.cfg"]
    for entry in reported["files"]:
        text = (content / entry["path"]).read_bytes()
        area = text[entry["offset"] : entry["offset"] + AREA]
        assert area == (coreos.arguments.encode() + b"\n").ljust(AREA, b"#")
        assert text[entry["offset"] + AREA :].startswith(b"# COREOS_KARG_EMBED_AREA\n")


def test_files_for_network_boot_are_those_beside_the_image(coreos: LiveImage, content: Path) -> None:
    assert json.loads((content / "coreos/features.json").read_bytes())["live-initrd-network"] is True
    for file in (coreos.kernel, coreos.initramfs, coreos.rootfs):
        assert (content / "images/pxeboot" / file.name).read_bytes() == file.read_bytes()
    assert coreos.iso.stat().st_size < 60 * 2**20


def test_recipe_of_the_minimal_image_fits_its_space(content: Path) -> None:
    data = (content / "coreos/miniso.dat").read_bytes()
    assert len(data) == 16 * 1024
    assert data.startswith(b"MINISO\0\0\x01\x060.20.0")


def test_recipe_has_numbers_as_bincode_writes_them() -> None:
    made = encode_recipe([(250, 251, 65536)], b"d" * 32, b"")
    table = b"\x01" + b"\xfa" + b"\xfb\xfb\x00" + b"\xfc\x00\x00\x01\x00"
    assert made.startswith(b"MINISO\0\0\x01\x060.20.0" + table + b"d" * 32)


def test_recipe_that_does_not_fit_is_refused() -> None:
    noise = bytes(pow(3, n, 257) & 255 ^ n * n >> 7 & 255 for n in range(70_000))
    with pytest.raises(ImageError, match=r"has \d+ bytes, 16384 is the most"):
        encode_recipe([], b"d" * 32, noise)


def test_initramfs_is_an_archive_with_its_modules_in_order(coreos: LiveImage, tmp_path: Path) -> None:
    packed = coreos.initramfs.read_bytes()
    archive = subprocess.run(["gzip", "-dc"], input=packed, check=True, capture_output=True).stdout
    listing = subprocess.run(["cpio", "-it", "--quiet"], input=archive, check=True, capture_output=True, text=False)
    names = listing.stdout.decode().split()
    assert {"init", "bin/sh", "bin/busybox", "bin/ignition", "lib/json.awk", "dev/console"} < set(names)
    subprocess.run(["cpio", "-id", "--quiet", "modules/*"], input=archive, cwd=tmp_path, check=True)
    loaded: list[str] = []
    for name in (tmp_path / "modules/order").read_text().split():
        module = (tmp_path / "modules" / name).read_bytes()
        needed = re.search(rb"\0depends=([^\0]*)", module)
        assert needed
        assert set(filter(None, needed[1].decode().split(","))) <= set(loaded), name
        assert f"vermagic={coreos.kernel_version} ".encode() in module
        loaded.append(name.removesuffix(".ko").replace("-", "_"))
    assert {"virtio_scsi", "sr_mod", "isofs", "virtio_net"} < set(loaded)


def test_efi_image_has_no_time_but_the_one_given(content: Path, tmp_path: Path) -> None:
    early = SOURCES / "boot/early.cfg"
    made = efi_image(early, tmp_path, _EPOCH)
    assert made == (content / "images/efiboot.img").read_bytes()
    listing = subprocess.run(["mdir", "-i", str(content / "images/efiboot.img"), "-/", "-a", "::"], check=True,
                             capture_output=True, text=True).stdout  # fmt: skip
    assert set(re.findall(r"\d{4}-\d\d-\d\d", listing)) == {"2023-11-14"}
    assert "BOOTX64" in listing
