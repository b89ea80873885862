# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do next about one PreprovisioningImage, from what is known of it (pure).

`decide` asks for one thing at a time: read a Secret, build an image, write finalizers or status. The caller does it and
asks again with the answer; a plan that asks for nothing is the end of a pass. After a crash at any point the
next pass goes on, and two replicas that read the same object come to the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import resources
from .resources import BUILD_INVALID, CONFIGURATION_ERROR, ERROR, MISSING_NETWORK_DATA, READY, SUCCESS

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
    """There is no such Secret."""


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
    """An image can be made later: its base is missing, or being replaced."""


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
    formats: tuple[str, ...] = FORMATS
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
    """The next step."""
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
    ready = resources.condition(status, READY).get("status") == "True" and status.get("format") in seen.formats
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
    accepted = [one for one in spec.get("acceptFormats") or () if one in seen.formats]
    if not accepted:
        return _failed(seen, CONFIGURATION_ERROR, "No acceptable image format supported")
    name = spec.get("networkDataName") or ""
    if name and seen.secret is None:
        return Plan(read=name, claim=True)
    if isinstance(seen.secret, Missing):
        return _failed(seen, MISSING_NETWORK_DATA, "NetworkData secret not found", later=True)
    wanted = {
        "format": accepted[0],
        "architecture": spec.get("architecture") or "",
        "networkData": {"name": name, "version": seen.secret.version} if seen.secret is not None else {},
    }
    status = _status(seen)
    if not all(resources.same_values(status.get(key), value) for key, value in wanted.items()):
        return _changed(seen, status, wanted)
    if seen.outcome is None:
        return Plan(build=BuildRequest(wanted["format"], wanted["architecture"], seen.secret))
    if isinstance(seen.outcome, Built):
        return _write(seen, _made(seen, wanted, seen.outcome, GENERATED))
    if isinstance(seen.outcome, Refused):
        return _failed(seen, BUILD_INVALID, "Cannot generate image: " + seen.outcome.message)
    return _write(seen, _condition(seen, status, READY, False, SUCCESS, NOT_YET), retry=RETRY)


def _changed(seen: Observed, status: Mapping[str, Any], wanted: Mapping[str, Any]) -> Plan:
    """Take Ready back before the old image goes, and write what will be built before it is built."""
    if resources.condition(status, READY).get("status") == "True":
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
    delay = min(resources.condition_age(new, ERROR, seen.now) + RETRY, LONGEST_RETRY)
    return _write(seen, new, retry=delay if later else None)


def _with_urls(status: Mapping[str, Any], image: Built) -> dict[str, Any]:
    urls = {
        "imageUrl": image.image_url,
        "kernelUrl": image.kernel_url,
        "extraKernelParams": image.extra_kernel_params,
    }
    new = {key: value for key, value in status.items() if key not in urls}
    new.update({key: value for key, value in urls.items() if value})
    return new


def _condition(
    seen: Observed, status: Mapping[str, Any], kind: str, value: bool, reason: str, message: str
) -> dict[str, Any]:
    generation = (seen.image.get("metadata") or {}).get("generation")
    number = generation if isinstance(generation, int) else 0
    return resources.with_condition(status, kind, value, reason, message, number, seen.now)


def _write(seen: Observed, new: Mapping[str, Any], retry: float | None = None, forget: bool = False) -> Plan:
    if resources.same_values(_status(seen), new):
        return Plan(retry=retry, forget=forget)
    return Plan(status=new, retry=retry, forget=forget)


def _status(seen: Observed) -> Mapping[str, Any]:
    return seen.image.get("status") or {}
