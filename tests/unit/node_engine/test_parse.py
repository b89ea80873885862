# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine's files and programs say, as recorded on real systems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node import facts

UBUNTU = """PRETTY_NAME="Ubuntu 24.04.1 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
# a comment
BROKEN="unclosed
"""

ADDRESSES = """[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"addr_info":[
  {"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
 {"ifindex":2,"ifname":"eth0","flags":["BROADCAST","UP"],"addr_info":[
  {"family":"inet","local":"203.0.113.7","prefixlen":32,"scope":"global","dynamic":true},
  {"family":"inet6","local":"2001:db8::7","prefixlen":64,"scope":"global","deprecated":true}]},{}]"""

UNITS = """LoadState=loaded
ActiveState=active
UnitFileState=enabled

LoadState=not-found
ActiveState=inactive
UnitFileState=

LoadState=masked
ActiveState=inactive
UnitFileState=masked
"""


def test_os_release():
    assert facts.os_release(UBUNTU) == {
        "id": "ubuntu",
        "version_id": "24.04",
        "id_like": ["debian"],
        "pretty_name": "Ubuntu 24.04.1 LTS",
        "codename": "noble",
    }
    rocky = facts.os_release('ID="rocky"\nVERSION_ID="9.6"\nID_LIKE="rhel centos fedora"\n')
    assert (rocky["id"], rocky["version_id"], rocky["id_like"]) == ("rocky", "9.6", ["rhel", "centos", "fedora"])
    assert facts.os_release(None)["id"] == ""


def test_addresses_and_routes():
    first, second = facts.addresses(ADDRESSES)
    assert first == {
        "address": "203.0.113.7",
        "prefix": 32,
        "family": 4,
        "interface": "eth0",
        "scope": "global",
        "dynamic": True,
        "deprecated": False,
    }
    assert (second["family"], second["deprecated"]) == (6, True)
    onlink = '[{"dst":"1.0.0.0","gateway":"172.31.1.1","dev":"eth0","prefsrc":"203.0.113.7","flags":[],"uid":0}]'
    assert facts.route(onlink) == {"address": "203.0.113.7", "interface": "eth0", "gateway": "172.31.1.1"}
    other_family = '[{"dst":"1.0.0.0","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","prefsrc":"203.0.113.7"}]'
    assert facts.route(other_family)["gateway"] == "fe80::1"
    assert facts.route('[{"type":"unreachable","dst":"2000::","dev":"lo","prefsrc":"::1"}]') is None
    for nothing in ("", "RTNETLINK answers: Network is unreachable", "[]", "{}", None):
        assert facts.route(nothing) is None
        assert facts.addresses(nothing) == []


def test_units_are_matched_by_their_order():
    found = facts.units(UNITS, ["a.service", "b.service", "c.service"])
    assert facts.unit_facts(found["a.service"]) == {"load": "loaded", "active": "active", "enabled": "enabled"}
    assert [facts.service_state(found[name]) for name in found] == ["active", "absent", "inactive"]
    assert facts.units("", ["a.service"]) == {}
    assert facts.unit_facts({}) == {"load": "not-found", "active": "inactive", "enabled": ""}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Kubernetes v1.36.4", "1.36.4"),
        ("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1", "1.7.24~ds1"),
        ("containerd github.com/containerd/containerd/v2 v2.1.9 1c4457e", "2.1.9"),
        ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev", "1.1.5+ds1"),
        ("crictl version v1.36.0", "1.36.0"),
        ("CNI bridge plugin v1.9.1\nCNI protocol versions supported: 0.1.0", "1.9.1"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd", "26.1.5+dfsg1"),
        ("Client Version: v1.36.4\nKustomize Version: v5.7.1", "1.36.4"),
        ("Kubernetes v1.37.0-rc.1", "1.37.0-rc.1"),
        ("no version here", None),
        ("", None),
    ],
)
def test_versions_of_programs(said, version):
    assert facts.version(said) == version


