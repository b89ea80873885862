# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's control plane as tests and the command line use it."""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
import secrets
import string
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.cache import Progress, quiet
from lab.errors import PROGRAM, ClusterError

from . import kube_api
from .control_plane import public_key_hash
from .kube_api import UNAUTHORIZED, KubeClient, KubeError
from .programs import Programs, ensure

# (method, path, body, timeout) → answer of one of the lab's own routes
Control = Callable[[str, str, Any, float], Any]
_ALPHABET = string.ascii_lowercase + string.digits
_START_SECONDS = 600  # on a host that has much else to do
_SETTLE_SECONDS = 300
_ROUTE = "/cluster"


class RunningCluster:
    """The control plane of one lab; it ends with the lab, or with `close`."""

    def __init__(self, control: Control, about: dict[str, Any], programs: Programs) -> None:
        """Use `started` or `found`."""
        self._control = control
        self.programs = programs
        self.endpoint: str = about["endpoint"]
        self.folder = Path(about["folder"])
        self.ca_file = Path(about["ca_file"])
        self.ca_pem = self.ca_file.read_text()
        self.ca_hash = public_key_hash(self.ca_pem.encode())
        self.kubeconfig = Path(about["kubeconfig"])
        self.api = KubeClient(self.endpoint, self.ca_file, (self.folder / "admin.crt", self.folder / "admin.key"))

    @classmethod
    def started(cls, control: Control, progress: Progress = quiet) -> RunningCluster:
        """The lab's control plane, built and started when need be."""
        programs = ensure(progress)
        return cls(control, control("POST", _ROUTE, None, _START_SECONDS), programs)

    @classmethod
    def found(cls, control: Control) -> RunningCluster:
        """The lab's control plane; ClusterError when it has none."""
        about = status(control)
        if about is None:
            raise ClusterError(f"this lab has no control plane; start it with: {PROGRAM} cluster up")
        return cls(control, about, ensure())

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """What kubectl prints as the administrator, ``text`` on its standard input."""
        done = subprocess.run(
            [str(self.programs.kubectl), f"--cache-dir={self.folder}/kubectl", *arguments], input=text or "", text=True,
            capture_output=True, check=False, env={"KUBECONFIG": str(self.kubeconfig), "PATH": os.environ["PATH"]},
        )  # fmt: skip
        if done.returncode:
            raise ClusterError(
                f"kubectl {' '.join(arguments)} failed (status {done.returncode}): {done.stderr.strip()}"
            )
        return done.stdout

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["metadata"]["name"]: node for node in self.api.get("/api/v1/nodes")["items"]}

    def requests(self) -> list[dict[str, Any]]:
        """The certificate signing requests, oldest first."""
        found = self.api.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
        return sorted(found, key=lambda request: request["metadata"]["creationTimestamp"])

    def token(
        self, ttl: float = 3600, groups: tuple[str, ...] = (kube_api.NODE_GROUP,), *, signing: bool = True
    ) -> str:
        """A new bootstrap token ID.SECRET, accepted and, with ``signing``, signed for when this returns.

        Without ``ttl`` seconds left (0 or less) it is one that has expired, and was never accepted.
        """
        token = f"{_letters(6)}.{_letters(16)}"
        self.api.call("POST", kube_api.SECRETS, kube_api.token_secret(token, _in(ttl), groups, signing))
        if ttl <= 0:
            return token
        if signing:
            signature = f"jws-kubeconfig-{token[:6]}"
            info = f"{kube_api.CLUSTER_INFO}/cluster-info"
            _until(f"the signature for token {token[:6]}", lambda: signature in self.api.get(info)["data"])
        _until(f"token {token[:6]} to be accepted", lambda: self._accepts(token))
        return token

    def expire(self, token: str) -> None:
        """Let a token's time be over; it is refused when this returns.

        That takes 10 s for a token that was used: API servers remember for so long whom they let in.
        """
        past = base64.b64encode(_in(-60).encode()).decode()
        path = f"{kube_api.SECRETS}/bootstrap-token-{token[:6]}"
        kind = "application/merge-patch+json"
        # The token cleaner may have taken it away already.
        with contextlib.suppress(KubeError):
            self.api.call("PATCH", path, {"data": {"expiration": past}}, kind)
        _until(f"token {token[:6]} to be refused", lambda: not self._accepts(token))

    def approve(self, on: bool) -> None:
        """Whether client certificates of nodes, first ones and renewals, are approved automatically."""
        for name, kind in ((kube_api.APPROVE, "nodeclient"), (kube_api.APPROVE_RENEWAL, "selfnodeclient")):
            self._bind(name, on, ("create", kind))

    def bootstrap(self, on: bool) -> None:
        """Whether holders of a bootstrap token may ask for certificates."""
        self._bind(kube_api.BOOTSTRAP, on, ("create", ""))

    def sign_for(self, seconds: int) -> None:
        """Let certificates that are signed from now on be valid for so long (a day otherwise)."""
        self._control("POST", f"{_ROUTE}/signing", {"seconds": seconds}, _START_SECONDS)

    def stop(self) -> None:
        """Take the API server away, as when its host dies."""
        self._control("POST", f"{_ROUTE}/server", {"on": False}, _START_SECONDS)

    def start(self) -> None:
        """Bring the API server back; it is ready when this returns."""
        self._control("POST", f"{_ROUTE}/server", {"on": True}, _START_SECONDS)

    def close(self) -> None:
        """End the control plane and remove its files; the lab goes on."""
        self._control("DELETE", _ROUTE, None, _START_SECONDS)

    def _accepts(self, token: str) -> bool:
        try:
            # Every client that the server accepts may read this.
            KubeClient(self.endpoint, self.ca_file, token=token).get("/api")
        except KubeError as error:
            if error.status == UNAUTHORIZED:
                return False
            raise
        return True

    def _bind(self, name: str, on: bool, right: tuple[str, str]) -> None:
        if on:
            self.api.create(kube_api.BINDINGS_PATH, kube_api.binding(name))
        else:
            with contextlib.suppress(KubeError):
                self.api.call("DELETE", f"{kube_api.BINDINGS_PATH}/{name}")
        review = kube_api.access_review(kube_api.BINDINGS[name][0], "certificatesigningrequests", *right)
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        _until(
            f"{name} to be {'granted' if on else 'refused'}",
            lambda: bool(self.api.call("POST", path, review)["status"]["allowed"]) is on,
        )


def status(control: Control) -> dict[str, Any] | None:
    """What the lab says about its control plane; None when it has none."""
    found: dict[str, Any] | None = control("GET", _ROUTE, None, _START_SECONDS)["cluster"]
    return found


def _letters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _number in range(count))


def _in(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _until(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {_SETTLE_SECONDS} s for {what}")
        time.sleep(0.05)
