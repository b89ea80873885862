# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane of one lab: etcd, API server, controller manager and scheduler, started, stopped, removed.

Its keys and certificates are valid for a week: a lab does not live longer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ipaddress
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lab.certificates import Authority, Key, key_pem, new_key
from lab.errors import ClusterError
from lab.state import write_secret

from . import kube_api
from .kube_api import KubeClient, KubeError, KubeUnreachable
from .programs import Programs

Adopt = Callable[[int], None]
PORT = 6443
_LOOPBACK = "127.0.0.1"
_READY_SECONDS = 600  # 5 s on an idle host
_SIGNED_SECONDS = 86400
_SOCKET = "unix://etcd:1"  # a file in the control plane's own folder: no other user can read etcd
_PEER = "unix://peer:1"
#: What joining, leaving and pods need. Owners of pods in tests need not exist, so there is no garbage collector.
_CONTROLLERS = (
    "certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller", "bootstrap-signer-controller", "token-cleaner-controller",
    "serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller", "taint-eviction-controller", "disruption-controller",
)  # fmt: skip


class Process:
    """A program that works in ``folder`` and writes NAME.log there."""

    def __init__(self, name: str, folder: Path, adopt: Adopt) -> None:
        """``adopt`` is called with the process id, to add the process to those of the lab."""
        self.name = name
        self._folder = folder
        self._adopt = adopt
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, command: Sequence[str]) -> None:
        if self.running:
            return
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                "setpriv", "--pdeathsig", "KILL", "--", *command, cwd=self._folder,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._adopt(self._process.pid)

    def check(self) -> None:
        """Raise ClusterError with its last lines when it has ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            lines = (self._folder / f"{self.name}.log").read_text(errors="replace").splitlines()[-10:]
            raise ClusterError(f"{self.name} ended with code {self._process.returncode}:\n" + "\n".join(lines))

    async def kill(self) -> None:
        """Kill it at once, as when its host dies."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None


