# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the module's work on a base that is made for a test, without Ansible around it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build, request
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module.image_build import Build
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module.products import Owned

AGENT = {"agent_image": "quay.io/example/agent:1", "ironic_urls": ["http://ironic.example.com"]}
NETWORK = {
    "interfaces": [
        {
            "name": "eno1",
            "type": "ethernet",
            "state": "up",
            "ipv4": {"enabled": True, "dhcp": False, "address": [{"ip": "192.0.2.10", "prefix-length": 24}]},
        }
    ]
}


def state(path: Path) -> tuple[int, ...]:
    """What changes with a file, and not by reading it."""
    found = path.stat()
    return found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Workshop:
    """A folder with a base ISO, and runs over lists of hosts."""

    def __init__(self, folder: Path, published: Path) -> None:
        self.folder = folder
        self.base = Path(shutil.copy(published, folder / "coreos.iso"))
        self.dest = folder / "images"
        self.diff: list[dict[str, str]] = []

    def params(self, *hosts: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Options as Ansible would hand them over; None for one that is not given."""
        options_ = {"base_iso": str(self.base), "dest": str(self.dest), "hosts": list(hosts), **AGENT, **more}
        given = {name: value for name, value in options_.items() if value is not None}
        result = ArgumentSpecValidator(image_build.argument_spec(), required_if=image_build.REQUIRED_IF).validate(given)
        assert result.error_messages == []
        return result.validated_parameters

    def build(self, *hosts: dict[str, Any], check: bool = False, run=None, **more: Any) -> dict[str, dict[str, Any]]:
        """One run; the results by host, what hosts share under the empty name."""
        params = self.params(*hosts, **more)
        work = Build(
            params, check=check, diff=True, owned=Owned(request.mode_of("permissions", params["permissions"])), run=run
        )
        work.run()
        self.diff = work.diff
        return {result.name: result.as_result() for result in [*work.results, work.shared]}

    def written(self) -> list[str]:
        """Everything below the destination, records too; nothing when it is not there."""
        return sorted(str(path.relative_to(self.folder)) for path in self.dest.rglob("*")) if self.dest.exists() else []
