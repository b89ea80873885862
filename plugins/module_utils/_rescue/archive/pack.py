# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One run of node_image_archive: look, judge, pack."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable
from typing import Any

from ..disks.disk_tools import Tools
from .errors import NotPacked
from .packing import Packing, Tree
from .raw import RawImage
from .root import Root
from .source_disk import Disk, Partition
from .writer import ArchiveWriter, FileTarget, HttpTarget, compressor

TARBALL, RAW = "tarball", "raw"
_RAW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.raw(\.zst|\.gz|\.xz)?\Z")


class Order:
    """What is to be made: options of the module, checked as far as no disk is needed."""

    def __init__(self, params: dict[str, Any], tools: Tools) -> None:
        self.kind, self.source = params["kind"], params["source"]
        self.path, self.url = params["path"], params["url"]
        self.name = params["name"] or os.path.basename(self.path or "")
        self.exclude, self.epoch, self.prebaked = params["exclude"], params["epoch"], params["prebaked"]
        if not self.name:
            raise NotPacked("name: with url, the name of the file is needed")
        if self.kind == RAW and not _RAW_NAME.match(self.name):
            raise NotPacked(f"name {self.name!r}: name a raw image like node.raw.zst")
        self.compressor = compressor(self.name, params["level"], tools)
        folder = os.path.dirname(self.path or "") or "."
        if self.path and not os.access(folder, os.W_OK):
            raise NotPacked(f"path {self.path}: its folder is missing or cannot be written")

    def target(self) -> FileTarget | HttpTarget:
        """Where the file goes."""
        return HttpTarget(self.url) if self.url else FileTarget(self.path)


def run(params: dict[str, Any], tools: Tools, check_mode: bool = False) -> dict[str, Any]:
    """Make the file; returns the results of the module. Raises :class:`NotPacked`."""
    order = Order(params, tools)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        disk: Disk | None = None
        partition: Partition | None = None
        crossed: list[str] = []
        top = os.path.realpath(order.source)
        try:
            is_folder = stat.S_ISDIR(os.stat(top).st_mode)
        except OSError as error:
            raise NotPacked(f"source {order.source}: {error.strerror}") from error
        if not is_folder:
            disk = Disk(tools, top)
            top, partition, crossed = stack.enter_context(disk.mounted())
        elif order.kind == RAW:
            raise NotPacked(f"source {order.source}: a raw image is made of a disk, and this is a folder")
        root = Root(top)
        _judge(order, root)
        epoch = order.epoch if order.epoch is not None else root.epoch()
        about = {"system": root.name, "machine": root.machine, "epoch": epoch, "base": root.base}
        if check_mode:
            return dict(about, changed=True)
        if order.kind == RAW:
            stack.close()  # its file system is shrunk, so it must not be mounted
            if disk is None or partition is None:
                raise AssertionError("a raw image is made of a disk")
            image = RawImage(disk, partition, epoch)
            about.update(_let_out(order, lambda writer: {"image_bytes": image.write(writer.write)}))
        else:
            tree = Tree(top, order.exclude)
            for mount in crossed:
                tree.cross(mount)
            about.update(_let_out(order, lambda writer: _pack(tree, epoch, writer)))
    return dict(about, changed=True, seconds=round(time.monotonic() - began, 1))


def _judge(order: Order, root: Root) -> None:
    if order.kind == TARBALL:
        root.check_name(order.name)
    faults = root.faults() if order.prebaked else []
    if faults:
        raise NotPacked(
            f"source {order.source} is not fit to become a node image: {'; '.join(faults)}. base_prebake and "
            "node_cleanup make it so; prebaked: "
            "false packs it as it is"
        )


def _pack(tree: Tree, epoch: int, writer: ArchiveWriter) -> dict[str, Any]:
    packing = Packing(tree, epoch, writer.write)
    packing.run()
    return {"members": packing.members, "content_bytes": packing.bytes, "left_out": tree.left_out}


def _let_out(order: Order, make: Callable[[ArchiveWriter], dict[str, Any]]) -> dict[str, Any]:
    writer = ArchiveWriter(order.target(), order.compressor)
    try:
        about = make(writer)
        writer.finish()
    except OSError as error:
        writer.abort()
        raise NotPacked(f"{error.filename or order.source}: {error.strerror or error}") from error
    except BaseException:
        writer.abort()
        raise
    return dict(about, sha256=writer.sha256, size=writer.size)
