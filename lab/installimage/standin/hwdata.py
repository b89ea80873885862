# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rescue's hwdata says of the machine: every debug log begins with it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from . import host

_GB, _GIB = 10**9, 1 << 30


def report() -> list[str]:
    """The lines of the report."""
    drives = _drives()
    count = len(drives)
    capacity = sum(size // _GIB for _name, size in drives)
    lines = ["Hardware data:", f"   CPU1: {_processor()} (Cores {os.cpu_count() or 1})", f"   Memory:  {_memory()} MB"]
    for name, size in drives:
        found = "" if host.partitions(name) else " doesn't contain a valid partition table"
        lines.append(f"   Disk {name}: {size // _GB} GB (=> {size // _GIB} GiB){found}")
    lines.append(f"   Total capacity {capacity} GiB with {count} Disk{'s' * (count != 1)}")
    return [*lines, "Network data:", *_network()]


def _drives() -> list[tuple[str, int]]:
    """Name and bytes of the drives, without what is no drive."""
    found = []
    for entry in sorted(Path("/sys/block").iterdir()):
        if re.match(r"loop|ram|zram|sr|fd|md|dm-|nbd", entry.name):
            continue
        size = host.size_bytes(f"/dev/{entry.name}")
        if size:
            found.append((f"/dev/{entry.name}", size))
    return found


def _processor() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else "unknown"


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def _network() -> list[str]:
    lines = []
    for link in json.loads(host.run("ip", "-json", "address", "show", secret=True) or "[]"):
        if link["ifname"] == "lo":
            continue
        lines += [f"   {link['ifname']}  LINK: {'yes' if link.get('operstate') == 'UP' else 'no'}"]
        lines.append(f"         MAC:  {link.get('address', '')}")
        named = {"inet": "IP:   ", "inet6": "IPv6: "}
        for one in link["addr_info"]:
            if one["scope"] == "global" and one["family"] in named:
                prefix = f"/{one['prefixlen']}" if one["family"] == "inet6" else ""
                lines.append(f"         {named[one['family']]}{one['local']}{prefix}")
        lines.append("         Virtio Network Driver")
    return lines
