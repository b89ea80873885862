# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab images consist of: packages, settings and overlay files (data, no building)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

SUITE = "bookworm"
FILES = Path(__file__).parent / "files"

# What is in every tree: systemd as init, sshd, Python for Ansible.
_COMMON = (
    "ca-certificates", "cloud-guest-utils", "curl", "dbus", "e2fsprogs", "fdisk", "gdisk", "iproute2", "kmod",
    "netbase", "openssh-server", "procps", "python3", "systemd-sysv", "udev", "zstd",
)  # fmt: skip
# linux-image-amd64: the cloud kernel has neither SATA nor 9p
# systemd-container: installimage runs programs of a new system by systemd-nspawn
_RESCUE = (
    "btrfs-progs", "bzip2", "cryptsetup-bin", "dmidecode", "dosfstools", "efibootmgr", "ethtool", "file", "fio",
    "gpg", "gpg-agent", "grub-common", "hdparm", "jq", "linux-image-amd64", "lvm2", "mdadm", "mtools",
    "ntpsec-ntpdate", "nvme-cli", "parted", "pciutils", "smartmontools", "systemd-container", "wget", "xfsprogs",
    "xz-utils",
)  # fmt: skip
_CLOUD = ("cloud-init", "isc-dhcp-client", "linux-image-cloud-amd64", "sudo")
# isc-dhcp-client: cloud-init asks the metadata service of a cloud by it
_TARBALL = (
    "btrfs-progs", "cloud-init", "dosfstools", "efibootmgr", "grub-efi-amd64-bin", "grub-pc-bin", "grub2-common",
    "initramfs-tools", "isc-dhcp-client", "linux-image-amd64", "lvm2", "mdadm", "sudo", "xfsprogs",
)  # fmt: skip


# Units that cost time at every boot and mean nothing to a machine that lives for minutes.
_MASKED = (
    "apt-daily-upgrade.timer", "apt-daily.timer", "console-getty.service", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer", "getty@tty1.service", "ldconfig.service",
    "serial-getty@ttyS0.service", "systemd-ask-password-console.path", "systemd-ask-password-wall.path",
    "systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "systemd-network-generator.service",
    "systemd-networkd-wait-online.service", "systemd-pcrphase-sysinit.service", "systemd-pcrphase.service",
    "systemd-tmpfiles-clean.timer", "systemd-update-done.service", "systemd-update-utmp-runlevel.service",
    "systemd-update-utmp.service",
)  # fmt: skip
# What the packages for disks and arrays would start: a machine of the lab has no use for it.
_MASKED_STORAGE = (
    "dm-event.socket", "lvm2-lvmpolld.socket", "lvm2-monitor.service", "mdcheck_continue.timer",
    "mdcheck_start.timer", "mdmonitor-oneshot.timer", "mdmonitor.service", "nvmefc-boot-connections.service",
    "nvmf-autoconnect.service", "smartmontools.service",
)  # fmt: skip
# What a rescue has no use for and boots quicker without.
_MASKED_RESCUE = (
    "fio.service", "machines.target", "proc-sys-fs-binfmt_misc.automount", "systemd-binfmt.service",
    "systemd-hostnamed.service", "uuidd.socket", "var-lib-machines.mount",
)  # fmt: skip
# Kernel modules that no machine of the lab has a use for: most of the kernel's package.
_UNUSED_MODULES = tuple(
    f"/lib/modules/*/kernel/{folder}/*"
    for folder in (
        "arch/x86/kvm", "drivers/block/drbd", "drivers/bluetooth", "drivers/comedi", "drivers/gpu", "drivers/hid",
        "drivers/hwmon", "drivers/iio", "drivers/infiniband", "drivers/isdn", "drivers/media", "drivers/mmc",
        "drivers/mtd", "drivers/net/ethernet", "drivers/net/wireless", "drivers/platform", "drivers/scsi/*",
        "drivers/staging", "drivers/target", "drivers/usb", "drivers/video", "fs/afs", "fs/ceph", "fs/f2fs", "fs/gfs2",
        "fs/nfs", "fs/nfsd", "fs/ocfs2", "fs/smb", "fs/ubifs", "net/bluetooth", "net/ceph", "net/mac80211",
        "net/sunrpc", "net/tipc", "net/wireless", "sound",
    )
)  # fmt: skip
# Of packages that a rescue has for one program of theirs: what runs at a boot or for each disk, and large companions.
_UNUSED_IN_RESCUE = (
    "/lib/systemd/systemd-import*", "/lib/systemd/systemd-portabled", "/lib/systemd/systemd-pull",
    "/lib/udev/rules.d/85-hdparm.rules", "/usr/bin/grub-glue-efi", "/usr/bin/grub-mkfont", "/usr/bin/grub-mknetdir",
    "/usr/bin/grub-mkrescue", "/usr/bin/grub-mkstandalone", "/usr/bin/grub-mount", "/usr/bin/grub-render-label",
    "/usr/bin/grub-syslinux2cfg", "/usr/lib/*/pkgconfig/*", "/usr/sbin/grub-macbless", "/usr/share/bash-completion/*",
    "/usr/share/dbus-1/*/org.freedesktop.import1.*", "/usr/share/dbus-1/*/org.freedesktop.portable1.*",
    "/usr/share/grub/*", "/usr/share/zsh/*",
)  # fmt: skip
# Large, and used by nothing in a rescue or on a machine of the lab, but carried into RAM at every boot or written to a
# disk by every installation: locales to make, full Perl (perl-base stays), hardware names, Unicode data of xfs_scrub.
# Packages need some of it until all are installed.
_BALLAST = (
    "usr/share/i18n/*", "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl", "usr/lib/x86_64-linux-gnu/libperl.so*",
    "usr/lib/udev/hwdb.*", "usr/lib/x86_64-linux-gnu/libicu*", "usr/sbin/xfs_scrub*", "usr/lib/x86_64-linux-gnu/gconv",
)  # fmt: skip
_BALLAST_RESCUE = (
    *(path for path in _BALLAST if "libicu" not in path),  # fio is linked to that
    "usr/lib/python3*/ensurepip", "usr/lib/python3*/idlelib", "usr/lib/python3*/lib2to3", "usr/lib/python3*/pydoc_data",
    "var/lib/dpkg/info/*.md5sums", "var/lib/dpkg/info/*.shlibs", "var/lib/dpkg/info/*.symbols",
)  # fmt: skip
# The modules whose text decides the content of every image; rescue.py or debian.py comes on top.
_BUILDERS = ("bootstrap.py", "raw_image.py")


