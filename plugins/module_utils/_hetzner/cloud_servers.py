# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Requests for single servers: find, create, arm, switch, delete; a lost answer is looked up, not sent again."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from .._common.text import moment
from .api_failures import ApiError, Deadline, MachineError, unless_gone
from .api_types import Action, Attachment, Machine, Server
from .cloud_client import PER_PAGE, Api
from .labels import INSTALLATION_LABEL, LABEL, is_ours

#: API commands that boot a server; one of them in its history means that its disk may hold something of value.
BOOTING = frozenset(["start_server", "reboot_server", "reset_server", "rebuild_server"])

#: Two runs with folders of their own worked on one server; the other one was first.
OTHER_RUN = (
    "another run, perhaps of another controller, works on server '%s': it was made, armed or started while this run "
    "looked at it. It was left to that run; wait for its end, then run again"
)

#: The API's clock has a resolution of one second, on both sides of the comparison.
CLOCK_SLACK = 2.0


def addresses(server: Server) -> tuple[str | None, str | None]:
    """(IPv4, IPv6 network) of a server's public interface; None where it has none."""
    public = server.get("public_net") or {}
    return (public.get("ipv4") or {}).get("ip"), (public.get("ipv6") or {}).get("ip")


def first_address(network: str | None) -> str | None:
    """The address a server has in its IPv6 network, which the API gives as ``2001:db8::/64``."""
    try:
        return str(next(ipaddress.ip_network(network).hosts())) if network else None
    except (ValueError, StopIteration):
        return None


def ssh_address(server: Server) -> str | None:
    """Where SSH reaches a server: at its IPv4 address, else the first one of its IPv6 network, else a private one."""
    ipv4, ipv6 = addresses(server)
    private = next((net["ip"] for net in server.get("private_net") or [] if net.get("ip")), None)
    return ipv4 or first_address(ipv6) or private


def addresses_of(server: Server) -> dict[str, Any]:
    """What a result says of the addresses of a server."""
    ipv4, ipv6 = addresses(server)
    private = [{key: net.get(key) for key in ("network", "ip", "alias_ips")} for net in server.get("private_net") or []]
    return {
        "ipv4": ipv4,
        "ipv6": ipv6,
        "ipv6_address": first_address(ipv6),
        "private_net": private,
        "address": ssh_address(server),
    }


def is_known(machine: Machine) -> bool:
    """Whether the result of the step that ordered a server says all that `as_ordered` needs.

    Which addresses it gets in private networks, the API may say later.
    """
    said: Mapping[str, Any] = machine
    known = said.get("fresh") and isinstance(said.get("id"), int) and said.get("installation")
    return bool(known and not said.get("private_net"))


def as_ordered(machine: Machine) -> Server:
    """A server as the API began to make it, from the result of the step that ordered it."""
    said: Mapping[str, Any] = machine
    return {
        "id": said["id"],
        "name": said["name"],
        "status": "initializing",
        "rescue_enabled": False,
        "labels": {LABEL: said["name"], INSTALLATION_LABEL: said["installation"]},
        "public_net": {kind: {"ip": said.get(kind)} for kind in ("ipv4", "ipv6")},
        "private_net": [],
        "server_type": {"name": said.get("server_type")},
        "location": {"name": said.get("location")},
    }


def never_started(history: Iterable[Action]) -> bool:
    """Whether an action history proves that the server never booted.

    A history that does not reach back to the creation proves nothing.
    """
    commands = [action.get("command") for action in history if action.get("status") != "error"]
    return "create_server" in commands and not BOOTING.intersection(commands)


def brief(action: Action | None) -> Action | None:
    """What a result carries of an action."""
    if action is None:
        return None
    return cast("Action", {key: action.get(key) for key in ("id", "command", "status", "started")})


