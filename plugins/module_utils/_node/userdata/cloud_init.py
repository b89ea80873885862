# Copyright (c) 2026 kubenode.provision authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause
"""User data for cloud-init (pure). Format: cloud-init's documentation of cloud-config, write_files and runcmd."""

from __future__ import annotations

import base64
import json

from . import files


def document(inputs):
    """The cloud-config of normalised inputs."""
    lines = ["#cloud-config"]
    if inputs["hostname"]:
        lines += ["preserve_hostname: false", "hostname: %s" % _text(inputs["hostname"])]
    if inputs["ssh_authorized_keys"]:
        lines += ["disable_root: false", "ssh_authorized_keys:"]
        lines += ["  - %s" % _text(key) for key in inputs["ssh_authorized_keys"]]
    lines.append("write_files:")
    for entry in files.files(inputs):
        lines += [
            "  - path: %s" % _text(entry.path),
            '    permissions: "%04o"' % entry.mode,
            "    encoding: b64",
            "    content: %s" % base64.b64encode(entry.content.encode("utf-8")).decode("ascii"),
        ]
    lines += ["runcmd:", "  - [/bin/sh, %s]" % files.SETUP]
    return "\n".join(lines) + "\n"


def _text(value):
    """A YAML scalar: JSON's double quotes are YAML's; the values are printable by their checks."""
    return json.dumps(value, ensure_ascii=False)
