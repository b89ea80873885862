# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own crictl and pause: built in Go with Debian's packages of what they import (a minute)."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from lab.apt import Archive
from lab.cache import Progress
from lab.errors import ClusterError, ImageError

from .go_build import discard, go_build

_SUITE = "sid"  # the one that has the runtime's interface as a package
#: what crictl imports, directly or not
_PACKAGES = (
    "golang-github-golang-protobuf-1-5-dev", "golang-golang-x-net-dev", "golang-golang-x-sys-dev",
    "golang-golang-x-text-dev", "golang-google-genproto-dev", "golang-google-grpc-dev", "golang-google-protobuf-dev",
    "golang-gopkg-yaml.v2-dev", "golang-gopkg-yaml.v3-dev", "golang-k8s-cri-api-dev", "golang-k8s-sigs-yaml-dev",
)  # fmt: skip
_EPOCH = "1970-01-01T00:00:00Z"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def build(sources: Path, folder: Path, progress: Progress) -> None:
    """Build the programs of ours in ``sources`` into ``folder``."""
    progress("kubernetes: building the lab's crictl and pause")
    work = folder / "work"
    downloads = work / "downloads"
    downloads.mkdir(parents=True)
    try:
        packages = Archive(_SUITE, work / "apt").download(_PACKAGES, downloads)
    except ImageError as error:
        raise ClusterError(f"what the lab's crictl is built of cannot be had: {error}") from error
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", str(package), str(work)], check=True)
    path = work / "usr/share/gocode"
    tree = path / "src/kubenode"
    shutil.copytree(sources, tree)
    names = (path.name for path in sorted(sources.iterdir()))
    # without modules: of Debian's packages alone
    settings = {"GO111MODULE": "off", "GOPATH": str(path), "GOCACHE": str(work / "cache"), "GOFLAGS": ""}
    options = ("-ldflags", "-s -w", "-o", f"{folder}/", *(f"./{name}" for name in names))
    go_build(tree, "the lab's crictl and pause", *options, settings=settings)
    discard(work)


def oci_archive(program: bytes, path: str, reference: str, architecture: str = "amd64") -> bytes:
    """An OCI archive (tar) whose image ``reference`` (name:tag) runs ``/path`` as user 65535."""
    layer = _tar({path: (program, 0o755)})
    packed = gzip.compress(layer, mtime=0)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": _EPOCH,
            "config": {"Entrypoint": [f"/{path}"], "User": "65535:65535", "Env": ["PATH=/"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": _EPOCH, "created_by": "kubenode.provision lab"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, packed)],
        }
    )
    # containerd takes the first annotation for the image's name, others make it from the second one.
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [_descriptor(_MANIFEST, manifest) | {"annotations": names}]}
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": (blob, 0o644) for blob in (config, packed, manifest)}
    layout = {"oci-layout": (_json({"imageLayoutVersion": "1.0.0"}), 0o644), "index.json": (_json(index), 0o644)}
    return _tar(layout | blobs)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
