# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a machine with a kernel of its own shows: swap from every source, modules, kernel settings, a reboot."""

import pytest

from tests.integration.controller import Controller
from tests.integration.mirrored import mirrored

pytestmark = [pytest.mark.root, pytest.mark.qemu, pytest.mark.mirror, pytest.mark.timeout(7200)]

BASE = "kubenode.provision.node_base"
#: Swap from a file in fstab, from zram, and (the lab's) from a partition that systemd finds by itself. Its unit is gone
#: as soon as fstab names a swap; and a boot gives up a device after 90 seconds, which an emulated machine may need.
SWAP = """\
set -e
udevadm settle --timeout=900; systemctl start dev-sda3.swap
fallocate -l 64M /swap.img; chmod 600 /swap.img; mkswap -q /swap.img; swapon /swap.img
printf '%s\\n' '# swap comes next, says this comment' '/swap.img none swap sw 0 0' >> /etc/fstab
printf '[zram0]\\nzram-size = 32\\n' > /etc/systemd/zram-generator.conf
apt-get -qq update; apt-get -qq install -y --no-install-recommends systemd-zram-generator
systemctl daemon-reload; systemctl start systemd-zram-setup@zram0.service dev-zram0.swap
"""
VALUES = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.ipv6.conf.all.forwarding": "1",
    "net.ipv6.conf.all.accept_ra": "2",
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
    "fs.inotify.max_user_instances": "8192",
    "fs.inotify.max_user_watches": "1048576",
}


@pytest.fixture
def node(lab_qemu):
    """A machine with a swap partition; gone afterwards."""
    yield lab_qemu.node("base-qemu", "debian13", swap="128M")
    lab_qemu.remove("base-qemu")


def test_base_lasts_over_a_reboot(lab_qemu, node, tmp_path):
    node.run(SWAP, 1800)
    active = node.run("tail -n +2 /proc/swaps | cut -d' ' -f1").split()
    assert len(active) == 3, active
    fstab = node.run("cat /etc/fstab")

    controller = Controller(lab_qemu, tmp_path)
    controller.add_nodes(node)
    variables = mirrored(lab_qemu)
    controller.play(BASE, limit=3000, **variables).ok()
    prove(node)

    before = node.boot_id()
    node.ssh("systemctl reboot")
    node.wait(unless=before)
    prove(node)
    kept = [line for line in node.run("cat /etc/fstab").splitlines() if line in fstab.splitlines()]
    assert len(kept) == len(fstab.splitlines()) - 1, "only the line of the swap file was taken out"

    second = controller.play(BASE, "--diff", limit=3000, **variables).ok()
    reasons = [step for entry in second.of("base-qemu") for step in entry["result"].get("steps", []) if step["changed"]]
    assert reasons == [], reasons
    assert second.changed("base-qemu") == [], second.output


def prove(node) -> None:
    """No swap, all modules and values, all services."""
    assert node.run("tail -n +2 /proc/swaps") == ""
    modules = set(node.run("cut -d' ' -f1 /proc/modules").split())
    assert {"overlay", "br_netfilter", "nf_conntrack"} <= modules
    shown = node.run("sysctl " + " ".join(VALUES))
    assert dict(line.split(" = ") for line in shown.splitlines()) == VALUES
    assert node.run("systemctl is-active containerd kubenode-runtime-probe.timer").split() == ["active"] * 2
    assert node.run("systemctl is-active kubelet || true") == "inactive"
    assert node.run("systemctl list-units --failed --no-legend") == ""
    assert "RuntimeReady" in node.run("crictl info")
