# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab keeps between runs: built once, whole or not there, removed when it was not used for days."""

import os
import queue
import threading
from pathlib import Path

import pytest

from lab import cache


@pytest.mark.parametrize("marker", ["", "index.json"])
def test_a_folder_is_built_once_and_removed_when_it_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    built: list[str] = []
    long_ago, recent, other, new = (
        tmp_path / f"{name}-{digit * 16}" for name, digit in zip(("a", "a", "a-b", "a"), "1234", strict=True)
    )
    (tmp_path / f".a-{'9' * 16}.part").mkdir()  # of a build that was killed
    for folder in (long_ago, recent, other, new, new):
        assert cache.once(folder, lambda partial: built.append(partial.name), "a", marker) == folder
        if folder in (long_ago, other):
            os.utime(folder / marker, (0, 0))
    assert built == [f".{folder.name}.part" for folder in (long_ago, recent, other, new)]
    assert [path.exists() for path in (long_ago, recent, other, new)] == [False, True, True, True]
    assert list(tmp_path.glob(".a-*.part")) == []


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))

    def broken(partial: Path) -> None:
        (partial / "half").touch()
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        cache.once(tmp_path / f"a-{'1' * 16}", broken, "a")
    assert list(tmp_path.glob("*a-*")) == []


def test_who_waits_for_another_builder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    messages: queue.Queue[str] = queue.Queue()

    def wait() -> None:
        with cache.locked("a", messages.put):
            messages.put("its turn")

    with cache.locked("a"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert messages.get() == "a: waiting for another process, which works on it"
        assert messages.empty()
    waiting.join()
    assert messages.get() == "its turn"


def test_a_stored_file_is_found_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    one, same, other = cache.store("a", b"1"), cache.store("a", b"1"), cache.store("a", b"2", 0o755)
    assert one == same != other
    assert (one.read_bytes(), other.stat().st_mode & 0o777) == (b"1", 0o755)
