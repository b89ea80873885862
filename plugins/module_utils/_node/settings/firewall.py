# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Ports that the machine's firewall lets in, where one is at work."""

from __future__ import annotations

import re

from .files import tail
from .plan import SettingError, Step, same

_ALLOWED = re.compile(r"^(?:ufw )?allow (?:in )?([0-9:]+/(?:tcp|udp))\b", re.MULTILINE)


def ufw_port(port):
    """A port or a range as ufw writes it. Pure."""
    return port.replace("-", ":")


def ufw_allowed(text):
    """Ports that `ufw show added` has for everybody. Pure."""
    return set(_ALLOWED.findall(text))


def plan_firewall(context, setting):
    """firewalld or ufw, whichever is active; without either nothing is closed and nothing is to be opened."""
    host, ports = context.host, setting["ports"]
    if context.unit("firewalld.service").get("ActiveState") == "active":
        return _plan(ports, *_firewalld(host, ports))
    if host.find("ufw") and "Status: active" in host.run(["ufw", "status"]).out:
        allowed = ufw_allowed(_said(host, ["ufw", "show", "added"]))
        missing = [port for port in ports if ufw_port(port) not in allowed]
        return _plan(ports, missing, [(["ufw", "allow", ufw_port(port)]) for port in missing], host)
    return same("no active firewall")


def _firewalld(host, ports):
    now = set(_said(host, ["firewall-cmd", "--list-ports"]).split())
    later = set(_said(host, ["firewall-cmd", "--permanent", "--list-ports"]).split())
    commands = []
    for options, open_ports in ((["--permanent"], later), ([], now)):
        wanted = ["--add-port=" + port for port in ports if port not in open_ports]
        if wanted:
            commands.append(["firewall-cmd"] + options + wanted)
    return [port for port in ports if port not in now or port not in later], commands, host


def _plan(ports, missing, commands, host):
    before = "open: " + (", ".join(port for port in ports if port not in missing) or "none of them")
    if not missing:
        return same(before)

    def act():
        for argv in commands:
            _said(host, argv)

    return Step(True, before, "open: " + ", ".join(ports), "closed: " + ", ".join(missing), act)


def _said(host, argv):
    done = host.run(argv, 60)
    if done.code:
        raise SettingError("%s failed: %s" % (" ".join(argv), tail(done)))
    return done.out
