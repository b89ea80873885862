# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small root file systems whose own programs really run, and tar archives of all kinds."""

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

#: In place of grub-install: leaves its arguments, and boot code on the disk where a BIOS looks.
GRUB_INSTALL = """#!/bin/sh
echo "$@" >> /boot/grub/installed
for last; do :; done
case "$1" in
--target=i386-pc) printf 'BOOTCODE' > "$last" ;;
esac
"""
GRUB_MKCONFIG = """#!/bin/sh
test "$1" = -o || exit 1
echo "linux /boot/vmlinuz-1" > "$2"
test -e /dev/null && test -e /proc/self && test -d /sys/dev/block
set > /boot/grub/environment
"""
FILES = {
    "etc/os-release": 'PRETTY_NAME="Tiny OS 1"\n',
    "usr/lib/systemd/systemd": "",
    "usr/bin/cloud-init": "",
    "etc/cloud/cloud.cfg": "datasource_list: [ Hetzner, None ]\n",
    "boot/vmlinuz-1": "kernel\n",
    "usr/sbin/grub-install": GRUB_INSTALL,
    "usr/sbin/grub-mkconfig": GRUB_MKCONFIG,
    "usr/lib/grub/i386-pc/normal.mod": "",
    "usr/lib/grub/x86_64-efi/normal.mod": "",
}


def tiny(top: Path) -> Path:
    """Make a root file system with a shell."""
    for name, text in FILES.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if "bin/" in name:
            path.chmod(0o755)
    for folder in ("bin", "sbin", "lib64"):
        (top / "usr" / folder).mkdir(exist_ok=True)
        (top / folder).symlink_to(f"usr/{folder}")
    (top / "sbin/init").symlink_to("/usr/lib/systemd/systemd")
    for program in ("/bin/dash", "/bin/mkdir"):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            (top / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, top / library[1:])
        shutil.copy(program, top / program[1:])
    (top / "bin/sh").symlink_to("dash")
    return top


def pack(top: Path, *options: str) -> bytes:
    """Pack a folder with GNU tar, as people do."""
    command = ["tar", "--create", "--numeric-owner", *options, "-C", str(top), "."]
    return subprocess.run(command, capture_output=True, check=True).stdout


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **more) -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive, with any hostile value."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(data), 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def archive(*members: tuple[tarfile.TarInfo, bytes], base: bytes = b"") -> bytes:
    """An archive of these members, behind those of another archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    end = 0
    if base:
        with tarfile.open(fileobj=io.BytesIO(base)) as old:
            old.getmembers()
            end = old.offset
    return base[:end] + made.getvalue()
