# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every parser has to keep for any bytes it is given: a function for each, which raises when it does not.

Only ImageError may come out, with a text that can be shown; what is accepted has the properties that users rely on.
Used by the tests beside this file; `make fuzz SECONDS=3600 PYTEST_ARGS=tests/unit/liveimage/fuzz` does so for an hour.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio, hosts, ignition, iso, nmstate
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Base
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import BaseRange, Overlay
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import answers, static_folders
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import requests as ranges
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.requests import (
    Request,
    RequestReader,
)
from tests.unit.liveimage import maker

_AGENT = AgentInputs(agent_image="example.test/ipa:1", ironic_urls=("http://ironic.test",))
LONGEST = 2000  # characters of an error: it goes into a log line and a condition of Kubernetes


class Broken(AssertionError):
    """A promise of a parser that was not kept."""


def need(condition: object, what: str) -> None:
    """Raise when something that has to be true is not."""
    if not condition:
        raise Broken(what)


def _shown(error: ImageError) -> None:
    text = str(error)
    need(text and text.isprintable() and len(text) <= LONGEST, f"an error that cannot be shown: {text[:300]!a}")


@cache
def _made(layout: str) -> bytes:
    """An image that is not damaged; `small` has nothing that is not needed."""
    small = maker.Layout(rootfs=997, miniso=layout == "small-minimal")
    chosen = small if layout.startswith("small") else maker.LAYOUTS[layout]
    with tempfile.TemporaryDirectory() as folder:
        return maker.make(Path(folder, "base.iso"), chosen).read_bytes()


def iso_image(case: bytes) -> None:
    """A damaged ISO, as `{"layout": …, "length": …, "changes": [[offset, hex], …]}`: a whole one is no small file."""
    damage = json.loads(case)
    data = bytearray(_made(damage["layout"]))
    for offset, content in damage["changes"]:
        patch = bytes.fromhex(content)
        if offset + len(patch) <= len(data):
            data[offset : offset + len(patch)] = patch
    del data[damage.get("length", len(data)) :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "base.iso")
        path.write_bytes(data)
        _iso_file(str(path), len(data))


def _iso_file(path: str, size: int) -> None:
    try:
        found = iso.inspect(path)
    except ImageError as error:
        _shown(error)
        return
    arguments = found.kernel_arguments.areas if found.kernel_arguments else ()
    for extent in [found.area.extent, *(area.extent for area in arguments)]:
        need(0 <= extent.offset <= extent.offset + extent.length <= size, "an area outside the image")
    for work in (
        lambda: iso.customise(found, b'{"ignition":{"version":"3.2.0"}}', force=True),
        lambda: iso.reset(found),
        lambda: iso.minimal_overlay(found.files),
    ):
        try:
            made = work()
        except ImageError as error:
            _shown(error)
            continue
        need(made.size <= size, "an image larger than its base")
        need(all(one.offset + one.length <= size for one in made.segments if isinstance(one, BaseRange)), "outside")


def archive(case: bytes) -> None:
    """Bytes of an initramfs."""
    total = 0
    try:
        for member in cpio.members(case):
            total += len(member.data)
    except ImageError as error:
        _shown(error)
    need(total <= 64 * 1024 * 1024, "more bytes than the limit")


def network(case: bytes) -> None:
    """A document of NMState; the keyfiles that come out have nothing in them that begins another line."""
    try:
        files = nmstate.convert(nmstate.parse(case.decode("utf-8", "replace"))).files
    except ImageError as error:
        _shown(error)
        return
    for name, text in files.items():
        need(re.fullmatch(r"[^/\0\n]{1,250}\.nmconnection", name) and not name.startswith("."), f"a file {name!a}")
        for line in text.split("\n"):
            need(re.fullmatch(r"|\[[a-z0-9-]+\]|[A-Za-z0-9._-]+=.*", line), f"a line {line!a}")
            need(line.isprintable(), f"a line {line!a}")


