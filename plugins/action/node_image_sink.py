# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets machines in their rescue send files to the controller, for as long as the run lasts."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import run_server

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\Z")


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.node_image_sink_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Make the folder and start the server."""
        folder = Path(given["dest"]).absolute()
        _check(folder, given["files"])
        answer: dict[str, Any] = {"changed": False, "files": [], "ssh_args": ""}
        if self._task.check_mode:
            return answer
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as exc:
            raise AnsibleActionFail(f"dest {folder}: nothing can be written there: {exc.strerror}") from exc
        if not given["files"]:
            return answer
        secret = secrets.token_urlsafe(18)
        port = _started({f"/{secret}/{name}": str(folder / name) for name in given["files"]})
        targets = [
            {"name": name, "path": str(folder / name), "url": f"http://127.0.0.1:{port}/{secret}/{name}"}
            for name in given["files"]
        ]
        return {**answer, "files": targets, "ssh_args": f"-R 127.0.0.1:{port}:127.0.0.1:{port}"}


def _check(folder: Path, names: list[str]) -> None:
    findings = [
        f"files {name!r}: use letters, digits, '.', '_', '+' and '-' only" for name in names if not _NAME.match(name)
    ]
    findings += [f"files {name!r}: it is named twice" for name in sorted(set(names)) if names.count(name) > 1]
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        findings.append(f"dest {folder}: {there} is no folder that can be written; choose another one")
    if findings:
        raise AnsibleActionFail("; ".join(findings))


def _started(files: dict[str, Any]) -> int:
    try:
        return run_server.start("sink", files)
    except OSError as error:
        raise AnsibleActionFail(str(error)) from error
