# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of the Kubernetes API: JSON in, JSON out."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

from lab.errors import ClusterError

CONFLICT = 409
UNAUTHORIZED = 401


class KubeError(ClusterError):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubeUnreachable(ClusterError):
    """The API server does not answer."""


class KubeClient:
    """One API server, and the credentials: a client certificate (pair of files), a bearer token, or none."""

    def __init__(
        self, endpoint: str, ca_file: Path, certificate: tuple[Path, Path] | None = None, token: str | None = None
    ) -> None:
        """``endpoint`` is https://HOST:PORT."""
        url = urllib.parse.urlsplit(endpoint)
        self._address = url.hostname or "", url.port
        self._context = ssl.create_default_context(cafile=str(ca_file))
        if certificate:
            self._context.load_cert_chain(*certificate)
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str) -> Any:
        """GET; JSON is decoded, other text is returned as it is."""
        return self.call("GET", path)

    def create(self, path: str, body: Any) -> Any:
        """POST; an object that exists already is left as it is."""
        try:
            return self.call("POST", path, body)
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            return None

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", timeout: float = 300
    ) -> Any:
        """One request; ApiError has the status, ApiUnreachable means that there was no answer within ``timeout`` s."""
        connection = http.client.HTTPSConnection(*self._address, context=self._context, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, self._headers | ({} if text is None else {"Content-Type": kind}))
            response = connection.getresponse()
            answer = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise KubeUnreachable(
                f"{method} {path}: the API server at {self._address[0]} does not answer: {error}"
            ) from error
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        value = json.loads(answer) if is_json else answer
        if response.status >= 400:
            message = value.get("message", answer) if isinstance(value, dict) else answer
            raise KubeError(response.status, f"{method} {path}: HTTP {response.status}: {message}")
        return value
