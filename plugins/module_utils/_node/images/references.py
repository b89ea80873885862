# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""References of container images, as containerd writes them."""

from __future__ import annotations

import re

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?\Z"
)


class BadReference(ValueError):
    """A text that is no reference of an image; says which."""


def canonical(reference: str) -> str:
    """The reference with registry and tag, as the runtime lists it. Raises :class:`BadReference`."""
    if not _REFERENCE.match(reference):
        raise BadReference("'%s' is no reference of an image, such as registry.k8s.io/pause:3.10.1" % reference)
    name, at, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    if not slash:
        name = "docker.io/library/" + name
    elif "." not in first and ":" not in first and first != "localhost":
        name = "docker.io/" + name
    elif first == "docker.io" and "/" not in rest:
        name = "docker.io/library/" + rest
    if at:
        # with a digest the tag says nothing, and the runtime drops it
        return re.sub(r":[^:/]*\Z", "", name) + "@" + digest
    return name if ":" in name.rsplit("/", 1)[1] else name + ":latest"
