# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one of our modules on the controller, as Ansible would, and gives its result.

With flags of Ansible it is run by ``ansible``; without any, its program is started with the same arguments, which takes
a third of the time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RESULT = re.compile(r"^localhost \| \w+!? => ", re.MULTILINE)
_JSON = re.compile(r"^(?=\{)", re.MULTILINE)
#: What Ansible's wrapper does for a module: the arguments as it hands them on, then the module as a program.
_PROGRAM = """
import json, runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": json.load(sys.stdin)}).encode()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_module("ansible_collections.kubenode.provision.plugins.modules." + sys.argv[1], run_name="__main__")
"""


class Run:
    """One run of a module: its result, and everything that was printed."""

    def __init__(self, failed: bool, result: dict[str, Any], printed: str) -> None:
        self.failed, self.result, self.printed = failed, result, printed

    @property
    def machines(self) -> dict[str, dict[str, Any]]:
        """The results of the machines by name."""
        return {machine["name"]: machine for machine in self.result["machines"]}


def run(
    module: str, options: Mapping[str, object], flags: tuple[str, ...], environment: Mapping[str, str], folder: Path
) -> Run:
    """Run the module; ``environment`` are the credentials, ``folder`` is for what Ansible keeps."""
    settings = {
        **os.environ,
        **environment,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "ansible"),
    }
    if flags:
        command = ["ansible", "localhost", "-m", f"kubenode.provision.{module}", "-a", json.dumps(options), *flags]
        given = ""
    else:
        command = [sys.executable, "-c", _PROGRAM, module]
        settings["PYTHONPATH"] = settings["ANSIBLE_COLLECTIONS_PATH"]
        given = json.dumps(options)
    done = subprocess.run(command, env=settings, input=given, capture_output=True, text=True, timeout=600, check=False)
    printed = done.stdout + done.stderr
    found = (_RESULT if flags else _JSON).search(done.stdout)
    assert found is not None, f"no result in:\n{printed}"
    result = json.JSONDecoder().raw_decode(done.stdout, found.end())[0]
    return Run(done.returncode != 0, result, printed)
