# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a host gets: its images and its iPXE script, as overlays with names and URLs; and where they go.

They go to image files, or to descriptors for the image server. Both are compared before they are changed.

Beside each image file lies a record of what was written and of what the file was like then. While device, inode,
size, both times of change (the ctime cannot be set back) and the wanted content are those of the record, the file is
ours and unchanged. In all other cases every byte is compared.

The record also says whether a file is ours to replace or to remove. It is written before a new file takes its place,
too, so that a run that was cut off leaves none that would count as foreign.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..._common.safe_files import replacing
from ..._common.text import json_object
from .. import base_kinds, iso, urls
from ..base_file import Signature, glance, identify, signature_of
from ..bases import INITRAMFS, ISO, Bases, known_arch
from ..hosts import HostConfig, build, initramfs_overlay, iso_overlay
from ..image_error import ImageError, failing
from ..iso import Iso
from ..kargs import Edit, KernelArguments
from ..nmstate.conversion import Run
from ..overlay import (
    Bytes,
    Overlay,
    descriptor_path,
    descriptor_text,
    materialise,
    open_overlay,
    overlay_of,
    read_descriptor,
    same_descriptor,
    whole,
)
from ..urls import static_path
from . import inspection, request
from .request import Common, HostRequest

# What a live ISO has among its own arguments: that this is the first boot, and on which platform.
IPXE_ARGUMENTS = "ignition.firstboot ignition.platform.id=metal"
_MEDIUM = ("coreos.liveiso=", "coreos.live.rootfs_url=")
_ROOTFS = "coreos.live.rootfs_url="
_INITRD = "initrd=initrd"  # EFI kernels ask for it by name
_LONGEST_LINE = 4096  # what iPXE's kernel command and the kernel itself take with room to spare
SUFFIXES = {
    "iso": ".iso",
    "minimal_iso": "-minimal.iso",
    "initramfs": ".initramfs",
    "ipxe": ".ipxe",
    "kernel": ".kernel",
    "rootfs": ".rootfs",
}
_OF_HOST = ("iso", "minimal_iso", "initramfs", "ipxe")
_LONGEST_NAME = 200


def ipxe_arguments(published: str, edit: Edit, rootfs_url: str) -> str:
    """The kernel arguments of a network boot, from those of the published ISO (or nothing)."""
    words = [word for word in published.split() if not word.startswith(_MEDIUM)]
    for word in IPXE_ARGUMENTS.split():
        if word not in words:
            words.append(word)
    text = " ".join([_ROOTFS + rootfs_url, *words])
    return KernelArguments(text, text, ()).edited(edit)


def ipxe_script(host: str, kernel_url: str, initramfs_url: str, kernel_arguments: str) -> bytes:
    """The script. iPXE has no way to quote, so that what it would take for its own language is refused."""
    words = kernel_arguments.split()
    if len(kernel_arguments) > _LONGEST_LINE:
        raise ImageError(f"the kernel arguments have {len(kernel_arguments)} characters, {_LONGEST_LINE} is the most")
    for what, word in [("URL of the kernel", kernel_url), ("URL of the initramfs", initramfs_url)] + [
        ("kernel argument", word) for word in words
    ]:
        _check_ipxe_word(what, word)
    lines: Sequence[str] = (
        "#!ipxe",
        f"echo Live image of {host}",
        f"kernel --name kernel {kernel_url} {' '.join([_INITRD, *words])}",
        f"initrd --name initrd {initramfs_url}",
        "boot",
    )
    return ("\n".join(lines) + "\n").encode("ascii")


def _check_ipxe_word(what: str, word: str) -> None:
    if not re.fullmatch(r"[!-~]+", word):
        raise ImageError(
            f"{what} {word!r:.200} has a character that iPXE does not take: plain ASCII without blanks only"
        )
    if "${" in word:
        raise ImageError(f"{what} {word!r:.200}: iPXE would put a setting of its own in place of ${{…}}")
    if word.startswith("#") or word in ("||", "&&", ";"):
        raise ImageError(f"{what} {word!r:.200} is an operator or a comment for iPXE")


