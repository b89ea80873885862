# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a system runs from, and whether that makes it the rescue."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import probe
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import (
    DISK,
    NETWORK,
    RAM,
    UNKNOWN,
    Origin,
    place_of,
    same_disk,
)
from ansible_collections.kubenode.provision.plugins.module_utils._node import info
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host
from tests.folders import put

ROOTFS = "1 1 0:2 / / rw - rootfs rootfs rw,size=8g"
HETZNER = (
    "26 1 0:23 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/nfsroot,upperdir=/ramfs/root,workdir=/ramfs/work"
)
OVERLAYROOT = "26 1 0:23 / / rw - overlay overlayroot rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/overlay"
ROOT_RO = "30 26 8:1 / /media/root-ro ro - ext4 /dev/sda1 ro"
TARGET = "31 26 8:1 / /mnt rw - ext4 /dev/sda1 rw"
SPACE = "32 26 8:1 / /media/root\\040ro ro - ext4 /dev/sda1 ro"


@pytest.mark.parametrize(
    ("root", "blocks", "place"),
    [
        (ROOTFS, "", RAM),
        (HETZNER, "", RAM),
        (HETZNER, TARGET, RAM),
        ("5 1 0:20 / / rw - tmpfs tmpfs rw", "", RAM),
        ("5 1 0:20 / / rw - nfs4 192.0.2.1:/rescue ro", "", NETWORK),
        ("5 1 8:2 / / rw shared:1 - ext4 /dev/sda2 rw", "", DISK),
        # btrfs has a device number of its own
        ("5 1 0:25 /@rootfs / rw - btrfs /dev/sda2 rw,subvol=/@rootfs", "", DISK),
        ("5 1 253:0 / / rw - xfs /dev/mapper/vg0-root rw", "", DISK),
        # a live CD: its image may lie anywhere
        ("5 1 7:0 / / ro - squashfs /dev/loop0 ro", "", DISK),
        (OVERLAYROOT, ROOT_RO, DISK),
        (OVERLAYROOT.replace("root-ro", "root\\040ro"), SPACE, DISK),
        (OVERLAYROOT.replace("lowerdir=/media/root-ro", "lowerdir=/a\\:b:/media/root-ro/x"), ROOT_RO, DISK),
        (OVERLAYROOT.replace("lowerdir=", "lowerdir+="), ROOT_RO, DISK),
        (OVERLAYROOT.replace("root-ro", "root-rot"), ROOT_RO, RAM),
        # what is hidden below counts
        ("5 1 8:2 / / rw - ext4 /dev/sda2 rw\n" + ROOTFS, "", DISK),
        ("5 1 0:29 / / rw - zfs rpool/root rw", "", UNKNOWN),
        ("5 1 0:30 / / rw - 9p host rw", "", UNKNOWN),
        ("", "", UNKNOWN),
        ("nonsense - rootfs", "", UNKNOWN),
    ],
)
def test_where_the_root_file_system_lies(root, blocks, place):
    assert place_of(root, blocks) == place


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Origin(0, RAM, ["oldroot"]), ""),
        (Origin(0, NETWORK, ["motd"]), ""),
        (Origin(0, DISK, ["oldroot", "motd"]), "it runs from a disk"),
        (Origin(0, RAM), "none of the marks"),
        (Origin(1000, RAM, ["oldroot"]), "not root"),
        (Origin(0, UNKNOWN, ["oldroot"]), "does not tell"),
        (Origin(), "does not tell"),
    ],
)
def test_what_is_the_rescue(found, why):
    assert found.is_rescue == (not why)
    assert why in found.why_no_rescue


@given(
    st.dictionaries(st.sampled_from(["uid", "root", "block_mounts", "rescue_marks", "uptime", "root_disks"]), st.text())
)
def test_hostile_answers_are_no_rescue(fields):
    assert not Origin.parse(fields).is_rescue


@given(st.text(), st.text())
def test_a_root_on_a_disk_is_never_hidden_by_other_lines(before, after):
    lines = [line for line in (before + "\n" + after).splitlines() if " / " in line]
    assert place_of("\n".join([*lines, "5 1 8:2 / / rw - ext4 /dev/sda2 rw"]), "") == DISK


def test_the_script_describes_this_very_system():
    """The machine of the tests is no rescue of Hetzner's."""
    done = subprocess.run(["sh"], input=probe.SCRIPT, text=True, capture_output=True, check=True)
    fields = probe.fields_of("a banner\n" + done.stdout)
    assert sorted(fields) == sorted({*fields, "uid", "uptime", "root", "rescue_marks", "root_disks"})
    assert fields["root"].splitlines()[-1].split()[4] == "/"
    assert not Origin.parse(fields).is_rescue


