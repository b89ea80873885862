# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Settings of the system: swap, kernel modules, sysctls, handlers, firewall, held packages, host name, SELinux.

Swap is switched off permanently: what is in use now, and everything that would bring it back at the next boot.
Modules and sysctls are those of the running kernel; their files are settings of the kind file.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Callable, Optional, Tuple

from .. import facts, info
from ..host import Host, write_file, write_link
from .context import Context, Setting, SettingError, Step, same
from .files import run, tail

MARK = "# kubenode: swap is off: "


def swap_lines(text: str) -> list[str]:
    """The lines that really activate swap, without line ends."""
    return [line.rstrip("\r\n") for line in _fstab_lines(text) if _is_swap(line)]


def without_swap(text: str) -> str:
    """The same table with these lines turned into comments; everything else stays as it is, byte by byte."""
    return "".join(MARK + line.lstrip() if _is_swap(line) else line for line in _fstab_lines(text))


def _fstab_lines(text: str) -> list[str]:
    """Lines as mount(8) sees them: only a newline ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _is_swap(line: str) -> bool:
    fields = line.split()
    return len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap"


#: what it is, the path that it makes (if any), and how it is done
Job = Tuple[str, Optional[str], Callable[[], None]]

FSTAB = "/etc/fstab"
BACKUP = "/etc/fstab.kubenode-before-swap-off"
ZRAM = "/etc/systemd/zram-generator.conf"
ZRAM_EMPTY = "# kubenode: swap is off; a file without sections makes no zram device\n"
#: Services of distributions that make swap when they start.
SERVICES = ("zramswap.service", "zram-config.service", "zram-swap.service", "dphys-swapfile.service")
_UNITS = "/etc/systemd/system/"
_ZRAM_PLACES = ("/usr/lib/systemd/system-generators/zram-generator", "/lib/systemd/system-generators/zram-generator")
_ZRAM_CONFIGS = ("/etc/systemd/zram-generator.conf", "/usr/lib/systemd/zram-generator.conf")
#: A unit file of the administrator cannot be masked beside itself; this condition is never met.
_NEVER = "# kubenode: swap is off\n[Unit]\nConditionPathExists=!/\n"
_GENERATED = "/run/systemd/generator"
_OFF_LIMIT = 600


def plan_swap(context: Context, setting: Setting) -> Step:
    """Mode off; limited and keep leave swap as it is, since the kubelet's configuration deals with it."""
    host = context.host
    active = facts.swaps(host.text("/proc/swaps"))
    before = "in use: " + (", ".join(entry["name"] for entry in active) or "none")
    if setting["mode"] != "off":
        return same(before, "swap stays as it is")
    if active and context.container:
        context.warn("this is a container: the swap in use is its host's, and is left as it is")
        active = []
    jobs = _fstab_jobs(host) + _zram_jobs(host) + _unit_jobs(context)
    if active:
        # swapoff comes last, when nothing turns the swap on again: systemd starts its units for a device that is in use
        jobs.append(("swapoff " + ", ".join(entry["name"] for entry in active), None, lambda: _swapoff(context)))
    if not jobs:
        return same(before)
    for _text, path, _act in jobs:
        if path:
            context.touches(path)
    context.reload_comes = True

    def act() -> None:
        for index, (_text, path, job) in enumerate(jobs):
            if active and index == len(jobs) - 1:
                context.reload()
            job()
            if path:
                context.wrote(path)

    reason = "; ".join(text for text, _path, _act in jobs)
    return Step(True, before, "in use: none", reason, act, diff=_swap_diff(host, before, jobs))


def _swap_diff(host: Host, before: str, jobs: Sequence[Job]) -> dict[str, str]:
    """The lines of fstab as they are and will be, and what else goes off; other lines may hold a password."""
    text = _fstab(host)
    old = [before, *(f"{FSTAB}: {line}" for line in swap_lines(text))]
    new = ["in use: none", *(f"{FSTAB}: {MARK}{line.lstrip()}" for line in swap_lines(text))]
    new += [f"off: {job}" for job, path, _act in jobs if path != FSTAB]
    # a diff is JSON, and fstab may hold any bytes
    before_text, after_text = ("\n".join(lines).encode("utf-8", "replace").decode() + "\n" for lines in (old, new))
    return {"before_header": "swap", "before": before_text, "after_header": "swap", "after": after_text}


def _fstab(host: Host) -> str:
    """Bytes that are no text are kept as they are."""
    return (host.data(FSTAB) or b"").decode("utf-8", "surrogateescape")


