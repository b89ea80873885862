# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Work in the new root file system: found, entered in a child process, named and given its bootstrap data."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from ..._common.text import json_value
from .basics import Refused, Say, run
from .filesystems import WAYS, kernel_knows, mounted
from .invocation import Bootstrap
from .root_device import Disk, Partition

# --- Work inside the new root file system, whose symlinks lead where they lead in the new system.


def enclose(root: Path, answering: int, function: Callable[..., Any], *arguments: Any) -> None:
    """Become a process with root as /, call function, write its answer to a pipe, and end; for a child only."""
    answer = {"error": "new root file system: ended early"}
    try:
        os.chroot(str(root))
        os.chdir("/")
        sys.meta_path.clear()  # what has not been imported by now would come from the image
        answer = {"value": function(*arguments)}
    except Refused as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": f"new root file system: {error}"}
    finally:
        with os.fdopen(answering, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)


def collect(child: int, reading: int) -> Any:
    """Wait for the answer of a child."""
    with os.fdopen(reading, "rb") as pipe:
        answer = json_value(pipe.read() or b'{"error": "new root file system: the child was killed"}')
    os.waitpid(child, 0)
    if "error" in answer:
        raise Refused(answer["error"])
    return answer["value"]


def inside(root: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call function with root as /, in a child: symlinks of the image lead where they lead in the new system."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        enclose(root, writing, function, *arguments)
    os.close(writing)
    return collect(child, reading)


# --- Writes files into the new root file system.


def write_whole(name: str, text: str, mode: int, folder_mode: int = 0o755) -> None:
    """Write a file whole, with its folders and the SELinux label of the folder it is in; runs inside the new root."""
    path = Path(name)
    for folder in [one for one in reversed(path.parents) if not one.is_dir()]:
        folder.mkdir(mode=folder_mode if folder == path.parent else 0o755)
        same_label(folder)
    if folder_mode != 0o755:
        path.parent.chmod(folder_mode)
    draft = path.with_name(f".{path.name}.kubenode")
    draft.unlink(missing_ok=True)
    fd = os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as stream:
        stream.write(base64.b64decode(text))
        os.fchmod(fd, mode)
    same_label(draft)
    draft.replace(path)


def same_label(path: Path) -> None:
    """Copy the SELinux label of the folder a file is in; the rescue's kernel would leave it without one."""
    with contextlib.suppress(OSError):
        os.setxattr(str(path), "security.selinux", os.getxattr(str(path.parent), "security.selinux"))


def write_into(root: Path, name: str, data: bytes, mode: int, folder_mode: int = 0o755) -> None:
    """Write a file into a mounted new root."""
    inside(root, write_whole, name, base64.b64encode(data).decode(), mode, folder_mode)


# --- Finds the root file system of the new system.


class RootFacts(TypedDict):
    """What a file system is: whether it is a root, of which system, with which cloud-init; and its fstab."""

    root: bool
    name: str
    cloud_init: bool
    switched_off: bool
    fstab: str


def look_around() -> RootFacts:
    """Say what the file system at / is; runs inside it."""
    releases = [Path(name) for name in ("/etc/os-release", "/usr/lib/os-release") if os.path.lexists(name)]
    inits = ("/sbin/init", "/usr/sbin/init", "/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/init")
    text = "".join(path.read_text(errors="replace") for path in releases[:1] if path.is_file())
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.M)
    fstab = Path("/etc/fstab")
    return {
        "root": bool(releases) and any(os.path.lexists(path) for path in inits),
        "name": name.group(1) if name else "unknown system",
        "cloud_init": any(Path(folder, "cloud-init").exists() for folder in ("/usr/bin", "/usr/local/bin", "/bin")),
        "switched_off": Path("/etc/cloud/cloud-init.disabled").exists(),
        "fstab": fstab.read_text(errors="replace") if fstab.is_file() else "",
    }


