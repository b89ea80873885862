# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Guards: what may be erased, and what keeps the chosen disks from being written (pure).

Nothing is erased without consent. There are three kinds of consent, each to single disks: ``wipe`` names the
disk; the disk holds what we installed for this machine and ``reinstall`` names the machine; an unfinished run has
claimed the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Callable, Mapping

from ..._common import consent as consents
from . import disk_facts, disk_names, disk_tools
from .disk_facts import Disk
from .disk_tools import Speed

#: (variable, name, record) → why an entry of the variable does not cover that installation; empty when it does.
Used = Callable[[str, str, Any], str]
#: Mount points of a running system: such a disk is never emptied, with any consent.
_SYSTEM_MOUNTS = ("/", "/usr", "/boot", "/boot/efi", "/var", "/etc", "/root", "/nix", "/sysroot", "/run/initramfs")
_EVERYTHING = ("all", "*", "any")
_ELSEWHERE = (
    ". An entry has to be a disk of each machine that it is given to: correct it, or, when it is a disk of another "
    "machine, run for one machine at a time (--limit)"
)


class Verdict:
    """``wipe``: names of the disks to empty, in order; ``errors``: why nothing is done at all; ``permanent``: a
    retry cannot help; ``notes``: entries of ``wipe`` that did nothing."""

    def __init__(self) -> None:
        self.wipe: list[str] = []
        self.errors: list[str] = []
        self.notes: list[str] = []
        self.permanent = False

    def refuse(self, text: str, permanent: bool = False) -> None:
        """One more reason."""
        self.errors.append(text)
        self.permanent = self.permanent or permanent


def is_ours(disk: Disk, machine: str) -> bool:
    """Whether every system on the disk is one that we installed for this machine, and there is one."""
    systems = [entry for entry in disk["holds"] if entry["kind"] == "system"]
    return bool(systems) and all((entry.get("installed") or {}).get("machine") == machine for entry in systems)


def is_of_another(disk: Disk, machine: str) -> str:
    """The other machine for which we installed what is on the disk; empty when there is none."""
    for entry in disk["holds"]:
        owner = (entry.get("installed") or {}).get("machine")
        if owner and owner != machine:
            return owner
    return ""


def check_entries(wipe: Iterable[str]) -> list[str]:
    """What is wrong with the entries of ``wipe`` on any machine, a line each."""
    return [
        f"wipe: {str(text)!r} names no disk; name each disk by its WWN, serial number or by-id name"
        for text in wipe
        if not str(text).strip()
        or str(text).strip().lower() in _EVERYTHING
        or disk_names.is_kernel_name(str(text).strip())
    ]


def _never(_variable: str, _name: str, _record: Mapping[str, Any]) -> str:
    return ""


#: The least speed in KiB/s at which a disk that turns, and any other, has to be read; those of CAPH.
_LEAST = {True: 20000, False: 40000}


def too_slow(disk: Disk, speed: float) -> bool:
    """Whether a disk that is read at ``speed`` KiB/s is too slow to be written."""
    return speed < _LEAST[bool(disk["rotational"])]


def speeds(disks: Sequence[Disk], chosen: Sequence[str], measured: Sequence[Speed]) -> tuple[list[str], list[str]]:
    """What the speed test says against the chosen disks (names), and what it could not measure: two lists of texts.

    ``measured``: what disk_gather.read_speed() said of each, in their order.
    """
    by_name = {disk["name"]: disk for disk in disks}
    against, unknown = [], []
    for name, found in zip(chosen, measured):
        disk = by_name[name]
        text = disk_names.named(disk)
        way_out = "replace it, or set health: check"
        if found["failed"]:
            against.append(f"{text} is failing: {found['detail']}; {way_out}")
        elif found["speed"] is None:
            unknown.append(f"{text}: how fast it is read is unknown: {found['detail']}")
        elif too_slow(disk, found["speed"]):
            least = _LEAST[bool(disk["rotational"])]
            against.append(f"{text} is read at {found['speed']} KiB/s, and {least} are the least; {way_out}")
    return against, unknown


def judge(
    disks: Sequence[Disk],
    chosen: Sequence[str],
    machine: str,
    wipe: Sequence[str] = (),
    reinstall: bool = False,
    claimed: bool = False,
    health: bool = True,
    used: Used = _never,
) -> Verdict:
    """What is to be done so that the chosen disks (names) may be written; see :class:`Verdict`.

    ``claimed``: whether exactly the chosen disks are claimed by an unfinished run; ``health``: refuse failing ones;
    ``used(variable, name, record)``: why an entry of ``wipe`` or ``reinstall`` does not cover an installation that lies
    on the disk, such as the one that it allowed; empty when it does.
    """
    verdict = Verdict()
    by_name = {disk["name"]: disk for disk in disks}
    entries = _named(disks, wipe, verdict)
    # A claim is for the chosen disks alone.
    asked = {name: text for name, text in entries.items() if not (claimed and name in chosen)}
    used_up = {name: _used_up(by_name[name], "wipe", text, used) for name, text in asked.items()}
    left = {name for name, why in used_up.items() if why and name in chosen}
    left = {name for name in left if reinstall and is_ours(by_name[name], machine)}
    if any(by_name[name]["holds"] for name in entries if name not in left):
        # What used up one entry may have used up this one, of a disk that keeps no record of that.
        left = set()
    named = [name for name in entries if name not in left]
    for name, reasons in used_up.items():
        for why in reasons:
            if name in left:
                verdict.notes.append(f"{disk_names.named(by_name[name])}: {why}. Only kubenode_reinstall counts here")
            else:
                verdict.refuse(f"{disk_names.named(by_name[name])}: {why}")
    for name in chosen:
        disk = by_name[name]
        if health and disk["health"]["status"] == "failed":
            why = f"is failing: {disk['health']['detail']}; replace it, or set health: ignore"
            verdict.refuse(f"{disk_names.named(disk)} {why}", permanent=True)
        if not disk["holds"] or name in named:
            continue
        ours = reinstall and is_ours(disk, machine)
        for why in _used_up(disk, "reinstall", machine, used) if ours and not claimed else ():
            verdict.refuse(f"{disk_names.named(disk)}: {why}")
        if ours or (claimed and not is_of_another(disk, machine)):
            named.append(name)
            continue
        verdict.refuse(_without_consent(disk, disks, machine, reinstall))
    todo = [name for name in named if by_name[name]["holds"]]
    for name in todo:
        _check_wipe(by_name[name], named, by_name, verdict)
    if not verdict.errors:
        verdict.wipe = todo
    return verdict


