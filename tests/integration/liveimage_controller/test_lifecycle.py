# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an object to an image and away again, against a real API server; every field of the status is looked at."""

import re

import pytest

from tests.waiting import until

from .world import FINALIZER, PUBLISHED, appended, conditions, ignition, network, texts

pytestmark = pytest.mark.cluster
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def test_create(world, replica, tmp_path):
    world.secret("net", nmstate=network("192.0.2.17"))
    world.create("host-1", networkDataName="net", acceptFormats=["iso", "initrd"])
    found = world.ready("host-1")
    # nothing but the peer's finalizer is left on the object
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert "annotations" not in found["metadata"]
    assert "labels" not in found["metadata"]
    status = found["status"]
    url = status.pop("imageUrl")
    assert re.fullmatch(re.escape(PUBLISHED) + r"/[a-z2-7]{26}\.iso", url)
    times = [one.pop("lastTransitionTime") for one in status["conditions"]]
    assert all(re.fullmatch(TIME, one) for one in times)
    assert status == {
        "architecture": "x86_64",
        "format": "iso",
        "networkData": {"name": "net", "version": world.version("net")},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "ImageSuccess",
                "message": "Generated image",
                "observedGeneration": 1,
            },
            {"type": "Error", "status": "False", "reason": "ImageSuccess", "message": "", "observedGeneration": 1},
        ],
    }
    secret = world.api.get(f"{world.secrets}/net")
    assert secret["metadata"]["labels"] == {"environment.metal3.io": "baremetal"}
    assert secret["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "PreprovisioningImage",
            "name": "host-1",
            "uid": found["metadata"]["uid"],
        }
    ]
    assert "finalizers" not in secret["metadata"]
    config = ignition(replica.fetch(url).content, tmp_path)
    assert "192.0.2.17" in texts(config)
    assert "IPA_DEFAULT_HOSTNAME=host-1" in config["systemd"]["units"][0]["contents"]
    # a cache of its own: the usual one may be of the time before the CRD
    reported = world.cluster.kubectl("get", "ppimg", "-n", world.namespace, "host-1", f"--cache-dir={tmp_path}/cache")
    assert re.search(r"READY +REASON\nhost-1 +True +ImageSuccess", reported)


def test_without_network_data_the_host_asks_dhcp(world, replica, tmp_path):
    world.create("host-1")
    found = world.ready("host-1")
    assert found["status"]["networkData"] == {}
    assert "system-connections" not in texts(ignition(replica.fetch(found["status"]["imageUrl"]).content, tmp_path))
    world.secret("empty")
    world.create("host-2", networkDataName="empty")
    assert world.ready("host-2")["status"]["networkData"]["name"] == "empty"


def test_initramfs_with_kernel_and_root_file_system(world, replica, bases):
    world.secret("net", nmstate=network("192.0.2.18"))
    world.create("host-1", acceptFormats=["initrd"], networkDataName="net")
    status = world.ready("host-1")["status"]
    assert status["format"] == "initrd"
    assert status["imageUrl"].endswith(".initramfs")
    assert status["kernelUrl"].endswith(".kernel")
    match = re.fullmatch(
        r"coreos\.live\.rootfs_url=(\S+\.rootfs) ignition\.firstboot ignition\.platform\.id=metal",
        status["extraKernelParams"],
    )
    assert replica.fetch(status["kernelUrl"]).content == b"KERNEL" * 1000
    assert replica.serves(match[1])
    image = replica.fetch(status["imageUrl"]).content
    assert "192.0.2.18" in texts(appended(image, (bases / "live.img").read_bytes()))


def test_wrong_secret_then_the_right_one(world, replica):
    world.secret("net", interfaces="x")
    world.create("host-1", networkDataName="net")
    status = world.failed("host-1", "ImageBuildInvalid")["status"]
    assert conditions(status) == {
        "Ready": ("False", "ImageBuildInvalid", "", 1),
        "Error": (
            "True",
            "ImageBuildInvalid",
            "Cannot generate image: network data Secret provided but missing required 'nmstate' key",
            1,
        ),
    }
    assert "imageUrl" not in status
    assert status["networkData"] == {"name": "net", "version": world.version("net")}
    world.secret("net", nmstate="interfaces: [{name: eth0, type: ethernet, colour: red}]")
    status = world.until("host-1", lambda found: "colour" in conditions(found)["Error"][2])["status"]
    assert conditions(status)["Error"][:2] == ("True", "ImageBuildInvalid")
    world.secret("net", nmstate=network("192.0.2.19"))
    assert replica.serves(world.ready("host-1")["status"]["imageUrl"])


def test_late_secret(world, replica):
    world.create("host-1", networkDataName="late")
    world.create("host-2", networkDataName="later")
    for name in ("host-1", "host-2"):
        assert conditions(world.failed(name, "MissingNetworkData")["status"]) == {
            "Ready": ("False", "MissingNetworkData", "", 1),
            "Error": ("True", "MissingNetworkData", "NetworkData secret not found", 1),
        }
    world.secret("late", nmstate="", labelled=True)  # an event reports it
    assert world.ready("host-1")["status"]["networkData"]["name"] == "late"
    world.secret("later", nmstate="")  # found by looking again
    assert world.ready("host-2")["status"]["networkData"]["name"] == "later"


