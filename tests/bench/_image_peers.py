# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers that are compared: ours, nginx, and ICC where there is one; their CPU and memory can be read."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from dev.toolchain.paths import cache, linked_tree

OURS = "ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.command_line"
NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes {workers}; {user}
events {{ worker_connections 1024; }}
http {{
  sendfile on; tcp_nopush on; access_log off; keepalive_requests 1000000000; default_type application/octet-stream;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {cache}
  server {{ listen 127.0.0.1:{port} {ssl} backlog=512; root {root}; {certificate} }}
}}
"""
CACHE = "open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s; open_file_cache_min_uses 1;"
CERTIFICATE = "ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A running server on loopback."""

    def __init__(
        self, command: list[str], port: int, log: Path, environment: dict[str, str] | None = None, tls: bool = False,
        breaks: bool = False,
    ) -> None:  # fmt: skip
        """Start it; it listens when the block of `with` begins. ``breaks``: it may end answers too early."""
        self.port, self._log, self.tls, self.breaks = port, log, tls, breaks
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


ENVIRONMENT = {"IRONIC_BASE_URL": "https://10.0.0.1:6385", "IRONIC_AGENT_IMAGE": "quay.io/ipa"}


def ours(hosts: Path, base: Path, log: Path, certificate: Path | None = None) -> Server:
    """Our image server in static mode: a host for each file in ``hosts``; HTTPS with the pair of a folder."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", OURS]
    command += ["--nmstate-dir", str(hosts), "--images-bind-addr", address]
    command += ["--images-publish-addr", f"http{'s' if certificate else ''}://{address}", "--metrics-addr", "0"]
    command += ["--max-connections-per-address", "1024", "--cache-dir", str(hosts.parent / "cache")]
    if certificate:
        command += ["--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem")]
    environment = {**ENVIRONMENT, "DEPLOY_ISO": str(base), "PYTHONPATH": str(linked_tree())}
    return Server(command, port, log, environment, certificate is not None)


def icc(program: str, hosts: Path, base: Path, log: Path) -> Server:
    """image-customization-controller's static server, whose binary the user has; it wants `nmstatectl` on the PATH.

    Several readers of one image disturb each other there: answers break off, and the benchmark only says how many.
    """
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [program, "-nmstate-dir", str(hosts), "-images-bind-addr", address]
    command += ["-images-publish-addr", f"http://{address}"]
    initrd = base.with_suffix(".initramfs")  # it makes an initramfs of every host as well, of a file of its own
    initrd.write_bytes(b"\0")
    environment = {
        **ENVIRONMENT, "DEPLOY_ISO": str(base), "DEPLOY_INITRD": str(initrd), "IRONIC_AGENT_PULL_SECRET": "e30=",
    }  # fmt: skip
    return Server(command, port, log, environment, breaks=True)


def nginx(root: Path, folder: Path, workers: int, *, cached: bool = False, certificate: Path | None = None) -> Server:
    """Nginx with sendfile on the same files as they are after writing them; ``cached``: it keeps them open."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    text = NGINX.format(
        folder=folder, port=port, root=root, workers=workers, user="user root;" if os.geteuid() == 0 else "",
        cache=CACHE if cached else "", ssl="ssl" if certificate else "",
        certificate=CERTIFICATE.format(folder=certificate) if certificate else "",
    )  # fmt: skip
    (folder / "conf").write_text(text, encoding="utf-8")
    command = [str(_nginx_program()), "-c", str(folder / "conf")]
    return Server(command, port, folder / "out", tls=certificate is not None)


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
