# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image commands of a user's own."""

from __future__ import annotations

from tests.image_commands import written_by_shell


def waiting_command(folder):
    """A command of the user's own: says that it starts, waits for /root/go, then does what raw-disk does."""
    folder.mkdir(exist_ok=True)
    path = folder / "image-url-command-slow"
    script = f"""#!/bin/bash
set -e
echo start >> /root/starts
echo "start $(wc -l < /root/starts)"
while [ ! -e /root/go ]; do sleep 0.2; done
{written_by_shell("raw-disk", "/root/raw-disk")}/root/raw-disk "$@"
"""
    path.write_text(script)
    path.chmod(0o755)
    return path
