# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running program: its parts, the thread that looks at folders, its signals and its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import ssl
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import urls
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import DIGESTS
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Bases
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import GUESSED, secret_of_all
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import chosen
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import (
    RequestPaths,
    UrlBuilder,
    static_path,
)

from . import monitoring, publisher, requests, watched
from .answers import Answers, Registry
from .command_line import Settings
from .listener import Listener
from .monitoring import Metrics, Progress, notify, watchdog
from .publisher import Publisher
from .static_folders import DescriptorFolder, HostFolder
from .watched import LOG, CommonInputs, Problems

if TYPE_CHECKING:
    from .controller import Controller

INTERVAL = 1.0  # seconds between two looks at the folders
SWITCH = 0.001  # seconds that the making of images may hold up the sending of others
DRAIN = 10.0  # seconds that downloads get when the program ends
_STARTING = "the server is starting"


class Program:
    """Everything between the settings and the sockets. ImageError: it cannot begin like this."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """Read what there is to read; nothing is published yet."""
        if not requests.HAS_HTTPTOOLS:
            raise ImageError(
                "the image server needs the Python library httptools; install it: apt install python3-httptools, or "
                "pip install httptools"
            )
        self._settings, self._environ = settings, environ
        self._registry, self._metrics, self._progress = Registry(), Metrics(), Progress()
        self._problems = Problems()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake, self._ending, self._refreshed = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._refresh_forever, name="refresh", daemon=True)
        self._static: HostFolder | None = None
        self._descriptors: DescriptorFolder | None = None
        self._controller: Controller | None = None
        self._secret = urls.load_secret(settings.secret_file) if settings.secret_file else b""
        self._tls: watched.Certificate | None = None
        if settings.tls_cert:
            url = urllib.parse.urlsplit(settings.publish)
            name = url.hostname or "" if url.scheme == "https" else ""  # else another server has the name's certificate
            self._tls = watched.Certificate(settings.tls_cert, settings.tls_key, name)
        self._publisher: Publisher | None = None
        self._table = publisher.UrlsFile(settings.urls_file) if settings.urls_file else None
        self._named = UrlBuilder(settings.publish, self._secret, settings.signed)
        self._hidden = self._secret if settings.unguessable else None
        if settings.cache_dir:
            DIGESTS.keep(settings.cache_dir)
            if why := _unusable(settings.cache_dir):
                text = "cache-dir %s cannot be used: %s; each start computes the digests of the bases again"
                LOG.warning(text, escaped(settings.cache_dir), why)
        if settings.nmstate_dir or not settings.static:
            self._begin_hosts()
        if settings.overlays_dir:
            owned = self._static.owns if self._static is not None else lambda name: False
            self._descriptors = DescriptorFolder(
                self._registry, _folder("overlays-dir", settings.overlays_dir),
                lambda name: static_path(name, self._hidden), self._problems, owned,
            )  # fmt: skip
        prefix = urllib.parse.urlsplit(settings.publish).path
        asked = RequestPaths(prefix, self._secret if settings.signed else None)
        answers = Answers(self._registry, asked, self._make, self._later)
        context = self._tls.context if self._tls else None
        self._listener = Listener(answers, self._metrics, self._progress, settings.limits, context)

    async def run(self) -> int:
        """Serve until a signal ends it; the exit code."""
        self._loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._end, ended)
        self._loop.add_signal_handler(signal.SIGHUP, self._wake.set)
        if self._static is not None:
            self._static.begin()
        try:
            port = self._listener.start(*self._settings.bind)
        except OSError as error:
            host, port = self._settings.bind
            raise ImageError(f"images-bind-addr {host}:{port} cannot be used: {_why(error)}") from error
        LOG.info("images are served on port %d as %s", port, self._settings.publish)
        watch: asyncio.Server | None = None
        gc.freeze()  # modules are never freed
        gc.enable()
        sys.setswitchinterval(SWITCH)
        try:
            watch = await self._watchers()
            self._thread.start()
            if self._controller is not None:
                self._controller.start()
            await self._alive(ended)
        finally:
            notify(self._environ, "STOPPING=1")
            self._ending.set()
            self._wake.set()
            if watch is not None:
                watch.close()
            await self._end_all()
        return 0

    def ready(self) -> str:
        """Why it is not ready to serve; "" when it is."""
        if not self._refreshed.is_set():
            return _STARTING
        if self._controller is not None:
            return self._controller.ready()
        # One architecture, one host or one descriptor that is not served takes nothing away from the others.
        wanted, served, reasons = 0, 0, []
        if self._static is not None and self._static.wanted:
            wanted, served = self._static.wanted, self._static.served
            reasons.append(self._static.summary())
        if self._descriptors is not None:
            found, failed = len(self._descriptors.names()), self._descriptors.failed
            wanted, served = wanted + found + failed, served + found
            reasons += [f"{found} of {found + failed} descriptors are served"] if failed else []
        return "; ".join(reasons) if wanted and not served else ""

    def alive(self) -> str:
        """What has died; "" when nothing has."""
        if not self._thread.is_alive():
            return "the thread that looks at the folders has died"
        return self._controller.alive() if self._controller is not None else ""

    def status(self) -> Mapping[str, Any]:
        """For people: what is served, what is wrong."""
        return {
            "ready": self.ready() or "yes",
            "images": len(self._registry),
            "hosts": len(self._static) if self._static is not None else 0,
            "hosts_served": self._static.served if self._static is not None else 0,
            "descriptors": len(self._descriptors.names()) if self._descriptors is not None else 0,
            "problems": self._problems.all(),
        }

    def _begin_hosts(self) -> None:
        settings = self._settings
        inputs = CommonInputs(self._environ, self._problems, settings.pull_secret_file)
        run = chosen(settings.nmstate)
        hides = not settings.static or settings.unguessable or settings.guessable
        found = secret_of_all(inputs())
        if found and not hides:
            raise ImageError(GUESSED % found)
        bases = Bases(settings.iso, settings.initramfs, settings.shared_dir, later=settings.static)
        if settings.static:
            self._publisher = Publisher(
                self._registry, bases, inputs, self._secret, settings.publish, settings.signed,
                path_of=lambda key, suffix: static_path(key + suffix, self._hidden), run=run, gone=self._gone,
                secrets=hides,
            )  # fmt: skip
            folder = _folder("nmstate-dir", settings.nmstate_dir)
            self._static = HostFolder(self._publisher, bases, folder, inputs, self._problems)
            return
        if not self._secret:
            LOG.warning("no secret-file is given: URLs will be others after a restart, and on every replica")
            self._secret = os.urandom(32)
        self._publisher = Publisher(
            self._registry, bases, inputs, self._secret, settings.publish, settings.signed, run=run, gone=self._gone
        )
        self._inputs = inputs
        from .controller import Controller, namespaces
        from .controller import Settings as ControllerSettings

        # A signed URL in a status is renewed long before it is over.
        resync = min(ControllerSettings.resync, settings.signed / 2 or ControllerSettings.resync)
        wanted = ControllerSettings(namespaces(settings.namespace), resync=resync)
        self._controller = Controller(wanted, self._publisher, bases, self._problems)

    async def _watchers(self) -> asyncio.Server | None:
        if self._settings.metrics is None:
            return None
        found = monitoring.pages(self._metrics_text, self.alive, self.ready, self.status)
        try:
            server = await monitoring.serve_pages(*self._settings.metrics, found)
            LOG.info("metrics are served on port %d", server.sockets[0].getsockname()[1])
            return server
        except OSError as error:
            host, port = self._settings.metrics
            raise ImageError(f"metrics-addr {host}:{port} cannot be used: {_why(error)}") from error

    def _metrics_text(self) -> str:
        failed = (self._static.failed if self._static is not None else 0) + (
            self._descriptors.failed if self._descriptors is not None else 0
        )
        failed += self._controller.failed if self._controller is not None else 0
        text = self._metrics.text(len(self._registry), self._progress.fetched, failed)
        return text + (self._controller.metrics() if self._controller is not None else "")

    async def _alive(self, ended: asyncio.Event) -> None:
        """Notify systemd that the service is ready, and then that it still runs, until the end."""
        beat = watchdog(self._environ, os.getpid())
        announced = False
        while not ended.is_set():
            if not announced and self._refreshed.is_set():
                announced = True
                notify(self._environ, "READY=1")
            if beat and not self.alive():
                notify(self._environ, "WATCHDOG=1")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.1 if not announced else beat or None)

    def _end(self, ended: asyncio.Event) -> None:
        if ended.is_set() and self._loop is not None:  # asked twice: now
            os._exit(0)
        ended.set()

    async def _end_all(self) -> None:
        await self._listener.drain(DRAIN)
        await self._listener.stop()
        if self._controller is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._controller.stop)
        LOG.info("ended")

    def _refresh_forever(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            try:
                self._refresh()
            except Exception:
                LOG.exception("a look at the folders failed; this is a defect of the image server")
            self._refreshed.set()
            self._wake.wait(INTERVAL)

    def _refresh(self) -> None:
        if self._static is not None:
            self._static.refresh()
        if self._descriptors is not None:
            self._descriptors.refresh()
        if self._controller is not None:
            if self._inputs.refresh():
                self._controller.resync()
            self._inputs.report()
        if self._tls is not None:
            self._tls.renew(self._problems, self._use_tls)
        if self._table is not None:
            self._table.write(self._registry.changes, self._settings.signed, self._urls, self._problems)

    def _use_tls(self, context: ssl.SSLContext) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._listener.use_tls, context)

    def _urls(self) -> Mapping[str, str]:
        """Every image's name and URL."""
        found = dict(self._publisher.table()) if self._publisher else {}
        if self._descriptors is not None:
            for name in self._descriptors.names():
                found[name] = self._named.of(static_path(name, self._hidden))
        return found

    def _make(self, path: str) -> bool:
        return self._static is not None and self._static.make(path) and self._registry.get(path) is not None

    def _later(self, path: str) -> str:
        if (self._publisher and self._publisher.withheld(path)) or (
            self._descriptors and self._descriptors.withheld(path)
        ):
            return "the image of this host is not there now"
        if not self._refreshed.is_set() and self._descriptors is not None:
            return _STARTING
        return _STARTING if self._controller is not None and self._controller.ready() else ""

    def _gone(self, host: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._progress.forget, host)


def _folder(name: str, path: str) -> str:
    """A folder that is there now."""
    try:
        os.listdir(path)
    except OSError as error:
        raise ImageError(f"{name} {path!r} cannot be read: {_why(error)}") from error
    return path


def _unusable(path: str) -> str:
    """Why nothing can be kept in a folder, which is made when it is not there; "" when it can."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return ""
    except OSError as error:
        return _why(error)


def _why(error: OSError) -> str:
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # asyncio has words of its own, name look-ups numbers
