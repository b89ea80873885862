# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Servers of a Robot account: which one is which machine, its facts and name; its boot configuration and resets.

The routes are /server (what the module robot_server does), /boot, /reset and /wol.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._common.text import one_line, whole_number
from .api_failures import ApiError, Deadline, FleetError, MachineError, NoAnswer, Permanent, Refused
from .api_types import Machine
from .fleet_run import MachineRun, difference, name_findings, noted, refuse_findings, run_all
from .robot_client import RESET, Robot, is_limit, items, part

#: Types of reset: a reboot by SSH, those of Robot (sw: keys, hw: button, power: power button), and Wake on LAN.
SSH, SW, HW, POWER, WOL = "ssh", "sw", "hw", "power", "wol"

#: How Robot says that a server is off; its other states say less.
SHUT_OFF = "shut off"
RUNNING = "running"

#: Arming is known to end in an error of Robot's now and then, and to work when it is asked for again.
ARMING_TRIES = 3
_ACTIVATION_FAILED = frozenset(["BOOT_ACTIVATION_FAILED", "BOOT_DEACTIVATION_FAILED"])
_NOT_OFFERED = frozenset(["BOOT_NOT_AVAILABLE", "NOT_FOUND"])

_KIND = re.compile(r"[a-z]{1,20}\Z")

SENT, UNSURE, NOT_OFFERED, FAILED = "sent", "unsure", "not offered", "failed"