def host(case: bytes) -> None:
    """What is a host's own, beside its document: an Ignition comes out, which can be shown, and the same each time."""

    def build() -> hosts.HostConfig:
        own = static_folders.parse_options(case.decode("utf-8", "replace"))
        given = own.laid_over(hosts.HostInputs("web-1", network="interfaces: [{name: eth0}]"))
        inputs = None if given.ignition is not None else dataclasses.replace(_AGENT, **own.agent)
        return hosts.build(inputs, given)

    try:
        made = build()
    except ImageError as error:
        _shown(error)
        return
    need(json.loads(made.ignition) == made.config, "an Ignition that says something else")
    need(build().ignition == made.ignition, "another one the second time")
    need(json.dumps(ignition.shown(made.config)), "an Ignition that cannot be shown")


def range_header(case: bytes) -> None:
    """A Range header against images of several sizes, compared with a second reading of the standard."""
    header = case.decode("latin-1")
    for size in (1, 1000, 2**40):
        found = ranges.ranges_of(header, size)
        for start, stop in found or ():
            need(0 <= start < stop <= size, "a range outside the image")
        match = re.fullmatch(r"bytes=(\d{1,600})-(\d{1,600})", header, re.ASCII)
        if match:
            first, last = int(match[1]), int(match[2])
            wanted = None if last < first else [] if first >= size else [(first, min(last + 1, size))]
            need(found == wanted, f"{header!a} of {size}: {found}, not {wanted}")


def request(case: bytes) -> None:
    """Bytes of a connection: however they arrive, the same requests come out; the fast path finds no other ones."""
    whole, split, again = RequestReader(), RequestReader(), RequestReader()
    found = whole.feed(case)
    pieces = [one for place in range(len(case)) for one in split.feed(case[place : place + 1])]
    need(_comparable(found) == _comparable(pieces), f"{_comparable(found)} in one piece, {_comparable(pieces)} in many")
    if len(found) == 1 and whole.idle and found[0].keep_alive:
        need(_comparable(again.feed(case) + again.feed(case)) == _comparable(found) * 2, "not the same the second time")
    asked = answers.fast_request(case)
    if asked is not None:
        need(len(found) == 1 and whole.idle and found[0].keep_alive and not found[0].old, "no plain request")
        need((found[0].method, found[0].path) == ("GET", asked[0]), "another path on the fast path")
        need(list(found[0].headers) == ["range"], "more than a range")
        need(ranges.ranges_of(found[0].headers["range"], 2**64) == _span(*asked[1:]), "another range on the fast path")
    for one in found:
        need(one.problem or (len(one.path) <= 2048 and one.method), "a request without a path or a method")


def _span(first: int, last: int) -> list[tuple[int, int]] | None:
    return [(first, last + 1)] if first <= last else None


def _comparable(requests: list[Request]) -> list[tuple[Any, ...]]:
    """What is compared; which limit is met first depends on the pieces, whether one is met does not."""
    return [(one.method, one.path, dict(one.headers), one.keep_alive, one.old, bool(one.problem)) for one in requests]


def descriptor(case: bytes) -> None:
    """A descriptor of an overlay."""
    try:
        data = json.loads(case)
    except (ValueError, RecursionError):
        return
    try:
        overlay = Overlay.from_dict(data)
    except ImageError as error:
        _shown(error)
        return
    need(overlay.size == sum(segment.length for segment in overlay.segments), "its size")
    need(Overlay.from_dict(json.loads(json.dumps(overlay.to_dict()))) == overlay, "another one the second time")
    need(re.fullmatch(r"[0-9a-f]{32}", overlay.etag()), "no entity tag")
    need(isinstance(overlay.base, Base) and overlay.base.unchanged() in (True, False), "its base")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "cpio": archive,
    "descriptor": descriptor,
    "host": host,
    "iso": iso_image,
    "nmstate": network,
    "range": range_header,
    "request": request,
}
