# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What comes in: a download, compared with its promised digest, kept in RAM if it fits there, decompressed."""

from __future__ import annotations

import bz2
import contextlib
import fcntl
import hashlib
import itertools
import lzma
import os
import queue
import re
import subprocess
import tempfile
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..._common import web
from .basics import BLOCK, CHUNK, MIB, HttpStatus, Refused, Say
from .invocation import ImageUrl, Progress


class ByteSource(Protocol):
    """Bytes that come in order. ``size``: how many there are, None when that is not known; ``received``: so far."""

    @property
    def shown(self) -> str:
        """The URL as people may see it."""

    @property
    def size(self) -> int | None:
        """How many bytes there are."""

    @property
    def received(self) -> int:
        """How many came so far."""

    def chunks(self) -> Iterator[bytes]:
        """Yield them."""


class Transfer(web.Download):
    """Something that a server sends to a command, which gets it once and in order: what came cannot be taken back."""

    def __init__(
        self,
        shown: str,
        agent: str,
        stall: float,
        pause: float = 0.5,
        say: Callable[[str], None] = lambda text: None,
        location: str = "",
        login: str = "",
    ) -> None:
        private = {"Authorization": login}
        super().__init__(shown, location, {"User-Agent": agent}, private, stall=stall, pause=pause, say=say)
        self.agent = agent

    def refused(self, text: str, final: bool = False, status: int = 0) -> Exception:
        text = f"{self.shown}: {text}"
        return HttpStatus(status, text) if status else Refused(text)


class Source(Transfer):
    """The bytes behind the image URL (or a file beside it)."""

    def __init__(
        self, url: ImageUrl, agent: str, suffix: str = "", pause: float = 0.5, say: Say = lambda text: None
    ) -> None:
        super().__init__(url.shown(suffix), agent, url.stall, pause, say, url.location(suffix), url.authorization)
        self.image_url, self.suffix = url, suffix
        self.is_proven = all(url.switches.get(name, "").lower() != "none" for name in LENGTH)

    def beside(self, suffix: str) -> Source:
        """Return the source of the file whose name has the suffix behind that of this one."""
        return Source(self.image_url, self.agent, self.suffix + suffix, self.pause, self.say)

    def open(self) -> Any:
        """Open a stream at the byte that comes next."""
        if self.image_url.parts.scheme != "file":
            return super().open()
        path = Path(urllib.parse.unquote(self.image_url.parts.path) + self.suffix)
        if not path.is_file():
            raise HttpStatus(404, f"{self.shown}: no such file")
        self.size = path.stat().st_size
        stream = path.open("rb")
        stream.seek(self.received)
        return stream


# --- Streams of bytes: read ahead, cut into blocks.


def ahead(chunks: Iterable[bytes], depth: int = 4) -> Iterator[bytes]:
    """Read chunks in a thread, a few in advance, so that network, decompression and disk work at once."""
    line: queue.Queue[tuple[bytes, BaseException | None]] = queue.Queue(depth)

    def fill() -> None:
        try:
            for chunk in chunks:
                line.put((chunk, None))
            line.put((b"", None))
        except BaseException as error:  # noqa: BLE001 - handed over to the main thread, which raises it
            line.put((b"", error))

    threading.Thread(target=fill, daemon=True).start()
    for chunk, error in iter(line.get, (b"", None)):
        if error:
            raise error
        yield chunk


def blocks(pieces: Iterable[bytes], size: int = BLOCK) -> Iterator[bytes]:
    """Cut a stream into blocks of exactly `size` bytes; only the last may be shorter."""
    kept = bytearray()
    for piece in pieces:
        if not kept and len(piece) == size:
            yield piece
            continue
        kept += piece
        while len(kept) >= size:
            yield bytes(kept[:size])
            del kept[:size]
    if kept:
        yield bytes(kept)


# --- Compression formats, recognised by their first bytes.


MAGIC = {
    "gz": (b"\x1f\x8b",),
    "bz2": (b"BZh",),
    "xz": (b"\xfd7zXZ\x00",),
    "zst": (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))),
}


def compression(head: bytes) -> str:
    """Name the compression of a stream by its first bytes: gz, bz2, xz, zst or none."""
    return next((name for name, magics in MAGIC.items() if head.startswith(magics)), "none")


def zstd_size(head: bytes) -> int | None:
    """Read the content size from a zstd frame header (RFC 8878, 3.1.1.1), when it holds one."""
    if len(head) < 18 or not head.startswith(MAGIC["zst"][0]):
        return None
    flags = head[4]
    single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
    width = width or int(single)
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(head[start : start + width], "little") + (256 if width == 2 else 0)
    return size if width else None


# --- Decompresses a stream; nothing cut or damaged passes as whole.


def memory_limit() -> int:
    """Half of the memory that is free: what a decompressor may take."""
    found = re.search(r"MemAvailable:\s+([0-9]+) kB", Path("/proc/meminfo").read_text())
    return max(int(found.group(1)) * 512 if found else 0, 64 * MIB)


