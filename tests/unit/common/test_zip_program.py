# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in one file: they run, and equal sources are equal bytes from every controller."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile

from ansible_collections.kubenode.provision.plugins.module_utils._common.zip_program import main_of, zip_program
from tests.folders import put

FILES = {"house/said.py": b"def main(words):\n    print(*words)\n    return len(words)\n", "house/__init__.py": b""}


def test_it_runs_from_any_place_under_any_name(tmp_path):
    program = zip_program(f"#!{sys.executable} -I\n".encode(), {**FILES, "__main__.py": main_of("house.said")})
    path = put(tmp_path / "a command", program, 0o755)
    done = subprocess.run([path, "a", "b"], capture_output=True, text=True, check=False, cwd="/")
    assert (done.stdout, done.returncode) == ("a b\n", 2)


def test_equal_files_in_any_order_are_equal_bytes_that_no_zlib_has_made():
    content = zip_program(b"#!\n", FILES)
    assert content == zip_program(b"#!\n", dict(reversed(FILES.items())))
    entries = zipfile.ZipFile(io.BytesIO(content)).infolist()
    assert [entry.filename for entry in entries] == ["house/__init__.py", "house/said.py"]
    assert {(entry.compress_type, entry.date_time[0]) for entry in entries} == {(zipfile.ZIP_STORED, 1980)}