@dataclass(frozen=True)
class Recipe:
    """One image: everything its content depends on."""

    name: str
    packages: tuple[str, ...]
    disk_mib: int = 0  # size of the raw disk; 0 for a tree that is booted from RAM
    suite: str = SUITE
    masked: tuple[str, ...] = _MASKED
    excluded: tuple[str, ...] = _UNUSED_MODULES  # paths in packages that are not unpacked
    removed: tuple[str, ...] = _BALLAST  # paths that go when all packages are installed
    like: str = ""  # the recipe whose builder and overlay files this one uses, too

    @property
    def builder(self) -> str:
        """The name of the builder, which is also the name of the folder of overlay files."""
        return self.like or self.name

    @property
    def overlay(self) -> Path:
        """The folder whose files are laid over the installed packages."""
        return FILES / self.builder

    @property
    def digest(self) -> str:
        """Changes whenever the recipe, an overlay file or the code that decides the content does."""
        fields = {name: value for name, value in asdict(self).items() if name != "like" or value}
        total = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
        here = Path(__file__).parent
        overlay = (path for path in sorted(self.overlay.rglob("*")) if path.is_file())
        for path in [
            *(here / name for name in (*_BUILDERS, "rescue.py" if self.builder == "rescue" else "debian.py")),
            *overlay,
        ]:
            total.update(f"{path.relative_to(here)}\0{path.stat().st_mode & 0o111:o}\0".encode())
            total.update(path.read_bytes())
        return total.hexdigest()[:16]


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "rescue",
            (*_COMMON, *_RESCUE),
            masked=_MASKED + _MASKED_STORAGE + _MASKED_RESCUE,
            excluded=_UNUSED_MODULES + _UNUSED_IN_RESCUE,
            removed=_BALLAST_RESCUE,
        ),
        Recipe("debian", (*_COMMON, *_CLOUD), disk_mib=512),
        Recipe("debian13", (*_COMMON, *_CLOUD), disk_mib=1536, suite="trixie", like="debian"),
        Recipe(
            "tarball",
            (*_COMMON, *_TARBALL),
            masked=_MASKED + _MASKED_STORAGE,
            excluded=(*_UNUSED_MODULES, "/usr/lib/grub/x86_64-efi/monolithic/*"),
        ),
    )
}