class Servers:
    """Reads and changes servers through an ``Api``."""

    def __init__(self, api: Api) -> None:
        self._api = api
        #: What `find` has listed, and whether that was all.
        self._listed: list[Server] = []
        self._listed_all = False

    def find(self, names: Iterable[str], deadline: Deadline, ours_first: bool = False) -> dict[str, Server]:
        """The servers of these exact names, as a dictionary by name, with as few requests as possible.

        ``ours_first`` lists the servers that carry our label before it looks for the rest one by one.
        """
        wanted, found = set(names), {}
        if len(wanted) > 1 or (wanted and not ours_first):
            # A page has the labels of all others, too. Pages of a large project can cost more than asking for names.
            items, complete = self._api.read_all(
                "/servers",
                "servers",
                deadline,
                params={"label_selector": LABEL} if ours_first else None,
                enough=lambda items, left: left >= len(wanted - {item["name"] for item in items}),
            )
            self._listed, self._listed_all = items, complete
            found = {item["name"]: item for item in items if item["name"] in wanted}
            if complete and not ours_first:
                return found
        for name in sorted(wanted - set(found)):
            server = self.by_name(name, deadline)
            if server is not None:
                found[name] = server
        return found

    def by_name(self, name: str, deadline: Deadline) -> Server | None:
        """The server of this exact name, else None."""
        body = self._api.read("/servers", deadline, machine=name, params={"name": name})
        servers: list[Server] = body.get("servers") or []
        return next((server for server in servers if server["name"] == name), None)

    def by_id(self, server: Server, deadline: Deadline) -> Server | None:
        """The present state of a server; None when it is gone."""
        path = f"/servers/{server['id']:d}"
        answer = unless_gone(lambda: self._api.read(path, deadline, machine=server["name"]))
        return None if answer is None else answer["server"]

    def labelled(self, names: Sequence[str], deadline: Deadline) -> dict[str, Server]:
        """The present state of servers of ours by name, in one request; at most PER_PAGE names."""
        return {server["name"]: server for server in self._with_label(names, deadline)}

    def renamed(self, names: Sequence[str], deadline: Deadline) -> dict[str, list[Server]]:
        """Servers that have our label for one of these names, which no server has: they were given another name.

        What `find` has listed is looked through. Where that was not all, the API is asked, lest a second one be made.
        """
        seen = list(self._listed)
        if not self._listed_all:
            for first in range(0, len(names), PER_PAGE):
                seen += self._with_label(names[first : first + PER_PAGE], deadline)
        by_label: dict[str, dict[int, Server]] = {}
        for server in seen:
            by_label.setdefault((server.get("labels") or {}).get(LABEL, ""), {})[server["id"]] = server
        return {name: list(by_label[name].values()) for name in names if name in by_label}

    def _with_label(self, names: Sequence[str], deadline: Deadline) -> list[Server]:
        query = {"label_selector": f"{LABEL} in ({','.join(names)})", "per_page": PER_PAGE}
        return self._api.read("/servers", deadline, params=query).get("servers") or []

    def history(self, server: Server, deadline: Deadline, recent: bool = False) -> list[Action]:
        """The actions of a server, newest first: all of them, or with ``recent`` those of one request."""
        actions, _complete = self._api.read_all(
            f"/servers/{server['id']:d}/actions",
            "actions",
            deadline,
            machine=server["name"],
            params={"sort": "id:desc"},
            enough=lambda _items, _left: recent,
        )
        return actions

    def create(self, name: str, body: dict[str, Any], deadline: Deadline) -> tuple[Server, Action | None]:
        lost_an_answer = False

        def look(_sent_at: float | None) -> dict[str, Any] | None:
            nonlocal lost_an_answer
            lost_an_answer = True
            server = self.by_name(name, deadline)
            if server is None:
                return None
            if not is_ours(server):
                raise MachineError(f"another server named '{name}' appeared while this one was being created")
            actions = self.history(server, deadline)
            return {"server": server, "action": _newest(actions, "create_server")}

        try:
            answer = self._api.change("POST", "/servers", deadline, look, machine=name, json=body)
        except ApiError as error:
            # Only after a lost answer can the server of this name be the one we asked for.
            found = look(None) if error.code == "uniqueness_error" and lost_an_answer else None
            if found is None:
                raise
            answer = found
        return answer["server"], answer["action"]

    def act(
        self,
        server: Server,
        route: str,
        command: str,
        deadline: Deadline,
        body: dict[str, Any] | None = None,
        locked: Callable[[], None] | None = None,
    ) -> Action:
        """POST one of a server's actions; returns the action the API made of it. ``locked``: as of `Api.change`."""
        name = server["name"]

        def look(sent_at: float | None) -> dict[str, Any] | None:
            for action in self.history(server, deadline, recent=True):
                if action.get("command") == command and begun_after(action.get("started"), sent_at):
                    return {"action": action}
            return None

        path = f"/servers/{server['id']:d}/actions/{route}"
        answer = self._api.change("POST", path, deadline, look, machine=name, json=body, locked=locked)
        started: Action = answer["action"]
        return started

    def enable_rescue(
        self, server: Server, key_ids: Iterable[int], deadline: Deadline, locked: Callable[[], None] | None = None
    ) -> Action:
        """Arm the rescue for the next boot; only these SSH keys can log in to it."""
        body = {"type": "linux64", "ssh_keys": list(key_ids)}
        return self.act(server, "enable_rescue", "enable_rescue", deadline, body, locked)

    def now(self) -> float | None:
        """The API's own clock in epoch seconds; None when that is not known."""
        return self._api.server_time()

    def disable_rescue(self, server: Server, deadline: Deadline) -> Action:
        return self.act(server, "disable_rescue", "disable_rescue", deadline)

    def attach(self, server: Server, place: Attachment, deadline: Deadline) -> Action:
        given: Mapping[str, Any] = place
        return self.act(
            server, "attach_to_network", "attach_to_network", deadline, {key: given[key] for key in given if given[key]}
        )

    def power_on(self, server: Server, deadline: Deadline) -> Action:
        """Press the power button of a server that is off."""
        return self.act(server, "poweron", "start_server", deadline)

    def reset(self, server: Server, deadline: Deadline) -> Action:
        return self.act(server, "reset", "reset_server", deadline)

    def relabel(self, server: Server, labels: dict[str, str], deadline: Deadline) -> Server:
        """Replace all labels; returns the server."""

        def look(_sent_at: float | None) -> dict[str, Any] | None:
            present = self.by_id(server, deadline)
            return {"server": present} if present is not None and present.get("labels") == labels else None

        path = f"/servers/{server['id']:d}"
        answer = self._api.change("PUT", path, deadline, look, machine=server["name"], json={"labels": labels})
        relabelled: Server = answer["server"]
        return relabelled

    def delete(self, server: Server, deadline: Deadline) -> Action | None:
        """Delete a server; returns the action, or None when it is gone already."""

        def look(_sent_at: float | None) -> dict[str, Any] | None:
            present = self.by_id(server, deadline)
            return {"action": None} if present is None or present.get("status") == "deleting" else None

        path = f"/servers/{server['id']:d}"
        answer = unless_gone(lambda: self._api.change("DELETE", path, deadline, look, machine=server["name"]))
        return (answer or {}).get("action")