class Root:
    """The root file system of the new system: a partition, and for btrfs a folder on it."""

    KINDS = ("ext2", "ext3", "ext4", "xfs", "btrfs")

    def __init__(self, partition: Partition, folder: str, facts: RootFacts) -> None:
        self.partition, self.folder, self.facts = partition, folder, facts

    @classmethod
    def find(cls, partitions: list[Partition], work: Path, say: Say) -> list[Root]:
        """Look into every file system for an os-release and an init."""
        found = []
        for partition in [one for one in partitions if one.fs in cls.KINDS]:
            try:
                with mounted(partition, work / "root", "ro") as top:
                    found += cls._look(partition, top)
            except Refused as error:
                say(f"{partition} is left alone: {error}")
        return found

    @classmethod
    def _look(cls, partition: Partition, top: Path) -> list[Root]:
        facts = inside(top, look_around)
        if facts["root"]:
            return [cls(partition, ".", facts)]
        below = sorted(path.name for path in top.iterdir() if path.is_dir() and not path.is_symlink())
        seen = [(name, inside(top / name, look_around)) for name in below if partition.fs == "btrfs"]
        return [cls(partition, name, facts) for name, facts in seen if facts["root"]]


# --- What the new system mounts on its own.


def var_mounts(fstab: str, partitions: list[Partition]) -> list[tuple[str, Partition, str]]:
    """Find what the new system mounts above /var/lib/cloud: (mount point, partition, options)."""
    found = []
    for line in fstab.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) < 4 or fields[1].rstrip("/") not in ("/var", "/var/lib", "/var/lib/cloud"):
            continue
        name, _equals, value = fields[0].replace('"', "").partition("=")
        wanted = f"{name}={value.lower() if name == 'PARTUUID' else value}"
        origin = next((one for one in partitions if value and wanted in one.names), None)
        if origin is None:
            raise Refused(
                f"the image mounts {fields[1]} from {fields[0]}, which is not on this disk; "
                "the bootstrap data would be hidden"
            )
        options = [option for option in fields[3].split(",") if option.startswith("subvol")]
        found.append((fields[1].rstrip("/"), origin, ",".join(["rw", *options])))
    return sorted(found, key=lambda one: len(one[0]))


# --- Hands bootstrap data to cloud-init as a NoCloud seed.


def forget_instance() -> None:
    """Make cloud-init look for its data again although the image has booted before; runs inside the new root."""
    link = Path("/var/lib/cloud/instance")
    if link.is_symlink():
        link.unlink()


def meta_data(machine: str, keys: list[str], installation: str = "") -> bytes:
    """Return the meta-data of the seed: a new instance, its name, and its SSH keys if there are any.

    The instance carries the id of the installation, where there is one: cloud-init shows it in the new system.
    """
    meta: dict[str, Any] = {
        "instance-id": f"iid-kubenode-{installation or uuid.uuid4()}",
        "local-hostname": machine,
    }
    if keys:
        meta["public-keys"] = keys
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in meta.items()).encode()


def seed_cloud_init(root: Path, bootstrap: Bootstrap, record: dict[str, str]) -> None:
    """Hand user data, host name and keys to cloud-init as a NoCloud seed, and let it look nowhere else."""
    seed = "/var/lib/cloud/seed/nocloud/"
    meta = meta_data(record["machine"], bootstrap.keys, record.get("installation", ""))
    write_into(root, seed + "user-data", bootstrap.data, 0o600, 0o700)
    write_into(root, seed + "meta-data", meta, 0o600, 0o700)
    pin = b"# written by " + record["command"].encode() + b": the provider's metadata must not win over the seed\n"
    write_into(
        root, "/etc/cloud/cloud.cfg.d/zz-kubenode-datasource.cfg", pin + b"datasource_list: [ NoCloud, None ]\n", 0o644
    )
    inside(root, forget_instance)


