# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the real installimage said of configurations, what ours is to say of them, and why where we are stricter.

The configurations are its own (drives of 40 GiB); the lab's installimage is to say what the real one said.
"""

from typing import NamedTuple

GIB = 1 << 30
DRIVE_BYTES = 40 * GIB
BOOKWORM = "Debian-1200-bookworm-amd64-base.tar.zst"
TAKES = ""
_BOOT, _ROOT, _ESP = "PART /boot ext4 1G", "PART / ext4 all", "PART /boot/efi esp 256M"
_VG = "PART lvm vg0 all"
_OTHERS = ("PART swap swap 1G", "PART /a ext4 1G", "PART /b ext4 1G")
_RAID = ("DRIVE2 /dev/sdb", "SWRAID 1")
_LIKE = "amd64-base.tar.zst"


class Row(NamedTuple):
    """A configuration. ``real`` and ``ours``: a part of the refusal, or TAKES."""

    name: str
    lines: tuple[str, ...]
    real: str = TAKES
    ours: str = TAKES
    image: str = BOOKWORM
    uefi: bool = False


def _part(filesystem: str) -> tuple[str, ...]:
    return (_BOOT, f"PART / {filesystem} all")


ROWS = (
    # what both always took or refused alike
    Row("root only", (_ROOT,)),
    Row("boot and root", (_BOOT, _ROOT)),
    Row("mirror", (*_RAID, "SWRAIDLEVEL 1", _BOOT, _ROOT)),
    Row("lvm", (_BOOT, _VG, "LV vg0 root / ext4 10G", "LV vg0 swap swap swap 2G", "LV vg0 data /data xfs all")),
    Row("btrfs", (_BOOT, "PART btrfs.1 btrfs all", "SUBVOL btrfs.1 @ /", "SUBVOL btrfs.1 @home /home")),
    Row("uefi", (_ESP, _BOOT, _ROOT), uefi=True),
    Row("no ESP", (_BOOT, _ROOT), "ESP missing or multiple", "there is no ESP", uefi=True),
    Row("two ESPs", (_ESP, _ESP, _ROOT), "ESP missing or multiple", "there are 2 ESPs", uefi=True),
    Row("all not last", (_ROOT, "PART /x ext4 1G"), 'size "all" has to be on the last', "put this one last"),
    Row("small root", ("PART / ext4 1499M",), "at least 1500M", "at least 1500M"),
    Row("small boot", ("PART /boot ext4 199M", _ROOT), "at least 200M", "at least 200M"),
    Row("no root", (_BOOT,), "You dont have a partition for /", "nothing is mounted on /"),
    Row("root in LVM alone", (_VG, "LV vg0 root / ext4 all"), "may not be a Logical Volume", "not in LVM"),
    Row("RAID 5 of two", (*_RAID, "SWRAIDLEVEL 5", _BOOT, _ROOT), "Not enough disks for RAID", "at least 3 disks"),
    Row("RAID 0 without boot", (*_RAID, "SWRAIDLEVEL 0", _ROOT), "You need a /boot", "/boot of its own"),
    Row("too much", (_BOOT, "PART / ext4 40G"), "more space than your drives", "make them smaller"),
    Row("mounted twice", ("PART / ext4 4G", "PART / ext4 all"), "identical mountpoints", "mount it once"),
    Row("root 4th", (*_OTHERS, _ROOT), "/ must be mounted on a primary", "one of the first three"),
    Row("two swap partitions", ("PART swap swap 1G", "PART swap swap 1G", _ROOT)),
    Row("arm64 image", (_ROOT,), "can not install an arm64", "image for aarch64", f"Debian-1200-arm64-{_LIKE[6:]}"),
    Row("no architecture", (_ROOT,), "can not determine image arch", "architecture", "Debian-1200-base.tar.zst"),
    # where one of the three differed
    Row("ESP on a legacy machine", (_ESP, _BOOT, _ROOT)),
    Row("1016 MiB left for root", ("PART /data ext4 39G", _ROOT), TAKES, "at least 1500M"),
    Row("1016 MiB left for data", ("PART / ext4 39G", "PART /data ext4 all")),
    Row("1023 MiB left", ("PART / ext4 39937M", "PART /data ext4 all"), "more space than your drives", "1024M"),
    Row("root of the whole disk", ("PART / ext4 40G",), TAKES, "the smallest one holds 40952 MiB"),
    Row("/boot 4th, / 1st", ("PART / ext4 4G", *_OTHERS[:2], _BOOT), "/boot must be mounted on a primary",
        "partitions[3].mount \"/boot\""),
    Row("volumes larger than their sized group", (_BOOT, "PART lvm vg0 10G", "LV vg0 root / ext4 11G"), TAKES,
        "add up to 11264 MiB"),
    Row("striped root", (*_RAID, "SWRAIDLEVEL 0", _BOOT, "PART / ext4 1500M", "PART /data ext4 all"),
        "at least 1500M (current size: 750)", "leaves 750 MiB on each for /, which needs at least 1500M"),
    Row("striped root that is large enough", (*_RAID, "SWRAIDLEVEL 0", _BOOT, "PART / ext4 3000M")),
    Row("striped partition of nothing", (*_RAID, "SWRAIDLEVEL 0", _BOOT, "PART swap swap 1M", _ROOT),
        "PART swap is not a valid number", "leaves 0 MiB on each for swap, which needs at least 1M"),
    Row("root in a RAID 10 of two", (*_RAID, "SWRAIDLEVEL 10", _BOOT, "PART / ext4 1500M")),
    Row("two partitions of one group", (_BOOT, "PART lvm vg0 10G", _VG, "LV vg0 root / ext4 20G")),
    Row("two swap volumes", (_BOOT, _VG, "LV vg0 root / ext4 9G", "LV vg0 a swap swap 1G", "LV vg0 b swap swap 1G"),
        "identical mountpoints in the config (swap)", "one logical volume of swap"),
    Row("/boot in LVM, / a partition", ("PART / ext4 9G", _VG, "LV vg0 boot /boot ext4 1G")),
    Row("btrfs root 4th", (*_OTHERS, "PART btrfs.1 btrfs all", "SUBVOL btrfs.1 @ /")),
    Row("reiserfs on Debian", _part("reiserfs")),
    *(Row(f"reiserfs on {one}", _part("reiserfs"), "reiserfs is not supported", "has no reiserfs", f"{one}-90-{_LIKE}")
      for one in ("Alma", "Rocky", "CentOS")),
    Row("reiserfs on RHEL", _part("reiserfs"), TAKES, "has no reiserfs", f"RHEL-90-{_LIKE}"),
    *(Row(f"xfs on {one}", _part("xfs"), "is not supported", "xfs is too new", f"{one}-{_LIKE}")
      for one in ("Ubuntu-2004", "Debian-100", "Debian-1013", "Ubuntu-jammy-latest")),
    *(Row(f"xfs on {one}", _part("xfs"), image=f"{one}-{_LIKE}")
      for one in ("Ubuntu-2204", "Debian-1100", "Ubuntu-24.04")),
    *(Row(f"xfs volume on {one}", (_BOOT, _VG, "LV vg0 root / xfs all"), "is not supported", "xfs is too new",
          f"{one}-{_LIKE}") for one in ("Ubuntu-2004", "Debian-100")),
    *(Row(f"btrfs on {one}", _part("btrfs"), image=f"{one}-{_LIKE}") for one in ("CentOS-69", "CentOS-610", "RHEL-79")),
    Row("btrfs on RHEL 9", _part("btrfs"), TAKES, "has no btrfs", f"RHEL-90-{_LIKE}"),
    *(Row(f"btrfs on {one}", _part("btrfs"), "support btrfs", "has no btrfs", f"{one}-{_LIKE}")
      for one in ("CentOS-61", "CentOS-84", "Rocky-90", "Alma-810")),
    *(Row(f"UEFI with {one}", (_ESP, _BOOT, _ROOT), "on EFI systems", "version 8", f"{one}-{_LIKE}", uefi=True)
      for one in ("Rocky-80", "Alma-89", "RHEL-810", "CentOS-86", "Alma-899")),
    *(Row(f"UEFI with {one}", (_ESP, _BOOT, _ROOT), image=f"{one}-{_LIKE}", uefi=True)
      for one in ("Rocky-90", "Alma-900", "RHEL-79", "Debian-810")),
    *(Row(f"image {one}", (_BOOT, _ROOT), image=one) for one in (
        f"Debian-bookworm-latest-{_LIKE}", f"Ubuntu-jammy-latest-{_LIKE}", f"Ubuntu-24.04-{_LIKE}",
        "Debian-1200-bookworm-amd64-base.tbz2", "Debian-arm64-amd64-base.tar")),
    Row("image in capitals", (_ROOT,), "no valid FILETYPE", "unpacks only", "Debian-1200-amd64-base.TAR.ZST"),
    Row("GOVERNOR schedutil", (_ROOT, "GOVERNOR schedutil"), "No valid GOVERNOR", "powersave"),
    Row("GOVERNOR Performance", (_ROOT, "GOVERNOR Performance")),
    Row("BOOTLOADER systemd-boot", (_ROOT, "BOOTLOADER systemd-boot"), "No valid BOOTLOADER", "takes grub"),
    Row("BOOTLOADER Grub", (_ROOT, "BOOTLOADER Grub")),
    Row("crypt", (_BOOT, "PART / ext4 all crypt", "CRYPTPASSWORD correct-horse")),
    Row("crypt on LVM", (_BOOT, f"{_VG} crypt", "LV vg0 root / ext4 all", "CRYPTPASSWORD correct-horse")),
    Row("crypt on CentOS 6", (_BOOT, "PART / ext4 all crypt", "CRYPTPASSWORD correct-horse"),
        "CentOS 7 or higher", "from version 7 on", f"CentOS-610-{_LIKE}"),
    Row("512MiB", ("PART /boot ext4 512MiB", _ROOT)),
    Row("size without unit", ("PART /boot ext4 512", _ROOT), TAKES, "M, G or T"),
    Row("host name with _", ("HOSTNAME node_1", _ROOT), TAKES, "hostname"),
    Row("size ALL", ("PART / ext4 ALL",), "is not a valid number", "M, G or T"),
    Row("unit in lower case", ("PART / ext4 4g",), "is not a valid number", "M, G or T"),
)  # fmt: skip
