# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that begin with a system on their disk: cloud servers booted straight from an image, with a key of ours."""

from __future__ import annotations

import abc
import asyncio
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from lab.api import resources
from lab.api.cloud_project import Cloud
from lab.api.resources import Action, Image, Server, now
from lab.api.schemas import ServerCreate
from lab.api.servers import Power, Servers
from lab.images.raw_image import grow, put_files
from lab.machines import store
from lab.mirror.repository import IMAGES

from . import images, mirror
from .api.schemas import whole_number
from .errors import LabError

if TYPE_CHECKING:
    from .lab import Lab

T = TypeVar("T")

_BOOT_SECONDS = 900  # an emulated machine on a busy host
_CONNECT_SECONDS = 60  # its sshd may need many seconds for its first words
_NO_CONNECTION = 255  # of ssh
_SUITES = {image: suite for suite, image in IMAGES.items()}
#: A container machine has no kernel of its own: no log of it, and base leaves its settings as they are.
#: With these in their places a real kubelet starts there; pods are for machines with a kernel of their own.
SHARED_KERNEL = """\
test -e /dev/kmsg || ln -s /dev/null /dev/kmsg
for pair in kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1 net/ipv4/ip_forward=1; do
    name=${pair%=*}
    file=/run/${name##*/}
    echo "${pair#*=}" >"$file" && mount --bind "$file" "/proc/sys/$name" || exit 1
done
"""
#: fields of KubeletConfiguration for it: a host may have the controllers of control groups in version 1
SHARED_GROUPS = {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}


