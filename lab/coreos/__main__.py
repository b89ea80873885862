# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m lab.coreos build | boot"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab import coreos
from lab.errors import ImageError

from .boot import FIRMWARES, Machine, boot


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the result as JSON; what goes on, and errors, to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lab.coreos", description=coreos.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the live image, unless it is there")
    one = commands.add_parser("boot", help="boot an image made of it in QEMU until it switches itself off")
    source = one.add_mutually_exclusive_group(required=True)
    source.add_argument("--cd", default="", help="path or URL of an ISO in the drive")
    source.add_argument("--script", default="", help="URL of an iPXE script")
    one.add_argument("--firmware", choices=FIRMWARES, default="bios")
    one.add_argument("--insecure", action="store_true", help="take any certificate of an https URL")
    one.add_argument("--limit", type=float, default=600, help="seconds (default: %(default)s)")
    one.add_argument("--log", type=Path, help="where to write the console's text")
    options = parser.parse_args(arguments)
    try:
        found = _build() if options.command == "build" else _boot(options)
    except ImageError as error:
        _note(f"coreos: {error}")
        return 1
    print(json.dumps(found, indent=1))
    return 0


def _build() -> dict[str, Any]:
    return {key: str(value) for key, value in asdict(coreos.ensure(_note)).items()}


def _boot(options: argparse.Namespace) -> dict[str, Any]:
    machine = Machine(cd=options.cd, script=options.script, firmware=options.firmware, insecure=options.insecure)
    done = boot(machine, limit=options.limit, log=options.log, progress=_note)
    seen = asdict(done.seen)
    seen["ignition"] = None if done.seen.ignition is None else base64.b64encode(done.seen.ignition).decode()
    return {**seen, "at": done.at, "seconds": done.seconds}


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
