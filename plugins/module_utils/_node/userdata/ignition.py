# Copyright (c) 2026 kubenode.provision authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause
"""User data for Ignition, specification 3.3.0 (pure)."""

from __future__ import annotations

import base64
import json

from . import files

UNIT = "kubenode-setup.service"
_UNIT = (
    """\
[Unit]
Description=Makes this machine a Kubernetes node
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh %s
Restart=on-failure
RestartSec=30
RestartPreventExitStatus=2

[Install]
WantedBy=multi-user.target
"""
    % files.SETUP
)


def document(inputs):
    """The Ignition configuration of normalised inputs."""
    written = files.files(inputs)
    if inputs["hostname"]:
        written.append(files.File("/etc/hostname", 0o644, inputs["hostname"] + "\n"))
    result = {
        "ignition": {"version": "3.3.0"},
        "storage": {
            "directories": [{"path": files.FOLDER, "mode": 0o700}],
            "files": [_file(entry) for entry in written],
        },
        "systemd": {"units": [{"name": UNIT, "enabled": True, "contents": _UNIT}]},
    }
    if inputs["ssh_authorized_keys"]:
        user = {"name": inputs["ssh_user"], "sshAuthorizedKeys": inputs["ssh_authorized_keys"]}
        result["passwd"] = {"users": [user]}
    return json.dumps(result, indent=1, sort_keys=True) + "\n"


def _file(entry):
    source = "data:;base64," + base64.b64encode(entry.content.encode("utf-8")).decode("ascii")
    return {"path": entry.path, "mode": entry.mode, "overwrite": True, "contents": {"source": source}}
