# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which images are missing, and bringing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Union

from ..._common.text import json_object
from ..artifacts.fetch import public
from ..machine import atomic
from ..machine.host import Host
from . import image_archive, references
from .runtimes import Containerd, Docker, RuntimeFailed

#: Which archive brought which images, so that an archive is not needed again while they are there.
RECORD = "/etc/kubenode/images.json"


#: ``pulls``, ``pins`` and ``names`` (all that is wanted and known) are references, ``loads`` entries of ``archives``.
class Plan(NamedTuple):
    """References to pull and to pin, archives to load, and all references that are wanted and known."""

    pulls: list[str]
    loads: list[Mapping[str, Any]]
    pins: list[str]
    names: list[str]


Runtime = Union[Containerd, Docker]


class ImagesFailed(Exception):
    """An image cannot be pulled; the text says which and why."""


def make_plan(
    there: Mapping[str, Any], record: Mapping[str, Any], given: Mapping[str, Any], pinned: Callable[[Any], bool]
) -> Plan:
    """A :class:`Plan`; ``there`` is reference → labels, ``given`` the module's options, ``pinned`` a test of labels."""
    loads = [one for one in given["archives"] if not _brought(one, record, there)]
    brought = [name for one in given["archives"] for name in record.get(one["sha256"].lower(), ())]
    wanted = list(dict.fromkeys(references.canonical(image) for image in given["images"]))
    pulls = [name for name in wanted if name not in there and name not in brought]
    names = list(dict.fromkeys(wanted + brought))
    pins = [name for name in names if name not in there or not pinned(there[name])] if given["pin"] else []
    return Plan(pulls, loads, pins, names)


def _brought(one: Mapping[str, Any], record: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    names = record.get(one["sha256"].lower()) or []
    return bool(names) and all(name in there for name in names)


class Work:
    """One run: ``runtime`` of runtimes, ``given`` the module's options."""

    def __init__(self, host: Host, runtime: Runtime, given: Mapping[str, Any]) -> None:
        self._host, self._runtime, self._given = host, runtime, given

    def predict(self) -> dict[str, Any]:
        """The result of check mode; a runtime that is not there yet has no images. Raises BadReference."""
        try:
            there = self._runtime.list()
        except RuntimeFailed:
            there = {}
        plan = self._plan(there)
        return _result(plan.names, plan.pulls, plan.loads, plan.pins)

    def bring(self) -> dict[str, Any]:
        """Pull, import, pin. Raises ImagesFailed, RuntimeFailed, BadReference, OSError."""
        first = self._plan(self._runtime.list())
        for one in first.loads:
            self._load(one)
        # an archive may have brought an image that was to be pulled
        second = self._plan(self._runtime.list())
        for name in second.pulls:
            self._runtime.pull(name)
        last = self._plan(self._runtime.list())
        for name in last.pulls:
            raise ImagesFailed("image %s was pulled, but the runtime does not list it" % name)
        for name in last.pins:
            self._runtime.pin(name)
        return _result(last.names, second.pulls, first.loads, last.pins)

    def _plan(self, there: Mapping[str, Any]) -> Plan:
        return make_plan(there, read_record(self._host), self._given, self._runtime.pinned)

    def _load(self, one: Mapping[str, Any]) -> None:
        with image_archive.archive_file(self._host, one, self._given) as path:
            try:
                names = image_archive.names(path)
                self._runtime.load(path)
            except (image_archive.ArchiveError, RuntimeFailed) as error:
                raise ImagesFailed("archive %s: %s" % (_source(one), error)) from error
        there = self._runtime.list()
        missing = [name for name in names if name not in there]
        if missing:
            raise ImagesFailed("archive %s was imported, but %s is not there" % (_source(one), missing[0]))
        record = dict(read_record(self._host))
        record[one["sha256"].lower()] = names
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        atomic.write_file(self._host, RECORD, text.encode("utf-8"), 0o644)


def read_record(host: Host) -> dict[str, Any]:
    """SHA-256 → references; empty when there is no usable record."""
    found = json_object(host.text(RECORD)) or {}
    return found if all(isinstance(names, list) for names in found.values()) else {}


def _source(one: Mapping[str, Any]) -> str:
    return public(one["url"]) if one.get("url") else one["path"]


def _result(names: list[str], pulls: list[str], loads: Iterable[Mapping[str, Any]], pins: list[str]) -> dict[str, Any]:
    imported = [_source(one) for one in loads]
    return {
        "changed": bool(pulls or loads or pins),
        "images": names,
        "pulled": pulls,
        "imported": imported,
        "pinned": pins,
    }


def difference(result: Mapping[str, Any]) -> dict[str, str]:
    """The result as Ansible's diff."""
    lines = ["pull %s\n" % name for name in result["pulled"]]
    lines += ["import %s\n" % name for name in result["imported"]]
    lines += ["pin %s\n" % name for name in result["pinned"]]
    return {"before_header": "images", "after_header": "images", "before": "", "after": "".join(lines)}