class Gunzip:
    """One gzip member, with the interface of the bz2 and lzma decompressors."""

    def __init__(self) -> None:
        self.inner = zlib.decompressobj(31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        """What came behind the member."""
        return self.inner.unused_data

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return at most limit bytes; call again with b"" while needs_input is false."""
        out = self.inner.decompress(self.inner.unconsumed_tail + data, limit)
        self.needs_input = len(out) < limit and not self.inner.unconsumed_tail
        return out


DECODERS: dict[str, Callable[[], Any]] = {
    "gz": Gunzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory_limit()),
}


def inflate(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Decompress gz, bz2 or xz, of one or several members; a stream that stops in a member is refused."""
    decoder, members = None, 0
    for chunk in chunks:
        data = chunk
        while data or (decoder is not None and not decoder.needs_input):
            if decoder is None:
                data = data.lstrip(b"\0") if members else data  # padding between members is legal
                if not data:
                    break
                decoder = DECODERS[name]()
            try:
                out = decoder.decompress(data, BLOCK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise Refused(f"image: the {name} stream is damaged: {error}") from None
            data = b""
            if out:
                yield out
            if decoder.eof:
                data, decoder, members = decoder.unused_data, None, members + 1
    if decoder is not None or not members:
        raise Refused(f"image: the {name} stream is truncated")


def unzstd(chunks: Iterable[bytes], memory: int = 0) -> Iterator[bytes]:
    """Decompress with the zstd program; both ends of it and its exit code are watched."""
    limit = f"-M{min(max((memory or memory_limit()) // MIB, 128), 2048)}MiB"  # 2 GiB is the largest window there is
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                ["zstd", "-dcq", limit],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        except FileNotFoundError:
            raise Refused("image: it is compressed with zstd, and zstd is missing in this rescue") from None
        if process.stdin is None or process.stdout is None:
            raise AssertionError("they are pipes")
        output = process.stdout
        failure: list[BaseException] = []
        feeder = threading.Thread(target=_feed, args=(chunks, process.stdin, failure), daemon=True)
        try:
            with contextlib.suppress(OSError):  # a wider pipe means fewer context switches; not everyone may have it
                fcntl.fcntl(output.fileno(), 1031, MIB)
            feeder.start()
            yield from iter(lambda: output.read(BLOCK), b"")
            status = process.wait()
            feeder.join()
            if failure:
                raise failure[0]
            if status:
                complaints.seek(0)
                text = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                raise Refused(f"image: the zstd stream is damaged or truncated: {''.join(text)}")
        finally:
            process.kill()
            process.wait()
            output.close()


def _feed(chunks: Iterable[bytes], pipe: BinaryIO, failure: list[BaseException]) -> None:
    try:
        for chunk in chunks:
            pipe.write(chunk)
        pipe.flush()
    except BrokenPipeError:
        pass  # the exit code of the reader says why
    except BaseException as error:  # noqa: BLE001 - handed over to the main thread, which raises it
        failure.append(error)
    finally:
        with contextlib.suppress(OSError):
            pipe.close()


def decompress(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    if name == "zst":
        return unzstd(chunks)
    return ahead(chunks) if name == "none" else inflate(ahead(chunks), name)


# --- The promised digest: where it comes from, and that it is kept.


LENGTH = {"sha256": 64, "sha512": 128}


class Digest:
    """Hashes the image as it was downloaded and compares it with what the user or the server promised."""

    def __init__(self, algorithm: str, expected: str) -> None:
        if expected != "none" and not re.fullmatch(f"[0-9a-f]{{{LENGTH[algorithm]}}}", expected):
            raise Refused(f"image digest: {algorithm}={expected!s:.140} is not {LENGTH[algorithm]} hex digits")
        self.algorithm, self.expected = algorithm, expected
        self.hash = hashlib.new(algorithm)

    @classmethod
    def of(cls, source: Source) -> Digest:
        """Find the promised digest: in the fragment, else in the .sha256 file beside the image."""
        url = source.image_url
        given = cls.given(url)
        if given:
            return given
        try:
            text = next(blocks(source.beside(".sha256").chunks(), CHUNK), b"").decode("utf-8", "replace")
        except HttpStatus as error:
            raise Refused(
                f"image digest: the URL names none and {error}. Add #sha256=<64 hex digits> to the URL, "
                "publish a .sha256 file beside the image, or accept any content with #sha256=none"
            ) from None
        return cls("sha256", cls.pick(text, url.parts.path.rsplit("/", 1)[-1]))

    @classmethod
    def given(cls, url: ImageUrl) -> Digest | None:
        """Return the digest in the fragment, None without one."""
        given = [name for name in LENGTH if name in url.switches]
        if len(given) > 1:
            raise Refused("image URL: give sha256 or sha512, not both")
        return cls(given[0], url.switches[given[0]].lower()) if given else None

    @staticmethod
    def pick(text: str, name: str) -> str:
        """Take the digest of the file `name` out of a checksum file: bare, sha256sum or BSD style."""
        found = {}
        for line in map(str.rstrip, text.splitlines()):
            plain = re.fullmatch(r"\\?([0-9a-fA-F]{64})(?:\s+\*?(.+))?", line)
            bsd = re.fullmatch(r"SHA256 \((.+)\) = ([0-9a-fA-F]{64})", line)
            if plain:
                found[(plain.group(2) or name).rsplit("/", 1)[-1]] = plain.group(1).lower()
            elif bsd:
                found[bsd.group(1).rsplit("/", 1)[-1]] = bsd.group(2).lower()
        if name in found or len(found) == 1:
            return found.get(name) or next(iter(found.values()))
        raise Refused(f"image digest: the .sha256 file beside the image holds no SHA-256 digest of {name!r}")

    def found(self) -> str:
        """The digest of all that was hashed, as ``sha256:…``."""
        return f"{self.algorithm}:{self.hash.hexdigest()}"

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.hash.update(chunk)
            yield chunk

    def check(self) -> None:
        """Refuse the image unless its digest is the promised one."""
        if self.expected not in ("none", self.hash.hexdigest()):
            raise Refused(
                f"image digest: {self.algorithm} is {self.hash.hexdigest()}, expected {self.expected}; the image is "
                "damaged or not the one you meant"
            )


class Incoming:
    """The decompressed bytes of a download, once.

    `source` has chunks(), size, received and shown. `size` is that of the decompressed bytes, where it is known.
    """

    def __init__(self, source: ByteSource, digest: Digest) -> None:
        self.source, self.digest = source, digest
        self.shown = source.shown
        #: Bytes that came in, and decompressed ones that went out of blocks().
        self.read = self.given = 0
        chunks = self._counted(digest.watch(source.chunks()))
        first = b""
        while len(first) < 64:  # a connection may drop after the first bytes
            more = next(chunks, b"")
            first += more
            if not more:
                break
        self.kind = compression(first)
        self.size = zstd_size(first) if self.kind == "zst" else source.size if self.kind == "none" else None
        if digest.expected == "none" and self.kind == "none" and self.size is None:
            raise Refused("image: neither digest nor length are known, a truncated image would pass; give #sha256=")
        self.stream = blocks(decompress(itertools.chain([first], chunks), self.kind))
        self.head = next(self.stream, b"")

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes in blocks of BLOCK, the last one shorter; proven only after check()."""
        for block in itertools.chain([self.head], self.stream):
            yield block
            self.given += len(block)

    def count(self) -> tuple[int, int | None]:
        """Return (bytes done, bytes in all or None): decompressed where their number is known, else as they come."""
        return (self.given, self.size) if self.size else (self.read, self.source.size)

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.read += len(chunk)
            yield chunk

    def check(self) -> None:
        """Refuse what came unless its digest is the promised one; all of it must have been read."""
        for _rest in self.stream:
            pass
        self.digest.check()

    def share(self) -> str:
        """Say how much of the download has come, for a progress message."""
        if not self.source.size:
            return ""
        return f", {100 * self.source.received // self.source.size} % of the download"


class Download:
    """The bytes of a source: from RAM, proven and as often as needed, or as they come, once."""

    def __init__(self, source: ByteSource, digest: Digest, progress: Progress) -> None:
        self.source, self.digest = source, digest
        self.shown = source.shown
        chunks = source.chunks()
        first = next(chunks, b"")
        self.size = source.size
        self.memory = -1
        self.rest = itertools.chain([first], chunks)
        if self.size is None or self.size * 3 > memory_limit() * 2:  # a third of the free memory
            return
        self.memory = os.memfd_create("image")
        for chunk in digest.watch(self.rest):
            view = memoryview(chunk)
            while view:
                view = view[os.write(self.memory, view) :]
            progress.tick(
                lambda: f"fetching: {100 * source.received // max(self.size or 0, 1)} %",
                lambda: (source.received, self.size),
            )
        digest.check()

    @property
    def kept(self) -> bool:
        """Whether it is in RAM."""
        return self.memory >= 0

    @property
    def received(self) -> int:
        """How many bytes have come over the network."""
        return self.source.received

    def chunks(self) -> Iterator[bytes]:
        if not self.kept:
            yield from self.rest
            return
        place = 0
        while place < (self.size or 0):
            chunk = os.pread(self.memory, CHUNK, place)
            place += len(chunk)
            yield chunk

    def proof(self) -> Digest:
        """Return the digest that is still to be kept: none for what is proven."""
        return Digest(self.digest.algorithm, "none") if self.kept else self.digest

    def close(self) -> None:
        if self.kept:
            os.close(self.memory)
            self.memory = -1
