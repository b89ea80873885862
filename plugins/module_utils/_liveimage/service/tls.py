# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Certificate and key as files, read again when they were renewed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

from ..bases import Signature, signature_of
from ..errors import ImageError
from .problems import LOG, Problems


class Certificate:
    """The pair of files, and the context for connections from now on."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read them; ImageError when they do not fit."""
        self._paths = (certificate, key)
        self._signatures = self._look()
        self.context = self._load()

    def renew(self, problems: Problems, use: Callable[[ssl.SSLContext], None]) -> None:
        """Use the context of a new pair; one that does not fit is told of, and the old one stays."""
        found = self._look()
        if found == self._signatures:
            return
        self._signatures = found
        try:
            self.context = self._load()
        except ImageError as error:
            problems.tell("TLS", "%s; the certificate that was there before is used" % error)
            return
        use(self.context)
        problems.tell("TLS", "")
        LOG.info("TLS: the certificate was renewed")

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in self._paths)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # whose messages come in the middle of an answer
        try:
            # a password would be asked for on a terminal that nobody sits at
            context.load_cert_chain(*self._paths, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
            raise ImageError("tls-cert %s and tls-key %s cannot be used: %s" % (*self._paths, reason)) from error
        return context


def _signature(path: str) -> Signature | None:
    try:
        return signature_of(os.stat(path))
    except OSError:
        return None