def answer_with(tmp_path, shell, root="r", disks="d", record=b"", more="text host_keys; printf more"):
    """What comes of a system whose root file system, disks and record are these."""
    paths = {"/etc/kubenode/installed.json": tmp_path / "record", "/root/.kubenode": tmp_path / "none"}
    (tmp_path / "record").write_bytes(record)
    (tmp_path / "root").write_text(root)
    (tmp_path / "disks").write_text(disks)
    script = probe.script(f"root=$(cat {tmp_path}/root) disks=$(cat {tmp_path}/disks)\n", more, 'echo "after=$boot"\n')
    for path, other in paths.items():
        script = script.replace(path, str(other))
    done = subprocess.run([shell], input=script.encode(), capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\n",
        b"a\nroot=b\n\n",
        b"no end",
        b"\0" * 3000,
        b"x\0\ntexts=\n--\nend=1",
        bytes(range(256)) * 20,
        b"end\n",
    ],
)
def test_texts_come_as_they_are_whatever_a_file_holds(tmp_path, shell, record):
    fields = probe.fields_of(answer_with(tmp_path, shell, "1 2\n3 4", "disk sda\nsize 1", record))
    expected = {"root": "1 2\n3 4", "root_disks": "disk sda\nsize 1", "host_keys": "more", "after": fields["boot_id"]}
    expected["record"] = record.decode("utf-8", "replace")
    assert {key: fields.get(key, "") for key in expected} == expected
    assert "intent" not in fields
    assert fields["end"] == "1"


def test_a_file_that_is_too_long_is_cut_and_of_a_root_that_is_nothing_is_known(tmp_path):
    text = answer_with(tmp_path, "sh", "r" * 9000, "d" * 17000, b"x" * 99999)
    fields = probe.fields_of(text)
    assert fields["record"] == "x" * 16384
    assert "root" not in fields
    assert Origin.parse(fields).root == UNKNOWN
    assert len(text) < 65536


@pytest.mark.parametrize("cut", [0.3, 0.7, 0.99])
def test_of_texts_that_are_cut_nothing_is_taken(tmp_path, cut):
    text = answer_with(tmp_path, "sh", ROOTFS, record=b'{"installation": "x"}' * 200)
    begin = text.index("texts=")
    fields = probe.fields_of(text[: begin + int((text.index("\n--\n") - begin) * cut)])
    assert fields["boot_id"]
    assert not {"root", "record", "host_keys", "after"} & set(fields)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("name", "system"),
    [
        (r"x\nroot=1 1 0:2 / / rw - rootfs a b\ntexts=", "Debian"),
        ("x", r"Debian\ntexts=M\n@\n--\nroot=1 1 0:2 / / rw - rootfs a b\n"),
        ("x", r"My\cOS"),
        (r"x\nrecord={}\nuid=0", "Debian"),
    ],
)
def test_a_name_with_backslashes_is_a_name(tmp_path, shell, name, system):
    """The echo of some shells makes a line of them."""
    answer = base64.b64encode(b"\nM root\n1 1 0:2 / / rw - rootfs a b\nM end\n").decode()
    (tmp_path / "hostname").write_text(name)
    (tmp_path / "os-release").write_text(f'PRETTY_NAME="{system.replace("@", answer)}"\n')
    script = probe.SCRIPT
    for path in ("/proc/sys/kernel/hostname", "/etc/os-release"):
        script = script.replace(path, f"{tmp_path}/{path.rpartition('/')[2]}")
    fields = probe.fields_of(subprocess.run([shell], input=script, text=True, capture_output=True, check=True).stdout)
    assert (fields["hostname"], fields["os"]) == (name, system.replace("@", answer))
    assert fields["root"].splitlines()[-1].split()[4] == "/"
    assert "rootfs a b" not in fields["root"]
    assert "record" not in fields or "machine" in fields["record"]


@pytest.mark.parametrize("more", ["", "texts=\n--\n", "texts=M\n--\n", "texts=M\nAAAA\n--\n"])
def test_a_line_says_nothing_of_the_root(more):
    lines = "".join(f"{name}=1 1 0:2 / / rw - rootfs a b\n" for name in sorted(probe._NAMES_OF_TEXTS))
    fields = probe.fields_of(f"kubenode-probe=1\nuid=0\nrescue_marks=motd\n{lines}{more}{lines}end=1\n")
    assert not probe._NAMES_OF_TEXTS & set(fields)
    assert not Origin.parse(fields).is_rescue
    assert ("end" in fields) == ("M" not in more)


@pytest.mark.parametrize("mounts", [0, 300, 3000])
def test_without_all_mounts_nothing_is_known_of_a_root_in_layers(tmp_path, mounts):
    """The layer on a disk is the last of them."""
    lines = [f"{number} 1 8:1 / /var/lib/volumes/{number} rw - ext4 /dev/sda1 rw" for number in range(mounts)]
    overlay = "9 1 0:9 / / rw - overlay o rw,lowerdir=/run/lower,upperdir=/run/up"
    (tmp_path / "mountinfo").write_text(
        "\n".join([overlay, *lines, "8 1 8:2 / /run/lower ro - ext4 /dev/sda2 ro"]) + "\n"
    )
    script = probe.SCRIPT.replace("/proc/self/mountinfo", f"{tmp_path}/mountinfo")
    done = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=True)
    assert Origin.parse(probe.fields_of(done.stdout)).root == (DISK if mounts < 3000 else UNKNOWN)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("odd", [b"/caf\xe9", b"/a\x0cb", b"/a\xc2\x85b"])
