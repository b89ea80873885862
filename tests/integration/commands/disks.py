# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loop devices to install on, and small images of whole disks to install."""

import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LINUX = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
EFI = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
CLOUD_CONFIG = "#cloud-config\nruncmd: [true]\n"
BIOS = "21686148-6449-6E6F-744E-656564454649"


def sh(*command: object, stdin: str | None = None) -> str:
    """Run a tool; its failure is the test's failure."""
    done = subprocess.run(
        [str(word) for word in command], input=stdin, capture_output=True, text=True, check=False, env={"PATH": PATH}
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@dataclass
class Part:
    """One partition of an image: size in MiB, file system, label and the files on it."""

    size: int
    fs: str = ""
    files: dict[str, str] | None = None
    label: str = ""
    kind: str = LINUX
    uuid: str = ""
    subvolumes: tuple[str, ...] = ()


SYSTEM = {
    "etc/os-release": 'PRETTY_NAME="Test OS 1"\n',
    "usr/lib/systemd/systemd": "",
    "sbin/init": "-> /usr/lib/systemd/systemd",
    "usr/bin/cloud-init": "",
    "etc/cloud/cloud.cfg": "datasource_list: [ Hetzner, None ]\n",
}


def fill(top: Path, files: dict[str, str]) -> None:
    """Write files; "-> X" makes a symlink, a name with / at its end a folder."""
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        elif text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)


@contextmanager
def loop(path: Path, *options: str):
    """Attach a file as a loop device."""
    device = sh("losetup", "--find", "--show", *options, path).strip()
    try:
        yield device
    finally:
        subprocess.run(["partx", "--delete", device], capture_output=True, check=False, env={"PATH": PATH})
        sh("losetup", "--detach", device)


def node(device: str, number: int) -> str:
    """Return the node of a partition, known to the kernel from now on."""
    sh("partx", "--update", device)
    return f"{device}p{number}"


@contextmanager
def mount(device: str, where: Path, *options: str):
    """Mount a file system for a look.

    Machines that start meanwhile copy this mount into their namespaces; only what is shared goes there, too, when it is
    unmounted here, and a container's root is not.
    """
    where.mkdir(parents=True, exist_ok=True)
    sh("mount", "--bind", where, where)
    try:
        sh("mount", "--make-shared", where)
        sh("mount", *options, device, where)
        try:
            yield where
        finally:
            sh("umount", where)
    finally:
        sh("umount", where)


def make_fs(device: str, part: Part, work: Path) -> None:
    """Make a file system with its files on a partition."""
    label, uuid = part.label or "data", part.uuid
    if part.fs == "ext4":
        sh("mkfs.ext4", "-q", "-L", label, *(["-U", uuid] if uuid else []), device)
    elif part.fs == "xfs":
        sh("mkfs.xfs", "-q", "-L", label, device)
    else:
        sh("mkfs.btrfs", "-q", "-L", label, device)
    with mount(device, work / "fill") as top:
        for name in part.subvolumes:
            sh("btrfs", "subvolume", "create", top / name)
        fill(top / part.subvolumes[0] if part.subvolumes else top, part.files or {})


def build(path: Path, parts: list[Part], table: str = "gpt") -> bytes:
    """Make an image of a whole disk and return its bytes."""
    size = sum(part.size for part in parts) + 2
    path.write_bytes(b"")
    os.truncate(path, size * MIB)
    kinds = [f"size={part.size}M,type={part.kind if table == 'gpt' else 83}" for part in parts]
    sh("sfdisk", "--quiet", path, stdin="\n".join([f"label: {table}", *kinds]) + "\n")
    with loop(path) as device:
        for number, part in enumerate(parts, 1):
            if part.fs:
                make_fs(node(device, number), part, path.parent)
    return path.read_bytes()


def table(device: str) -> dict:
    return json.loads(sh("sfdisk", "--json", device))["partitiontable"]
