# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images and rescues whose addresses and numbers are none: every one of them ends in an error that says so."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import image_file
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.processes import Refused
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import robot_installimage, upload
from tests.unit.common import odd

DATA = b"an image"
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("place", odd.PLACES)
def test_an_image_at_what_is_no_url_is_refused(place, tmp_path):
    with pytest.raises(Refused):
        image_file.Download(place, str(tmp_path / "x.tar"), "https://x/x.tar", pause=0).fetch(DIGEST)


@pytest.mark.parametrize("place", ["http://[::1/x.tar", "http://h:99999/x.tar", "http://h:0/x.tar"])
def test_the_controller_refuses_it_before(place):
    assert robot_installimage._check_url(place, {"shown": "x", "digest": DIGEST}, True)


class Rescue:
    """A rescue that answers every script with the same text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, _script: str, *_arguments: str, data: bytes | None = None) -> tuple[int, str]:
        return 0, self.text

    def reset(self) -> None:
        """Nothing to do."""


def refused(text: str, folder: Path) -> None:
    source = folder / "source"
    source.write_bytes(DATA)
    for kind in (upload.IMAGE, upload.COMMAND):
        with pytest.raises(upload.UploadFailed):
            upload.upload(Rescue(text), kind, source, "/x", DIGEST, lambda said: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", odd.WORDS)
@pytest.mark.parametrize("text", ["there={}\nend=1\n", "there=0\nmemory={}\nend=1\n",
                                  "there=0\nmemory=9000000\nfiles={} 5 4096\nend=1\n", "end=1\n{}\n"])  # fmt: skip
def test_an_upload_to_a_program_that_prints_no_numbers_fails(text, number, tmp_path):
    refused(text.format(number), tmp_path)


@odd.examples("5 ² 4096", "² 5 4096", "5 5", "1 2 3 4", "9" * 5000 + " 1 1", "")
@given(odd.texts)
def test_the_room_in_a_rescue_is_a_number(text):
    assert upload._room({"memory": "4", "files": text}) >= 0
    assert upload._room({"memory": text, "files": "5 5 4096"}) >= 0


def test_the_room_is_what_memory_and_file_system_have():
    assert upload._room({"memory": "100", "files": "7 5 4096"}) == 5 * 4096
    assert upload._room({"memory": "1", "files": "7 5 4096"}) == 1024
    assert upload._room({"memory": "100", "files": "0 0 4096"}) == 100 * 1024


def test_a_server_that_is_gone_is_waited_for_as_long_as_a_reboot_takes(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with pytest.raises(Refused, match="given up after 6 tries in a row"):
        image_file.Download("http://127.0.0.1:1/", str(tmp_path / "x.tar"), "x").fetch()
    assert pauses == [2, 4, 8, 15, 15]


def test_a_link_that_breaks_after_every_byte_brings_the_image(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    transfer = image_file.Download("http://x/", str(tmp_path / "x.tar"), "x")

    def one_byte() -> io.BytesIO:
        transfer.size = 60
        return io.BytesIO(b"x")

    monkeypatch.setattr(transfer, "open", one_byte)
    assert b"".join(transfer.chunks()) == b"x" * 60
