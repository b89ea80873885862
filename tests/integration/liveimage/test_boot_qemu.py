# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines boot the images that the server serves, and say what arrived: nothing of ours judges its own work here."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases, hosts, ignition, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import products
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Bytes, Overlay
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from lab.coreos import LiveImage
from lab.coreos.boot import HOST, Boot, Machine, boot
from tests.integration.liveimage.serving import Served

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(4800)]

INPUTS = AgentInputs(
    agent_image="registry.example/agent:1", ironic_urls=("https://192.0.2.9",), pull_secret='{"auths": {}}',
    ssh_keys=("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEhvc3QgeW91ciBvd24ga2V5cyBhbmQgYmUgaGFwcHkh someone",),
    ntp_servers=("192.0.2.7",), https_proxy="http://proxy.example:3128/100%",
)  # fmt: skip
BOND_AND_VLAN = """
interfaces:
  - {name: bond0, type: bond, state: up, ipv4: {enabled: false}, ipv6: {enabled: false},
     link-aggregation: {mode: 802.3ad, port: [eth1, eth2]}}
  - {name: bond0.7, type: vlan, state: up, vlan: {base-iface: bond0, id: 7},
     ipv4: {enabled: true, address: [{ip: 192.0.2.21, prefix-length: 24}]}, ipv6: {enabled: false}}
routes:
  config: [{destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: bond0.7}]
"""
STATIC = """
interfaces:
  - {name: eth0, type: ethernet, state: up, ipv6: {enabled: false},
     ipv4: {enabled: true, address: [{ip: 10.0.2.77, prefix-length: 24}]}}
routes:
  config: [{destination: 0.0.0.0/0, next-hop-address: 10.0.2.2, next-hop-interface: eth0}]
"""
LIMIT = 1800  # seconds until it hangs


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.fixture(scope="module")
def server(registry: Registry) -> Iterator[Served]:
    with Served(registry) as served:
        yield served


def published(registry: Registry, server: Served, path: str, overlay: Overlay) -> str:
    """Publish an image; its URL as machines reach this host."""
    registry.put(path, path, overlay, 0)
    return server.url(path).replace("127.0.0.1", HOST)


def arrived(done: Boot, made: hosts.HostConfig) -> None:
    """What every way of booting must bring: the Ignition byte for byte, and all that it asks for."""
    seen = done.seen
    assert seen.ignition == made.ignition
    for file in made.config["storage"]["files"]:
        parts = [file["contents"]] if "contents" in file else file["append"]
        content = b"".join(ignition.content(part) or b"" for part in parts)
        found = seen.files.pop(file["path"])
        assert (found.mode, found.sha256) == (file["mode"], hashlib.sha256(content).hexdigest()), file["path"]
    assert not seen.files
    assert seen.profiles == {name: digest(text.encode()) for name, text in made.profiles.items()}
    assert seen.units == {unit["name"]: "enabled" for unit in made.config["systemd"]["units"]}
    (command,) = seen.starts["ironic-agent.service"]
    assert command.endswith('"--name=ironic-agent" "registry.example/agent:1"')
    assert seen.keys == {"core": 1}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_iso_is_read_over_http_by_its_machine(coreos: LiveImage, registry: Registry, server: Served) -> None:
    wishes = hosts.HostInputs(
        "web-1", network=BOND_AND_VLAN, arguments=Edit(append=("console=ttyS0", "lab.host=web-1", "quiet")),
        files={"/etc/odd": (bytes(range(256)) * 3, 0o640)}, units={"more.service": "[Service]\nExecStart=/bin/true\n"},
    )  # fmt: skip
    made = hosts.build(INPUTS, wishes)
    image = hosts.iso_overlay(iso.inspect(str(coreos.iso)), made, wishes)
    published(registry, server, "/web-1.iso", image)
    done = boot(Machine(cd=server.url("/web-1.iso")), limit=LIMIT, attempts=1)
    arrived(done, made)
    assert set(made.profiles) == {"bond0.nmconnection", "bond0.7.nmconnection", "eth1.nmconnection",
                                  "eth2.nmconnection"}  # fmt: skip
    assert done.seen.starts["more.service"] == ["/bin/true"]
    assert done.seen.arguments.endswith(f"{coreos.arguments} console=ttyS0 lab.host=web-1 quiet")
    assert (done.seen.root, done.seen.rootfs_sha256) == ("medium", digest(coreos.rootfs.read_bytes()))
    assert coreos.kernel.stat().st_size < server.progress.fetched["/web-1.iso"] < 4 * image.size


def test_minimal_iso_fetches_its_root_with_its_own_network(
    coreos: LiveImage, registry: Registry, server: Served
) -> None:
    base = iso.inspect(str(coreos.iso))
    rootfs = published(registry, server, "/minimal.rootfs", iso.boot_file(base, "rootfs"))
    wishes = hosts.HostInputs("web-2", network=STATIC, arguments=Edit(append=("lab.host=web-2",)))
    made = hosts.build(INPUTS, wishes)
    image = hosts.iso_overlay(iso.minimal(base, rootfs), made, wishes, force=True)  # its arguments are changed already
    assert image.size < base.overlay.size
    published(registry, server, "/web-2.iso", image)
    done = boot(Machine(cd=server.url("/web-2.iso"), firmware="uefi"), limit=LIMIT, attempts=1)
    arrived(done, made)
    assert done.seen.address == "static eth0 10.0.2.77/24"
    assert (done.seen.root, done.seen.rootfs_sha256) == ("network", digest(coreos.rootfs.read_bytes()))
    assert f"coreos.live.rootfs_url={rootfs}" in done.seen.arguments.split()
    assert "lab.host=web-2" in done.seen.arguments.split()
    assert "coreos.liveiso" not in done.seen.arguments


def test_network_boot_by_ipxe(coreos: LiveImage, registry: Registry, server: Served) -> None:
    base = iso.inspect(str(coreos.iso))
    wishes = hosts.HostInputs("web-3", arguments=Edit(append=("lab.host=web-3",)))
    made = hosts.build(INPUTS, wishes)
    host = hosts.initramfs_overlay(bases.read_initramfs(str(coreos.initramfs)), made, wishes)
    kernel = published(registry, server, "/live.kernel", iso.boot_file(base, "kernel"))
    rootfs = published(registry, server, "/live.rootfs", iso.boot_file(base, "rootfs"))
    initrd = published(registry, server, "/web-3.initramfs", host)
    line = products.ipxe_arguments(base.kernel_arguments.default, wishes.arguments, rootfs)
    script = published(
        registry, server, "/web-3.ipxe", text(coreos.iso, products.ipxe_script("web-3", kernel, initrd, line))
    )
    done = boot(Machine(script=script), limit=LIMIT, attempts=1)
    arrived(done, made)
    assert done.seen.address.startswith("dhcp eth0 10.0.2.")
    assert (done.seen.root, done.seen.rootfs_sha256) == ("network", digest(coreos.rootfs.read_bytes()))
    assert "lab.host=web-3" in done.seen.arguments.split()
    sizes = {"/live.kernel": coreos.kernel, "/live.rootfs": coreos.rootfs}
    assert {path: server.progress.fetched[path] for path in sizes} == {
        path: file.stat().st_size for path, file in sizes.items()
    }


def text(base: Path, content: bytes) -> Overlay:
    """An image that is nothing but these bytes."""
    return Overlay(identify(str(base)), [Bytes(content)])
