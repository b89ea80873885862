# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are read again when they change: what all hosts have in common, and the TLS certificate."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs, from_environment
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Signature, signature_of
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError

from .folder import read_text
from .problems import LOG, Problems

PULL_SECRET = "/run/secrets/pull-secret"
_MOST = 4 * 1024 * 1024
_NAME = "common inputs"


class CommonInputs:
    """The agent's inputs as they are now.

    When a file becomes bad, the last good values stay: the file is common to all hosts, whose own inputs are good.
    """

    def __init__(self, environ: Mapping[str, str], problems: Problems, pull_secret_file: str = "") -> None:
        """Read everything; ImageError when something is wrong already now."""
        self._environ, self._problems = environ, problems
        self._places = {PULL_SECRET: pull_secret_file or PULL_SECRET}
        self._paths = [self._places[PULL_SECRET], environ.get("CA_BUNDLE", ""), environ.get("REGISTRIES_CONF_PATH", "")]
        if pull_secret_file:
            try:
                read_text(pull_secret_file, _MOST)
            except ImageError as error:  # one that is named has to be there
                raise ImageError(f"pull-secret-file {pull_secret_file}: {error}") from error
        self._signatures = self._look()
        self._current = self._read()
        self._problem = ""

    def __call__(self) -> AgentInputs:
        """The same object as long as nothing changed."""
        return self._current

    @property
    def modified(self) -> float:
        """When the newest file was written (seconds since 1970)."""
        return max((one.mtime_ns for one in self._signatures if one is not None), default=0) / 1e9

    def refresh(self) -> bool:
        """Read again what changed; returns whether the inputs are others now. Call `report` after acting on that."""
        found = self._look()
        if found == self._signatures:
            return False
        self._signatures, before = found, self._current
        try:
            self._current = self._read()
        except ImageError as error:
            self._problem = f"{error}; the values that were there before are used"
            return False
        self._problem = ""
        return self._current != before

    def report(self) -> None:
        """Report what is wrong with them, or that nothing is any more."""
        self._problems.report(_NAME, self._problem)

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in self._paths)

    def _read(self) -> AgentInputs:
        return from_environment(self._environ, self._text).checked()

    def _text(self, path: str) -> str | None:
        try:
            return read_text(self._places.get(path, path), _MOST)
        except ImageError:
            return None


def _signature(path: str) -> Signature | None:
    try:
        return signature_of(os.stat(path)) if path else None
    except OSError:
        return None


class Certificate:
    """The pair of files, and the context for connections from now on."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read them; ImageError when they do not fit."""
        self._paths = (certificate, key)
        self._signatures = self._look()
        self.context = self._load()

    def renew(self, problems: Problems, use: Callable[[ssl.SSLContext], None]) -> None:
        """Use the context of a new pair; one that does not fit is reported, and the old one stays."""
        found = self._look()
        if found == self._signatures:
            return
        self._signatures = found
        try:
            self.context = self._load()
        except ImageError as error:
            problems.report("TLS", f"{error}; the certificate that was there before is used")
            return
        use(self.context)
        problems.report("TLS", "")
        LOG.info("TLS: the certificate was renewed")

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in self._paths)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # whose messages come in the middle of an answer
        try:
            # without one, OpenSSL would ask for it on a terminal
            context.load_cert_chain(*self._paths, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
            raise ImageError("tls-cert %s and tls-key %s cannot be used: %s" % (*self._paths, reason)) from error
        return context
