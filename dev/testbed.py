# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with everything an operator has before the first run: SSH key, registered key, bootstrap data, inventory."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import hcloud
import yaml

from lab.state import call_lab

CHECKOUT = Path(__file__).resolve().parent.parent
PROOF_FILE = "/etc/kubenode-proof"
KEY_NAME = "stage"


class Testbed:
    """A lab, and a folder with all that belongs to it; ``with Testbed(…) as testbed`` starts and ends both."""

    __test__ = False  # pytest takes every class that is named so for tests
    playbook = "kubenode.provision.hcloud_image_url"

    def __init__(self, folder: Path, name: str, *, lab_options: Sequence[str] = (), keep: bool = False) -> None:
        """``name`` names the lab, ``lab_options`` go to ``python -m lab up``; ``keep`` leaves the lab up at the end."""
        self.folder = folder.resolve()
        self.name = name
        self.keep = keep
        self.lab: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self._lab_options = lab_options

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._keygen(self.private_key)
        self.lab = self._up()
        try:
            self.environment = {
                **os.environ,
                **self._credentials(),
                "ANSIBLE_CALLBACKS_ENABLED": "kubenode.provision.provision_report",
                "ANSIBLE_PIPELINING": "true",
                "ANSIBLE_RETRY_FILES_ENABLED": "false",
                "KUBENODE_REPORT_FILE": str(self.report),
            }
            self._prepare()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        if not self.keep:
            self._down()

    def _up(self) -> dict[str, Any]:
        """Start the lab; returns what it says of itself."""
        about: dict[str, Any] = json.loads(self._lab("up", *self._options(), "--json"))
        return about

    def _down(self) -> None:
        self._lab("down")

    def _lab(self, *arguments: str) -> str:
        command, *options = arguments
        words = [sys.executable, "-m", "lab", command, "--name", self.name, *options]
        return subprocess.run(words, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True).stdout

    def _options(self) -> Sequence[str]:
        """Options of ``python -m lab up``."""
        return self._lab_options

    def _credentials(self) -> dict[str, str]:
        """The environment variables with which an operator reaches the API."""
        return {"HCLOUD_ENDPOINT": self.lab["endpoint"], "HCLOUD_TOKEN": self.token}

    def robot_credentials(self) -> dict[str, str]:
        """Those with which an operator reaches Robot."""
        robot = self.lab["robot"]
        return {
            "HROBOT_ENDPOINT": robot["endpoint"],
            "HROBOT_API_USER": robot["user"],
            "HROBOT_API_PASSWORD": Path(robot["password_file"]).read_text(encoding="ascii"),
        }

    @property
    def token(self) -> str:
        """The lab's own token: of its Cloud API and of its control routes."""
        return Path(self.lab["token_file"]).read_text(encoding="ascii")

    def _prepare(self) -> None:
        """What an operator has done at the provider's before the first run."""
        client = hcloud.Client(token=self.token, api_endpoint=self.lab["endpoint"])
        public = self.private_key.with_suffix(".pub").read_text(encoding="ascii")
        client.ssh_keys.create(name=KEY_NAME, public_key=public)

    def _keygen(self, path: Path) -> None:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", KEY_NAME, "-f", str(path)], check=True)

    @property
    def private_key(self) -> Path:
        """The operator's SSH key; its public half is registered in the lab."""
        return self.folder / "id_ed25519"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    @property
    def report(self) -> Path:
        """What the report callback writes."""
        return self.folder / "provision-report.json"

    def image_url(self, suffix: str = "zst", image: str = "debian") -> str:
        """A Debian image of the lab (``debian``, ``debian13``) with its digest in the fragment."""
        return self.file_url(f"{image}.raw.{suffix}")

    def file_url(self, name: str) -> str:
        """A file that the lab serves, with its digest in the fragment."""
        url = f"{self.lab['images_url']}/{name}"
        reply = subprocess.run(["curl", "-fsS", f"{url}.sha256"], check=True, stdout=subprocess.PIPE, text=True)
        return f"{url}#sha256={reply.stdout.split()[0]}"

    def write_inventory(self, names: Sequence[str], *, known_host_key: bool = True, **variables: Any) -> Path:
        """An ordinary inventory; the new systems' host key is made here, so that their first contact is verified."""
        settings = {
            **self.ssh_settings(),
            **self.bootstrap_settings(known_host_key=known_host_key),
            "kubenode_server_type": "cx23",
            "kubenode_location": "fsn1",
            "kubenode_ssh_keys": [KEY_NAME],
            "kubenode_image_url": self.image_url(),
            "kubenode_image_url_command": "image-url-command-raw-disk",
        }
        group = {"hosts": dict.fromkeys(names), "vars": {**settings, **variables}}
        self.inventory.write_text(yaml.safe_dump({"machines": group}, sort_keys=False), encoding="utf-8")
        return self.inventory

    def ssh_settings(self) -> dict[str, Any]:
        """How SSH reaches the machines, and where the run keeps what it learns of them."""
        return {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.private_key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "kubenode_dir": str(self.folder / "kubenode"),
        }

    def user_data(self) -> dict[str, Any]:
        """More for the machines' cloud-init."""
        return {}

    def bootstrap_settings(self, *, known_host_key: bool = True) -> dict[str, Any]:
        """Bootstrap data that lets the operator in and leaves a proof, with a host key made here when asked for."""
        more = self.user_data()
        user_data: dict[str, Any] = {
            "ssh_authorized_keys": [self.private_key.with_suffix(".pub").read_text(encoding="ascii").strip()],
            "disable_root": False,
            **more,
            "write_files": [
                {"path": PROOF_FILE, "content": "made by the bootstrap data\n"},
                *more.get("write_files", []),
            ],
        }
        data = self.folder / ("user-data.yml" if known_host_key else "user-data-without-key.yml")
        settings: dict[str, Any] = {"kubenode_bootstrap_data_file": str(data)}
        if known_host_key:
            host_key = self.folder / "host_key"
            if not host_key.exists():
                self._keygen(host_key)
            public = host_key.with_suffix(".pub").read_text(encoding="ascii").strip()
            private = host_key.read_text(encoding="ascii")
            user_data["ssh_keys"] = {"ed25519_private": private, "ed25519_public": public}
            settings["kubenode_host_keys"] = [public]
        data.touch(mode=0o600)
        data.write_text("#cloud-config\n" + yaml.safe_dump(user_data), encoding="utf-8")
        return settings

    def playbook_command(self, *arguments: str) -> list[str]:
        return ["ansible-playbook", "-i", str(self.inventory), self.playbook, *arguments]

    def provision(self, *arguments: str, say: Callable[[str], None] = lambda _line: None, **options: Any) -> int:
        """Run the playbook; ``options`` go to `subprocess.run`. Returns its exit code."""
        command = self.playbook_command(*arguments)
        say(shlex.join(command))
        return subprocess.run(command, env=self.environment, cwd=self.folder, check=False, **options).returncode

    def unchanged_again(self, say: Callable[[str], None]) -> bool:
        """Run the playbook once more and say whether nothing changed; the report stays the first run's."""
        files = {path: path.read_bytes() for path in (self.report, self.report.with_suffix(".html"))}
        say("the same again: nothing may change")
        code = self.provision(say=say)
        again = json.loads(self.report.read_bytes())
        for path, first in files.items():
            path.write_bytes(first)
        if code or again["changed"]:
            say("the second run failed" if code else "the second run changed something")
        return not code and not again["changed"]

    def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask something of the lab itself, such as a fault."""
        return call_lab(self.lab["endpoint"], self.token, method, path, body)

    def machines(self) -> list[dict[str, Any]]:
        """The lab's word on its machines, with every boot they made."""
        machines: list[dict[str, Any]] = self.control("GET", "/machines")["machines"]
        return machines

    def machine(self, name: str) -> dict[str, Any]:
        """The lab's word on one of them."""
        (machine,) = [one for one in self.machines() if one["name"] == name]
        return dict(machine)

    def address(self, name: str) -> str:
        return str(self.machine(name)["address"])

    def ssh(self, name: str, command: str, phase: str = "os", port: int = 22) -> str:
        """Run a command on a machine (its ``os`` or its ``rescue``) by the known hosts of the provisioning run."""
        known_hosts = self.folder / "kubenode" / "known_hosts" / f"{name}.{phase}"
        options = ["BatchMode=yes", f"UserKnownHostsFile={known_hosts}", f"HostKeyAlias={name}.{phase}"]
        words = ["ssh", "-p", str(port), "-i", str(self.private_key), *(f"-o{option}" for option in options)]
        words += [f"root@{self.address(name)}", command]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


