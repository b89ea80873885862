# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Names that end up in arguments and paths: image command, root devices (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._common.names import InvalidName

COMMAND_PREFIX = "image-url-command-"
_COMMAND = re.compile(r"image-url-command-[a-z0-9][a-z0-9._-]*\Z")
_ANY_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
#: Which names of commands are taken.
PREFIXED, ANY = "prefixed", "any"
#: Kernel names, WWNs and /dev/disk/by-id names; udev escapes everything else.
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9#+.:=@_-]*\Z")


def check_command_name(name: str, allowed: str = PREFIXED) -> str:
    """Return ``name`` when it is the bare name of an image command, else raise :class:`InvalidName`.

    ``allowed``: names that begin with ``image-url-command-``, as in CAPH until 2026, or any plain name.
    """
    if "/" in name:
        raise InvalidName("it holds a '/'; give the name alone and the directory as command_dir")
    if ".." in name:
        raise InvalidName("it holds '..'; give the plain name of a file in command_dir")
    if allowed == ANY:
        if not _ANY_COMMAND.match(name):
            raise InvalidName(
                "it may hold only letters, digits, '.', '_' and '-', and must begin with a letter or digit"
            )
        return name
    if not name.startswith(COMMAND_PREFIX):
        raise InvalidName(f"it does not begin with '{COMMAND_PREFIX}'; rename the program, or set command_names to any")
    if not _COMMAND.match(name):
        raise InvalidName(
            f"after '{COMMAND_PREFIX}' it may hold only lower-case letters, digits, '.', '_' and '-', "
            "and must begin with a letter or digit"
        )
    return name


def check_root_devices(devices: Sequence[str]) -> Sequence[str]:
    """Return ``devices`` when it is a non-empty list of device names without directory, else raise."""
    if not devices:
        raise InvalidName("the list is empty; name at least one device, such as sda")
    for device in devices:
        if "/" in device:
            raise InvalidName(f"{device!r} holds a '/'; give the name below /dev (sda, nvme0n1) or the WWN alone")
        if not _DEVICE.match(device):
            raise InvalidName(
                f"{device!r} is not a device name; give a kernel name (sda, nvme0n1), a WWN or a by-id name"
            )
    if len(set(devices)) != len(devices):
        raise InvalidName(f"a device is named twice: {' '.join(devices)}")
    return devices