def test_swaps_and_memory():
    text = (
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/swap\\040file                          file\t\t1048572\t\t0\t\t-2\n"
        "/dev/zram0                              partition\t262144\t0\t100\n"
    )
    assert facts.swaps(text) == [
        {"name": "/swap file", "type": "file", "size": 1048572 * 1024},
        {"name": "/dev/zram0", "type": "partition", "size": 262144 * 1024},
    ]
    assert facts.swaps("Filename\tType\tSize\tUsed\tPriority\n") == facts.swaps(None) == []
    assert facts.memory_bytes("MemFree: 1 kB\nMemTotal:       2048 kB\n") == 2 << 20


def test_nameservers():
    assert facts.nameservers("# x\nsearch a\nnameserver 192.0.2.1\n nameserver 2001:db8::1 \nnameserver\n") == [
        "192.0.2.1",
        "2001:db8::1",
    ]


def test_module_names():
    deps = "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\nkernel/fs/overlayfs/overlay.ko:\n"
    assert facts.module_names(deps) == {"br_netfilter", "overlay"}
    assert facts.module_names("kernel/net/netfilter/nf-x.ko.zst") == {"nf_x"}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
        ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("net/ipv4/conf/eth0.100/rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ("kernel.panic", "kernel/panic"),
    ],
)
def test_sysctl_paths(key, path):
    assert facts.sysctl_path(key) == "/proc/sys/" + path


def test_installed_known_and_held_packages_of_dpkg_are_distinguished():
    text = (
        "bash\t5.2.15-2+b8\tii \ncurl\t7.88.1\thi \nold\t1\trc \nnew\t\tun \ntriggers\t2\tiW \n"
        "dpkg-query: no packages found matching nope\n"
    )
    assert facts.dpkg_packages(text) == ({"bash": "5.2.15-2+b8", "curl": "7.88.1", "triggers": "2"}, {"curl"})


def test_rpm_and_candidates():
    text = "bash\t5.1.8-9.el9\npackage nope is not installed\nbind\t32:9.16.23-1.el9\n"
    assert facts.rpm_packages(text) == {"bash": "5.1.8-9.el9", "bind": "32:9.16.23-1.el9"}
    kernels = "k\t(none):6.12.0-55.el10\nk\t(none):6.12.0-55.7.el10\nk\t(none):6.12.0-99.el10\n"
    assert facts.rpm_packages(kernels, "6.12.0-55.7.el10.x86_64") == {"k": "6.12.0-55.7.el10"}
    assert facts.rpm_packages(kernels, "6.12.0-55.el10.x86_64") == {"k": "6.12.0-55.el10"}
    assert facts.rpm_packages(kernels, "6.13.0") == facts.rpm_packages(kernels) == {"k": "6.12.0-99.el10"}
    policy = (
        "containerd:\n  Installed: (none)\n  Candidate: 1.7.24~ds1-6+deb13u1\n  Version table:\n"
        "     1.7.24 500\nghost:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    assert facts.apt_policy(policy) == {"containerd": "1.7.24~ds1-6+deb13u1"}


def test_version_locks_of_dnf_4_and_5():
    dnf4 = "# Added lock on Sat\ncontainerd.io-0:2.2.1-1.el9.*\nkubelet-0:1.36.4-150500.1.1.*\n!excluded-0:1-1.*\n"
    assert facts.versionlock(dnf4) == {"containerd.io", "kubelet"}
    dnf5 = 'version = "1.0"\n\n[[packages]]\nname = "kubelet"\ncomment = "x"\n[[packages.conditions]]\nkey = "evr"\n'
    assert facts.versionlock(dnf5) == {"kubelet"}


@given(st.text())
def test_no_text_breaks_a_parser(text):
    for read in (
        facts.os_release,
        facts.swaps,
        facts.addresses,
        facts.route,
        facts.nameservers,
        facts.version,
        facts.module_names,
        facts.dpkg_packages,
        facts.rpm_packages,
        facts.apt_policy,
        facts.versionlock,
    ):
        read(text)
    facts.units(text, ["a", "b"])
