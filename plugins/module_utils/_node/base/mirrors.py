# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a file is fetched from when the user has a mirror."""

from __future__ import annotations

from urllib.parse import urlsplit


def mirrored(url, inputs):
    """The URL itself, or its place on the mirror of its host (base_mirrors) or of all hosts (base_mirror/HOST/PATH)."""
    if inputs["mirror"] and url.startswith(inputs["mirror"].rstrip("/") + "/"):
        return url
    parts = urlsplit(url)
    below = parts.path + ("?" + parts.query if parts.query else "")
    own = inputs["mirrors"].get(parts.netloc)
    if own:
        return own.rstrip("/") + below
    if inputs["mirror"]:
        return "%s/%s%s" % (inputs["mirror"].rstrip("/"), parts.netloc, below)
    return url
