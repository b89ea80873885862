# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an empty dedicated server to a verified system that boots from its own disk, also through lost controllers."""

import json
import os
import re
import signal
import socket
import urllib.request

import pytest

from lab import images
from tests.integration.commands.registry import LOGIN, Front, sha256, with_password
from tests.integration.installimage.conftest import IMAGE, PATIENCE, fields_of

pytestmark = pytest.mark.nspawn

USER_DATA = """\
#cloud-config
write_files:
  - path: /etc/from-user-data
    content: geheim
"""
POST_INSTALL = """\
set -eu
echo "hello from $(hostname || true)"
test -d /boot/grub
echo made >/etc/from-post-install
"""
SYSTEM = """
echo "hostname=$(uname -n)"
echo "root=$(findmnt -n -o SOURCE /)"
echo "wwn=$(readlink -f /dev/disk/by-id/nvme-@WWN@)"
echo "post=$(cat /etc/from-post-install)"
echo "user=$(cat /etc/from-user-data)"
echo "record=$(cat /etc/kubenode/installed.json)"
echo "seed=$(stat -c %a /var/lib/cloud/seed/nocloud-net) $(stat -c %a /var/lib/cloud/seed/nocloud-net/user-data)"
echo "routes=$(ip -4 route | cut -d ' ' -f 1,2)"
echo "cloud=$(grep -v '^#' /etc/cloud/cloud.cfg.d/zz-kubenode-network.cfg)"
echo "left=$(ls -d /post-install /root/.kubenode* 2>/dev/null)"
"""
RESCUE = """
echo "secrets=$(ls -d /autosetup* /root/post-install /post-install /root/.kubenode/installimage/autosetup 2>/dev/null)"
echo "run=$(sed -n 's/^id=//p' /root/.kubenode/state)"
"""


def published(lab) -> tuple[str, str]:
    """URL and digest of the image, as the lab's web server offers it."""
    url = f"{lab.images_url}/{IMAGE}"
    with urllib.request.urlopen(f"{url}.sha256", timeout=300) as answer:
        return url, "sha256:" + answer.read().decode().split()[0]


@pytest.mark.long
def test_an_image_from_a_web_server_ends_as_a_verified_system(controller):
    controller.machine("inst-url", "3G", "64M")
    url, digest = published(controller.lab)
    options = {
        "image": {"url": url, "digest": digest}, "bootstrap_data": USER_DATA, "post_install_script": POST_INSTALL,
    }  # fmt: skip
    installed = controller.install("inst-url", **options).ok()
    assert installed["changed"]
    assert installed["image_digest"] == digest
    assert installed["drives"][0]["name"] == controller.devices("inst-url")[0]
    assert installed["drives"][0]["path"].startswith("/dev/nvme")
    assert len(installed["host_keys"]) == 3
    assert "hello from" in controller.log("inst-url", "post-install")
    assert "installimage" in controller.log("inst-url", "debug")
    assert os.stat(controller.logs / "inst-url/installimage.debug.log").st_mode & 0o777 == 0o600
    assert re.search(r"installimage \d+/15: ", installed.output), "which steps are seen is a matter of time"
    assert "kubenode-post-install" not in installed.output
    other = controller.devices("inst-url")[1]
    assert controller.ssh("inst-url", f"tr -d '\\0' </dev/disk/by-id/nvme-{other} | wc -c").strip() == "0"

    before = fields_of(controller.ssh("inst-url", RESCUE))
    again = controller.install("inst-url", **options).ok()
    assert (again["changed"], again["attached"]) == (False, True)
    assert again["host_keys"] == installed["host_keys"]
    assert fields_of(controller.ssh("inst-url", RESCUE)) == before
    assert before["secrets"] == ""

    booted = controller.boot("inst-url", installed).ok()
    assert booted["system"]["installed"]["image_url"] == url
    assert booted["system"]["cloud_init"]["status"] == "done"
    system = fields_of(controller.ssh("inst-url", SYSTEM.replace("@WWN@", controller.devices("inst-url")[0])))
    assert system["hostname"] == "inst-url"
    assert system["root"].startswith("/dev/nvme")
    assert (system["post"], system["user"], system["seed"]) == ("made", "geheim", "700 600")
    assert system["left"] == ""
    assert (system["routes"], system["cloud"]) == ("default via", "network: {config: disabled}")
    record = json.loads(system["record"])
    assert (record["command"], record["image_digest"]) == ("installimage", digest)
    assert (record["proof"], "verified_at" in record) == ("nonce", True)


@pytest.mark.long
def test_an_image_of_a_registry_ends_as_a_verified_system(controller, tmp_path):
    archive = images.ensure("tarball").files["tarball"].read_bytes()
    registry = with_password(tmp_path)
    front = Front(registry, socket.create_server((controller.lab.controller, 0)))
    try:
        digest = registry.artifact("node/image", "v1", {IMAGE: archive})["digest"]
        controller.machine("inst-oci", "3G", "64M")
        url = f"oci://{front.host}/node/image@{digest}"
        options = {"image": {"url": f"{url}#plain-http=yes&file={IMAGE}"}, "bootstrap_data": USER_DATA}
        refused = controller.install("inst-oci", **options, oci_registry_auth_token="robot:wrong").fails(
            "OCI_REGISTRY_AUTH_TOKEN is not accepted"
        )
        assert not refused["began"]
        assert controller.blank("inst-oci")

        installed = controller.install("inst-oci", **options, oci_registry_auth_token=LOGIN).ok()
        assert (installed["image"], installed["image_digest"]) == (url, sha256(archive))
        assert "geheim" not in installed.output + controller.log("inst-oci")
        left = "grep -rl robot:geheim /root /tmp /var/log /installimage.* 2>/dev/null || true"
        assert controller.ssh("inst-oci", left) == ""
        booted = controller.boot("inst-oci", installed).ok()
        assert booted["system"]["installed"]["image_url"] == url
    finally:
        front.close()
        registry.close()


@pytest.mark.long
def test_a_lost_controller_is_taken_up_again_under_uefi(controller):
    controller.machine("inst-lost", uefi=True)
    script = "touch /root/waiting; while [ ! -e /root/go ]; do sleep 0.2; done"
    options = controller.options("inst-lost", post_install_script=script)
    given = {"known_hosts_dir": str(controller.pins), **options}
    lost = controller.start_module("inst-lost", "robot_installimage", **given)
    waiting = "ls /installimage.*/hdd/root/waiting 2>/dev/null || true"
    lost.until(lambda: controller.ssh("inst-lost", waiting).strip(), "the post-install script")
    lost.interrupt(signal.SIGKILL)
    before = fields_of(controller.ssh("inst-lost", RESCUE))["run"]
    controller.install("inst-lost", timeout=PATIENCE).fails("is running in this rescue")

    controller.ssh("inst-lost", "cd /installimage.*/hdd/root && touch go")
    installed = controller.run("inst-lost", "robot_installimage", **options).ok()
    assert installed["attached"]
    assert installed["uefi"]
    assert fields_of(controller.ssh("inst-lost", RESCUE))["run"] == before
    controller.boot("inst-lost", installed).ok()
    mounts = controller.ssh("inst-lost", "grep -v ^# /etc/fstab")
    assert "/boot/efi" in mounts
