# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller beside the image server: events in, images and statuses out; it runs until it is stopped.

Any number of replicas may run: each serves every image itself, and all of them would write the same. kopf watches and
writes nothing; docs/design.md (Live images) says why decisions, writes, delays and retries are ours.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

from . import kubernetes_api
from .kubernetes_api import LABEL, LABEL_VALUE, Api, ApiFailed, Conflict, Forbidden, Unreachable
from .reconcile import LOG, Images, Key, Reconciler, key_of, problem_of

_NO_FINALIZER = "images.kubenode.provision/unused"  # kopf takes a finalizer of its own away wherever it finds one
_TOKEN_READ_AGAIN = 300.0  # seconds after which the token is read again
if TYPE_CHECKING:
    from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Bases

    from .publisher import Publisher
    from .watched import Problems

    OnEvent = Callable[[str, Mapping[str, Any]], None]
_FIRST_RETRY, _LONGEST_RETRY, _LONGEST_UNREACHABLE = 0.5, 300.0, 15.0  # seconds
_UNWATCHED = 60.0  # seconds between passes over everything where Secrets are not watched
_AGAIN = 5.0  # seconds until a watch that ended, or lacked a right, is tried again


class WorkQueue:
    """Keys with the moment they are due; any number of threads put and take."""

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._taken: set[Hashable] = set()
        self._again: dict[Hashable, float] = {}  # put while a worker had them
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, key: Hashable, delay: float = 0.0) -> None:
        """Have a key taken in ``delay`` seconds, or earlier when that is asked for already."""
        with self._changed:
            self._put(key, time.monotonic() + delay)

    def take(self) -> Hashable | None:
        """The next key, when it is due; None when the queue was closed. `done` gives it back."""
        with self._changed:
            while not self._closed:
                wait = None
                if self._heap:
                    due, _number, key = self._heap[0]
                    if self._due.get(key) != due:  # asked for earlier since
                        heapq.heappop(self._heap)
                        continue
                    wait = due - time.monotonic()
                    if wait <= 0:
                        heapq.heappop(self._heap)
                        del self._due[key]
                        self._taken.add(key)
                        return key
                self._changed.wait(wait)
            return None

    def done(self, key: Hashable, delay: float | None = None) -> None:
        """A worker is through with a key, which is due again in ``delay`` seconds (None: when it is put)."""
        with self._changed:
            self._taken.discard(key)
            due = self._again.pop(key, None)
            if delay is not None:
                later = time.monotonic() + delay
                due = later if due is None else min(due, later)
            if due is not None:
                self._put(key, due)

    def close(self) -> None:
        """Let every worker go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._due) + len(self._taken)

    def _put(self, key: Hashable, due: float) -> None:
        if key in self._taken:
            self._again[key] = min(due, self._again.get(key, due))
        elif due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.notify()


class ClusterWatch:
    """Events of images and of Secrets that have our label; `run` ends when ``stop`` is set or kopf gives up."""

    def __init__(
        self, settings: Any, namespaces: Sequence[str], image: OnEvent, secret: OnEvent | None, stop: threading.Event
    ) -> None:
        """``image`` and ``secret`` are called with the event's type ("" for what was there before) and the object.

        Without ``secret``, Secrets are not watched.
        """
        self._settings, self._namespaces, self._stop = settings, tuple(namespaces), stop
        self._image, self._secret = image, secret
        self.ready = threading.Event()

    def run(self) -> None:
        """Watch; raises what kopf gave up for."""
        try:
            import kopf
        except ImportError as error:
            raise ImageError("the controller needs the Python library kopf; install it: pip install kopf") from error

        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event(
            kubernetes_api.GROUP, kubernetes_api.VERSION, kubernetes_api.PLURAL, id="image", registry=registry
        )(_handler(self._image))
        if self._secret is not None:
            kopf.on.event("", "v1", "secrets", id="secret", registry=registry)(_handler(self._secret))
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # namespaces and kinds are known: no right to look for them is needed
        settings.persistence.finalizer = _NO_FINALIZER
        settings.process.ultimate_exiting_timeout = None  # the process has more to do than this
        settings.watching.label_selectors["", "v1", "secrets"] = f"{LABEL}={LABEL_VALUE}"
        settings.watching.chunk_size = 500
        where: dict[str, Any] = {"namespaces": self._namespaces} if self._namespaces else {"clusterwide": True}
        asyncio.run(
            kopf.operator(
                registry=registry, settings=settings, standalone=True, stop_flag=self._stop,
                ready_flag=self.ready, **where,
            )
        )  # fmt: skip

    def _login(self, **_ignored: Any) -> Any:
        import kopf

        scheme, _blank, token = kubernetes_api.authorization(self._settings).strip().rpartition(" ")
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=_TOKEN_READ_AGAIN)
        return kopf.ConnectionInfo(
            server=self._settings.host,
            ca_path=self._settings.ssl_ca_cert or None,
            insecure=not self._settings.verify_ssl,
            scheme=scheme.capitalize() or None,
            token=token or None,
            certificate_path=self._settings.cert_file or None,
            private_key_path=self._settings.key_file or None,
            proxy_url=getattr(self._settings, "proxy", None) or None,
            expiration=until if token else None,
        )


def _handler(on_event: OnEvent) -> Callable[..., Any]:
    async def handle(event: Mapping[str, Any], **_ignored: Any) -> None:
        on_event(event["type"] or "", event["object"])

    return handle


def quieten_kopf() -> None:
    """kopf logs every handler and every event; keep only what goes wrong, or all when debugging."""
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("kopf").setLevel(logging.WARNING)
    # signals are the main thread's here, which ends kopf
    logging.getLogger("kopf._core.reactor.running").addFilter(_not_of_signals)


def _not_of_signals(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("OS signals are ignored")


@dataclass(frozen=True)
class Settings:
    """``namespaces`` to serve (none: all), ``workers`` that build at once, seconds between passes over everything."""

    namespaces: tuple[str, ...] = ()
    workers: int = 4
    resync: float = 300.0


def _problem_of(key: Key) -> str:
    return f"image {'/'.join(key)}"


def namespaces(text: str) -> tuple[str, ...]:
    """Of a list with commas, as --namespace and WATCH_NAMESPACE have it; none: all of the cluster."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


