# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work inside the new root file system, whose symlinks lead where they lead in the new system."""

from __future__ import annotations

import json
import os
from pathlib import Path

from commands.parts.errors import Refused


def inside(root: Path, function, *arguments):
    """Call function with root as /, in a child: symlinks of the image lead where they lead in the new system."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = {"error": "ended early"}
        try:
            os.chroot(str(root))
            os.chdir("/")
            answer = {"value": function(*arguments)}
        except OSError as error:
            answer = {"error": str(error)}
        finally:
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read() or b'{"error": "the child was killed"}')
    os.waitpid(child, 0)
    if "error" in answer:
        raise Refused("new root file system: %s" % answer["error"])
    return answer["value"]