def _fstab_jobs(host: Host) -> list[Job]:
    text = _fstab(host)
    lines, status = swap_lines(text), host.status(FSTAB)
    if not lines or status is None:
        return []

    def act() -> None:
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if not host.exists(BACKUP):
            write_file(host, BACKUP, text.encode("utf-8", "surrogateescape"), mode, *owner)
        new = without_swap(text).encode("utf-8", "surrogateescape")
        write_file(host, FSTAB, new, mode, *owner)

    return [(f"{len(lines)} line{'' if len(lines) == 1 else 's'} of {FSTAB}", FSTAB, act)]


def _zram_jobs(host: Host) -> list[Job]:
    if not any(host.exists(path) for path in _ZRAM_PLACES + _ZRAM_CONFIGS) or host.text(ZRAM) == ZRAM_EMPTY:
        return []
    return [("zram-generator", ZRAM, lambda: write_file(host, ZRAM, ZRAM_EMPTY.encode("utf-8"), 0o644))]


def _unit_jobs(context: Context) -> list[Job]:
    """Mask swap.target and the .swap units that no generator made, and switch off the services that make swap."""
    host = context.host
    jobs: list[Job] = []
    names = _swap_units(host)
    context.look_at(list(SERVICES) + ["swap.target"] + names)
    for name in SERVICES:
        state = context.unit(name)
        if state.get("LoadState") == "not-found" or not state:
            continue
        if state.get("UnitFileState") in ("enabled", "enabled-runtime", "generated") or _runs(state):
            jobs.append(("service " + name, None, functools.partial(_systemctl, context, "disable", "--now", name)))
    for name in ["swap.target"] + names:
        state = context.unit(name)
        if state.get("UnitFileState", "").startswith("masked") or state.get("SourcePath") == FSTAB:
            continue
        fragment = state.get("FragmentPath", "")
        # a generator's unit starts with swap.target alone; it would come and go with every reload
        if name != "swap.target" and (not fragment or fragment.startswith(_GENERATED)):
            continue
        jobs += _mask_jobs(context, name)
    return jobs


def _mask_jobs(context: Context, name: str) -> list[Job]:
    host, path = context.host, _UNITS + name
    status = host.status(path)
    if status is None or stat.S_ISLNK(status.st_mode):
        if status is not None and os.readlink(host.path(path)) == "/dev/null":
            return []
        return [("unit " + name, path, lambda: write_link(host, path, "/dev/null"))]
    drop_in = f"{path}.d/90-kubenode.conf"
    if host.text(drop_in) == _NEVER:
        return []
    return [("unit " + name, drop_in, lambda: write_file(host, drop_in, _NEVER.encode("utf-8"), 0o644))]


def _swap_units(host: Host) -> list[str]:
    """Names of all .swap units, on disk and made by generators, without those that only mirror /proc/swaps."""
    if not host.systemd_runs:
        places = (_UNITS, "/usr/lib/systemd/system/", "/lib/systemd/system/")
        found = {name for place in places for name in host.names(place) if name.endswith(".swap")}
        return sorted(found)
    plain = ["--type=swap", "--no-legend", "--plain", "--no-pager", "--full"]
    listed = host.run_all(
        [
            (["systemctl", "list-unit-files"] + plain, 60, None),
            (["systemctl", "list-units", "--all"] + plain, 60, None),
        ]
    )
    lines = [line.split() for done in listed for line in done.out.splitlines()]
    return sorted({words[0] for words in lines if words and words[0].endswith(".swap")})


def _runs(state: Mapping[str, str]) -> bool:
    return state.get("ActiveState") in ("active", "activating")


def _systemctl(context: Context, *words: str) -> None:
    wanted = [word for word in words if word != "--now" or context.host.systemd_runs]
    run(context.host, ["systemctl"] + wanted, 120)


def _swapoff(context: Context) -> None:
    done = context.host.run(["swapoff", "--all"], _OFF_LIMIT)
    left = [entry["name"] for entry in facts.swaps(context.host.text("/proc/swaps"))]
    if left:
        raise SettingError(
            f"swap is still in use: {', '.join(left)} ({tail(done)}); free memory, or stop what uses it, and try again"
        )


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
        release = os.uname().release
        raise SettingError(
            f"the running kernel {release} has no module {name}; install the kernel's modules ({_package(release)}), "
            "or reboot into the kernel that is installed"
        )

    def act() -> None:
        run(context.host, ["modprobe", "--", name], failure=f"module {name} cannot be loaded")

    context.changed.add("module:" + name)
    return Step(True, state, "loaded", "is not loaded", act)


def _package(release: str) -> str:
    """The package that brings the modules of a kernel which are not for every machine."""
    return "kernel-modules-extra-" + release if ".el" in release else f"linux-modules-extra-{release} on Ubuntu"


