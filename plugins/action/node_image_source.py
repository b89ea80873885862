# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes image files of the controller readable for machines in their rescue, for as long as the run lasts."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import controller_image, run_server


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task for all files."""
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=options.node_image_source_spec())[1]
        folder = Path(given["cache_dir"])
        findings, served = [], []
        for image in given["images"]:
            path = Path(image["path"])
            try:
                digest = controller_image.proven(path, image["sha256"])
                qcow2 = image["kind"] == "disk" and controller_image.is_qcow2(path)
                if qcow2 and not self._task.check_mode:
                    path = controller_image.raw_of(path, folder)
                    digest = controller_image.digest(path)
            except controller_image.FileNotUsable as exc:
                findings.append(f"{image['name']}: {exc}")
                continue
            switches = "&adapt=no" if image["kind"] == "disk" else ""
            about = {"name": image["name"], "file": str(path), "digest": digest}
            served.append({**about, "switches": switches, "converted": qcow2})
        if findings:
            raise AnsibleActionFail("nothing was created or changed:\n" + "\n".join(f"- {one}" for one in findings))
        answer = {"changed": False, "images": [], "ssh_args": ""}
        if self._task.check_mode or not served:
            return answer
        secret = secrets.token_urlsafe(18)
        paths = {f"/{secret}/{position}.img": one for position, one in enumerate(served)}
        port = _started(paths)
        sources = [
            {
                "name": one["name"],
                "converted": one["converted"],
                "image_url": f"http://127.0.0.1:{port}{path}#sha256={one['digest']}{one['switches']}",
            }
            for path, one in paths.items()
        ]
        return {**answer, "images": sources, "ssh_args": f"-R 127.0.0.1:{port}:127.0.0.1:{port}"}


def _started(files: dict[str, Any]) -> int:
    try:
        return run_server.start("source", files)
    except OSError as error:
        raise AnsibleActionFail(str(error)) from error
