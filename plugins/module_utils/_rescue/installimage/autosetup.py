# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The configuration that installimage reads, as text (pure)."""

from __future__ import annotations

import difflib
import re

from .words import check_word, shown

#: Keys that follow from options of their own.
OURS = {
    "DRIVE": "root_devices",
    "SWRAID": "swraid",
    "SWRAIDLEVEL": "swraid_level",
    "HOSTNAME": "hostname",
    "PART": "partitions",
    "LV": "logical_volumes",
    "SUBVOL": "subvolumes",
    "IMAGE": "image",
    "CRYPTPASSWORD": "crypt_password",
}
#: Keys that may be added.
EXTRA = (
    "BOOTLOADER",
    "IPV4_ONLY",
    "USE_KERNEL_MODE_SETTING",
    "SSHKEYS_URL",
    "TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS",
    "GOVERNOR",
    "FORCE_GPT",
    "FORCE_SIGN",
    "RAID_ASSUME_CLEAN",
    "RAID_LAYOUT",
    "ALLOW_USB_DRIVES",
)
#: Keys that would keep or wipe what the layout does not name, or hand a secret over in the open.
REFUSED = {
    "PRESERVE_VG": "what is on the disks is never kept; leave it out",
    "PRESERVE_FS": "what is on the disks is never kept; leave it out",
    "REUSE_FSTAB": "what is on the disks is never kept; leave it out",
    "FORCE_PASSWORD": "it would put a password into a file; log in by SSH keys, or set a password by bootstrap data",
    "FORMATDRIVE": "it would wipe a disk that the layout does not use; name it in kubenode_wipe",
}
_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,60}\Z")
_BOOLEANS = {True: "yes", False: "no"}
MASK = "********"


def check_extra(extra):
    """Findings about the user's own keys."""
    findings = []
    for key, value in extra.items():
        field = "autosetup.%s" % key
        bare = key.rstrip("0123456789") if isinstance(key, str) else ""
        if not isinstance(key, str) or not _KEY.match(key):
            findings.append("autosetup %s: a key is in capitals, such as %s; name it so" % (shown(key), EXTRA[0]))
        elif key in OURS or bare in OURS:
            findings.append("%s: it follows from %s; set that option" % (field, OURS.get(key) or OURS[bare]))
        elif key in REFUSED or bare in REFUSED:
            findings.append("%s: %s" % (field, REFUSED.get(key) or REFUSED[bare]))
        elif key not in EXTRA and difflib.get_close_matches(key, EXTRA, 1, 0.8):
            findings.append(
                "%s: installimage does not know it; is %s meant?" % (field, difflib.get_close_matches(key, EXTRA, 1)[0])
            )
        elif not isinstance(value, (str, int, bool)):
            findings.append("%s: give one word or number, not a list or dictionary" % field)
        else:
            findings += check_word(field, word_of(value))
    return findings


def word_of(value):
    """A value as installimage reads it; its switches are words in one place and digits in another, 0 and 1 stay."""
    return _BOOLEANS[value] if isinstance(value, bool) else str(value)


def autosetup(spec, layout, drives, image, mask=False):
    """The configuration as text; ``drives``: device paths, ``image``: path of the image file.

    Everything in it has been checked word by word before, see :func:`installimage.spec.findings`.
    """
    lines = ["DRIVE%d %s" % (number, drive) for number, drive in enumerate(drives, 1)]
    lines.append("SWRAID %d" % layout.swraid)
    if layout.swraid:
        lines.append("SWRAIDLEVEL %d" % layout.level)
    extra = dict(spec["autosetup"])
    lines.append("BOOTLOADER %s" % word_of(extra.pop("BOOTLOADER", "grub")))
    lines.append("HOSTNAME %s" % spec["hostname"])
    if layout.encrypted:
        lines.append("CRYPTPASSWORD %s" % (MASK if mask else spec["crypt_password"]))
    lines += ["%s %s" % (key, word_of(extra[key])) for key in sorted(extra)]
    for part in layout.partitions:
        words = ["PART", part["mount"], part["filesystem"], part["size"]]
        lines.append(" ".join(words + (["crypt"] if part.get("crypt") else [])))
    for one in layout.logical_volumes:
        lines.append(" ".join(["LV", one["vg"], one["name"], one["mount"], one["filesystem"], one["size"]]))
    for one in layout.subvolumes:
        lines.append(" ".join(["SUBVOL", one["volume"], one["subvolume"], one["mount"]]))
    lines.append("IMAGE %s" % image)
    return "".join(line + "\n" for line in lines)
