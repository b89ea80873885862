# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""An image as segments: ranges of a base file, and the bytes it differs by.

Every image is an overlay until it is read: then it is written to a file, or streamed by a server. Its size and its
entity tag are known before. Where the file system can, a written file shares its blocks with the base; elsewhere the
kernel copies them. A descriptor is the overlay as a small JSON file, from which an image server with the same base
makes the same image.
"""

from __future__ import annotations

import base64
import bisect
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Union

from .._common.safe_files import replacing
from .._common.text import json_value
from .base_file import Base
from .image_error import ImageError, failing

VERSION = 1  # of the descriptor
_LARGEST = 2**62  # bytes; what files may have
_IDENTITY = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class BaseRange:
    """``length`` bytes of the base from ``offset``."""

    __slots__ = ("length", "offset")
    offset: int
    length: int

    def cut(self, start: int, stop: int) -> BaseRange:
        """The part from ``start`` to before ``stop`` of this segment."""
        return BaseRange(self.offset + start, stop - start)


@dataclass(frozen=True)
class Zeros:
    """``length`` zero bytes: padding costs no memory."""

    __slots__ = ("length",)
    length: int

    def cut(self, start: int, stop: int) -> Zeros:
        """The part from ``start`` to before ``stop`` of this segment."""
        return Zeros(stop - start)


@dataclass(frozen=True)
class Bytes:
    """Bytes of the overlay's own."""

    __slots__ = ("data",)
    data: bytes

    @property
    def length(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def cut(self, start: int, stop: int) -> Bytes:
        """The part from ``start`` to before ``stop`` of this segment."""
        return Bytes(self.data[start:stop])


Segment = Union[BaseRange, Zeros, Bytes]
Patch = Union[bytes, Zeros]


class Overlay:
    """An image over a base; immutable."""

    __slots__ = ("_starts", "base", "segments", "size")

    def __init__(self, base: Base, segments: Iterable[Segment]) -> None:
        """Empty segments are left out; a range outside the base is an error."""
        self.base = base
        self.segments: tuple[Segment, ...] = tuple(_joined(segments))
        starts, size = [], 0
        for segment in self.segments:
            if isinstance(segment, BaseRange) and (segment.offset < 0 or segment.offset + segment.length > base.size):
                end = segment.offset + segment.length
                raise ImageError(
                    f"base {base.path} has {base.size} bytes, but bytes {segment.offset} to {end} of it are asked for; "
                    "it is truncated or not what it says"
                )
            starts.append(size)
            size += segment.length
        self._starts = tuple(starts)
        self.size = size

    def place(self, at: int) -> tuple[Segment, int]:
        """The segment that a byte of the image is in, and the byte's place in it."""
        index = bisect.bisect_right(self._starts, at) - 1
        return self.segments[index], at - self._starts[index]

    def slice(self, start: int, stop: int) -> list[Segment]:
        """The segments of the bytes from ``start`` to before ``stop``; both within the image."""
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"bytes {start} to {stop} are outside an image of {self.size} bytes")
        found: list[Segment] = []
        index = bisect.bisect_right(self._starts, start) - 1
        while start < stop:
            segment, begin = self.segments[index], self._starts[index]
            end = min(stop, begin + segment.length)
            whole = start == begin and end == begin + segment.length
            found.append(segment if whole else segment.cut(start - begin, end - begin))
            start, index = end, index + 1
        return found

    def patched(self, patches: Iterable[tuple[int, Patch]], append: Sequence[Patch] = ()) -> Overlay:
        """This image with bytes replaced at offsets, and more at its end."""
        pieces: list[Segment] = []
        at = 0
        for offset, patch in sorted(patches, key=lambda one: one[0]):
            segment = _segment(patch)
            if offset < at:
                raise ImageError(f"two areas of the image overlap at byte {offset}")
            if offset + segment.length > self.size:
                raise ImageError(
                    f"an area of {segment.length} bytes at byte {offset} is outside the image of {self.size} bytes"
                )
            pieces += self.slice(at, offset)
            pieces.append(segment)
            at = offset + segment.length
        pieces += self.slice(at, self.size)
        pieces += [_segment(patch) for patch in append]
        return Overlay(self.base, pieces)

    def etag(self) -> str:
        """A strong entity tag without quotes: the same for the same bytes over the same base."""
        total = hashlib.sha256(self.base.identity.encode("ascii"))
        for segment in self.segments:
            if isinstance(segment, Bytes):
                total.update(b"B%d:" % len(segment.data))
                total.update(segment.data)
            elif isinstance(segment, Zeros):
                total.update(b"Z%d:" % segment.length)
            else:
                total.update(b"R%d+%d:" % (segment.offset, segment.length))
        return total.hexdigest()[:32]

    def own_bytes(self) -> int:
        """How many bytes the overlay itself holds."""
        return sum(segment.length for segment in self.segments if isinstance(segment, Bytes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overlay) and self.base == other.base and self.segments == other.segments

    def __hash__(self) -> int:
        return hash((self.base, self.segments))

    def to_dict(self) -> dict[str, Any]:
        """The descriptor: plain data of a few KB, from which a server with the same base makes the same image."""
        base = {key: getattr(self.base, key) for key in ("path", "size", "mtime_ns", "identity")}
        return {"version": VERSION, "base": base, "segments": [_dumped(segment) for segment in self.segments]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Overlay:
        """Read a descriptor; whether the base is still that one is the caller's question (`Base.unchanged`)."""
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            raise ImageError(f"this is no overlay descriptor of version {VERSION}")
        try:
            base, segments = _read_base(data["base"]), data["segments"]
            if not isinstance(segments, list):
                raise ValueError("its segments are no list")
            found = cls(base, [_read(segment) for segment in segments])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ImageError):
                raise
            raise ImageError(f"the overlay descriptor is damaged: {error}") from error
        if found.size > _LARGEST:
            raise ImageError(f"the overlay descriptor is damaged: its image has {found.size!r:.50} bytes")
        return found


def whole(base: Base) -> Overlay:
    """The base itself as an image."""
    return Overlay(base, [BaseRange(0, base.size)])


def _segment(patch: Patch) -> Segment:
    return patch if isinstance(patch, Zeros) else Bytes(bytes(patch))


def _joined(segments: Iterable[Segment]) -> list[Segment]:
    """Without empty segments, neighbours of one kind as one: equal images have equal segments."""
    found: list[Segment] = []
    for segment in segments:
        if not segment.length:
            continue
        last = found[-1] if found else None
        if isinstance(segment, Bytes) and isinstance(last, Bytes):
            found[-1] = Bytes(last.data + segment.data)
        elif isinstance(segment, Zeros) and isinstance(last, Zeros):
            found[-1] = Zeros(last.length + segment.length)
        elif (
            isinstance(segment, BaseRange)
            and isinstance(last, BaseRange)
            and last.offset + last.length == segment.offset
        ):
            found[-1] = BaseRange(last.offset, last.length + segment.length)
        else:
            found.append(segment)
    return found


def _dumped(segment: Segment) -> Any:
    if isinstance(segment, Bytes):
        return base64.b64encode(segment.data).decode("ascii")
    if isinstance(segment, Zeros):
        return segment.length
    return [segment.offset, segment.length]


def _read_base(data: Any) -> Base:
    path, identity = data["path"], data["identity"]
    if not isinstance(path, str) or not path.isprintable() or not os.path.isabs(path):
        raise ValueError("its base's path is no absolute path of characters that can be shown")
    if not isinstance(identity, str) or not _IDENTITY.match(identity):
        raise ValueError("its base's identity is no digest")
    for name in ("size", "mtime_ns"):
        if not _is_number(data[name]):
            raise ValueError(f"its base's {name} is no number")
    return Base(path, data["size"], data["mtime_ns"], identity)


def _is_number(data: Any) -> bool:
    return isinstance(data, int) and not isinstance(data, bool) and 0 <= data <= _LARGEST


def _read(data: Any) -> Segment:
    if isinstance(data, str):
        return Bytes(base64.b64decode(data, validate=True))
    if _is_number(data):
        return Zeros(data)
    if isinstance(data, list) and len(data) == 2 and all(_is_number(one) for one in data):
        return BaseRange(*data)
    raise ValueError("a segment is neither text, a number nor a pair of numbers")


_FICLONERANGE = 0x4020940D  # _IOW(0x94, 13, struct file_clone_range)
_CHUNK = 64 * 1024 * 1024
_BUFFER = 1024 * 1024
# The kernel or a file system cannot do it this way; copying by hand can.
_CANNOT = (
    errno.EXDEV,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EBADF,
    errno.EPERM,
    errno.ETXTBSY,
)
_BLOCK = 4096  # blocks are shared whole, at the same alignment


class OverlayReader(io.RawIOBase):
    """A read-only, seekable file of an overlay's bytes; it keeps a base of its own open."""

    def __init__(self, overlay: Overlay) -> None:
        """Open the base."""
        super().__init__()
        self._overlay = overlay
        self._at = 0
        self._base = open(overlay.base.path, "rb", buffering=0)  # noqa: SIM115 - closed with this object

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """The next byte's offset."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._overlay.size}[whence]
        if origin + offset < 0:
            raise OSError("seek before the beginning")
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read what fits, 0 at the end."""
        stop = min(self._overlay.size, self._at + len(buffer))
        if self._at >= stop:
            return 0
        filled = 0
        for segment in self._overlay.slice(self._at, stop):
            buffer[filled : filled + segment.length] = self._content(segment)
            filled += segment.length
        self._at += filled
        return filled

    def _content(self, segment: Segment) -> bytes:
        if isinstance(segment, Bytes):
            return segment.data
        if not isinstance(segment, BaseRange):
            return bytes(segment.length)
        data = os.pread(self._base.fileno(), segment.length, segment.offset)
        if len(data) != segment.length:
            raise ImageError(f"base {self._overlay.base.path} became shorter while it was read")
        return data

    def close(self) -> None:
        """Close the base, too."""
        if not self.closed:
            self._base.close()
        super().close()


def open_overlay(overlay: Overlay) -> BinaryIO:
    """The image as a buffered file."""
    return io.BufferedReader(OverlayReader(overlay), 64 * 1024)  # type: ignore[type-var]


def read(overlay: Overlay, start: int, length: int) -> bytes:
    """Bytes of the image; fewer at its end."""
    with open_overlay(overlay) as file:
        file.seek(start)
        return file.read(length)


def materialise(
    overlay: Overlay, target: str, mode: int = 0o644, announce: Callable[[os.stat_result], None] | None = None
) -> None:
    """Write the image to ``target`` in one step: it is whole and on disk, or as it was.

    ``announce`` is called with what is about to take its place.
    """
    with failing(f"target {target} cannot be written"), replacing(target) as (file, _draft):
        _write(overlay, file.fileno())
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
        if not overlay.base.unchanged():
            raise ImageError(f"base {overlay.base.path} was changed while it was copied; run it again")
        if announce is not None:
            announce(os.fstat(file.fileno()))


def _write(overlay: Overlay, target: int) -> None:
    source = os.open(overlay.base.path, os.O_RDONLY)
    try:
        at = 0
        for segment in overlay.segments:
            if isinstance(segment, BaseRange):
                _share_or_copy(source, target, segment.offset, at, segment.length)
            elif isinstance(segment, Bytes):
                _write_all(target, segment.data, at)
            at += segment.length  # zeros: a hole
        os.ftruncate(target, at)
    finally:
        os.close(source)


def _share_or_copy(source: int, target: int, offset: int, at: int, length: int) -> None:
    head = -at % _BLOCK
    middle = (length - head) // _BLOCK * _BLOCK
    if (offset - at) % _BLOCK == 0 and middle > 0 and _share(source, target, offset + head, at + head, middle):
        _copy(source, target, offset, at, head)
        done = head + middle
        _copy(source, target, offset + done, at + done, length - done)
    else:
        _copy(source, target, offset, at, length)


def _copy(source: int, target: int, offset: int, at: int, length: int) -> None:
    copied = 0
    by_kernel = hasattr(os, "copy_file_range")
    while copied < length:
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, min(_CHUNK, length - copied), offset + copied, at + copied)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                by_kernel = False
                continue
        else:
            data = os.pread(source, min(_BUFFER, length - copied), offset + copied)
            _write_all(target, data, at + copied)
            done = len(data)
        if not done:
            raise ImageError("the base became shorter while it was copied; run it again")
        copied += done


