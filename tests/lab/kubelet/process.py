# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in as a process on this host, with folders, a runtime socket and a port of its own."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from lab import ports
from lab.kubelet import build
from tests.waiting import until

LIMIT = 300.0
GROUP_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
CONFLIST = '{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "loopback"}]}'


def kubeconfig(server: str, ca_pem: str, user: dict[str, Any]) -> str:
    """A kubeconfig with one context."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem.encode()).decode()}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


class Kubelet:
    """One stand-in; nothing of the host is read or written but what tests say."""

    def __init__(self, folder: Path, version: str = "1.36.4") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.program = folder / f"kubelet-{version}"
        if not self.program.exists():
            self.program.write_bytes(build(version))
            self.program.chmod(0o755)
        self._keeper = ports.keep()
        self.port: int = self._keeper.getsockname()[1]
        self.pki, self.own, self.bootstrap = folder / "pki", folder / "kubelet.conf", folder / "bootstrap.conf"
        self.cni = folder / "cni"
        self.config, self.log = folder / "config.yaml", folder / "log"
        (folder / "swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n", encoding="utf-8")
        (folder / "cgroup").mkdir(exist_ok=True)
        (folder / "cgroup" / "cgroup.controllers").touch()
        self.environment = {
            "KUBELET_STANDIN_SWAPS": str(folder / "swaps"),
            "KUBELET_STANDIN_CGROUP": str(folder / "cgroup"),
            "KUBELET_STANDIN_CNI": str(self.cni),
            "KUBELET_STANDIN_RETRY": "0.5",
        }
        self._runtime = socket.socket(socket.AF_UNIX)
        self._runtime.bind(str(folder / "runtime.sock"))
        self._runtime.listen(8)
        self.process: subprocess.Popen[bytes] | None = None
        self.configure()

    def configure(self, **fields: Any) -> None:
        """Write the configuration file: what every test needs, and ``fields``."""
        content = {
            "apiVersion": GROUP_VERSION,
            "kind": KIND,
            "cgroupDriver": "systemd",
            "rotateCertificates": True,
            "healthzPort": self.port,
            "containerRuntimeEndpoint": f"unix://{self.folder}/runtime.sock",
            **fields,
        }
        self.config.write_text(yaml.safe_dump(content), encoding="utf-8")

    def flags(self, name: str = "") -> list[str]:
        """The flags of a join."""
        flags = [f"--config={self.config}", f"--kubeconfig={self.own}", f"--bootstrap-kubeconfig={self.bootstrap}"]
        return [*flags, f"--cert-dir={self.pki}", *([f"--hostname-override={name}"] if name else [])]

    def start(self, *flags: str) -> None:
        """Start it; its log is appended to ``log``."""
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(self.program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **self.environment},
            )

    def run(self, *flags: str) -> tuple[int, str]:
        """Run it to its end: exit status and everything it said."""
        self.start(*flags)
        return self.ended(), self.said()

    def ended(self) -> int:
        """Exit status, once there is one."""
        assert self.process is not None
        return self.process.wait(LIMIT)

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def said(self) -> str:
        """The log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def saying(self, text: str) -> None:
        """Wait until the log holds ``text``; a process that ends before that is an error at once."""

        def there() -> bool:
            if text in self.said():
                return True
            assert self.running, f"the kubelet ended before it said {text!r}:\n{self.said()}"
            return False

        until(there, text, show=self.said)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def close(self) -> None:
        """End whatever runs."""
        if self.running:
            self.stop(signal.SIGKILL)
        self._runtime.close()
        self._keeper.close()

    def forget_runtime(self) -> None:
        """The container runtime is gone."""
        self._runtime.close()

    def healthz(self, limit: float = LIMIT) -> str:
        """Answer of healthz, or the error's name."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=limit) as answer:
                return str(answer.read().decode())
        except OSError as problem:
            return type(problem).__name__

    def network(self) -> None:
        """Write a CNI configuration."""
        self.cni.mkdir(exist_ok=True)
        (self.cni / "10-net.conflist").write_text(CONFLIST, encoding="utf-8")
