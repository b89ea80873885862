# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program `provision`: ansible-core's routes in it, that it unpacks its payload only, and what it imports."""

from __future__ import annotations

import ast
import gc
import hashlib
import io
import tarfile
from pathlib import Path

import ansible
import pytest
import yaml

from dev.toolchain.paths import CHECKOUT
from dev.toolchain.release import collection_files, package_files, without_routes_elsewhere
from provision import RunError, state_folder

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
    held = {state_folder.PAYLOAD: content, state_folder.DIGEST: digest.encode() + b"\n"}
    monkeypatch.setattr(state_folder, "resource", held.__getitem__)
    with pytest.raises(RunError, match="this program is damaged"):
        state_folder.unpacked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    held[state_folder.PAYLOAD] = payload(b"whole")
    assert (state_folder.unpacked(tmp_path) / "run").read_bytes() == b"whole"


#: modules of the standard library that Python 3.12 and 3.13 took away; 3.14 took none
GONE = {
    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp",
    "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau",
    "telnetlib", "uu", "xdrlib",
}  # fmt: skip


def imported(statements: list[ast.stmt]) -> set[str]:
    """The packages that these statements import."""
    names: list[str] = []
    for one in statements:
        if isinstance(one, ast.Import):
            names += [alias.name for alias in one.names]
        elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
            names.append(one.module)
    return {name.partition(".")[0] for name in names}


@pytest.fixture
def no_collection():
    """No garbage is collected meanwhile: what its end runs may parse, too, and CPython before 3.11.5 takes that ill.

    Its error is "AST constructor recursion depth mismatch" (cpython issue 106905).
    """
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
def test_no_file_needs_what_newer_pythons_lack():
    """Those of others may try to: an import that is not at their top level is theirs to judge."""
    ours = [(name, data) for name, data in collection_files(CHECKOUT) if name.endswith(".py")]
    others = [(name, data) for name, data in package_files() if name.endswith(".py")]
    found = {name: imported([one for one in ast.walk(ast.parse(data)) if isinstance(one, ast.stmt)]) & GONE
             for name, data in ours}  # fmt: skip
    found.update({name: imported(ast.parse(data).body) & GONE for name, data in others})
    assert len(ours) > 100 < len(others)
    assert {name: names for name, names in found.items() if names} == {}
