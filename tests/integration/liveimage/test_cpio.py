# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program cpio unpacks what we pack."""

from __future__ import annotations

import subprocess

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio


def test_cpio_itself_reads_them(tmp_path):
    files = {"config.ign": b"{}", "etc/coreos-firstboot-network/a.nmconnection": b"[connection]\n"}
    command = ["cpio", "--extract", "--quiet", "--make-directories"]
    subprocess.run(command, input=cpio.archive(files, "none"), cwd=tmp_path, check=True)
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == files
