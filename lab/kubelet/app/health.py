# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""healthz, and systemd: started, and alive as long as healthz answers. SIGUSR1 makes healthz hang."""

from __future__ import annotations

import http.client
import http.server
import os
import signal
import socket
import threading
from types import FrameType

from lab.kubelet.app import log

_PING_LIMIT = 2.0


class Health:
    """The healthz server of one address."""

    def __init__(self, address: str, port: int, stopped: threading.Event) -> None:
        """Raises OSError when the port is taken; port 0 serves nothing."""
        self._stopped = stopped
        self._hung = threading.Event()
        self._where: tuple[str, int] | None = None
        if not port:
            return
        hung = self._hung

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if hung.is_set():
                    stopped.wait()
                    return
                found = self.path.split("?")[0] in ("/healthz", "/healthz/ping", "/healthz/syncloop")
                body = b"ok" if found else b"404 page not found\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """The real one does not log these requests."""

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
            daemon_threads = True
            allow_reuse_address = True

        server = Server((address, port), Handler)
        self._where = server.server_address[:2]  # type: ignore[assignment]
        threading.Thread(target=server.serve_forever, name="healthz", daemon=True).start()

    def hang(self, *_: int | FrameType | None) -> None:
        """From now on healthz takes requests and answers none."""
        log.info("health", "healthz hangs from now on")
        self._hung.set()

    def watch(self) -> None:
        """Tell systemd that we run, and ping its watchdog at half its limit while healthz answers."""
        signal.signal(signal.SIGUSR1, self.hang)
        notify("READY=1")
        limit = int(os.environ.get("WATCHDOG_USEC", "0") or 0) / 1e6
        owner = os.environ.get("WATCHDOG_PID")
        if limit and (not owner or int(owner) == os.getpid()):
            threading.Thread(target=self._ping, args=(limit / 2,), name="watchdog", daemon=True).start()

    def _ping(self, period: float) -> None:
        log.info("watchdog_linux.go:129", "Starting systemd watchdog with interval", interval="%gs" % period)
        while not self._stopped.wait(period):
            if self.answers():
                notify("WATCHDOG=1")
            else:
                log.error(
                    "watchdog_linux.go:141",
                    "Do not notify watchdog this iteration as the kubelet is reportedly not healthy",
                )

    def answers(self) -> bool:
        """Whether healthz answers in time."""
        if self._where is None:
            return True
        connection = http.client.HTTPConnection(*self._where, timeout=_PING_LIMIT)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def notify(state: str) -> None:
    """One message to systemd, when it started us."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sender.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
    except OSError as problem:
        log.error("server.go", "Failed to notify systemd", problem)
    finally:
        sender.close()
