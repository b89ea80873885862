# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specifications of installations of which only a part matters."""

from __future__ import annotations

from typing import Any, cast

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs

_PLAIN: specs.Spec = {
    "machine": "",
    "hostname": "",
    "image": cast(specs.Image, {}),
    "devices": [],
    "swraid": 0,
    "swraid_level": 1,
    "partitions": [],
    "logical_volumes": [],
    "subvolumes": [],
    "autosetup": {},
    "crypt_password": "",
    "remote_unlock": False,
    "post_install_script": "",
    "bootstrap_data": None,
    "network_config": specs.OF_RESCUE,
    "uefi": specs.AUTO,
    "command": specs.COMMAND,
}


def specified(**fields: Any) -> specs.Spec:
    """A specification with these fields, and in the others what stands for nothing."""
    return cast(specs.Spec, {**_PLAIN, **fields})
