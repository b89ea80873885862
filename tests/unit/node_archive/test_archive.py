# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of trees: the same bytes for the same tree, read by other people's programs; what may become an image."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import subprocess
import tarfile
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import pack
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.source import RawImage, Root
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import (
    BLOCK,
    FILE,
    PIECE,
    NotPacked,
    Packing,
    Tree,
    pax_member,
    segments,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_tools import Tools
from tests.folders import put

EPOCH = 1_700_000_000
NAME = "Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst"
ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little")
RELEASE = 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'


def run_tool(argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


TOOLS = Tools(run_tool)


def make(root, order=1):
    """A small prebaked system; ``order`` is that in which its files are made, which must not matter."""
    files = {
        "usr/lib/os-release": RELEASE,
        "usr/lib/systemd/systemd": ELF,
        "etc/machine-id": "",
        "etc/fstab": "/dev/sda1 / ext4\n",
        "etc/kubenode/base.json": json.dumps({"prebaked": True, "kubernetes": {"version": "1.36.4"}}),
        "var/lib/systemd/random-seed": "chance",
        "tmp/left": "behind",
        "run/left": "behind",
        "a" * 90 + "/" + "b" * 90: "a long name",
        "umlaut-ü": "x",
    }
    for path, content in list(files.items())[::order]:
        put(root / path, content)
    (root / "bin").symlink_to("usr/bin")
    os.link(root / "umlaut-ü", root / "another-name")
    os.mkfifo(root / "fifo")
    with (root / "sparse").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(10 << 20)
        file.write(b"island")
    (root / "usr/lib/os-release").chmod(0o4755)
    return root


def packed(root, epoch=EPOCH, exclude=()):
    pieces: list[bytes] = []
    packing = Packing(Tree(str(root), exclude), epoch, pieces.append)
    packing.run()
    return b"".join(pieces)


def members(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {one.name: one for one in tar.getmembers()}


def test_the_same_tree_gives_the_same_bytes_however_it_was_made(tmp_path):
    first, second = make(tmp_path / "1"), make(tmp_path / "2", order=-1)
    assert packed(first) == packed(second)
    (second / "usr/lib/os-release").write_text(RELEASE + "# changed\n")
    assert packed(first) != packed(second)


def test_times_end_at_the_epoch_and_earlier_ones_stay(tmp_path):
    root = make(tmp_path / "r")
    os.utime(root / "umlaut-ü", (1_000_000_000, 1_000_000_000))
    found = members(packed(root))
    assert found["./umlaut-ü"].mtime == found["./another-name"].mtime == 1_000_000_000
    assert {one.mtime for one in found.values()} == {1_000_000_000, EPOCH}


def test_what_one_disk_or_one_boot_has_stays_out(tmp_path, monkeypatch):
    root = make(tmp_path / "r")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(root)  # a socket's path must be short
        listener.bind("socket")
    found = members(packed(root, exclude=["/etc/kubenode"]))
    assert "./tmp" in found
    assert "./run" in found
    for path in ("tmp/left", "run/left", "etc/fstab", "var/lib/systemd/random-seed", "socket", "etc/kubenode"):
        assert "./" + path not in found
    tree = Tree(str(root))
    list(tree.members())
    assert tree.left_out == {"sockets": 1}


def test_gnu_tar_makes_the_same_tree_of_it(tmp_path):
    root = make(tmp_path / "r")
    os.setxattr(root / "umlaut-ü", "user.binary", b"\0\xff\n=")
    archive = packed(root)
    assert len(archive) < 2 << 20  # the hole takes nothing
    out = tmp_path / "out"
    out.mkdir()
    command = ["tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--directory", str(out)]
    done = subprocess.run(command, input=archive, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    for path in ("a" * 90 + "/" + "b" * 90, "umlaut-ü", "sparse", "etc/kubenode/base.json"):
        assert (out / path).read_bytes() == (root / path).read_bytes()
    assert (out / "sparse").stat().st_blocks * 512 < 4 << 20
    assert (out / "another-name").samefile(out / "umlaut-ü")
    assert stat.S_IMODE((out / "usr/lib/os-release").stat().st_mode) == 0o4755
    assert os.readlink(out / "bin") == "usr/bin"
    assert stat.S_ISFIFO((out / "fifo").stat().st_mode)
    assert os.getxattr(out / "umlaut-ü", "user.binary") == b"\0\xff\n="


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=6), st.integers(1, 5 * PIECE))
@settings(max_examples=60, deadline=None)
def test_segments_hold_all_that_is_not_zero(tmp_path_factory, writes, size):
    path = tmp_path_factory.mktemp("holes") / "file"
    content = bytearray(size)
    with path.open("wb") as file:
        file.truncate(size)
        for place, zeros in writes:
            start = place * 9000 % size
            data = bytes(20) if zeros else b"x" * 20
            file.seek(start)
            file.write(data[: size - start])
            content[start : start + 20] = data[: size - start]
    with path.open("rb") as file:
        parts = segments(file.fileno(), size)
    again = bytearray(size)
    for start, length in parts:
        assert length > 0
        assert start + length <= size
        again[start : start + length] = content[start : start + length]
    assert again == content
    assert parts == sorted(parts)


@given(
    st.binary(min_size=1, max_size=300).filter(lambda name: b"\0" not in name and b"/" not in name),
    st.integers(0, 2**40),
    st.integers(0, 2**32 - 2),
    st.integers(-(2**33), 2**34),
)
@settings(max_examples=200, deadline=None)
def test_headers_are_read_by_pythons_tarfile(name, size, uid, mtime):
    blocks = pax_member(b"./" + name, FILE, 0o755, uid, 5, mtime, size=size)
    assert len(blocks) % BLOCK == 0
    stream = io.BytesIO(blocks)
    with tarfile.open(fileobj=stream, errors="surrogateescape") as tar:
        info = tar.next()
    assert info is not None
    assert os.fsencode(info.name) == (b"./" + name).rstrip(b"/")
    assert (info.size, info.uid, info.gid, info.mode, info.mtime) == (size, uid, 5, 0o755, mtime)


WRONG_NAMES = {
    "node.tar.zst": "architecture",
    "Ubuntu-2404-noble-amd64-kubenode.tar.zst": "installimage takes it for ubuntu",
    "Debian-1200-bookworm-amd64-kubenode.tar.zst": "its version is 1200",
    "Debian-1300-trixie-arm64-kubenode.tar.zst": "it says aarch64, the programs are x86_64",
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_name_that_misleads_installimage_is_refused(tmp_path, name):
    with pytest.raises(NotPacked, match=WRONG_NAMES[name]):
        Root(str(make(tmp_path / "r"))).check_name(name)


def test_a_good_name_and_a_root_that_is_none(tmp_path):
    root = Root(str(make(tmp_path / "r")))
    root.check_name(NAME)
    assert root.faults() == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotPacked, match="no root file system"):
        Root(str(tmp_path / "empty"))


IDENTITY = {
    "etc/machine-id": "machine-id is one machine's",
    "etc/ssh/ssh_host_ed25519_key": "/etc/ssh holds host keys",
    "etc/dropbear/initramfs/dropbear_rsa_host_key": "/etc/dropbear/initramfs holds host keys",
    "etc/kubernetes/kubelet.conf": "joined a cluster",
    "root/.ssh/authorized_keys": "lets its owner log in",
    "etc/kubenode/base.json": "prebaked",
}


@pytest.mark.parametrize("path", IDENTITY)
def test_identity_is_found(tmp_path, path):
    root = make(tmp_path / "r")
    put(root / path, "0123456789abcdef\n")
    (fault,) = Root(str(root)).faults()
    assert IDENTITY[path] in fault


def test_links_of_the_tree_do_not_lead_out_of_it(tmp_path):
    root = make(tmp_path / "r")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/os-release").write_text("ID=evil\n")
    (root / "usr/lib/os-release").unlink()
    (root / "etc/os-release").symlink_to(tmp_path / "outside/os-release")
    with pytest.raises(NotPacked, match="no root file system"):
        Root(str(root))


def order(root, tmp_path, **more):
    given = {"kind": "tarball", "source": str(root), "path": str(tmp_path / NAME), "url": None, "name": None}
    return {**given, "level": 1, "epoch": None, "exclude": [], "prebaked": True, **more}


def test_a_whole_run_makes_a_file_and_nothing_else(tmp_path):
    root = make(tmp_path / "r")
    found = pack.run(order(root, tmp_path), TOOLS)
    assert found["size"] == (tmp_path / NAME).stat().st_size
    sums = subprocess.run(["sha256sum", str(tmp_path / NAME)], capture_output=True, text=True, check=True).stdout
    assert sums.split()[0] == found["sha256"]
    assert found["machine"] == "x86_64"
    assert found["base"]["prebaked"] is True
    again = pack.run(order(root, tmp_path), TOOLS)
    assert again["sha256"] == found["sha256"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "r"]


REFUSED = {
    "no such source": ({"source": "/does/not/exist"}, "No such file"),
    "raw of a folder": ({"kind": "raw", "path": None, "name": "n.raw.zst", "url": "http://x/"}, "of a disk"),
    "raw under another name": ({"kind": "raw", "name": "n.img"}, "name a raw image like"),
    "a level that zstd has not": ({"level": 30}, "level 30"),
    "a folder that is missing": ({"path": "/does/not/exist/" + NAME}, "missing or cannot be written"),
    "no name for a URL": ({"path": None, "url": "http://x/"}, "name of the file is needed"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_and_leaves_nothing(tmp_path, what):
    more, words = REFUSED[what]
    with pytest.raises(NotPacked, match=words):
        pack.run(order(make(tmp_path / "r"), tmp_path, **more), TOOLS)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_file_that_cannot_be_read_leaves_no_archive(tmp_path, monkeypatch):
    root = make(tmp_path / "r")
    os.setxattr(root / "umlaut-ü", "user.some", b"1")
    real = os.getxattr

    def broken(path, name, **options):
        if name == "user.some":
            raise OSError(5, "Input/output error")
        return real(path, name, **options)

    monkeypatch.setattr(os, "getxattr", broken)
    with pytest.raises(NotPacked, match=r"user\.some cannot be read: Input/output error"):
        pack.run(order(root, tmp_path), TOOLS)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


class Disk:
    """A disk whose tools report nothing."""

    path = "/dev/sdx"

    def __init__(self, root):
        self.partitions = [root]

    def run(self, *_argv, **_limits):
        return ""


def test_a_file_system_without_a_block_size_is_refused():
    root = types.SimpleNamespace(kind="ext4", node="/dev/sdx1", start=1 << 20, size=1 << 30)
    with pytest.raises(NotPacked, match="raw image: dumpe2fs tells no block size of /dev/sdx1"):
        RawImage(Disk(root), root, EPOCH).write(lambda piece: None)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_threads_of_zstd_do_not_change_the_bytes(tmp_path, threads):
    content = b"".join(b"%d\n" % (number * 7919) for number in range(400_000))
    wanted = subprocess.run(["zstd", "-q", "--threads=0", "-9"], input=content, capture_output=True, check=True).stdout
    command = ["zstd", "-q", f"--threads={threads}", "-9"]
    assert subprocess.run(command, input=content, capture_output=True, check=True).stdout == wanted
