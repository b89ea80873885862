# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the promised digest comes from, and that it is kept."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.incoming import Digest, Source
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import ImageUrl

ONE, TWO = "a1" * 32, "B2" * 32


@pytest.mark.parametrize(
    "text",
    [
        ONE,
        ONE.upper() + "\n",
        f"{ONE}  disk.raw.zst\n",
        f"{ONE} *./out/disk.raw.zst\n",
        f"{TWO}  other.raw\n{ONE}  disk.raw.zst\n",
        f"SHA256 (disk.raw.zst) = {ONE}\nSHA256 (other) = {TWO}\n",
        f"# comment\n{ONE}  another-name.zst\n",
    ],
)
def test_checksum_files(text):
    assert Digest.pick(text, "disk.raw.zst") == ONE


@pytest.mark.parametrize("text", ["", "<html>404</html>", ONE[:-1], f"{ONE}  one\n{TWO}  two\n"])
def test_checksum_file_without_the_image(text):
    with pytest.raises(Refused, match=r"disk\.raw\.zst"):
        Digest.pick(text, "disk.raw.zst")


def source(tmp_path, fragment=""):
    return Source(ImageUrl(f"file://{tmp_path}/disk.raw" + fragment), "tests")


def test_the_fragment_wins_over_the_file_beside(tmp_path):
    (tmp_path / "disk.raw.sha256").write_text(TWO)
    assert Digest.of(source(tmp_path, "#sha256=" + ONE.upper())).expected == ONE
    assert Digest.of(source(tmp_path)).expected == TWO.lower()


def test_without_any_digest_the_message_names_the_ways_out(tmp_path):
    with pytest.raises(Refused, match=r"#sha256=<64 hex digits>.*\.sha256 file beside.*#sha256=none"):
        Digest.of(source(tmp_path))


@pytest.mark.parametrize("fragment", ["#sha256=12", "#sha512=" + ONE, "#sha256=" + "g" * 64, f"#sha256={ONE}&sha512=x"])
def test_refused_digests(tmp_path, fragment):
    with pytest.raises(Refused, match="sha"):
        Digest.of(source(tmp_path, fragment))


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_the_bytes_that_pass_are_compared(algorithm):
    good = hashlib.new(algorithm, b"image").hexdigest()
    digest = Digest(algorithm, good)
    assert b"".join(digest.watch([b"im", b"age"])) == b"image"
    digest.check()
    digest = Digest(algorithm, good)
    list(digest.watch([b"im", b"agE"]))
    with pytest.raises(Refused, match=good):
        digest.check()


def test_none_accepts_anything():
    digest = Digest("sha256", "none")
    list(digest.watch([b"image"]))
    digest.check()
