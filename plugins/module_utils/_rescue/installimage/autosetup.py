# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The configuration that installimage reads, as text (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .config_words import check_word, shown
from .layout import Layout

if TYPE_CHECKING:  # spec imports this module
    from .spec import Spec

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
_ON, _OFF = ("1", "true", "yes"), ("0", "false", "no")


class Extra(NamedTuple):
    """What one more key takes: word of the user, in lower case → word that is written; None leaves the line out."""

    words: dict[str, str | None]
    pattern: str
    takes: str


def _switch(**more: str | None) -> dict[str, str | None]:
    """A key that installimage takes for set when it has any word, or for set only with 1: off is no line at all."""
    words: dict[str, str | None] = dict.fromkeys(_ON, "1")
    words.update(dict.fromkeys(_OFF))
    words.update(more)
    return words


def _words(*words: str) -> dict[str, str | None]:
    return {word: word for word in words}


_YES_NO = Extra({**dict.fromkeys(_ON[1:], "yes"), **dict.fromkeys(_OFF[1:], "no")}, "", "yes or no")
_SWITCH = Extra(_switch(), "", "true or false")
#: Keys that may be added, and how installimage reads them: some of them lower case only, some any word as yes.
EXTRA = {
    "BOOTLOADER": Extra(_words("grub"), "", "grub"),
    "IPV4_ONLY": _YES_NO,
    "USE_KERNEL_MODE_SETTING": _YES_NO,
    "SSHKEYS_URL": Extra({}, r"(?:(?:https?|ftp)://|/)\S+", "an http, https or ftp URL, or an absolute path"),
    "TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS": _YES_NO,
    "GOVERNOR": Extra(_words("powersave", "performance", "ondemand"), "", "powersave, performance or ondemand"),
    "FORCE_GPT": Extra(_switch(**{"2": "2"}), "", "1 (or true), 2 (for systems that know no GPT, too) or false"),
    "FORCE_SIGN": _SWITCH,
    "RAID_ASSUME_CLEAN": _SWITCH,
    "RAID_LAYOUT": Extra(
        {}, r"(?:left|right)-a?symmetric(?:-6)?|[lr][as]|parity-(?:first|last)|[nfo][1-9]",
        "a layout of mdadm, such as left-symmetric or f2"),
    "ALLOW_USB_DRIVES": _SWITCH,
}  # fmt: skip
#: Keys that would keep or wipe what the layout does not name, or hand a secret over in the open.
REFUSED = {
    "PRESERVE_VG": "volume groups of disks that are not installed on are kept without it; leave it out",
    "PRESERVE_FS": "what is on the disks is never kept; leave it out",
    "REUSE_FSTAB": "what is on the disks is never kept; leave it out",
    "FORCE_PASSWORD": "it would put a password into a file; log in by SSH keys, or set a password by bootstrap data",
    "FORMATDRIVE": "it would wipe a disk that the layout does not use; name it in kubenode_wipe",
}
_KEY = re.compile(r"[A-Z][A-Z0-9_]{0,60}\Z")
MASK = "********"


def check_extra(extra: Mapping[Any, Any]) -> list[str]:
    """Findings about the user's own keys."""
    findings = []
    for key, value in extra.items():
        field = f"autosetup.{key}"
        bare = key.rstrip("0123456789") if isinstance(key, str) else ""
        if not isinstance(key, str) or not _KEY.match(key):
            findings.append(f"autosetup {shown(key)}: a key is in capitals, such as GOVERNOR; name it so")
        elif key in OURS or bare in OURS:
            findings.append(f"{field}: it follows from {OURS.get(key) or OURS[bare]}; set that option")
        elif key in REFUSED or bare in REFUSED:
            findings.append(f"{field}: {REFUSED.get(key) or REFUSED[bare]}")
        elif key not in EXTRA and difflib.get_close_matches(key, EXTRA, 1, 0.8):
            findings.append(
                f"{field}: installimage does not know it; is {difflib.get_close_matches(key, EXTRA, 1)[0]} meant?"
            )
        elif key not in EXTRA and _read_as(key):
            findings.append(f"{field}: installimage would read it as {_read_as(key)}; leave it out")
        elif not isinstance(value, (str, int, bool)):
            findings.append(f"{field}: give one word or number, not a list or dictionary")
        elif key in EXTRA:
            findings += _check(field, EXTRA[key], value)
        elif isinstance(value, bool):
            findings.append(f"{field}: whether installimage wants yes or 1 is unknown; write its word in quotes")
        else:
            findings += check_word(field, str(value))
    return findings


def _read_as(key: str) -> str:
    """The key that installimage takes this one for, as it looks only at how a line begins; empty when it takes none."""
    known = [one for one in (*OURS, *REFUSED, *EXTRA) if one not in ("LV", "SUBVOL", "CRYPTPASSWORD")]
    return max((one for one in known if key.startswith(one)), key=len, default="")


def _check(field: str, extra: Extra, value: object) -> list[str]:
    text = _text(value)
    if text.lower() in extra.words:
        return []
    findings = check_word(field, text)
    if not findings and not (extra.pattern and re.match(f"(?:{extra.pattern})\\Z", text)):
        findings.append(f"{field} {shown(value)}: installimage takes {extra.takes}; use that")
    return findings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def written(key: str, value: object) -> str | None:
    """A value that was checked, as installimage reads it; None where it reads "no" only when the line is not there."""
    text = _text(value)
    return EXTRA[key].words.get(text.lower(), text) if key in EXTRA else text


def autosetup(
    spec: Spec,
    layout: Layout,
    drives: Sequence[str],
    image: str,
    mask: bool = False,
    kept: Sequence[str] = (),
) -> str:
    """The configuration as text; ``drives``: device paths, ``image``: path of the image file, ``kept``: volume groups.

    Everything in it has been checked word by word before, see :func:`installimage.spec.findings`.
    """
    lines = [f"DRIVE{number} {drive}" for number, drive in enumerate(drives, 1)]
    lines.append(f"SWRAID {layout.swraid:d}")
    if layout.swraid:
        lines.append(f"SWRAIDLEVEL {layout.level:d}")
    extra = dict(spec["autosetup"])
    lines.append(f"BOOTLOADER {written('BOOTLOADER', extra.pop('BOOTLOADER', 'grub'))}")
    lines.append(f"HOSTNAME {spec['hostname']}")
    if layout.encrypted:
        lines.append(f"CRYPTPASSWORD {MASK if mask else spec['crypt_password']}")
    pairs = [(key, written(key, extra[key])) for key in sorted(extra)]
    lines += ["%s %s" % pair for pair in pairs if pair[1] is not None]
    if kept:
        # A regular expression, found anywhere in a name unless it is bound.
        names = "|".join(re.sub(r"[.+]", r"\\\g<0>", name) for name in kept)
        lines.append(f"PRESERVE_VG ^({names})$")
    for part in layout.partitions:
        words = ["PART", part["mount"], part["filesystem"], part["size"]]
        lines.append(" ".join(words + (["crypt"] if part.get("crypt") else [])))
    for one in layout.logical_volumes:
        lines.append(" ".join(["LV", one["vg"], one["name"], one["mount"], one["filesystem"], one["size"]]))
    for inner in layout.subvolumes:
        lines.append(" ".join(["SUBVOL", inner["volume"], inner["subvolume"], inner["mount"]]))
    lines.append(f"IMAGE {image}")
    return "".join(line + "\n" for line in lines)
