# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a host gets: its images and its iPXE script, as overlays with names and URLs. Nothing is written here."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import iso, urls
from ..base_file import identify
from ..bases import INITRAMFS, ISO, Bases, known_arch
from ..errors import ImageError
from ..hosts import HostConfig, build, initramfs_overlay, iso_overlay
from ..iso import Iso
from ..kargs import Edit, KernelArguments
from ..overlay import Bytes, Overlay, whole
from ..urls import static_path
from . import inspection, request
from .request import Common, HostRequest

# What a live ISO has among its own arguments: that this is the first boot, and on which platform.
IPXE_ARGUMENTS = "ignition.firstboot ignition.platform.id=metal"
_MEDIUM = ("coreos.liveiso=", "coreos.live.rootfs_url=")
_ROOTFS = "coreos.live.rootfs_url="
_INITRD = "initrd=initrd"  # EFI kernels ask for it by name
_LONGEST_LINE = 4096  # what iPXE's kernel command and the kernel itself take with room to spare
if TYPE_CHECKING:
    from ..hosts import Run
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
                products, shared = self._pxe(wanted, made, products, shared)
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

    def _pxe(
        self, wanted: HostRequest, made: HostConfig, products: list[Product], shared: list[Product]
    ) -> tuple[list[Product], list[Product]]:
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
        return [*products, initramfs, self._product("ipxe", wanted, overlay)], [*shared, kernel, rootfs]

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
