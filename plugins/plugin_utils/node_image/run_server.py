# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A web server on loopback beside a run of Ansible, and the program it runs in, which is told everything on stdin.

Machines reach it through a tunnel of their SSH connection. It ends with the run, however that ends.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

#: Seconds between two looks whether anybody still needs us.
_LOOK_EVERY = 1.0


def start(kind: str, files: dict[str, Any]) -> int:
    """Start a server for the run that this worker belongs to; returns its port.

    ``kind`` is a module beside this one with ``handler(files)`` and ``ended(files)``. Raises OSError when it does not
    start.
    """
    # a worker ends with its task; the run is its parent
    run = os.getppid()
    order = json.dumps({"pid": run, "start": start_of(run), "files": files})
    process = subprocess.Popen(
        [sys.executable, __file__, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:
        raise OSError("the server beside this run has no pipes")
    with process.stdin as stdin:
        stdin.write(order.encode())
    with process.stdout as stdout:
        port = stdout.readline().strip()
    if not re.fullmatch(rb"[0-9]{1,5}", port):
        raise OSError(f"the server beside this run did not start (exit code {process.wait(timeout=10)})")
    return int(port)


def start_of(pid: int) -> str:
    """When a process began, in ticks since boot; empty when there is none. With the pid it names one process only."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "running"
    return "" if fields[0] == "Z" else fields[19]


def main() -> int:
    """Serve until the process of the order is gone; the port is told on stdout."""
    kind = importlib.import_module(sys.argv[1])
    order = json.load(sys.stdin)
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind.handler(order["files"]))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdout.close()
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while start_of(order["pid"]) == order["start"]:
        time.sleep(_LOOK_EVERY)
    kind.ended(order["files"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