class ServerReads:
    """The present state of single servers for many threads: what they ask for at the same time is one request."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._asked: set[str] = set()
        self._answers: dict[str, Server | None] = {}

    def present(self, server: Server, deadline: Deadline) -> Server | None:
        """A server of ours as it is now, or was since this was called; None when it is gone. One thread a server."""
        name = server["name"]
        with self._lock:
            self._asked.add(name)
        with self._reading:
            if name not in self._answers:
                self._read(name, deadline)
            found = self._answers.pop(name)
        return found if found is not None else self._servers.by_id(server, deadline)

    def _read(self, first: str, deadline: Deadline) -> None:
        """Read that server and others that threads wait for."""
        with self._lock:
            names = [first, *sorted(self._asked - {first})[: PER_PAGE - 1]]
            self._asked.difference_update(names)
        try:
            found = self._servers.labelled(names, deadline)
        except BaseException:
            with self._lock:
                self._asked.update(names[1:])
            raise
        self._answers.update((name, found.get(name)) for name in names)


def _newest(actions: Iterable[Action], command: str) -> Action | None:
    """The newest action of that command in a history that is sorted newest first."""
    return next((action for action in actions if action.get("command") == command), None)


def begun_after(when: str | None, sent_at: float | None) -> bool:
    """Whether something began after a request that was sent at ``sent_at`` by the API's clock.

    ``when``: it began, as the API writes it.
    """
    began = moment(when)
    return sent_at is not None and began is not None and began >= sent_at - CLOCK_SLACK
