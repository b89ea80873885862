# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds become files with names that installimage reads rightly; files are known again; files arrive whole."""

from __future__ import annotations

import hashlib
import http.client
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.pack import (
    ArchiveWriter,
    CompressedWriter,
    HttpTarget,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import NotPacked
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import config_words
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import run_server
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import tarballs as files
from tests.web_servers import Server

DIGEST = "0123456789abcdef" * 4


def build(base="debian-13", architecture="x86", version="1.36.4"):
    name = f"{base}-kubernetes-{version}"
    about = {"name": name, "architecture": architecture, "base_image": base, "kubernetes_version": version}
    return {**about, "machine": f"kubenode-image-{base}", "server_type": "cx23", "digest": DIGEST}


def names(*builds, **inputs):
    return [file["file"] for entry in files.tarballs(builds, inputs) for file in entry["files"]]


def test_names_of_both_formats():
    found = names(build(), build("ubuntu-24.04", "arm"), formats=["tarball", "raw"])
    assert found == [
        "Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst",
        "debian-13-kubernetes-1.36.4-amd64.raw.zst",
        "Ubuntu-2404-noble-arm64-kubenode-1.36.4.tar.zst",
        "ubuntu-24.04-kubernetes-1.36.4-arm64.raw.zst",
    ]


@pytest.mark.parametrize("base", sorted(files.SYSTEMS))
def test_known_bases_are_what_installimage_takes_them_for(base):
    (name,) = names(build(base))
    parsed = config_words.parse_image_name(name)
    assert parsed.distro == base.partition("-")[0]
    assert str(parsed.version).startswith(base.partition("-")[2].replace(".", ""))


WRONG = {
    "unknown base": ([build("own")], {}, "kubenode_tarball_systems has no entry for base 'own'"),
    "unknown format": ([build()], {"formats": ["zip"]}, "kubenode_tarball_formats 'zip'"),
    "unknown field": ([build()], {"name": "{system}-{arch}"}, "{arch} is none of"),
    "one name twice": ([build("a"), build("b")], {"systems": dict.fromkeys("ab", "Debian-1300-trixie")}, "two builds"),
    "no architecture": ([build()], {"name": "{system}-node"}, "is none for installimage"),
    "another distribution": ([build()], {"name": "{system}-{architecture}-arch"}, "would take"),
    "a path": ([build()], {"name": "../{system}-{architecture}-x"}, "is none for installimage"),
    "level": ([build()], {"level": 99}, "kubenode_tarball_level 99: use 1 to 19"),
    "no level": ([build()], {"level": 0}, "kubenode_tarball_level 0"),
    "nothing": ([], {}, "kubenode_image_matrix is empty"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_reported_at_once(what):
    builds, inputs, words = WRONG[what]
    with pytest.raises(files.TarballsNotUsable) as caught:
        files.tarballs(builds, inputs)
    assert words in str(caught.value)
    assert "nothing was created or changed" in str(caught.value)


def test_uploads_have_no_files():
    assert names(build(), {**build(), "kubernetes_version": None}) == names(build())


@given(st.text(max_size=40))
def test_any_name_is_refused_or_fits(template):
    try:
        (name,) = names(build(), name=template)
    except files.TarballsNotUsable:
        return
    assert config_words.parse_image_name(name).distro == "debian"
    assert "/" not in name


NAME = "Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst"
CONTENT = hashlib.sha256(b"content").hexdigest()
RECORD = {"file": NAME, "digest": DIGEST, "size": 7, "sha256": CONTENT}


def found_in(folder, **inputs):
    (entry,) = files.tarballs([build()], {"dest": str(folder), **inputs})
    return entry["files"][0]


def test_a_file_is_known_by_its_record(tmp_path):
    file = found_in(tmp_path)
    assert not file["there"]
    (tmp_path / NAME).write_bytes(b"content")
    (tmp_path / f"{NAME}.sha256").write_text(f"{CONTENT}  {NAME}\n")
    cases = [(RECORD, True), ({**RECORD, "digest": "f" * 64}, False), (files.record({"file": NAME}), False)]
    for content, there in cases:
        (tmp_path / f"{NAME}.json").write_text(json.dumps(content))
        assert found_in(tmp_path)["there"] is there
    (tmp_path / f"{NAME}.json").write_text(json.dumps(RECORD))
    assert not found_in(tmp_path, force=True)["there"]


@pytest.mark.parametrize(
    ("end", "content"), [("", "tar"), (".sha256", "x"), (".json", "[1]"), (".json", '{"digest": "x"}'), (".json", "x")]
)
@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_ours_is_not_overwritten(tmp_path, end, content, force):
    path = tmp_path / f"{NAME}{end}"
    path.write_text(content)
    with pytest.raises(files.TarballsNotUsable) as caught:
        found_in(tmp_path, force=force)
    for words in (f"kubenode_tarball_dir: {path} ", "is not ours", "kubenode_tarball_name"):
        assert words in str(caught.value)
    assert path.read_text() == content


def test_a_folder_and_a_dangling_link_are_not_ours(tmp_path):
    (tmp_path / NAME).symlink_to("nowhere")
    with pytest.raises(files.TarballsNotUsable):
        found_in(tmp_path)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(files.TarballsNotUsable):
        found_in(tmp_path)


@pytest.mark.parametrize(("content", "why"), [(b"c0ntent", "another SHA-256"), (b"short", "another size")])
@pytest.mark.parametrize("digest", [DIGEST, "f" * 64])
def test_a_file_that_was_changed_is_replaced_by_force_only(tmp_path, content, why, digest):
    (tmp_path / f"{NAME}.json").write_text(json.dumps({**RECORD, "digest": digest}))
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(files.TarballsNotUsable, match=f"{why} .*kubenode_image_force=true"):
        found_in(tmp_path)
    assert not found_in(tmp_path, force=True)["there"]
    (tmp_path / NAME).unlink()
    assert not found_in(tmp_path)["there"]


def test_a_check_says_what_would_be_made():
    found = files.tarballs([build()], {})
    (one,) = files.outcomes(found, {}, True)
    assert (one["msg"], one["changed"], one["failed"]) == ("would be made", True, False)


def test_outcomes_name_what_was_found_made_and_missed():
    found = files.tarballs([build(), build("debian-12"), build("debian-11")], {"formats": ["tarball"]})
    found[0]["files"][0] |= {"there": True, "size": 5, "sha256": "aa"}
    made = {"item": found[1]["files"][0], "sha256": "bb", "size": 6, "seconds": 1.5, "system": "Debian", "epoch": 1}
    hosts = {
        found[1]["machine"]: {"kubenode_packing": {"results": [made]}},
        found[2]["machine"]: {"kubenode__problem": "no\nroom"},
    }
    outcomes = files.outcomes(found, hosts)
    assert [(one["msg"], one["changed"], one["failed"]) for one in outcomes] == [
        ("exists", False, False),
        ("made", True, False),
        ("failed: no room", False, True),
    ]
    lines = files.table(outcomes)
    assert len(lines) == 4
    assert lines[2].split()[:4] == ["Debian-1200-bookworm-amd64-kubenode-1.36.4.tar.zst", "0.0", "bb", "1.5"]


@pytest.fixture
def sink(tmp_path):
    with Server(run_server.sink_handler({"/secret/file": str(tmp_path / "file")})) as server:
        yield server.url


def test_a_file_arrives_whole_under_its_name(sink, tmp_path):
    outlet = CompressedWriter(HttpTarget(f"{sink}/secret/file"), ["zstd", "-q", "-1"])
    for _number in range(300):
        outlet.write(b"line\n" * 1000)
    assert not (tmp_path / "file").exists()
    outlet.finish()
    assert (tmp_path / "file").stat().st_size == outlet.size
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_cut_off_leaves_nothing(sink, tmp_path):
    target = HttpTarget(f"{sink}/secret/file")
    target.write(b"half")
    target.abort()
    again = ArchiveWriter(HttpTarget(f"{sink}/secret/file"))
    again.write(b"whole")
    while True:
        try:
            again.finish()
            break
        except NotPacked as error:  # the server has not yet seen the end of the first one
            assert "409" in str(error)
            again = ArchiveWriter(HttpTarget(f"{sink}/secret/file"))
            again.write(b"whole")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"whole"}


@pytest.mark.parametrize(("path", "status"), [("/secret/other", 404), ("/file", 404)])
def test_other_places_are_refused(sink, tmp_path, path, status):
    outlet = ArchiveWriter(HttpTarget(sink + path))
    with pytest.raises(NotPacked, match=str(status)):
        outlet.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nab", b"-1\r\n", b"ffffffff\r\n", b"5\r\nhello\r\n", b""])
def test_broken_chunks_leave_nothing(sink, tmp_path, body):
    connection = http.client.HTTPConnection(sink.partition("//")[2], timeout=180)
    connection.putrequest("PUT", "/secret/file")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders(body)
    connection.sock.shutdown(1)  # nothing more will come
    assert connection.getresponse().status == 400
    connection.close()
    assert list(tmp_path.iterdir()) == []


def test_a_target_without_room_is_reported(tmp_path):
    with Server(run_server.sink_handler({"/file": "/dev/null/file"})) as server:
        outlet = ArchiveWriter(HttpTarget(f"{server.url}/file"))
        with pytest.raises(NotPacked, match="507"):
            outlet.finish()
