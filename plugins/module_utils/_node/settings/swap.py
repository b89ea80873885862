# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Swap off permanently: what is in use now, and everything that would bring it back at the next boot."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Mapping
from typing import Callable, Optional, Tuple

from .. import parse
from ..host import Host, write_file, write_link
from .context import Context, Setting, SettingError, Step, same
from .files import tail

MARK = "# kubenode: swap is off: "


def swap_lines(text: str) -> list[str]:
    """The lines that really activate swap, without line ends."""
    return [line.rstrip("\r\n") for line in _lines(text) if _is_swap(line)]


def without_swap(text: str) -> str:
    """The same table with these lines turned into comments; everything else stays as it is, byte by byte."""
    return "".join(MARK + line.lstrip() if _is_swap(line) else line for line in _lines(text))


def _lines(text: str) -> list[str]:
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
    active = parse.swaps(host.text("/proc/swaps"))
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

    return Step(True, before, "in use: none", "; ".join(text for text, _path, _act in jobs), act)


def _fstab_jobs(host: Host) -> list[Job]:
    # bytes that are no text are kept as they are
    text = (host.data(FSTAB) or b"").decode("utf-8", "surrogateescape")
    lines, status = swap_lines(text), host.status(FSTAB)
    if not lines or status is None:
        return []

    def act() -> None:
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if not host.exists(BACKUP):
            write_file(host, BACKUP, text.encode("utf-8", "surrogateescape"), mode, *owner)
        new = without_swap(text).encode("utf-8", "surrogateescape")
        write_file(host, FSTAB, new, mode, *owner)

    return [("%d line%s of %s" % (len(lines), "" if len(lines) == 1 else "s", FSTAB), FSTAB, act)]


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
    drop_in = "%s.d/90-kubenode.conf" % path
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
    done = context.host.run(["systemctl"] + wanted, 120)
    if done.code:
        raise SettingError("systemctl %s failed: %s" % (" ".join(wanted), tail(done)))


def _swapoff(context: Context) -> None:
    done = context.host.run(["swapoff", "--all"], _OFF_LIMIT)
    left = [entry["name"] for entry in parse.swaps(context.host.text("/proc/swaps"))]
    if left:
        raise SettingError(
            "swap is still in use: %s (%s); free memory, or stop what uses it, and try again"
            % (", ".join(left), tail(done))
        )