class BootRoutes:
    """The routes below /boot, /reset and /wol for one server."""

    def __init__(self, api: Robot, machine: str, number: int) -> None:
        self._api = api
        self._machine = machine
        self._number = number

    def arm(self, fingerprints: Sequence[str], deadline: Deadline) -> list[str]:
        """Arm the rescue for the next boot, for these keys alone; all that was active before is taken back.

        Returns what that was, in words.
        """
        replaced: list[str] = []
        for tries_left in range(ARMING_TRIES - 1, -1, -1):
            try:
                self._post_rescue(fingerprints, deadline)
                break
            except ApiError as error:
                if error.code in _NOT_OFFERED:
                    raise Permanent(
                        f"Robot offers no rescue for server {self._number} ({error.code}); ask Hetzner's support"
                    ) from error
                if not tries_left or (error.status != 409 and error.code not in _ACTIVATION_FAILED):
                    raise
                if error.code == "BOOT_ALREADY_ENABLED":
                    # For which keys it is armed, and for how long still, is unknown.
                    replaced.append(self.active(deadline).get("rescue", "rescue"))
                    self.disarm_kind("rescue", deadline)
                elif error.status == 409:
                    replaced += self.disarm(deadline)
                else:
                    deadline.sleep(2.0, str(error))
        return replaced

    def active(self, deadline: Deadline) -> dict[str, str]:
        """The kinds of boot configuration that are active for the next boot, and each in words."""
        kinds = self._need(self._get("/boot/%d", deadline), "boot")
        # They become a part of a path.
        return {
            kind: _in_words(kind, value)
            for kind, value in kinds.items()
            if _KIND.match(kind) and isinstance(value, dict) and value.get("active") is True
        }

    def disarm(self, deadline: Deadline) -> list[str]:
        """Disarm everything for the next boot; returns what was armed, in words."""
        active = self.active(deadline)
        for kind in active:
            self.disarm_kind(kind, deadline)
        return list(active.values())

    def disarm_kind(self, kind: str, deadline: Deadline) -> None:
        """Take back one kind of boot configuration, such as rescue."""
        path = f"/boot/{self._number}/{kind}"

        def look() -> Any:
            configuration = self._api.read(path, deadline, machine=self._machine)
            return None if self._need(configuration, kind).get("active") else configuration

        self._api.change("DELETE", path, deadline, look, machine=self._machine)

    def rescue(self, deadline: Deadline, last: bool = False) -> dict[str, Any]:
        """The rescue configuration, or the last activation with the fingerprints of the rescue's host keys."""
        answer = self._need(self._get("/boot/%d/rescue/last" if last else "/boot/%d/rescue", deadline), "rescue")
        # It is not needed: the rescue is opened by a key.
        answer.pop("password", None)
        return answer

    def resets(self, deadline: Deadline) -> tuple[list[str], str | None]:
        """The types of reset that Robot offers, and what it says of the power: shut off, running, not supported, ….

        None when it says nothing of the power; the list of all servers' resets never does.
        """
        try:
            body = self._get("/reset/%d", deadline)
        except ApiError as error:
            if error.status == 404:
                return [], None
            raise
        return reset_types(part(body, "reset") or {}), _status(body)

    def can_be_woken(self, deadline: Deadline) -> bool:
        """Whether Robot offers Wake on LAN for the server."""
        server = part(self._get("/server/%d", deadline), "server")
        return server is not None and server.get("wol") is True

    def reset(self, kind: str, deadline: Deadline, keep_armed: Callable[[], None]) -> tuple[str, str | None]:
        """Send one reset, once. Returns (SENT, UNSURE, NOT_OFFERED or FAILED; power status or None).

        UNSURE: the answer was lost, and only the machine can show whether the reset was carried out. ``keep_armed()``
        is called after every wait for the hourly limit, which may be longer than a rescue stays armed.
        """
        path = f"/wol/{self._number}" if kind == WOL else f"/reset/{self._number}"
        data = None if kind == WOL else {"type": kind}
        while True:
            try:
                body = self._api.request("POST", path, deadline, machine=self._machine, data=data, reserved=kind != WOL)
            except NoAnswer as error:
                if error.sent:
                    return UNSURE, None
                deadline.sleep(2.0, str(error))
            except ApiError as error:
                if is_limit(error):
                    self._api.reserve(RESET, deadline, count=False)
                    keep_armed()
                    continue
                return _judge(error), None
            else:
                return SENT, _status(body)

    def reserve(self, deadline: Deadline) -> None:
        """Wait until a reset may be sent; its turn is kept."""
        self._api.reserve(RESET, deadline)

    def _post_rescue(self, fingerprints: Sequence[str], deadline: Deadline) -> None:
        def look() -> dict[str, Any] | None:
            present = self.rescue(deadline)
            keys = [(part(entry, "key") or {}).get("fingerprint") for entry in items(present.get("authorized_key"))]
            known = sorted(key for key in keys if isinstance(key, str))
            same = len(known) == len(keys) and known == sorted(fingerprints)
            return {} if present.get("active") is True and same else None

        data = {"os": "linux", "authorized_key[]": list(fingerprints)}
        self._api.change("POST", f"/boot/{self._number}/rescue", deadline, look, machine=self._machine, data=data)

    def _get(self, path: str, deadline: Deadline) -> dict[str, Any]:
        body = self._api.read(path % self._number, deadline, machine=self._machine)
        if not isinstance(body, dict):
            raise MachineError(f"Robot's answer to GET {path} is not what it should be; check the endpoint")
        return body

    def _need(self, body: Any, key: str) -> dict[str, Any]:
        found = part(body, key)
        if found is None:
            raise MachineError(f"Robot's answer about the {key} of server {self._number} is not what it should be")
        return found


def _in_words(kind: str, configuration: Mapping[str, Any]) -> str:
    """An active boot configuration: its kind, and which system it boots or installs."""
    system = next((value for key in ("os", "dist") if isinstance(value := configuration.get(key), str)), "")
    return f"{kind} ({one_line(system, 80)})" if system else kind


def reset_types(item: Mapping[str, Any]) -> list[str]:
    """The types of reset of a server, as Robot lists them."""
    return [kind for kind in items(item.get("type")) if isinstance(kind, str)]


def _status(body: Any) -> str | None:
    """What an answer says of the power; None when it says nothing."""
    status = (part(body, "reset") or {}).get("operating_status")
    return status if isinstance(status, str) else None


