# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's entry: settings, log, limits. It ends with 0 by a signal, 1 when it cannot go on, 2: wrong settings."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError

from .command_line import parse

FAILED, USAGE = 1, 2


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until a signal; errors are one line on stderr."""
    gc.disable()  # until all is there: a good part of a start is spent on looking for garbage among modules
    try:
        return _run(argv, environ)
    finally:
        gc.enable()


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        settings = parse(argv, environ)
        logging.basicConfig(
            level=settings.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
        )
        _many_files()
        from .service import Program

        program = Program(settings, environ)
    except ImageError as error:
        return _failed(error, USAGE)
    try:
        return asyncio.run(program.run())
    except ImageError as error:
        return _failed(error, FAILED)


def _failed(error: ImageError, code: int) -> int:
    sys.stderr.write(f"image-server: {escaped(str(error))}\n")
    return code


def _many_files() -> None:
    """As many connections as the system allows."""
    with contextlib.suppress(ValueError, OSError):
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
