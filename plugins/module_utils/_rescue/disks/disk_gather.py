# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads everything about the disks that the machine's tools report, and the systems that lie on them; changes nothing.

File systems are looked into without changing a byte. ext is read by debugfs, which opens the device for reading alone:
the kernel would clean up orphans even in a read-only mount. The others are mounted read-only, without replay of their
journals, in a mount namespace that ends with the process that looks.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._common.mounts import private_mounts
from ..._common.text import json_value, whole_number
from . import disk_facts, disk_tools
from .disk_facts import Raw
from .disk_tools import Node, Speed, Tools

_COLUMNS = (
    "NAME,KNAME,PATH,MAJ:MIN,SIZE,RO,RM,ROTA,TRAN,TYPE,WWN,SERIAL,MODEL,FSTYPE,LABEL,UUID,PARTTYPE,PKNAME,LOG-SEC"
)
EDGE = 1 << 20
#: Where partitions begin: at the second track on old disks, else at any of the first MiB. Beyond the first 64 a first
#: partition is not expected.
STARTS = (63 * 512,) + tuple(number * EDGE for number in range(1, 65))
#: How much of a disk is erased, so that nothing is found there any more.
FIRST = STARTS[-1] + EDGE
#: What is read at each of these places to see whether it is blank: the farthest superblock, that of btrfs, is in it.
_GLANCE = 128 << 10
#: How blkid and wipefs call a physical volume.
_OF_LVM = "LVM2_member"
_LVM = ("--readonly", "--reportformat=json", "--units=b")


class GatherError(Exception):
    """The disks cannot be listed; the text says why."""


def block_devices(tools: Tools) -> str:
    """The text of lsblk, without which nothing can be said."""
    code, out, err = tools("lsblk", "--json", "--bytes", "--output", _COLUMNS)
    # 32: a device has gone while lsblk looked, 64: some were found.
    if code not in (0, 32, 64) or not out.strip():
        raise GatherError(f"lsblk does not list the disks (exit code {code}: {err.strip()})")
    return out


def identities(tools: Tools, types: Sequence[str] = ("disk",)) -> list[disk_facts.Identity]:
    """Name, size, WWN, serial number and links of every disk now, see disk_facts.identities(); fast."""
    return disk_facts.identities(_raw(block_devices(tools), **_links()), types)


def read(
    tools: Tools,
    types: Sequence[str] = ("disk",),
    health: bool = True,
    systems: Mapping[str, dict[str, str]] | None = None,
) -> Raw:
    """All that disk_facts.facts() is made of, as :class:`disk_facts.Raw`; ``systems``: see inside.look()."""
    listing = block_devices(tools)
    found = _raw(listing)
    more: dict[str, Any] = dict(
        _links(), blkid={}, wipefs={}, edges={}, lost={}, md={}, smart={}, nvme={}, systems=systems or {}
    )
    more["mountinfo"] = _text("/proc/self/mountinfo")
    more["swaps"] = _text("/proc/swaps")
    more["whole"] = {disk.name for disk in found.disks(types)}
    for disk in found.disks(types):
        for node in found.below(disk):
            if node.name not in more["blkid"] and node.size:
                _contents(tools, node, more)
    if tools.has("lvm"):
        # Its tools read every disk again, so they are asked only where one holds something of LVM's.
        said = [*more["wipefs"].values(), *(text for _code, text in more["blkid"].values())]
        some = any(_OF_LVM in text for text in said)
        more["pvs"] = tools("lvm", "pvs", *_LVM, "-o", "pv_name,vg_name,vg_uuid")[1] if some else ""
        more["lvs"] = tools("lvm", "lvs", *_LVM, "-o", "vg_name,lv_name,lv_size,segtype")[1] if some else ""
    found = _raw(listing, **more)
    if health:
        add_health(tools, found, types)
    return found


