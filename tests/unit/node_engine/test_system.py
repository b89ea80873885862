# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Swap, sysctls, modules, holds, SELinux, firewalls and the host name."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine, system
from tests.unit.node_engine.machine import Machine, setting

FSTAB = "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n"
HEAD = "Filename\tType\tSize\tUsed\tPriority\n"
OFF = [setting("swap", mode="off")]


@pytest.fixture
def machine(tmp_path):
    """A machine that has nothing of all this."""
    made = Machine(tmp_path)
    made.unit("swap.target", "active", "static", FragmentPath="/usr/lib/systemd/system/swap.target")
    made.put("/proc/swaps", HEAD)
    return made


@pytest.fixture
def swapping(machine):
    """Swap from everywhere: a line of fstab, a unit, a partition that was found, zram twice, and an old service."""
    machine.put("/etc/fstab", FSTAB, 0o600)
    machine.put("/proc/swaps", HEAD + "/swapfile file 4 0 -2\n/dev/zram0 partition 4 0 5\n")
    machine.put("/usr/lib/systemd/system-generators/zram-generator")
    machine.put("/etc/systemd/system/mine.swap", "[Swap]\nWhat=/mine\n")
    generated = {"SourcePath": system.FSTAB, "FragmentPath": "/run/systemd/generator/swapfile.swap"}
    machine.unit("swapfile.swap", "active", "generated", **generated)
    machine.unit("mine.swap", "active", "enabled", FragmentPath="/etc/systemd/system/mine.swap")
    machine.unit("dev-vda3.swap", "inactive", "generated", FragmentPath="/run/systemd/generator.late/dev-vda3.swap")
    machine.unit("vendor.swap", "inactive", "enabled", FragmentPath="/usr/lib/systemd/system/vendor.swap")
    machine.unit("dev-sda9.swap", "active", "")  # only mirrors /proc/swaps
    machine.unit("zramswap.service", "active", "enabled")

    def swapoff():
        machine.put("/proc/swaps", HEAD)
        return Done(0, "", "")

    machine.programs["swapoff --all"] = swapoff
    return machine


def test_swap_goes_from_everywhere_and_stays_away(swapping):
    (planned,) = swapping.plan(OFF)
    assert planned.step.changed
    (diff,) = engine.diffs([planned])
    assert "\n/etc/fstab: /swapfile none" in diff["before"]
    assert "\n/etc/fstab: # kubenode: swap is off: /swapfile none" in diff["after"]
    assert {"off: service zramswap.service", "off: zram-generator"} <= {*diff["after"].splitlines()}
    assert swapping.file("/etc/fstab").read_text() == FSTAB
    assert swapping.apply(OFF) == {"swap": True}
    assert "\n# kubenode: swap is off: /swapfile none" in swapping.file("/etc/fstab").read_text()
    assert swapping.file("/etc/fstab").stat().st_mode & 0o777 == 0o600
    assert swapping.file(system.BACKUP).read_text() == FSTAB
    assert swapping.file(system.ZRAM).read_text() == system.ZRAM_EMPTY
    for name in ("swap.target", "vendor.swap"):
        assert os.readlink(swapping.file("/etc/systemd/system/" + name)) == "/dev/null"
    for name in ("swapfile.swap", "dev-sda9.swap", "dev-vda3.swap"):  # these start with swap.target alone
        assert not swapping.file("/etc/systemd/system/" + name).exists()
    assert swapping.file("/etc/systemd/system/mine.swap").read_text() == "[Swap]\nWhat=/mine\n"
    assert "ConditionPathExists=!/" in swapping.file("/etc/systemd/system/mine.swap.d/90-kubenode.conf").read_text()
    assert swapping.ran[-1] == "swapoff --all"
    assert "systemctl disable --now zramswap.service" in swapping.ran
    assert "systemctl daemon-reload" in swapping.ran[: swapping.ran.index("swapoff --all")]
    # systemd has read that meanwhile
    for name in ("swap.target", "vendor.swap"):
        swapping.units[name].update(UnitFileState="masked", LoadState="masked")
    swapping.units["zramswap.service"].update(UnitFileState="disabled", ActiveState="inactive")
    # without a line in fstab, its generator now finds the partition by itself
    swapping.unit("dev-vda4.swap", "inactive", "generated", FragmentPath="/run/systemd/generator.late/dev-vda4.swap")
    assert swapping.apply(OFF) == {"swap": False}


def test_the_first_backup_of_fstab_is_kept(swapping):
    swapping.apply(OFF)
    swapping.put("/etc/fstab", "/other none swap sw 0 0\n")
    swapping.apply(OFF)
    assert swapping.file(system.BACKUP).read_text() == FSTAB
    assert swapping.file("/etc/fstab").read_text() == "# kubenode: swap is off: /other none swap sw 0 0\n"


