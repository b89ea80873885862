# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program `provision`: what it has of ansible-core's own routes, and that it unpacks nothing but its payload."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import ansible
import pytest
import yaml

from dev.toolchain.programs import without_routes_elsewhere
from provision import unpack
from provision.errors import RunError

ROUTES = Path(ansible.__path__[0]) / "config/ansible_builtin_runtime.yml"


def test_only_routes_to_collections_that_are_not_inside_are_gone():
    before = yaml.safe_load(ROUTES.read_bytes())
    slim = without_routes_elsewhere(ROUTES.read_bytes())
    after = yaml.safe_load(slim)
    assert len(slim) < 20_000 < ROUTES.stat().st_size
    assert {name: value for name, value in after.items() if name != "plugin_routing"} == {
        name: value for name, value in before.items() if name != "plugin_routing"
    }
    assert after["plugin_routing"].keys() == before["plugin_routing"].keys()
    for kind, routes in before["plugin_routing"].items():
        left = after["plugin_routing"][kind]
        assert left.items() <= routes.items()
        for name in routes.keys() - left.keys():
            assert routes[name].keys() == {"redirect"}
            assert not routes[name]["redirect"].startswith("ansible.builtin.")


def payload(text: bytes) -> bytes:
    """A payload with one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        member = tarfile.TarInfo("run")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return packed.getvalue()


@pytest.mark.parametrize("content", [payload(b"another"), payload(b"whole")[:-1], b""], ids=["other", "short", "none"])
def test_a_payload_with_another_digest_is_not_unpacked(content, tmp_path, monkeypatch):
    digest = hashlib.sha256(payload(b"whole")).hexdigest()
    held = {unpack.PAYLOAD: content, unpack.DIGEST: digest.encode() + b"\n"}
    monkeypatch.setattr(unpack, "resource", held.__getitem__)
    with pytest.raises(RunError, match="this program is damaged"):
        unpack.unpacked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    held[unpack.PAYLOAD] = payload(b"whole")
    assert (unpack.unpacked(tmp_path) / "run").read_bytes() == b"whole"
