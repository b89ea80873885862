# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a folder are acted on when they are over, and paths are one path however they are written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import urls
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import (
    RequestPaths,
    UrlBuilder,
    static_path,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import watched as module
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.watched import (
    Changes,
    State,
    read,
    read_text,
    scan,
)


def states(written: float = 0.0, **digests: bytes) -> dict[str, State]:
    return {key: State(digest, written) for key, digest in digests.items()}


@pytest.fixture
def now(monkeypatch):
    """A clock that does not move."""
    moment = 1_790_000_000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: moment))
    return moment


def test_the_first_look_takes_all(now):
    changes = Changes()
    assert changes.update(states(now, a=b"1", b=b"1")) == (["a", "b"], [])
    assert changes.update(states(now, a=b"1", b=b"1")) == ([], [])


def test_what_is_being_written_waits_until_two_looks_saw_the_same(now):
    changes = Changes()
    changes.update({})
    changes.update(states(a=b"0"))
    assert changes.update(states(now, a=b"1")) == ([], [])
    assert changes.update(states(now, a=b"2")) == ([], [])
    assert changes.update(states(now, a=b"2")) == (["a"], [])
    ahead = now + 100  # by a clock that is ahead of ours it would never be quiet
    assert changes.update(states(ahead, a=b"3")) == (["a"], [])
    assert changes.update(states(now - 5, a=b"4")) == (["a"], [])


def test_what_is_missing_once_was_being_replaced():
    changes = Changes()
    changes.update(states(a=b"1", b=b"1"))
    assert changes.update(states(b=b"1")) == ([], [])
    assert changes.update(states(a=b"1", b=b"1")) == ([], [])
    assert changes.update(states(a=b"1")) == ([], [])
    assert changes.update(states(a=b"1")) == ([], ["b"])
    assert changes.update(states(a=b"1")) == ([], [])
    assert changes.update(states(a=b"1", b=b"1")) == (["b"], [])


def test_links_that_lead_nowhere_are_reported_when_they_are_read(tmp_path):
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert set(scan(str(tmp_path))) == {"a.yaml", "loop.yaml"}
    with pytest.raises(ImageError, match="No such file"):
        read(str(tmp_path / "a.yaml"), 10)


def test_reading_has_limits(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"\xff" * 10)
    assert read(str(path), 10) == b"\xff" * 10
    with pytest.raises(ImageError, match="more than 9 bytes"):
        read(str(path), 9)
    with pytest.raises(ImageError, match=r"no text in UTF-8 \(byte 0\)"):
        read_text(str(path), 10)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="it is no file"):
        read(str(tmp_path / "pipe"), 10)


@given(st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=20))
def test_a_url_leads_to_its_path(name):
    path = static_path(name)
    asked = RequestPaths("/images")
    for written in (UrlBuilder("").of(path), "/images" + path, path.lower() if "%" not in path else path):
        found = asked(written.encode().decode("latin-1"))
        assert found is not None
        assert found.lower() == path.lower()
    raw = "/" + name
    if not set(name) & set("%"):
        assert asked(raw.encode().decode("latin-1")) == path


@given(st.text(st.characters(max_codepoint=255), max_size=40))
def test_any_path_of_a_request(path):
    assert isinstance(RequestPaths()("/" + path), str)
    assert RequestPaths("", b"secret")("/" + path) is None


def test_a_secret_is_made_once(tmp_path):
    place = tmp_path / "secret"
    first = urls.load_secret(str(place))
    assert len(first) == 64
    assert place.stat().st_mode & 0o777 == 0o600
    assert urls.load_secret(str(place)) == first
    place.chmod(0o440)  # as systemd and Kubernetes hand them over
    assert urls.load_secret(str(place)) == first
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o660, 0o601])
def test_a_secret_that_others_may_read_is_none(tmp_path, mode):
    place = tmp_path / "secret"
    place.write_text("s" * 64)
    place.chmod(mode)
    with pytest.raises(ImageError, match=f"mode {mode:04o}"):
        urls.load_secret(str(place))


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("gone", ", a link to gone, cannot be read: No such file or directory"),
        ("secret", ", a link to secret, cannot be read: Too many levels of symbolic links"),
        (None, " cannot be read: Is a directory"),
    ],
    ids=("dangling", "loop", "folder"),
)
def test_a_secret_that_cannot_be_read_is_none(tmp_path, link, words):
    place = tmp_path / "secret"
    if link is None:
        place.mkdir()
    else:
        place.symlink_to(link)
    with pytest.raises(ImageError, match=f"secret-file {place}{words}; name a file that this user may read, or"):
        urls.load_secret(str(place))
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]