def test_changed_secret(world, replica, tmp_path):
    world.secret("net", nmstate=network("192.0.2.20"))
    for name in ("host-1", "host-2"):
        world.create(name, networkDataName="net")
    old = {name: world.ready(name)["status"] for name in ("host-1", "host-2")}
    world.secret("net", nmstate=network("192.0.2.21"))
    version = world.version("net")
    for name in ("host-1", "host-2"):
        world.until(name, lambda status: status.get("networkData", {}).get("version") == version)
        new = world.ready(name)["status"]
        assert new["imageUrl"] != old[name]["imageUrl"]
        assert not replica.serves(old[name]["imageUrl"])
        text = texts(ignition(replica.fetch(new["imageUrl"]).content, tmp_path))
        assert "192.0.2.21" in text
        assert "192.0.2.20" not in text


def test_a_label_on_the_secret_changes_the_version_and_not_the_url(world, replica):
    world.secret("net", nmstate=network("192.0.2.22"))
    world.create("host-1", networkDataName="net")
    old = world.ready("host-1")["status"]
    path, kind = f"{world.secrets}/net", "application/merge-patch+json"
    version = world.api.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, kind)["metadata"]["resourceVersion"]
    world.until("host-1", lambda status: status.get("networkData", {}).get("version") == version)
    assert world.ready("host-1")["status"]["imageUrl"] == old["imageUrl"]


def test_unsupported_architecture_then_another(world, replica):
    world.create("host-1", architecture="riscv64")
    status = world.failed("host-1", "ConfigurationError")["status"]
    assert conditions(status) == {
        "Ready": ("False", "ConfigurationError", "", 1),
        "Error": ("True", "ConfigurationError", "Architecture not supported", 1),
    }
    assert set(status) == {"conditions"}
    world.change("host-1", spec={"acceptFormats": [], "architecture": "x86_64"})
    status = world.until("host-1", lambda found: "format" in conditions(found)["Error"][2])["status"]
    assert conditions(status)["Error"] == ("True", "ConfigurationError", "No acceptable image format supported", 2)
    world.change("host-1", spec={"acceptFormats": ["iso"]})
    assert conditions(world.ready("host-1")["status"])["Error"] == ("False", "ImageSuccess", "", 3)


def test_too_large(world, replica):
    world.create("host-1", architecture="aarch64")
    reported = conditions(world.failed("host-1", "ImageBuildInvalid")["status"])
    match = re.fullmatch(
        r"Cannot generate image: the Ignition is too large: packed it has (\d+) bytes, (\d+) more than the 700 .*",
        reported["Error"][2],
    )
    assert int(match[1]) - int(match[2]) == 700
    assert reported["Ready"] == ("False", "ImageBuildInvalid", "", 1)
    # an initramfs has no such limit
    world.change("host-1", spec={"acceptFormats": ["initrd"]})
    assert world.ready("host-1")["status"]["architecture"] == "aarch64"


def test_label_added_later(world, replica):
    labels = {"infraenvs.agent-install.openshift.io": "any"}
    world.create("foreign", labels=labels)
    world.create("host-1")
    url = world.ready("host-1")["status"]["imageUrl"]
    world.change("host-1", metadata={"labels": labels})
    until(lambda: "finalizers" not in world.get("host-1")["metadata"], "our finalizer is dropped")
    assert not replica.serves(url)
    assert "status" not in world.get("foreign")
    assert "finalizers" not in world.get("foreign")["metadata"]
    world.change("host-1", metadata={"labels": dict.fromkeys(labels)})
    until(lambda: replica.serves(url), "without the label it is ours again")
    assert world.ready("host-1")["metadata"]["finalizers"] == [FINALIZER]


def test_delete(world, replica):
    world.create("host-1")
    url = world.ready("host-1")["status"]["imageUrl"]
    assert replica.serves(url)
    world.delete("host-1")
    until(lambda: world.gone("host-1"), "the object is gone")
    until(lambda: not replica.serves(url), "its image is gone")


def test_delete_while_another_controller_needs_it(world, replica, start):
    other = "baremetalhost.metal3.io/preprovisioningImage"
    world.secret("net", nmstate=network("192.0.2.23"))
    world.create("host-1", finalizers=[other], networkDataName="net")
    before = world.ready("host-1")
    url = before["status"]["imageUrl"]
    world.delete("host-1")
    world.create("host-2")  # what comes after the deletion was seen
    world.ready("host-2")
    found = world.get("host-1")
    assert found["metadata"]["finalizers"] == [other, FINALIZER]
    assert found["status"] == before["status"]
    assert replica.serves(url)
    with start(namespace=world.namespace) as restarted:
        assert restarted.until_ready().serves(url)
    world.change("host-1", metadata={"finalizers": [FINALIZER]})
    until(lambda: world.gone("host-1"), "the object is gone")
    until(lambda: not replica.serves(url), "its image is gone")