def test_swap_that_does_not_go_is_named(swapping):
    swapping.programs["swapoff --all"] = Done(2, "", "swapoff: /swapfile: Cannot allocate memory")
    with pytest.raises(engine.ApplyError, match=r"still in use: /swapfile, /dev/zram0 \(swapoff: /swapfile: Cannot"):
        swapping.apply(OFF)


@pytest.mark.parametrize("mode", ["limited", "keep"])
def test_swap_may_stay(swapping, mode):
    assert swapping.apply([setting("swap", mode=mode)]) == {"swap": False}
    assert swapping.file("/etc/fstab").read_text() == FSTAB


def test_a_container_leaves_the_swap_of_its_host(swapping):
    swapping.put("/run/systemd/container", "systemd-nspawn")
    assert swapping.apply(OFF) == {"swap": True}
    assert "swapoff --all" not in swapping.ran
    assert "container" in swapping.warnings[0]


def test_sysctls(machine):
    machine.put("/proc/sys/net/ipv4/ip_forward", "0\n")
    machine.put("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    values = {"net.ipv4.ip_forward": 1, "net.ipv4.ip_local_port_range": "32768 60999", "net.bridge.x": "1"}
    wanted = [setting("sysctl", values=values, optional=["net.bridge.x"])]
    (planned,) = machine.plan(wanted)
    assert planned.step.diff["before"] == "net.ipv4.ip_forward = 0\n"
    assert planned.step.diff["after"] == "net.ipv4.ip_forward = 1\n"
    assert machine.apply(wanted) == {"sysctl": True}
    assert machine.file("/proc/sys/net/ipv4/ip_forward").read_text() == "1\n"
    assert machine.apply(wanted) == {"sysctl": False}
    with pytest.raises(engine.PlanError, match=r"has no sysctl net\.bridge\.x"):
        machine.apply([setting("sysctl", values=values)])


def test_sysctls_that_a_module_brings(machine):
    release = os.uname().release
    machine.put(f"/lib/modules/{release}/modules.dep", "kernel/net/bridge/br_netfilter.ko: \n")
    wanted = [setting("module", name="br_netfilter"), setting("sysctl", values={"net.bridge.x": "1"})]
    assert [item.step.changed for item in machine.plan(wanted)] == [True, True]

    def load():
        machine.put("/proc/sys/net/bridge/x", "0\n")
        machine.put("/proc/modules", "br_netfilter 32768 0 - Live 0x0\n")
        return Done(0, "", "")

    machine.programs["modprobe -- br_netfilter"] = load
    assert machine.apply(wanted) == {"module": True, "sysctl": True}
    assert machine.apply(wanted) == {"module": False, "sysctl": False}


def test_a_module_that_is_not_there(machine):
    wanted = setting("module", name="nope")
    with pytest.raises(engine.PlanError, match="has no module nope"):
        machine.apply([wanted])
    assert machine.apply([{**wanted, "optional": True}]) == {"module": False}


def test_a_container_says_once_that_it_shares_its_kernel(machine):
    machine.put("/run/systemd/container", "systemd-nspawn")
    machine.put("/proc/sys/kernel/panic", "0\n")
    wanted = [setting("module", name="nope"), setting("sysctl", values={"kernel.panic": 10})]
    assert not any(machine.apply(wanted).values())
    assert len(machine.warnings) == 1
    machine.put("/proc/sys/kernel/panic", "10\n")
    machine.warnings.clear()
    machine.apply(wanted[1:])
    assert machine.warnings == [], "nothing differs"


def program(machine: Machine, path: str) -> None:
    """Install a program."""
    machine.put(path, "", 0o755)


def test_packages_are_held_with_apt(machine):
    program(machine, "/usr/bin/apt-get")
    machine.programs["apt-mark showhold"] = Done(0, "kubelet\n", "")
    assert machine.apply([setting("hold", packages=["kubelet", "containerd"], held=True)]) == {"hold": True}
    assert machine.ran == ["apt-mark showhold", "apt-mark hold -- containerd"]
    assert machine.apply([setting("hold", packages=["kubelet", "containerd"], held=False)]) == {"hold": True}
    assert machine.ran[-1] == "apt-mark unhold -- kubelet"
    assert machine.apply([setting("hold", packages=["kubelet"], held=True)]) == {"hold": False}


def test_packages_are_held_with_dnf(machine):
    program(machine, "/usr/bin/dnf")
    machine.put("/etc/dnf/plugins/versionlock.list", "kubelet-0:1.36.4-150500.1.1.*\n")
    assert machine.apply([setting("hold", packages=["kubelet", "containerd.io"], held=True)]) == {"hold": True}
    assert machine.ran == ["dnf versionlock add containerd.io"]


def test_selinux(machine):
    wanted = [setting("selinux", mode="permissive")]
    assert machine.apply(wanted) == {"selinux": False}
    machine.put("/etc/selinux/config", "# c\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    assert machine.apply(wanted) == {"selinux": False}, "off in this boot"
    machine.put("/sys/fs/selinux/enforce", "1")
    assert machine.apply(wanted) == {"selinux": True}
    assert machine.file("/etc/selinux/config").read_text() == "# c\nSELINUX=permissive\nSELINUXTYPE=targeted\n"
    assert machine.ran == ["setenforce 0"]
    machine.put("/sys/fs/selinux/enforce", "0")
    assert machine.apply(wanted) == {"selinux": False}
    assert system.with_mode("SELINUXTYPE=targeted", "enforcing") == "SELINUXTYPE=targeted\nSELINUX=enforcing\n"
    machine.file("/sys/fs/selinux/enforce").unlink()
    with pytest.raises(engine.PlanError, match="SELinux is disabled in this boot"):
        machine.apply([setting("selinux", mode="enforcing")])


def test_files_get_their_selinux_label(machine):
    machine.put("/sys/fs/selinux/enforce", "1")
    program(machine, "/usr/sbin/restorecon")
    machine.apply([setting("file", path="/new/x", content="")])
    assert machine.ran == [f"restorecon -- {machine.file('/new')} {machine.file('/new/x')}"]


PORTS = [setting("firewall", ports=["10250/tcp", "30000-32767/udp"])]


def test_firewalld_now_and_for_good(machine):
    machine.unit("firewalld.service", "active", "enabled")
    machine.programs["firewall-cmd --list-ports"] = Done(0, "10250/tcp\n", "")
    machine.programs["firewall-cmd --permanent --list-ports"] = Done(0, "\n", "")
    assert machine.apply(PORTS) == {"firewall": True}
    assert machine.ran[2:] == [
        "firewall-cmd --permanent --add-port=10250/tcp --add-port=30000-32767/udp",
        "firewall-cmd --add-port=30000-32767/udp",
    ]


def test_ufw(machine):
    program(machine, "/usr/sbin/ufw")
    machine.programs["ufw status"] = Done(0, "Status: active\n", "")
    machine.programs["ufw show added"] = Done(0, "Added user rules:\nufw allow 10250/tcp\nufw allow 22\n", "")
    assert machine.apply(PORTS) == {"firewall": True}
    assert machine.ran[2:] == ["ufw allow 30000:32767/udp"]
    assert system.ufw_allowed("ufw allow from 10.0.0.0/8 to any port 1/tcp\nufw deny 2/tcp\n") == set()


def test_without_a_firewall_nothing_is_opened(machine):
    machine.unit("firewalld.service", "inactive", "disabled")
    assert machine.apply(PORTS) == {"firewall": False}


def test_the_host_name(machine):
    now = os.uname().nodename
    machine.put("/etc/hostname", now + "\n")
    assert machine.apply([setting("hostname", name=now.lower())]) == {"hostname": now != now.lower()}
    assert machine.apply([setting("hostname", name="node-7")]) == {"hostname": True}
    assert machine.file("/etc/hostname").read_text() == "node-7\n"
    assert machine.ran == ["hostname -- node-7"]


# --- swap lines of fstab: exactly these become comments, and nothing else changes


TABLE = """# /etc/fstab: swap was on /dev/sda3 during installation
UUID=1 / ext4 errors=remount-ro 0 1
UUID=2 none            swap    sw              0       0
/swap.img\tnone\tswap\tsw\t0\t0
# UUID=3 none swap sw 0 0
/var/swap /mnt/swap none bind 0 0
/dev/vg/swap /data ext4 defaults 0 2
tmpfs /swap tmpfs defaults 0 0
  LABEL=s swap swap defaults
"""


def test_only_real_swap_lines_become_comments():
    assert [line.split()[0] for line in system.swap_lines(TABLE)] == ["UUID=2", "/swap.img", "LABEL=s"]
    done = system.without_swap(TABLE).splitlines()
    assert done[2] == "# kubenode: swap is off: UUID=2 none            swap    sw              0       0"
    assert done[3] == "# kubenode: swap is off: /swap.img\tnone\tswap\tsw\t0\t0"
    assert done[8] == "# kubenode: swap is off: LABEL=s swap swap defaults"
    assert [line for index, line in enumerate(done) if index not in (2, 3, 8)] == [
        line for index, line in enumerate(TABLE.splitlines()) if index not in (2, 3, 8)
    ]


WORDS = st.sampled_from(["swap", "none", "#", "#x", "UUID=1", "ext4", " ", "\t", "\n", "\r\n", "\x0b", "\x85", "é"])


@given(st.one_of(st.text(), st.lists(WORDS).map("".join), st.lists(WORDS).map(" ".join)))
def test_nothing_is_lost_and_once_is_enough(text):
    done = system.without_swap(text)
    assert system.swap_lines(done) == []
    assert system.without_swap(done) == done
    assert done.count("\n") == text.count("\n")
    wanted = [line if not system.swap_lines(line) else system.MARK + line.lstrip() for line in text.split("\n")]
    assert done.split("\n") == wanted