class ControlPlane:
    """Lives in the lab's event loop; its files are in ``folder``, which it makes and removes."""

    def __init__(self, programs: Programs, folder: Path, host: str, adopt: Adopt) -> None:
        """``host`` is the address of this host at which machines and the controller reach the API server."""
        self._programs = programs
        self._folder = folder
        self._host = host
        self._etcd = Process("etcd", folder, adopt)
        self._server = Process("kube-apiserver", folder, adopt)
        self._manager = Process("kube-controller-manager", folder, adopt)
        self._scheduler = Process("kube-scheduler", folder, adopt)
        self._processes = (self._etcd, self._server, self._manager, self._scheduler)
        self._lock = asyncio.Lock()
        self._signed_seconds = _SIGNED_SECONDS
        self._port: socket.socket | None = None
        self.endpoint = ""

    def about(self) -> dict[str, Any]:
        """Where it answers, where its files are, and what of it runs."""
        return {
            "endpoint": self.endpoint,
            "folder": str(self._folder),
            "ca_file": str(self._folder / "ca.crt"),
            "kubeconfig": str(self._folder / "admin.kubeconfig"),
            "running": {process.name: process.running for process in self._processes},
        }

    async def start(self) -> None:
        """Start everything and wait until nodes can join; nothing is left behind when that fails."""
        async with self._lock:
            try:
                await self._start()
            except BaseException:
                await self._end()
                raise

    async def close(self) -> None:
        """End everything and remove its files."""
        async with self._lock:
            await self._end()

    async def serve(self, on: bool) -> None:
        """Switch the API server on (and wait until it is ready) or off."""
        async with self._lock:
            if not on:
                await self._server.kill()
                return
            await self._server.start(self._server_command())
            await self._ready()

    async def sign_for(self, seconds: int) -> None:
        """Let certificates that are signed from now on be valid for so long."""
        async with self._lock:
            self._signed_seconds = seconds
            await self._manager.kill()
            await self._manager.start(self._manager_command())

    async def _start(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)
        # The address of a lab is its own; on loopback all labs meet.
        if self._host == _LOOPBACK and self._port is None:
            self._port = keep_port(_LOOPBACK)
        port = PORT if self._port is None else self._port.getsockname()[1]
        self.endpoint = f"https://{self._host}:{port}"
        pki = await asyncio.to_thread(Pki, self._folder, self._host)
        pki.kubeconfig("admin", self.endpoint)
        await self._etcd.start(self._etcd_command())
        await self._server.start(self._server_command())
        await self._ready()
        await self._manager.start(self._manager_command())
        await self._scheduler.start(self._scheduler_command())
        await self._init()
        await self._until("the default service account", "/api/v1/namespaces/default/serviceaccounts/default")

    async def _init(self) -> None:
        """What ``kubeadm init`` puts into a new cluster for nodes that join; its control plane is ours."""
        for namespace in ("kube-public", "kube-system"):
            await self._until(f"the namespace {namespace}", f"/api/v1/namespaces/{namespace}")
        configuration = self._folder / "kubeadm.yaml"
        configuration.write_text(kube_api.kubeadm_configuration(self.endpoint))
        for phase in (("upload-config", "all"), ("bootstrap-token", "--skip-token-print")):
            done = await asyncio.create_subprocess_exec(
                str(self._programs.kubeadm), "init", "phase", *phase, "--config=kubeadm.yaml",
                "--kubeconfig=admin.kubeconfig", cwd=self._folder, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            said, _none = await done.communicate()
            if done.returncode:
                text = said.decode(errors="replace").strip()
                raise ClusterError(f"kubeadm init phase {phase[0]} failed (status {done.returncode}): {text}")

    async def _end(self) -> None:
        for process in reversed(self._processes):
            await process.kill()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        if self._port is not None:
            self._port.close()
            self._port = None
        self.endpoint = ""

    async def _ready(self) -> None:
        await self._until("the API server", "/readyz")

    async def _until(self, what: str, path: str) -> None:
        api = self._api()
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            with contextlib.suppress(KubeError, KubeUnreachable):
                await asyncio.to_thread(api.get, path)
                return
            for process in self._processes:
                process.check()
            if time.monotonic() > deadline:
                raise ClusterError(f"{what} was not ready within {_READY_SECONDS} s; see the logs in {self._folder}")
            await asyncio.sleep(0.1)

    def _api(self) -> KubeClient:
        pair = self._folder / "admin.crt", self._folder / "admin.key"
        return KubeClient(self.endpoint, self._folder / "ca.crt", pair)

    def _etcd_command(self) -> list[str]:
        return [
            str(self._programs.etcd), "--name=lab", "--data-dir=etcd", f"--listen-client-urls={_SOCKET}",
            f"--advertise-client-urls={_SOCKET}", f"--listen-peer-urls={_PEER}",
            f"--initial-advertise-peer-urls={_PEER}", f"--initial-cluster=lab={_PEER}", "--unsafe-no-fsync",
            "--log-level=warn", "--logger=zap",
        ]  # fmt: skip

    def _server_command(self) -> list[str]:
        return [
            str(self._programs.kubernetes / "kube-apiserver"),
            f"--etcd-servers={_SOCKET}", f"--bind-address={self._host}",
            f"--advertise-address={self._host}", f"--secure-port={self.endpoint.rpartition(':')[2]}",
            "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key", "--client-ca-file=ca.crt",
            "--kubelet-client-certificate=apiserver-kubelet-client.crt",
            "--kubelet-client-key=apiserver-kubelet-client.key", f"--service-cluster-ip-range={kube_api.SERVICES}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key",
            "--endpoint-reconciler-type=none",
            # For logs and exec: there is no DNS for the names of the lab's machines.
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        ]  # fmt: skip

    def _manager_command(self) -> list[str]:
        return [
            str(self._programs.kubernetes / "kube-controller-manager"), "--kubeconfig=admin.kubeconfig",
            f"--controllers={','.join(_CONTROLLERS)}", "--cluster-signing-cert-file=ca.crt",
            "--cluster-signing-key-file=ca.key", f"--cluster-signing-duration={self._signed_seconds}s",
            "--root-ca-file=ca.crt", "--service-account-private-key-file=sa.key", "--leader-elect=false",
            "--secure-port=0",
        ]  # fmt: skip

    def _scheduler_command(self) -> list[str]:
        return [
            str(self._programs.kubernetes / "kube-scheduler"), "--kubeconfig=admin.kubeconfig",
            "--leader-elect=false", "--secure-port=0",
        ]  # fmt: skip


_API_SERVICE = "10.96.0.1"  # the first address of the services, where pods find the API
_API_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Pki:
    """The files of a control plane below ``folder``: NAME.crt and NAME.key (0600)."""

    def __init__(self, folder: Path, host: str) -> None:
        """Make all of them; ``host`` is the IP address at which the API server will answer."""
        self._folder = folder
        # An RSA key, as real clusters have it: pins and tools meet what they will meet elsewhere.
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._authority = Authority("kubernetes", key)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(self._authority.pem)
        self._write_key("ca", key)
        addresses = [ipaddress.ip_address(text) for text in dict.fromkeys((host, "127.0.0.1", _API_SERVICE))]
        names = [*(x509.IPAddress(address) for address in addresses), *(x509.DNSName(name) for name in _API_NAMES)]
        self._issue("apiserver", "kube-apiserver", names)
        self._issue("admin", "kubernetes-admin", group="system:masters")
        self._issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", group="system:masters")
        accounts = new_key()
        self._write_key("sa", accounts)
        public = accounts.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "sa.pub").write_bytes(public)

    def kubeconfig(self, name: str, server: str) -> Path:
        """Write a configuration (0600) with which clients are the holder of the certificate ``name``."""
        user = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        config = kubeconfig(server, self.ca_file.read_bytes(), user)
        file = self._folder / f"{name}.kubeconfig"
        write_secret(file, json.dumps(config, indent=1) + "\n")  # JSON is YAML
        return file

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self._folder / name).read_bytes()).decode()

    def _issue(self, file: str, name: str, names: Iterable[x509.GeneralName] = (), group: str = "") -> None:
        key = new_key()
        (self._folder / f"{file}.crt").write_bytes(self._authority.issue(name, key, names, group))
        self._write_key(file, key)

    def _write_key(self, name: str, key: Key) -> None:
        write_secret(self._folder / f"{name}.key", key_pem(key))


def kubeconfig(server: str, ca_pem: bytes, user: dict[str, str]) -> dict[str, object]:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }


def public_key_hash(ca_pem: bytes) -> str:
    """The pin of a CA as kubeadm writes it: sha256:HEX of its SubjectPublicKeyInfo."""
    key = x509.load_pem_x509_certificate(ca_pem).public_key()
    return f"sha256:{hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()}"


def keep_port(host: str = "127.0.0.1") -> socket.socket:
    """A socket that keeps a free port until it is closed, and never listens there.

    A server that sets SO_REUSEADDR, as nearly all do, may listen on the port meanwhile, again and again; the kernel
    does not give it to others. While no server listens, connections are refused.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        keeper.bind((host, 0))
        # Only now: before, the kernel could have chosen the port of another keeper.
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        keeper.close()
        raise
    return keeper
