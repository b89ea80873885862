# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/image-server: the program `image-server`, packed as the role image_server packs it."""

from __future__ import annotations

import sys

from plugins.plugin_utils.image_server import pack_program

from .paths import CHECKOUT

OUTPUT = CHECKOUT / "build" / "image-server"


def main(arguments: list[str] | None = None) -> int:
    """Write the program and say its digest."""
    return pack_program.main(["--output", str(OUTPUT), *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    raise SystemExit(main())
