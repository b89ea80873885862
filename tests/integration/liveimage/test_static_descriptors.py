# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Overlay descriptors as a folder that is served: alone, and beside NMState documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, whole
from tests.integration.liveimage.program import Program
from tests.unit.liveimage.maker import LAYOUTS, make
from tests.waiting import until


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bases")
    make(place / "live.iso", LAYOUTS["2023-igninfo"])
    (place / "live.img").write_bytes(b"INITRD" * 3335)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "hosts"
    place.mkdir()
    return place


def test_descriptors(bases, tmp_path):
    place = tmp_path / "overlays"
    place.mkdir()
    own = tmp_path / "base.iso"
    shutil.copy(bases / "live.iso", own)

    def put(file: str, name: str, overlay: Overlay, **more: object) -> None:
        given = {"kubenode_image": 1, "name": name, "host": "a", "created": 1_700_000_000, "overlay": overlay.to_dict()}
        (place / file).write_text(json.dumps({**given, **more}))

    image = whole(identify(str(own))).patched([(40_000, b"own bytes")])
    put("a.iso.json", "a.iso", image)
    put("twin-1.json", "twin.iso", image)
    put("twin-2.json", "twin.iso", image)
    (place / "bad.json").write_text("{")
    put("path.json", "../x.iso", image)
    put("date.json", "date.iso", image, created="now")
    with Program("--overlays-dir", str(place), "--guessable") as server:
        reply = server.get("/a.iso")
        assert reply.content == image_bytes(own, 40_000, b"own bytes")
        assert reply.headers["Last-Modified"] == server.head("/a.iso").headers["Last-Modified"]
        problems = until(lambda: len(found := server.problems()) == 5 and found, "every problem in the status")
        given = {Path(what).name: text for what, text in problems.items()}
        assert "twin-1.json and twin-2.json would share the name twin.iso" in given["twin-1.json"]
        assert "is no JSON" in given["bad.json"]
        assert "name: '../x.iso' cannot be used" in given["path.json"]
        assert "created: 'now'" in given["date.json"]
        assert (server.status("/twin.iso"), server.status("/bad.iso")) == (503, 404)
        (place / "twin-2.json").unlink()
        until(lambda: server.status("/twin.iso") == 200, "/twin.iso is served")
        put("a.iso.json", "a.iso", image.patched([(40_000, b"new bytes")]))
        until(lambda: b"new bytes" in server.get("/a.iso").content, "the new bytes")
        with own.open("r+b") as file:
            file.write(b"changed")
        changed = until(lambda: server.problems().get(str(place / "a.iso.json")), "the problem in the status")
        assert "is another one by now" in changed
        assert server.status("/a.iso") == 503
        (place / "a.iso.json").unlink()
        until(lambda: server.status("/a.iso") == 404, "/a.iso is gone")


def image_bytes(base: Path, offset: int, patch: bytes) -> bytes:
    data = base.read_bytes()
    return data[:offset] + patch + data[offset + len(patch) :]


def test_descriptors_beside_documents(bases, folder, tmp_path):
    place = tmp_path / "overlays"
    place.mkdir()
    (folder / "a.yaml").write_text("")
    overlay = whole(identify(str(bases / "live.iso")))
    for name in ("a.iso", "b.iso"):
        given = {"kubenode_image": 1, "name": name, "host": "b", "created": 5, "overlay": overlay.to_dict()}
        (place / f"{name}.json").write_text(json.dumps(given))
    with Program("--nmstate-dir", str(folder), "--overlays-dir", str(place), "--guessable", bases=bases) as server:
        assert server.get("/b.iso").content == (bases / "live.iso").read_bytes()
        assert server.get("/a.iso").content != (bases / "live.iso").read_bytes()  # the document's
        owned = until(lambda: server.problems().get(str(place / "a.iso.json")), "the problem in the status")
        assert "already the image of a host" in owned
        (folder / "a.yaml").unlink()

        def taken_over() -> bool:
            return server.status("/a.iso") == 200 and server.get("/a.iso").content == server.get("/b.iso").content

        until(taken_over, "the descriptor's image")
