# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Does the project have what a machine asks for? Pure answers over lists that are read once per fleet."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .._common.text import is_digits, moment
from .api_failures import ApiError, Deadline, unless_gone
from .api_types import Image, RegisteredKey
from .labels import IMAGE_LABEL, is_label_value

if TYPE_CHECKING:
    from .cloud_client import Api

#: A type, network, key … of a list of the API.
_Item = TypeVar("_Item", bound="Mapping[str, Any]")


class Unfit(Exception):
    """A value that cannot work; says which field, which value, and what to do."""


class SoldOut(Unfit):
    """It can work, but not at the moment."""


def _names(items: Iterable[Mapping[str, Any]], key: str = "name", most: int = 12) -> str:
    """A short list for an error message."""
    names = sorted(str(item[key]) for item in items)
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return (", ".join(names[:most]) + more) or "none"


def pick(field: str, wanted: str, items: Iterable[_Item]) -> _Item:
    """The item whose name or id is ``wanted``."""
    for item in items:
        if item.get("name") == wanted or str(item["id"]) == str(wanted):
            return item
    raise Unfit(f"{field}: '{wanted}' does not exist; there are: {_names(items)}")


def pick_server_type(
    wanted: str, types: Sequence[dict[str, Any]], now: datetime.datetime | None = None
) -> dict[str, Any]:
    """A server type that can still be ordered."""
    found = pick("server_type", wanted, types)
    ends = (found.get("deprecation") or {}).get("unavailable_after")
    now = now or datetime.datetime.now(datetime.timezone.utc)
    end = moment(ends)
    if end is not None and end <= now.timestamp():
        raise Unfit(f"server_type: '{wanted}' can no longer be ordered since {ends}; choose a newer type")
    return found


def check_location(
    wanted: str | None, server_type: Mapping[str, Any], types: Iterable[Mapping[str, Any]], exists: bool = False
) -> str | None:
    """Whether the type is offered in the location; None lets the API choose. Returns the location's name.

    ``exists``: the server is there, and nothing is ordered.
    """
    if wanted is None:
        return None
    offered = server_type.get("locations")
    if offered is None:
        return wanted
    known: dict[str, str] = {str(entry["id"]): entry["name"] for kind in types for entry in kind.get("locations") or []}
    name = known.get(str(wanted), wanted)
    if name not in known.values():
        raise Unfit(f"location: '{wanted}' does not exist; there are: {', '.join(sorted(set(known.values())))}")
    entry = next((entry for entry in offered if entry["name"] == name), None)
    usable = [entry for entry in offered if entry.get("available", True)]
    if entry is None:
        raise Unfit(
            f"location: server type '{server_type['name']}' is not offered in '{name}'; it is in: {_names(usable)}"
        )
    if not exists and not entry.get("available", True):
        raise SoldOut(
            f"location: server type '{server_type['name']}' is sold out in '{name}' at the moment; available in: "
            f"{_names(usable)}"
        )
    return name


def prices_of(server_type: Mapping[str, Any] | None, location: str | None) -> tuple[float | None, float | None]:
    """(hour, month): net prices of a type in a location as floats; None where the API does not give them.

    Without a location, those that all locations of the type have in common.
    """
    found = set()
    for entry in (server_type or {}).get("prices") or []:
        if location in (None, entry.get("location")):
            found.add((_net(entry.get("price_hourly")), _net(entry.get("price_monthly"))))
    return found.pop() if len(found) == 1 else (None, None)


def _net(price: Any) -> float | None:
    try:
        net = float(price["net"])
    except (KeyError, TypeError, ValueError):
        return None
    return net if 0 <= net < math.inf else None


def newest_first(images: Iterable[Image]) -> list[Image]:
    """Images, the newest first; the API's ids grow with time."""
    return sorted(images, key=lambda image: (image.get("created") or "", image["id"]), reverse=True)


def meant_by(wanted: str, images: Sequence[Image]) -> list[Image]:
    """The images a name means by CAPH's rule, its name and the label ``caph-image-name`` together; else the id."""
    named = [
        image
        for image in images
        if image.get("name") == wanted or (image.get("labels") or {}).get(IMAGE_LABEL) == wanted
    ]
    return named or [image for image in images if str(image["id"]) == str(wanted)]


