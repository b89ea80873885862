# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tiny client of the lab's own routes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


class LabClientError(Exception):
    """The lab refused, or does not answer."""


def call(endpoint: str, token: str, method: str, path: str, body: Any = None, timeout: float = 600) -> Any:
    """Call ``path`` below /_lab of the lab whose API is at ``endpoint``; JSON is decoded, text is returned as it is."""
    request = urllib.request.Request(
        endpoint.removesuffix("/v1") + "/_lab" + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
    except urllib.error.HTTPError as error:
        raise LabClientError(f"{method} {path}: HTTP {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise LabClientError(f"{method} {path}: the lab at {endpoint} does not answer: {error}") from error
    return json.loads(text) if is_json else text
