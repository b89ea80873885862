# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Steps that keep the host from getting in the node's way: journald, shutdown, updates, SELinux, firewall, time."""

from __future__ import annotations

from . import checks, parts
from .systems import DEBIAN, FLATCAR, known

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


def journald(_node, inputs):
    """A cap for the journal."""
    text = "%s[Journal]\nSystemMaxUse=%s\n" % (parts.HEADER, inputs["journald_max"])
    return [
        parts.file("journald/cap", "/etc/systemd/journald.conf.d/90-kubenode.conf", text),
        parts.handler("journald/restart", ["systemctl", "try-restart", "systemd-journald.service"], ["journald/cap"]),
    ]


def shutdown(node, inputs):
    """logind waits as long as the kubelet's graceful shutdown takes, whatever a file that sorts before ours says."""
    seconds = checks.seconds(inputs["shutdown_grace_period"])
    text = "%s[Login]\nInhibitDelayMaxSec=%ds\n" % (parts.HEADER, seconds)
    result = [parts.file("shutdown/logind", LOGIND + "/zz-kubenode.conf", text)]
    if known(node).family == DEBIAN:
        # unattended-upgrades ships 30 s under this name
        path = LOGIND + "/unattended-upgrades-logind-maxdelay.conf"
        result.append(parts.link("shutdown/unattended-upgrades", path, "/dev/null"))
    changed = [item["id"] for item in result]
    result.append(parts.handler("shutdown/restart", ["systemctl", "try-restart", "systemd-logind.service"], changed))
    return result


def updates(node, inputs):
    """Automatic updates leave the Kubernetes parts alone; on Flatcar they would reboot a node that was not drained."""
    if inputs["unattended_upgrades"] != "exclude":
        return []
    family = known(node).family
    if family == DEBIAN:
        lines = "".join('    "%s";\n' % pattern for pattern in _EXCLUDED)
        text = "%sUnattended-Upgrade::Package-Blacklist {\n%s};\n" % (parts.HEADER.replace("# ", "// ", 1), lines)
        return [parts.file("updates/unattended", "/etc/apt/apt.conf.d/90-kubenode-unattended", text)]
    if family == FLATCAR:
        return [
            parts.unit("updates/" + name, name + ".service", masked=True, state="stopped", optional=True)
            for name in ("update-engine", "locksmithd")
        ]
    return []


def selinux(node, inputs):
    """Enforcing or permissive, where there is an SELinux that is on."""
    if inputs["selinux"] == "unmanaged" or node.get("selinux") not in ("enforcing", "permissive"):
        return []
    return [parts.setting("selinux", "selinux/mode", mode=inputs["selinux"])]


def firewall(_node, inputs):
    """Ports that a node needs open."""
    if inputs["firewall"] != "open":
        return []
    return [parts.setting("firewall", "firewall/ports", ports=list(inputs["firewall_ports"]))]


def time_service(node):
    """Name of the time service the machine has: a running one first, then an installed one; None when it has none."""
    services = (node.get("time") or {}).get("services") or {}
    for state in ("active", "inactive"):
        for name in TIME_SERVICES:
            if services.get(name) == state:
                return name
    return None


def time(node, inputs):
    """A time service that runs. A container has its host's clock and cannot set it."""
    if inputs["time_sync"] != "ensure" or node.get("container"):
        return []
    name = time_service(node) or ("systemd-timesyncd" if known(node).family in (DEBIAN, FLATCAR) else "chronyd")
    return [parts.unit("time/unit", name + ".service", enabled=True, masked=False, state="started")]