def of_architecture(
    wanted: str, images: Sequence[Image], architecture: str, newest: bool = False, why: str | None = None
) -> Image:
    """The one image of ``architecture`` that ``wanted`` means; none and several are refused, but ``newest`` chooses.

    ``why`` says in a message where the architecture comes from.
    """
    found = meant_by(wanted, images)
    if not found:
        raise Unfit(
            f"image: '{wanted}' is neither the name nor the id of an image, nor the label {IMAGE_LABEL} of a "
            "snapshot of this project"
        )
    fitting = [image for image in found if image.get("architecture") == architecture]
    if not fitting:
        offered = "/".join(sorted({image["architecture"] for image in found}))
        why = why or f"architecture {architecture} is wanted"
        raise Unfit(f"image: '{wanted}' exists for {offered} only, but {why}; choose another image or server type")
    if newest:
        available = [image for image in fitting if image.get("status", "available") == "available"]
        return newest_first(available or fitting)[0]
    if len(fitting) > 1:
        raise Unfit(
            f"image: '{wanted}' is ambiguous, it names the images {_names(fitting, 'id')}; use one of these ids, "
            "or ask for the newest"
        )
    return fitting[0]


def pick_image(wanted: str, images: Sequence[Image], server_type: Mapping[str, Any], newest: bool = False) -> Image:
    """The one image meant by a name, a label ``caph-image-name`` or an id that fits the server type."""
    architecture = server_type["architecture"]
    why = f"server type '{server_type['name']}' is {architecture}"
    image = of_architecture(wanted, images, architecture, newest, why)
    if image.get("status", "available") != "available":
        raise Unfit(f"image: '{wanted}' is not available yet (status {image['status']}); wait or choose another")
    size = image.get("disk_size") or 0
    if size > server_type["disk"]:
        raise Unfit(
            f"image: '{wanted}' needs a disk of {size:g} GB, server type '{server_type['name']}' has "
            f"{server_type['disk']:g} GB; choose a larger type"
        )
    return image


class Catalog:
    """Reads each list of the project at most once, and only when it is needed."""

    def __init__(self, api: Api, deadline: Deadline) -> None:
        self._api = api
        self._deadline = deadline
        self._lists: dict[str, list[Any]] = {}
        self._images: dict[tuple[str, bool], list[Image]] = {}

    def listed(self, collection: str) -> list[Any]:
        """All that the project has of a collection of the API, such as server_types."""
        if collection not in self._lists:
            self._lists[collection] = self._all(collection, None)
        return self._lists[collection]

    def ssh_keys_with(self, selector: str) -> list[RegisteredKey]:
        """The registered SSH keys that a label selector means."""
        try:
            return self._all("ssh_keys", {"label_selector": selector})
        except ApiError as error:
            if error.code == "invalid_input":
                raise Unfit(f"ssh_keys: '{selector}' is no label selector ({error.message})") from error
            raise

    def resolve(self, field: str, wanted: str, collection: str) -> int:
        """The id of a network, firewall or placement group given by name or id."""
        found: int = pick(field, wanted, self.listed(collection))["id"]
        return found

    def image_candidates(self, wanted: str, labelled: bool = True) -> list[Image]:
        """Every image that ``wanted`` can mean: by name, with ``labelled`` by label, by id."""
        if (wanted, labelled) not in self._images:
            self._images[wanted, labelled] = self._read_images(wanted, labelled)
        return self._images[wanted, labelled]

    def _read_images(self, wanted: str, labelled: bool) -> list[Image]:
        # Both lists count, as with CAPH: an image and a snapshot of one name are ambiguous.
        found = self._all("images", {"name": wanted, "include_deprecated": "true"})
        if labelled and is_label_value(str(wanted)):
            found = found + self._all("images", {"label_selector": f"{IMAGE_LABEL}=={wanted}"})
        if not found and is_digits(str(wanted)):
            answer = unless_gone(lambda: self._api.read(f"/images/{wanted}", self._deadline))
            found = [answer["image"]] if answer else []
        return list({image["id"]: image for image in found}.values())

    def _all(self, collection: str, params: dict[str, Any] | None) -> list[Any]:
        items, _complete = self._api.read_all("/" + collection, collection, self._deadline, params=params)
        return items
