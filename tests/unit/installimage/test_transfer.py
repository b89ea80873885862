# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image on its way: downloads that are cut, changed or wrong, and uploads over a connection that is lost."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import image_file
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.processes import Refused
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import upload
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote as remote_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import SILENT, Unreachable
from tests.unit.common.test_download import DATA as PAGE
from tests.unit.common.test_download import Web, cut, rest, send

DATA = random.Random(1).randbytes(3 * 1024 * 1024 + 17)


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


DIGEST, PAGE_DIGEST = sha256(DATA), sha256(PAGE)


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def fetched(web: Web, folder: Path, wanted: str = PAGE_DIGEST, content: bytes = PAGE) -> str:
    target = folder / "x.tar"
    digest = image_file.Download(web.url, str(target), "https://x/x.tar", pause=0).fetch(wanted)
    assert target.read_bytes() == content
    assert os.listdir(folder) == ["x.tar"]
    return digest


def test_a_download_is_verified(web, tmp_path):
    web.answers = [send(200, PAGE)]
    assert fetched(web, tmp_path) == fetched(web, tmp_path, "") == PAGE_DIGEST


def test_it_goes_on_where_it_was_cut_and_never_mixes_two_versions(web, tmp_path):
    """The rest is of the common download; what is thrown away and what is kept in the file is this one's."""
    web.answers = [cut(2000, ETag='"a"'), send(503), rest(2000, ETag='"a"')]
    fetched(web, tmp_path)
    other = PAGE[:1000:-1]
    web.answers = [cut(len(PAGE) - 1, ETag='"a"'), send(200, other, ETag='"b"')]
    assert fetched(web, tmp_path, "", other) == sha256(other)


def test_a_wrong_digest_leaves_nothing(web, tmp_path):
    web.answers = [send(200, PAGE)]
    with pytest.raises(Refused, match="nothing was written to a disk") as caught:
        fetched(web, tmp_path, "sha256:" + "0" * 64)
    assert caught.value.permanent
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("status", "why", "permanent"), [(404, "404", True), (503, "given up after 6 tries", False)])
def test_a_missing_file_is_missing_for_good_and_a_busy_server_is_not(web, tmp_path, status, why, permanent):
    web.answers = [send(status)]
    with pytest.raises(Refused, match=why) as caught:
        fetched(web, tmp_path)
    assert caught.value.permanent is permanent


def test_the_login_goes_to_its_own_server_only(web, tmp_path):
    other = Web()
    other.answers, web.answers = [send(200, PAGE)], [send(302, Location=other.url)]
    url = web.url.replace("//", "//user:p%40ss@")
    image_file.Download(url, str(tmp_path / "x.tar"), "x", pause=0).fetch(PAGE_DIGEST)
    assert web.requests[0]["Authorization"] == "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert "Authorization" not in other.requests[0]
    other.close()


def test_what_does_not_fit_is_refused_with_figures(web, tmp_path, monkeypatch):
    monkeypatch.setattr(image_file, "RESERVE", 1 << 60)
    web.answers = [send(200, whole=3 << 20)]
    with pytest.raises(Refused, match=r"needs 3 MiB .* are free"):
        fetched(web, tmp_path)
    monkeypatch.undo()
    image_file.check_room(10 << 20, (10 << 20) + image_file.RESERVE, "x")
    with pytest.raises(Refused, match="needs 10 MiB of the rescue's memory, and 265 MiB are free of which 256 MiB"):
        image_file.check_room(10 << 20, (10 << 20) + image_file.RESERVE - 1, "x")


# --- uploads


