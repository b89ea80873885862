# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own routes below /_lab: faults, delays, requests, machines, control plane; no part of the emulated APIs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from lab.api import schemas
from lab.api.cloud_project import Cloud
from lab.api.http import Bucket, CloudAuth, answer, identifier, read_json
from lab.api.resources import Boot
from lab.api.schemas import ApiError, not_found
from lab.cache import Progress
from lab.cluster.control_plane import Adopt, ControlPlane
from lab.cluster.programs import ensure
from lab.errors import ClusterError, ImageError, LabError
from lab.faults import Handler
from lab.machines.base import Machine
from lab.machines.disks import WHOLE, DiskSpec, Range
from lab.power_control import DedicatedPower, PowerControl
from lab.robot.account import Account
from lab.robot.model import Dedicated, SpecError, size
from lab.robot.robot_http import LIMITS, RequestCounts


class ClusterRoutes:
    """At most one control plane, below ``folder``."""

    def __init__(self, folder: Path, host: str, adopt: Adopt, progress: Progress) -> None:
        """As ControlPlane; nothing is started yet."""
        self._folder = folder
        self._host = host
        self._adopt = adopt
        self._progress = progress
        self._plane: ControlPlane | None = None
        self._lock = asyncio.Lock()

    def add_to(self, routes: web.RouteTableDef) -> None:
        """Beside the other routes of the lab."""
        routes.get("/cluster")(self.show)
        routes.post("/cluster")(self.up)
        routes.delete("/cluster")(self.down)
        routes.post("/cluster/server")(self.serve)
        routes.post("/cluster/signing")(self.sign)

    async def close(self) -> None:
        async with self._lock:
            if self._plane is not None:
                await self._plane.close()
            self._plane = None

    async def show(self, _request: web.Request) -> web.Response:
        """Where it is and what of it runs, or null."""
        return answer({"cluster": self._plane.about() if self._plane else None})

    async def up(self, _request: web.Request) -> web.Response:
        """Start it, unless it is up."""
        async with self._lock:
            if self._plane is None:
                try:
                    programs = await asyncio.to_thread(ensure, self._progress)
                    plane = ControlPlane(programs, self._folder, self._host, self._adopt)
                    await plane.start()
                except ClusterError as error:
                    raise ApiError(500, "cluster", str(error)) from error
                self._plane = plane
            return answer(self._plane.about(), status=201)

    async def down(self, _request: web.Request) -> web.Response:
        await self.close()
        return web.Response(status=204)

    async def serve(self, request: web.Request) -> web.Response:
        """{"on": bool}: switch the API server on or off."""
        wanted = (await _body(request)).get("on")
        if not isinstance(wanted, bool):
            raise ApiError(422, "invalid_input", "on must be true or false")
        return await self._change(lambda plane: plane.serve(wanted))

    async def sign(self, request: web.Request) -> web.Response:
        """{"seconds": int}: how long certificates are valid that are signed from now on."""
        seconds = (await _body(request)).get("seconds")
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
            raise ApiError(422, "invalid_input", "seconds must be an integer of at least 1")
        return await self._change(lambda plane: plane.sign_for(seconds))

    async def _change(self, change: Callable[[ControlPlane], Awaitable[None]]) -> web.Response:
        async with self._lock:
            if self._plane is None:
                raise ApiError(404, "not_found", "this lab has no control plane")
            try:
                await change(self._plane)
            except ClusterError as error:
                raise ApiError(500, "cluster", str(error)) from error
            return answer(self._plane.about())


async def _body(request: web.Request) -> dict[str, object]:
    body = await read_json(request)
    return body if isinstance(body, dict) else {}


