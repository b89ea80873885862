# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the probe prints on a machine: lines, then texts of several lines in base64."""

from __future__ import annotations

import base64

TEXTS = ("root", "block_mounts", "root_disks", "record", "intent")
TEXTS += ("host_keys", "instance", "cloud_init_result", "cloud_init_status")


def of_probe(**fields: str | bytes) -> str:
    """The answer with these fields, and ``end``."""
    lines = "".join(f"{key}={value}\n" for key, value in fields.items() if key not in TEXTS)
    texts = {
        key: value if isinstance(value, bytes) else value.encode() for key, value in fields.items() if key in TEXTS
    }
    packed = b"".join(b"\nM %s\n%s" % (key.encode(), value) for key, value in texts.items()) + b"\nM end\n"
    return f"kubenode-probe=1\n{lines}texts=M\n{base64.encodebytes(packed).decode()}--\nend=1\n"
