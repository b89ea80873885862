# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Boot configuration and resets of one dedicated server: the routes /boot, /reset and /wol of Robot."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .api_failures import ApiError, MachineError, NoAnswer, Permanent
from .robot_client import is_limit, items, part
from .robot_limits import RESET

if TYPE_CHECKING:
    from .api_failures import Deadline
    from .robot_client import Robot


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

    def arm(self, fingerprints: Sequence[str], deadline: Deadline) -> None:
        """Arm the rescue for the next boot, for these keys alone; all that was armed before is disarmed."""
        for tries_left in range(ARMING_TRIES - 1, -1, -1):
            try:
                return self._post_rescue(fingerprints, deadline)
            except ApiError as error:
                if error.code in _NOT_OFFERED:
                    raise Permanent(
                        f"Robot offers no rescue for server {self._number} ({error.code}); ask Hetzner's support"
                    ) from error
                if not tries_left or (error.status != 409 and error.code not in _ACTIVATION_FAILED):
                    raise
                if error.code == "BOOT_ALREADY_ENABLED":
                    # For which keys it is armed, and for how long still, is unknown.
                    self.disarm_kind("rescue", deadline)
                elif error.status == 409:
                    self.disarm(deadline)
                else:
                    deadline.sleep(2.0, str(error))

    def disarm(self, deadline: Deadline) -> list[str]:
        """Disarm everything for the next boot; returns the kinds that were armed."""
        kinds = self._need(self._get("/boot/%d", deadline), "boot")
        # They become a part of a path.
        active = [
            kind
            for kind, value in kinds.items()
            if _KIND.match(kind) and isinstance(value, dict) and value.get("active") is True
        ]
        for kind in active:
            self.disarm_kind(kind, deadline)
        return active

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

    def power_status(self, deadline: Deadline) -> str | None:
        """What Robot says of the power: shut off, running, not supported, …; None when it says nothing."""
        try:
            return _status(self._get("/reset/%d", deadline))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

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
