# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection is importable under its name, and child processes find the same sources."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from tests.folders import put_files

CHECKOUT = Path(__file__).resolve().parents[3]


def test_import_comes_from_this_checkout():
    assert Path(boot_states.__file__).resolve() == CHECKOUT / "plugins/module_utils/_common/boot_states.py"


def test_child_processes_find_this_checkout():
    entries = os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)
    found = [Path(entry) / "ansible_collections/kubenode/provision" for entry in entries]
    assert any(path.exists() and path.samefile(CHECKOUT) for path in found)


GALAXY = """#!/bin/sh
set -e
if [ "$2" = build ]; then
    tar -C "$5" -czf "$4/kubenode-provision-1.0.0.tar.gz" .
else
    mkdir -p "$6/ansible_collections/kubenode/provision"
    tar -C "$6/ansible_collections/kubenode/provision" -xzf "$3"
fi
"""
BUILT = """
import os
from pathlib import Path
from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states

def test_built():
    built = os.environ["KUBENODE_BUILT"]
    assert Path(boot_states.__file__).is_relative_to(built)
    assert os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[0] == built
    print("found in", built)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_of_the_built_collection_find_nothing_of_the_checkout(tmp_path, workers):
    """The worker takes what its controller has built; at the end it goes."""
    galaxy = tmp_path / "bin/ansible-galaxy"
    put_files(tmp_path, {"test_built.py": BUILT, "bin/ansible-galaxy": GALAXY, "pytest.ini": "[pytest]\n"})
    galaxy.chmod(0o755)
    path = os.pathsep.join([str(galaxy.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "PYTEST_ADDOPTS": "", "KUBENODE_BUILT": "yes"}
    command = [sys.executable, "-m", "pytest", "-rP", "-p", "dev.pytest_collection", "-n", workers]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = re.findall("^found in (.*)$", done.stdout, re.MULTILINE)
    assert not Path(found).parent.exists()
