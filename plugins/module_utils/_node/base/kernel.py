# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kernel modules, sysctls and swap."""

from __future__ import annotations

from . import parts

MODULES_FILE = "/etc/modules-load.d/kubenode.conf"
SYSCTL_FILE = "/etc/sysctl.d/90-kubenode.conf"

#: br_netfilter brings the net.bridge keys, so modules come before sysctls, here as at boot
_MODULES = ("overlay", "br_netfilter", "nf_conntrack")
_IPVS = ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh")

_FORWARDING = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.bridge.bridge-nf-call-arptables": "1",
    # node ports are never handed out as a client's own port
    "net.ipv4.ip_local_reserved_ports": "30000-32767",
}
_FORWARDING_6 = {
    "net.ipv6.conf.all.forwarding": "1",
    # a forwarding host ignores router advertisements, unless this is 2
    "net.ipv6.conf.all.accept_ra": "2",
}
#: what the kubelet's protectKernelDefaults wants to find
_KUBELET = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
_INOTIFY = {"fs.inotify.max_user_instances": "8192", "fs.inotify.max_user_watches": "1048576"}
#: each interface has a key of its own (all has no effect on it); those of pods must not match, pods could advertise
_UPLINKS = ("en*", "eth*")


def modules(inputs):
    """Names of the modules to load, in order."""
    names = [*_MODULES, *(_IPVS if inputs["ipvs"] else ()), *inputs["kernel_modules"]]
    return list(dict.fromkeys(names))


def sysctls(inputs):
    """Key → value of the sysctl file; the user's are laid over ours, a null takes one away."""
    values = dict(_FORWARDING)
    if inputs["ipv6"]:
        values.update(_FORWARDING_6)
    values.update(_KUBELET)
    values.update(_INOTIFY)
    for key, value in inputs["sysctls"].items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = str(value)
    return values


def kernel(node, inputs):
    """Modules first, then sysctls; each now and at every boot."""
    names, values = modules(inputs), sysctls(inputs)
    result = [parts.file("kernel/modules-file", MODULES_FILE, parts.HEADER + "".join(name + "\n" for name in names))]
    result += [
        # connection tracking is a part of some kernels' network stack that has no name of its own
        parts.setting("module", "kernel/module-" + name, name=name, optional=True if name == "nf_conntrack" else None)
        for name in names
    ]
    lines = ["%s = %s" % item for item in values.items()]
    if inputs["ipv6"]:
        lines += ["-net.ipv6.conf.%s.accept_ra = 2" % pattern for pattern in _UPLINKS]
    result.append(parts.file("kernel/sysctl-file", SYSCTL_FILE, parts.HEADER + "\n".join(lines) + "\n"))
    running = dict(values)
    uplink = ((node.get("network") or {}).get("default") or {}).get("6") or {}
    name = uplink.get("interface") or ""
    # a dot in a key separates, so an interface with a dot gets its value at the next boot only
    if inputs["ipv6"] and name and name.startswith(("en", "eth")) and "." not in name:
        running["net.ipv6.conf.%s.accept_ra" % name] = "2"
    optional = [key for key in running if key.startswith(("net.ipv6.", "kernel.keys."))]
    result.append(parts.setting("sysctl", "kernel/sysctl", values=running, optional=optional))
    return result


def swap(_node, inputs):
    """Swap off for good, or left on."""
    return [parts.setting("swap", "swap/swap", mode=inputs["swap"])]
