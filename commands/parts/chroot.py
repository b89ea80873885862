# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work inside the new root file system, whose symlinks lead where they lead in the new system."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from commands.parts.errors import Refused


def enclose(root: Path, answering: int, function, *arguments) -> None:
    """Become a process with root as /, call function, write its answer to a pipe, and end; for a child only."""
    answer = {"error": "new root file system: ended early"}
    try:
        os.chroot(str(root))
        os.chdir("/")
        sys.meta_path.clear()  # what has not been imported by now would come from the image
        answer = {"value": function(*arguments)}
    except Refused as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": "new root file system: %s" % error}
    finally:
        with os.fdopen(answering, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)


def collect(child: int, reading: int):
    """Wait for the answer of a child."""
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read() or b'{"error": "new root file system: the child was killed"}')
    os.waitpid(child, 0)
    if "error" in answer:
        raise Refused(answer["error"])
    return answer["value"]


def inside(root: Path, function, *arguments):
    """Call function with root as /, in a child: symlinks of the image lead where they lead in the new system."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        enclose(root, writing, function, *arguments)
    os.close(writing)
    return collect(child, reading)