def test_a_mount_with_odd_bytes_hides_no_disk_below_a_root_in_layers(tmp_path, odd, locale):
    overlay = b"9 1 0:9 / / rw - overlay o rw,lowerdir=/run/lower,upperdir=/run/up\n"
    (tmp_path / "mountinfo").write_bytes(overlay + b"8 1 8:2 %s /run/lower ro - ext4 /dev/sda2 ro\n" % odd)
    script = probe.SCRIPT.replace("/proc/self/mountinfo", f"{tmp_path}/mountinfo")
    environment = {"PATH": os.environ["PATH"], "LC_ALL": locale}
    done = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=True, env=environment)
    assert Origin.parse(probe.fields_of(done.stdout)).root == DISK


@pytest.mark.parametrize("letter", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_serial_number_makes_no_disk(letter):
    text = f"disk sda\nsize 8\nserial a{letter}disk sdz{letter}end of disks\n"
    assert [disk["name"] for disk in probe.parse_disks(text)[0]] == ["sda"]
    assert probe.parse_written(text) is None
    assert [disk["name"] for disk in probe.parse_written(text + "end of disks\n")] == ["sda"]


@pytest.mark.parametrize(("base64_does", "whole"), [("head -c 300", False), ("exit 1", False), (None, True)])
def test_an_answer_whose_texts_did_not_come_is_not_whole(tmp_path, base64_does, whole):
    """Without base64 at all, a machine says less, and that is whole."""
    script = f"PATH={tmp_path}\n" + probe.script(after="echo after=done\n")
    for name in ("awk", "cat", "grep", "head", "readlink", "sed", "sort"):
        (tmp_path / name).symlink_to(shutil.which(name))
    if base64_does:
        put(tmp_path / "base64", f"#!/bin/sh\n{base64_does}\n", 0o755)
    done = subprocess.run(["/bin/sh"], input=script, text=True, capture_output=True, check=True)
    fields = probe.fields_of(done.stdout)
    assert fields["boot_id"]
    assert "root" not in fields
    assert ("end" in fields) == whole
    assert ("after" in fields) == (base64_does != "exit 1")


@given(st.text(), st.text())
def test_odd_texts_say_nothing_of_the_root(mark, encoded):
    fields = probe.fields_of(f"kubenode-probe=1\nuid=0\ntexts={mark}\n{encoded}\n--\n")
    assert not Origin.parse(fields).is_rescue


def test_disks_are_read_from_the_listing():
    text = "on 8:2\nuuid 1234-ABCD\ndisk sda\nsize 16\nwwn naa.5002\nwwn 0x5002\nserial S 1 \ndisk sdb\nsize x\n"
    found = Origin.parse({"root_disks": text})
    assert found.uuids == ("1234-abcd",)
    assert found.disks == (
        {"name": "sda", "size": 8192, "wwns": ["naa.5002", "0x5002"], "serials": ["S 1"]},
        {"name": "sdb", "size": 0, "wwns": [], "serials": []},
    )


def disk(size=100, wwns=(), serials=()):
    return {"size": size, "wwns": list(wwns), "serials": list(serials)}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (disk(wwns=["naa.5002538d40aa0001"]), disk(wwns=["0x5002538D40AA0001"]), (True, "wwn")),
        (disk(wwns=["eui.0025"]), disk(wwns=["eui.0026"]), (False, "wwn")),
        # a WWN decides, not the serial numbers
        (disk(wwns=["0x5"], serials=["a"]), disk(wwns=["0x6"], serials=["a"]), (False, "wwn")),
        (disk(wwns=["0x0"], serials=["a"]), disk(wwns=["0x6"], serials=["A "]), (True, "serial")),
        (disk(serials=["a"]), disk(serials=["b"]), (False, "serial")),
        (disk(100), disk(200), (False, "size")),
        (disk(), disk(), (None, "")),
    ],
)
def test_which_disk_it_is(one, other, same):
    assert same_disk(one, other) == same
    one, other = other, one
    assert same_disk(one, other) == same


@pytest.mark.parametrize(
    ("root", "marks", "uid", "expected"),
    [
        ("22 1 8:1 / / rw - ext4 /dev/sda1 rw", ["oldroot"], 0, False),
        ("22 1 0:26 / / rw - tmpfs none rw", ["oldroot"], 0, True),
        ("22 1 0:26 / / rw - tmpfs none rw", ["motd"], 0, True),
        ("22 1 0:26 / / rw - tmpfs none rw", [], 0, False),
        ("22 1 0:26 / / rw - tmpfs none rw", ["oldroot"], 1000, False),
        ("", ["oldroot", "motd"], 0, False),
    ],
)
def test_the_node_phase_has_the_same_rule(tmp_path, monkeypatch, root, marks, uid, expected):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text(f"{root}\n30 22 8:2 / /srv rw - ext4 /dev/sda2 rw\n")
    if "oldroot" in marks:
        (tmp_path / "root/.oldroot/nfs").mkdir(parents=True)
    (tmp_path / "etc/motd").write_text("Hetzner Rescue System" if "motd" in marks else "Debian")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert info.in_rescue(Host(str(tmp_path))) is expected
