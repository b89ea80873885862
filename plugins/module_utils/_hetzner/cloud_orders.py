# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a new server is ordered with: everything that a machine names, looked up in the project.

It may have server types and locations, in the order in which they are tried. All locations are tried with the first
type, then all of them with the next one. The machines of one placement group are spread: each begins with the location
that has the fewest servers of its group.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from .._common.option_values import no_path
from . import catalog as catalogs
from . import cloud_networks
from .api_failures import MachineError
from .api_types import Choice, Machine, Resolved, Server
from .catalog import Catalog, SoldOut, Unfit
from .labels import LABEL, LONGEST_USER_DATA
from .login_keys import resolve_keys

#: The answers to a create request that another type or location may not get. A limit of the project is none of them.
NO_ROOM = frozenset(["resource_unavailable", "placement_error"])


class Tried(TypedDict):
    """One for which the API had no room, with the code of its answer."""

    server_type: str
    location: str | None
    error: str


def words(given: object) -> list[str]:
    """The names that an option holds, which is a list, or a text with commas."""
    several = given if isinstance(given, (list, tuple)) else [] if given is None else str(given).split(",")
    return list(dict.fromkeys(str(one).strip() for one in several if str(one).strip()))


def find_choices(machine: Machine, catalog: Catalog, image: str, written: bool, exists: bool) -> list[Choice]:
    """Everything that a machine may be made of, best first; raises Unfit for what can never be.

    ``image``: what the disk holds at first. ``written``: the disk is written afterwards, by what has one architecture.
    ``exists``: nothing is ordered, so that it may be sold out.
    """
    types = catalog.listed("server_types")
    wanted = words(machine.get("server_type"))
    if not wanted:
        raise Unfit("server_type: missing; name one, for example cx23")
    kinds = [
        catalogs.pick("server_type", one, types) if exists else catalogs.pick_server_type(one, types) for one in wanted
    ]
    _check_architectures(machine, kinds, written)
    # The placeholder is Hetzner's own image, also when a snapshot of the project has the same name.
    found = catalog.image_candidates(image, labelled=bool(machine.get("image")))
    newest = bool(machine.get("image_newest"))
    images = {kind["name"]: catalogs.pick_image(image, found, kind, newest) for kind in kinds}
    pairs = _offered(kinds, words(machine.get("location")), types, exists)
    return [Choice(kind, place, images[kind["name"]]) for kind, place in pairs]


def _check_architectures(machine: Machine, kinds: Sequence[Mapping[str, Any]], written: bool) -> None:
    asked = machine.get("architecture")
    for kind in kinds:
        if asked not in (None, kind["architecture"]):
            raise Unfit(
                f"architecture: {asked} is wanted, but server type '{kind['name']}' is "
                f"{kind['architecture']}; choose another type"
            )
    if written and len({kind["architecture"] for kind in kinds}) > 1:
        listed = ", ".join(f"{kind['name']} is {kind['architecture']}" for kind in kinds)
        raise Unfit(f"server_type: {listed}, but what is written to a disk has one architecture; name types of one")


def _offered(
    kinds: Sequence[dict[str, Any]], places: Sequence[str], types: Sequence[Mapping[str, Any]], exists: bool
) -> list[tuple[dict[str, Any], str | None]]:
    """The pairs that can be ordered now; a type or a location that is in none of the pairs there are is refused."""
    asked: Sequence[str | None] = places or [None]
    pairs: list[tuple[dict[str, Any], str | None]] = []
    reasons: dict[tuple[str, str | None], Unfit] = {}
    for kind in kinds:
        for place in asked:
            try:
                pairs.append((kind, catalogs.check_location(place, kind, types, exists)))
            except Unfit as error:
                reasons[kind["name"], place] = error
    never = {pair: error for pair, error in reasons.items() if not isinstance(error, SoldOut)}
    for kind in kinds:
        if all((kind["name"], place) in never for place in asked):
            raise never[kind["name"], asked[0]]
    for place in asked:
        if all((kind["name"], place) in never for kind in kinds):
            names = ", ".join(kind["name"] for kind in kinds)
            raise Unfit(f"location: none of the server types {names} is offered in '{place}'; leave it out")
    if not pairs:
        raise Unfit("; ".join(str(error) for error in reasons.values() if isinstance(error, SoldOut)))
    return pairs


def spread(choices: Sequence[Choice], servers: Counter[str | None]) -> list[Choice]:
    """The choices of a machine of a placement group: locations with few servers of the group first (pure).

    ``servers``: how many of the group are in each location; the one that is tried first is counted.
    """
    kinds = list(dict.fromkeys(choice.server_type["name"] for choice in choices))
    order = sorted(choices, key=lambda choice: (kinds.index(choice.server_type["name"]), servers[choice.location]))
    servers[order[0].location] += 1
    return order


def members_of(group: int, servers: Iterable[Mapping[str, Any]]) -> Counter[str | None]:
    """How many of these servers are in the placement group, in each location."""
    mine = [one for one in servers if (one.get("placement_group") or {}).get("id") == group]
    return Counter((one.get("location") or {}).get("name") for one in mine)


