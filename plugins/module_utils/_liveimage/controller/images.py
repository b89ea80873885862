# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What this replica serves for which object: wishes become published images, old ones go."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..bases import NotReady
from ..errors import ImageError
from ..hosts import HostInputs
from . import secrets
from .decide import Built, NotYet, Refused, Wish
from .status import moment

Object = tuple  # (namespace, name)
_OF = {"iso": "iso", "initrd": "initramfs"}  # the API's word → ours
_ARGUMENTS = "coreos.live.rootfs_url=%s ignition.firstboot ignition.platform.id=metal"


@dataclass
class _Held:
    """What is served for an object, and which bases it was made of."""

    key: str
    architecture: str
    bases: Any


class Images:
    """The images of objects; any number of threads, but one at a time for one object."""

    def __init__(self, publisher: Any, bases: Callable[[str], Any]) -> None:
        """``publisher`` acts like a `service.publisher.Publisher`; ``bases`` tells an architecture's bases' state."""
        self._publisher, self._bases = publisher, bases
        self._held: dict[Object, _Held] = {}
        self._lock = threading.Lock()

    def build(self, image: Mapping[str, Any], wish: Wish) -> Built | Refused | NotYet:
        """Serve what is wished; what was served for the object before goes when that is another image."""
        metadata = image["metadata"]
        place = (metadata["namespace"], metadata["name"])
        state = self._bases(wish.architecture)  # before the base is read: what is newer is noticed later
        try:
            network = secrets.network_data(wish.secret.data) if wish.secret is not None else ""
            key = _key(metadata, wish, network)
            host = HostInputs(name="/".join(place), hostname=metadata["name"], network=network)
            kind = _OF[wish.format]
            created = max(moment(metadata.get("creationTimestamp")), wish.secret.created if wish.secret else 0.0)
            urls = self._publisher.publish(key, host, wish.architecture, (kind,), modified=created)
            files = self._publisher.boot_files(wish.architecture) if kind == "initramfs" else {}
        except NotReady:
            return NotYet()
        except ImageError as error:
            with self._lock:
                if place in self._held:
                    self._held[place].bases = state
            return Refused(str(error))
        with self._lock:
            old = self._held.get(place)
            self._held[place] = _Held(key, wish.architecture, state)
        if old is not None and old.key != key:
            self._publisher.discard(old.key)
        rootfs = files.get("rootfs", "")
        return Built(urls[kind], files.get("kernel", ""), _ARGUMENTS % rootfs if rootfs else "")

    def forget(self, namespace: str, name: str) -> None:
        """Serve nothing for the object."""
        with self._lock:
            held = self._held.pop((namespace, name), None)
        if held is not None:
            self._publisher.discard(held.key)

    def held(self) -> list[Object]:
        """The objects that something is served for."""
        with self._lock:
            return list(self._held)

    def outdated(self) -> list[Object]:
        """The objects whose images were made of bases that are others now."""
        with self._lock:
            held = dict(self._held)
        states = {one: self._bases(one) for one in {entry.architecture for entry in held.values()}}
        return [place for place, entry in held.items() if states[entry.architecture] != entry.bases]


def _key(metadata: Mapping[str, Any], wish: Wish, network: str) -> str:
    """The same on every replica, and another one for another network: nobody is sent an old image by a new URL."""
    digest = hashlib.sha256(network.encode("utf-8")).hexdigest()[:16] if network else "dhcp"
    parts = (metadata["namespace"], metadata["name"], metadata["uid"], wish.architecture or "own", digest)
    return "-".join(parts)
