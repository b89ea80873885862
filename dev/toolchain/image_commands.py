# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/image-commands: the image commands as files, one for each, for CAPH and others that run them in a rescue.

The collection itself puts them together when it uploads them, in the same way.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

from .paths import CHECKOUT
from .trees import linked_tree

OUTPUT = CHECKOUT / "build" / "image-commands"


def contents() -> dict[str, bytes]:
    """The commands by name."""
    if str(linked_tree()) not in sys.path:
        sys.path.append(str(linked_tree()))
    from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import programs

    return {name: programs.image_command(name) for name in programs.IMAGE_COMMANDS}


def write(folder: Path = OUTPUT) -> list[Path]:
    """Write the commands; return their paths. A command that is run meanwhile is a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in contents().items():
        draft, path = folder / (".%s.%d" % (name, os.getpid())), folder / name
        draft.write_bytes(content)
        draft.chmod(0o755)
        draft.replace(path)
        paths.append(path)
    return paths


def main(arguments: list[str] | None = None) -> int:
    """Write the commands and say their digests."""
    parser = argparse.ArgumentParser(
        prog="dev/image-commands", description=(__doc__ or "").partition(": ")[2].splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FOLDER", help="default: build/image-commands")
    for path in write(parser.parse_args(arguments).output):
        data = path.read_bytes()
        print("%s (%d KiB)  sha256:%s" % (path, len(data) >> 10, hashlib.sha256(data).hexdigest()))
    return 0
