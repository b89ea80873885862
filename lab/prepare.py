# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build all images and packages the lab can need, before somebody waits for them in the middle of other work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lab.cache import Progress

from . import coreos, images, mirror

#: two lines of work for two cores; the recipes of one suite share a cache of packages and wait for each other
_LINES = (("rescue", "debian", "tarball", "share"), ("debian13", "coreos", "mirror"))


def everything(progress: Progress) -> None:
    """Build what is missing of the images, the live image and the mirror; some three minutes with an empty cache."""
    others = {"share": images.share, "coreos": coreos.ensure, "mirror": mirror.prepare}

    def line(names: tuple[str, ...]) -> None:
        for name in names:
            if name in others:
                others[name](progress)
            else:
                images.ensure(name, progress)

    with ThreadPoolExecutor(len(_LINES)) as pool:
        for done in [pool.submit(line, names) for names in _LINES]:
            done.result()
