# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Settings of the system: kernel modules, sysctls, handlers, firewall, held packages, host name, SELinux.

Modules and sysctls are those of the running kernel; their files are settings of the kind file.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping

from .. import info, parse
from ..host import Host, write_file
from .context import Context, Setting, SettingError, Step, same
from .files import tail

_SHARED = "this is a container, which shares its kernel: modules and sysctls are left as they are"
_FIXED = "/proc/sys is read-only: sysctls are left as they are"


def plan_module(context: Context, setting: Setting) -> Step:
    """A kernel module that is loaded or built in."""
    name = setting["name"]
    state = context.module(name)
    if state in ("loaded", "builtin"):
        return same(state)
    if context.container:
        context.warn(_SHARED)
        return same(state, "in a container")
    if state == "missing":
        if setting.get("optional"):
            return same(state, "is optional")
        raise SettingError(
            "the running kernel %s has no module %s; install the kernel's modules (%s), or reboot into the kernel that"
            " is installed" % (os.uname().release, name, _package(os.uname().release))
        )

    def act() -> None:
        done = context.host.run(["modprobe", "--", name], 60)
        if done.code:
            raise SettingError("module %s cannot be loaded: %s" % (name, tail(done)))

    context.changed.add("module:" + name)
    return Step(True, state, "loaded", "is not loaded", act)


def _package(release: str) -> str:
    """The package that brings the modules of a kernel which are not for every machine."""
    return "kernel-modules-extra-" + release if ".el" in release else "linux-modules-extra-%s on Ubuntu" % release


def plan_sysctl(context: Context, setting: Setting) -> Step:
    """Values of the running kernel."""
    host, optional = context.host, set(setting.get("optional") or ())
    wanted = {key: parse.sysctl_value(value) for key, value in setting["values"].items()}
    now = {key: parse.sysctl_value(host.text(parse.sysctl_path(key))) for key in wanted}
    different = {key: value for key, value in wanted.items() if value is not None and now[key] != value}
    missing = sorted(key for key in different if not host.exists(parse.sysctl_path(key)))
    # a module that is yet to be loaded may bring them
    coming = any(key.startswith("module:") for key in context.changed)
    before = _lines({key: now[key] for key in wanted if now[key] is not None})
    if not different or (set(missing) == set(different) <= optional and not coming):
        return same(before)
    if context.container:
        context.warn(_SHARED)
        return same(before, "in a container")
    if _read_only(host):
        context.warn(_FIXED)
        return same(before, "read-only")
    wrong = [key for key in missing if key not in optional]
    if wrong and not coming:
        raise SettingError("the running kernel has no sysctl %s" % ", ".join(wrong))

    def act() -> None:
        for key, value in different.items():
            _set(host, key, value, key in optional)

    shown = {key: value for key, value in different.items() if key not in missing or coming}
    diff = {
        "before_header": "sysctl",
        "after_header": "sysctl",
        "before": _lines({key: now[key] for key in shown if now[key] is not None}),
        "after": _lines(shown),
    }
    return Step(True, diff["before"], diff["after"], "%d of %d differ" % (len(shown), len(wanted)), act, diff=diff)


def _lines(values: Mapping[str, str | None]) -> str:
    return "".join("%s = %s\n" % pair for pair in sorted(values.items()))


