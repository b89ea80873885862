# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that set up the host itself: kernel, swap, journald, shutdown, updates, SELinux, firewall, time."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import base_inputs, plan_types
from .plan_types import BaseInputs
from .systems import DEBIAN, FLATCAR, known

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


def modules(inputs: BaseInputs) -> list[str]:
    """Names of the modules to load, in order."""
    names = [*_MODULES, *(_IPVS if inputs["ipvs"] else ()), *inputs["kernel_modules"]]
    return list(dict.fromkeys(names))


def sysctls(inputs: BaseInputs) -> dict[str, str]:
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


def kernel(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Modules first, then sysctls; each now and at every boot."""
    names, values = modules(inputs), sysctls(inputs)
    result = [
        plan_types.file("kernel/modules-file", MODULES_FILE, plan_types.HEADER + "".join(name + "\n" for name in names))
    ]
    result += [
        # connection tracking is a part of some kernels' network stack that has no name of its own
        plan_types.setting(
            "module", "kernel/module-" + name, name=name, optional=True if name == "nf_conntrack" else None
        )
        for name in names
    ]
    lines = ["{} = {}".format(*item) for item in values.items()]
    if inputs["ipv6"]:
        lines += [f"-net.ipv6.conf.{pattern}.accept_ra = 2" for pattern in _UPLINKS]
    result.append(plan_types.file("kernel/sysctl-file", SYSCTL_FILE, plan_types.HEADER + "\n".join(lines) + "\n"))
    running = dict(values)
    uplink = ((node.get("network") or {}).get("default") or {}).get("6") or {}
    name = uplink.get("interface") or ""
    # a dot in a key separates, so an interface with a dot gets its value at the next boot only
    if inputs["ipv6"] and name and name.startswith(("en", "eth")) and "." not in name:
        running[f"net.ipv6.conf.{name}.accept_ra"] = "2"
    optional = [key for key in running if key.startswith(("net.ipv6.", "kernel.keys."))]
    result.append(plan_types.setting("sysctl", "kernel/sysctl", values=running, optional=optional))
    return result


def swap(_node: Node, inputs: BaseInputs) -> list[Setting]:
    """Swap off permanently, or left on."""
    return [plan_types.setting("swap", "swap/swap", mode=inputs["swap"])]


LOGIND = "/etc/systemd/logind.conf.d"
#: time services by preference: what a machine has is kept
TIME_SERVICES = ("chrony", "chronyd", "systemd-timesyncd", "ntpsec", "ntpd", "ntp", "openntpd")
#: what unattended-upgrades leaves alone (regular expressions, matched from the beginning)
_EXCLUDED = (
    "^containerd",
    "^runc$",
    "^docker",
    "^cri-dockerd$",
    "^cri-tools$",
    "^kube(adm|ctl|let)$",
    "^kubernetes-cni$",
)


def journald(_node: Node, inputs: BaseInputs) -> list[Setting]:
    """A cap for the journal."""
    text = f"{plan_types.HEADER}[Journal]\nSystemMaxUse={inputs['journald_max']}\n"
    return [
        plan_types.file("journald/cap", "/etc/systemd/journald.conf.d/90-kubenode.conf", text),
        plan_types.handler(
            "journald/restart", ["systemctl", "try-restart", "systemd-journald.service"], ["journald/cap"]
        ),
    ]


def shutdown(node: Node, inputs: BaseInputs) -> list[Setting]:
    """logind waits as long as the kubelet's graceful shutdown takes; our file sorts last, so that it wins."""
    seconds = base_inputs.checked_seconds(inputs["shutdown_grace_period"])
    text = f"{plan_types.HEADER}[Login]\nInhibitDelayMaxSec={seconds}s\n"
    result = [plan_types.file("shutdown/logind", LOGIND + "/zz-kubenode.conf", text)]
    if known(node).family == DEBIAN:
        # unattended-upgrades ships 30 s under this name
        path = LOGIND + "/unattended-upgrades-logind-maxdelay.conf"
        result.append(plan_types.link("shutdown/unattended-upgrades", path, "/dev/null"))
    changed = [item["id"] for item in result]
    result.append(
        plan_types.handler("shutdown/restart", ["systemctl", "try-restart", "systemd-logind.service"], changed)
    )
    return result


def updates(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Automatic updates leave the Kubernetes parts alone; on Flatcar they would reboot a node that was not drained."""
    if inputs["unattended_upgrades"] != "exclude":
        return []
    family = known(node).family
    if family == DEBIAN:
        lines = "".join(f'    "{pattern}";\n' for pattern in _EXCLUDED)
        text = f"{plan_types.HEADER.replace('# ', '// ', 1)}Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
        return [plan_types.file("updates/unattended", "/etc/apt/apt.conf.d/90-kubenode-unattended", text)]
    if family == FLATCAR:
        return [
            plan_types.unit("updates/" + name, name + ".service", masked=True, state="stopped", optional=True)
            for name in ("update-engine", "locksmithd")
        ]
    return []


def selinux(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Enforcing or permissive, where there is an SELinux that is on."""
    if inputs["selinux"] == "unmanaged" or node.get("selinux") not in ("enforcing", "permissive"):
        return []
    return [plan_types.setting("selinux", "selinux/mode", mode=inputs["selinux"])]


def firewall(_node: Node, inputs: BaseInputs) -> list[Setting]:
    """Ports that a node needs open."""
    if inputs["firewall"] != "open":
        return []
    return [plan_types.setting("firewall", "firewall/ports", ports=list(inputs["firewall_ports"]))]


def time_service(node: Node) -> str | None:
    """Name of the time service the machine has: a running one first, then an installed one; None when it has none."""
    services = (node.get("time") or {}).get("services") or {}
    for state in ("active", "inactive"):
        for name in TIME_SERVICES:
            if services.get(name) == state:
                return name
    return None


def time(node: Node, inputs: BaseInputs) -> list[Setting]:
    """A time service that runs. A container has its host's clock and cannot set it."""
    if inputs["time_sync"] != "ensure" or node.get("container"):
        return []
    name = time_service(node) or ("systemd-timesyncd" if known(node).family in (DEBIAN, FLATCAR) else "chronyd")
    return [plan_types.unit("time/unit", name + ".service", enabled=True, masked=False, state="started")]
