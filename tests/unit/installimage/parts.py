# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of the script that ends an installation, run in a folder in the place of the new system."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import post_install

#: What parts call: how the script speaks, and its own function that writes a file.
_FUNCTIONS = 'say() { echo "$*"; }\nfail() { say "failed $*"; exit 1; }\n'
_FUNCTIONS += post_install._SCRIPT[post_install._SCRIPT.index("put() {") : post_install._SCRIPT.index("say begin")]


def said(top: Path, part: str, path: str, **environment: str) -> str:
    """What a part says, the folder's name left out; ``path``: where its programs are."""
    script = f"top='{top}'\n" + _FUNCTIONS + part.replace("top=''", "")
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": path, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == int(done.stdout.startswith("failed"))
    return done.stdout.replace(str(top), "")
