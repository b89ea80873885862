# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pass over one object: ask `decide`, do it, ask again, until nothing is to be done."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Tuple

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

from . import kubernetes_api
from .kubernetes_api import (
    BUILD_INVALID,
    CONFIGURATION_ERROR,
    ERROR,
    MISSING_NETWORK_DATA,
    READY,
    SUCCESS,
    Api,
    Conflict,
    Forbidden,
    NotFound,
    claimed_secret,
    unix_time,
)

Key = Tuple[str, str]  # namespace and name of an object
_OF = {"iso": "iso", "initrd": "initramfs"}  # the API's word → ours
_ARGUMENTS = "coreos.live.rootfs_url=%s ignition.firstboot ignition.platform.id=metal"
if TYPE_CHECKING:
    from .publisher import Publisher

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
            network = kubernetes_api.network_data(request.secret.data) if request.secret is not None else ""
            key = _image_key(metadata, request, network)
            host = HostInputs(name="/".join(place), hostname=metadata["name"], network=network)
            kind = _OF[request.format]
            of_secret = request.secret.created if request.secret else 0.0
            created = max(unix_time(metadata.get("creationTimestamp")), of_secret)
            urls = self._publisher.publish(key, host, request.architecture, (kind,), modified=created)
            files = self._publisher.boot_files(request.architecture) if kind == "initramfs" else {}
        except NotReady as error:
            return NotYet(str(error))
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

    def architectures(self) -> set[str]:
        """Those that something is served of."""
        with self._lock:
            return {entry.architecture for entry in self._held.values()}

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

        ``remember`` is called with every state of the object that is read. Raises ApiFailed when it cannot be finished,
        and Forbidden when the object's status says by now that a right is missing.
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
            denied = seen.secret.denied if isinstance(seen.secret, Missing) else None
            if plan.last:
                if denied is not None:
                    raise denied
                return plan.retry
            built = seen.outcome is not None  # the status says so, and nothing is left to do
            try:
                seen = self._done(seen, plan)
            except NotFound:
                self._images.forget(namespace, name)
                return None
            if denied is not None:
                raise denied
            if plan.status is not None and (plan.retry is not None or built):
                remember(seen.image)
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
            LOG.debug("%s/%s: %s", *key_of(image), type(outcome).__name__)
            return replace(seen, outcome=outcome)
        if plan.finalizers is not None:
            return self._observed(self._api.set_finalizers(image, plan.finalizers))
        if plan.status is None:
            raise RuntimeError("a plan that asks for nothing was carried out")
        difference = kubernetes_api.difference(image.get("status") or {}, plan.status)
        self.written += 1
        new = self._api.set_status(image, difference)
        _log_status(new)
        return self._observed(new)

    def _secret(self, image: Mapping[str, Any], plan: Plan) -> Secret | Missing:
        """Read a Secret and claim it; one that is being deleted is not claimed any more, nor is a denial written."""
        try:
            return self._claimed(image, plan)
        except Forbidden as error:
            if not plan.claim:
                raise
            return Missing(f"NetworkData secret cannot be used: {error}", error)

    def _claimed(self, image: Mapping[str, Any], plan: Plan) -> Secret | Missing:
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
        created = kubernetes_api.unix_time(metadata.get("creationTimestamp"))
        return Secret(plan.read, metadata["resourceVersion"], found.get("data") or {}, created)


def _log_status(image: Mapping[str, Any]) -> None:
    """One log line for a new status, without URLs: who reads one can read the image."""
    status = image.get("status") or {}
    ready, error = (kubernetes_api.condition(status, READY), kubernetes_api.condition(status, ERROR))
    failed = error.get("status") == "True"
    LOG.log(
        logging.WARNING if failed else logging.INFO,
        "%s/%s: %s, %s: %s",
        *key_of(image),
        "error" if failed else "ready" if ready.get("status") == "True" else "not ready",
        (error if failed else ready).get("reason"),
        (error if failed else ready).get("message"),
    )


def key_of(image: Mapping[str, Any]) -> Key:
    """Its namespace and name."""
    return image["metadata"]["namespace"], image["metadata"]["name"]


# --- what to do next about one PreprovisioningImage, from what is known of it (pure).
#
# `decide` asks for one thing at a time: read a Secret, build an image, write finalizers or status. The caller does it
# and asks again with the answer; a plan that asks for nothing is the end of a pass. After a crash at any point the
# next pass goes on, and two replicas that read the same object come to the same plan.