@dataclass(frozen=True)
class Product:
    """One file that shall be there; ``host`` is empty for what hosts share."""

    kind: str
    name: str
    host: str
    overlay: Overlay = field(repr=False)
    url: str


@dataclass(frozen=True)
class HostProducts:
    """Everything one host gets, and what should be known of it."""

    products: tuple[Product, ...]
    shared: tuple[Product, ...]
    ignition_bytes: int
    area_bytes: int | None
    warnings: tuple[str, ...]


class Maker:
    """Makes the products of hosts; bases, minimal ISOs and shared products are made once."""

    def __init__(self, common: Common, run: Run | None = None) -> None:
        """``run`` starts nmstatectl; without it the conversion is our own."""
        self._common = common
        self._bases = Bases(common.base_iso, common.base_initramfs, common.shared_dir)
        self._run = run
        self._minimal: dict[str, Iso] = {}
        self._shared: dict[str, Product] = {}
        self._checked: set[str] = set()

    def make(self, wanted: HostRequest) -> HostProducts:
        """The products of a host; ImageError for the first thing that is wrong."""
        made = build(wanted.agent, wanted.inputs, run=self._run)
        products: list[Product] = []
        shared: list[Product] = []
        area = None
        warnings = list(made.warnings)
        for output in wanted.outputs:
            if output == request.ISO:
                base = self._iso(wanted)
                area = base.area.extent.length
                overlay = iso_overlay(base, made, wanted.inputs, force=self._common.force, enlarge=self._common.enlarge)
                products.append(self._product("iso", wanted, overlay))
            elif output == request.MINIMAL:
                small, needed = self._small(wanted)
                area = small.area.extent.length
                # the ISO it was made of has been checked, and a minimal one is customised by nature
                overlay = iso_overlay(small, made, wanted.inputs, force=True, enlarge=self._common.enlarge)
                products.append(self._product("minimal_iso", wanted, overlay))
                shared += needed
            elif output == request.INITRAMFS:
                products.append(self._initramfs(wanted, made))
            else:
                own, needed = self._pxe(wanted, made)
                products += own
                shared += needed
        unread = request.INITRAMFS in wanted.outputs and request.PXE not in wanted.outputs
        if unread and wanted.inputs.arguments:
            warnings.append("kernel_arguments have no effect on an initramfs; give them to the boot loader")
        for product in products:
            path = urllib.parse.urlsplit(product.url).path
            if len(path) > urls.LONGEST_PATH:
                warnings.append(
                    f"the path of {product.url} has {len(path)} characters; some BMCs take {urls.LONGEST_PATH} at most"
                )
        unique = {product.name: product for product in products}
        return HostProducts(
            tuple(unique.values()), tuple({one.name: one for one in shared}.values()), len(made.ignition), area,
            tuple(warnings),
        )  # fmt: skip

    def names_of(self, host: str) -> list[str]:
        """Every file a host may ever have had."""
        return [host + SUFFIXES[kind] for kind in _OF_HOST]

    def _pxe(self, wanted: HostRequest, made: HostConfig) -> tuple[list[Product], list[Product]]:
        """What is the host's own of a network boot, and what hosts share."""
        if not self._common.publish_url:
            raise ImageError("publish_url is missing: an iPXE script needs the URL that the images are fetched from")
        initramfs = self._initramfs(wanted, made)
        kernel, rootfs = self._boot(wanted, "kernel"), self._boot(wanted, "rootfs")
        published = ""
        if self._bases.find(wanted.architecture, ISO):
            arguments = self._iso(wanted).kernel_arguments
            published = arguments.default if arguments else ""
        line = ipxe_arguments(published, wanted.inputs.arguments, self._common.rootfs_url or rootfs.url)
        script = ipxe_script(wanted.name, kernel.url, initramfs.url, line)
        overlay = Overlay(initramfs.overlay.base, [Bytes(script)])
        return [initramfs, self._product("ipxe", wanted, overlay)], [kernel, rootfs]

    def _iso(self, wanted: HostRequest) -> Iso:
        return self._bases.iso(self._bases.path(wanted.architecture, ISO))

    def _small(self, wanted: HostRequest) -> tuple[Iso, list[Product]]:
        full = self._iso(wanted)
        if full.customised and not self._common.force:
            raise ImageError(
                f"base {full.overlay.base.path} is customised already; reset it, take the published image, or use force"
            )
        needed: list[Product] = []
        url = self._common.rootfs_url
        if not url:
            if not self._common.publish_url:
                raise ImageError("rootfs_url is missing: a minimal ISO fetches its root file system from there; "
                                 "with publish_url it is published beside the images")  # fmt: skip
            needed.append(self._boot(wanted, "rootfs"))
            url = needed[0].url
        key = f"{full.overlay.base.identity} {url}"
        if key not in self._minimal:
            self._minimal[key] = iso.minimal(full, url)
        return self._minimal[key], needed

    def _initramfs(self, wanted: HostRequest, made: HostConfig) -> Product:
        path = self._bases.find(wanted.architecture, INITRAMFS)
        if path is None and not self._bases.find(wanted.architecture, ISO):
            self._bases.path(wanted.architecture, INITRAMFS)  # says what is missing
        if path:
            base_kinds.check(path, INITRAMFS)
        base = self._bases.initramfs(path) if path else iso.boot_file(self._iso(wanted), "initramfs")
        if base.base.identity + INITRAMFS not in self._checked and not self._common.force:
            members = inspection.appended_members(base)
            if members:
                raise ImageError(
                    f"base {base.base.path} is customised already ({', '.join(sorted(members))}); take the "
                    "published one, or use force"
                )
            self._checked.add(base.base.identity + INITRAMFS)
        return self._product("initramfs", wanted, initramfs_overlay(base, made, wanted.inputs))

    def _boot(self, wanted: HostRequest, kind: str) -> Product:
        """The kernel or the root file system, which all hosts of an architecture share."""
        arch = known_arch(wanted.architecture) or self._bases.own_arch
        name = f"live-{arch}{SUFFIXES[kind]}"
        if name not in self._shared:
            given = getattr(self._common, f"base_{kind}")
            if given and arch == self._bases.own_arch:
                base_kinds.check(given, kind)
                overlay = whole(identify(given))
            elif self._bases.find(arch, ISO):
                overlay = iso.boot_file(self._iso(wanted), kind)
            else:
                raise ImageError(
                    f"base_{kind} is missing, and there is no base ISO for architecture {arch} to take it from"
                )
            self._shared[name] = Product(kind, name, "", overlay, self._url(name))
        return self._shared[name]

    def _product(self, kind: str, wanted: HostRequest, overlay: Overlay) -> Product:
        name = wanted.name + SUFFIXES[kind]
        if len(name) > _LONGEST_NAME:
            raise ImageError(f"hosts[].name {wanted.name} is too long for a file name")
        return Product(kind, name, wanted.name, overlay, self._url(name))

    def _url(self, name: str) -> str:
        if not self._common.publish_url:
            return ""
        return self._common.publish_url + static_path(name, self._common.name_secret)


