# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of images in a thread, on loopback."""

import asyncio
import ssl
import threading
from typing import Self

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Answers, Registry
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.listener import Limits, Listener
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.monitoring import Metrics, Progress


class Served:
    """``with Served(registry) as server``: ``server.url(path)``."""

    def __init__(self, registry: Registry, *, limits: Limits | None = None, tls: ssl.SSLContext | None = None,
                 path_of=None, port: int = 0) -> None:  # fmt: skip
        self.metrics, self.progress = Metrics(), Progress()
        self._tls, self.port = tls, port
        self.listener = Listener(Answers(registry, path_of), self.metrics, self.progress, limits or Limits(), tls)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(180)
        return self

    async def _start(self) -> int:
        return self.listener.start("127.0.0.1", self.port)

    def __exit__(self, *_error: object) -> None:
        asyncio.run_coroutine_threadsafe(self.listener.stop(), self.loop).result(180)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(180)
        self.loop.close()

    def url(self, path: str) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"
