# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of things: command line, configuration, machine, credentials, node, health."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from lab.kubelet.app import host, log
from lab.kubelet.app.certificates import CLIENT_SIGNER, SERVING_SIGNER, Manager
from lab.kubelet.app.client import Client
from lab.kubelet.app.config import ConfigError, load
from lab.kubelet.app.credentials import Credentials, CredentialsError
from lab.kubelet.app.csr import CertificateError, self_signed
from lab.kubelet.app.files import write
from lab.kubelet.app.flags import DEPRECATED, FlagError, pairs, parse, truth
from lab.kubelet.app.health import Health
from lab.kubelet.app.labels import LabelError, check_labels
from lab.kubelet.app.node import Node
from lab.kubelet.app.tables import FIELDS, FLAGS
from lab.kubelet.app.version import MINOR, VERSION


class Refused(Exception):
    """The kubelet does not start; the text is the last thing it logs."""


def main(arguments: list[str]) -> int:
    """Run until a signal or a refusal; the exit status."""
    try:
        flags = parse(arguments, FLAGS[MINOR])
    except FlagError as problem:
        log.error("run.go:72", "command failed", "failed to parse kubelet flag: %s" % problem)
        return 1
    if truth(flags, "version"):
        print("Kubernetes v" + VERSION)
        return 0
    if truth(flags, "help"):
        print("The kubelet of the lab, version %s, flags:" % VERSION)
        print("\n".join("      --" + name for name in sorted(FLAGS[MINOR])))
        return 0
    for name in flags:
        if FLAGS[MINOR][name] == "deprecated":
            print(DEPRECATED % name, file=sys.stderr)
    try:
        return Kubelet(flags).run()
    except (Refused, ConfigError, FlagError, LabelError, CredentialsError) as problem:
        log.error("run.go:72", "command failed", problem)
        return 1


class Kubelet:
    """One kubelet, from its flags on."""

    def __init__(self, flags: dict[str, str]) -> None:
        """Everything that needs no other machine; raises :class:`Refused` and the errors of the parts."""
        self.flags = flags
        self.labels = pairs(flags.get("node-labels", ""))
        check_labels(self.labels)
        if flags.get("cloud-provider", "") not in ("", "external"):
            raise Refused(
                'unsupported value "%s" for flag --cloud-provider: only "" and "external" are supported'
                % flags["cloud-provider"]
            )
        self.config: dict[str, Any] = load(flags, FIELDS[MINOR])
        self.node_name = flags.get("hostname-override", "").strip().lower() or host.hostname()
        self.certificates = Path(flags.get("cert-dir") or "/var/lib/kubelet/pki")
        self.stopped = threading.Event()
        self.status = 0

    def run(self) -> int:
        """Until the end; the exit status."""
        log.info("server.go:530", "Kubelet version", kubeletVersion="v" + VERSION)
        self._check_machine()
        credentials = Credentials(self.flags, self.config, self.node_name, self.certificates, self.stopped)
        standalone = not self.flags.get("kubeconfig")
        if standalone:
            log.info("server.go:655", "Standalone mode, no API client")
            if self.config["authorization"].get("mode") == "Webhook":
                raise Refused(
                    "failed to run Kubelet: no client provided, cannot use webhook authorization"
                    if not self.config["authentication"].get("webhook", {}).get("enabled")
                    else "failed to run Kubelet: no client provided, cannot use webhook authentication"
                )
        else:
            credentials.begin()
        problem = host.runtime_problem(self.config["containerRuntimeEndpoint"])
        if problem:
            raise Refused(
                'failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint "%s": '
                'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: %s"'
                % (self.config["containerRuntimeEndpoint"], problem)
            )
        self._listen()
        if not standalone:
            self._serve(credentials)
            threading.Thread(target=self._node, args=(credentials,), name="node", daemon=True).start()
            threading.Thread(target=self._guard, args=(credentials,), name="guard", daemon=True).start()
        self.stopped.wait()
        return self.status

    def end(self, status: int) -> None:
        """Leave with ``status``."""
        self.status = status
        self.stopped.set()

    def _check_machine(self) -> None:
        if self.config["failCgroupV1"] and not host.cgroup_v2():
            raise Refused(
                "failed to validate kubelet configuration, error: kubelet is configured to not run on a host using "
                "cgroup v1. cgroup v1 support is unsupported and will be removed in a future release, "
                "path: &TypeMeta{Kind:,APIVersion:,}"
            )
        active = host.swaps()
        if self.config["failSwapOn"] and active:
            raise Refused(
                "failed to run Kubelet: running with swap on is not supported, please disable swap or set "
                "--fail-swap-on flag to false. /proc/swaps contained: %s" % active
            )

    def _listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.end(0))
        try:
            health = Health(self.config["healthzBindAddress"], self.config["healthzPort"], self.stopped)
        except OSError as problem:
            raise Refused("failed to start healthz server: listen tcp: %s" % problem) from None
        health.watch()
        log.info("server.go:1304", "Started kubelet")

    def _node(self, credentials: Credentials) -> None:
        while not credentials.usable():
            if self.stopped.wait(0.1):
                return
        node = Node(self.node_name, self.config, self.flags, self.labels, credentials.client, self.stopped)
        node.run()

    def _serve(self, credentials: Credentials) -> None:
        """The serving certificate: requested, or signed by ourselves."""
        if self.config["serverTLSBootstrap"] and not self.config.get("tlsCertFile"):
            addresses = host.addresses(self.flags.get("node-ip", ""), credentials.server_host())
            Manager(
                self.node_name,
                SERVING_SIGNER,
                self.certificates,
                credentials.client_when_usable,
                lambda: ((self.node_name,), tuple(addresses)),
                self.stopped,
            ).start()
        elif not self.config.get("tlsCertFile") and not (self.certificates / "kubelet.crt").exists():
            try:
                certificate, key = self_signed(self.node_name)
            except CertificateError as problem:
                raise Refused("failed to initialize kubelet server: %s" % problem) from None
            write(self.certificates / "kubelet.key", key, 0o600)
            write(self.certificates / "kubelet.crt", certificate, 0o644)
            log.info("server.go", "Using self-signed cert", certFile=str(self.certificates / "kubelet.crt"))

    def _guard(self, credentials: Credentials) -> None:
        """End when there is no valid client certificate although the server works."""
        limit = float(os.environ.get("KUBELET_STANDIN_EXIT_AFTER", "300"))
        start, told = time.monotonic(), 0.0
        while not self.stopped.wait(0.2):
            manager = credentials.manager
            if manager is None:  # a certificate that nobody renews, or none at all
                return
            valid = manager.validity()
            if valid is not None and valid.ends > time.time():
                self.stopped.wait(1.0)
                continue
            if valid is not None:
                if manager.server_healthy:
                    log.error(
                        "transport.go:118",
                        "The currently active client certificate has expired and the server is responsive, exiting.",
                    )
                    self.end(1)
                continue
            if time.monotonic() - start < limit:
                continue
            if manager.server_healthy:
                log.error(
                    "transport.go:110", "No valid client certificate is found and the server is responsive, exiting."
                )
                self.end(1)
            elif time.monotonic() - told >= 1:
                told = time.monotonic()
                log.error(
                    "transport.go:112",
                    "No valid client certificate is found but the server is not responsive. "
                    "A restart may be necessary to retrieve new initial credentials.",
                    lastCertificateAvailabilityTime=time.ctime(),
                    shutdownThreshold="%gs" % limit,
                )


__all__ = ["CLIENT_SIGNER", "Client", "Kubelet", "main"]
