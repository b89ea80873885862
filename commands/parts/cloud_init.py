# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hands bootstrap data to cloud-init as a NoCloud seed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from commands.parts.bootstrap import Bootstrap
from commands.parts.chroot import inside
from commands.parts.errors import Refused
from commands.parts.files import write_into


def forget_instance() -> None:
    """Make cloud-init look for its data again although the image has booted before; runs inside the new root."""
    link = Path("/var/lib/cloud/instance")
    if link.is_symlink():
        link.unlink()


def meta_data(machine: str, keys: list, installation: str = "") -> bytes:
    """Return the meta-data of the seed: a new instance, its name, and its SSH keys if there are any.

    The instance carries the id of the installation, where there is one: cloud-init shows it in the new system.
    """
    meta: dict = {"instance-id": "iid-kubenode-%s" % (installation or uuid.uuid4()), "local-hostname": machine}
    if keys:
        meta["public-keys"] = keys
    return "".join("%s: %s\n" % (name, json.dumps(value)) for name, value in meta.items()).encode()


def seed_cloud_init(root: Path, bootstrap: Bootstrap, record: dict) -> None:
    """Hand user data, host name and keys to cloud-init as a NoCloud seed, and let it look nowhere else."""
    seed = "/var/lib/cloud/seed/nocloud/"
    meta = meta_data(record["machine"], bootstrap.keys, record.get("installation", ""))
    write_into(root, seed + "user-data", bootstrap.data, 0o600, 0o700)
    write_into(root, seed + "meta-data", meta, 0o600, 0o700)
    pin = b"# written by " + record["command"].encode() + b": the provider's metadata must not win over the seed\n"
    write_into(
        root, "/etc/cloud/cloud.cfg.d/zz-kubenode-datasource.cfg", pin + b"datasource_list: [ NoCloud, None ]\n", 0o644
    )
    inside(root, forget_instance)


def check_cloud_init(roots: list) -> None:
    """Refuse an image that would never read the cloud-init data it is given."""
    if len(roots) != 1:
        where = ", ".join(str(root.partition) for root in roots) or "none was found"
        raise Refused("bootstrap data: it needs exactly one root file system in the image: %s" % where)
    if not roots[0].facts["cloud_init"]:
        raise Refused("bootstrap data: it is cloud-init, but the image has no cloud-init program")
    if roots[0].facts["switched_off"]:
        raise Refused("bootstrap data: cloud-init is switched off in the image by /etc/cloud/cloud-init.disabled")
