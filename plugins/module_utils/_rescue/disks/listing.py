# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Disks and what they hold, in words for people (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..._common.text import in_columns
from . import tool_output
from .disk_facts import Disk, Held


def candidates(disks: Sequence[Disk], reasons: Mapping[str, str]) -> str:
    """A small table of all disks and why each one was chosen or not, as text."""
    rows: list[tuple[str, ...]] = [("disk", "size", "kind", "model", "serial", "wwn", "")]
    for disk in disks:
        rows.append(_about(disk) + (reasons.get(disk["name"], ""),))
    return "\n".join(in_columns(rows)) if disks else "(the machine has no disks)"


def lines(disks: Sequence[Disk]) -> list[str]:
    """The table of all disks, for people who look for hints."""
    rows: list[tuple[str, ...]] = [("disk", "size", "kind", "model", "serial", "wwn", "health", "holds")]
    for disk in disks:
        held = "; ".join(phrase(entry) for entry in disk["holds"]) or "nothing"
        rows.append(_about(disk) + (disk["health"]["status"], held))
    return in_columns(rows)


def _about(disk: Disk) -> tuple[str, ...]:
    return (
        disk["name"],
        tool_output.size_words(disk["size"]),
        kind(disk),
        disk["model"] or "-",
        disk["serial"] or "-",
        disk["wwn"] or "-",
    )


def kind(disk: Disk) -> str:
    """What kind of disk it is."""
    return disk["kind"] + (" (turning)" if disk["rotational"] else "")


def phrase(entry: Held) -> str:
    """One thing that a disk holds, in a few words."""
    words = [entry["device"] + ":"]
    if entry["kind"] == "system":
        words.append(entry["system"])
        if entry.get("installed"):
            words.append(f"(installed as {entry['installed']['machine']})")
        words.append("on")
    kinds = {"table": "partition table", "lvm": "LVM", "raid": "RAID member", "crypt": "encrypted", "swap": "swap"}
    if entry["kind"] in kinds:
        words.append(kinds[entry["kind"]])
    if entry["type"] and entry["kind"] not in ("lvm", "raid", "swap"):
        words.append(entry["type"])
    if entry["label"]:
        words.append(f"{entry['label']!r}")
    if entry["detail"]:
        words.append(f"({entry['detail']})" if len(words) > 1 else entry["detail"])
    if entry["mounts"]:
        words.append(f"mounted on {', '.join(entry['mounts'])}")
    return " ".join(words)


def held(disk: Disk) -> list[str]:
    """What a disk holds, a line each; a line that says so when it holds nothing."""
    return [phrase(entry) for entry in disk["holds"]] or ["nothing"]
