# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of any archive stay within the new root, or a message refuses it."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.rootfs_tar import (
    extended_attributes,
    nanoseconds,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.tar_reader import (
    Archive,
    Survey,
    inner_name,
    kind_of_content,
    shown,
    survey_archive,
)


def pack(*members: tarfile.TarInfo, data: bytes = b"data", form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for info in members:
            info.size = len(data) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, **more) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for key, value in more.items():
        setattr(made, key, value)
    return made


def pieces(data: bytes, size: int = 700):
    return (data[place : place + size] for place in range(0, len(data), size))


@given(st.text(alphabet="abc./\0", max_size=12))
@example("a/../b")
@example("./a//b/.")
def test_a_name_is_within_or_refused(text):
    try:
        name = inner_name(text, "the name")
    except Refused:
        assert text.startswith("/") or ".." in text.split("/") or "\0" in text
        return
    assert not name.startswith(b"/")
    assert not {b"", b".", b".."} & set(name.split(b"/")) or name == b""


@given(st.binary(max_size=3000))
def test_noise_is_refused_in_words(data):
    with pytest.raises(Refused):
        list(Archive(pieces(b"\1" + data)).entries())


SAMPLE = pack(
    info("folder", tarfile.DIRTYPE), info("folder/" + "long" * 60), info("ümläut", pax_headers={"comment": "x"}),
    info("link", tarfile.LNKTYPE, linkname="folder/x"), info("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
)  # fmt: skip


@given(st.data())
def test_damage_anywhere_never_passes_unnoticed_as_an_error_of_python(data):
    place = data.draw(st.integers(0, len(SAMPLE) - 1))
    damaged = bytearray(SAMPLE)
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        for entry in Archive(pieces(bytes(damaged))).entries():
            assert b".." not in entry.name.split(b"/")
    except Refused:
        pass


def test_whiteouts_of_overlayfs_pass_and_other_devices_do_not():
    (entry,) = Archive(pieces(pack(info("var/lib/x/gone", tarfile.CHRTYPE, devmajor=0, devminor=0)))).entries()
    assert entry.kind == "device"
    for kind, major, minor in [(tarfile.BLKTYPE, 0, 0), (tarfile.CHRTYPE, 0, 1), (tarfile.CHRTYPE, 1, 0)]:
        with pytest.raises(Refused, match="device node outside of /dev"):
            list(Archive(pieces(pack(info("var/lib/x/gone", kind, devmajor=major, devminor=minor)))).entries())


@given(st.integers(1, len(SAMPLE.rstrip(b"\0")) // 512 * 512))
def test_a_cut_archive_is_refused(length):
    with pytest.raises(Refused, match=r"truncated|damaged"):
        list(Archive(pieces(SAMPLE[:length])).entries())


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_every_form_is_read(form):
    data = pack(info("a"), info("b" * 90 + "/" + "c" * 90), data=b"x" * 1500, form=form)
    archive = Archive(pieces(data))
    found = {}
    for entry in archive.entries():
        found[entry.name] = b"".join(part for _place, part in archive.data(entry))
    assert found == {b"a": b"x" * 1500, b"b" * 90 + b"/" + b"c" * 90: b"x" * 1500}


def test_a_header_that_wants_all_the_memory():
    huge = tarfile.TarInfo("x")
    huge.type, huge.size = tarfile.XHDTYPE, 1 << 40
    with pytest.raises(Refused, match="a header of 1099511627776 bytes"):
        list(Archive(pieces(huge.tobuf(tarfile.GNU_FORMAT) + bytes(1024))).entries())


def test_names_are_shown_on_one_line():
    assert shown(b"a\nb\x1b[2J") == "'a?b?[2J'"
    assert len(shown(b"x" * 5000)) < 250


def test_attributes_of_both_dialects():
    header = info("x")
    header.pax_headers = {"SCHILY.xattr.security.capability": "\udcff\x01", "LIBARCHIVE.xattr.user.a%20b": "AQI"}
    assert extended_attributes(header) == [("security.capability", b"\xff\x01"), ("user.a b", b"\x01\x02")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("12.5", 12_500_000_000), ("1.0000000001", 1_000_000_000), ("7", 7_000_000_000), ("99999999999", 2**34 * 10**9)],
)
def test_times_are_exact(text, wanted):
    header = info("x")
    header.pax_headers = {"mtime": text}
    assert nanoseconds(header) == wanted


def test_a_survey_counts_by_file_system_and_knows_what_is_missing():
    survey = Survey(["/", "/var", "/var/lib"])
    data = pack(
        info("var/lib/x"), info("var/y"), info("variety"), info("usr/lib/systemd/systemd"), info("etc/os-release")
    )
    survey_archive(pieces(data), survey)
    assert survey.bytes == {"var/lib": 4608, "var": 4608, "": 3 * 4608}
    survey.check(["init", "os-release"])
    with pytest.raises(Refused, match="no kernel"):
        survey.check(["init", "kernel"])
    with pytest.raises(Refused, match="/var needs"):
        survey.check_sizes({"/var": 4096, "/": 10**6})


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xeb\x63" + bytes(1000), "raw"),
        (pack(info("disk", tarfile.DIRTYPE), info("disk/node.raw")), "raw-in-tar"),
        (pack(info("node.img.zst")), "raw-in-tar"),
        (pack(info("bin/sh"), info("node.raw")), "rootfs"),
        (pack(info("a" * 300, tarfile.DIRTYPE))[:700], "rootfs"),
    ],
)
def test_content_is_recognised_by_its_beginning(head, kind):
    assert kind_of_content(head) == kind
