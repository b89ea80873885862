# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One run of node_image_archive: look, judge, pack.

An archive is compressed and its digest taken; it goes into a file that appears whole or not at all, or away by PUT.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..disks.disk_tools import Tools
from .source import Disk, Partition, RawImage, Root
from .tree import NotPacked, Packing, Tree

#: Suffix → compressor. Their bytes depend on the content and the level, not on the number of processors.
COMPRESSORS = {
    ".zst": ["zstd", "--quiet", "--threads=0", "-%(level)d"],
    ".gz": ["gzip", "--no-name", "-%(level)d"],
    ".xz": ["xz", "--threads=1", "-%(level)d"],
}
_HIGHEST = {".zst": 19, ".gz": 9, ".xz": 9}
_PIECE = 1 << 18


def compressor(name: str, level: int, tools: Tools) -> list[str] | None:
    """The command for a file name, None for none; raises :class:`NotPacked`."""
    suffix = os.path.splitext(name)[1]
    if suffix not in COMPRESSORS:
        return None
    if not 1 <= level <= _HIGHEST[suffix]:
        raise NotPacked(f"level {level}: for {suffix} it is 1 to {_HIGHEST[suffix]}")
    command = [word % {"level": level} for word in COMPRESSORS[suffix]]
    if not tools.has(command[0]):
        raise NotPacked(f"the program {command[0]} is missing on this machine; install it, or choose another suffix")
    return command


class ArchiveWriter:
    """Takes content by :meth:`write`; after :meth:`finish` ``sha256`` and ``size`` are of what arrived."""

    def __init__(self, target: FileTarget | HttpTarget) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self.size, self.sha256 = 0, ""

    def write(self, content: bytes) -> None:
        """Take content; raises :class:`NotPacked` when the target takes no more."""
        self._target.write(content)
        self._digest.update(content)
        self.size += len(content)

    def finish(self) -> None:
        """Everything was written: let it arrive."""
        self.sha256 = self._digest.hexdigest()
        self._target.finish(self.sha256)

    def abort(self) -> None:
        """Leave nothing half-written behind."""
        self._target.abort()


class CompressedWriter(ArchiveWriter):
    """The same through a compressor; a thread hands on what that gives."""

    def __init__(self, target: FileTarget | HttpTarget, command: Sequence[str]) -> None:
        super().__init__(target)
        self._failed: list[Exception] = []
        self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if self._process.stdin is None:
            raise AssertionError("it is a pipe")
        self._input = self._process.stdin
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def write(self, content: bytes) -> None:
        self._raise()
        try:
            self._input.write(content)
        except BrokenPipeError:
            self._reader.join()
            self._raise()
            raise NotPacked("the compressor ended too early") from None

    def finish(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._reader.join()
        self._raise()
        code = self._process.wait()
        if code:
            raise NotPacked(f"the compressor failed (exit code {code})")
        super().finish()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(OSError):
            self._input.close()
        self._process.wait()
        self._reader.join()
        super().abort()

    def _drain(self) -> None:
        """Until it gives nothing more, also when the target takes nothing more."""
        while True:
            piece = self._process.stdout.read(_PIECE) if self._process.stdout else b""
            if not piece:
                break
            if self._failed:
                continue
            try:
                super().write(piece)
            except (NotPacked, OSError) as error:
                self._failed.append(error)
                self._process.kill()

    def _raise(self) -> None:
        if self._failed:
            raise self._failed[0]


class FileTarget:
    """A file of this machine."""

    def __init__(self, path: str) -> None:
        self._path, self._partial = path, f"{path}.partial"
        try:
            self._stream = open(self._partial, "wb")  # noqa: SIM115
        except OSError as error:
            raise NotPacked(f"path {path} cannot be written: {error.strerror}") from error

    def write(self, piece: bytes) -> None:
        try:
            self._stream.write(piece)
        except OSError as error:
            raise NotPacked(f"path {self._path} cannot be written: {error.strerror}") from error

    def finish(self, _sha256: str) -> None:
        """Show the file under its name."""
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            os.replace(self._partial, self._path)
        except OSError as error:
            raise NotPacked(f"path {self._path} cannot be written: {error.strerror}") from error

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._partial)


class HttpTarget:
    """A server that takes the file by PUT and answers 201 when it has it all."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._where = parts.netloc.rpartition("@")[2]
        self._connection = kind(self._where, timeout=120)
        try:
            self._connection.putrequest("PUT", parts.path or "/", skip_accept_encoding=True)
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.putheader("Content-Type", "application/octet-stream")
            self._connection.endheaders()
        except OSError as error:
            raise NotPacked(self._why(error)) from error

    def write(self, piece: bytes) -> None:
        if piece:
            self._send(b"%x\r\n" % len(piece) + piece + b"\r\n")

    def finish(self, sha256: str) -> None:
        """Send the end and read what the server received."""
        self._send(b"0\r\n\r\n")
        status, text = self._answer()
        self._connection.close()
        if status != 201 or text != sha256:
            raise NotPacked(f"the file did not arrive whole at {self._where} (status {status}: {text[:200]})")

    def abort(self) -> None:
        """Cut the connection, so that the server sees that the file is not whole."""
        self._connection.close()

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as error:
            said = ""
            with contextlib.suppress(OSError, http.client.HTTPException, NotPacked):
                status, text = self._answer()
                said = f" ({status}: {text})"
            raise NotPacked(self._why(error) + said) from error

    def _answer(self) -> tuple[int, str]:
        try:
            answer = self._connection.getresponse()
            return answer.status, answer.read(1000).decode("utf-8", "replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise NotPacked(self._why(error)) from error

    def _why(self, error: Exception) -> str:
        reason = "it took nothing for too long" if isinstance(error, socket.timeout) else str(error)
        return f"the file cannot be sent to {self._where}: {reason}"


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

    def writer(self) -> ArchiveWriter:
        """What takes the content of the file."""
        target = HttpTarget(self.url) if self.url else FileTarget(self.path)
        return CompressedWriter(target, self.compressor) if self.compressor else ArchiveWriter(target)


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
            "node_cleanup make it so; prebaked: false packs it as it is"
        )


def _pack(tree: Tree, epoch: int, writer: ArchiveWriter) -> dict[str, Any]:
    packing = Packing(tree, epoch, writer.write)
    packing.run()
    return {"members": packing.members, "content_bytes": packing.bytes, "left_out": tree.left_out}


def _let_out(order: Order, make: Callable[[ArchiveWriter], dict[str, Any]]) -> dict[str, Any]:
    writer = order.writer()
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
