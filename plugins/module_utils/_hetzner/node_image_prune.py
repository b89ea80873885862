# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which of the snapshots of one name and architecture may go, and why the others stay (pure)."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import IMAGE_LABEL, newest_first
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.node_image_labels import is_made_by_us


def named_in_use(in_use, images):
    """Ids of snapshots that the user's list protects: ids as they are, names by their newest of each architecture."""
    wanted, seen, protected = {str(entry) for entry in in_use}, set(), {}
    for image in newest_first(images):
        name, architecture = (image.get("labels") or {}).get(IMAGE_LABEL), image.get("architecture")
        newest = image.get("status") == "available" and (name, architecture) not in seen
        if newest:
            seen.add((name, architecture))
        if str(image["id"]) in wanted or (newest and name in wanted):
            protected[image["id"]] = "named in in_use"
    return protected


def used_by_servers(servers):
    """Ids of images that servers were made from, with the reason."""
    used: dict[int, str] = {}
    for server in servers:
        image = server.get("image")
        if image:
            used.setdefault(image["id"], "server '%s' was made from it" % server["name"])
    return used


def judge(images, keep, used):
    """Splits the snapshots of one name and architecture into (those to delete, {id: why it stays}).

    The ``keep`` newest available ones stay in any case; ``used`` maps ids to reasons.
    """
    doomed, stay, kept = [], {}, 0
    for image in newest_first(images):
        if not is_made_by_us(image):
            stay[image["id"]] = "not made by this collection"
        elif image.get("status") == "creating":
            stay[image["id"]] = "still being made"
        elif image.get("status") == "available" and kept < keep:
            kept += 1
        elif image["id"] in used:
            stay[image["id"]] = used[image["id"]]
        elif (image.get("protection") or {}).get("delete"):
            stay[image["id"]] = "protected against deletion"
        else:
            doomed.append(image)
    return doomed, stay
