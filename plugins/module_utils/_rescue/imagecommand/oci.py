# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Installs an image from a registry: a raw image of a whole disk, or a root file system in layers.

Called in a rescue system as: image-url-command-oci IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.

robot_installimage calls it as: image-url-command-oci --to-file FILE BYTES OUTPUT_JSON IMAGE_URL, which writes no disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from ..._common.mounts import private_mounts
from ..._common.text import whole_number
from .arguments import Job
from .basics import MIB, Refused
from .filesystems import Layout
from .incoming import Digest
from .invocation import TOKEN, Progress, installed_record, run_program, writing
from .oci_registry import Descriptor, OciImage, Registry, check_signature
from .raw_disk import install_raw
from .rootfs_tar import RootFs
from .tar_reader import beginning, kind_of_content, raw_incoming
from .url import OciUrl

NAME = "image-url-command-oci"
TO_FILE = "--to-file"


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, token: str) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url = OciUrl(image_url)
    layout = Layout(url.switches.get("layout", ""))
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    registry, image = looked_up(url, token, progress)

    def record() -> dict[str, str]:
        return installed_record(machine, url.shown, image.digest, NAME)

    if image.container and len(image.layers) > 1:
        kind, layers = "rootfs", image.layers
    else:
        layers = [image.only_layer(url.switches.get("file", ""))]
        kind = kind_of_content(beginning(registry.blob(layers[0])))
    for switch, needed in (("layout", "rootfs"), ("grow", "raw")):
        if switch in url.switches and needed not in kind:
            raise Refused(f"image URL: {switch}= is not for this image, which is a {kind}")
    sources = [(registry.blob(layer), proof(layer)) for layer in layers]
    if kind == "rootfs":
        with contextlib.closing(RootFs(job, layout, sources, True, progress)) as rootfs:
            with writing(job.disk, progress) as work:
                rootfs.install(work, record)
    else:
        with writing(job.disk, progress) as work:
            install_raw(raw_incoming(*sources[0], kind), job, work, url.wants("grow"), progress, record)
    progress.say(f"{machine}: installed on {job.disk.path}")


def looked_up(url: OciUrl, token: str, progress: Progress) -> tuple[Registry, OciImage]:
    """Return the registry, and what the image URL means there on this machine; signed, when a key is given."""
    registry = Registry(url, token, NAME, progress.say)
    image = OciImage(registry)
    progress.say(f"image: {url.shown} is {image.digest}, for {image.architecture}")
    if "cosign-key" in url.switches:
        check_signature(registry, image.digest, url.switches["cosign-key"])
    return registry, image


def pull(target: Path, room: int, image_url: str, progress: Progress, token: str) -> dict[str, Any]:
    """Bring the one file of an image into a file of at most so many bytes; it gets its name when it is proven.

    Return the digests of the file and of what the image URL means, and the size.
    """
    url = OciUrl(image_url)
    for switch in ("grow", "keys", "layout"):
        if switch in url.switches:
            raise Refused(f"image URL: {switch}= is for a disk, and the image becomes a file")
    registry, image = looked_up(url, token, progress)
    if image.container and len(image.layers) > 1:
        text = "image: %s is a container image of %d layers, and one archive is needed; push that as a file"
        raise Refused(text % (url.shown, len(image.layers)))
    layer = image.only_layer(url.switches.get("file", ""))
    if layer.size > room:
        raise Refused(
            f"image: it has {-(-layer.size // MIB)} MiB, and the rescue has {room // MIB} MiB of memory for it; "
            "use a smaller image"
        )
    blob, digest = registry.blob(layer), proof(layer)

    def state() -> str:
        return f"downloaded {blob.received // MIB} of {layer.size // MIB} MiB of the image"

    part = target.with_name(target.name + ".part")
    with open(os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for chunk in digest.watch(blob.chunks()):
            file.write(chunk)
            progress.tick(state, lambda: (blob.received, layer.size))
    digest.check()
    progress.publish(state())
    part.replace(target)
    return {"digest": layer.digest, "image": image.digest, "size": layer.size}


def to_file(arguments: list[str]) -> int:
    """Run pull(); print what it returns as one line of JSON, or why not; return the exit code."""
    token = os.environ.pop(TOKEN, "")
    room = whole_number(arguments[1]) if len(arguments) == 4 else None
    if room is None:
        sys.stderr.write(f"usage: {NAME} {TO_FILE} FILE BYTES OUTPUT_JSON IMAGE_URL\n")
        return 2
    target, progress = Path(arguments[0]), Progress(Path(arguments[2]))
    try:
        sys.stdout.write(json.dumps(pull(target, room, arguments[3], progress, token)) + "\n")
    except (Refused, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def proof(layer: Descriptor) -> Digest:
    """Return the digest that a layer must have."""
    return Digest(layer.algorithm, layer.hex)


def main(arguments: list[str]) -> int:
    """Run the command."""
    return to_file(arguments[1:]) if arguments[:1] == [TO_FILE] else run_program(NAME, install, arguments)
