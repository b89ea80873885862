# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab in a thread of its own, so that programs that block can talk to it; and an administrator beside a run.

    someone = lab.person("web-1")            # or the number of a dedicated server
    someone.to_rescue()                      # arms and resets by API; someone.ssh("…") answers then
    someone.to_disk()                        # boots it back
    mark = someone.mark()                    # … and later: mark.assert_untouched()

Requests of that administrator to the APIs have the user agent `lab-person` in the lab's log of requests.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from lab.cluster.running_cluster import RunningCluster

from . import mirror
from .errors import LabError
from .lab import Lab
from .nodes import Nodes
from .state import LabClientError, call_lab

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


USER_AGENT = "lab-person"
_ACTION_SECONDS = 120
_SSH_SECONDS = 120
_PATIENCE = 0.1
Content = Path | bytes | Mapping[int, bytes] | str | None


@dataclass(frozen=True)
class Mark:
    """What a disk held at one moment."""

    person: Person
    disk: int
    ranges: tuple[tuple[int, int], ...]  # start and length; none: the whole disk
    seen: tuple[str, ...]

    def changes(self) -> list[str]:
        """The ranges in which a byte is another one now, for people to read."""
        now = self.person.mark(self.disk, *self.ranges).seen
        names = [f"bytes {start}..{start + length}" for start, length in self.ranges] or ["all of it"]
        return [name for name, before, after in zip(names, self.seen, now, strict=True) if before != after]

    def assert_untouched(self) -> None:
        """AssertionError names what changed."""
        changes = self.changes()
        assert not changes, f"disk {self.disk} of {self.person.machine} was written to: {', '.join(changes)}"


