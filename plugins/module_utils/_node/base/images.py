# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Images that a prebaked machine holds, so that it joins without a registry."""

from __future__ import annotations

from . import mirrors


def pinned(inputs):
    """References that image garbage collection must leave alone: the sandbox image always, the user's when prebaked."""
    return list(dict.fromkeys([inputs["sandbox_image"], *(inputs["images"] if inputs["prebake"] else ())]))


def _archive(archive, inputs):
    return dict(archive, url=mirrors.mirrored(archive["url"], inputs)) if archive.get("url") else dict(archive)


def images(_node, inputs):
    """What node_images takes: ``{runtime, pull: references, archives: [{url or path, sha256}], pin: references}``."""
    return {
        "runtime": inputs["container_runtime"],
        "pull": list(dict.fromkeys([inputs["sandbox_image"], *inputs["images"]])),
        "archives": [_archive(archive, inputs) for archive in inputs["image_archives"]],
        "pin": list(dict.fromkeys([inputs["sandbox_image"], *inputs["images"]])),
    }
