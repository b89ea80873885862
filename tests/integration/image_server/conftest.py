# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that become image servers, and what they shall serve."""

import hashlib
import http.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import hosts, iso, overlay
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from lab.nodes import Node
from tests.integration.controller import Controller
from tests.integration.node_engine.artifact_site import Web, serving
from tests.integration.runs import Run
from tests.unit.liveimage.maker import Layout, make

ROLE = [
    {
        "hosts": "all",
        "gather_facts": False,
        "strategy": "free",
        "roles": ["kubenode.provision.image_server"],
    }
]
PULL_SECRET = '{"auths": {"registry.example": {"auth": "aHVzaC1odXNoOmh1c2gtaHVzaA=="}}}'
#: Everything that a shell, an environment file or a unit might take for its own.
PROXY = 'http://me:hush%40$HOME`id`"\\x@192.0.2.7:3128'
SSH_KEYS = ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== one", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== two")
ROOTFS = 48 << 20  # more than the sockets between hold


def network(address: str) -> dict[str, Any]:
    """NMState of a host with one static address."""
    ip = {"enabled": True, "dhcp": False, "address": [{"ip": address, "prefix-length": 24}]}
    return {"interfaces": [{"name": "eno1", "type": "ethernet", "state": "up", "ipv4": ip}]}


@dataclass
class World:
    """A base on the controller, a web server that has it, and a controller with machines."""

    controller: Controller
    base: Path
    web: Web
    address: str
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, *arguments: str, names: tuple[str, ...] = ("images-1",), **changes: Any) -> Run:
        """The role on these machines; changes are laid over the variables."""
        given = {f"image_server_{name}": value for name, value in {**self.variables, **changes}.items()}
        return self.controller.play(ROLE, *arguments, hosts=names, **given)

    def expected(self, name: str, document: dict[str, Any] | None, folder: Path) -> bytes:
        """The image of a host as the module would write it to a file."""
        inputs = AgentInputs(
            agent_image=self.variables["agent_image"],
            ironic_urls=tuple(self.variables["ironic_urls"]),
            pull_secret=PULL_SECRET,
            ssh_keys=SSH_KEYS,
            http_proxy=PROXY,
        )
        host = hosts.HostInputs(name=name, network=document or None)
        target = folder / f"{name}.iso"
        overlay.materialise(
            hosts.iso_overlay(iso.inspect(str(self.base)), hosts.build(inputs.checked(), host), host), str(target)
        )
        return target.read_bytes()


class Download:
    """A GET whose body is read piece by piece; ``server`` is HOST:PORT."""

    def __init__(self, server: str, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(server, timeout=180)
        self._connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        self.answer = self._connection.getresponse()
        self.status, self.etag = self.answer.status, self.answer.headers.get("ETag", "")

    def read(self, size: int | None = None) -> bytes:
        """So many bytes, or the rest; with the rest the connection ends."""
        data = self.answer.read(size)
        if size is None:
            self._connection.close()
        return data


def server_of(node: Node) -> str:
    """Where its images are."""
    return f"{node.address}:8084"


@pytest.fixture(scope="module")
def world(lab_nspawn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("images")
    base = make(folder / "base.iso", Layout(rootfs=ROOTFS))
    with serving(address=lab_nspawn.controller) as web:
        web.files["/coreos.iso"] = base.read_bytes()
        world = World(Controller(lab_nspawn, folder), base, web, lab_nspawn.controller)
        world.variables = {
            "bases": {
                "x86_64": {
                    "iso": {
                        "url": web.url("/coreos.iso", host=world.address),
                        "sha256": hashlib.sha256(web.files["/coreos.iso"]).hexdigest(),
                    }
                }
            },
            "unguessable": False,
            "agent_image": "registry.example/agent:1",
            "ironic_urls": ["https://192.0.2.5:6385"],
            "pull_secret": PULL_SECRET,
            "http_proxy": PROXY,
            "ssh_keys": list(SSH_KEYS),
            "hosts": {"web-1": network("192.0.2.11"), "web-2.example.com": ""},
        }
        yield world
        world.controller.stop()