class Person:
    """An administrator with the keys of one machine of a lab, cloud server or dedicated: what people do to a machine.

    By API, over SSH, or standing before it.
    """

    def __init__(self, lab: RunningLab, machine: str | int) -> None:
        """``machine``: its name, or the number of a dedicated server."""
        self.lab = lab
        self.machine = str(machine)
        self._folder: Path | None = None

    # -- by API --------------------------------------------------------------------------------------------------------

    def to_rescue(self, *, wait: bool = True) -> None:
        """Arm the rescue with a key of our own and reset; returns when it answers, unless ``wait`` is false."""
        row, before = self.row(), len(self.row()["boots"])
        if row["kind"] == "cloud":
            self._act("enable_rescue", {"type": "linux64", "ssh_keys": [self._cloud_key()]})
            self._act("reset")
        else:
            path = f"/boot/{row['number']}/rescue"
            if row["rescue_enabled"]:
                self._robot("DELETE", path)
            self._robot("POST", path, {"os": "linux", "authorized_key[]": self._robot_key()})
            self._reset(row)
        self._until(lambda: self.row()["boots"][before:], "boots")
        if wait:
            self._until(lambda: self.ssh("hostname").stdout.strip() == "rescue", "answers as a rescue")

    def to_disk(self) -> None:
        """Reset without a rescue; returns when the disk boots (what comes up is another question)."""
        row, before = self.row(), len(self.row()["boots"])
        if row["kind"] == "cloud":
            if row["rescue_enabled"]:
                self._act("disable_rescue")
            self._act("reset")
        else:
            if row["rescue_enabled"]:
                self._robot("DELETE", f"/boot/{row['number']}/rescue")
            self._reset(row)
        self._until(lambda: self.row()["boots"][before:], "boots")

    def power_off(self) -> None:
        """Pull the plug, by API."""
        row = self.row()
        if row["kind"] == "cloud":
            self._act("poweroff")
        elif row["powered"]:
            self._robot("POST", f"/reset/{row['number']}", {"type": "power_long"})
        self._until(lambda: not self.row()["powered"], "is off")

    def power_on(self) -> None:
        """Switch on, by API."""
        row = self.row()
        if row["kind"] == "cloud":
            self._act("poweron")
        elif not row["powered"]:
            self._robot("POST", f"/reset/{row['number']}", {"type": "power"})
        self._until(lambda: self.row()["powered"], "is on")

    def row(self) -> dict[str, Any]:
        """What the lab says of the machine: power, boots, address, boot order."""
        machines: list[dict[str, Any]] = self._control("GET", "/machines")["machines"]
        for row in machines:
            if self.machine in (row["name"], str(row.get("number", ""))):
                return row
        raise LabError(f"the lab has no machine {self.machine!r}")

    # -- inside --------------------------------------------------------------------------------------------------------

    def ssh(
        self, script: str, key: Path | None = None, limit: float = _SSH_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a script over SSH as root, with our own key (which rescues of `to_rescue` have) or another one."""
        options = ["BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=no"]
        options += ["UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=5"]
        words = [word for option in options for word in ("-o", option)]
        return subprocess.run(
            ["ssh", "-F", "none", *words, "-i", str(key or self.key), f"root@{self.row()['address']}", script],
            capture_output=True, text=True, check=False, timeout=limit, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def enter(self, script: str) -> str:
        """What a script prints that is run as root at the machine itself: no key, no network (kind nspawn)."""
        done = self._control("POST", f"/machines/{self.machine}/enter", {"script": script}, timeout=_SSH_SECONDS)
        if done["status"]:
            raise LabError(f"{self.machine}: {script!r} ended with status {done['status']}: {done['out']}{done['err']}")
        return str(done["out"])

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Write a file of the running system, at the machine itself."""
        data = base64.b64encode(text.encode()).decode()
        self.enter(
            f"mkdir -p \"$(dirname '{path}')\"; echo {data} | base64 -d >'{path}' && chmod {mode} '{path}' && sync"
        )

    def rename(self, name: str) -> None:
        """Give the running system another host name, for now and for its next boots."""
        self.enter(f"hostname '{name}' && echo '{name}' >/etc/hostname && sync")

    def remove_key(self, public_key: str) -> None:
        """Take a public key out of root's authorized_keys; open sessions go on."""
        blob = public_key.split()[1]
        file = "/root/.ssh/authorized_keys"
        self.enter(f"grep -vF '{blob}' {file} >{file}.new || true; cat {file}.new >{file}; rm {file}.new; sync")

    def silence(self, seconds: float | None = None) -> None:
        """Let all packets of its SSH server vanish, for a time or until `let_speak`."""
        self._silence({"on": True} | ({} if seconds is None else {"seconds": seconds}))

    def let_speak(self) -> None:
        self._silence({"on": False})

    def worsen(self, loss: int = 0, kbytes: int = 0) -> None:
        """Lose packets of its network on either way, in percent, or all above a rate; without arguments: none more."""
        self._control("POST", f"/machines/{self.machine}/line", {"loss": loss, "kbytes": kbytes})

    def _silence(self, body: dict[str, Any]) -> None:
        self._control("POST", f"/machines/{self.machine}/silence", body)

    # -- disks ---------------------------------------------------------------------------------------------------------

    def boots_from(self, *disks: int) -> None:
        """Let the firmware try these disks (numbered from 0) first; without any: all in their own order."""
        self._control("POST", f"/machines/{self.machine}/boot-order", {"disks": list(disks)})

    def disks(self) -> list[dict[str, Any]]:
        """The disks as guests see them."""
        disks: list[dict[str, Any]] = self._control("GET", f"/machines/{self.machine}/disks")["disks"]
        return disks

    def add_disk(self, size: str | int, content: Content = None, **identity: Any) -> int:
        """Put a further disk in, which the next boot finds; returns its number.

        ``content``: bytes for its beginning or for several places, a raw file, ``debian``, or nothing; ``identity``:
        kind, serial, wwn, model and rotational, as far as they matter.
        """
        return len(self._bring("POST", f"/machines/{self.machine}/disks", size, content, identity)) - 1

    def swap_disk(self, disk: int, size: str | int, content: Content = None, **identity: Any) -> None:
        """Put a foreign disk in the place of one: off with the power, and on again when it was on."""
        on = self.row()["powered"]
        if on:
            self.power_off()
        self._bring("PUT", f"/machines/{self.machine}/disks/{disk}", size, content, identity)
        if on:
            self.power_on()

    def mark(self, disk: int = 0, *ranges: tuple[int, int]) -> Mark:
        """Remember what a disk holds: all of it, or ranges of start and length in bytes."""
        body = {"disk": disk, "ranges": [list(part) for part in ranges]}
        seen = self._control("POST", f"/machines/{self.machine}/marks", body, timeout=600)["marks"]
        return Mark(self, disk, ranges, tuple(seen))

    def _bring(self, method: str, path: str, size: str | int, content: Content, identity: Mapping[str, Any]) -> Any:
        body = {"size": size, **identity}
        if isinstance(content, (str, Path)):
            return self._control(method, path, body | {"image": str(content)}, timeout=600)["disks"]
        with tempfile.NamedTemporaryFile(prefix="kubenode-disk-") as file:
            for place, piece in ({0: content} if isinstance(content, bytes) else content or {}).items():
                file.seek(place)
                file.write(piece)
            file.flush()
            return self._control(method, path, body | {"image": file.name}, timeout=600)["disks"]

    # -- keys and requests ---------------------------------------------------------------------------------------------

    @property
    def key(self) -> Path:
        """The private key of this person, made when it is first needed."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kubenode-person-"))
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "person", "-f", str(self._folder / "key")]
            subprocess.run(command, check=True)
        return self._folder / "key"

    @property
    def public_key(self) -> str:
        return self.key.with_suffix(".pub").read_text().strip()

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _cloud_key(self) -> int:
        for key in self._cloud("GET", "/ssh_keys?per_page=50")["ssh_keys"]:
            if key["public_key"].split()[1] == self.public_key.split()[1]:
                return int(key["id"])
        body = {"name": f"person-{self.machine}-{time.monotonic_ns()}", "public_key": self.public_key}
        return int(self._cloud("POST", "/ssh_keys", body)["ssh_key"]["id"])

    def _robot_key(self) -> str:
        for entry in self._robot("GET", "/key", missing=[]):
            if entry["key"]["data"].split()[1] == self.public_key.split()[1]:
                return str(entry["key"]["fingerprint"])
        form = {"name": f"person-{self.machine}", "data": self.public_key}
        return str(self._robot("POST", "/key", form)["key"]["fingerprint"])

    def _act(self, command: str, body: dict[str, Any] | None = None) -> None:
        action = self._cloud("POST", f"/servers/{self.row()['id']}/actions/{command}", body or {})["action"]
        deadline = time.monotonic() + _ACTION_SECONDS
        while action["status"] == "running" and time.monotonic() < deadline:
            time.sleep(_PATIENCE)
            action = self._cloud("GET", f"/actions/{action['id']}")["action"]
        if action["status"] != "success":
            raise LabError(f"{self.machine}: {command} is {action['status']}: {action['error']}")

    def _reset(self, row: Mapping[str, Any]) -> None:
        self._robot("POST", f"/reset/{row['number']}", {"type": "hw" if row["powered"] else "power"})

    def _cloud(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.lab.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return _call(method, self.lab.endpoint + path, headers, data)

    def _robot(self, method: str, path: str, form: Mapping[str, str] | None = None, missing: Any = None) -> Any:
        login = base64.b64encode(f"{self.lab.robot_user}:{self.lab.robot_password}".encode()).decode()
        data = None if form is None else urllib.parse.urlencode(form).encode()
        return _call(method, self.lab.robot_endpoint + path, {"Authorization": f"Basic {login}"}, data, missing)

    def _control(self, method: str, path: str, body: Any = None, timeout: float = _SSH_SECONDS) -> Any:
        """One of the lab's own routes."""
        try:
            return self.lab.control(method, path, body, timeout)
        except LabClientError as error:
            raise LabError(str(error)) from error

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _SSH_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise LabError(f"{self.machine}: not seen within {_SSH_SECONDS} s that it {what}")
            time.sleep(_PATIENCE)


def _call(method: str, url: str, headers: dict[str, str], data: bytes | None, missing: Any = None) -> Any:
    request = urllib.request.Request(url, method=method, data=data, headers={**headers, "User-Agent": USER_AGENT})
    try:
        with urllib.request.urlopen(request, timeout=_ACTION_SECONDS) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        if error.code == 404 and missing is not None:
            return missing
        raise LabError(f"{method} {url}: HTTP {error.code}: {error.read().decode(errors='replace')}") from error
