# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A root file system of Debian packages: what it is made of, and the run of mmdebstrap that makes it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from typing import Any

from ..._common.text import json_value
from ..disks.disk_tools import Tools
from ..installimage.image_file import digest_of
from .tree import NotPacked

# --- A root file system of Debian packages: what it is made of, and the call of mmdebstrap that makes it (pure).


#: What a machine needs that boots it, gets its bootstrap data by cloud-init and is then worked on by Ansible.
PACKAGES = (
    "apparmor",
    "btrfs-progs",
    "ca-certificates",
    "cloud-guest-utils",
    "cloud-init",
    "curl",
    "dbus",
    "dosfstools",
    "e2fsprogs",
    "efibootmgr",
    "fdisk",
    "gdisk",
    "grub2-common",
    "initramfs-tools",
    "iproute2",
    "isc-dhcp-client",  # cloud-init asks the metadata service of a cloud by it
    "kmod",
    "lvm2",
    "mdadm",
    "netbase",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd-resolved",
    "systemd-sysv",
    "systemd-timesyncd",
    "udev",
    "xfsprogs",
    "zstd",
)
#: By Debian's name of the architecture: the boot loaders.
LOADERS = {"amd64": ("grub-pc-bin", "grub-efi-amd64-bin"), "arm64": ("grub-efi-arm64-bin",)}
SUFFIXES = (".tar.zst", ".tar.xz", ".tar.gz", ".tar")

#: Path → content, over what the packages bring.
FILES = {
    "/etc/cloud/cloud.cfg.d/90-node-image.cfg": """\
# Root logs in by key, as on images of the hoster. Data comes from the disk, else from the hoster's metadata service.
datasource_list: [NoCloud, Hetzner, None]
disable_root: false
users: []
manage_etc_hosts: true
# There is no package with locales; cloud-init of Debian 12 calls that an error.
locale: false
# An installer that made host keys has reported them already.
ssh_deletekeys: false
""",
    # Debian makes it, and the folder of GRUB's configuration, with the package that also writes to a disk. installimage
    # changes lines of it, and asks for the configuration before it installs GRUB. On a legacy server without a graphics
    # card, GRUB's graphical terminal never comes to the menu.
    "/etc/default/grub": """\
GRUB_DEFAULT=0
GRUB_TERMINAL=console
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
""",
    # read by the kernel's packages; installimage looks for its second line
    "/etc/kernel-img.conf": """\
do_symlinks = yes
do_bootloader = no
""",
    # without data cloud-init still has host keys to make
    "/etc/cloud/ds-identify.cfg": "policy: enabled\n",
    "/etc/hostname": "localhost\n",
    "/etc/systemd/network/99-dhcp.network": """\
# What neither cloud-init nor an installer configured.
[Match]
Name=en* eth*

[Network]
DHCP=yes
""",
}
#: Shell scripts whose $1 is the tree: nothing of the host that it was made on, nothing of one machine.
HOOKS = (
    'mkdir -p "$1"/boot/grub',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap',
    'ln -sf ../run/systemd/resolve/stub-resolv.conf "$1"/etc/resolv.conf',
    # cloud-init configures the network for this service, which no package of Debian switches on
    'chroot "$1" systemctl --quiet enable systemd-networkd.service',
    *(f'rm -f "$1"{path} && cat >"$1"{path} <<\'END\'\n{text}END' for path, text in sorted(FILES.items())),
)
#: The package that lets an initramfs be reached by SSH makes host keys, which all machines of an archive would share.
#: They are in the initramfs, too.
_DROPBEAR = (
    'rm -f "$1"/etc/dropbear/initramfs/dropbear_*_host_key "$1"/etc/dropbear-initramfs/dropbear_*_host_key',
    'chroot "$1" update-initramfs -u',
)
_SUITE = re.compile(r"[a-z][a-z0-9.-]{0,63}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+:~-]+)?(?:/[a-z][a-z0-9.-]*)?")
_MIRROR = re.compile(r"(?:https?|file|copy):/[^\s'\"]+")
_LINE = re.compile(r"deb(?: \[[\w.:/=+, -]+\])?(?: [^\s\[\]'\"]+){2,}")
_LOGIN = re.compile(r"://[^/\s]*@")


def findings(options: dict[str, Any]) -> list[str]:
    """What speaks against the options of node_image_debian, one text each."""
    found = []
    if not options["path"].endswith(SUFFIXES):
        found.append(f"path {options['path']!r}: let its name end with one of {', '.join(SUFFIXES)}")
    if not _SUITE.fullmatch(options["suite"]):
        found.append(f"suite {options['suite']!r}: give the code name of a release, such as trixie")
    for field, names in (("kernel", [options["kernel"] or "linux"]), ("include", options["include"])):
        wrong = [name for name in names if not _PACKAGE.fullmatch(name)]
        found += [f"{field} {name!r}: this is no name of a package" for name in wrong]
    for field in ("mirrors", "apt_options"):
        if any(_LOGIN.search(text) for text in options[field]):
            # it would be in the arguments of a program, and the mirrors in the sources of every machine
            found.append(f"{field}: a login has no place here; give a proxy's by the environment variable http_proxy")
    for mirror in options["mirrors"]:
        if not (_MIRROR.fullmatch(mirror) or _LINE.fullmatch(mirror)) and not _LOGIN.search(mirror):
            found.append(f"mirrors {mirror!r}: give a URL, or a line of sources.list that begins with deb")
    for line in options["apt_options"]:
        if not line.isprintable() or not line.rstrip().endswith(";"):
            found.append(f"apt_options {line!r}: give one line of apt.conf each, which ends with a semicolon")
    return list(dict.fromkeys(found))


