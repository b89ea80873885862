# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our readers and writers on an ISO made by other tools, and the program cpio on what we pack."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, materialise, read
from lab.coreos import LiveImage

CONFIG = b'{"ignition": {"version": "3.2.0"}}'
ROOTFS = "http://192.0.2.1/rootfs.img"


@pytest.fixture(scope="module")
def base(coreos: LiveImage) -> iso.Iso:
    return iso.inspect(str(coreos.iso))


def extracted(overlay: Overlay, folder: Path) -> Path:
    """The files of an image, as xorriso reads them from a file."""
    image = folder / "image.iso"
    materialise(overlay, str(image))
    command = ["xorriso", "-osirrox", "on", "-indev", str(image), "-extract", "/", str(folder / "content")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "content"


def test_published_image_is_read(base: iso.Iso, coreos: LiveImage) -> None:
    assert base.area.source == "igninfo"
    assert base.area.extent.length == 256 * 1024
    assert base.blank
    assert not base.customised
    assert base.kernel_arguments is not None
    assert base.kernel_arguments.default == base.kernel_arguments.current == coreos.arguments
    assert len(base.kernel_arguments.areas) == 2
    for what, file in (("kernel", coreos.kernel), ("initramfs", coreos.initramfs), ("rootfs", coreos.rootfs)):
        overlay = iso.boot_file(base, what)
        assert read(overlay, 0, overlay.size) == file.read_bytes()


def test_minimal_image_is_the_one_that_was_made_beside_it(base: iso.Iso, coreos: LiveImage) -> None:
    small = iso.minimal_overlay(base.files)
    assert hashlib.sha256(read(small, 0, small.size)).hexdigest() == coreos.minimal_sha256


def test_customised_image_differs_in_nothing_else(base: iso.Iso, coreos: LiveImage, tmp_path: Path) -> None:
    made = iso.customise(base, CONFIG, {"eth0.nmconnection": "[connection]\n"}, Edit(append=("a=1",)))
    content = extracted(made, tmp_path)
    area = (content / "images/ignition.img").read_bytes()
    members = {member.name: member.data for member in cpio.members(area) if member.data}
    assert members == {"config.ign": CONFIG, "etc/coreos-firstboot-network/eth0.nmconnection": b"[connection]\n"}
    for name in ("isolinux/isolinux.cfg", "EFI/fedora/grub.cfg"):
        assert f" {coreos.arguments} a=1\n###" in (content / name).read_text()
    unchanged = iso.reset(iso.of(made))
    assert read(unchanged, 0, unchanged.size) == coreos.iso.read_bytes()


def test_minimal_image_fetches_its_root(base: iso.Iso, tmp_path: Path) -> None:
    content = extracted(iso.minimal(base, ROOTFS).overlay, tmp_path)
    assert not (content / "images/pxeboot/rootfs.img").exists()
    reported = json.loads((content / "coreos/kargs.json").read_bytes())
    assert "coreos.liveiso" not in reported["default"]
    for place in reported["files"]:
        text = (content / place["path"]).read_bytes()[place["offset"] : place["offset"] + reported["size"]]
        assert text.partition(b"\n")[0].decode().split()[-1] == f"coreos.live.rootfs_url={ROOTFS}"


def test_cpio_itself_reads_them(tmp_path):
    files = {"config.ign": b"{}", "etc/coreos-firstboot-network/a.nmconnection": b"[connection]\n"}
    command = ["cpio", "--extract", "--quiet", "--make-directories"]
    subprocess.run(command, input=cpio.archive(files, "none"), cwd=tmp_path, check=True)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == files
