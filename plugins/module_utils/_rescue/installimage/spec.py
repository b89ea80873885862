# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is to be installed, as it travels into the rescue: one JSON document, checked on the controller (pure)."""

from __future__ import annotations

import json
import re
from typing import Any, TypedDict, cast

from ..._common.names import machine_error
from ..._common.text import json_value
from . import layout as layouts
from .autosetup import check_extra
from .config_words import ImageName, InvalidImageName, check_passphrase, check_word, parse_image_name, shown

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
#: Where the new system has its network from.
OF_RESCUE, OF_IMAGE = "rescue", "image"
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


def make(**fields: Any) -> Spec:
    """A specification with every field; the digest of a job is made from its text, so the order is fixed."""
    spec: dict[str, Any] = {
        "machine": "",
        "hostname": "",
        # kind, location (path or URL, with its credentials), file_name, digest ("" when none is asked for), shown
        "image": {},
        "devices": [],
        "swraid": 0,
        "swraid_level": 1,
        "partitions": [],
        "logical_volumes": [],
        "subvolumes": [],
        "autosetup": {},
        "crypt_password": "",
        "remote_unlock": False,
        "post_install_script": "",
        # None: no seed is written
        "bootstrap_data": None,
        "network_config": OF_RESCUE,
        "uefi": AUTO,
        "command": COMMAND,
    }
    unknown = set(fields) - set(spec)
    if unknown:
        raise TypeError(f"unknown fields: {', '.join(sorted(unknown))}")
    return cast(Spec, dict(spec, **fields))


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
    return "image.%s" % (URL if image["kind"] == OCI else image["kind"])


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