class Room:
    """What the API has said of its stock since this call began; many threads ask.

    ``turns``: as many machines as may ask at once; who holds one has chosen by every answer that came before.
    """

    def __init__(self, at_once: int) -> None:
        self.turns = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._none: dict[tuple[str, str | None, int | None], str] = {}

    def of(self, choices: Sequence[Choice], group: int | None) -> tuple[Choice | None, list[Tried]]:
        """The first choice that is worth a request, and those before it that are not, for a placement group."""
        passed: list[Tried] = []
        with self._lock:
            for choice in choices:
                code = self._none.get((choice.server_type["name"], choice.location, group))
                if code is None:
                    return choice, passed
                passed.append({"server_type": choice.server_type["name"], "location": choice.location, "error": code})
        return None, passed

    def none_for(self, choice: Choice, group: int | None, code: str) -> None:
        """The API has no room for it."""
        with self._lock:
            self._none[choice.server_type["name"], choice.location, group] = code


def instead(found: Mapping[str, Any], given_up: Sequence[Tried]) -> str:
    """What a server has instead of what was tried before; ``found``: its type and its location."""
    return f"{_pair(found)}, as there was no room for {_pairs(given_up)}" if given_up else ""


def out_of_room(given_up: Sequence[Tried]) -> MachineError:
    """The error of a machine for which nothing was left to try."""
    return MachineError(
        f"the API had no room for {_pairs(given_up)}. Name further server types or locations (machines[].server_type, "
        "machines[].location), or try later"
    )


def _pairs(given: Iterable[Tried]) -> str:
    return ", ".join(f"{_pair(one)} ({one['error']})" for one in given)


def _pair(given: Mapping[str, Any]) -> str:
    return str(given["server_type"]) + (f" in {given['location']}" if given["location"] else "")


#: What the disk of a new server holds when nothing else is asked for: it is there to be overwritten.
PLACEHOLDER = "ubuntu-24.04"


def wanted_labels(machine: Machine) -> dict[str, str | None]:
    """The labels a machine's server must have, ours among them; None for one that it must not have."""
    return dict(machine.get("labels") or {}, **{LABEL: machine["name"]})


def labelled(before: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str]:
    """The labels of a server that has these, after what is wanted was set and removed."""
    return {key: value for key, value in {**before, **wanted}.items() if value is not None}


def read_user_data(machine: Machine) -> None:
    """Take the user data of a machine from its file, if it has one; raises Unfit."""
    path = machine.get("user_data_file")
    if not path:
        return
    if machine.get("user_data"):
        raise Unfit("user_data_file: there is user_data, too; leave one of the two out")
    if why := no_path(path):
        raise Unfit(f"user_data_file: there can be no {path!r}: {why}; correct the path")
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            # more than the API takes is refused later
            machine["user_data"] = file.read(2 * LONGEST_USER_DATA)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Unfit(f"user_data_file: '{path}' cannot be read on the controller: {reason}") from error


def create_body(machine: Machine, resolved: Resolved) -> dict[str, Any]:
    """The request body that creates a machine, powered off; ``resolved`` holds the ids of the names.

    Type, location and image come from one of the choices.
    """
    body = {
        "name": machine["name"],
        "ssh_keys": [key["id"] for key in resolved["ssh_keys"]],
        "labels": labelled({}, wanted_labels(machine)),
        "start_after_create": False,
        "public_net": {
            "enable_ipv4": machine.get("enable_ipv4", True),
            "enable_ipv6": machine.get("enable_ipv6", True),
            **resolved["primary_ips"],
        },
    }
    optional = {
        "networks": [one["network"] for one in resolved["networks"] if not cloud_networks.needs_action(one)],
        "firewalls": [{"firewall": firewall} for firewall in resolved["firewalls"]],
        "placement_group": resolved["placement_group"],
        "user_data": machine.get("user_data"),
    }
    body.update({key: value for key, value in optional.items() if value})
    return body


def resolve(
    machine: Machine,
    catalog: Catalog,
    public_key: str | None = None,
    private_key_path: str | None = None,
    written: bool = True,
    server: Server | None = None,
) -> Resolved:
    """Everything a machine names, looked up in the project; raises Unfit for what cannot work.

    ``written``: its disk is written after it was made. ``server``: the one of its name, if it exists.
    """
    group = machine.get("placement_group")
    places = cloud_networks.resolve_attachments(machine, catalog)
    primary = cloud_networks.primary_ips(machine, catalog)
    image = machine.get("image") or PLACEHOLDER
    choices = find_choices(machine, catalog, image, written, exists=server is not None)
    if server is None:
        choices = cloud_networks.where_it_can_be(choices, catalog, places, primary)
        for kind, item in primary.items():
            cloud_networks.check_free(kind, item)
        finding = cloud_networks.reach_finding(machine, places, catalog, cloud_networks.routes_of_this_host)
        if finding:
            raise Unfit(finding)
    return {
        "choices": choices,
        "ssh_keys": resolve_keys(
            machine.get("ssh_keys"), catalog.listed("ssh_keys"), public_key, private_key_path, catalog.ssh_keys_with
        ),
        "networks": places,
        "primary_ips": {kind: item["id"] for kind, item in primary.items()},
        "firewalls": [catalog.resolve("firewalls", name, "firewalls") for name in machine.get("firewalls") or []],
        "placement_group": catalog.resolve("placement_group", group, "placement_groups") if group else None,
    }
