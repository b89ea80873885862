# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server over HTTPS: one request a connection, errors as the real client words them."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from lab.kubelet.app.kubeconfig import Access
from lab.kubelet.app.version import VERSION

TIMEOUT = 15.0
MERGE_PATCH = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__("Unauthorized" if code == 401 else message or reason or "status %d" % code)
        self.code = code
        self.reason = reason


class Unreachable(Exception):
    """No answer: no route, refused, timed out, or a certificate that is not trusted."""


class Client:
    """Requests with one set of credentials; the certificate's files are read anew for each."""

    def __init__(self, access: Access) -> None:
        self.access = access
        parts = urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or 443
        self._base = parts.path.rstrip("/")

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """JSON of the answer; raises :class:`ApiError` or :class:`Unreachable`."""
        url = self.access.server + path
        headers = {"Accept": "application/json", "User-Agent": "kubelet/v%s (linux/amd64)" % VERSION}
        if body is not None:
            headers["Content-Type"] = kind
        if self.access.token:
            headers["Authorization"] = "Bearer " + self.access.token
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=self._context())
        try:
            connection.request(method, self._base + path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            content = answer.read()
        except ssl.SSLCertVerificationError as problem:
            raise Unreachable(self._said(method, url, _x509(problem))) from None
        except socket.timeout:
            raise Unreachable(self._said(method, url, "dial tcp %s: i/o timeout" % self._address())) from None
        except (OSError, http.client.HTTPException) as problem:
            why = (getattr(problem, "strerror", None) or str(problem) or type(problem).__name__).lower()
            raise Unreachable(self._said(method, url, "dial tcp %s: connect: %s" % (self._address(), why))) from None
        finally:
            connection.close()
        return self._judged(answer.status, content)

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.access.ca or None)
        # Python 3.13 asks for extensions of RFC 5280 that Go, and so the real kubelet, does not miss
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.access.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.access.certificate:
            try:
                context.load_cert_chain(self.access.certificate, self.access.key or None)
            except (OSError, ssl.SSLError) as problem:
                raise Unreachable("client certificate: %s" % problem) from None
        return context

    def _judged(self, status: int, content: bytes) -> Any:
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value = None
        if 200 <= status < 300:
            return value
        known = value if isinstance(value, dict) else {}
        raise ApiError(status, known.get("reason", ""), known.get("message", content[:200].decode("utf-8", "replace")))

    def _said(self, method: str, url: str, why: str) -> str:
        return '%s "%s": %s' % (method.capitalize(), url, why)

    def _address(self) -> str:
        return "%s:%d" % (self._host, self._port)


def _x509(problem: ssl.SSLCertVerificationError) -> str:
    said = problem.verify_message or str(problem)
    if "expired" in said or "not yet valid" in said:
        return "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: " + said
    if "mismatch" in said or "doesn't match" in said:
        return "tls: failed to verify certificate: x509: certificate is not valid for this host: " + said
    return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
