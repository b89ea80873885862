# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Looks into file systems for the systems that lie there, without changing a byte.

ext file systems are read by debugfs, which opens the device for reading alone: the kernel would clean up orphans even
in a read-only mount. The others are mounted read-only, without replay of their journals, in a mount namespace that
ends with the process that looks.
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

from ..._common.mounts import private_mounts
from ..._common.text import json_value, whole_number
from . import disk_facts, disk_tools
from .disk_facts import Raw
from .disk_tools import Tools

RECORD = "etc/kubenode/installed.json"
RELEASES = ("usr/lib/os-release", "etc/os-release")
#: Sub-volumes that hold the root of a system.
_ROOTS = ("", "@/", "@rootfs/", "root/")
_MOST = 64 * 1024
_OPTIONS = {"xfs": "ro,norecovery,nouuid", "btrfs": "ro,rescue=nologreplay", "vfat": "ro"}
_HARMLESS = "nosuid,nodev,noexec"


def look(tools: Tools, raw: Raw, limit: float = 60.0) -> dict[str, dict[str, str]]:
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
            elif kind in _OPTIONS:
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
    options = ",".join([_OPTIONS[kind], _HARMLESS] + [f"device={path}" for path in members])
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