def plan_sysctl(context: Context, setting: Setting) -> Step:
    """Values of the running kernel."""
    host, optional = context.host, set(setting.get("optional") or ())
    wanted = {key: facts.sysctl_value(value) for key, value in setting["values"].items()}
    now = {key: facts.sysctl_value(host.text(facts.sysctl_path(key))) for key in wanted}
    different = {key: value for key, value in wanted.items() if value is not None and now[key] != value}
    missing = sorted(key for key in different if not host.exists(facts.sysctl_path(key)))
    # a module that is yet to be loaded may bring them
    coming = any(key.startswith("module:") for key in context.changed)
    before = _lines({key: now[key] for key in wanted if now[key] is not None})
    if not different or (set(missing) == set(different) <= optional and not coming):
        return same(before)
    if context.container:
        context.warn(_SHARED)
        return same(before, "in a container")
    if info.read_only(host, "/proc/sys"):
        context.warn(_FIXED)
        return same(before, "read-only")
    wrong = [key for key in missing if key not in optional]
    if wrong and not coming:
        raise SettingError(f"the running kernel has no sysctl {', '.join(wrong)}")

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
    return Step(True, diff["before"], diff["after"], f"{len(shown)} of {len(wanted)} differ", act, diff=diff)


def _lines(values: Mapping[str, str | None]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in sorted(values.items()))


def _set(host: Host, key: str, value: str, optional: bool) -> None:
    try:
        with open(host.path(facts.sysctl_path(key)), "r+", encoding="utf-8") as file:
            file.write(value + "\n")
    except OSError as error:
        if error.errno == errno.ENOENT and optional:
            return
        raise SettingError(f"sysctl {key} cannot be set to {value}: {error.strerror}") from error
    now = facts.sysctl_value(host.text(facts.sysctl_path(key)))
    if now != value:
        raise SettingError(f"sysctl {key} is {now} after it was set to {value}")


_HANDLER_SECONDS = 300


def plan_handler(context: Context, setting: Setting) -> Step:
    """A command that runs when one of the settings in ``on`` changed."""
    heard = context.heard(setting["id"], setting["on"])
    if not heard:
        return same("nothing to do")
    argv = list(setting["argv"])

    def act() -> None:
        context.reload()
        run(context.host, argv, _HANDLER_SECONDS)

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
        allowed = ufw_allowed(run(host, ["ufw", "show", "added"]))
        missing = [port for port in ports if ufw_port(port) not in allowed]
        return _plan_ports(ports, missing, [(["ufw", "allow", ufw_port(port)]) for port in missing], host)
    return same("no active firewall")


def _firewalld(host: Host, ports: list[str]) -> tuple[list[str], list[list[str]], Host]:
    now = set(run(host, ["firewall-cmd", "--list-ports"]).split())
    later = set(run(host, ["firewall-cmd", "--permanent", "--list-ports"]).split())
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
            run(host, argv)

    return Step(True, before, "open: " + ", ".join(ports), "closed: " + ", ".join(missing), act)


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
            run(host, ["apt-mark", "hold" if held else "unhold", "--"] + different, 180)
            return
        argv = [host.find("dnf") or "dnf5", "versionlock", "add" if held else "delete"] + different
        run(host, argv, 180, " ".join(argv) + " failed; dnf needs its versionlock plugin")

    reason = f"{', '.join(different)} {'is not' if held else 'is'} held"
    after = set(now & set(setting["packages"])) | set(different) if held else set()
    return Step(True, before, "held: " + (", ".join(sorted(after)) or "none"), reason, act)


def _held(host: Host, manager: str) -> set[str]:
    if manager == "dnf":
        return info.locked_by_dnf(host)
    return set(run(host, ["apt-mark", "showhold"]).split())


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
            run(host, ["hostname", "--", name], 30, f"the name {name} cannot be set")

    return Step(True, now if now == later else f"{now}, after a reboot {later or 'none'}", name, "differs", act)


_SELINUX_CONFIG = "/etc/selinux/config"
_SELINUX_MODE = re.compile(r"^[ \t]*SELINUX[ \t]*=[ \t]*(\S*)[ \t]*$", re.MULTILINE)


def configured(text: str | None) -> str | None:
    """The mode in /etc/selinux/config; None when it has none. Pure."""
    found = _SELINUX_MODE.findall(text or "")
    return found[-1] if found else None


def with_mode(text: str, mode: str) -> str:
    """The same file with another mode. Pure."""
    if configured(text) is None:
        return text + ("" if not text or text.endswith("\n") else "\n") + f"SELINUX={mode}\n"
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
    before = f"{state}, after a reboot {later}"
    write = text is not None and later != mode
    if state == mode and not write:
        return same(before)

    def act() -> None:
        if write and text is not None:
            write_file(host, _SELINUX_CONFIG, with_mode(text, mode).encode("utf-8"), 0o644)
            context.label([_SELINUX_CONFIG])
        if state != mode:
            run(host, ["setenforce", "1" if mode == "enforcing" else "0"], failure="setenforce failed")

    return Step(True, before, f"{mode}, after a reboot {mode}", f"is {before}", act)