FINALIZER = "preprovisioningimage.metal3.io"
FOREIGN_LABEL = "infraenvs.agent-install.openshift.io"  # objects with it are served by the assisted installer
FORMATS = ("iso", "initrd")  # as the API spells them
RETRY, LONGEST_RETRY = 10.0, 600.0  # seconds
CHANGED, GENERATED, NOT_YET = "Config changed", "Generated image", "Image is not ready yet"


@dataclass(frozen=True)
class Secret:
    """A Secret as it was read; ``version`` is its resource version after it was claimed."""

    name: str
    version: str
    data: Mapping[str, str]  # key → base64
    created: float = 0.0  # seconds since 1970

    def __repr__(self) -> str:
        """Without the content."""
        return f"Secret({self.name!r}, {self.version!r})"


@dataclass(frozen=True)
class Missing:
    """There is no such Secret, or none that we may use."""

    message: str = "NetworkData secret not found"
    denied: Forbidden | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Built:
    """An image that is served."""

    image_url: str
    kernel_url: str = ""
    extra_kernel_params: str = ""


@dataclass(frozen=True)
class Refused:
    """No image can be made of these inputs."""

    message: str


@dataclass(frozen=True)
class NotYet:
    """An image can be made later: its base is missing, or being replaced. ``message`` names the file."""

    message: str = ""


@dataclass(frozen=True)
class BuildRequest:
    """The image that is to be built."""

    format: str
    architecture: str
    secret: Secret | None


@dataclass(frozen=True)
class Observed:
    """What is known: the object as the API server has it, and the answers to what earlier plans asked for."""

    image: Mapping[str, Any]
    now: float  # seconds since 1970
    supported: bool  # whether there are bases for the architecture it asks for
    secret: Secret | Missing | None = None  # None: not read
    outcome: Built | Refused | NotYet | None = None  # None: not built


@dataclass(frozen=True)
class Plan:
    """What is to be done now, in this order."""

    forget: bool = False  # serve the object's image no longer
    read: str = ""  # read this Secret …
    claim: bool = False  # … and make it ours
    build: BuildRequest | None = None
    finalizers: tuple[str, ...] | None = None  # to be written
    status: Mapping[str, Any] | None = None  # to be written
    retry: float | None = None  # seconds until the next pass; None: at the next event

    @property
    def last(self) -> bool:
        """Whether nothing is asked for that would have to be decided upon again."""
        return not self.read and self.build is None and self.finalizers is None and self.status is None


def decide(seen: Observed) -> Plan:
    metadata = seen.image.get("metadata") or {}
    finalizers = tuple(metadata.get("finalizers") or ())
    if FOREIGN_LABEL in (metadata.get("labels") or {}):
        return Plan(forget=True, finalizers=_without(finalizers))
    if metadata.get("deletionTimestamp"):
        if FINALIZER in finalizers and len(finalizers) > 1:
            return _serve_on(seen)
        return Plan(forget=True, finalizers=_without(finalizers))
    if FINALIZER not in finalizers:
        return Plan(finalizers=(*finalizers, FINALIZER))
    return _image(seen)


