# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mmdebstrap mounts stays with it: a copy in a container of the same host would keep it from unmounting."""

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.modules import node_image_debian as module

pytestmark = pytest.mark.root
HIDDEN, SEEN, BROKEN = 0, 1, 2


def test_no_other_process_sees_what_is_mounted_while_an_archive_is_made(tmp_path, monkeypatch):
    outside = Path(f"/proc/{os.getpid()}/mounts")

    class Module:
        """What the module needs of Ansible's."""

        params, check_mode, run_command = None, False, None

        def __init__(self, *_arguments, **_options):
            pass

        def exit_json(self, seen: bool) -> None:
            os._exit(SEEN if seen else HIDDEN)

    def run(_params, _tools, _check_mode):
        """A mount in the place of mmdebstrap's work."""
        subprocess.run(["mount", "-t", "tmpfs", "inside", tmp_path], check=True)
        found = str(tmp_path) in outside.read_text()
        subprocess.run(["umount", tmp_path], check=True)
        return {"seen": found}

    monkeypatch.setattr(module, "AnsibleModule", Module)
    monkeypatch.setattr(module.debian_root, "run", run)
    child = os.fork()
    if not child:
        try:
            module.main()
        finally:
            os._exit(BROKEN)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == HIDDEN
