# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams a raw disk image to the root device, grows its root file system and seeds the bootstrap data.

Called in a rescue system as: image-url-command-raw-disk IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md.
"""

from __future__ import annotations

import sys

from commands.parts.digest import Digest
from commands.parts.errors import Refused
from commands.parts.incoming import Incoming
from commands.parts.job import Job
from commands.parts.mounts import private_mounts
from commands.parts.program import run_program, writing
from commands.parts.progress import Progress
from commands.parts.raw import install_raw
from commands.parts.record import installed_record
from commands.parts.source import Source
from commands.parts.url import ImageUrl

NAME = "image-url-command-raw-disk"


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, _token: str) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url = ImageUrl(image_url)
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    adapt = url.wants("adapt")
    if not adapt and job.bootstrap.kind != "none":
        raise Refused("bootstrap data: adapt=no in the image URL leaves no place for it; leave one of them out")
    private_mounts()
    job.disk.check()
    source = Source(url, NAME, say=progress.say)
    digest = Digest.of(source)

    def written() -> dict:
        return record(url, digest, job)

    with writing(job.disk, progress) as work:
        install_raw(Incoming(source, digest), job, work, url.wants("grow"), progress, written if adapt else None)
    progress.say("%s: installed on %s" % (machine, job.disk.path))


def record(url: ImageUrl, digest: Digest, job: Job) -> dict:
    """Return the installed record; the digest is known when the image is written."""
    return installed_record(job.machine, url.shown(), "%s:%s" % (digest.algorithm, digest.hash.hexdigest()), NAME)


if __name__ == "__main__":
    sys.exit(run_program(NAME, install, sys.argv[1:]))