def packages(options: dict[str, Any]) -> list[str]:
    """All packages that are asked for by name, sorted."""
    kernel = options["kernel"] or f"linux-image-{options['architecture']}"
    return sorted({kernel, *PACKAGES, *LOADERS[options["architecture"]], *options["include"]})


def hooks(options: dict[str, Any]) -> tuple[str, ...]:
    """The shell scripts that make the tree fit for any machine."""
    return HOOKS + _DROPBEAR if "dropbear-initramfs" in packages(options) else HOOKS


def options_digest(options: dict[str, Any]) -> str:
    """SHA-256 of all that decides about the content; how it is fetched does not."""
    content = {
        "format": 2,
        "suite": options["suite"],
        "architecture": options["architecture"],
        "mirrors": options["mirrors"],
        "packages": packages(options),
        "hooks": hooks(options),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()


def command(options: dict[str, Any], target: str) -> list[str]:
    """The arguments of mmdebstrap that make the archive ``target``, whose suffix chooses the compression."""
    return [
        f"--architectures={options['architecture']}",
        "--variant=apt",
        "--format=tar",
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=force-unsafe-io",
        *(f"--aptopt={line}" for line in options["apt_options"]),
        *([f"--keyring={options['keyring']}"] if options["keyring"] else []),
        f"--include={','.join(packages(options))}",
        *(f"--customize-hook={hook}" for hook in hooks(options)),
        "--",
        options["suite"],
        target,
        *options["mirrors"],
    ]


# --- One run of node_image_debian: look what is there, have mmdebstrap make it, keep what it was made of.


_PROGRAM = "mmdebstrap"


def run(options: dict[str, Any], tools: Tools, check_mode: bool = False) -> dict[str, Any]:
    """Make the archive; returns the results of the module. Raises :class:`NotPacked`."""
    found = findings(options)
    if found:
        raise NotPacked("nothing was made:\n" + "\n".join(f"- {one}" for one in found))
    path, digest = options["path"], options_digest(options)
    about = {"path": path, "packages": packages(options)}
    known = None if options["force"] else _known(path, digest)
    if known:
        return dict(about, changed=False, **known)
    if not tools.has(_PROGRAM):
        raise NotPacked(f"the program {_PROGRAM} is missing on the host that this runs on; install the package")
    folder = _nearest(os.path.dirname(os.path.abspath(path)))
    if not os.access(folder, os.W_OK):
        raise NotPacked(f"path {path}: the folder {folder} cannot be written")
    if check_mode:
        return dict(about, changed=True)
    began = time.monotonic()
    made = _made(options, tools)
    _keep(path, dict(made, digest=digest))
    return dict(about, changed=True, seconds=round(time.monotonic() - began, 1), **made)


def _made(options: dict[str, Any], tools: Tools) -> dict[str, Any]:
    folder, name = os.path.split(os.path.abspath(options["path"]))
    partial = os.path.join(folder, f".partial-{name}")  # with the suffix, which chooses the compression
    try:
        os.makedirs(folder, exist_ok=True)
        code, _out, err = tools(_PROGRAM, *command(options, partial), limit=options["timeout"])
        if code:
            raise NotPacked(f"mmdebstrap made no root file system of {options['suite']}: {_last(err)}")
        made = {"sha256": _sha256_of(partial), "size": os.path.getsize(partial)}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_record(options["path"]))  # an old record must not describe a new file
        os.rename(partial, options["path"])
        return made
    except OSError as error:
        raise NotPacked(f"{error.filename or options['path']}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def _nearest(folder: str) -> str:
    """The folder, or the one above it that exists: it is made in there."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _last(text: str) -> str:
    """The end of what a program said, errors first; safe to print."""
    lines = ["".join(one for one in line if one.isprintable()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E: ", "Err:"))]
    return " / ".join((errors or lines)[-6:])[:1500] or "it said nothing"


def _record(path: str) -> str:
    return path + ".json"


def _known(path: str, digest: str) -> dict[str, Any] | None:
    """What the record says of a file that was made of the same, and is still that file to the last bit."""
    try:
        with open(_record(path), encoding="utf-8") as file:
            record = json_value(file.read())
        about = {"sha256": record["sha256"], "size": os.path.getsize(path)}
        if record["digest"] == digest and _sha256_of(path) == about["sha256"]:
            return about
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _keep(path: str, record: dict[str, Any]) -> None:
    partial = _record(path) + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.write("\n")
    os.rename(partial, _record(path))


def _sha256_of(path: str) -> str:
    return digest_of(path).partition(":")[2]
