# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in this process: the APIs on loopback, machines of one kind behind them, and what these download over HTTP."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import itertools
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from lab.api import metadata_only
from lab.api import routes as cloud_routes
from lab.api.cloud_project import Cloud, Settings
from lab.api.http import CLOUD, Bucket, CloudAuth
from lab.api.load_balancers import LoadBalancers, load_balancer_routes
from lab.api.metadata_only import MetadataOnlyResources, metadata_only_routes
from lab.api.networks import primary_ip_routes
from lab.api.resources import Server
from lab.api.routes import action_routes, disk_routes, server_routes
from lab.api.servers import Power, ServerDisks, Servers, image_routes
from lab.api.views import datacenter
from lab.control_routes import ClusterRoutes, ControlRoutes, DedicatedControl
from lab.machines.backend import Backend, best_kind, open_backend
from lab.machines.leftovers import clean_up_dead_processes, process_state
from lab.robot import routes_dedicated, routes_network, tls
from lab.robot.account import Account, RobotSettings
from lab.robot.robot_http import ACCOUNT, RequestCounts, RobotAuth
from lab.robot.routes_dedicated import boot_routes

from . import delays, images, mirror
from .cache import Progress, quiet
from .errors import ImageError
from .faults import Faults, new_log
from .machines import KINDS
from .state import write_secret

#: debian.raw.xz: name, then how it is packed; forms that do not exist yet are made on first use.
_FORM = re.compile(r"(?P<image>[a-z0-9-]+)\.raw(?:\.(?P<form>zst|gz|bz2|xz))?(?:\.sha256)?")


#: Images beside the one the lab boots; built on first use.
OTHERS = ("debian13",)


class Published:
    """The files below ``directory`` and, with an image, that image and `OTHERS` in every form and the tarball."""

    def __init__(self, directory: Path, image: images.Image | None = None) -> None:
        self._directory = directory
        self._image = image

    async def find(self, name: str) -> Path | None:
        """The file of this name, packed first if need be."""
        own = self._directory / name
        if own.is_file():
            return own
        if self._image is None:
            return None
        if name.removesuffix(".sha256") == images.TARBALL:
            tarball = await asyncio.to_thread(images.ensure, "tarball")
            return tarball.dir / name
        match = _FORM.fullmatch(name)
        if match is None or match["image"] not in (self._image.name, *OTHERS):
            return None
        image = self._image
        if match["image"] != image.name:
            image = await asyncio.to_thread(images.ensure, match["image"])
        packed = await asyncio.to_thread(images.variant, image, match["form"] or "raw")
        return packed.with_name(name)

    def names(self) -> list[str]:
        """What there is at present."""
        own = {path.name for path in self._directory.iterdir() if path.is_file()}
        image = set() if self._image is None else {images.TARBALL, *(path.name for path in self._image.files.values())}
        image |= set() if self._image is None else {f"{name}.raw.zst" for name in OTHERS}
        return sorted(own | image | {f"{name}.sha256" for name in image})

    def application(self) -> web.Application:
        """Serve them as /images/<name>; /images/ lists the names."""
        app = web.Application()

        async def get(request: web.Request) -> web.StreamResponse:
            name = request.match_info["name"]
            path = await self.find(name)
            if path is None:
                raise web.HTTPNotFound(text=f"no image file {name}\n")
            return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

        async def index(_request: web.Request) -> web.Response:
            return web.Response(text="".join(f"{name}\n" for name in self.names()))

        app.router.add_get(r"/images/{name:[A-Za-z0-9][A-Za-z0-9._-]*}", get)
        app.router.add_get("/images/", index)
        _add_mirror(app)
        return app


