# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our modules as processes of their own, without the second that each one imports: a server imports once and forks.

A process has its own environment, folder and standard streams, as Ansible gives them; only what it imports is there
before. The server ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PREFIX = "ansible_collections.kubenode.provision.plugins.modules."


class _Server:
    """The server, and where it is asked; it ends with the pipe to its standard input."""

    def __init__(self) -> None:
        # apart, since the path of a socket may have a hundred bytes only
        self._folder = tempfile.TemporaryDirectory(prefix="kubenode-modules-")
        self.address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, self.address],
            env={**os.environ, "PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"


@functools.cache
def _server() -> _Server:
    return _Server()


def run(
    module: str, options: Mapping[str, Any], environment: Mapping[str, str], folder: Path, limit: float
) -> subprocess.CompletedProcess[str]:
    """Run a module in a folder with this environment; what it printed, and its exit code."""
    out, err = folder / "stdout", folder / "stderr"
    request = {"module": module, "environment": dict(environment), "folder": str(folder)}
    (folder / "stdin").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(limit)
        wire.connect(_server().address)
        wire.sendall(json.dumps(request).encode())
        wire.shutdown(socket.SHUT_WR)
        code = _read(wire)
    return subprocess.CompletedProcess([module], int(code), out.read_text(), err.read_text())


def _read(wire: socket.socket) -> bytes:
    return b"".join(iter(functools.partial(wire.recv, 65536), b""))


def _serve(address: str) -> None:
    """Fork for every request, until standard input ends."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    while listening in select.select([listening, 0], [], [])[0]:
        wire = listening.accept()[0]
        request = json.loads(_read(wire))
        importlib.import_module(_PREFIX + request["module"])
        if "kubernetes" in sys.modules:  # imports its classes when they are used
            for name in ("config.kube_config", "client.api.core_v1_api"):
                importlib.import_module(f"kubernetes.{name}")
        gc.freeze()  # what is imported is no garbage, for our children neither
        if os.fork() == 0:
            listening.close()
            return _answer(wire, request)
        wire.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _answer(wire: socket.socket, request: dict[str, Any]) -> None:
    """Run the module in one more process, and tell its exit code."""
    child = os.fork()
    if child:
        wire.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)  # nothing of ours is to be tidied up
    wire.close()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, (name, flags) in enumerate([("stdin", os.O_RDONLY), ("stdout", new), ("stderr", new)]):
        file = os.open(name, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.argv = [request["module"]]
    del sys.modules[_PREFIX + request["module"]]  # it is run anew; what it imports is there
    runpy.run_module(_PREFIX + request["module"], run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