def check_cloud_init(roots: list[Root]) -> None:
    """Refuse an image that would never read the cloud-init data it is given."""
    if len(roots) != 1:
        where = ", ".join(str(root.partition) for root in roots) or "none was found"
        raise Refused(f"bootstrap data: it needs exactly one root file system in the image: {where}")
    if not roots[0].facts["cloud_init"]:
        raise Refused("bootstrap data: it is cloud-init, but the image has no cloud-init program")
    if roots[0].facts["switched_off"]:
        raise Refused("bootstrap data: cloud-init is switched off in the image by /etc/cloud/cloud-init.disabled")


def seed_ignition(partitions: list[Partition], work: Path, data: bytes, say: Say) -> None:
    """Put an Ignition config where Fedora CoreOS (boot partition) or Flatcar (OEM partition) looks for it."""
    for label, name, proof in (("boot", "/ignition/config.ign", "ignition.firstboot"), ("OEM", "/config.ign", "")):
        for partition in [one for one in partitions if one.label == label]:
            with mounted(partition, work / "root") as top:
                if not (top / proof).exists():
                    raise Refused(f"{partition}: no {proof} on it, the image has booted before or is no CoreOS")
                write_into(top, name, data, 0o600, 0o700 if proof else 0o755)
            say(f"ignition: {name} on {partition}, label {label}")
            return
    raise Refused(
        "bootstrap data: it is Ignition, but the image has no partition labelled boot (Fedora CoreOS) or OEM (Flatcar)"
    )


def seed_root(
    root: Root, partitions: list[Partition], work: Path, bootstrap: Bootstrap, record: dict[str, str], say: Say
) -> None:
    """Write host name, bootstrap data and the installed record into the new root file system."""
    machine = record["machine"]
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(mounted(root.partition, work / "root")) / root.folder
        if bootstrap.kind == "cloud-init":
            for point, partition, options in var_mounts(root.facts["fstab"], partitions):
                target = Path(str(top) + point)
                if target.resolve() != target or not target.is_dir():
                    raise Refused(f"new root file system: mount point {point} is not a plain folder")
                stack.enter_context(mounted(partition, target, options))
            seed_cloud_init(top, bootstrap, record)
            say(f"cloud-init: NoCloud seed for {machine}, {len(bootstrap.keys)} SSH keys of the rescue")
        else:
            write_into(top, "/etc/hostname", machine.encode() + b"\n", 0o644)
        text = json.dumps(record, indent=2) + "\n"
        write_into(top, "/etc/kubenode/installed.json", text.encode(), 0o644)


# --- The firmware of this machine, and the boot loaders that go onto the disk.


#: By architecture: what GRUB calls its half for UEFI and for BIOS.
GRUB_HALVES = {"x86_64": ("x86_64-efi", "i386-pc"), "aarch64": ("arm64-efi", "")}


class Firmware:
    """How this machine boots, and what can be written for the other way, so that the disk boots anywhere."""

    def __init__(self) -> None:
        machine = platform.machine()
        if machine not in GRUB_HALVES:
            raise Refused(f"this machine is a {machine}; known are {', '.join(GRUB_HALVES)}")
        self.efi_half, self.bios_half = GRUB_HALVES[machine]
        self.uefi = Path("/sys/firmware/efi").is_dir() or not self.bios_half
        self.esp = kernel_knows("vfat") and shutil.which(WAYS["vfat"][0][0]) is not None
        if self.uefi and not self.esp:
            raise Refused("this machine boots by UEFI, and this rescue has no vfat or no mkfs.vfat for its ESP")

    @property
    def needed(self) -> str:
        """The half of GRUB that this machine cannot boot without."""
        return self.efi_half if self.uefi else self.bios_half

    def halves(self, found: set[str]) -> tuple[bool, bool]:
        """Return which halves to install, (for UEFI, for BIOS), of those that the image has."""
        return self.esp and self.efi_half in found, bool(self.bios_half) and self.bios_half in found


# --- Runs programs of the new system in it; of the rescue they see the disk alone.


NODES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "GRUB_DISABLE_OS_PROBER": "true",
}


