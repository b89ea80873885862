# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors: small JSON files from which an image server with the same base makes the same images."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from .._common.text import json_value
from .errors import ImageError
from .overlay import Overlay

VERSION = 1
SUFFIX = ".json"
_LARGEST = 128 * 1024 * 1024


def path_of(folder: str, name: str) -> str:
    """Where the descriptor of an image lies."""
    return os.path.join(folder, name + SUFFIX)


def text_of(name: str, host: str, overlay: Overlay, created: int) -> str:
    """A descriptor; ``created`` in seconds since 1970 becomes the image's Last-Modified."""
    data = {"kubenode_image": VERSION, "name": name, "host": host, "created": created, "overlay": overlay.to_dict()}
    return json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n"


def read(path: str) -> Mapping[str, Any] | None:
    """A descriptor as data; None when there is none. A file of another form is an error."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ImageError(f"{path} is a folder, a link or a device; move it away")
        if found.st_size > _LARGEST:
            raise ImageError(f"{path} has {found.st_size} bytes and is no descriptor of ours; move it away")
        with open(path, encoding="utf-8") as file:
            data = json_value(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        data = None
    if not isinstance(data, dict) or data.get("kubenode_image") != VERSION:
        raise ImageError(f"{path} is no descriptor of an image; move it away")
    return data


def overlay_of(data: Mapping[str, Any]) -> Overlay:
    """The image a descriptor describes."""
    return Overlay.from_dict(data.get("overlay") or {})


def same(data: Mapping[str, Any] | None, name: str, host: str, overlay: Overlay) -> bool:
    """Whether a descriptor says this already."""
    if data is None or data.get("name") != name or data.get("host") != host:
        return False
    return bool(data.get("overlay") == overlay.to_dict())
