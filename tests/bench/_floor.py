# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""_floor.py JOB.json: the leanest program for the main job, below which no tool can come that does the same.

The same requests at the same times (the collection's own schedule of looks), a TCP look every quarter of a second, one
``ssh`` into the rescue and one into the new system. It resumes nothing, asks for no consent, and verifies no host key.
JOB: names, key_name, private_key, user_data, image_url, command (paths and words), throttle (how many machines write at
once); HCLOUD_ENDPOINT and HCLOUD_TOKEN.
"""

import asyncio
import contextlib
import http.client
import json
import os
import shlex
import sys
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.action_board import BATCH, Schedule

DONE = "IMAGE_URL_DONE"
LOOK = 0.25
#: Seconds in which a system that shall reboot closes its port; later the port is taken for the new system's.
LEAVING = 8.0
#: Requests at a time.
REQUESTS = 12
IN_RESCUE = (
    "cd /root && head -c {size} >image-url-command && cat >bootstrap.data && chmod 0700 image-url-command && "
    '[ "$(hostname)" = rescue ] && ./image-url-command {words} && reboot'
)
IN_SYSTEM = "while ! [ -e /run/cloud-init/result.json ]; do sleep 0.1; done; hostname; cat /etc/kubenode-proof"


class Api:
    """The Cloud API, a connection a thread."""

    def __init__(self) -> None:
        self._url = urllib.parse.urlsplit(os.environ["HCLOUD_ENDPOINT"])
        self._headers = {"Authorization": f"Bearer {os.environ['HCLOUD_TOKEN']}", "Content-Type": "application/json"}
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(REQUESTS)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer; raises OSError for everything that is not a success."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        if not hasattr(self._own, "connection"):
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            self._own.connection = kind(str(self._url.hostname), self._url.port)
        connection = self._own.connection
        connection.request(method, self._url.path + path, None if body is None else json.dumps(body), self._headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise OSError(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)


class Actions:
    """Running actions of all machines, looked at together."""

    def __init__(self, api: Api) -> None:
        self._api, self._schedule, self._waiting = api, Schedule(), dict[int, asyncio.Future[str]]()
        self._changed = asyncio.Event()

    async def wait(self, action: dict[str, Any]) -> None:
        """Until it has ended well."""
        if action["status"] == "running":
            self._waiting[action["id"]] = asyncio.get_running_loop().create_future()
            self._schedule.add(action["id"], action["command"], time.monotonic())
            self._changed.set()
            action["status"] = await self._waiting[action["id"]]
        if action["status"] != "success":
            raise OSError(f"{action['command']}: {action['status']}")

    async def poll(self) -> None:
        """Look for ever."""
        while True:
            due, now = self._schedule.due_at(), time.monotonic()
            if due is None or due > now:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), None if due is None else due - now)
                continue
            for ids in self._schedule.choose(now):
                query = urllib.parse.urlencode([*(("id", one) for one in ids), ("per_page", BATCH)])
                for action in (await self._api.call("GET", f"/actions?{query}"))["actions"]:
                    if action["status"] != "running" and action["id"] in self._waiting:
                        self._schedule.remove(action["id"], time.monotonic())
                        self._waiting.pop(action["id"]).set_result(action["status"])


class Floor:
    """One job."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job, self._api = job, Api()
        self._actions = Actions(self._api)
        self._turns = asyncio.Semaphore(job["throttle"])
        self._command = Path(job["command"]).read_bytes()
        self._data = Path(job["user_data"]).read_bytes()

    async def run(self) -> int:
        """All machines; the number of those that failed."""
        poller = asyncio.create_task(self._actions.poll())
        keys, images, _types, _servers = await asyncio.gather(
            self._api.call("GET", f"/ssh_keys?name={self._job['key_name']}"),
            self._api.call("GET", "/images?name=ubuntu-24.04&architecture=x86"),
            self._api.call("GET", "/server_types?name=cx23"),
            self._api.call("GET", "/servers"),
        )
        key, image = keys["ssh_keys"][0]["id"], images["images"][0]["id"]
        jobs = [self._machine(name, key, image) for name in self._job["names"]]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        poller.cancel()
        for name, result in zip(self._job["names"], results, strict=True):
            print(name, repr(result) if result else "proven", flush=True)
        return sum(result is not None for result in results)

    async def _machine(self, name: str, key: int, image: int) -> None:
        wanted = {"name": name, "server_type": "cx23", "location": "fsn1", "image": image, "ssh_keys": [key]}
        made = await self._api.call("POST", "/servers", {**wanted, "start_after_create": False})
        await asyncio.gather(*map(self._actions.wait, [made["action"], *made["next_actions"]]))
        server, address = made["server"]["id"], made["server"]["public_net"]["ipv4"]["ip"]
        rescue = {"type": "linux64", "ssh_keys": [key]}
        armed = await self._api.call("POST", f"/servers/{server}/actions/enable_rescue", rescue)
        await self._actions.wait(armed["action"])
        await self._api.call("POST", f"/servers/{server}/actions/poweron")
        await self._open(address)
        words = shlex.join([self._job["image_url"], "bootstrap.data", name, "sda"])
        script = IN_RESCUE.format(size=len(self._command), words=words)
        async with self._turns:
            said = await self._ssh(address, script, self._command + self._data, DONE)
        if DONE not in said:
            raise OSError(f"the image command failed: {said[-1000:]}")
        await self._closed(address)
        await self._open(address)
        said = await self._ssh(address, IN_SYSTEM, b"", name)
        if said.split("\n")[:2] != [name, "made by the bootstrap data"]:
            raise OSError(f"not the new system: {said[-1000:]}")

    async def _looks(self, address: str) -> bool:
        try:
            async with asyncio.timeout(1):
                _reader, writer = await asyncio.open_connection(address, 22)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def _open(self, address: str) -> None:
        while not await self._looks(address):
            await asyncio.sleep(LOOK)

    async def _closed(self, address: str) -> None:
        until = time.monotonic() + LEAVING
        while time.monotonic() < until and await self._looks(address):
            await asyncio.sleep(LOOK)

    async def _ssh(self, address: str, script: str, data: bytes, wanted: str) -> str:
        """What the script printed; once more where it had not begun, or the system that goes down answered."""
        options = ["-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]
        words = ["ssh", "-q", "-i", self._job["private_key"], *options, f"root@{address}", script]
        pipe = asyncio.subprocess.PIPE
        said = ""
        for _try in range(20):
            process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            said = (await process.communicate(data))[0].decode(errors="replace")
            if wanted in said or (said and not said.startswith("rescue\n")):
                return said
            await asyncio.sleep(LOOK)
        return said


async def main() -> int:
    """Do the job within ten minutes."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    async with asyncio.timeout(600):
        return 1 if await Floor(job).run() else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