def _used_up(disk: Disk, variable: str, name: str, used: Used) -> list[str]:
    reasons = [used(variable, name, entry["installed"]) for entry in disk["holds"] if entry.get("installed")]
    return [reason for reason in reasons if reason]


def _named(disks: Sequence[Disk], wipe: Sequence[str], verdict: Verdict) -> dict[str, str]:
    """The disks that ``wipe`` names, by the kernel's names, with the entries that name them."""
    found: dict[str, str] = {}
    for text in check_entries(wipe):
        verdict.refuse(text)
    for text in [str(text).strip() for text in wipe] if not verdict.errors else ():
        try:
            name = disk_names.one(text, disks)["name"]
        except disk_names.Unresolved as exc:
            elsewhere = "" if disk_names.find(text, disks) else _ELSEWHERE
            verdict.refuse(f"wipe: {exc}{elsewhere}")
            continue
        found.setdefault(name, text)
    return found


def _without_consent(disk: Disk, disks: Sequence[Disk], machine: str, reinstall: bool) -> str:
    stable = disk_names.stable(disk, disks)
    held = "\n  ".join(disk_facts.held(disk))
    text = f"{disk_names.named(disk)} is not empty. It holds:\n  {held}\n"
    if is_ours(disk, machine) and not reinstall:
        word = consents.extra_var("reinstall", [machine])
        text += f"It is this machine's own installed system: to write it again, name the machine: {word}. "
        text += "To keep it, reboot the server: a rescue is for one boot. "
    elif reinstall and is_of_another(disk, machine):
        text += f"kubenode_reinstall does not cover what was installed for machine {is_of_another(disk, machine)}. "
    elif reinstall:
        text += (
            "kubenode_reinstall covers only what was installed for this machine (its /etc/kubenode/installed.json). "
        )
    if stable:
        return text + f"To erase it, whatever it holds, name it: {consents.extra_var('wipe', [stable])}"
    return text + "It has no WWN, serial number or by-id name of its own, so it cannot be named; empty it by hand"


def _check_wipe(disk: Disk, named: Sequence[str], by_name: Mapping[str, Disk], verdict: Verdict) -> None:
    """Whether a disk with consent can be emptied, alone or with those that are named too."""
    if disk["read_only"]:
        verdict.refuse(f"{disk_names.named(disk)} is read-only and cannot be emptied")
    for entry in disk["holds"]:
        system = [place for place in entry["mounts"] if place in _SYSTEM_MOUNTS]
        if system:
            verdict.refuse(
                f"disk {disk['name']} is in use by the running system ({entry['device']} is mounted on "
                f"{', '.join(system)}); it cannot be emptied from there"
            )
        for other in entry["disks"]:
            if other not in named:
                known = disk_names.identity(by_name[other]) if other in by_name else "unknown"
                text = (
                    f"disk {disk['name']} shares {disk_facts.phrase(entry)} with disk {other} ({known}); name that one "
                    f"in kubenode_wipe too{_as_entry(by_name.get(other), by_name)}, or free it by hand"
                )
                if text not in verdict.errors:
                    verdict.refuse(text)


def _as_entry(disk: Disk | None, by_name: Mapping[str, Disk]) -> str:
    stable = disk_names.stable(disk, list(by_name.values())) if disk else ""
    return f" ({stable!r})" if stable else ""


#: How partitions are called that firmware reads.
_LOADERS = ("EFI system partition", "BIOS boot partition")


def could_boot(disks: Sequence[Disk], written: Collection[str]) -> list[str]:
    """Warnings about disks that are not written, and that the firmware could start instead of the new system."""
    found = []
    for disk in [disk for disk in disks if disk["name"] not in written]:
        held = [one for one in disk["holds"] if one["kind"] == "system" or one["detail"] in _LOADERS]
        if held:
            phrases = "; ".join(disk_facts.phrase(one) for one in held[:4])
            found.append(
                f"{disk_names.named(disk)} is not written, and the firmware could start what it holds instead of the "
                f"new system: {phrases}. Look at the boot order, or empty that disk, too"
            )
    return found


def diff(disks: Sequence[Disk], wipe: Sequence[str]) -> list[dict[str, str]]:
    """What is on each disk before and after, in Ansible's form of a diff."""
    by_name = {disk["name"]: disk for disk in disks}
    return [
        {
            "before_header": disk_names.named(by_name[name]),
            "after_header": f"disk {name}, emptied",
            "before": "".join(disk_tools.clean(line, 500) + "\n" for line in disk_facts.held(by_name[name])),
            "after": "nothing\n",
        }
        for name in wipe
    ]
