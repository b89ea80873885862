# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node image whose base is made of Debian's packages: mmdebstrap, disk, boot, base, snapshot."""

import subprocess
from typing import Any

import pytest
import yaml

from lab import cache, mirror
from lab.apt import apt_options, sources
from tests.integration.mirrored import mirrored
from tests.integration.playbooks.test_node_image import CLOUD_CONFIG, SNAPSHOT, ImageAccount

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.nspawn, pytest.mark.mirror]

IMAGE = "own-13-kubernetes-1.36.4"


@pytest.fixture
def account(lab_nspawn, tmp_path):
    made = ImageAccount(lab_nspawn, tmp_path)
    yield made
    made.close()


def test_from_packages_to_a_snapshot_and_again(account, lab_nspawn):
    archive = mirror.find("images/pause-3.10.2.tar")
    packages: dict[str, Any] = {"suite": "trixie", "mirrors": sources("trixie"), "include": ["file"]}
    packages["kernel"] = "linux-image-cloud-amd64"  # its initramfs is made in a third of the time
    packages["apt_options"] = [f"{line};" for line in apt_options()]
    options: dict[str, Any] = {
        **{key: value for key, value in mirrored(lab_nspawn).items() if key != "base_kubernetes_version"},
        "base_image_archives": [
            {"url": f"{lab_nspawn.mirror_url}/images/pause-3.10.2.tar", "sha256": cache.sha256(archive)}
        ],
        # cloud-init takes a container's firmware for its host's, so only a seed reaches it there
        "kubenode_bootstrap_data": CLOUD_CONFIG
        + yaml.safe_dump(dict(mirror.cloud_config(lab_nspawn.mirror_url, "trixie"))),
        "kubenode_image_matrix": {"kubernetes": ["1.36.4"], "base": [{"name": "own-13", "packages": packages}]},
    }
    cached = account.folder / "kubenode/images"
    account.run(SNAPSHOT, "--check", **options).ok()
    assert not cached.exists()
    assert account.builders() == {}

    wrong = {"kubernetes": ["1.36.4"], "base": [{"name": "own-13", "packages": {**packages, "include": ["no-such"]}}]}
    account.run(SNAPSHOT, **{**options, "kubenode_image_matrix": wrong}).fails().says(
        "Unable to locate package no-such"
    )
    assert account.builders() == {}, "nothing is created before the base is there"

    account.run(SNAPSHOT, **options).ok()
    (snapshot,) = account.snapshots(IMAGE)
    assert snapshot["labels"]["kubenode.provision/base-image"] == "own-13"
    assert account.builders() == {}
    (made,) = cached.glob("debian-*.tar.zst")
    held = subprocess.run(["tar", "--list", "--file", made], capture_output=True, text=True, check=True).stdout.split()
    assert "./usr/bin/file" in held
    assert not [name for name in held if "ssh_host_" in name]

    when = made.stat().st_mtime_ns
    account.run(SNAPSHOT, **options).ok().says("changed=0")
    assert account.snapshots(IMAGE) == [snapshot]
    assert made.stat().st_mtime_ns == when
