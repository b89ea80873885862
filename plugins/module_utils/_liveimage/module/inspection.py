# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Images that are there already: shown, or given back as they were published."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from .. import iso
from ..errors import ImageError
from ..writing import materialise
from . import look


def show(paths: Sequence[str]) -> list[dict[str, Any]]:
    """One entry an image; one that cannot be read has ``failed``."""
    found = []
    for path in paths:
        entry: dict[str, Any] = {"path": path, "failed": False, "changed": False, "msg": ""}
        try:
            entry.update(look.told(look.at(path)))
        except ImageError as error:
            entry.update(failed=True, msg=str(error))
        found.append(entry)
    return found


def reset(paths: Sequence[str], *, check: bool) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Entries and differences; every image is looked at before the first one is written."""
    looks: list[look.Look | str] = []
    for path in paths:
        try:
            looks.append(_iso_at(path))
        except ImageError as error:
            looks.append(str(error))
    found: list[dict[str, Any]] = []
    diff: list[dict[str, str]] = []
    for path, one in zip(paths, looks):
        entry: dict[str, Any] = {"path": path, "failed": False, "changed": False, "msg": "nothing is embedded"}
        found.append(entry)
        if isinstance(one, str):
            entry.update(failed=True, msg=one)
            continue
        if one.iso is None or not one.customised:
            continue
        after = iso.reset(one.iso)
        entry.update(changed=True, msg="would be reset" if check else "reset")
        was, will = look.texts(one), look.texts(look.of(after))
        for part in sorted(was):
            header = "%s (%s)" % (path, part) if part else path
            if was[part] != will[part]:
                told = {"before_header": header, "after_header": header, "before": was[part], "after": will[part]}
                diff.append(told)
        if not check:
            try:
                materialise(after, path, stat.S_IMODE(os.stat(path).st_mode))
            except (ImageError, OSError) as error:
                entry.update(failed=True, changed=False, msg=str(error))
    return found, diff


def _iso_at(path: str) -> look.Look:
    if os.path.islink(path):
        raise ImageError("image %s is a link; name the file itself" % path)
    found = look.at(path, digest=False)
    if found.kind != "iso" or path.endswith(".json"):
        raise ImageError("image %s is no ISO; other images are made anew from their base" % path)
    return found
