# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's accounts at the lab: our modules on one side, a plain look at the provider's APIs on the other."""

import functools
import itertools
import json
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

from lab.state import call_lab
from tests.integration.controller import Controller
from tests.integration.runs import Run
from tests.waiting import until

_NUMBERS = itertools.count(5001)


def cloud_call(endpoint: str, token: str, method: str, path: str, body: object = None) -> dict[str, Any]:
    """One request to the Cloud API as another client, or a person at the console, would make it."""
    request = urllib.request.Request(
        endpoint + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=180) as response:
        text = response.read()
    return json.loads(text) if text else {}


def robot_call(
    endpoint: str, auth: tuple[str, str], method: str, path: str, form: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One request to Robot as another client, or a person at the console, would make it."""
    answer = requests.request(method, endpoint + path, data=form, auth=auth, timeout=180)
    answer.raise_for_status()
    return answer.json() if answer.content else {}


def disk_marks(lab: Any, machine: str | int) -> list[str]:
    """Something of each disk, in the order of its description, that stays the same as long as no byte changes."""
    count = len(lab.control("GET", f"/machines/{machine}/disks")["disks"])
    found = [lab.control("POST", f"/machines/{machine}/marks", {"disk": disk}) for disk in range(count)]
    return [mark for one in found for mark in one["marks"]]


def remote_lab(testbed: Any) -> Any:
    """What accounts and people need of a lab, for one in another process."""
    lab, robot = testbed.lab, testbed.lab["robot"]
    password = Path(robot["password_file"]).read_text(encoding="ascii")

    def control(method: str, path: str, body: Any = None, _timeout: float = 0) -> Any:
        return call_lab(lab["endpoint"], testbed.token, method, path, body, 300)

    return SimpleNamespace(
        endpoint=lab["endpoint"], token=testbed.token, robot_endpoint=robot["endpoint"], robot_user=robot["user"],
        robot_password=password, control=control,
    )  # fmt: skip


class CloudCalls:
    """The Cloud API of a lab as another client, or a person at the console, uses it."""

    lab: Any

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request to the API."""
        return cloud_call(self.lab.endpoint, self.lab.token, method, path, body)

    def server(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"/servers?name={name}")["servers"][0]

    def act(self, name: str, action: str, body: object = None) -> None:
        """An action on a server, waited for."""
        self.ended(self.call("POST", f"/servers/{self.server(name)['id']}/actions/{action}", body)["action"])

    def ended(self, action: dict[str, Any]) -> None:
        """Wait until an action has succeeded."""

        def found() -> dict[str, Any] | None:
            now = self.call("GET", f"/actions/{action['id']}")["action"]
            return None if now["status"] == "running" else now

        done = until(found, f"the end of {action['command']}")
        assert done is not None
        assert done["status"] == "success", done


class RobotCalls:
    """Robot of a lab as another client, or a person at the console, uses it."""

    lab: Any

    def robot(self, method: str, path: str, form: dict[str, Any] | None = None) -> Any:
        """One request to Robot."""
        auth = (self.lab.robot_user, self.lab.robot_password)
        return robot_call(self.lab.robot_endpoint, auth, method, path, form)


class _Account(Controller):
    """What both kinds of accounts have: runs of our modules, and the lab's control routes."""

    def run(self, module: str, *flags: str, env: dict[str, str] | None = None, **options: object) -> Run:
        """Run one of our modules: by Ansible where flags of Ansible's are given, else without."""
        if not flags:
            return self.process(module, env=env, **options)
        return self.module("localhost", module, *flags, env=env, **options)


class CloudAccount(CloudCalls, _Account):
    """A project of the Cloud API that knows our key. A lab is shared: what was made is deleted in the end."""

    def __init__(self, lab: Any, folder: Path, key_name: str = "") -> None:
        super().__init__(lab, folder)
        self.key_name = key_name or f"key-of-{folder.name}"
        body = {"name": self.key_name, "public_key": self.public_key}
        self.key_id = self.call("POST", "/ssh_keys", body)["ssh_key"]["id"]
        self._before = set(self.servers())

    def servers(self) -> dict[str, dict[str, Any]]:
        return {server["name"]: server for server in self.call("GET", "/servers?per_page=50")["servers"]}

    def commands(self, name: str) -> list[str]:
        """The commands of all actions of a server, oldest first."""
        server = self.servers()[name]
        actions = self.call("GET", f"/servers/{server['id']}/actions?sort=id:asc")["actions"]
        return [action["command"] for action in actions]

    def requests(self) -> list[dict[str, Any]]:
        """The requests that the API got, oldest first."""
        return self.asked("cloud")

    def close(self) -> None:
        """End what runs, and delete what was made."""
        self.stop()
        self.forget_faults()
        for name, server in self.servers().items():
            if name not in self._before:
                # an action that a run had begun locks its server until it ends, also when the run was stopped
                until(lambda name=name: not self.server(name)["locked"], f"the end of what is done to {name}")
                self.call("DELETE", f"/servers/{server['id']}")
        self.call("DELETE", f"/ssh_keys/{self.key_id}")


class RobotAccount(RobotCalls, _Account):
    """An account at Robot, and its dedicated servers. A lab is shared: what was made is taken away in the end."""

    def __init__(self, lab: Any, folder: Path) -> None:
        super().__init__(lab, folder)
        self.numbers: dict[str, int] = {}
        self._fingerprint = ""

    def add(self, *names: str, **fields: object) -> None:
        """Add dedicated servers of these fields."""
        for name in names:
            self.numbers[name] = next(_NUMBERS)
        self.lab.dedicated(*({"number": self.numbers[name], **fields} for name in names))
        for name in names:
            self.reach(name, self.row(name)["address"])

    def add_installed(self, *names: str, **fields: object) -> None:
        """Add dedicated servers with a system on their disks, and wait until its first boot is over, and on the disk.

        A power cut before that leaves a system permanently without host keys, so that its sshd never starts: cloud-init
        marks the making of keys as done before it makes them, and a key that was just made is an empty file after
        a cut, since its bytes are written up to half a minute later than its name.
        """
        self.add(*names, image="debian", **fields)
        for name in names:
            until(functools.partial(self.shown_keys, name), f"the system on the disk of {name}")
            self.lab.person(self.numbers[name]).enter("cloud-init status --wait >/dev/null; sync --file-system /")

    def shown_keys(self, name: str) -> str:
        """The host keys of the system that answers; empty while none does."""
        command = ["ssh-keyscan", "-T", "60", self.row(name)["address"]]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def arm(self, name: str) -> None:
        """Activate the rescue, which will know our key, for the next boot."""
        if not self._fingerprint:
            form = {"name": self.folder.name, "data": self.public_key}
            self._fingerprint = self.robot("POST", "/key", form)["key"]["fingerprint"]
        form = {"os": "linux", "authorized_key[]": self._fingerprint}
        self.robot("POST", f"/boot/{self.numbers[name]}/rescue", form)

    def reset(self, name: str, way: str) -> None:
        self.robot("POST", f"/reset/{self.numbers[name]}", {"type": way})

    def rescue_of(self, name: str) -> dict[str, Any]:
        """Robot's view of the rescue of a machine."""
        return self.robot("GET", f"/boot/{self.numbers[name]}/rescue")["rescue"]

    def row(self, name: str) -> dict[str, Any]:
        """What the lab says of a machine."""
        rows = self.lab.control("GET", "/machines")["machines"]
        (found,) = [row for row in rows if row.get("number") == self.numbers[name]]
        return found

    def boots(self, name: str) -> list[str]:
        """What a machine booted, oldest first."""
        return [boot["source"] for boot in self.row(name)["boots"]]

    def resets(self, name: str) -> list[str]:
        """The resets that reached a machine, oldest first."""
        return [reset["type"] for reset in self.row(name)["resets"]]

    def marks(self, name: str) -> list[str]:
        """The marks of its disks."""
        return disk_marks(self.lab, self.numbers[name])

    def requests(self, method: str = "", path: str = "") -> list[dict[str, Any]]:
        """The requests that Robot got, oldest first."""
        return [one for one in self.asked("robot") if one["method"].startswith(method) and one["path"].startswith(path)]

    def fault(self, **fault: object) -> None:
        """Add a fault to the lab's script; ``machine`` by our name."""
        if "machine" in fault:
            fault["machine"] = str(self.numbers[str(fault["machine"])])
        super().fault(**fault)

    def close(self) -> None:
        """End what runs, and take away what was made."""
        self.stop()
        self.forget_faults()
        for number in self.numbers.values():
            self.lab.control("DELETE", f"/dedicated/{number}", timeout=180)
        if self._fingerprint:
            self.robot("DELETE", f"/key/{self._fingerprint}")