def _read_only(host: Host) -> bool:
    try:
        return bool(os.statvfs(host.path("/proc/sys")).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _set(host: Host, key: str, value: str, optional: bool) -> None:
    try:
        with open(host.path(parse.sysctl_path(key)), "r+", encoding="utf-8") as file:
            file.write(value + "\n")
    except OSError as error:
        if error.errno == errno.ENOENT and optional:
            return
        raise SettingError("sysctl %s cannot be set to %s: %s" % (key, value, error.strerror)) from error
    now = parse.sysctl_value(host.text(parse.sysctl_path(key)))
    if now != value:
        raise SettingError("sysctl %s is %s after it was set to %s" % (key, now, value))


_HANDLER_SECONDS = 300


def plan_handler(context: Context, setting: Setting) -> Step:
    """A command that runs when one of the settings in ``on`` changed."""
    heard = context.heard(setting["id"], setting["on"])
    if not heard:
        return same("nothing to do")
    argv = list(setting["argv"])

    def act() -> None:
        context.reload()
        done = context.host.run(argv, _HANDLER_SECONDS)
        if done.code:
            raise SettingError("%s failed: %s" % (" ".join(argv), tail(done)))

    return Step(True, "due", "done: " + " ".join(argv), ", ".join(heard) + " changed", act)


_ALLOWED = re.compile(r"^(?:ufw )?allow (?:in )?([0-9:]+/(?:tcp|udp))\b", re.MULTILINE)


def ufw_port(port: str) -> str:
    """A port or a range as ufw writes it. Pure."""
    return port.replace("-", ":")


def ufw_allowed(text: str) -> set[str]:
    """Ports that `ufw show added` has for every source. Pure."""
    return set(_ALLOWED.findall(text))


def plan_firewall(context: Context, setting: Setting) -> Step:
    """firewalld or ufw, whichever is active; without either nothing is closed and nothing is to be opened."""
    host, ports = context.host, setting["ports"]
    if context.unit("firewalld.service").get("ActiveState") == "active":
        return _plan_ports(ports, *_firewalld(host, ports))
    if host.find("ufw") and "Status: active" in host.run(["ufw", "status"]).out:
        allowed = ufw_allowed(_said(host, ["ufw", "show", "added"]))
        missing = [port for port in ports if ufw_port(port) not in allowed]
        return _plan_ports(ports, missing, [(["ufw", "allow", ufw_port(port)]) for port in missing], host)
    return same("no active firewall")


def _firewalld(host: Host, ports: list[str]) -> tuple[list[str], list[list[str]], Host]:
    now = set(_said(host, ["firewall-cmd", "--list-ports"]).split())
    later = set(_said(host, ["firewall-cmd", "--permanent", "--list-ports"]).split())
    commands = []
    for options, open_ports in ((["--permanent"], later), ([], now)):
        wanted = ["--add-port=" + port for port in ports if port not in open_ports]
        if wanted:
            commands.append(["firewall-cmd"] + options + wanted)
    return [port for port in ports if port not in now or port not in later], commands, host


def _plan_ports(ports: list[str], missing: list[str], commands: list[list[str]], host: Host) -> Step:
    before = "open: " + (", ".join(port for port in ports if port not in missing) or "none of them")
    if not missing:
        return same(before)

    def act() -> None:
        for argv in commands:
            _said(host, argv)

    return Step(True, before, "open: " + ", ".join(ports), "closed: " + ", ".join(missing), act)


def _said(host: Host, argv: list[str]) -> str:
    done = host.run(argv, 60)
    if done.code:
        raise SettingError("%s failed: %s" % (" ".join(argv), tail(done)))
    return done.out


def plan_hold(context: Context, setting: Setting) -> Step:
    """apt-mark hold, or dnf versionlock."""
    host, held = context.host, setting["held"]
    manager = info.package_manager(host)
    if manager == "none" or not setting["packages"]:
        return same("nothing to hold")
    now = _held(host, manager)
    different = [name for name in setting["packages"] if (name in now) != held]
    before = "held: " + (", ".join(sorted(now & set(setting["packages"]))) or "none")
    if not different:
        return same(before)

    def act() -> None:
        if manager == "apt":
            argv = ["apt-mark", "hold" if held else "unhold", "--"] + different
        else:
            argv = [host.find("dnf") or "dnf5", "versionlock", "add" if held else "delete"] + different
        done = host.run(argv, 180)
        if done.code:
            missing = "" if manager == "apt" else "; dnf needs its versionlock plugin"
            raise SettingError("%s failed%s: %s" % (" ".join(argv), missing, tail(done)))

    reason = "%s %s held" % (", ".join(different), "is not" if held else "is")
    after = set(now & set(setting["packages"])) | set(different) if held else set()
    return Step(True, before, "held: " + (", ".join(sorted(after)) or "none"), reason, act)


def _held(host: Host, manager: str) -> set[str]:
    if manager == "dnf":
        return {name for path in info.VERSIONLOCKS for name in parse.versionlock(host.text(path))}
    done = host.run(["apt-mark", "showhold"], 60)
    if done.code:
        raise SettingError("apt-mark showhold failed: %s" % tail(done))
    return set(done.out.split())


_HOSTNAME = "/etc/hostname"


def static_name(text: str | None) -> str:
    """The name in /etc/hostname; empty when there is none. Pure."""
    lines = (line.strip() for line in (text or "").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def plan_hostname(context: Context, setting: Setting) -> Step:
    """Now, and after the next boot."""
    host, name = context.host, setting["name"]
    now, later = os.uname().nodename, static_name(host.text(_HOSTNAME))
    if now == later == name:
        return same(name)

    def act() -> None:
        if later != name:
            write_file(host, _HOSTNAME, (name + "\n").encode("ascii"), 0o644)
            context.label([_HOSTNAME])
        if now != name:
            done = host.run(["hostname", "--", name], 30)
            if done.code:
                raise SettingError("the name %s cannot be set: %s" % (name, tail(done)))

    return Step(True, now if now == later else "%s, after a reboot %s" % (now, later or "none"), name, "differs", act)


_SELINUX_CONFIG = "/etc/selinux/config"
_SELINUX_MODE = re.compile(r"^[ \t]*SELINUX[ \t]*=[ \t]*(\S*)[ \t]*$", re.MULTILINE)


def configured(text: str | None) -> str | None:
    """The mode in /etc/selinux/config; None when it has none. Pure."""
    found = _SELINUX_MODE.findall(text or "")
    return found[-1] if found else None


def with_mode(text: str, mode: str) -> str:
    """The same file with another mode. Pure."""
    if configured(text) is None:
        return text + ("" if not text or text.endswith("\n") else "\n") + "SELINUX=%s\n" % mode
    return _SELINUX_MODE.sub("SELINUX=" + mode, text)


def plan_selinux(context: Context, setting: Setting) -> Step:
    """Where SELinux is off in this boot, only the next one can be prepared, and only towards permissive."""
    host, mode = context.host, setting["mode"]
    state, text = info.selinux(host), host.text(_SELINUX_CONFIG)
    if state == "absent":
        return same(state)
    later = configured(text) if text is not None else None
    if state == "disabled":
        if mode == "enforcing":
            raise SettingError("SELinux is disabled in this boot; enable it, reboot, and try again")
        return same(state)
    before = "%s, after a reboot %s" % (state, later)
    write = text is not None and later != mode
    if state == mode and not write:
        return same(before)

    def act() -> None:
        if write and text is not None:
            write_file(host, _SELINUX_CONFIG, with_mode(text, mode).encode("utf-8"), 0o644)
            context.label([_SELINUX_CONFIG])
        if state != mode:
            done = host.run(["setenforce", "1" if mode == "enforcing" else "0"], 60)
            if done.code:
                raise SettingError("setenforce failed: %s" % tail(done))

    return Step(True, before, "%s, after a reboot %s" % (mode, mode), "is %s" % before, act)
