# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs a root file system from a tar archive: partitions, boot loader and bootstrap data included.

Called in a rescue system as: image-url-command-rootfs-tar IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import contextlib
import sys

from commands.parts.digest import Digest
from commands.parts.job import Job
from commands.parts.layout import Layout
from commands.parts.mounts import private_mounts
from commands.parts.program import run_program, writing
from commands.parts.progress import Progress
from commands.parts.record import installed_record
from commands.parts.rootfs import RootFs
from commands.parts.source import Source
from commands.parts.url import ImageUrl

NAME = "image-url-command-rootfs-tar"


class TarUrl(ImageUrl):
    """The image URL of a tar archive."""

    SWITCHES = ("sha256", "sha512", "keys", "stall", "layout")


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, _token: str) -> None:
    """Check every input, write the system, make it this machine's; leave a disk that does not boot on any failure."""
    url = TarUrl(image_url)
    layout = Layout(url.switches.get("layout", ""))
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)
    with contextlib.closing(RootFs(job, layout, [(source, digest)], False, progress)) as rootfs:
        with writing(job.disk, progress) as work:
            rootfs.install(work, lambda: record(url, digest, job))
    progress.say("%s: installed on %s" % (machine, job.disk.path))


def record(url: ImageUrl, digest: Digest, job: Job) -> dict:
    """Return the installed record; the digest is known when the archive is unpacked."""
    return installed_record(job.machine, url.shown(), "%s:%s" % (digest.algorithm, digest.hash.hexdigest()), NAME)


if __name__ == "__main__":
    sys.exit(run_program(NAME, install, sys.argv[1:]))
