# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A small client of the Kubernetes API: one host, its CA, a token or a client certificate.

Everything that can go wrong before an answer is an :class:`ApiError` with one of the failure codes.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from ..._common.text import json_value

#: The most bytes that are read of an answer.
LONGEST_ANSWER = 8 * 1024 * 1024
# numbers of X509_V_ERR_*: https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/
_NOT_YET_VALID, _HAS_EXPIRED = 9, 10
_WRONG_NAME = (62, 64)


class ApiError(Exception):
    """No answer was had; ``code`` is the failure code, the text says what happened."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Answer:
    """Status, JSON body (None when it is none), seconds by which the server's clock is ahead (None: no date)."""

    def __init__(self, status: int, body: Any, skew: float | None = None) -> None:
        self.status = status
        self.body = body
        self.skew = skew

    @property
    def message(self) -> str:
        """What the API says of a refusal."""
        return str(self.body.get("message") or "") if isinstance(self.body, dict) else ""


def split_server(server: str) -> tuple[str, int]:
    """(host, port) of ``https://host[:port]``; anything else raises ValueError."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, 443 if parts.port is None else parts.port
    except ValueError as error:
        raise ValueError("%r has no address, or no port between 1 and 65535" % server) from error
    if not port:
        raise ValueError("%r has no port between 1 and 65535" % server)
    extra = parts.path.rstrip("/") or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme != "https" or not host or extra:
        raise ValueError("%r is no address of an API server; write https://HOST:6443" % server)
    return host, port


class Api:
    """Requests to one API server.

    ``ca_pem`` None means that the server's certificate is not checked (only for what proves itself otherwise).
    ``client_pem`` is the path of a file with certificate and key. ``timeout`` in seconds is for one request.
    """

    def __init__(
        self,
        server: str,
        ca_pem: str | None,
        token: str | None = None,
        client_pem: str | None = None,
        timeout: float = 10,
    ) -> None:
        self.host, self.port = split_server(server)
        self.server = server
        self.timeout = timeout
        self._token = token
        self._context = self._make_context(ca_pem, client_pem)

    def get(self, path: str) -> Answer:
        """GET; returns an :class:`Answer`."""
        return self._request("GET", path, None)

    def post(self, path: str, body: Any) -> Answer:
        """POST ``body`` as JSON; returns an :class:`Answer`."""
        return self._request("POST", path, json.dumps(body).encode("utf-8"))

    @staticmethod
    def _make_context(ca_pem: str | None, client_pem: str | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if ca_pem is None:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            else:
                context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ApiError("ca_mismatch", "the CA cannot be read: %s" % error) from error
        if client_pem is not None:
            try:
                context.load_cert_chain(client_pem)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                text = "the client certificate %s cannot be used: %s" % (client_pem, error)
                raise ApiError("token_refused", text) from error
        return context

    def _request(self, method: str, path: str, body: bytes | None) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": "kubenode.provision", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout, context=self._context)
        sent = time.time()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read(LONGEST_ANSWER + 1)
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from error
        except socket.gaierror as error:
            raise ApiError("api_unreachable", "the name %s cannot be resolved: %s" % (self.host, error)) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            # UnicodeError: of a host name that is none
            text = str(error) or type(error).__name__
            raise ApiError("api_unreachable", "%s does not answer: %s" % (self.server, text)) from error
        finally:
            connection.close()
        if len(data) > LONGEST_ANSWER:
            raise ApiError("api_unreachable", "%s answers with more than %d bytes" % (self.server, LONGEST_ANSWER))
        return Answer(response.status, _json(data), _skew(response.getheader("Date"), sent, time.time()))

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> ApiError:
        if error.verify_code in (_NOT_YET_VALID, _HAS_EXPIRED):
            skew = self._unproven_skew()
            when = "not valid yet" if error.verify_code == _NOT_YET_VALID else "expired"
            if skew is not None and abs(skew) > 60:
                return ApiError(
                    "clock_skew",
                    "by the clock of this machine the certificate of %s is %s; the clocks are %d s apart"
                    % (self.server, when, abs(skew)),
                )
            return ApiError("ca_mismatch", "the certificate of %s is %s" % (self.server, when))
        if error.verify_code in _WRONG_NAME:
            return ApiError(
                "ca_mismatch",
                "the certificate of %s is not for the host %s; use a name or address that it holds"
                % (self.server, self.host),
            )
        return ApiError(
            "ca_mismatch",
            "the certificate of %s was not signed by the CA given (%s); give the CA of this cluster"
            % (self.server, error.verify_message),
        )

    def _unproven_skew(self) -> float | None:
        """The server's clock against ours by a server that is not proven: for the text of an error, nothing else."""
        try:
            return Api(self.server, None, timeout=self.timeout).get("/version").skew
        except ApiError:
            return None


def _skew(date: str | None, sent: float, received: float) -> float | None:
    """Seconds the server's clock is ahead; its date has no fractions, so up to a second is nothing."""
    if not date:
        return None
    try:
        there = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):  # older Pythons raise any of them
        return None
    if there + 1 < sent:
        return there + 1 - sent
    return max(0.0, there - received)


def _json(data: bytes) -> Any:
    try:
        return json_value(data.decode("utf-8"))
    except ValueError:
        return None
