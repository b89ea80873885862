# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in this process: the APIs on loopback, machines of one kind behind them."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from lab import delays, images
from lab.api import app, metadata
from lab.api.bucket import Bucket
from lab.api.cloud import Cloud, Settings
from lab.api.control import Control
from lab.api.gate import Gate
from lab.cluster.routes import ClusterControl
from lab.door import new_log
from lab.faults import Faults
from lab.files import Published
from lab.leftovers import process_state, remove_dead_processes_labs
from lab.machines import KINDS
from lab.machines.site import Site, best_kind, open_site
from lab.robot import app as robot_app
from lab.robot import tls
from lab.robot.account import Account, RobotSettings
from lab.robot.control import RobotControl
from lab.robot.gate import Gate as RobotGate
from lab.robot.gate import Guards
from lab.state import write_secret

IMAGES_PORT = 8080
METADATA_ADDRESS = ("169.254.169.254", 80)
_LOOPBACK = "127.0.0.1"
_numbers = itertools.count(1)


def _silent(_text: str) -> None:
    """Progress nobody wants to see."""


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
        robot_settings: RobotSettings | None = None,
        robot_tls: Path | None = None,
        dedicated: Any = (),
        progress: Callable[[str], None] = _silent,
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
        self.mirror_url = ""
        self.metadata_url = ""
        self._port = port
        self._seed = seed
        self._state_dir = state_dir
        self._robot_tls = robot_tls
        self._dedicated = dedicated
        self._progress = progress
        self._stack = AsyncExitStack()
        self.site: Site
        self.cloud: Cloud
        self.account: Account
        self.robot_password_file: Path

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the site and begin to answer; nothing is left behind when that fails."""
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
        self.site = await open_site(self.kind, self.name, state / "site", self._progress)
        self._stack.push_async_callback(self.site.close)
        storage = self.site.disks / "snapshots"
        storage.mkdir(parents=True, exist_ok=True)
        self._stack.callback(shutil.rmtree, storage, ignore_errors=True)
        system_file = None if image is None else image.files["raw"]
        faults = Faults()
        platform = delays.Delays(self.profile, self.kind, self._seed)
        self.cloud = Cloud(self.site, self.settings, platform, faults, storage, system_file)
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
        guards = Guards(self.robot_settings.clock)
        robot = robot_app.build(self.account, RobotGate(self.account, guards, requests))
        await self._answer_robot(robot)
        limit, refill = self.settings.limit, self.settings.refill_per_second
        gate = Gate(
            self.token,
            self.read_only_token,
            faults,
            requests,
            project=Bucket(limit, refill, time.time),
            strangers=Bucket(limit, refill, time.time),
        )
        listener = _listen(self._port)
        self.endpoint = f"{_url(listener)}/v1"
        cluster = ClusterControl(cluster_folder, self.site.controller, self.site.adopt, self._progress)
        self._stack.push_async_callback(cluster.close)
        control = Control(self.cloud, gate, self.about(), RobotControl(self.account, guards), cluster)
        await self._serve(app.build(self.cloud, gate, control), listener)

    async def _answer_robot(self, application: web.Application) -> None:
        listener = _listen(0)
        self.robot_endpoint = _url(listener)
        # One application answers at both doors: the runner of the second site is the first one's.
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
            await self._serve(published.application(), self.site.listen(IMAGES_PORT))
            self.images_url = f"http://{self.site.gateway}:{IMAGES_PORT}/images"
        self.mirror_url = self.images_url.removesuffix("/images") + "/mirror"

    async def _answer_metadata(self) -> None:
        host, port = METADATA_ADDRESS
        listener = _listen(0) if self.kind == "dry" else self.site.listen(port, host)
        self.metadata_url = f"{_url(listener)}/hetzner/v1"
        await self._serve(metadata.build(self.cloud), listener)

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
            await remove_dead_processes_labs()
            path = process_state(self.name, self._number).folder
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path


def _listen(port: int) -> socket.socket:
    return socket.create_server((_LOOPBACK, port), backlog=1024)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