def add_health(tools: Tools, raw: Raw, types: Sequence[str] = ("disk",)) -> None:
    """What the disks say of their health, into ``raw``."""
    for disk in raw.disks(types):
        if disk.size and tools.has("smartctl"):
            code, out, _err = tools("smartctl", "--health", "--json", disk.path)
            raw.smart[disk.name] = (code, out)
        if disk.size and disk.name.startswith("nvme") and tools.has("nvme"):
            code, out, _err = tools("nvme", "smart-log", "--output-format=json", disk.path)
            raw.nvme[disk.name] = (code, out)


def lost(tools: Tools, path: str, size: int) -> tuple[int, str] | None:
    """What still lies where partitions began, on a disk without a table: ``(offset, text of blkid)`` of the first.

    None when nothing does, and an empty text when the disk cannot be read there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, ""
    try:
        for offset in [start for start in STARTS if start < size]:
            block = os.pread(fd, min(_GLANCE, size - offset), offset)
            if block == block[:1] * len(block):
                continue
            code, out, _err = tools("blkid", "--probe", "--offset", str(offset), "--output", "export", path)
            if code == 8 or (code == 0 and disk_tools.tags(out).get("TYPE")):
                return offset, out
    except OSError:
        return 0, ""
    finally:
        os.close(fd)
    return None


def _raw(listing: str, **more: Any) -> Raw:
    try:
        return disk_facts.Raw(listing, **more)
    except disk_tools.ParseError as exc:
        raise GatherError(str(exc)) from exc


def _contents(tools: Tools, node: Node, more: dict[str, Any]) -> None:
    """What one device holds."""
    code, out, _err = tools("blkid", "--probe", "--output", "export", node.path)
    more["blkid"][node.name] = (code, out)
    more["wipefs"][node.name] = tools("wipefs", "--json", "--output", "TYPE,UUID,LABEL,USAGE", node.path)[1]
    tags = disk_tools.tags(out)
    if tags.get("TYPE", "").endswith("raid_member"):
        more["md"][node.name] = tools("mdadm", "--examine", "--export", node.path)[1]
    elif not tags.get("TYPE") and not tags.get("PTTYPE"):
        data = has_data(node.path, node.size)
        if data is not None:
            more["edges"][node.name] = data
        if data is False and node.name in more["whole"]:
            more["lost"][node.name] = lost(tools, node.path, node.size)


def read_speed(tools: Tools, path: str) -> Speed:
    """How fast a disk is read from its beginning, see parse.read_speed(); it takes three seconds and writes nothing."""
    if not tools.has("fio"):
        return {"speed": None, "failed": False, "detail": "fio is not there"}
    code, out, _err = tools(
        "fio", "--name=read", "--filename=" + path, "--readonly", "--rw=read", "--bs=128k", "--direct=1", "--runtime=3",
        "--time_based", "--output-format=json", limit=60,
    )  # fmt: skip
    return disk_tools.read_speed(code, out)


def has_data(path: str, size: int) -> bool | None:
    """Whether the first or the last MiB holds anything but one byte repeated; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset in (0, max(0, size - EDGE)):
                block = os.pread(fd, min(EDGE, size), offset)
                if block != block[:1] * len(block):
                    return True
        finally:
            os.close(fd)
    except OSError:
        return None
    return False


def _links() -> dict[str, dict[str, str]]:
    return {"by_id": _targets("/dev/disk/by-id"), "by_path": _targets("/dev/disk/by-path")}


def _targets(folder: str) -> dict[str, str]:
    found = {}
    try:
        for link in os.listdir(folder):
            found[link] = os.path.basename(os.path.realpath(os.path.join(folder, link)))
    except OSError:
        pass
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


RECORD = "etc/kubenode/installed.json"
RELEASES = ("usr/lib/os-release", "etc/os-release")
#: Sub-volumes that hold the root of a system.
_ROOTS = ("", "@/", "@rootfs/", "root/")
_MOST = 64 * 1024
_MOUNT_OPTIONS = {"xfs": "ro,norecovery,nouuid", "btrfs": "ro,rescue=nologreplay", "vfat": "ro"}
_HARMLESS = "nosuid,nodev,noexec"


