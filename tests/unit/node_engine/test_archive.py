# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives: what is wanted comes out, and a hostile one does no harm."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import fetch, node_artifacts
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host


def member(name: str, data: bytes = b"data", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return buffer.getvalue()


def bring(tmp_path, data: bytes, *entries: dict) -> dict[str, str]:
    """Install from an archive below tmp_path/root."""
    part = tmp_path / "part"
    part.write_bytes(data)
    (tmp_path / "root").mkdir(exist_ok=True)
    artifact = {"name": "x", "kind": "tar", "install": [dict(entry) for entry in entries]}
    return node_artifacts.install(Host(str(tmp_path / "root")), artifact, str(part))


def tree(tmp_path) -> list[str]:
    """Everything below tmp_path/root, and beside it."""
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())


BIN = {"member": "bin/*", "directory": "/opt/bin", "mode": "0755"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, "zstd"])
def test_members_are_installed(tmp_path, pack):
    data = packed(member("./bin/a", b"AA"), member("bin/b", b"", mode=0o4777), member("bin/deep/c"), member("README"))
    if pack == "zstd":
        if not shutil.which("zstd"):
            pytest.fail("the program zstd is needed (dev/debian-packages.txt)")
        data = subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout
    else:
        data = pack(data)
    digests = bring(tmp_path, data, BIN, {"member": "README", "path": "/usr/share/x", "mode": "0600"})
    assert sorted(digests) == ["/opt/bin/a", "/opt/bin/b", "/usr/share/x"]
    assert (tmp_path / "root/opt/bin/a").read_bytes() == b"AA"
    assert (tmp_path / "root/opt/bin/b").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "root/usr/share/x").stat().st_mode & 0o7777 == 0o600
    assert tree(tmp_path) == ["part", "root/opt/bin/a", "root/opt/bin/b", "root/usr/share/x"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([member("../../etc/x")], "not safe"),
        ([member("bin/a"), member("/etc/passwd")], "not safe"),
        ([member("bin/../../x")], "not safe"),
        ([member("bin/a", type=tarfile.SYMTYPE, linkname="/etc/shadow")], "not a regular file"),
        ([member("bin/a", type=tarfile.LNKTYPE, linkname="../x")], "not a regular file"),
        ([member("bin/a", type=tarfile.CHRTYPE)], "not a regular file"),
        ([member("bin/a", type=tarfile.FIFOTYPE)], "not a regular file"),
        ([member("bin/a"), member("./bin/a", b"other")], "twice"),
        ([member("other/a")], "no member bin/*"),
        ([member("bin", type=tarfile.DIRTYPE)], "no member bin/*"),
    ],
)
def test_a_hostile_archive_installs_nothing(tmp_path, members, says):
    with pytest.raises(fetch.ArchiveError, match="archive") as caught:
        bring(tmp_path, packed(*members), BIN)
    assert says in str(caught.value)
    assert tree(tmp_path) == ["part"]


def test_links_that_are_not_wanted_are_not_followed(tmp_path):
    link = member("bin", type=tarfile.SYMTYPE, linkname="/etc")
    bring(tmp_path, packed(link, member("bin/a")), BIN)
    assert tree(tmp_path) == ["part", "root/opt/bin/a"]


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense" * 200, gzip.compress(b"x" * 5000, mtime=0), b"\x28\xb5\x2f\xfdnonsense"],
    ids=["nothing", "noise", "packed noise", "zstd noise"],
)
def test_what_is_no_archive_installs_nothing(tmp_path, data):
    with pytest.raises(fetch.ArchiveError):
        bring(tmp_path, data, BIN)
    assert tree(tmp_path) == ["part"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_archive_that_was_cut_installs_nothing(tmp_path, pack):
    whole = pack(packed(member("bin/a", bytes(range(256)) * 400), member("bin/b", bytes(range(256)) * 400)))
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(fetch.ArchiveError):
            bring(tmp_path, whole[: int(len(whole) * share)], {"member": "bin/b", "path": "/b"})
        assert tree(tmp_path) == ["part"]


def test_two_members_for_one_path_install_nothing(tmp_path):
    with pytest.raises(fetch.ArchiveError, match="would become /x"):
        bring(tmp_path, packed(member("bin/a"), member("bin/b")), {"member": "bin/*", "path": "/x"})
    assert tree(tmp_path) == ["part"]


def test_a_directory_in_the_way_is_left(tmp_path):
    (tmp_path / "root/opt/bin/b").mkdir(parents=True)
    with pytest.raises(fetch.ArchiveError, match="is a directory"):
        bring(tmp_path, packed(member("bin/a"), member("bin/b")), BIN)
    assert tree(tmp_path) == ["part"]


@given(st.text(alphabet="ab./\n\0-", min_size=1))
def test_a_name_that_passes_stays_inside(name):
    try:
        clean = fetch.member_name(name)
    except fetch.ArchiveError:
        return
    assert not clean.startswith("/")
    assert ".." not in clean.split("/")
    assert "\n" not in clean


def test_patterns_do_not_go_into_folders():
    assert fetch.matches("bin/*", "bin/a")
    assert fetch.matches("./*", "bridge")
    assert not fetch.matches("*", "bin/a")
    assert not fetch.matches("bin/*", "bin/a/b")
    assert fetch.matches("containerd-?.?/bin/ctr", "containerd-2.1/bin/ctr")


def test_the_cache_is_root_s_alone_and_one_run_waits_for_another(tmp_path):
    host = Host(str(tmp_path))
    with node_artifacts.locked(host, 5):
        assert (tmp_path / node_artifacts.CACHE.lstrip("/")).stat().st_mode & 0o777 == 0o700
        with pytest.raises(fetch.FetchError, match="another run"), node_artifacts.locked(host, 0):
            pass
    with node_artifacts.locked(host, 0):
        pass
