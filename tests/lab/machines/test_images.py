# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lab images: where packages come from, what a digest covers, and that a folder is whole or not there."""

import dataclasses
import hashlib
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from lab import cache, images
from lab.apt import apt_options, sources
from lab.errors import ImageError
from lab.images import debian
from lab.images.recipe import RECIPES
from lab.images.rescue import build_share
from lab.machines import partition_table
from lab.machines.partition_table import why_not

_DEB822 = """# of the installer
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates trixie
Components: main contrib

Types: deb
URIs: http://security.example/debian
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
_ONE_LINE = """deb [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian bookworm main contrib
deb-src [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian bookworm main
# deb http://off.example/debian bookworm main
deb http://other.example/apt stable main
"""


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def test_sources_of_the_host_for_this_suite_only(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text(_DEB822)
    assert sources("bookworm", apt) == [
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
        "deb http://security.example/debian bookworm-security main",
    ]


def test_settings_of_the_host_by_which_it_reaches_its_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror may be an old copy, which the host then accepts."""
    (tmp_path / "apt.conf").write_text('Acquire { Retries "7"; Check-Valid-Until "false"; Languages "none"; };')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    found = apt_options()
    assert {'Acquire::Retries "7"', 'Acquire::Check-Valid-Until "false"'} <= set(found)
    assert not [one for one in found if "Languages" in one]


def test_one_line_sources(apt: Path) -> None:
    (apt / "sources.list").write_text(_ONE_LINE)
    assert sources("bookworm", apt) == ["deb http://mirror.example/debian bookworm main"]


def test_host_of_another_suite_leaves_the_choice_to_mmdebstrap(apt: Path) -> None:
    (apt / "sources.list").write_text("deb http://mirror.example/ubuntu noble main universe\n")
    assert sources("bookworm", apt) == []


def _release(folder: Path, text: str) -> Path:
    path = folder / "os-release"
    path.write_text(text)
    return path


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_another_suite_comes_from_where_the_hosts_own_does(apt: Path, tmp_path: Path, suite: str) -> None:
    (apt / "sources.list").write_text(
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/debian bookworm-updates main\n"
        "deb http://security.example/debian bookworm-security main\n"
    )
    release = _release(tmp_path, 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian"\n')
    expected = [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb http://security.example/debian trixie-security main",
    ]
    if suite == "sid":
        expected = ["deb http://mirror.example/debian sid main"]
    assert sources(suite, apt, release) == expected


def test_a_host_that_is_no_debian_has_no_suites(apt: Path, tmp_path: Path) -> None:
    (apt / "sources.list").write_text("deb http://mirror.example/ubuntu noble main universe\n")
    release = _release(tmp_path, "ID=ubuntu\nVERSION_CODENAME=noble\n")
    assert sources("trixie", apt, release) == []


def test_the_images_of_both_suites_have_the_same_overlay() -> None:
    old, new = RECIPES["debian"], RECIPES["debian13"]
    assert (old.overlay, old.builder) == (new.overlay, new.builder)
    assert (old.suite, new.suite) == ("bookworm", "trixie")
    assert old.digest != new.digest


def test_digest_covers_what_the_content_depends_on() -> None:
    recipe = RECIPES["debian"]
    assert recipe.digest == dataclasses.replace(recipe).digest
    assert recipe.digest != RECIPES["rescue"].digest
    assert recipe.digest != dataclasses.replace(recipe, disk_mib=recipe.disk_mib + 1).digest
    assert recipe.digest != dataclasses.replace(recipe, packages=recipe.packages[1:]).digest


def test_unfinished_folder_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / "image"

    def build() -> None:
        with cache.new_folder(target) as folder:
            (folder / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert list(tmp_path.iterdir()) == []
    with cache.new_folder(target) as folder:
        (folder / "whole").write_text("x")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["whole"]


def test_unknown_names_and_forms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(images.ImageError, match="'ubuntu' is not one of debian, debian13, rescue, tarball"):
        images.ensure("ubuntu")
    with pytest.raises(images.ImageError, match="'zip' is not one of raw, bz2, gz, xz, zst"):
        debian.pack(tmp_path / "x.raw", "zip")


def test_forms_are_packed_once_and_hold_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    folder = tmp_path / "images" / "0123"
    folder.mkdir(parents=True)
    raw = folder / "debian.raw"
    raw.write_bytes(random.Random(1).randbytes(4096) + bytes(1 << 20))
    (folder / "image.json").write_text(
        json.dumps({"name": "debian", "files": {"raw": raw.name}, "sha256": {"raw": cache.sha256(raw)}})
    )
    (image,) = images.listing()
    for form, unpack in (("zst", "zstd"), ("gz", "gzip"), ("bz2", "bzip2"), ("xz", "xz")):
        packed = images.variant(image, form)
        assert subprocess.run([unpack, "-dc", packed], capture_output=True, check=True).stdout == raw.read_bytes()
        line = packed.with_name(f"{packed.name}.sha256").read_text()
        assert line == f"{cache.sha256(packed)}  {packed.name}\n"
        written = packed.stat().st_mtime_ns
        assert images.variant(image, form).stat().st_mtime_ns == written
    (image,) = images.listing()
    assert sorted(image.files) == ["bz2", "gz", "raw", "xz", "zst"]


@pytest.mark.root
def test_built_disk_is_sparse_and_matches_its_digest() -> None:
    image = images.ensure("debian")
    raw = image.files["raw"]
    assert raw.stat().st_size == RECIPES["debian"].disk_mib << 20
    assert raw.stat().st_blocks * 512 < raw.stat().st_size
    with subprocess.Popen(["zstd", "-dc", images.variant(image, "zst")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert hashlib.file_digest(process.stdout, "sha256").hexdigest() == image.sha256["raw"]  # type: ignore[arg-type]
    assert why_not(raw, uefi=False) is None
    assert image.dir in [known.dir for known in images.listing()]


@pytest.mark.root
def test_image_carries_no_identity(tmp_path: Path) -> None:
    image = images.ensure("rescue")
    assert list((image.tree / "etc/ssh").glob("ssh_host_*")) == []
    assert (image.tree / "etc/machine-id").read_text() == ""
    assert (image.tree / "etc/hostname").read_text() == "rescue\n"
    raw = images.ensure("debian").files["raw"]
    mount = tmp_path / "root"
    mount.mkdir()
    offset = next(part.start for part in partition_table.parse(_head(raw)) if part.number == 2)
    subprocess.run(["mount", "-o", f"ro,noload,loop,offset={offset}", raw, mount], check=True)
    try:
        assert list((mount / "etc/ssh").glob("ssh_host_*")) == []
        assert (mount / "etc/machine-id").read_text() == ""
        assert not (mount / "root/.ssh/authorized_keys").exists()
        assert os.readlink(mount / "etc/systemd/system/systemd-networkd-wait-online.service") == "/dev/null"
    finally:
        subprocess.run(["umount", mount], check=True)


def _head(disk: Path) -> bytes:
    with disk.open("rb") as file:
        return file.read(partition_table.HEAD)


def test_share_holds_another_installimage_when_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tarball, own = tmp_path / "Debian-1200-bookworm-amd64-base.tar.zst", tmp_path / "own"
    tarball.write_bytes(b"x")
    for path, mode in (("installimage", 0o755), ("config.sh", 0o644), ("gpg/key.asc", 0o644), (".git/config", 0o644)):
        (own / path).parent.mkdir(parents=True, exist_ok=True)
        (own / path).write_text(path)
        (own / path).chmod(mode)
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path / "cache"))
    usual = build_share(tarball)
    monkeypatch.setenv("KUBENODE_LAB_INSTALLIMAGE", str(own))
    share = build_share(tarball)
    assert share != usual
    found = sorted(str(path.relative_to(share)) for path in share.rglob("*") if path.is_file())
    assert found == [f"images/{tarball.name}", "install/config.sh", "install/gpg/key.asc", "install/installimage"]
    assert os.access(share / "install/installimage", os.X_OK)
    (own / "config.sh").write_text("changed")
    assert build_share(tarball) != share
    (own / "installimage").unlink()
    with pytest.raises(ImageError, match="there is no program"):
        build_share(tarball)


@pytest.mark.root
def test_share_holds_installimage_and_the_tarball_that_it_can_name() -> None:
    share = images.share()
    assert os.access(share / "install/installimage", os.X_OK)
    (tarball,) = (share / "images").iterdir()
    assert tarball.name == images.TARBALL
    assert cache.sha256(tarball) == images.ensure("tarball").sha256["tarball"]
    listing = subprocess.run(["tar", "--zstd", "-tf", tarball], capture_output=True, text=True, check=True)
    names = set(listing.stdout.splitlines())
    programs = ("grub-install", "update-initramfs", "mdadm", "lvm", "mkfs.xfs", "sshd")
    assert {f"./usr/sbin/{name}" for name in programs} <= names
    assert "./usr/bin/cloud-init" in names
    assert len([name for name in names if name.startswith("./boot/initrd.img-")]) == 1
    assert [name for name in names if name.startswith("./boot/lab-initrd-")]
    assert {"./boot/grub/", "./etc/default/grub", "./etc/kernel-img.conf"} <= set(names)
    assert not [name for name in names if name.startswith("./etc/ssh/ssh_host_")]
    assert images.share() == share
