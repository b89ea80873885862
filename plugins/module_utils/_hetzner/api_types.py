# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The dictionaries that travel: what the APIs answer, and what modules take and return of machines.

An API may leave out any key, and an API of another version may send more; these types have only the keys that are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict


class Action(TypedDict, total=False):
    """An action of the Cloud API; ``started`` and ``finished`` as RFC 3339."""

    id: int
    command: str
    #: running, success or error
    status: str
    started: str | None
    finished: str | None
    progress: int
    error: dict[str, Any] | None


class Server(TypedDict, total=False):
    """A cloud server."""

    id: int
    name: str
    #: off, running, initializing …
    status: str
    labels: dict[str, str]
    protection: dict[str, bool]
    rescue_enabled: bool
    #: ``ipv4`` and ``ipv6``, each with ``ip``; ``floating_ips``: ids
    public_net: dict[str, Any]
    #: each with ``network`` (an id), ``ip`` and ``alias_ips``
    private_net: list[dict[str, Any]]
    server_type: dict[str, Any]
    location: dict[str, Any]
    image: dict[str, Any]
    created: str
    #: ids
    load_balancers: list[int]
    volumes: list[int]


class Image(TypedDict, total=False):
    """An image or a snapshot of the Cloud API; sizes in GB."""

    id: int
    name: str | None
    type: str
    description: str
    #: available or creating
    status: str
    architecture: str
    labels: dict[str, str]
    created: str
    created_from: dict[str, Any]
    image_size: float | None
    disk_size: float | None
    protection: dict[str, bool]


class WantedImage(TypedDict, total=False):
    """One node image as hcloud_node_image takes it; names are those of its options."""

    name: str
    server: str | None
    architecture: str | None
    running: str
    kubernetes_version: str | None
    base_image: str | None
    role_version: str | None
    digest: str | None
    labels: dict[str, str]
    description: str | None
    force: bool
    keep: int | None


class RegisteredKey(TypedDict, total=False):
    """An SSH key that is registered with the Cloud API."""

    id: int
    name: str
    public_key: str


class Choice(NamedTuple):
    """One of the ways to make a cloud server; without a location the API chooses one."""

    server_type: dict[str, Any]
    location: str | None
    image: Image

    def body(self) -> dict[str, Any]:
        """Its part of the request that creates a server."""
        part = {"server_type": self.server_type["name"], "image": self.image["id"]}
        return dict(part, location=self.location) if self.location else part


class Attachment(TypedDict):
    """A place in a private network that a server shall have: ``ip_range`` of a subnet; None: the API chooses."""

    network: int
    ip: str | None
    alias_ips: list[str]
    ip_range: str | None


class Resolved(TypedDict):
    """The objects of the project that a wanted cloud server names, by their ids."""

    #: what it may be made of, best first
    choices: list[Choice]
    ssh_keys: list[RegisteredKey]
    networks: list[Attachment]
    #: primary IPs by their kind, ``ipv4`` or ``ipv6``
    primary_ips: dict[str, int]
    firewalls: list[int]
    placement_group: int | None


class Reset(TypedDict):
    """One reset of a result: its type (ssh, sw, hw, power, wol), and when it was sent as RFC 3339."""

    way: str
    at: str


class Machine(TypedDict, total=False):
    """One machine as the modules take it: as the user names it, and as an earlier step returned it."""

    name: str
    # how far it is
    boot_state: str
    boot_state_since: str | None
    failed: bool
    msg: str
    boot_id: str | None
    previous_boot_id: str | None
    in_rescue: bool | None
    installation: str
    consent: str
    # a cloud server: to be made
    #: in a result, the one that it has
    server_type: str | list[str] | None
    location: str | list[str] | None
    image: str | None
    image_newest: bool
    architecture: str | None
    #: names or ids; in a result, the registered keys themselves
    ssh_keys: list[Any]
    #: in what a user asks for, None removes a label
    labels: dict[str, Any]
    #: names or ids, or dictionaries with ``name``, ``ip``, ``alias_ips`` and ``subnet``
    networks: list[Any]
    firewalls: list[str]
    placement_group: str | None
    enable_ipv4: bool
    enable_ipv6: bool
    primary_ipv4: str | None
    primary_ipv6: str | None
    #: with which later steps start SSH; None: whether it gets there is not asked
    ssh_args: str | None
    user_data: str | None
    user_data_file: str | None
    adopt: bool
    # … and as it was made
    id: int
    created: bool
    adopted: bool
    fresh: bool
    armed_here: bool
    create_action: Action | None
    # a dedicated server
    server_number: int | str | None
    server_ip: str | None
    first_contact: str
    rename: str | None
    permanent: bool
    resets: list[Reset]
    host_keys: list[str]