def _share(source: int, target: int, offset: int, at: int, length: int) -> bool:
    """Share the blocks (reflink)."""
    request = b"".join(value.to_bytes(8, "little") for value in (source, offset, length, at))
    try:
        fcntl.ioctl(target, _FICLONERANGE, request)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def _write_all(target: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done


DESCRIPTOR_VERSION = 1
DESCRIPTOR_SUFFIX = ".json"
_LARGEST_DESCRIPTOR = 128 * 1024 * 1024


def descriptor_path(folder: str, name: str) -> str:
    """Where the descriptor of an image lies."""
    return os.path.join(folder, name + DESCRIPTOR_SUFFIX)


def descriptor_text(name: str, host: str, overlay: Overlay, created: int) -> str:
    """A descriptor; ``created`` in seconds since 1970 becomes the image's Last-Modified."""
    data = {
        "kubenode_image": DESCRIPTOR_VERSION,
        "name": name,
        "host": host,
        "created": created,
        "overlay": overlay.to_dict(),
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n"


def read_descriptor(path: str) -> Mapping[str, Any] | None:
    """A descriptor as data; None when there is none. A file of another form is an error."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ImageError(f"{path} is a folder, a link or a device; move it away")
        if found.st_size > _LARGEST_DESCRIPTOR:
            raise ImageError(f"{path} has {found.st_size} bytes and is no descriptor of ours; move it away")
        with open(path, encoding="utf-8") as file:
            data = json_value(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        data = None
    if not isinstance(data, dict) or data.get("kubenode_image") != DESCRIPTOR_VERSION:
        raise ImageError(f"{path} is no descriptor of an image; move it away")
    return data


def overlay_of(data: Mapping[str, Any]) -> Overlay:
    """The image a descriptor describes."""
    return Overlay.from_dict(data.get("overlay") or {})


def same_descriptor(data: Mapping[str, Any] | None, name: str, host: str, overlay: Overlay) -> bool:
    """Whether a descriptor says this already."""
    if data is None or data.get("name") != name or data.get("host") != host:
        return False
    return bool(data.get("overlay") == overlay.to_dict())
