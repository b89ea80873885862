# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose name the kubelet speaks in: its own kubeconfig while that is good, else the bootstrap token's."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.kubelet.app import csr, log
from lab.kubelet.app.certificates import CLIENT_SIGNER, Manager
from lab.kubelet.app.certificates import Refused as RefusedRequest
from lab.kubelet.app.client import Client
from lab.kubelet.app.kubeconfig import Access, KubeconfigError, read, write_rotating


class CredentialsError(Exception):
    """There is nothing to speak with."""


class Credentials:
    """The kubeconfig, the bootstrap kubeconfig and the certificate between them."""

    def __init__(
        self, flags: dict[str, str], config: dict[str, Any], node: str, folder: Path, stopped: threading.Event
    ) -> None:
        self._own = Path(flags.get("kubeconfig") or "/nonexistent")
        self._bootstrap = flags.get("bootstrap-kubeconfig", "")
        self._rotate = bool(config["rotateCertificates"])
        self._node, self._folder, self._stopped = node, folder, stopped
        self._first: Access | None = None  # with the token, until there is a certificate
        self._access: Access | None = None
        self.manager: Manager | None = None

    def begin(self) -> None:
        """Settle on credentials; without rotation this waits for the first certificate."""
        valid = self._still_valid()
        if not valid:
            if not self._bootstrap:
                raise CredentialsError(
                    "failed to run Kubelet: unable to load kubeconfig: %s is missing or not valid" % self._own
                )
            self._read_bootstrap()
        if self._rotate:
            self._manage()
            if not valid:
                assert self._first is not None
                assert self.manager is not None
                log.info("bootstrap.go", "Client rotation is on, will bootstrap in background")
                write_rotating(self._own, self._first, self.manager.current)
            self._load()
            self.manager.start() if self.manager else None
        elif valid:
            self._load()
        else:
            self._foreground()

    def _still_valid(self) -> bool:
        if not self._own.exists():
            return False
        try:
            access = read(self._own)
            if access.token or not access.certificate:
                return True
            valid = csr.validity(Path(access.certificate))
        except (KubeconfigError, csr.CertificateError) as problem:
            log.error("bootstrap.go:241", "unable to read existing bootstrap client config from", problem)
            return False
        if valid.ends <= time.time():
            log.error(
                "bootstrap.go:265", "Part of the existing bootstrap client certificate is expired", cert=valid.subject
            )
            return False
        return True

    def _read_bootstrap(self) -> None:
        try:
            self._first = read(Path(self._bootstrap))
        except KubeconfigError as problem:
            raise CredentialsError("failed to run Kubelet: unable to load bootstrap kubeconfig: %s" % problem) from None

    def _manage(self) -> None:
        self.manager = Manager(
            self._node, CLIENT_SIGNER, self._folder, self.asking_client, lambda: ((), ()), self._stopped
        )

    def _foreground(self) -> None:
        """Block until the certificate is there, as the real one does without rotation."""
        self._manage()
        manager, self.manager = self.manager, None
        assert manager is not None
        assert self._first is not None
        while not self._stopped.is_set():
            try:
                manager.obtain()
                break
            except RefusedRequest as problem:
                log.error("bootstrap.go", "Failed to connect to apiserver", problem)
                self._stopped.wait(2.0)
        write_rotating(self._own, self._first, manager.current)
        self._load()

    def _load(self) -> None:
        try:
            self._access = read(self._own)
        except KubeconfigError as problem:
            raise CredentialsError("failed to run Kubelet: unable to load kubeconfig: %s" % problem) from None

    def usable(self) -> bool:
        """Whether the kubelet can speak in its own name."""
        return self._access is not None and (not self._access.certificate or Path(self._access.certificate).exists())

    def client(self) -> Client:
        """With the kubelet's own credentials."""
        assert self._access is not None
        return Client(self._access)

    def client_when_usable(self) -> Client:
        """The same, once there are any."""
        while not self.usable() and not self._stopped.wait(0.1):
            pass
        return self.client()

    def asking_client(self) -> Client:
        """For requests of the client certificate: our own credentials while they are good, else the token."""
        manager = self.manager
        if self._access is not None and manager is not None:
            valid = manager.validity()
            if valid is not None and valid.ends > time.time():
                return Client(self._access)
        if self._first is None:
            self._read_bootstrap() if self._bootstrap else None
        return Client(self._first or self._access)  # type: ignore[arg-type]

    def server_host(self) -> str:
        """Host name or address of the API server."""
        access = self._access or self._first
        return urlsplit(access.server).hostname or "" if access else ""