def _without(finalizers: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(one for one in finalizers if one != FINALIZER) if FINALIZER in finalizers else None


def _serve_on(seen: Observed) -> Plan:
    """A finalizer of others is left, so the image is still needed: serve what the status says, write nothing."""
    status = _status(seen)
    name = (status.get("networkData") or {}).get("name", "")
    ready = kubernetes_api.condition(status, READY).get("status") == "True" and status.get("format") in FORMATS
    if not ready or seen.outcome is not None:
        return Plan()
    if name and seen.secret is None:
        return Plan(read=name)
    if isinstance(seen.secret, Missing) or (
        seen.secret is not None and seen.secret.version != status["networkData"].get("version")
    ):
        return Plan()
    return Plan(build=BuildRequest(str(status.get("format", "")), str(status.get("architecture", "")), seen.secret))


def _image(seen: Observed) -> Plan:
    spec = seen.image.get("spec") or {}
    if not seen.supported:
        return _failed(seen, CONFIGURATION_ERROR, "Architecture not supported")
    accepted = [one for one in spec.get("acceptFormats") or () if one in FORMATS]
    if not accepted:
        return _failed(seen, CONFIGURATION_ERROR, "No acceptable image format supported")
    name = spec.get("networkDataName") or ""
    if name and seen.secret is None:
        return Plan(read=name, claim=True)
    if isinstance(seen.secret, Missing):
        return _failed(seen, MISSING_NETWORK_DATA, seen.secret.message, later=True)
    wanted = {
        "format": accepted[0],
        "architecture": spec.get("architecture") or "",
        "networkData": {"name": name, "version": seen.secret.version} if seen.secret is not None else {},
    }
    status = _status(seen)
    if not all(kubernetes_api.same_values(status.get(key), value) for key, value in wanted.items()):
        return _changed(seen, status, wanted)
    if seen.outcome is None:
        return Plan(build=BuildRequest(wanted["format"], wanted["architecture"], seen.secret))
    if isinstance(seen.outcome, Built):
        return _write(seen, _made(seen, wanted, seen.outcome, GENERATED))
    if isinstance(seen.outcome, Refused):
        return _failed(seen, BUILD_INVALID, "Cannot generate image: " + seen.outcome.message)
    return _write(seen, _condition(seen, status, READY, False, SUCCESS, _not_yet(status, seen.outcome)), retry=RETRY)


def _not_yet(status: Mapping[str, Any], outcome: NotYet) -> str:
    """What is said already stays: replicas that lack different files would else correct each other without end."""
    said = str(kubernetes_api.condition(status, READY).get("message") or "")
    return said if said.startswith(NOT_YET) else f"{NOT_YET}: {outcome.message}" if outcome.message else NOT_YET


def problem_of(image: Mapping[str, Any]) -> str:
    """What its status says of an image of ours that is not served; "" when it is, or is about to be."""
    if FINALIZER not in (image["metadata"].get("finalizers") or ()):
        return ""
    status = image.get("status") or {}
    for kind, value in ((ERROR, "True"), (READY, "False")):
        found = kubernetes_api.condition(status, kind)
        message = str(found.get("message") or "")
        if found.get("status") == value and (kind == ERROR or message.startswith(NOT_YET)):
            return message
    return ""


def _changed(seen: Observed, status: Mapping[str, Any], wanted: Mapping[str, Any]) -> Plan:
    """Take Ready back before the old image goes, and write what will be built before it is built."""
    if kubernetes_api.condition(status, READY).get("status") == "True":
        return _write(seen, _condition(seen, status, READY, False, SUCCESS, CHANGED))
    return _write(seen, _made(seen, wanted, Built(""), CHANGED), forget=True)


def _made(seen: Observed, wanted: Mapping[str, Any], image: Built, message: str) -> dict[str, Any]:
    new = _with_urls(_status(seen), image)
    new.update({key: value for key, value in wanted.items() if value or key == "networkData"})
    if not wanted["architecture"]:
        new.pop("architecture", None)
    new = _condition(seen, new, READY, bool(image.image_url), SUCCESS, message)
    return _condition(seen, new, ERROR, False, SUCCESS, "")


def _failed(seen: Observed, reason: str, message: str, later: bool = False) -> Plan:
    new = _with_urls(_status(seen), Built(""))
    new = _condition(seen, new, READY, False, reason, "")
    new = _condition(seen, new, ERROR, True, reason, message)
    delay = min(kubernetes_api.condition_age(new, ERROR, seen.now) + RETRY, LONGEST_RETRY)
    return _write(seen, new, retry=delay if later else None)


def _with_urls(status: Mapping[str, Any], image: Built) -> dict[str, Any]:
    urls = {"imageUrl": image.image_url, "kernelUrl": image.kernel_url, "extraKernelParams": image.extra_kernel_params}
    new = {key: value for key, value in status.items() if key not in urls}
    new.update({key: value for key, value in urls.items() if value})
    return new


def _condition(
    seen: Observed, status: Mapping[str, Any], kind: str, value: bool, reason: str, message: str
) -> dict[str, Any]:
    generation = (seen.image.get("metadata") or {}).get("generation")
    number = generation if isinstance(generation, int) else 0
    return kubernetes_api.with_condition(status, kind, value, reason, message, number, seen.now)


def _write(seen: Observed, new: Mapping[str, Any], retry: float | None = None, forget: bool = False) -> Plan:
    if kubernetes_api.same_values(_status(seen), new):
        return Plan(retry=retry, forget=forget)
    return Plan(status=new, retry=retry, forget=forget)


def _status(seen: Observed) -> Mapping[str, Any]:
    return seen.image.get("status") or {}