BodyType = TypeVar("BodyType", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LimitBody(_Body):
    """How many requests of a route to leave; ``interval`` also makes its window shorter (seconds)."""

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
            **power_row(power_control),
            "boots": [boot_row(boot) for boot in server.boots],
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

    async def digests(self, number: int) -> list[dict[str, Any]]:
        """The disks of a server with the digest of their content now."""
        server = self.server(number)
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

    def server(self, number: int) -> Dedicated:
        server = self.account.servers.get(number)
        if server is None:
            raise not_found("dedicated server", number)
        return server

    def _disks(self, server: Dedicated) -> list[dict[str, Any]]:
        """The disks as the guests see them, which not every kind of machine can show as they were described."""
        return shown_disks(self.account.power_control[server.number].machine)


def power_row(power_control: PowerControl) -> dict[str, Any]:
    return {
        "powered": power_control.powered,
        "running": power_control.running,
        "boot_order": list(power_control.boot_order),
    }


def boot_row(boot: Boot) -> dict[str, Any]:
    return {"at": boot.at, "source": boot.source, "authorized_keys": list(boot.authorized_keys)}


def shown_disks(machine: Machine) -> list[dict[str, Any]]:
    """The disks of a machine as its guests see them."""
    rows = [asdict(disk) for disk in machine.disks]
    return [{"size": row.pop("size_bytes"), **row} for row in rows]


class BootOrderBody(_Body):
    """Disks that the firmware tries first, numbered from 0; none: all in their own order."""

    disks: list[int]


class DiskBody(_Body):
    """A disk to put in; fields that are left out are made up, and differ from those of all other disks."""

    size: Annotated[int, BeforeValidator(size)]
    kind: Literal["scsi", "sata", "nvme"] | None = None
    serial: str = ""
    wwn: str = ""
    model: str = ""
    rotational: bool = False
    image: str | None = Field(default=None, min_length=1, description="debian, or the path of a raw file")


class RangesBody(_Body):
    """Ranges of a disk: start and length in bytes; none: all of it."""

    disk: int = Field(default=0, ge=0)
    ranges: list[tuple[int, int]] = Field(default_factory=list)


class SilenceBody(_Body):
    """Whether a machine's SSH server is to be silent, and for how many seconds (without: until a request ends it)."""

    on: bool
    seconds: float | None = Field(default=None, gt=0)


class LineBody(_Body):
    """What is wrong with a machine's network: packets of a hundred that get lost, kilobytes a second; 0: nothing."""

    loss: int = Field(default=0, ge=0, le=99)
    kbytes: int = Field(default=0, ge=0)


class EnterBody(_Body):
    """A shell script for a running guest."""

    script: str


class MachineRoutes:
    """Handlers of these routes; ``{name}`` is the name of a server of either API, or a number of Robot's."""

    def __init__(self, cloud: Cloud, robot: DedicatedControl) -> None:
        self.cloud = cloud
        self.robot = robot
        self._brought = 0
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add_to(self, routes: web.RouteTableDef) -> None:
        table = (
            ("GET", "disks", self.disks),
            ("POST", "disks", self.add_disk),
            ("PUT", r"disks/{index:[0-9]+}", self.replace_disk),
            ("POST", "digests", self.digests),
            ("POST", "marks", self.marks),
            ("POST", "boot-order", self.order_boot),
            ("POST", "silence", self.silence),
            ("POST", "line", self.line),
            ("POST", "enter", self.enter),
        )
        for method, path, handler in table:
            routes.route(method, f"/machines/{{name}}/{path}")(_refusing(handler))

    def power_control(self, name: str) -> PowerControl:
        """The power control of a server of either API."""
        for server in self.cloud.servers.values():
            if server.name == name:
                return self.cloud.power_control[server.id]
        found = self.robot.power_control(name)
        if found is None:
            raise not_found("machine", name)
        return found

    async def disks(self, request: web.Request) -> web.Response:
        """The disks as guests see them."""
        return answer({"disks": shown_disks(self._machine(request))})

    async def add_disk(self, request: web.Request) -> web.Response:
        """Put a further disk in; the next boot finds it."""
        machine, body = self._machine(request), await _parsed(request, DiskBody)
        await machine.add_disk(*self._disk(machine, len(machine.disks), body))
        return answer({"disks": shown_disks(machine)}, status=201)

    async def replace_disk(self, request: web.Request) -> web.Response:
        """Put another disk in the place of one; only while the machine is off."""
        machine, index = self._machine(request), int(request.match_info["index"])
        if index >= len(machine.disks):
            raise not_found("disk", index)
        await machine.replace_disk(index, *self._disk(machine, index, await _parsed(request, DiskBody)))
        return answer({"disks": shown_disks(machine)})

    async def digests(self, request: web.Request) -> web.Response:
        """SHA-256 of ranges of a disk as they are now, or of all of it."""
        machine, disk, ranges = await self._ranges(request)
        return answer({"sha256": [await machine.disk_digest(disk, part) for part in ranges]})

    async def marks(self, request: web.Request) -> web.Response:
        """What stays the same as long as no byte of a range changes."""
        machine, disk, ranges = await self._ranges(request)
        return answer({"marks": [await machine.disk_mark(disk, part) for part in ranges]})

    async def _ranges(self, request: web.Request) -> tuple[Machine, int, list[Range]]:
        machine, body = self._machine(request), await _parsed(request, RangesBody)
        if body.disk >= len(machine.disks):
            raise not_found("disk", body.disk)
        return machine, body.disk, [*body.ranges] or [WHOLE]

    async def order_boot(self, request: web.Request) -> web.Response:
        """Choose what the firmware tries first, from the next boot on."""
        machine, body = self._machine(request), await _parsed(request, BootOrderBody)
        machine.boot_first(tuple(body.disks))
        return answer({"boot_order": list(machine.boot_order)})

    async def silence(self, request: web.Request) -> web.Response:
        """Let the packets of a machine's SSH server vanish, or arrive again."""
        machine, body = self._machine(request), await _parsed(request, SilenceBody)
        await self.cloud.backend.silence(machine, body.on)
        timer = self._timers.pop(machine.hardware.machine_id, None)
        if timer is not None:
            timer.cancel()
        if body.on and body.seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[machine.hardware.machine_id] = loop.call_later(body.seconds, self._let_speak, machine)
        return answer({"silent": body.on})

    async def line(self, request: web.Request) -> web.Response:
        """Make a machine's network bad, or good again."""
        machine, body = self._machine(request), await _parsed(request, LineBody)
        await self.cloud.backend.worsen(machine, body.loss, body.kbytes)
        return answer({"loss": body.loss, "kbytes": body.kbytes})

    async def enter(self, request: web.Request) -> web.Response:
        """Run a script inside, past its network."""
        machine, body = self._machine(request), await _parsed(request, EnterBody)
        status, out, err = await machine.enter(body.script)
        return answer({"status": status, "out": out, "err": err})

    def _let_speak(self, machine: Machine) -> None:
        del self._timers[machine.hardware.machine_id]
        task = asyncio.get_running_loop().create_task(self.cloud.backend.silence(machine, False))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _machine(self, request: web.Request) -> Machine:
        return self.power_control(request.match_info["name"]).machine

    def _disk(self, machine: Machine, index: int, body: DiskBody) -> tuple[DiskSpec, Path | None]:
        """A disk with an identity of its own, and what it holds."""
        self._brought += 1
        kind = body.kind or machine.disks[0].kind
        own = hashlib.sha256(f"{machine.hardware.machine_id} {index} {self._brought}".encode()).hexdigest()[:8]
        wwns = {"nvme": f"eui.0025385c{own}", "sata": f"0x5002538e{own}", "scsi": ""}
        disk = DiskSpec(
            body.size, kind, body.serial or f"X{own.upper()}", body.wwn or wwns[kind], body.model, body.rotational
        )
        image = self.cloud.system_file if body.image == "debian" else body.image and Path(body.image)
        if isinstance(image, Path) and not image.is_file():
            raise LabError(f"image '{image}' is no file; give 'debian' or a raw image")
        return disk, image or None


def _refusing(handler: Handler) -> Handler:
    """Answer a `LabError` of the machines as an error of the API."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except LabError as error:
            raise ApiError(422, "invalid_input", str(error)) from error

    return guarded


async def _parsed(request: web.Request, model: type[BodyType]) -> BodyType:
    return model.model_validate_json(json.dumps(await read_json(request, "{}")))


class ControlRoutes:
    """Handlers of the lab's own routes."""

    def __init__(
        self, cloud: Cloud, auth: CloudAuth, about: dict[str, Any], robot: DedicatedControl, cluster: ClusterRoutes
    ) -> None:
        self.cloud = cloud
        self.auth = auth
        self.about = about
        self.robot = robot
        self.cluster = cluster
        self.machine_routes = MachineRoutes(cloud, robot)

    def routes(self) -> web.RouteTableDef:
        """All routes; they need the token, cost no rate limit and meet no faults."""
        routes = web.RouteTableDef()
        table = (
            ("GET", "/status", self.status),
            ("GET", "/delays", self.delays),
            ("GET", "/faults", self.faults),
            ("POST", "/faults", self.add_faults),
            ("DELETE", "/faults", self.clear_faults),
            ("GET", "/requests", self.requests),
            ("DELETE", "/requests", self.forget_requests),
            ("POST", "/bucket", self.drain),
            ("GET", "/machines", self.machines),
            ("GET", "/machines/{name}/console", self.console),
            ("POST", "/dedicated", self.add_dedicated),
            ("DELETE", r"/dedicated/{id:[0-9]+}", self.remove_dedicated),
            ("GET", r"/dedicated/{id:[0-9]+}/disks", self.dedicated_disks),
            ("POST", "/robot/limits", self.limit_robot),
            ("DELETE", "/robot/limits", self.unlimit_robot),
        )
        for method, path, handler in table:
            routes.route(method, path)(handler)
        self.cluster.add_to(routes)
        self.machine_routes.add_to(routes)
        return routes

    def middleware(self) -> Any:
        """Token and error envelope for these routes."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                if self.auth.access(request) != "write":
                    raise ApiError(401, "unauthorized", "the lab's own routes need its read-write token")
                return await handler(request)
            except ValidationError as error:
                refusal = schemas.refusal(error)
                return answer(refusal.body(), refusal.status)
            except ApiError as error:
                return answer(error.body(), error.status)

        return guard

    async def status(self, _request: web.Request) -> web.Response:
        """What this lab is."""
        counts = {"servers": len(self.cloud.servers), "dedicated": len(self.robot.account.servers)}
        return answer(self.about | counts)

    async def delays(self, _request: web.Request) -> web.Response:
        """The platform's own delays so far, per machine."""
        return answer(self.cloud.delays.report())

    async def faults(self, _request: web.Request) -> web.Response:
        """The script and how often each fault struck."""
        return answer({"faults": self.cloud.faults.report()})

    async def add_faults(self, request: web.Request) -> web.Response:
        """Append to the script: one fault or a list of faults."""
        self.cloud.faults.load(await read_json(request))
        await self.robot.account.hang()  # systems that are up are struck now
        return answer({"faults": self.cloud.faults.report()}, status=201)

    async def clear_faults(self, _request: web.Request) -> web.Response:
        """Forget the script; stuck actions go on, a rotated password is good again."""
        self.cloud.faults.clear()
        self.robot.account.restore_password()
        return web.Response(status=204)

    async def requests(self, _request: web.Request) -> web.Response:
        """Every API request since the start, or since the last DELETE."""
        return answer({"requests": list(self.auth.requests)})

    async def forget_requests(self, _request: web.Request) -> web.Response:
        self.auth.requests.clear()
        return web.Response(status=204)

    async def drain(self, request: web.Request) -> web.Response:
        """Leave ``remaining`` requests in the bucket, as if another client had spent the rest."""
        wanted = await read_json(request)
        remaining = wanted.get("remaining") if isinstance(wanted, dict) else None
        if not isinstance(remaining, int) or remaining < 0:
            raise ApiError(422, "invalid_input", "remaining must be an integer of at least 0")
        bucket: Bucket = self.auth.project
        bucket.drain(remaining)
        return answer(bucket.headers())

    async def machines(self, _request: web.Request) -> web.Response:
        """Machines behind the servers of both APIs: power, boots, address."""
        rows: list[dict[str, Any]] = []
        for server in self.cloud.servers.values():
            power_control = self.cloud.power_control[server.id]
            rows.append(
                {
                    "id": server.id,
                    "name": server.name,
                    "kind": "cloud",
                    "status": server.status,
                    "locked": server.locked,
                    "rescue_enabled": server.armed_rescue() is not None,
                    "address": self.cloud.backend.address(server.index),
                    **power_row(power_control),
                    "boots": [boot_row(boot) for boot in server.boots],
                }
            )
        return answer({"machines": rows + self.robot.rows()})

    async def console(self, request: web.Request) -> web.Response:
        """What a machine printed since it was switched on."""
        return web.Response(text=self.machine_routes.power_control(request.match_info["name"]).console())

    async def add_dedicated(self, request: web.Request) -> web.Response:
        """Build dedicated servers: a list of descriptions, or one."""
        return answer({"machines": await self.robot.add(await read_json(request))}, status=201)

    async def remove_dedicated(self, request: web.Request) -> web.Response:
        await self.robot.account.remove(self.robot.server(identifier(request)))
        return web.Response(status=204)

    async def dedicated_disks(self, request: web.Request) -> web.Response:
        """The disks of a dedicated server, with digests of their content now."""
        return answer({"disks": await self.robot.digests(identifier(request))})

    async def limit_robot(self, request: web.Request) -> web.Response:
        """Leave only so many requests of one of Robot's routes, as if others had made the rest."""
        body, limits = LimitBody.model_validate(await read_json(request)), self.robot.counts.limits
        limits.leave(body.route, body.remaining, body.interval)
        return answer({"route": body.route, "limit": LIMITS[body.route], "remaining": limits.remaining(body.route)})

    async def unlimit_robot(self, _request: web.Request) -> web.Response:
        """Forget Robot's counts of requests and failed logins."""
        self.robot.counts.clear()
        return web.Response(status=204)
