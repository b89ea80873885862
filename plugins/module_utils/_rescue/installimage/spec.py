# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is to be installed, and the configuration that installimage reads (pure).

The specification travels into the rescue as one JSON document, which is checked on the controller.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ..._common.names import machine_error
from ..._common.text import json_value
from . import layout as layouts
from .config_words import ImageName, InvalidImageName, check_passphrase, check_word, parse_image_name, shown
from .layout import Layout

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
            findings.append(f"{field}: it follows from an option of its own; set {OURS.get(key) or OURS[bare]}")
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
    spec: Spec, layout: Layout, drives: Sequence[str], image: str, mask: bool = False, kept: Sequence[str] = ()
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
    lines += [f"{key} {value}" for key, value in pairs if value is not None]
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


#: Where Hetzner's rescue keeps installimage and its images.
COMMAND = "/root/.oldroot/nfs/install/installimage"
IMAGES = "/root/.oldroot/nfs/images"
#: Where ours keeps what it fetches and writes, below the runner's base.
WORK = ".kubenode/installimage"
#: A list of the disks to empty before, as machine_disks names them; no part of the specification, since a program that
#: has begun to empty them is the same one.
EMPTY = ".kubenode/empty.json"

#: The shipped image command that reads registries, when the image lies in one.
REGISTRY_CLIENT = ".kubenode/registry-client"

AUTO, YES, NO = "auto", "true", "false"

_PATH = re.compile(r"(/[A-Za-z0-9_.@%+=:,~-]+)+\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")

NAME, PATH, URL, FILE = "name", "path", "url", "file"
#: What network_config is when the new system has its network from the rescue, and not from the image.
OF_RESCUE = "rescue"
#: What image.url is when it names an image in a registry.
OCI = "oci"


class Image(TypedDict):
    """Where the image is: its ``kind`` (name, path, url, file, oci), path or URL with credentials, name and digest.

    ``digest``: empty when none is asked for; ``shown``: what people may see of the location.
    """

    kind: str
    location: str
    file_name: str
    digest: str
    shown: str


class Spec(TypedDict):
    """What is to be installed, see the options of robot_installimage; ``bootstrap_data``: None for no seed."""

    machine: str
    hostname: str
    image: Image
    devices: list[str]
    swraid: int
    swraid_level: int
    partitions: list[layouts.Part]
    logical_volumes: list[layouts.LogicalVolume]
    subvolumes: list[layouts.Subvolume]
    autosetup: dict[str, Any]
    crypt_password: str
    remote_unlock: bool
    post_install_script: str
    bootstrap_data: str | None
    network_config: str
    uefi: str
    command: str


def pack(spec: Spec) -> bytes:
    """The document as bytes."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":")).encode("utf-8")


def unpack(data: bytes) -> Spec:
    """Undo :func:`pack`."""
    found: Spec = json_value(data.decode("utf-8"))
    return found


def layout_of(spec: Spec, uefi: bool) -> layouts.Layout:
    """The layout of a specification under a firmware; the default one when it names no partitions."""
    partitions = spec["partitions"] or layouts.default_partitions(uefi)
    return layouts.Layout(partitions, spec["logical_volumes"], spec["subvolumes"], spec["swraid"], spec["swraid_level"])


def findings(spec: Spec, with_disks: bool = True) -> list[str]:
    """Everything that is wrong with a specification, as far as it shows without the machine."""
    found = check_hostname(spec["hostname"]) + check_image(spec["image"])
    image = _image_name(spec["image"].get("file_name", "")) or layouts.ANY
    layout = layout_of(spec, spec["uefi"] == YES)
    if not spec["partitions"] and (spec["logical_volumes"] or spec["subvolumes"]):
        found.append("partitions: it is empty although volumes are named; name the partitions that hold them")
    if with_disks:
        found += layouts.check_disks(len(spec["devices"]), layout)
    found += layouts.check_layout(layout, image)
    if spec["uefi"] != AUTO:
        found += layouts.check_firmware(layout, spec["uefi"] == YES, image)
    found += check_extra(spec["autosetup"])
    if layout.encrypted and not spec["crypt_password"]:
        found.append("crypt_password: it is missing although a partition is to be encrypted; set it")
    if spec["crypt_password"]:
        found += check_passphrase("crypt_password", spec["crypt_password"])
        if not layout.encrypted:
            found.append("crypt_password: it is set, but no partition has crypt: true; set that, or leave it out")
    if spec["remote_unlock"] and not layout.encrypted:
        found.append("remote_unlock: no partition has crypt: true, so nothing is to unlock; set that, or leave it out")
    if spec["remote_unlock"] and image.distro not in ("debian", "ubuntu"):
        found.append("remote_unlock: only images of Debian and Ubuntu can have it; leave it out")
    if not _PATH.match(spec["command"]):
        found.append(f"command {shown(spec['command'])}: give an absolute path without spaces")
    if "\0" in spec["post_install_script"]:
        found.append("post_install_script: it holds a null byte; give the text of a script")
    return found


def check_hostname(name: str) -> list[str]:
    """Findings about a host name."""
    error = machine_error(name)
    return check_word("hostname", name) if error is None else [f"hostname {shown(name)}: {error}"]


def image_field(image: Image) -> str:
    """The field of the user's that says where the image is."""
    return f"image.{URL if image['kind'] == OCI else image['kind']}"


def check_image(image: Image) -> list[str]:
    """Findings about where the image is and what its file is called."""
    field = image_field(image)
    found = []
    if image["kind"] in (NAME, PATH):
        path = image["location"]
        if not _PATH.match(path) or {".", ".."} & set(path.split("/")):
            found.append(f"{field} {shown(path)}: give a plain path on the rescue, without spaces, '.' and '..'")
    try:
        parse_image_name(image["file_name"])
    except InvalidImageName as exc:
        found.append(f"{field} {shown(image['file_name'])}: {exc}")
    if image["digest"] and not _DIGEST.match(image["digest"]):
        found.append(f"image.digest {shown(image['digest'])}: give sha256: and 64 lower-case hexadecimal digits")
    return found


def _image_name(name: str) -> ImageName | None:
    try:
        return parse_image_name(name)
    except InvalidImageName:
        return None