@dataclass(frozen=True)
class Node:
    """A machine, and how it is reached."""

    name: str
    address: str
    key: Path
    suite: str  # of Debian; empty when its image is a file

    @property
    def ssh_options(self) -> list[str]:
        """Options of ssh and scp."""
        return [
            "-F", "none", "-i", str(self.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=12",
        ]  # fmt: skip

    @property
    def inventory(self) -> dict[str, Any]:
        """The variables that Ansible needs for this host."""
        return {
            "ansible_host": self.address,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": "-F none -o IdentitiesOnly=yes -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            "ansible_timeout": _CONNECT_SECONDS,
        }

    def ssh(self, script: str, limit: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the machine as root; never raises for its status. ``limit``: seconds."""
        command = ["ssh", *self.ssh_options, f"root@{self.address}", script]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit, stdin=subprocess.DEVNULL
        )

    def run(self, script: str, limit: float = 300) -> str:
        """Standard output of a script that must succeed, without white space around it."""
        done = self.ssh(script, limit)
        if done.returncode:
            raise LabError(f"{self.name}: {script!r} failed (status {done.returncode}): {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def boot_id(self) -> str:
        """Which boot of the machine this is; empty while it does not answer."""
        try:
            done = self.ssh("cat /proc/sys/kernel/random/boot_id", 2 * _CONNECT_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def wait(self, limit: float = _BOOT_SECONDS, unless: str = "") -> None:
        """Wait until cloud-init has done its work, in another boot than ``unless`` (see `boot_id`)."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            boot = self.boot_id()
            # Its status is nonzero for mere warnings; that of ssh for a connection that broke.
            if boot and boot != unless and self._finished(deadline - time.monotonic()):
                return
            time.sleep(0.2)
        raise LabError(f"machine {self.name} ({self.address}) was not up within {limit:.0f} s")

    def _finished(self, limit: float) -> bool:
        try:
            return self.ssh("cloud-init status --wait", max(limit, 1)).returncode != _NO_CONNECTION
        except subprocess.TimeoutExpired:
            return False


class Nodes(abc.ABC):
    """What `RunningLab` can do with nodes: make, switch, copy, cut off and delete them by their names."""

    def __init__(self) -> None:
        """Nothing is made before the first node."""
        self._folder: Path | None = None
        self._images: dict[tuple[Path, int, int], Path] = {}
        self._growing = threading.Lock()

    @property
    @abc.abstractmethod
    def lab(self) -> Lab:
        """The lab itself."""

    @property
    @abc.abstractmethod
    def mirror_url(self) -> str:
        """Where machines and the controller find what nodes download."""

    @abc.abstractmethod
    def in_loop(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """The result of a coroutine run in the lab's event loop."""

    def node(
        self,
        name: str,
        image: str | Path = "debian13",
        memory_mib: int = 2048,
        disk: str | None = None,
        *,
        swap: str | None = None,
        user_data: str | Mapping[str, Any] | None = None,
        cloud_init: bool = True,
        wait: bool = True,
    ) -> Node:
        """A cloud server that boots straight from ``image`` (``debian``, ``debian13``, or a raw file).

        Its memory and disk (``8G``) are at least what is asked for; ``swap`` (``512M``) adds a swap partition that
        systemd finds by itself. Without ``user_data`` (text, or a dictionary for cloud-init) apt is aimed at the
        mirror. Without ``cloud_init`` name, key and sources of packages are on the disk from the start, which spares an
        emulated machine much of its boot. Returns when cloud-init is done, unless ``wait`` is false. LabError when the
        machine does not come up.
        """
        if user_data is not None and not cloud_init:
            raise LabError(f"machine {name}: user_data is for cloud-init, and cloud_init is off")
        suite = _SUITES.get(str(image), "")
        if suite:
            source = images.ensure(str(image)).files["raw"]
        elif isinstance(image, Path):
            source = image
        else:
            raise LabError(f"image {image!r} is neither a path nor one of {', '.join(sorted(_SUITES))}")
        need = max(_bytes(disk or "0"), source.stat().st_size)
        kind = _server_type(memory_mib, need)
        source = self._grown(source, kind.disk * resources.DISK_GB_BYTES, _bytes(swap or "0"))
        given = (self._apt(suite) if suite else {}) if user_data is None else user_data
        if not cloud_init and not isinstance(given, str):
            source, given = self._complete(name, source, given), ""
        text = given if isinstance(given, str) else "#cloud-config\n" + yaml.safe_dump(dict(given))
        server = self.in_loop(self._create, name, source, kind.name, text)
        node = Node(name, self.lab.cloud.backend.address(server.index), self.node_key, suite)
        if wait:
            try:
                node.wait()
            except LabError as error:
                console = self.in_loop(self._console, name)
                self.remove(name)  # so that the name is free for the next try
                raise LabError(f"{error}; its console ended with:\n{console[-2000:]}") from error
        return node

    def power_off(self, name: str, limit: float = 300) -> None:
        """Press the power button of a server and wait until it is off, for ``limit`` seconds at most."""
        self.in_loop(self._switch_off, name, limit)

    def power_on(self, name: str) -> None:
        """Switch a server on; `Node.wait` waits for its system."""
        self.in_loop(self._act, name, Power.power_on)

    def remove(self, name: str) -> None:
        self.in_loop(self._act, name, lambda power, server: Servers(power.cloud, power).delete(server))

    def disk_image(self, name: str, target: Path | None = None) -> Path:
        """The disk of a server that is off, copied into a raw file; it ends with the lab unless ``target`` is given."""
        path = target or self.lab.backend.disks / f"image-{name}-{time.monotonic_ns()}.raw"
        self.in_loop(self._copy, name, path)
        return path

    def isolate(self, name: str, allow: Iterable[str] | None = ()) -> None:
        """Let a server send to these IPv4 addresses only (and ask for its own by DHCP); None: to everyone again.

        The controller (`controller`) must be allowed for SSH to go on; the metadata service is cut off, too.
        """
        lab, addresses = self.lab, None if allow is None else tuple(allow)

        async def work() -> None:
            server = _server(lab.cloud, name)
            await lab.backend.isolate(lab.cloud.power_control[server.id].machine, addresses)

        self.in_loop(work)

    @property
    def node_key(self) -> Path:
        """The private key that opens every node."""
        path = self._keys / "key"
        if not path.exists():
            _make_key(path)
        return path

    @property
    def _keys(self) -> Path:
        """A folder for keys that ends with the lab."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kubenode-nodes-"))
        return self._folder

    def forget_keys(self) -> None:
        """Remove the keys; the machines end with the lab."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _apt(self, suite: str) -> dict[str, Any]:
        mirror.apt(suite)  # now, and not while an apt in a machine waits for it
        return {"growpart": {"mode": "off"}, **mirror.cloud_config(self.mirror_url, suite)}

    async def _create(self, name: str, source: Path, server_type: str, user_data: str) -> Server:
        """Create and start a server; returns when its start was accepted."""
        cloud = self.lab.cloud
        image = await asyncio.to_thread(_snapshot, cloud, source)
        cloud.images[image.id] = image
        servers = Servers(cloud, Power(cloud))
        body = ServerCreate(name=name, server_type=server_type, image=image.id, start_after_create=True)
        created = servers.create(body)
        created.server.authorized_keys = (self.node_key.with_suffix(".pub").read_text().strip(),)
        created.server.user_data = user_data
        for action in (created.action, *created.next_actions):
            await _ended(name, action)
        return created.server

    async def _console(self, name: str) -> str:
        cloud = self.lab.cloud
        return cloud.power_control[_server(cloud, name).id].console()

    async def _act(self, name: str, start: Callable[[Power, Server], Action]) -> None:
        cloud = self.lab.cloud
        await _ended(name, start(Power(cloud), _server(cloud, name)))

    async def _switch_off(self, name: str, limit: float) -> None:
        cloud = self.lab.cloud
        power_control = cloud.power_control[_server(cloud, name).id]
        await power_control.press_power_button()
        deadline = time.monotonic() + limit
        while power_control.powered:
            if time.monotonic() > deadline:
                raise LabError(f"machine {name} is still on {limit:.0f} s after its power button was pressed")
            await asyncio.sleep(0.05)

    async def _copy(self, name: str, target: Path) -> None:
        cloud = self.lab.cloud
        server = _server(cloud, name)
        power_control = cloud.power_control[server.id]
        if power_control.powered:
            raise LabError(f"machine {name} is on; power it off before its disk is copied")
        await power_control.machine.copy_disk(target)

    def _complete(self, name: str, source: Path, config: Mapping[str, Any]) -> Path:
        """A copy of the image that needs no cloud-init any more."""
        target = self.lab.backend.disks / f"image-{name}-complete.raw"
        store.copy_sparse(source, target)
        host_key = self._keys / f"host-key-{name}"
        if not host_key.exists():
            _make_key(host_key)
        files = {
            "/etc/cloud/cloud-init.disabled": ("", 0o644),
            "/etc/hostname": (f"{name}\n", 0o644),
            "/etc/hosts": (f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n", 0o644),
            "/root/.ssh/authorized_keys": (self.node_key.with_suffix(".pub").read_text(), 0o600),
            "/etc/ssh/ssh_host_ed25519_key": (host_key.read_text(), 0o600),
            "/etc/ssh/ssh_host_ed25519_key.pub": (host_key.with_suffix(".pub").read_text(), 0o644),
        }
        for file in config.get("write_files", ()):
            files[file["path"]] = (file["content"], int(file["permissions"], 8))
        put_files(target, files)
        return target

    def _grown(self, source: Path, disk_bytes: int, swap_bytes: int) -> Path:
        """The image on a disk of this size: containers cannot grow their root, and virtual machines boot sooner."""
        if source.stat().st_size == disk_bytes and not swap_bytes:
            return source
        key = (source, disk_bytes, swap_bytes)
        with self._growing:  # tests ask for nodes from several threads
            if key not in self._images:
                target = self.lab.backend.disks / f"image-{len(self._images)}.raw"
                grow(source, target, disk_bytes, swap_bytes)
                self._images[key] = target
            return self._images[key]


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)]
    subprocess.run(command, check=True)


async def _ended(name: str, action: Action) -> None:
    await action.ended.wait()
    if action.error:
        raise LabError(f"machine {name}: {action.command} failed: {action.error['message']}")


def _server(cloud: Cloud, name: str) -> Server:
    for server in cloud.servers.values():
        if server.name == name:
            return server
    raise LabError(f"no server is called {name!r}; there are {', '.join(s.name for s in cloud.servers.values())}")


def _snapshot(cloud: Cloud, source: Path) -> Image:
    """The image file as the API knows images."""
    return Image(
        id=cloud.new_id("image"),
        type="snapshot",
        name=None,
        description=source.name,
        architecture="x86",
        disk_size=source.stat().st_size / resources.DISK_GB_BYTES,
        os_flavor="debian",
        os_version=None,
        created=now(),
        file=source,
    )


def _server_type(memory_mib: int, disk_bytes: int) -> resources.ServerType:
    """The smallest type with this memory and disk."""
    fitting = [
        kind
        for kind in resources.SERVER_TYPES.values()
        if kind.architecture == "x86"
        and kind.memory * 1024 >= memory_mib
        and kind.disk * resources.DISK_GB_BYTES >= disk_bytes
    ]
    if not fitting:
        raise LabError(f"no server type has {memory_mib} MiB of memory and {disk_bytes} bytes of disk")
    return min(fitting, key=lambda kind: (kind.memory, kind.disk))


def _bytes(size: str) -> int:
    """8G and 512M as bytes."""
    units = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    unit = units.get(size[-1:])
    number = whole_number(size[:-1] if unit else size)
    if number is not None:
        return number * (unit or 1)
    raise LabError(f"size {size!r} is not a number of bytes, or of M, G or T")
