# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in a thread of its own, so that programs that block can talk to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from lab.cluster.running_cluster import RunningCluster

from . import mirror
from .lab import Lab
from .nodes import Nodes
from .person import Person
from .state import call_lab

T = TypeVar("T")
_STOP_SECONDS = 300
_BUILD_SECONDS = 900  # the first dedicated servers on this host wait until the image for installimage is built


class RunningLab(Nodes):
    """``with RunningLab(kind="dry") as lab``: takes what Lab takes; has endpoint, token, images_url, robot_*, env.

    The methods of `Nodes` make machines that begin with a system.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._opened: Future[Lab] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="lab", daemon=True)
        self._people: list[Person] = []

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the lab and wait until it answers."""
        self._thread.start()
        self._opened.result()

    def close(self) -> None:
        """Take the lab down and wait until it is gone."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)
        self.forget_keys()
        for person in self._people:
            person.close()
        if self._thread.is_alive():
            raise TimeoutError(f"the lab did not stop within {_STOP_SECONDS} s")

    @property
    def lab(self) -> Lab:
        """The lab itself; its objects belong to the lab's thread, read them only."""
        return self._opened.result()

    @property
    def endpoint(self) -> str:
        """Where the API answers."""
        return self.lab.endpoint

    @property
    def token(self) -> str:
        return self.lab.token

    @property
    def read_only_token(self) -> str:
        return self.lab.read_only_token

    @property
    def robot_endpoint(self) -> str:
        """Where Robot answers."""
        return self.lab.robot_endpoint

    @property
    def robot_user(self) -> str:
        return self.lab.robot_settings.user

    @property
    def robot_password(self) -> str:
        """The webservice user's password."""
        return self.lab.account.password

    @property
    def images_url(self) -> str:
        """Where machines and the controller find the image files."""
        return self.lab.images_url

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that aim clients at this lab."""
        return {
            "HCLOUD_TOKEN": self.token,
            "HCLOUD_ENDPOINT": self.endpoint,
            "HROBOT_ENDPOINT": self.robot_endpoint,
            "HROBOT_API_USER": self.robot_user,
            "HROBOT_API_PASSWORD": self.robot_password,
        }

    @property
    def mirror_url(self) -> str:
        """Where machines and the controller find what nodes download; the common parts are there when this returns."""
        mirror.packaged()
        return self.lab.mirror_url

    @property
    def controller(self) -> str:
        """The address at which machines reach this host."""
        return self.lab.backend.controller

    def cluster(self) -> RunningCluster:
        """The control plane of this lab, started at the first call; it ends with the lab (or with its `close`)."""
        return RunningCluster.started(self.control)

    def in_loop(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """The result of a coroutine run in the lab's event loop, where its objects may be changed."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(function(*arguments), self._loop).result()

    def person(self, machine: str | int) -> Person:
        """An administrator who changes a machine during a run; ``machine``: its name or its dedicated number."""
        self._people.append(Person(self, machine))
        return self._people[-1]

    def dedicated(self, *specs: Mapping[str, Any], **fields: Any) -> list[dict[str, Any]]:
        """Add dedicated servers: one for each spec, ``fields`` in all of them; without a spec, one of ``fields``.

        Returns what ``GET /_lab/machines`` says of them, in the order of the specs.
        """
        wanted = [{**fields, **spec} for spec in specs or ({},)]
        added: list[dict[str, Any]] = self.control("POST", "/dedicated", wanted, timeout=_BUILD_SECONDS)["machines"]
        return added

    def control(self, method: str, path: str, body: Any = None, timeout: float = 600) -> Any:
        """Call one of the lab's own routes, such as ("POST", "/faults", {...})."""
        return call_lab(self.endpoint, self.token, method, path, body, timeout)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            lab = Lab(**self._options)
            await lab.start()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            self._opened.set_exception(error)
            return
        self._opened.set_result(lab)
        await self._stop.wait()
        await lab.close()