def _add_mirror(app: web.Application) -> None:
    """Serve the mirror; a missing part is built while the first client waits for it."""

    async def get(request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        try:
            file = await asyncio.to_thread(mirror.find, path)
        except ImageError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
        if file is None:
            raise web.HTTPNotFound(text=f"the mirror has no {path}\n")
        return web.FileResponse(file, headers={"Content-Type": "application/octet-stream"})

    app.router.add_get("/mirror/{path:.+}", get)


#: The provider's images allow root to log in with the keys of the server; so does this.
_VENDOR_DATA = "#cloud-config\ndisable_root: false\n"


def _metadata(cloud: Cloud, server: Server) -> dict[str, Any]:
    """The whole metadata document of a server."""
    return {
        "hostname": server.name,
        "instance-id": server.id,
        "availability-zone": datacenter(server.location)["name"],
        "region": server.location.network_zone,
        "public-ipv4": cloud.backend.address(server.index) if server.ipv4 is not None else "",
        "local-ipv4": server.private_net[0].ip if server.private_net else "",
        "public-keys": list(server.authorized_keys),
        "network-config": {
            "version": 1,
            "config": [
                {
                    "type": "physical",
                    "name": "eth0",
                    "mac_address": cloud.backend.mac(server.index),
                    "subnets": _subnets(server),
                }
            ],
        },
        "vendor_data": _VENDOR_DATA,
    }


#: What of the document there is at an address of its own, too.
_LEAVES = (
    "hostname", "instance-id", "public-ipv4", "local-ipv4", "availability-zone", "region", "public-keys", "vendor_data",
)  # fmt: skip


def _metadata_application(cloud: Cloud) -> web.Application:
    """Every machine reads about itself, recognised by the address it comes from; plain HTTP, without a token."""
    app = web.Application()

    def add(path: str, text: Callable[[Server], str]) -> None:
        async def get(request: web.Request) -> web.Response:
            return web.Response(text=text(_asking(cloud, request)))

        app.router.add_get(f"/hetzner/v1/{path}", get)

    def leaf(name: str, server: Server) -> str:
        value = _metadata(cloud, server)[name]
        return _yaml(value) if isinstance(value, list) else str(value)

    add("metadata", lambda server: _yaml(_metadata(cloud, server)))
    for name in _LEAVES:
        add(f"metadata/{name}", functools.partial(leaf, name))
    add("metadata/private-networks", lambda server: _private_networks(cloud, server))
    add("userdata", lambda server: server.user_data or "")
    return app


def _asking(cloud: Cloud, request: web.Request) -> Server:
    server = cloud.server_by_address(request.remote or "")
    if server is None:
        raise web.HTTPNotFound(text=f"no server has the address {request.remote}\n")
    return server


def _subnets(server: Server) -> list[dict[str, Any]]:
    """How the public interface is to be configured."""
    found: list[dict[str, Any]] = [{"type": "dhcp", "ipv4": True}] if server.ipv4 or not server.ipv6 else []
    if server.ipv6:
        address = f"{ipaddress.IPv6Network(server.ipv6.ip)[1]}/64"
        found.append({"type": "static", "ipv6": True, "address": address, "gateway": "fe80::1", "dns_nameservers": []})
    return found


def _private_networks(cloud: Cloud, server: Server) -> str:
    networks = []
    for position, net in enumerate(server.private_net):
        network = cloud.metadata_only["network"][net.network]
        networks.append(
            {
                "ip": net.ip,
                "alias_ips": list(net.alias_ips),
                "interface_num": position + 1,
                "mac_address": net.mac,
                "network_id": net.network,
                "network_name": network.name,
                "network": network.content["ip_range"],
            }
        )
    return _yaml(networks)


def _yaml(value: object) -> str:
    # One key, one line: people read these with grep.
    return yaml.safe_dump(value, sort_keys=False, width=100_000)


IMAGES_PORT = 8080
METADATA_ADDRESS = ("169.254.169.254", 80)
_LOOPBACK = "127.0.0.1"


def _cloud_application(cloud: Cloud, auth: CloudAuth, control: ControlRoutes) -> web.Application:
    """The application: the API below /v1, the lab's own routes below /_lab."""
    power = Power(cloud)
    servers = Servers(cloud, power)
    disks = ServerDisks(cloud, servers, power)
    resources = MetadataOnlyResources(cloud, servers)
    api = web.Application(middlewares=[auth.middleware()])
    for routes in (
        cloud_routes.routes,
        metadata_only.ssh_key_routes,
        server_routes(servers),
        action_routes(power, resources),
        disk_routes(disks),
        image_routes(disks),
        metadata_only_routes(resources),
        primary_ip_routes(servers.addresses),
        load_balancer_routes(LoadBalancers(cloud)),
    ):
        api.add_routes(routes)
    own = web.Application(middlewares=[control.middleware()])
    own.add_routes(control.routes())
    app = web.Application()
    app[CLOUD] = cloud
    app.add_subapp("/v1", api)
    app.add_subapp("/_lab", own)
    return app


def _robot_application(account: Account, auth: RobotAuth) -> web.Application:
    """The application, at the root path as the real service has it."""
    app = web.Application(middlewares=[auth.middleware()])
    app[ACCOUNT] = account
    for routes in (
        routes_dedicated.routes,
        boot_routes(),
        routes_network.routes,
    ):
        app.add_routes(routes)
    return app


_numbers = itertools.count(1)


class Lab:
    """``async with Lab(kind="dry") as lab``: then endpoint, robot_endpoint, images_url and metadata_url are valid."""

    def __init__(
        self,
        kind: str = "dry",
        profile: str = "instant",
        *,
        name: str | None = None,
        port: int = 0,
        token: str | None = None,
        read_only_token: str | None = None,
        seed: int = 0,
        state_dir: Path | None = None,
        settings: Settings | None = None,
        robot_port: int = 0,
        robot_settings: RobotSettings | None = None,
        robot_tls: Path | None = None,
        dedicated: Any = (),
        progress: Progress = quiet,
    ) -> None:
        if kind not in ("auto", *KINDS):
            raise ValueError(f"kind is '{kind}'; it must be one of auto, {', '.join(KINDS)}")
        if profile not in delays.PROFILES:
            raise ValueError(f"profile is '{profile}'; it must be one of {', '.join(delays.PROFILES)}")
        self.kind = kind
        self.reason = "asked for"
        self.profile = delays.PROFILES[profile]
        self._number = next(_numbers)
        self.name = name or f"process-{os.getpid()}-{self._number}"
        self.token = token or secrets.token_urlsafe(32)
        self.read_only_token = read_only_token or secrets.token_urlsafe(32)
        self.settings = settings or Settings()
        self.robot_settings = robot_settings or RobotSettings()
        self.endpoint = ""
        self.robot_endpoint = ""
        self.robot_tls: dict[str, str] | None = None
        self.images_url = ""
        self.images_url6 = ""
        self.mirror_url = ""
        self.metadata_url = ""
        self._port, self._robot_port = port, robot_port
        self._seed = seed
        self._state_dir = state_dir
        self._robot_tls = robot_tls
        self._dedicated = dedicated
        self._progress = progress
        self._stack = AsyncExitStack()
        self.backend: Backend
        self.cloud: Cloud
        self.account: Account
        self.robot_password_file: Path

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the backend and begin to answer; nothing is left behind when that fails."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop answering, then take everything down."""
        await self._stack.aclose()

    def about(self) -> dict[str, Any]:
        """What this lab is, for people and programs."""
        return {
            "name": self.name,
            "kind": self.kind,
            "reason": self.reason,
            "profile": self.profile.name,
            "seed": self._seed,
            "endpoint": self.endpoint,
            "images_url": self.images_url,
            "images_url6": self.images_url6,
            "mirror_url": self.mirror_url,
            "metadata_url": self.metadata_url,
            "limit": self.settings.limit,
            "robot": {
                "endpoint": self.robot_endpoint,
                "user": self.robot_settings.user,
                "password_file": str(self.robot_password_file),
            }
            | ({"tls": self.robot_tls} if self.robot_tls else {}),
        }

    async def _start(self) -> None:
        if self.kind == "auto":
            self.kind, self.reason = await asyncio.to_thread(best_kind, self._progress)
        state = self._state_dir or await self._temporary()
        state.mkdir(parents=True, exist_ok=True)
        image = None if self.kind == "dry" else await asyncio.to_thread(images.ensure, "debian", self._progress)
        self.backend = await open_backend(self.kind, self.name, state / "site", self._progress)
        self._stack.push_async_callback(self.backend.close)
        storage = self.backend.disks / "snapshots"
        storage.mkdir(parents=True, exist_ok=True)
        self._stack.callback(shutil.rmtree, storage, ignore_errors=True)
        system_file = None if image is None else image.files["raw"]
        faults = Faults()
        platform = delays.Delays(self.profile, self.kind, self._seed)
        self.cloud = Cloud(self.backend, self.settings, platform, faults, storage, system_file)
        self._stack.push_async_callback(self.cloud.close)
        share = None if self.kind == "dry" else functools.partial(images.share, self._progress)
        self.account = Account(self.cloud, self.robot_settings, share)
        self._stack.push_async_callback(self.account.close)
        self.robot_password_file = state / "robot-password"
        write_secret(self.robot_password_file, self.account.password)
        await self._publish(state / "published", image)
        await self._answer_metadata()
        await self.account.add(list(self._dedicated))
        await self._answer_apis(faults, state / "site/cluster")

    async def _answer_apis(self, faults: Faults, cluster_folder: Path) -> None:
        requests = new_log()
        counts = RequestCounts(self.robot_settings.clock)
        robot = _robot_application(self.account, RobotAuth(self.account, counts, requests))
        await self._answer_robot(robot)
        limit, refill = self.settings.limit, self.settings.refill_per_second
        auth = CloudAuth(
            self.token,
            self.read_only_token,
            faults,
            requests,
            project=Bucket(limit, refill, time.time),
            strangers=Bucket(limit, refill, time.time),
        )
        listener = _listen(self._port)
        self.endpoint = f"{_url(listener)}/v1"
        cluster = ClusterRoutes(cluster_folder, self.backend.controller, self.backend.adopt, self._progress)
        self._stack.push_async_callback(cluster.close)
        control = ControlRoutes(self.cloud, auth, self.about(), DedicatedControl(self.account, counts), cluster)
        await self._serve(_cloud_application(self.cloud, auth, control), listener)

    async def _answer_robot(self, application: web.Application) -> None:
        listener = _listen(self._robot_port)
        self.robot_endpoint = _url(listener)
        # One application answers by HTTP and by HTTPS, so both have the same runner.
        runner = await self._serve(application, listener)
        if self._robot_tls is None:
            return
        secure = tls.listen()
        address, port = secure.getsockname()[:2]
        context = await asyncio.to_thread(tls.context, self._robot_tls, address)
        await web.SockSite(runner, secure, ssl_context=context).start()
        self.robot_tls = {
            "endpoint": f"https://{address}:{port}",
            "host": tls.HOST,
            "ca_file": str(self._robot_tls.resolve() / "ca.pem"),
        }

    async def _publish(self, directory: Path, image: images.Image | None) -> None:
        directory.mkdir(exist_ok=True)
        published = Published(directory, image)
        listener = _listen(0)
        self.images_url = f"{_url(listener)}/images"
        await self._serve(published.application(), listener)
        if self.kind != "dry":
            # Machines and controller both reach the gateway, so this is the address to hand out.
            await self._serve(published.application(), self.backend.listen(IMAGES_PORT))
            self.images_url = f"http://{self.backend.gateway}:{IMAGES_PORT}/images"
            if self.backend.gateway6:
                await self._serve(published.application(), self.backend.listen(IMAGES_PORT, self.backend.gateway6))
                self.images_url6 = f"http://[{self.backend.gateway6}]:{IMAGES_PORT}/images"
        self.mirror_url = self.images_url.removesuffix("/images") + "/mirror"

    async def _answer_metadata(self) -> None:
        host, port = METADATA_ADDRESS
        listener = _listen(0) if self.kind == "dry" else self.backend.listen(port, host)
        self.metadata_url = f"{_url(listener)}/hetzner/v1"
        await self._serve(_metadata_application(self.cloud), listener)

    async def _serve(self, application: web.Application, listener: socket.socket) -> web.AppRunner:
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listener).start()
        return runner

    async def _temporary(self) -> Path:
        if self.kind == "dry":
            path = Path(tempfile.mkdtemp(prefix="kubenode-lab-"))
        else:
            # Machines leave traces in the kernel when a process is killed; in this place the next lab finds them.
            await clean_up_dead_processes()
            path = process_state(self.name, self._number).folder
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path


def _listen(port: int) -> socket.socket:
    return socket.create_server((_LOOPBACK, port), backlog=1024)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