class Line:
    """The connection to a rescue: scripts run here, below a folder; it can be lost at every call."""

    def __init__(self, lost: set[int] = frozenset(), memory: str = "") -> None:  # type: ignore[assignment]
        self.lost, self.calls, self.sent, self.resets, self.memory = lost, 0, 0, 0, memory

    def run(self, script: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
        self.calls += 1
        # lost before anything came through, or after half of the data
        if self.calls in self.lost:
            if data:
                self._shell(script, arguments, data[: len(data) // 2])
            raise Unreachable(SILENT, "Connection reset")
        self.sent += len(data or b"")
        code, text = self._shell(script, arguments, data)
        return code, text.replace("\nmemory=", f"\nmemory={self.memory}") if self.memory else text

    def _shell(self, script: str, arguments: tuple[str, ...], data: bytes | None) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", script, "sh", *arguments], input=data or b"", capture_output=True, check=False
        )
        return done.returncode, done.stdout.decode()

    def close(self) -> None:
        self.resets += 1


@pytest.fixture
def source(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(remote_module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(upload, "PIECE", 1 << 20)
    (tmp_path / "source").write_bytes(DATA)
    return tmp_path / "source"


def sent(
    line: Line,
    source: Path,
    said: list[str] | None = None,
    digest: str = DIGEST,
    kind: upload.Kind = upload.IMAGE,
) -> Path:
    target = source.parent / "work/images/x.tar"
    lines = said if said is not None else []
    upload.upload(line, kind, source, str(target), digest, lines.append)  # type: ignore[arg-type]
    return target


def test_an_upload_in_pieces(source):
    said: list[str] = []
    target = sent(Line(), source, said)
    assert target.read_bytes() == DATA
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    assert said[-1] == "uploaded 3 MiB of 3 MiB of the image"
    assert os.listdir(target.parent) == ["x.tar"]


def test_what_is_there_already_is_not_sent_again(source):
    sent(Line(), source)
    line = Line()
    sent(line, source)
    assert (line.calls, line.sent) == (1, 0)


def test_an_upload_goes_on_after_the_connection_was_lost(source):
    line = Line(lost={1, 3, 6, 9})
    target = sent(line, source)
    assert target.read_bytes() == DATA
    assert line.resets == 4
    assert line.sent == len(DATA)


def test_a_later_run_goes_on_with_what_an_earlier_one_sent(source, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(upload, "Patience", lambda remote: remote_module.Patience(remote, 0))
        with pytest.raises(Unreachable):
            sent(Line(lost={4}), source)
    line = Line()
    assert sent(line, source).read_bytes() == DATA
    assert line.sent < len(DATA)


def test_other_images_make_room(source):
    folder = source.parent / "work/images"
    folder.mkdir(parents=True)
    (folder / "old.tar").write_text("x")
    sent(Line(), source)
    assert os.listdir(folder) == ["x.tar"]


def test_a_file_that_changes_on_its_way_is_refused(source):
    with pytest.raises(upload.UploadFailed, match="other bytes"):
        sent(Line(), source, digest="sha256:" + "0" * 64)
    assert os.listdir(source.parent / "work/images") == []


# --- what a command's upload has of its own


def test_a_command_can_be_run_where_it_lies_and_is_called_one(source):
    said: list[str] = []
    target = sent(Line(), source, said, kind=upload.COMMAND)
    assert oct(target.stat().st_mode & 0o777) == "0o700"
    assert oct(target.parent.stat().st_mode & 0o777) == "0o700"
    assert said == [f"uploaded {done} MiB of 3 MiB of the image command" for done in (1, 2, 3, 3)]


@pytest.mark.parametrize(("kind", "needed"), [(upload.IMAGE, 3), (upload.COMMAND, 6)])
def test_what_is_missing_names_what_the_user_set(source, kind, needed):
    line = Line(memory=str(((needed << 20) + image_file.RESERVE) // 1024) + "\nbefore=")
    with pytest.raises(upload.UploadFailed) as refusal:
        sent(line, source, kind=kind)
    room = f"needs {needed} MiB of the rescue's memory, and {256 + needed} MiB are free of which 256 MiB stay with the"
    assert str(refusal.value).startswith(f"{kind.setting} source: it {room} rescue; ")
    assert (kind.setting, line.sent) == ("image.file" if needed == 3 else "kubenode_image_url_command", 0)


def test_a_command_that_is_there_needs_the_room_of_its_copy(source):
    target = sent(Line(), source, kind=upload.COMMAND)
    line = Line(memory=str((len(DATA) + image_file.RESERVE) // 1024) + "\nbefore=")
    with pytest.raises(upload.UploadFailed, match="needs 3 MiB"):
        sent(line, source, kind=upload.COMMAND)
    assert target.read_bytes() == DATA
    enough = Line(memory=str((len(DATA) + image_file.RESERVE) // 1024 + 1) + "\nbefore=")
    sent(enough, source, kind=upload.COMMAND)
    assert (enough.calls, enough.sent) == (1, 0)


def test_a_command_that_becomes_shorter_while_it_is_sent_is_refused(source):
    def shorten(_said: str) -> None:
        os.truncate(source, (1 << 20) + 5)

    with pytest.raises(upload.UploadFailed, match="kubenode_image_url_command source: the rescue got other bytes"):
        upload.upload(Line(), upload.COMMAND, source, str(source.parent / "work/x"), DIGEST, shorten)  # type: ignore[arg-type]


def test_too_little_memory_is_refused_before_anything_is_sent(source, monkeypatch):
    monkeypatch.setattr(image_file, "RESERVE", 1 << 60)
    line = Line()
    with pytest.raises(upload.UploadFailed, match=r"needs 3 MiB of the rescue's memory"):
        sent(line, source)
    assert line.sent == 0
