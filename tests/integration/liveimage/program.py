# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server as a process of its own, as a user starts it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from dev.toolchain.paths import linked_tree
from tests.waiting import until

#: the program's modules go by the names of the collection
FOLDER = linked_tree()
#: compiled modules of the tests' programs: a start of each without them costs a second
COMPILED = Path(__file__).parents[3] / "build" / "pycache"
MODULE = "ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.command_line"
COMMAND = [sys.executable, "-m", MODULE]
ENVIRONMENT = {"IRONIC_AGENT_IMAGE": "example.test/ipa:1", "IRONIC_BASE_URL": "http://ironic.test"}
PATIENCE = 180.0


class Program:
    """``with Program(args, environ) as server``: it listens on loopback, on a port of its own."""

    def __init__(
        self, *arguments: str, bases: Path | None = None, environ: Mapping[str, str] | None = None, port: int = 0,
        command: Sequence[str] = tuple(COMMAND), scheme: str = "http",
    ) -> None:  # fmt: skip
        self.log: list[str] = []
        self._scheme = scheme
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDER), "PYTHONPYCACHEPREFIX": str(COMPILED)}
        if bases is not None:
            own.update(ENVIRONMENT, DEPLOY_ISO=str(bases / "live.iso"), DEPLOY_INITRD=str(bases / "live.img"))
        self._process = subprocess.Popen(
            [*command, "--images-bind-addr", f"127.0.0.1:{port}", "--metrics-addr", "127.0.0.1:0", *arguments],
            env={**own, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self.log.append(line.rstrip("\n"))

    def __enter__(self) -> Self:
        try:
            self.port, self.metrics_port = self._port_of("images"), self._port_of("metrics")
            until(lambda: self.watch("/readyz") != "the server is starting\n", "the start of the server")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)

    def _port_of(self, what: str) -> int:
        def found() -> int | None:
            assert self._process.poll() is None, self.log
            ports = [re.search(what + r" are served on port (\d+)", line) for line in self.log]
            return next((int(match[1]) for match in ports if match), None)

        return until(found, f"the port of {what}", show=lambda: self.log) or 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self, path: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}{path}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url(path), timeout=PATIENCE, **options)

    def head(self, path: str, **options: Any) -> requests.Response:
        return requests.head(self.url(path), timeout=PATIENCE, **options)

    def status(self, path: str) -> int:
        return self.head(path).status_code

    def until_served(self, *paths: str) -> None:
        """Wait until all of these images are there."""
        for path in paths:
            until(lambda path=path: self.status(path) == 200, f"{path} is served")

    def watch(self, path: str) -> str:
        """A page for those who look after the server."""
        return requests.get(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=PATIENCE).text

    def problems(self) -> Mapping[str, str]:
        found = requests.get(f"http://127.0.0.1:{self.metrics_port}/status", timeout=PATIENCE).json()
        return dict(found["problems"])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """The exit code, once it has ended."""
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code