@contextlib.contextmanager
def entered(top: Path, disk: Disk, partitions: list[Partition]) -> Iterator[Callable[..., str]]:
    """Give a mounted root a /dev of its own, /proc, /sys, /run and /tmp; yield a function that runs its programs."""
    with contextlib.ExitStack() as stack:
        for name, command in (
            ("dev", ("-t", "tmpfs", "-o", "mode=0755,nosuid", "dev")),
            ("proc", ("-t", "proc", "proc")),
            ("sys", ("--rbind", "/sys")),
            ("run", ("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "run")),
            ("tmp", ("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmp")),
        ):
            folder = top / name
            if folder.is_symlink():
                raise Refused(f"new root file system: /{name} is a link")
            folder.mkdir(exist_ok=True)
            run("mount", *command, str(folder))
            stack.callback(leave, folder)
        furnish(top / "dev", disk, partitions)
        # how libudev is to read /sys is the rescue's word; nothing else of its environment, which may hold secrets
        kept = {name: value for name, value in os.environ.items() if name.startswith("SYSTEMD_")}

        def call(*command: str) -> str:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                ("chroot", str(top), *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False, env={**kept, **ENVIRONMENT},
            )  # fmt: skip
            if done.returncode:
                text = "; ".join(done.stdout.strip().splitlines()[-3:])
                raise Refused(f"{command[0]} in the new system ended with exit code {done.returncode}: {text}")
            return done.stdout

        yield call


def leave(folder: Path) -> None:
    """Take a mount away, also one that another program still uses."""
    run("umount", "--recursive", "--lazy", str(folder))


def furnish(dev: Path, disk: Disk, partitions: list[Partition]) -> None:
    """Fill a /dev: the usual nodes, the disk, its partitions, and the links by which GRUB knows them."""
    for name, major, minor in NODES:
        with contextlib.suppress(PermissionError):  # a rescue in a container; /dev/null is always there
            os.mknod(str(dev / name), stat.S_IFCHR | 0o600, os.makedev(major, minor))
            (dev / name).chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    (dev / "shm").mkdir()
    nodes = {disk.path: Path(disk.path).stat().st_rdev}
    for partition in partitions:
        nodes[partition.node] = Path(partition.node).stat().st_rdev
        for folder, tag in (("by-uuid", partition.uuid), ("by-partuuid", partition.partuuid)):
            if tag:
                link = dev / "disk" / folder / tag
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(partition.node)
    for path, number in nodes.items():
        node = dev / Path(path).relative_to("/dev")
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(str(node), stat.S_IFBLK | 0o600, number)


# --- Puts GRUB onto the disk with the new system's own programs.


def grub_program(top: Path, name: str) -> str:
    """Return the new system's grub-NAME, under the name its distribution gives it."""
    for prefix in ("grub", "grub2"):
        for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
            if os.access(str(top) + f"{folder}/{prefix}-{name}", os.X_OK):
                return f"{prefix}-{name}"
    raise Refused(f"image: it has no grub-{name}; install GRUB in it")


def write_menu(top: Path, call: Callable[..., str]) -> None:
    program = grub_program(top, "mkconfig")
    folder = f"/boot/{program.partition('-')[0]}"
    call("mkdir", "-p", folder)
    call(program, "-o", folder + "/grub.cfg")
    menu = Path(str(top) + folder + "/grub.cfg")
    if not menu.is_file() or b"linux" not in menu.read_bytes():
        raise Refused(f"image: {program} found no kernel to start")


def install_efi(top: Path, call: Callable[..., str], half: str) -> None:
    """Install GRUB into the ESP, which is mounted, under the name that needs no boot entry in the firmware."""
    call(
        grub_program(top, "install"), "--target=" + half, "--efi-directory=/boot/efi", "--no-nvram", "--removable",
        "--recheck", "--no-floppy",
    )  # fmt: skip


def install_bios(top: Path, call: Callable[..., str], half: str, disk: str) -> None:
    """Install GRUB for a BIOS; from its last write on the disk boots there, so all else is written before."""
    os.sync()
    call(grub_program(top, "install"), "--target=" + half, "--recheck", "--no-floppy", disk)
