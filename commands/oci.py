# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs an image from a registry: a raw image of a whole disk, or a root file system in layers.

Called in a rescue system as: image-url-command-oci IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import contextlib
import sys

from commands.parts.content import beginning, kind_of_content, raw_incoming
from commands.parts.cosign import check_signature
from commands.parts.digest import Digest
from commands.parts.errors import Refused
from commands.parts.job import Job
from commands.parts.layout import Layout
from commands.parts.mounts import private_mounts
from commands.parts.oci_image import OciImage
from commands.parts.oci_url import OciUrl
from commands.parts.program import run_program, writing
from commands.parts.progress import Progress
from commands.parts.raw import install_raw
from commands.parts.record import installed_record
from commands.parts.registry import Descriptor, Registry
from commands.parts.rootfs import RootFs

NAME = "image-url-command-oci"


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, token: str) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url = OciUrl(image_url)
    layout = Layout(url.switches.get("layout", ""))
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    registry = Registry(url, token, NAME, progress.say)
    image = OciImage(registry)
    progress.say("image: %s is %s, for %s" % (url.shown, image.digest, image.architecture))
    if "cosign-key" in url.switches:
        check_signature(registry, image.digest, url.switches["cosign-key"])

    def record() -> dict:
        return installed_record(machine, url.shown, image.digest, NAME)

    if image.container and len(image.layers) > 1:
        kind, layers = "rootfs", image.layers
    else:
        layers = [image.only_layer(url.switches.get("file", ""))]
        kind = kind_of_content(beginning(registry.blob(layers[0])))
    for switch, needed in (("layout", "rootfs"), ("grow", "raw")):
        if switch in url.switches and needed not in kind:
            raise Refused("image URL: %s= is not for this image, which is a %s" % (switch, kind))
    sources = [(registry.blob(layer), proof(layer)) for layer in layers]
    if kind == "rootfs":
        with contextlib.closing(RootFs(job, layout, sources, True, progress)) as rootfs:
            with writing(job.disk, progress) as work:
                rootfs.install(work, record)
    else:
        with writing(job.disk, progress) as work:
            install_raw(raw_incoming(*sources[0], kind), job, work, url.wants("grow"), progress, record)
    progress.say("%s: installed on %s" % (machine, job.disk.path))


def proof(layer: Descriptor) -> Digest:
    """Return the digest that a layer must have."""
    return Digest(layer.algorithm, layer.hex)


if __name__ == "__main__":
    sys.exit(run_program(NAME, install, sys.argv[1:]))
