# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The operations that both container runtimes have: list, pull, import, pin."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..machine.host import Host
from . import image_archive, references
from .image_archive import FOLDER

_NAMESPACE = "k8s.io"
_PIN = "io.cri-containerd.pinned"


class RuntimeFailed(Exception):
    """A program of the runtime failed; the text has what it said."""


class Containerd:
    """containerd, by ctr; pulls go through the kubelet's interface, so that mirrors and credentials hold."""

    def __init__(self, host: Host, seconds: float) -> None:
        self._host, self._seconds = host, seconds

    def list(self) -> dict[str, dict[str, str]]:
        """Reference → labels of every image. Raises :class:`RuntimeFailed`."""
        return parse_list(_run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "list"], 60))

    def pull(self, reference: str) -> None:
        """Pull one image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["crictl", "pull", reference], self._seconds)

    def load(self, path: str) -> None:
        """Import an archive. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "import", path], self._seconds)

    def pinned(self, labels: Mapping[str, str]) -> bool:
        """Whether an image with these labels stays when disk space is short."""
        return labels.get(_PIN) == "pinned"

    def pin(self, reference: str) -> None:
        """Make the kubelet keep an image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["ctr", "--namespace", _NAMESPACE, "images", "label", reference, _PIN + "=pinned"], 60)


class Docker:
    """Docker Engine, which has no way to pin."""

    def __init__(self, host: Host, seconds: float, machine: str = "") -> None:
        self._host, self._seconds, self._machine = host, seconds, machine or os.uname().machine

    def list(self) -> dict[str, dict[str, str]]:
        """Reference → labels (none) of every image. Raises :class:`RuntimeFailed`."""
        form = "{{.Repository}}:{{.Tag}}\n{{.Repository}}@{{.Digest}}"
        lines = _run(self._host, ["docker", "image", "ls", "--format", form], 60).split()
        return {references.canonical(line): {} for line in lines if "<none>" not in line}

    def pull(self, reference: str) -> None:
        """Pull one image. Raises :class:`RuntimeFailed`."""
        _run(self._host, ["docker", "pull", "--quiet", reference], self._seconds)

    def load(self, path: str) -> None:
        """Import an archive. Raises :class:`RuntimeFailed` and :class:`archive.ArchiveError`."""
        with image_archive.for_docker(path, self._host.path(FOLDER), self._machine) as readable:
            _run(self._host, ["docker", "load", "--quiet", "--input", readable], self._seconds)

    def pinned(self, labels: Mapping[str, str]) -> bool:
        """Nothing to be done about pins."""
        return True

    def pin(self, reference: str) -> None:
        """Never called."""


def parse_list(text: str) -> dict[str, dict[str, str]]:
    """Reference → labels, of what ``ctr images list`` prints."""
    found = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 3:
            continue
        pairs = [pair.partition("=") for pair in words[-1].split(",")] if "=" in words[-1] else []
        found[words[0]] = {key: value for key, _sep, value in pairs}
    return found


def _run(host: Host, argv: list[str], seconds: float) -> str:
    done = host.run(argv, seconds)
    if done.code:
        raise RuntimeFailed("%s: %s" % (" ".join(argv), (done.err or done.out).strip()[-2000:]))
    return done.out
