# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""--cloud-config of the original design: the kubelet no longer reads it, but cloud components on the node do."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

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
        # mkstemp makes it 0600 from its first moment
        number, draft = tempfile.mkstemp(prefix=".cloud-config.", dir=target.parent)
        try:
            with os.fdopen(number, "wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            os.rename(draft, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise RunError(f"--cloud-config {source}: {target}: {error.strerror}") from None
    return True
