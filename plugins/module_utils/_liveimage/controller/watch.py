# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Events of the cluster by kopf, in a thread of its own; kopf writes nothing to any object.

It has only handlers of raw events, for which kopf keeps no state and sets no finalizer; decisions, writes, delays and
retries are ours, since their order and times are part of the API.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ImageError
from . import api
from .secrets import LABEL, LABEL_VALUE

_UNUSED = "images.kubenode.provision/unused"  # kopf takes a finalizer of its own away wherever it finds one
_RENEWED = 300.0  # seconds after which the token is read again
if TYPE_CHECKING:  # Python 3.8 has no such forms
    Noticed = Callable[[str, Mapping[str, Any]], None]


class Watch:
    """Tells of images and of Secrets that have our label; `run` ends when ``stop`` is set or kopf gives up."""

    def __init__(
        self, settings: Any, namespaces: Sequence[str], image: Noticed, secret: Noticed | None, stop: threading.Event
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
        kopf.on.event(api.GROUP, api.VERSION, api.PLURAL, id="image", registry=registry)(_handler(self._image))
        if self._secret is not None:
            kopf.on.event("", "v1", "secrets", id="secret", registry=registry)(_handler(self._secret))
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # namespaces and kinds are known: no right to look for them is needed
        settings.persistence.finalizer = _UNUSED
        settings.process.ultimate_exiting_timeout = None  # the process has more to do than this
        settings.watching.label_selectors["", "v1", "secrets"] = "%s=%s" % (LABEL, LABEL_VALUE)
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

        scheme, _blank, token = api.authorization(self._settings).strip().rpartition(" ")
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=_RENEWED)
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


def _handler(noticed: Noticed) -> Callable[..., Any]:
    async def handle(event: Mapping[str, Any], **_ignored: Any) -> None:
        noticed(event["type"] or "", event["object"])

    return handle


def quiet() -> None:
    """kopf tells of every handler and every event; only what goes wrong is of interest, or all when debugging."""
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("kopf").setLevel(logging.WARNING)
