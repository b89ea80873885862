# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build all images and packages the lab can need, before somebody waits for them in the middle of other work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lab import coreos, images, mirror

#: two lines of work for two cores; the recipes of one suite share a cache of packages and wait for each other
_LINES = (("rescue", "debian", "tarball"), ("debian13", "coreos"))


def everything(progress: Callable[[str], None]) -> None:
    """Build what is missing of the images, the live image and the mirror; some four minutes with an empty cache."""
    with ThreadPoolExecutor(len(_LINES)) as pool:
        for done in [pool.submit(_line, names, progress) for names in _LINES]:
            done.result()
    images.share(progress)
    mirror.prepare(progress)


def _line(names: tuple[str, ...], progress: Callable[[str], None]) -> None:
    for name in names:
        if name == "coreos":
            coreos.ensure(progress)
        else:
            images.ensure(name, progress)
