# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pass over one object: ask `decide`, do it, ask again, until nothing is to be done."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Tuple

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs

from . import resources
from .decide import BuildRequest, Built, Missing, NotYet, Observed, Plan, Refused, Secret, decide
from .kubernetes_api import Api, Conflict, NotFound
from .resources import claimed_secret, unix_time

Key = Tuple[str, str]  # namespace and name of an object
_OF = {"iso": "iso", "initrd": "initramfs"}  # the API's word → ours
_ARGUMENTS = "coreos.live.rootfs_url=%s ignition.firstboot ignition.platform.id=metal"
if TYPE_CHECKING:
    from ..publisher import Publisher

LOG = logging.getLogger("kubenode.images.controller")
_MOST_STEPS = 40  # more are a loop that writes of others keep alive


@dataclass
class _Held:
    """What is served for an object, and which bases it was made of."""

    key: str
    architecture: str
    bases: tuple[str, ...]


class Images:
    """The images of objects; any number of threads, but one at a time for one object."""

    def __init__(self, publisher: Publisher, bases: Callable[[str], tuple[str, ...]]) -> None:
        """``bases``: from an architecture to the state of its bases, as `Bases.state`."""
        self._publisher, self._bases = publisher, bases
        self._held: dict[Key, _Held] = {}
        self._lock = threading.Lock()

    def build(self, image: Mapping[str, Any], request: BuildRequest) -> Built | Refused | NotYet:
        """Serve the image that is asked for; another one that was served for the object before goes."""
        metadata = image["metadata"]
        place = (metadata["namespace"], metadata["name"])
        state = self._bases(request.architecture)  # before the base is read: what is newer is noticed later
        try:
            network = resources.network_data(request.secret.data) if request.secret is not None else ""
            key = _image_key(metadata, request, network)
            host = HostInputs(name="/".join(place), hostname=metadata["name"], network=network)
            kind = _OF[request.format]
            of_secret = request.secret.created if request.secret else 0.0
            created = max(unix_time(metadata.get("creationTimestamp")), of_secret)
            urls = self._publisher.publish(key, host, request.architecture, (kind,), modified=created)
            files = self._publisher.boot_files(request.architecture) if kind == "initramfs" else {}
        except NotReady:
            return NotYet()
        except ImageError as error:
            with self._lock:
                if place in self._held:
                    self._held[place].bases = state
            return Refused(str(error))
        with self._lock:
            old = self._held.get(place)
            self._held[place] = _Held(key, request.architecture, state)
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

    def held(self) -> list[Key]:
        """The objects that something is served for."""
        with self._lock:
            return list(self._held)

    def outdated(self) -> list[Key]:
        """The objects whose images were made of bases that are others now."""
        with self._lock:
            held = dict(self._held)
        states = {one: self._bases(one) for one in {entry.architecture for entry in held.values()}}
        return [place for place, entry in held.items() if states[entry.architecture] != entry.bases]


def _image_key(metadata: Mapping[str, Any], request: BuildRequest, network: str) -> str:
    """The same on every replica, and another one for another network: a new URL never serves an old image."""
    digest = hashlib.sha256(network.encode("utf-8")).hexdigest()[:16] if network else "dhcp"
    parts = (metadata["namespace"], metadata["name"], metadata["uid"], request.architecture or "own", digest)
    return "-".join(parts)


class Reconciler:
    """Reconciles objects; one thread for one object at a time."""

    def __init__(
        self, api: Api, images: Images, supports: Callable[[str], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """``supports``: whether there are bases for an architecture; "" is this machine's."""
        self._api, self._images, self._supports, self._clock = api, images, supports, clock
        self.written = 0  # writes of status so far

    def reconcile(self, namespace: str, name: str, remember: Callable[[Mapping[str, Any]], None]) -> float | None:
        """One pass. Returns the seconds until the next one, None when only an event can change anything.

        ``remember`` is called with every state of the object that is read. Raises ApiFailed when it cannot be finished.
        """
        try:
            image = self._api.image(namespace, name)
        except NotFound:
            self._images.forget(namespace, name)
            return None
        seen = self._observed(image)
        for _step in range(_MOST_STEPS):
            remember(seen.image)
            plan = decide(seen)
            if plan.forget:
                self._images.forget(namespace, name)
            if plan.last:
                return plan.retry
            built = seen.outcome is not None  # the status says so, and nothing is left to do
            try:
                seen = self._done(seen, plan)
            except NotFound:
                self._images.forget(namespace, name)
                return None
            if plan.status is not None and (plan.retry is not None or built):
                return plan.retry
        return 1.0

    def _observed(self, image: Mapping[str, Any]) -> Observed:
        wanted = (image.get("spec") or {}).get("architecture") or ""
        return Observed(image=image, now=self._clock(), supported=self._supports(wanted))

    def _done(self, seen: Observed, plan: Plan) -> Observed:
        """What is known when the plan was carried out."""
        image = seen.image
        if plan.read:
            return replace(seen, secret=self._secret(image, plan))
        if plan.build is not None:
            outcome = self._images.build(image, plan.build)
            LOG.debug("%s/%s: %s", *_named(image), type(outcome).__name__)
            return replace(seen, outcome=outcome)
        if plan.finalizers is not None:
            return self._observed(self._api.set_finalizers(image, plan.finalizers))
        if plan.status is None:
            raise RuntimeError("a plan that asks for nothing was carried out")
        difference = resources.difference(image.get("status") or {}, plan.status)
        self.written += 1
        new = self._api.set_status(image, difference)
        _log_status(new)
        return self._observed(new)

    def _secret(self, image: Mapping[str, Any], plan: Plan) -> Secret | Missing:
        """Read a Secret and claim it; one that is being deleted is not claimed any more."""
        namespace = image["metadata"]["namespace"]
        for _attempt in range(5):
            try:
                found = self._api.secret(namespace, plan.read)
            except NotFound:
                return Missing()
            mine = claimed_secret(found, image) if plan.claim else None
            if mine is None:
                break
            try:
                found = self._api.replace_secret(mine)
                break
            except NotFound:
                return Missing()
            except Conflict:  # another object claims it at the same moment
                continue
        else:
            raise Conflict(f"Secret {namespace}/{plan.read} is being changed all the time")
        metadata = found["metadata"]
        created = resources.unix_time(metadata.get("creationTimestamp"))
        return Secret(plan.read, metadata["resourceVersion"], found.get("data") or {}, created)


def _log_status(image: Mapping[str, Any]) -> None:
    """One log line for a new status, without URLs: who reads one can read the image."""
    status = image.get("status") or {}
    ready, error = resources.condition(status, resources.READY), resources.condition(status, resources.ERROR)
    failed = error.get("status") == "True"
    LOG.log(
        logging.WARNING if failed else logging.INFO,
        "%s/%s: %s, %s: %s",
        *_named(image),
        "error" if failed else "ready" if ready.get("status") == "True" else "not ready",
        (error if failed else ready).get("reason"),
        (error if failed else ready).get("message"),
    )


def _named(image: Mapping[str, Any]) -> tuple[str, str]:
    return image["metadata"]["namespace"], image["metadata"]["name"]
