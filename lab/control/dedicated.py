# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's own routes do with dedicated servers; not part of the emulated webservice."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lab.api.api_errors import ApiError, not_found
from lab.errors import ImageError, LabError
from lab.machines.base import Machine
from lab.robot.account import Account
from lab.robot.dedicated_power import DedicatedPower
from lab.robot.model import Dedicated
from lab.robot.robot_auth import LIMITS, RequestCounts
from lab.robot.specs import SpecError


class LimitBody(BaseModel):
    """How many requests of a route to leave; ``interval`` also makes its window shorter (seconds)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    route: str
    remaining: int = Field(ge=0)
    interval: float | None = Field(default=None, gt=0)

    @field_validator("route")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in LIMITS:
            raise ValueError(f"'{value}' is not one of {', '.join(LIMITS)}")
        return value


class DedicatedControl:
    """Dedicated servers as the lab itself sees them."""

    def __init__(self, account: Account, counts: RequestCounts) -> None:
        self.account = account
        self.counts = counts

    def rows(self) -> list[dict[str, Any]]:
        """Every dedicated server, by number."""
        return [self.row(server) for server in self.account.ordered()]

    def row(self, server: Dedicated) -> dict[str, Any]:
        """One server: hardware, power, boots and resets."""
        power_control = self.account.power_control[server.number]
        return {
            "number": server.number,
            "name": server.name,
            "kind": "dedicated",
            "product": server.spec.product,
            "status": "running" if power_control.powered else "off",
            "rescue_enabled": power_control.rescue_armed(),
            "address": server.ipv4,
            "mac": server.mac,
            "uefi": server.spec.uefi,
            "powered": power_control.powered,
            "running": power_control.running,
            "boot_order": list(power_control.boot_order),
            "boots": [
                {"at": boot.at, "source": boot.source, "authorized_keys": list(boot.authorized_keys)}
                for boot in server.boots
            ],
            "resets": [{"at": reset.at, "type": reset.type} for reset in server.resets],
            "disks": self._disks(server),
        }

    async def add(self, entries: Any) -> list[dict[str, Any]]:
        """Build servers; all of them, or none."""
        try:
            added = await self.account.add(entries)
        except (SpecError, LabError, ImageError) as error:
            raise ApiError(422, "invalid_input", str(error)) from error
        return [self.row(server) for server in added]

    async def remove(self, number: int) -> None:
        """Take a server away."""
        await self.account.remove(self._server(number))

    async def digests(self, number: int) -> list[dict[str, Any]]:
        """The disks of a server with the digest of their content now."""
        server = self._server(number)
        machine = self.account.power_control[number].machine
        disks = self._disks(server)
        digests = await asyncio.gather(*(machine.disk_digest(index) for index in range(len(disks))))
        return [{**disk, "sha256": digest} for disk, digest in zip(disks, digests, strict=True)]

    def power_control(self, name: str) -> DedicatedPower | None:
        """The power control of the server of this number or name; None when there is none."""
        for server in self.account.ordered():
            power_control = self.account.power_control[server.number]
            if name in power_control.names:
                return power_control
        return None

    def leave(self, body: LimitBody) -> dict[str, Any]:
        """Leave so many requests in the window of a route."""
        self.counts.limits.leave(body.route, body.remaining, body.interval)
        return {"route": body.route, "limit": LIMITS[body.route], "remaining": self.remaining(body.route)}

    def remaining(self, route: str) -> int:
        """How many requests of a route are left."""
        return self.counts.limits.remaining(route)

    def clear(self) -> None:
        """Forget all requests and failed logins."""
        self.counts.clear()

    async def faults_added(self) -> None:
        """A script that names systems which are up strikes them now."""
        await self.account.hang()

    def faults_cleared(self) -> None:
        """A password that a fault rotated is the old one again."""
        self.account.restore_password()

    def _server(self, number: int) -> Dedicated:
        server = self.account.servers.get(number)
        if server is None:
            raise not_found("dedicated server", number)
        return server

    def _disks(self, server: Dedicated) -> list[dict[str, Any]]:
        """The disks as the guests see them, which not every kind of machine can show as they were described."""
        return shown_disks(self.account.power_control[server.number].machine)


def shown_disks(machine: Machine) -> list[dict[str, Any]]:
    """The disks of a machine as its guests see them."""
    return [
        {
            "kind": disk.kind,
            "size": disk.size_bytes,
            "serial": disk.serial,
            "wwn": disk.wwn,
            "model": disk.model,
            "rotational": disk.rotational,
        }
        for disk in machine.disks
    ]
