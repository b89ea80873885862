# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mirror decides without a network: versions, tarballs, rules of the bridge, layouts of disks."""

import io
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab.apt import upstream_version
from lab.errors import ImageError, LabError
from lab.images.raw_image import grow, put_files
from lab.machines import partition_table
from lab.machines.lab_network import BadLine, filter_rules
from lab.mirror import cloud_config
from lab.mirror.upstream import tarball

_TABLE = "label: gpt\n1: start=2048, size=2048\n15: start=4096, size=2048\n2: start=6144, size=53248\n"


@pytest.mark.parametrize(
    ("debian", "upstream"),
    [
        ("1.7.24~ds1-6+deb13u1", "1.7.24"),
        ("1.1.5+ds1-1+deb12u1", "1.1.5"),
        ("2.1.9+ds1-5", "2.1.9"),
        ("1:3.4.23-4+b4", "3.4.23"),
        ("1.0", "1.0"),
    ],
)
def test_versions_as_their_makers_write_them(debian: str, upstream: str) -> None:
    assert upstream_version(debian) == upstream


def test_tarballs_depend_on_their_programs_alone() -> None:
    members = {"bin/one": b"1" * 5000, "bin/two": b"2"}
    packed = tarball(members)
    assert packed == tarball(dict(members))
    assert packed != tarball(members | {"bin/two": b"3"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {entry.name: (entry.mode, entry.uid) for entry in tar.getmembers()}
        content = tar.extractfile("bin/one")
        assert content is not None
        assert content.read() == members["bin/one"]
    assert found == {"bin/one": (0o755, 0), "bin/two": (0o755, 0)}


def test_bootstrap_data_for_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="suite is 'noble'; the mirror has bookworm, trixie"):
        cloud_config("http://198.18.16.1:8080/mirror", "noble")


def test_rules_replace_each_other_and_end_with_a_drop() -> None:
    rules = filter_rules({"m2": (), "m1": ("198.18.16.254", "198.18.16.3")})
    assert rules.index("delete table bridge lab") < rules.index("table bridge lab {")
    lines = [line.strip() for line in rules.splitlines()]
    assert 'iifname "m1" ip daddr { 198.18.16.254, 198.18.16.3 } accept' in lines
    assert [line for line in lines if line.startswith('iifname "m2"')] == [
        'iifname "m2" ether type arp accept',
        'iifname "m2" udp sport 68 udp dport 67 accept',
        'iifname "m2" drop',
    ]
    assert "iifname" not in filter_rules({})


def test_a_bad_line_loses_packets_on_both_ways() -> None:
    rules = filter_rules({}, (), {"m1": BadLine(loss=7, kbytes=400), "m2": BadLine(loss=1)})
    for way in ("iifname", "oifname"):
        lines = [line.strip() for line in rules.splitlines() if line.strip().startswith(way)]
        assert lines == [
            f'{way} "m1" numgen random mod 100 < 7 drop',
            f'{way} "m1" limit rate over 400 kbytes/second burst 164 kbytes drop',
            f'{way} "m2" numgen random mod 100 < 1 drop',
        ]
    assert "limit" not in filter_rules({}, (), {"m1": BadLine()})


@pytest.mark.parametrize("address", ["::1", "example.org", "198.18.16.0/24", "1.2.3.4 } accept"])
def test_rules_take_addresses_only(address: str) -> None:
    with pytest.raises(LabError, match="is no IPv4 address"):
        filter_rules({"m1": (address,)})


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A disk of 30 MiB whose last partition has a file system with one file."""
    raw, tree = tmp_path / "small.raw", tmp_path / "tree"
    tree.mkdir()
    (tree / "kept").write_bytes(random.Random(1).randbytes(100_000))
    with raw.open("wb") as file:
        file.truncate(30 << 20)
    subprocess.run(["sfdisk", "--quiet", str(raw)], input=_TABLE, text=True, check=True)
    offset, blocks = 6144 * 512, 53248 // 2
    command = ["mke2fs", "-q", "-t", "ext4", "-E", f"offset={offset}", "-d", str(tree), str(raw), f"{blocks}k"]
    subprocess.run(command, check=True)
    return raw


def _partitions(raw: Path) -> dict[int, partition_table.Partition]:
    with raw.open("rb") as file:
        return {part.number: part for part in partition_table.parse(file.read(partition_table.HEAD))}


def _root_content(raw: Path, start: int) -> bytes:
    command = ["debugfs", "-R", "cat /kept", f"{raw}?offset={start}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.parametrize("swap", [0, 16 << 20])
def test_a_grown_disk_is_whole(image: Path, tmp_path: Path, swap: int) -> None:
    size = 200_000_000  # no multiple of anything
    grown = tmp_path / "grown.raw"
    grow(image, grown, size, swap)
    assert grown.stat().st_size == size
    parts = _partitions(grown)
    assert (parts[2].start, 3 in parts) == (6144 * 512, bool(swap))
    assert parts[2].size > size - swap - parts[2].start - (4 << 20)
    assert _root_content(grown, parts[2].start) == (tmp_path / "tree/kept").read_bytes()
    check = subprocess.run(["sfdisk", "--verify", str(grown)], capture_output=True, text=True, check=False)
    assert (check.returncode, "No errors detected" in check.stdout) == (0, True), check.stdout + check.stderr
    part = tmp_path / "part"
    with grown.open("rb") as file:
        file.seek(parts[2].start)
        part.write_bytes(file.read(parts[2].size))
    assert subprocess.run(["e2fsck", "-f", "-n", str(part)], capture_output=True, check=False).returncode == 0
    shown = subprocess.run(["dumpe2fs", "-h", str(part)], capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
    assert int(fields["Block count"]) * int(fields["Block size"]) > parts[2].size - 4096
    if swap:
        assert parts[3].size == swap
        assert parts[2].start + parts[2].size <= parts[3].start
        with grown.open("rb") as file:
            file.seek(parts[3].start + 4086)
            assert file.read(10) == b"SWAPSPACE2"


def test_files_are_put_on_a_disk(image: Path, tmp_path: Path) -> None:
    put_files(image, {"/kept": ("new\n", 0o600), "/root/.ssh/keys": ("key\n", 0o640), "/root/empty": ("", 0o644)})
    device = f"{image}?offset={6144 * 512}"

    def reported(words: str) -> str:
        return subprocess.run(["debugfs", "-R", words, device], capture_output=True, text=True, check=True).stdout

    assert reported("cat /kept") == "new\n"
    assert reported("cat /root/.ssh/keys") == "key\n"
    modes = {name: reported(f"stat {name}").split("Mode:")[1].split()[0] for name in ("/kept", "/root/.ssh/keys")}
    assert modes == {"/kept": "0600", "/root/.ssh/keys": "0640"}
    assert "Type: regular" in reported("stat /root/empty")
    assert "Type: directory" in reported("stat /root/.ssh")
    grown = tmp_path / "grown.raw"
    grow(image, grown, 100_000_000, 16 << 20)
    put_files(grown, {"/later": ("later\n", 0o644)})  # finds the root beside the swap partition
    part = tmp_path / "part"
    root = _partitions(grown)[2]
    with grown.open("rb") as file:
        file.seek(root.start)
        part.write_bytes(file.read(root.size))
    assert subprocess.run(["e2fsck", "-f", "-n", str(part)], capture_output=True, check=False).returncode == 0


def test_what_cannot_be_put_is_an_error(image: Path) -> None:
    with pytest.raises(ImageError, match=r"/kept/below could not be written into small\.raw"):
        put_files(image, {"/kept/below": ("x", 0o644)})


def test_a_disk_that_is_too_small_is_refused(image: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="needs a bigger disk"):
        grow(image, tmp_path / "grown.raw", 40 << 20, 20 << 20)