def _judge(error: ApiError) -> str:
    """What a refused reset means for the escalation; raises an error that no other type could avoid."""
    if error.code == "RESET_MANUAL_ACTIVE":
        raise Permanent("a technician's reset of the server is under way; run again when it is done") from error
    if error.code in ("RESET_FAILED", "WOL_FAILED"):
        return FAILED
    if error.code in ("RESET_NOT_AVAILABLE", "WOL_NOT_AVAILABLE") or (error.status, error.code) == (
        400,
        "INVALID_INPUT",
    ):
        return NOT_OFFERED
    if error.status >= 500:
        return UNSURE
    raise error


_NAME = re.compile(r"^[\x21-\x7e]([\x20-\x7e]{0,98}[\x21-\x7e])?\Z")

#: What may be done to a server that is powered when it is unknown what it runs.
#: ``once``: may be left over in an inventory; it counts until the first contact was made.
REFUSE, MAY_RESET, ONCE = FIRST_CONTACT = ("refuse", "reset", "once")


def read_servers(api: Robot, deadline: Deadline) -> list[dict[str, Any]]:
    """All servers of the account, for one request."""
    servers = api.read_list("/server", "server", deadline)
    numbered = [server for server in servers if server.get("server_number") is not None]
    return [server for server in numbered if number_of(server) == server["server_number"]]


def input_findings(machines: Iterable[Machine]) -> list[str]:
    """Everything that is wrong with what ``machines`` (dictionaries) say of their servers, as a list of sentences."""
    findings = []
    seen: dict[tuple[str, object], Any] = {}
    for machine in machines:
        name, number, address = machine.get("name"), machine.get("server_number"), machine.get("server_ip")
        if number is not None and number_of(machine) is None:
            findings.append(
                f"machine '{name}': server_number: {number!r} is no number of a server; use the number that Robot "
                "shows, such as 321"
            )
        if address is not None and not _is_address(address):
            findings.append(f"machine '{name}': server_ip: {address!r} is no IP address")
        if machine.get("first_contact") not in (None, *FIRST_CONTACT):
            findings.append(
                f"machine '{name}': first_contact: {machine['first_contact']!r} is none of {', '.join(FIRST_CONTACT)}; "
                "use reset to permit that a server is reset although we cannot tell what it runs"
            )
        for field, value in (("server_number", number_of(machine)), ("server_ip", address)):
            other = seen.setdefault((field, value), name) if value is not None else name
            if other != name:
                findings.append(f"machine '{name}': {field}: {value} is the one of machine '{other}' too")
    return findings


