# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server as one file: the same bytes each time, and everything in it that it imports."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import zipfile

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import pack_program
from dev.toolchain.rules import imports

INSIDE = str(pack_program.TOP).rpartition("/")[0]


def test_equal_sources_make_equal_bytes():
    content = pack_program.program_bytes()
    assert content == pack_program.program_bytes()
    assert content.startswith(b"#!/usr/bin/python3 -I\n")
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    formats = f"{pack_program.TOP}/module_utils/_liveimage"
    assert {"__main__.py", f"{formats}/iso.py", f"{formats}/nmstate/conversion.py"} <= set(names)
    with pytest.raises(ValueError, match="full path"):
        pack_program.program_bytes("/usr/bin/env python3\n")


def test_what_the_program_imports_is_in_it():
    inside = {name.rpartition(".")[0].rpartition("/__init__")[0] or name[:-3] for name in pack_program.sources()}
    inside = {name[len(INSIDE) + 1 :] for name in inside}
    for name, content in pack_program.sources().items():
        source = name[len(INSIDE) + 1 :]
        for _line, target in imports(ast.parse(content), source):
            assert {target, target.rpartition("/")[0]} & inside, f"{source} imports {target}"
        assert not re.search(rb"^ *(?:from|import) ansible\b", content, re.MULTILINE), f"{source} needs ansible-core"


def test_it_starts_without_the_collection(tmp_path):
    file = tmp_path / "image-server"
    assert pack_program.main(["--output", str(file)]) == 0
    command = [sys.executable, "-I", str(file), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--nmstate-dir" in done.stdout
