# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The names of the images in an archive, as docker-save and OCI layouts keep them."""

from __future__ import annotations

import tarfile

from ..._common.text import json_value
from . import references

_LARGEST_INDEX = 8 << 20
_NAME = "io.containerd.image.name"
_REF = "org.opencontainers.image.ref.name"


class ArchiveError(Exception):
    """An archive that cannot be used; the text says why."""


def names(path):
    """Sorted canonical references in the archive at a path. Raises :class:`ArchiveError`."""
    try:
        found = _names(path)
    except (
        OSError,
        tarfile.TarError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        RecursionError,
    ) as error:
        raise ArchiveError("it is no archive of container images (%s)" % error) from error
    if not found:
        raise ArchiveError("its images have no names (annotation %s or RepoTags)" % _NAME)
    return sorted(found)


def _names(path):
    found = set()
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = member.name[2:] if member.name.startswith("./") else member.name
            if name == "index.json" and member.isfile():
                found.update(_of_index(_json(archive, member)))
            elif name == "manifest.json" and member.isfile():
                for image in _json(archive, member):
                    found.update(references.canonical(tag) for tag in image.get("RepoTags") or [])
    return found


def _json(archive, member):
    if member.size > _LARGEST_INDEX:
        raise ValueError("%s has %d bytes" % (member.name, member.size))
    return json_value(archive.extractfile(member).read().decode("utf-8"))


def _of_index(index):
    for manifest in index["manifests"]:
        notes = manifest.get("annotations") or {}
        name = notes.get(_NAME) or notes.get(_REF) or ""
        # a bare tag, which this annotation may be too, names no image
        if "/" in name:
            yield references.canonical(name)
