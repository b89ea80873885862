# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The iPXE script that boots a host: kernel, its own initramfs, and where the root file system comes from (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import ImageError
from ..kargs import Edit, KernelArguments

# Without a live ISO nobody tells Ignition that this is the first boot, and on what.
DEFAULT = "ignition.firstboot ignition.platform.id=metal"
_MEDIUM = ("coreos.liveiso=", "coreos.live.rootfs_url=")
_ROOTFS = "coreos.live.rootfs_url="
_INITRD = "initrd=initrd"  # EFI kernels ask for it by name
_LONGEST = 4096  # what iPXE's kernel command and the kernel itself take with room to spare


def arguments(published: str, edit: Edit, rootfs_url: str) -> str:
    """The kernel arguments of a network boot, from those of the published ISO (or nothing)."""
    words = [word for word in published.split() if not word.startswith(_MEDIUM)]
    for word in DEFAULT.split():
        if word not in words:
            words.append(word)
    text = " ".join([_ROOTFS + rootfs_url, *words])
    return KernelArguments(text, text, ()).edited(edit)


def script(host: str, kernel_url: str, initramfs_url: str, kernel_arguments: str) -> bytes:
    """The script. iPXE has no way to quote, so that what it would take for its own language is refused."""
    words = kernel_arguments.split()
    if len(kernel_arguments) > _LONGEST:
        raise ImageError("the kernel arguments have %d characters, %d is the most" % (len(kernel_arguments), _LONGEST))
    for what, word in [("URL of the kernel", kernel_url), ("URL of the initramfs", initramfs_url)] + [
        ("kernel argument", word) for word in words
    ]:
        _check(what, word)
    lines: Sequence[str] = (
        "#!ipxe",
        "echo Live image of %s" % host,
        "kernel --name kernel %s %s" % (kernel_url, " ".join([_INITRD, *words])),
        "initrd --name initrd %s" % initramfs_url,
        "boot",
    )
    return ("\n".join(lines) + "\n").encode("ascii")


def _check(what: str, word: str) -> None:
    if not re.fullmatch(r"[!-~]+", word):
        raise ImageError(
            "%s %.200r has a character that iPXE does not take: plain ASCII without blanks only" % (what, word)
        )
    if "${" in word:
        raise ImageError("%s %.200r: iPXE would put a setting of its own in place of ${…}" % (what, word))
    if word.startswith("#") or word in ("||", "&&", ";"):
        raise ImageError("%s %.200r is an operator or a comment for iPXE" % (what, word))
