# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""--cloud-config of the original design: the kubelet no longer reads it, but cloud components on the node do."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.private_files import replacing
from provision.errors import RunError

KEPT = Path("/etc/kubernetes/cloud-config")


def keep(source: Path, *, check: bool, target: Path = KEPT) -> bool:
    """Make `target` what `source` is, readable by root only; True when it differed. With `check` nothing is written."""
    try:
        content = source.read_bytes()
        same = target.is_file() and target.read_bytes() == content and target.stat().st_mode & 0o777 == 0o600
        if same or check:
            return not same
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with replacing(str(target)) as (file, _draft):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"--cloud-config {source}: {target}: {error.strerror}") from None
    return True