def number_of(machine: Mapping[str, Any]) -> int | None:
    """The server number a machine of the input names; None when it names none that can be one."""
    number = machine.get("server_number")
    if isinstance(number, str):
        number = whole_number(number)
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def find(machine: Machine, servers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The server of ``machine`` by number, address or name, in this order; raises Refused.

    When number and address are both given they must name the same server.
    """
    number, address = number_of(machine), machine.get("server_ip")
    if number is not None:
        found, what = [server for server in servers if server.get("server_number") == number], f"number {number}"
    elif address is not None:
        found, what = [server for server in servers if _has(server, address)], f"address {address}"
    else:
        found = [server for server in servers if server.get("server_name") == machine["name"]]
        what = f"name '{machine['name']}'"
    if not found:
        raise Refused(
            f"the Robot account has no server with the {what}; set server_number or server_ip of machine "
            f"'{machine['name']}' right, or use the webservice user of the account that has it"
        )
    if len(found) > 1:
        numbers = ", ".join(str(server.get("server_number")) for server in found)
        raise Refused(f"the servers {numbers} all have the {what}; set server_number of machine '{machine['name']}'")
    if number is not None and address is not None and not _has(found[0], address):
        raise Refused(f"server {number} does not have the server_ip {address}; correct one of the two")
    return found[0]


def named_by(machine: Machine) -> str:
    """By what `find` has found the server of a machine."""
    if number_of(machine) is not None:
        return "by server_number"
    return "by server_ip" if machine.get("server_ip") is not None else "by its name in Robot"


def facts(server: Mapping[str, Any]) -> dict[str, Any]:
    """What every result says of a server."""
    ipv4, ipv6 = server.get("server_ip"), server.get("server_ipv6_net")
    address = rescue_address(ipv6)
    return {
        "server_number": server.get("server_number"),
        "server_name": _text(server.get("server_name")),
        # Programs are called with it.
        "ipv4": ipv4 if _is_address(ipv4) else None,
        "ipv6": f"{ipv6}/64" if address else None,
        "ipv6_address": address,
        "product": _text(server.get("product")),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def rescue_address(network: object) -> str | None:
    """The address a server has in its IPv6 network, which Robot gives without its length: ``2001:db8::`` → ::2."""
    if not isinstance(network, str) or not _is_address(network) or ":" not in network:
        return None
    try:
        return str(ipaddress.IPv6Address(network) + 2)
    except ValueError:
        # the last address of all has none behind it
        return None


def _has(server: Mapping[str, Any], address: str) -> bool:
    addresses = [server.get("server_ip"), rescue_address(server.get("server_ipv6_net"))]
    return any(_same(address, other) for other in addresses if other)


def _same(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return False


def _is_address(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        # A zone may be anything, and no address of a server has one.
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


class RobotServerFleet:
    """One call of robot_server."""

    def __init__(self, api: Robot, machines: Sequence[Machine], timeout: float, check_mode: bool) -> None:
        self._api = api
        self._given = machines
        self._timeout = timeout
        self._check = check_mode

    def run(self) -> list[dict[str, Any]]:
        """Returns the results of all machines, in the order given; raises FleetError."""
        wanted = self._check_input()
        servers = read_servers(self._api, Deadline(self._timeout, "the list of servers"))
        runs = []
        found: dict[str, dict[str, Any]] = {}
        for machine in self._given:
            run = self._run_of(machine)
            runs.append(run)
            try:
                server = find(machine, servers)
            except Refused as error:
                run.fail(error)
                continue
            if server["server_number"] in [other["server_number"] for other in found.values()]:
                raise FleetError(f"nothing was changed, because of: two machines are server {server['server_number']}")
            found[run.name] = server
            run.result.update(facts(server), status=server.get("status"), cancelled=server.get("cancelled"))
        active = [run for run in runs if run.name in found]
        run_all(self._api, active, lambda run: self._name(run, wanted.get(run.name)))
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _check_input(self) -> dict[str, str]:
        findings = name_findings(self._given) + input_findings(self._given)
        wanted: dict[Any, str] = {}
        owners: dict[str, Any] = {}
        for machine in self._given:
            name, new = machine.get("name"), machine.get("rename")
            if new is None:
                continue
            if not isinstance(new, str) or not _NAME.match(new):
                findings.append(
                    f"machine '{name}': rename: {new!r} is no name for a server; use 1 to 100 printable characters"
                )
            elif owners.setdefault(new, name) != name:
                findings.append(f"machines '{owners[new]}' and '{name}' cannot both be named '{new}'")
            wanted[name] = new
        refuse_findings(findings)
        return wanted

    def _run_of(self, machine: Machine) -> MachineRun:
        run = MachineRun.going_on(machine)
        run.result.update(server_number=None, server_name=None, ipv4=None, ipv6=None, ipv6_address=None, product=None)
        run.result.update(status=None, cancelled=None)
        return run

    def _name(self, run: MachineRun, wanted: str | None) -> None:
        present, number = run.result["server_name"], run.result["server_number"]
        if wanted is None or wanted == present:
            return
        diff = difference(run.name, {"server_name": present}, {"server_name": wanted})
        if self._check:
            run.result.update(changed=True, msg=f"would be renamed from '{present}' to '{wanted}'", diff=diff)
            return
        deadline, path = Deadline(self._timeout, "the new name"), f"/server/{number}"

        def look() -> Any:
            answer = self._api.read(path, deadline, machine=run.name)
            return answer if (part(answer, "server") or {}).get("server_name") == wanted else None

        try:
            with noted(run.result, diff=diff):
                self._api.change("POST", path, deadline, look, machine=run.name, data={"server_name": wanted})
        except (MachineError, ApiError, NoAnswer) as error:
            # Its name says nothing of what runs on it: the boot state stays.
            run.fail(error, provisioning=False)
            return
        run.result.update(server_name=wanted, msg=f"renamed from '{present}' to '{wanted}'")