def clashes(products: Mapping[str, tuple[Product, ...]]) -> dict[str, str]:
    """Host → what is wrong, for files that two hosts would write."""
    owners: dict[str, str] = {}
    wrong = {}
    for host, found in products.items():
        for product in found:
            other = owners.setdefault(product.name, host)
            if other != host:
                wrong[host] = f"file {product.name} would be that of host {other}, too; rename one of them"
    return wrong


_VERSION = 1
_BLOCK = 1024 * 1024
_LARGEST_RECORD = 64 * 1024


@dataclass(frozen=True)
class Owned:
    """Who may read what is written; ``owner`` sets user and group of a path, and returns whether it changed them."""

    permissions: int = 0o600
    owner: Callable[[str, bool], bool] = lambda path, check: False


@dataclass(frozen=True)
class Found:
    """A file as it was found: its content is the wanted one, its permissions are; ``known``: by its record alone."""

    there: bool
    same: bool
    permissions: bool = True
    known: bool = False


def record_path(path: str) -> str:
    """Where the record of a file lies."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.kubenode.json")


def compare_file(path: str, overlay: Overlay, permissions: int, *, full: bool = False) -> Found:
    """Compare a file with the image it should be; ``full`` reads it also when its record says that it is unchanged."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Found(False, False)
    except OSError as error:
        raise ImageError(f"target {path} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ImageError(f"target {path} is a folder, a link or a device; move it away")
    right = stat.S_IMODE(found.st_mode) == permissions
    record = read_record(path)
    if not full and record.get("etag") == overlay.etag() and record.get("file") == list(signature_of(found)):
        return Found(True, True, right, known=True)
    same = found.st_size == overlay.size and same_bytes(path, overlay)
    if not same and not _replaceable(path, record, found):
        raise ImageError(
            f"dest: {path} is there and is not a file that was written here; move it away, remove it, or give another "
            "folder"
        )
    return Found(True, same, right)


def _replaceable(path: str, record: Mapping[str, Any], found: os.stat_result) -> bool:
    """Whether another file may take its place: it is ours, also when bytes of it were changed since."""
    stamps = _stamps(record)
    return any(stamp[2] == found.st_size for stamp in stamps) if stamps else os.path.lexists(record_path(path))


def same_bytes(path: str, overlay: Overlay) -> bool:
    """Whether a file has exactly the bytes of an image of the same size."""
    with failing(f"target {path} cannot be compared"), open(path, "rb") as file, open_overlay(overlay) as wanted:
        return all(file.read(len(block)) == block for block in iter(lambda: wanted.read(_BLOCK), b""))


def write_file(path: str, overlay: Overlay, owned: Owned, about: Mapping[str, Any], *, content: bool = True) -> None:
    """Write an image (or only its permissions and record, when its content is there already) and remember it."""
    if content:
        before = read_record(path).get("file")

        def announce(draft: os.stat_result) -> None:
            _write_record(path, {"file": before, "next": signature_of(draft), **about})

        materialise(overlay, path, owned.permissions, announce)
    with failing(f"target {path} cannot be given its permissions"):
        if stat.S_IMODE(os.lstat(path).st_mode) != owned.permissions:
            os.chmod(path, owned.permissions)
        owned.owner(path, False)
        stamp = signature_of(os.lstat(path))
    _write_record(path, {"etag": overlay.etag(), "file": stamp, **about})


def rewrite(overlay: Overlay, path: str, mode: int) -> None:
    """Give a file another content; one that is ours stays ours."""
    record = read_record(path) if as_written(path) else {}

    def announce(draft: os.stat_result) -> None:
        if record:
            _write_record(path, {**record, "etag": "", "next": signature_of(draft)})

    materialise(overlay, path, mode, announce)


def _write_record(path: str, record: Mapping[str, Any]) -> None:
    text = json.dumps({"kubenode_record": _VERSION, **record}, sort_keys=True)
    write_text(record_path(path), text + "\n", Owned())


def read_record(path: str) -> Mapping[str, Any]:
    """What is remembered of a file; nothing when there is no record, or none that can be read."""
    try:
        with open(record_path(path), encoding="utf-8") as file:
            found = json_object(file.read(_LARGEST_RECORD)) or {}
    except (OSError, ValueError):
        return {}
    return found if found.get("kubenode_record") == _VERSION else {}


def write_text(path: str, text: str, owned: Owned) -> None:
    """Write a small file in one step."""
    with failing(f"{path} cannot be written"), replacing(path) as (file, draft):
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
        owned.owner(draft, False)
        os.chmod(draft, owned.permissions)


def remove_file(path: str) -> None:
    """A file and its record are gone."""
    for one in (path, record_path(path)):
        with failing(f"{one} cannot be removed"), contextlib.suppress(FileNotFoundError):
            os.unlink(one)


def as_written(path: str) -> bool:
    """Whether a file is the one of its record, or gone.

    By size and date alone: device and inode are others after a restart or a move, and the ctime after a chmod.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ImageError(f"{path} cannot be looked at: {error.strerror}") from error
    return any(stamp[2:4] == [found.st_size, found.st_mtime_ns] for stamp in _stamps(read_record(path)))


def _stamps(record: Mapping[str, Any]) -> list[list[int]]:
    """Of the file that was written, and of the one that was about to be when a run was cut off."""
    found = (record.get("file"), record.get("next"))
    return [one for one in found if isinstance(one, list) and len(one) == len(Signature._fields)]


class Store(ABC):
    """A folder of products."""

    def __init__(self, folder: str, owned: Owned, *, full: bool = False) -> None:
        """``full``: content is read even where its record would do."""
        self.folder = folder
        self._owned = owned
        self._full = full

    def check(self) -> None:
        """The folder can be used, or made."""
        place = self.folder if os.path.lexists(self.folder) else os.path.dirname(self.folder)
        if not os.path.isdir(place):
            raise ImageError(f"dest {self.folder}: {place} is not a folder")
        if not os.access(place, os.W_OK | os.X_OK):
            raise ImageError(f"dest {self.folder}: nothing can be written into {place}")

    def make(self) -> None:
        """The folder is there; a new one is its owner's alone."""
        if not os.path.isdir(self.folder):
            with failing(f"dest {self.folder} cannot be made"):
                os.mkdir(self.folder, 0o700)

    @abstractmethod
    def path(self, name: str) -> str:
        """Where a product of this name lies."""

    @abstractmethod
    def compare(self, product: Product) -> Found:
        """What is there now."""

    @abstractmethod
    def write(self, product: Product, found: Found) -> None:
        """The product is there."""

    @abstractmethod
    def before(self, name: str) -> Overlay | None:
        """The image that is there now, when it can still be read."""

    @abstractmethod
    def is_of(self, name: str, host: str) -> bool:
        """Whether a file was written here for this host. ImageError: it was, and another one is in its place."""

    def owner_differs(self, name: str) -> bool:
        """Whether user or group are not the wanted ones."""
        path = self.path(name)
        return os.path.lexists(path) and self._owned.owner(path, True)

    def remove(self, name: str) -> None:
        """The file is gone."""
        remove_file(self.path(name))


class Files(Store):
    """Whole images."""

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def compare(self, product: Product) -> Found:
        """By the record beside it, or byte by byte."""
        path = self.path(product.name)
        if os.path.realpath(path) == os.path.realpath(product.overlay.base.path):
            raise ImageError(f"dest: {path} is the base itself and is not written over")
        return compare_file(path, product.overlay, self._owned.permissions, full=self._full)

    def write(self, product: Product, found: Found) -> None:
        """Content, permissions and record, as far as they differ."""
        about = {"host": product.host, "kind": product.kind}
        write_file(self.path(product.name), product.overlay, self._owned, about, content=not found.same)

    def before(self, name: str) -> Overlay | None:
        return whole(glance(self.path(name))) if os.path.isfile(self.path(name)) else None

    def is_of(self, name: str, host: str) -> bool:
        """By its record."""
        path = self.path(name)
        if read_record(path).get("host") != host:
            return False
        if not as_written(path):
            raise ImageError(f"dest: {path} is not the file that was written; move it away or remove it yourself")
        return True


class Descriptors(Store):
    """Descriptors; the image server makes images of them."""

    def path(self, name: str) -> str:
        return descriptor_path(self.folder, name)

    def compare(self, product: Product) -> Found:
        """A descriptor is small: it is read."""
        path = self.path(product.name)
        data = read_descriptor(path)
        if data is None:
            return Found(False, False)
        same = same_descriptor(data, product.name, product.host, product.overlay)
        right = stat.S_IMODE(os.lstat(path).st_mode) == self._owned.permissions
        return Found(True, same, right, known=True)

    def write(self, product: Product, found: Found) -> None:
        """The whole descriptor; the date of an image that is the same stays."""
        path = self.path(product.name)
        created = int(time.time())
        if found.same:
            before = (read_descriptor(path) or {}).get("created")
            created = before if isinstance(before, int) and before > 0 else created
        text = descriptor_text(product.name, product.host, product.overlay, created)
        write_text(path, text, self._owned)

    def before(self, name: str) -> Overlay | None:
        """What it describes, while its base is still the same."""
        data = read_descriptor(self.path(name))
        if data is None:
            return None
        overlay = overlay_of(data)
        return overlay if overlay.base.unchanged() else None

    def is_of(self, name: str, host: str) -> bool:
        """By what it says itself."""
        try:
            data = read_descriptor(self.path(name))
        except ImageError:
            return False
        return data is not None and data.get("host") == host
