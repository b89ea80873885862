# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two servers that are compared: our image server and nginx, each as processes whose CPU and memory can be read."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from dev.toolchain.paths import CHECKOUT, cache

PACKAGES = CHECKOUT / "plugins" / "module_utils"  # the server's package runs from anywhere
NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes {workers}; {user}
events {{ worker_connections 1024; }}
http {{
  sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000000; default_type application/octet-stream;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} backlog=512; root {root}; }}
}}
"""


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A running server on loopback."""

    def __init__(self, command: list[str], port: int, log: Path, environment: dict[str, str] | None = None) -> None:
        """Start it; it listens when the block of `with` begins."""
        self.port, self._log = port, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env={**os.environ, **(environment or {})}, cwd=log.parent
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{self.process.args} does not listen:\n{self._log.read_text()}") from None
                time.sleep(0.005)

    def __exit__(self, *_error: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def pids(self) -> list[int]:
        """Its processes: the one that was started, and its workers."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu(self) -> float:
        """CPU seconds of all its threads so far."""
        tasks = [task for pid in self.pids() for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def rss(self, most: bool = False) -> float:
        """Resident memory in MB, now or at its highest, of all its processes."""
        key = "VmHWM:" if most else "VmRSS:"
        lines = [line for pid in self.pids() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024 / 1e6


def ours(hosts: Path, base: Path, log: Path) -> Server:
    """Our image server in static mode: a host for each file in ``hosts``."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "_liveimage.service.main"]
    command += ["--nmstate-dir", str(hosts), "--images-bind-addr", address]
    command += ["--images-publish-addr", f"http://{address}", "--metrics-addr", "0"]
    command += ["--max-connections-per-address", "1024", "--cache-dir", str(hosts.parent / "cache")]
    environment = {
        "DEPLOY_ISO": str(base), "IRONIC_BASE_URL": "https://10.0.0.1:6385", "IRONIC_AGENT_IMAGE": "quay.io/ipa",
        "PYTHONPATH": str(PACKAGES),
    }  # fmt: skip
    return Server(command, port, log, environment)


def nginx(root: Path, folder: Path, workers: int) -> Server:
    """Nginx with sendfile on the same files as they are after writing them."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    text = NGINX.format(folder=folder, port=port, root=root, workers=workers, user=user)
    (folder / "conf").write_text(text, encoding="utf-8")
    return Server([str(_nginx_program()), "-c", str(folder / "conf")], port, folder / "out")


def _nginx_program() -> Path:
    """Debian's nginx, unpacked and not installed: an installed one would begin to listen on port 80."""
    found = shutil.which("nginx", path="/usr/sbin:/usr/bin:" + os.environ["PATH"])
    if found:
        return Path(found)
    folder = cache() / "bench-nginx"
    program = folder / "usr" / "sbin" / "nginx"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "nginx"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        package = next(folder.glob("nginx_*.deb"))
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return program