class DedicatedTestbed(Testbed):
    """A testbed whose machines exist from the start, as dedicated servers do."""

    playbook = "kubenode.provision.robot_image_url"

    def __init__(
        self,
        folder: Path,
        name: str,
        servers: Sequence[Mapping[str, Any]],
        *,
        lab_options: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        """``servers``: entries of the lab's ``--dedicated`` file."""
        super().__init__(folder, name, lab_options=lab_options, keep=keep)
        self._servers = servers

    def _options(self) -> Sequence[str]:
        file = self.folder / "dedicated.yml"
        file.write_text(yaml.safe_dump([dict(server) for server in self._servers]), encoding="utf-8")
        return [*self._lab_options, "--dedicated", str(file)]

    def _credentials(self) -> dict[str, str]:
        return self.robot_credentials()

    def _prepare(self) -> None:
        """Nothing: the SSH key is registered by the run itself."""

    def machine(self, name: str) -> dict[str, Any]:
        """The lab's word on one of them; its server gets the machine's name only at the end of a run."""
        inventory = yaml.safe_load(self.inventory.read_text(encoding="utf-8"))
        groups = inventory["all"]["children"].values()
        (variables,) = [group["hosts"][name] for group in groups if name in group["hosts"]]
        number = variables["kubenode_server_number"]
        (machine,) = [one for one in self.machines() if one.get("number") == number]
        return dict(machine)

    def write_groups(self, groups: Mapping[str, Mapping[str, Any]], *, known_host_key: bool = True) -> Path:
        """An inventory: group → ``hosts`` (name → variables) and ``vars``."""
        settings = {**self.ssh_settings(), **self.bootstrap_settings(known_host_key=known_host_key)}
        inventory = {"all": {"vars": settings, "children": {name: dict(group) for name, group in groups.items()}}}
        self.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")
        return self.inventory
