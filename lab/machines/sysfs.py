# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries below /sys that a guest without a kernel of its own must see for a disk (pure but for `read_folder`).

A tree is a dictionary: relative path → content of a file, or a `Link`, or None for an empty folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .identity import Identity, partition_name

_HBA = "Virtio SCSI HBA"
_AHCI_HOSTS = 16
_RESTLESS = ("stat", "inflight")  # counters
Tree = dict[str, "str | Link | None"]


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


_BLOCK = Link("../../../../class/block")


def disk_tree(disk: Identity, name: str, host: dict[str, str]) -> Tree:
    """The folder of a disk; ``host`` is what the host's kernel says of the loop device."""
    major, minor = host["dev"].split(":")
    tree: Tree = {key: value for key, value in host.items() if key not in ("uevent", "hidden")}
    tree |= {
        "uevent": f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=disk\nDISKSEQ={host.get('diskseq', '1')}",
        "queue/rotational": str(int(disk.rotational)),
        "removable": "0",
        "hidden": "0",
        "subsystem": _BLOCK,
        "holders": None,
        "slaves": None,
    }
    if disk.kind == "nvme":
        controller = f"nvme{name.removeprefix('nvme').split('n')[0]}"
        tree |= {"wwid": disk.wwn, "nsid": "1", "device": Link(controller)}
        facts = {"model": disk.model.ljust(40), "serial": disk.serial.ljust(20), "firmware_rev": "1.0     "}
        facts |= {"transport": "pcie", "address": f"0000:{disk.place + 1:02x}:00.0", "state": "live"}
        return tree | {f"{controller}/{key}": value for key, value in facts.items()}
    # lsblk wants a slash in the link to the device, as there always is where the device is elsewhere
    address = f"{disk.place + 1}:0:0:0" if disk.kind == "sata" else f"0:0:{disk.place}:0"
    vendor = "ATA     " if disk.kind == "sata" else "QEMU    "
    facts = {"vendor": vendor, "model": disk.model[:16].ljust(16), "rev": "1.0 ", "type": "0", "state": "running"}
    if disk.wwn:
        facts["wwid"] = f"naa.{disk.wwn[2:]}"
    return tree | {"device": Link(f"./{address}")} | {f"{address}/{key}": value for key, value in facts.items()}


def partition_tree(name: str, number: int, host: dict[str, str]) -> Tree:
    """The folder of a partition of the disk ``name``."""
    major, minor = host["dev"].split(":")
    tree: Tree = {key: value for key, value in host.items() if key != "uevent"}
    known = f"MAJOR={major}\nMINOR={minor}\nDEVNAME={partition_name(name, number)}\nDEVTYPE=partition\nPARTN={number}"
    return tree | {"uevent": known, "subsystem": Link("../../../../../class/block"), "holders": None}


def classes(parent: str, host: Path = Path("/sys/class")) -> Tree:
    """/sys/class of a guest: the host's, but for disks, their controllers, firmware facts and the network.

    ``parent``: the folder below /sys/devices that has the guest's network interfaces.
    """
    tree: Tree = {"block": None, "dmi/id": None, "net": Link(f"../devices/{parent}/net")}
    for folder in host.iterdir():
        if folder.name in ("block", "dmi", "net", "nvme", "nvme-subsystem", "scsi_host", "scsi_disk", "scsi_device"):
            continue
        tree[folder.name] = None
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):  # a plain attribute, or gone
                tree[f"{folder.name}/{entry.name}"] = Link(str(entry.readlink()))
    tree["scsi_host/host0/proc_name"] = _HBA
    return tree | {f"scsi_host/host{number}/proc_name": "ahci" for number in range(1, _AHCI_HOSTS)}


def read_folder(folder: Path) -> dict[str, str]:
    """The attributes of a block device that the host's kernel shows, its queue's included."""
    found = {}
    for place in (folder, folder / "queue"):
        with contextlib.suppress(OSError):
            for entry in sorted(place.iterdir()):
                if entry.name in _RESTLESS or entry.is_symlink() or not entry.is_file():
                    continue
                with contextlib.suppress(OSError, UnicodeDecodeError):  # some can only be written
                    found[str(entry.relative_to(folder))] = entry.read_text().rstrip("\n")
    return found


class TreeWriter:
    """Puts files, links and whole folders in place by rename; ``spare`` is on the same file system, unseen."""

    def __init__(self, spare: Path) -> None:
        """``spare`` is made when it is not there."""
        self._spare = spare
        spare.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def file(self, path: Path, content: str | Link) -> None:
        """A file (its content ends with a line feed) or a link."""
        new = self._new()
        if isinstance(content, Link):
            new.symlink_to(content.target)
        else:
            new.write_text(content if content.endswith("\n") else content + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.replace(path)

    def folder(self, path: Path, tree: Tree) -> None:
        """A whole folder, where there is none yet."""
        new = self._new()
        fill_tree(new, tree)
        path.parent.mkdir(parents=True, exist_ok=True)
        new.rename(path)

    def remove(self, path: Path) -> None:
        """Take a file, link or folder away; nothing happens when it is not there."""
        gone = self._new()
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()

    def _new(self) -> Path:
        self._count += 1
        return self._spare / str(self._count)


def fill_tree(folder: Path, tree: Tree) -> None:
    """Make ``folder`` and what the tree says inside."""
    folder.mkdir(parents=True)
    made = {""}
    for name, content in tree.items():
        parent = name if content is None else os.path.dirname(name)
        if parent not in made:
            (folder / parent).mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if isinstance(content, Link):
            (folder / name).symlink_to(content.target)
        elif content is not None:
            (folder / name).write_text(content if content.endswith("\n") else content + "\n")