class Controller:
    """``start``, ``ready`` and ``alive`` for probes, ``metrics``, ``stop``."""

    def __init__(
        self, settings: Settings, publisher: Publisher, bases: Bases, problems: Problems,
        environ: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """The other parts are those of the server; ImageError when there is no way to an API server."""
        self._settings, self._bases, self._problems = settings, bases, problems
        self._connection = kubernetes_api.configuration(os.environ if environ is None else environ)
        self._api = Api(self._connection)
        self._images = Images(publisher, bases.state)
        self._reconciler = Reconciler(self._api, self._images, bases.supports)
        self._queue, self._stop = WorkQueue(), threading.Event()
        self._again, self._asked = threading.Event(), False  # wakes the supervisor; what for
        self._wants: dict[Key, str] = {}  # object → name of its Secret
        self._failures: dict[Key, int] = {}
        self._unserved: set[Key] = set()
        self._unseen: set[Key] | None = None  # objects that had no pass yet; None: not listed yet
        self._problem = "the cluster's images were not read yet"
        self._lock = threading.Lock()
        self._passes = self._errors = 0
        self._watched = True  # Secrets
        self._threads = [threading.Thread(target=self._supervise, name="controller", daemon=True)] + [
            threading.Thread(target=self._work, name=f"controller-{number}", daemon=True)
            for number in range(settings.workers)
        ]

    def start(self) -> None:
        """Begin; returns at once."""
        quieten_kopf()
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """End; what is being written is finished."""
        self._stop.set()
        self._again.set()
        self._queue.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout)

    def resync(self) -> None:
        """Reconcile every object: what all of them are made of has changed."""
        self._asked = True
        self._again.set()

    def ready(self) -> str:
        """Why this replica does not serve what it should; "" when it does."""
        with self._lock:
            if self._unseen is None:
                return self._problem
            return f"{len(self._unseen)} images were not looked at yet" if self._unseen else ""

    def alive(self) -> str:
        """What of it has died; "" when nothing has."""
        dead = [thread.name for thread in self._threads if thread.ident is not None and not thread.is_alive()]
        return "" if self._stop.is_set() or not dead else f"{', '.join(dead)} died"

    @property
    def failed(self) -> int:
        """Images that are not served, whether their inputs, their base or the cluster is to blame."""
        with self._lock:
            return len(self._unserved)

    def metrics(self) -> str:
        """Lines in Prometheus' format."""
        lines = []
        for name, kind, value in (
            ("looks_total", "counter", self._passes),
            ("errors_total", "counter", self._errors),
            ("status_writes_total", "counter", self._reconciler.written),
            ("waiting", "gauge", len(self._queue)),
            ("images", "gauge", len(self._images.held())),
        ):
            lines += [f"# TYPE kubenode_controller_{name} {kind}", f"kubenode_controller_{name} {value}"]
        return "\n".join(lines) + "\n"

    def _supervise(self) -> None:
        """Watch for as long as the process lives, and reconcile everything now and then."""
        watcher: threading.Thread | None = None
        synced = float("-inf")
        while not self._stop.is_set():
            self._again.clear()
            try:
                if watcher is None or not watcher.is_alive():
                    self._check()
                    watcher = threading.Thread(target=self._watching, name="controller-watch", daemon=True)
                    watcher.start()
                    synced = float("-inf")  # events may have been missed
                for key in self._images.outdated():
                    self._queue.put(key)
                self._report_bases()
                resync = self._settings.resync if self._watched else min(self._settings.resync, _UNWATCHED)
                if self._asked or time.monotonic() - synced >= resync:
                    self._asked = False
                    self._sync()
                    synced = time.monotonic()
            except ApiFailed as error:
                self._report(str(error))
                synced = float("-inf")
            self._again.wait(_AGAIN)
        if watcher is not None:
            watcher.join(10.0)

    def _report_bases(self) -> None:
        """A base that is away is a problem, although what is served over it may go on until the next start."""
        for arch in self._images.architectures():
            self._problems.report(f"bases of {arch or self._bases.own_arch}", self._bases.away(arch))

    def _check(self) -> None:
        """Raise why watching is impossible: no such kind in the cluster, rights that are missing."""
        missing, hidden = [], []
        for place in self._places():
            missing += self._api.missing_rights(place, kubernetes_api.IMAGE_RIGHTS)
            if place is not None:  # else rights are those of each namespace; a pass over its objects finds what lacks
                missing += self._api.missing_rights(place, kubernetes_api.SECRET_RIGHTS)
            hidden += self._api.missing_rights(place, kubernetes_api.WATCH_RIGHTS)
        if missing:
            raise Forbidden(f"the service account lacks {'; '.join(missing)}; see deploy/image_server")
        if not self._api.kind_exists():
            raise ApiFailed("the cluster has no PreprovisioningImages; install the CRDs of metal3.io")
        self._watched = not hidden
        if hidden:
            LOG.info(
                "Secrets are read every %d seconds, and not watched: no right to %s", _UNWATCHED, "; ".join(hidden)
            )

    def _watching(self) -> None:
        secret = self._secret_event if self._watched else None
        watch = ClusterWatch(self._connection, self._settings.namespaces, self._image_event, secret, self._stop)
        try:
            watch.run()
        except Exception as error:  # noqa: BLE001 - kopf gave up for any reason: begun again
            LOG.warning("the watch ended and is begun again: %s: %s", type(error).__name__, error)

    def _sync(self) -> None:
        """Queue every object, and those that are gone but still served."""
        found = {key_of(image): image for place in self._places() for image in self._api.images(place)}
        with self._lock:
            if self._unseen is None:
                self._unseen = set(found)
                LOG.info("%d images to look at", len(found))
            self._problem = ""
        for key, image in found.items():
            self._remember(image)
            self._queue.put(key)
        for key in self._images.held():
            if key not in found:
                self._queue.put(key)

    def _work(self) -> None:
        while True:
            key: Any = self._queue.take()
            if key is None:
                return
            delay: float | None = _FIRST_RETRY
            try:
                delay = self._reconcile(key)
            finally:
                self._queue.done(key, delay)
                with self._lock:
                    if self._unseen:
                        self._unseen.discard(key)

    def _reconcile(self, key: Key) -> float | None:
        self._passes += 1
        problem = ""

        def remember(image: Mapping[str, Any]) -> None:
            nonlocal problem
            problem = problem_of(image)
            self._remember(image)

        try:
            delay = self._reconciler.reconcile(*key, remember)
        except Conflict:
            return random.uniform(0.05, 0.5)  # another replica works on it; the two must not come again at once
        except ApiFailed as error:
            self._report_of(key, str(error))
            longest = _LONGEST_UNREACHABLE if isinstance(error, Unreachable) else _LONGEST_RETRY
        except Exception as error:
            LOG.exception("%s/%s", *key)
            self._report_of(key, f"a defect of the image server: {type(error).__name__}")
            longest = _LONGEST_RETRY
        else:
            self._failures.pop(key, None)
            self._report_of(key, problem)
            return delay
        self._errors += 1
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(_FIRST_RETRY * 2.0 ** min(count - 1, 20), longest)

    def _report_of(self, key: Key, problem: str) -> None:
        self._problems.report(_problem_of(key), problem)
        with self._lock:
            (self._unserved.add if problem else self._unserved.discard)(key)

    def _image_event(self, kind: str, image: Mapping[str, Any]) -> None:
        if kind == "DELETED":
            with self._lock:
                self._wants.pop(key_of(image), None)
                self._unserved.discard(key_of(image))
            self._problems.forget(_problem_of(key_of(image)))
        else:
            self._remember(image)
        self._queue.put(key_of(image))

    def _secret_event(self, _kind: str, secret: Mapping[str, Any]) -> None:
        """A Secret concerns those that have claimed it and those that wait for it."""
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        with self._lock:
            keys = {key for key, wanted in self._wants.items() if key[0] == namespace and wanted == name}
            keys |= {
                key
                for key in ((namespace, owner) for owner in kubernetes_api.secret_owners(secret))
                if key in self._wants
            }
        for key in keys:
            self._queue.put(key)

    def _remember(self, image: Mapping[str, Any]) -> None:
        with self._lock:
            self._wants[key_of(image)] = (image.get("spec") or {}).get("networkDataName") or ""

    def _places(self) -> tuple[str | None, ...]:
        return self._settings.namespaces or (None,)

    def _report(self, problem: str) -> None:
        with self._lock:
            again, self._problem = self._problem == problem, problem
        if not again:
            LOG.error("%s", problem)
