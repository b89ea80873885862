# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate managers: ask, wait, store, renew; for the client certificate and for the serving one."""

from __future__ import annotations

import base64
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lab.kubelet.app import csr, log
from lab.kubelet.app.client import ApiError, Client, Unreachable
from lab.kubelet.app.files import link, write

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
#: as for every key of an elliptic curve
USAGES = {
    CLIENT_SIGNER: ["digital signature", "client auth"],
    SERVING_SIGNER: ["digital signature", "server auth"],
}
RETRY = "KUBELET_STANDIN_RETRY"  # seconds before the first repetition
_LONGEST = 32.0
_POLL = 0.5
_PATIENCE = 15 * 60.0


class Refused(Exception):
    """No certificate this time; the text says why."""


class Manager(threading.Thread):
    """Keeps one certificate: asks when there is none or it grows old."""

    def __init__(
        self,
        name: str,
        signer: str,
        folder: Path,
        client: Callable[[], Client],
        sans: Callable[[], tuple[tuple[str, ...], tuple[str, ...]]],
        stopped: threading.Event,
    ) -> None:
        """``client`` is asked each time, since the first request goes out with the bootstrap token."""
        super().__init__(name="certificate_manager " + signer, daemon=True)
        self._node, self._signer, self._folder = name, signer, folder
        self._client, self._sans, self._stopped = client, sans, stopped
        self._prefix = "kubelet-client" if signer == CLIENT_SIGNER else "kubelet-server"
        self._seen: tuple[int, int] | None = None
        self._validity: csr.Validity | None = None
        self.issued = threading.Event()
        #: whether the last answer shows that the server works, though it gave no certificate
        self.server_healthy = False

    @property
    def current(self) -> Path:
        """The link to certificate and key."""
        return self._folder / (self._prefix + "-current.pem")

    def validity(self) -> csr.Validity | None:
        """Of the current certificate; None when there is none that can be read."""
        try:
            found = self.current.stat()
        except OSError:
            return None
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._seen:  # openssl is asked once a certificate
            try:
                self._validity = csr.validity(self.current)
            except csr.CertificateError:
                self._validity = None
            self._seen = stamp
        return self._validity

    def run(self) -> None:
        pause = first = float(os.environ.get(RETRY, "2"))
        while not self._stopped.is_set():
            valid = self.validity()
            if valid is not None and valid.ends > time.time():
                self.issued.set()
                renewal = valid.begins + (valid.ends - valid.begins) * random.uniform(0.7, 0.9)
                log.info("certificate_manager.go:410", "Certificate rotation deadline", deadline=time.ctime(renewal))
                if self._stopped.wait(max(0.0, renewal - time.time())):
                    return
            log.info("certificate_manager.go:566", "Rotating certificates", logger=self._signer)
            try:
                self.obtain()
                pause = first
                self._stopped.wait(first)  # a signer of certificates that are over at once is not asked without end
            except Refused as problem:
                log.error("certificate_manager.go:596", "Unhandled Error", problem, logger="UnhandledError")
                self._stopped.wait(pause)
                pause = min(pause * 2, _LONGEST)

    def obtain(self) -> None:
        """One request until its certificate is stored; raises :class:`Refused`."""
        try:
            private = csr.key()
            names, addresses = self._sans()
            wanted = csr.request(private, self._node, names, addresses)
        except csr.CertificateError as problem:
            raise Refused("%s: Failed while generating new private key: %s" % (self._signer, problem)) from None
        try:
            made = self._client().call("POST", CSRS, self._request(wanted))
        except (ApiError, Unreachable) as problem:
            self._judge(problem)
            raise Refused(
                "%s: Failed while requesting a signed certificate from the control plane: "
                "cannot create certificate signing request: %s" % (self._signer, problem)
            ) from None
        certificate = self._wait(made["metadata"]["name"], made["metadata"]["uid"])
        self._store(certificate, private)

    def _request(self, wanted: bytes) -> dict:
        return {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": base64.b64encode(wanted).decode(),
                "signerName": self._signer,
                "usages": USAGES[self._signer],
            },
        }

    def _wait(self, name: str, uid: str) -> bytes:
        log.info("csr.go:274", "Waiting for CSR to be issued", csr=name)
        limit = time.monotonic() + _PATIENCE
        while time.monotonic() < limit and not self._stopped.is_set():
            try:
                found = self._client().call("GET", "%s/%s" % (CSRS, name))
            except (ApiError, Unreachable) as problem:
                self._judge(problem)
                if isinstance(problem, ApiError) and problem.code == 404:
                    raise Refused("%s: certificate request was not signed: %s" % (self._signer, problem)) from None
                found = {}
            else:
                if found["metadata"]["uid"] != uid:
                    raise Refused("%s: certificate signing request %s was replaced" % (self._signer, name))
            status = found.get("status") or {}
            for condition in status.get("conditions") or []:
                if condition["type"] in ("Denied", "Failed"):
                    raise Refused(
                        "%s: certificate request was not signed: certificate signing request %s is %s, "
                        "reason: %s, message: %s"
                        % (
                            self._signer,
                            name,
                            condition["type"].lower(),
                            condition.get("reason"),
                            condition.get("message"),
                        )
                    )
            if status.get("certificate"):
                log.info("csr.go:270", "Certificate signing request is issued", csr=name)
                return base64.b64decode(status["certificate"])
            self._stopped.wait(_POLL)
        raise Refused("%s: certificate request was not signed: timed out waiting for the condition" % self._signer)

    def _store(self, certificate: bytes, private: bytes) -> None:
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
        path = self._folder / ("%s-%s.pem" % (self._prefix, stamp))
        write(path, certificate.rstrip() + b"\n" + private, 0o600)
        link(self.current, str(path))
        self.issued.set()

    def _judge(self, problem: Exception) -> None:
        self.server_healthy = isinstance(problem, ApiError) and problem.code in (401, 403, 404)