def look_inside(tools: Tools, raw: Raw, limit: float = 60.0) -> dict[str, dict[str, str]]:
    """What lies on each file system: ``{kernel name: {"system": name, "record": text}}``.

    ``limit``: seconds after which the next file system must have given a line.
    """
    reading, writing = os.pipe()
    folder = tempfile.mkdtemp(prefix="kubenode-", dir="/run" if os.access("/run", os.W_OK) else None)
    child = os.fork()
    if child == 0:
        # Also after an error, this copy of the process must not continue as the module.
        try:
            os.setsid()
            os.close(reading)
            private_mounts()
            _look_at_all(tools, raw, folder, writing)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        lines = _read_all(reading, limit)
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        # A mount that hangs in the kernel cannot be waited for.
        if not _reap(child, limit):
            lines = []
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    found = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            found.update(json_value(line))
    return found


def _reap(child: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    return False


def _read_all(fd: int, limit: float) -> list[bytes]:
    """The lines that come until the end, or until nothing has come for ``limit`` seconds."""
    data = b""
    while True:
        ready = select.select([fd], [], [], limit)[0]
        if not ready:
            break
        block = os.read(fd, 65536)
        if not block:
            break
        data += block
    return [line for line in data.split(b"\n") if line]


def _look_at_all(tools: Tools, raw: Raw, folder: str, writing: int) -> None:
    groups = disk_facts.Groups(raw, ("disk", "loop"))
    for node in raw.nodes.values():
        kinds = {one["type"] for one in disk_facts.contents(raw, node)}
        for kind in sorted(kinds):
            found = None
            if kind in ("ext2", "ext3", "ext4"):
                found = of_release(_by_debugfs(tools, node.path))
            elif kind in _MOUNT_OPTIONS:
                members = [raw.nodes[name].path for name in groups.members(node)] if kind == "btrfs" else []
                found = _by_mount(tools, node.path, kind, members, folder)
            if found:
                os.write(writing, json.dumps({node.name: found}).encode("utf-8") + b"\n")


def of_release(texts: Mapping[str, str]) -> dict[str, str] | None:
    """What the files (path → text) say: ``{"system", "record"}``; None when there is no system."""
    name = ""
    for path, text in texts.items():
        if path.endswith("os-release") and not name:
            values = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
            name = (values.get("PRETTY_NAME") or values.get("NAME") or "").strip().strip("\"'")
            name = name or "unknown system"
        if path == "EFI/Microsoft":
            name = "Windows (its boot loader)"
    record = next((text for path, text in texts.items() if path.endswith("installed.json")), "")
    return {"system": name, "record": record} if name or record else None


def _by_debugfs(tools: Tools, device: str) -> dict[str, str]:
    texts = {}
    for path in RELEASES + (RECORD,):
        code, out, _err = tools("debugfs", "-R", f"stat /{path}", device)
        # A hostile file system may hold a file of any size, and what is no file.
        if code == 0 and _is_small_file(out):
            texts[path] = tools("debugfs", "-R", f"cat /{path}", device)[1][:_MOST]
    return {path: text for path, text in texts.items() if text.strip()}


def _is_small_file(text: str) -> bool:
    """Whether debugfs describes a regular file that is small enough to be what we look for."""
    words = text.replace(":", " ").split()
    behind = dict(reversed(list(zip(words, words[1:]))))  # the text after the first of equal words
    return behind.get("Type") == "regular" and whole_number(behind.get("Size"), _MOST) is not None


def _by_mount(tools: Tools, device: str, kind: str, members: Sequence[str], folder: str) -> dict[str, str] | None:
    options = ",".join([_MOUNT_OPTIONS[kind], _HARMLESS] + [f"device={path}" for path in members])
    code, _out, _err = tools("mount", "--types", kind, "--options", options, device, folder)
    if code != 0:
        return None
    try:
        if kind == "vfat":
            texts = {"EFI/Microsoft": ""} if _open_below(folder, "EFI/Microsoft", os.O_DIRECTORY, read=False) else {}
        else:
            paths = [root + path for root in _ROOTS for path in RELEASES + (RECORD,)]
            found = [(path, _open_below(folder, path, 0, read=True)) for path in paths]
            texts = {path: str(text) for path, text in found if text}
    finally:
        tools("umount", folder)
    return of_release(texts)


def _open_below(top: str, path: str, flags: int, read: bool) -> str | bool:
    """The text of a file below ``top``, or whether the path is there; no symbolic link is followed on the way."""
    opened = [os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        words = path.split("/")
        for place, word in enumerate(words):
            last = place == len(words) - 1
            more = (flags | os.O_NONBLOCK) if last else os.O_DIRECTORY
            opened.append(os.open(word, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | more, dir_fd=opened[-1]))
        if not read:
            return True
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return ""
        return os.read(opened[-1], _MOST).decode("utf-8", "replace")
    except OSError:
        return "" if read else False
    finally:
        for fd in opened:
            os.close(fd)


@contextlib.contextmanager
def opened(tools: Tools, raw: Raw) -> Iterator[bool]:
    """Meanwhile, whole RAIDs and plain volumes that lie idle are there too, read-only; afterwards as before."""
    before = set(raw.nodes)
    changed = False
    try:
        changed = _assemble(tools, raw)
        if changed or raw.pvs:  # a RAID that has just been started may hold volumes
            changed = _activate(tools) or changed
        if changed:
            tools("udevadm", "settle", "--timeout=100")
        yield changed
    finally:
        if changed:
            _close_again(tools, before)


def _assemble(tools: Tools, raw: Raw) -> bool:
    """Start RAIDs of which every member is there; read-only, so that not even their superblocks change."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, tags in raw.md.items():
        used = [child for child in raw.nodes[name].children if raw.nodes[child].type != "part"]
        if tags.get("MD_UUID") and not used:
            groups.setdefault((tags["MD_UUID"], tags.get("MD_DEVICES", "")), []).append(raw.nodes[name].path)
    started = False
    free = (number for number in range(100, 128) if f"md{number}" not in raw.nodes)
    for (_uuid, wanted), members in sorted(groups.items()):
        if whole_number(wanted) == len(members):
            array = f"/dev/md{next(free)}"
            code = tools("mdadm", "--assemble", "--readonly", array, *sorted(members))[0]
            started = started or code == 0
    return started


def _activate(tools: Tools) -> bool:
    """Activate volumes that are nothing but a piece of disk; others write to the disk when they start."""
    if not tools.has("lvm"):
        return False
    listing = tools("lvm", "lvs", "--reportformat=json", "-o", "vg_name,lv_name,lv_active,lv_layout")[1]
    started = False
    for row in disk_tools.report(listing, "lv"):
        idle = not row.get("lv_active")
        if idle and set(row.get("lv_layout", "").split(",")) <= {"linear", "striped"} and row.get("lv_layout"):
            name = f"{row.get('vg_name')}/{row.get('lv_name')}"
            code = tools("lvm", "lvchange", "--activate", "y", "--ignoremonitoring", name)[0]
            started = started or code == 0
    return started


def _close_again(tools: Tools, before: set[str]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        code, out, _err = tools("lsblk", "--json", "--bytes", "--output", "NAME,KNAME,PATH,TYPE")
        if code not in (0, 32, 64):
            return
        nodes = disk_tools.block_devices(out)
        new = [node for node in nodes.values() if node.name not in before and node.type != "part"]
        if not new:
            return
        for node in new:
            if not node.children and node.type == "lvm":
                tools("dmsetup", "remove", "--retry", node.shown)
            elif not node.children and node.type.startswith("raid"):
                tools("mdadm", "--stop", node.path)
        time.sleep(0.2)
