# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The new system: commands inside it, its name, network, keys, small files and boot loader."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from pathlib import Path

from . import rescue_host
from .image import ImageName
from .rescue_host import Failed, debug, interrupt_line, quote
from .storage import Storage, uuid, vfat

_NO_AUTOCONF = (
    "autoconf", "accept_dad", "accept_ra", "accept_ra_defrtr", "accept_ra_rtr_pref", "accept_ra_pinfo",
    "accept_source_route", "accept_redirects",
)  # fmt: skip
_RESCUE_SHADOW = Path("/etc/shadow")
_FILE_SYSTEMS = (("/dev", "--rbind"), ("/sys", "--rbind"))
_EFI_MODULES = (
    "part_gpt", "part_msdos", "fat", "ext2", "xfs", "btrfs", "normal", "configfile", "linux", "search",
    "search_fs_uuid", "serial", "terminal", "echo", "test", "boot", "all_video", "gzio",
)  # fmt: skip
# What it changes in /etc/default/grub, where these lines are there.
_DEFAULTS = {
    "GRUB_HIDDEN_TIMEOUT": "5",
    "GRUB_HIDDEN_TIMEOUT_QUIET": "false",
    "GRUB_CMDLINE_LINUX_DEFAULT": '"consoleblank=0"',
}


class Target:
    """The root file system of the new system, mounted below the work directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entered = False

    def file(self, path: str) -> Path:
        """A path of the new system."""
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the new system, its folder too; a link in its place is replaced, not followed."""
        file = self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.installimage")
        partial.write_text(text)
        partial.chmod(mode)
        partial.replace(file)

    # -- commands inside -------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Give the new system the rescue's devices, so that its own programs can run in it."""
        if self._entered:
            return
        for path in ("dev", "sys", "proc", "run", "tmp"):
            self.file(path).mkdir(exist_ok=True)
        for path, way in _FILE_SYSTEMS:
            rescue_host.run("mount", way, "--make-rslave", path, str(self.file(path)))
        rescue_host.run("mount", "-t", "proc", "proc", str(self.file("/proc")))
        rescue_host.run("mount", "-t", "tmpfs", "-o", "mode=0755", "run", str(self.file("/run")))
        self.file("/run/lock").mkdir()
        for path in ("/run/udev", "/run/lvm"):  # where tools look for what udev knows
            if Path(path).is_dir():
                self.file(path).mkdir()
                rescue_host.run("mount", "--bind", path, str(self.file(path)))
        self._entered = True

    def leave(self) -> None:
        """Take everything back."""
        if self._entered:
            for path in ("/run", "/proc", "/sys", "/dev"):
                rescue_host.run("umount", "--recursive", "--lazy", str(self.file(path)), check=False)
        self._entered = False

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of the new system inside it."""
        self.enter()
        return rescue_host.run("chroot", str(self.root), *command, check=check)

    def stream(self, *command: str) -> int:
        """Run a command of the new system, its output on the terminal alone; returns its status."""
        self.enter()
        return rescue_host.stream("chroot", str(self.root), *command)

    def has(self, program: str) -> bool:
        """Whether the new system has a program."""
        folders = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
        return any(os.access(self.file(f"{folder}/{program}"), os.X_OK) for folder in folders)

    # -- small files -----------------------------------------------------------------------------------------------

    def set_hostname(self, name: str, addresses: list[str]) -> None:
        """/etc/hostname and /etc/hosts; the rescue itself is called like that from now on, as by the real one."""
        rescue_host.run("hostname", name)
        self.run("hostname", name, check=False)
        short = name.partition(".")[0]
        self.write("/etc/hostname", f"{short}\n")
        debug(f"# set new hostname '{short}' in {self.file('/etc/hostname')}")
        if self.file("/etc/machine-id").is_file():
            self.file("/etc/machine-id").write_text("")
            rescue_host.run("systemd-machine-id-setup", "--root", str(self.root), check=False)
        names = name if "." not in name else f"{name} {name.partition('.')[0]}"
        lines = ["127.0.0.1 localhost", "127.0.1.1 " + names if not addresses else "", "::1 localhost ip6-localhost"]
        lines += [f"{address} {names}" for address in addresses]
        self.write("/etc/hosts", "".join(f"{line}\n" for line in lines if line))

    def set_network(self, image: ImageName, ipv4_only: bool) -> list[str]:
        """The addresses of this rescue become the new system's, in the one way that the real one knows for its kind,
        whether its programs read that or not; returns them without their prefixes."""
        links = json.loads(rescue_host.run("ip", "-json", "address", "show") or "[]")
        routes = json.loads(rescue_host.run("ip", "-json", "route", "show", "default") or "[]")
        device = routes[0]["dev"] if routes else ""
        link = next((one for one in links if one["ifname"] == device), None)
        if link is None:
            debug("no network interface has a default route: the network of the image stays as it is")
            return []
        families = ("inet",) if ipv4_only else ("inet", "inet6")
        found = [one for one in link["addr_info"] if one["family"] in families and one["scope"] == "global"]
        addresses = [f"{one['local']}/{one['prefixlen']}" for one in found]
        gateway = routes[0].get("gateway", "")
        if image.distribution == "ubuntu" and not image.is_before(1710):
            self._set_netplan(device, addresses, gateway)
        elif image.distribution in ("debian", "ubuntu"):
            self._set_interfaces(device, addresses, gateway)
        else:
            debug(f"the lab writes no network configuration for {image.distribution}")
        return [one["local"] for one in found]

    def _set_interfaces(self, device: str, addresses: list[str], gateway: str) -> None:
        """For ifupdown: the other machines of the network are reached through the gateway alone."""
        if not self.file("/etc/network").is_dir():
            _not_there(self.file("/etc/network/interfaces"))  # which stops nothing
            return
        lines = ["### Hetzner Online GmbH installimage", ""]
        if self.file("/etc/network/interfaces.d").is_dir():
            lines += ["source /etc/network/interfaces.d/*", ""]
        lines += ["auto lo", "iface lo inet loopback", "iface lo inet6 loopback"]
        for address in addresses:
            parsed = ipaddress.ip_interface(address)
            if parsed.version == 6:
                lines += ["", f"iface {device} inet6 static", f"  address {parsed.ip}"]
                lines.append(f"  netmask {parsed.network.prefixlen}")
                continue
            lines += ["", f"auto {device}", f"iface {device} inet static", f"  address {parsed.ip}"]
            lines += [f"  netmask {parsed.netmask}", f"  gateway {gateway}"]
            lines.append(f"  # route {parsed.network} via {gateway}")
            network = f"-net {parsed.network.network_address} netmask {parsed.netmask}"
            lines.append(f"  up route add {network} gw {gateway} dev {device}")
        self.write("/etc/network/interfaces", "\n".join(lines) + "\n")

    def _set_netplan(self, device: str, addresses: list[str], gateway: str) -> None:
        """For netplan, whose word decides: each address alone, everything else through the gateway."""
        alone = [re.sub("/.*", "/32", one) if ":" not in one else one for one in addresses]
        route = {"on-link": True, "to": "0.0.0.0/0", "via": gateway}
        ethernet = {"addresses": alone, "routes": [route]}
        document = {"network": {"version": 2, "renderer": "networkd", "ethernets": {device: ethernet}}}
        self.write("/etc/netplan/01-netcfg.yaml", json.dumps(document, indent=2) + "\n", 0o600)
        self.run("netplan", "generate")

    def set_resolver(self) -> None:
        """The rescue's name servers, where the real one writes its own: in place of a link, where resolvconf looks."""
        servers = [line for line in _text(Path("/etc/resolv.conf")).splitlines() if line.startswith("nameserver")]
        path = "/etc/resolv.conf"
        if self.file(path).is_symlink():
            path = "/etc/resolvconf/resolv.conf.d/base"
            if not self.file(path).parent.is_dir():
                _not_there(self.file(path))
                return
        lines = ["### Hetzner Online GmbH installimage", "# nameserver config", *servers]
        self.write(path, "\n".join(lines) + "\n")

    def set_sysctl(self) -> None:
        """Settings of the kernel, which nodes find there: no IPv6 autoconfiguration, strict return paths."""
        path = "/etc/sysctl.d/99-hetzner.conf" if self.file("/etc/sysctl.d").is_dir() else "/etc/sysctl.conf"
        lines = ["### Hetzner Online GmbH installimage", "# sysctl config", "#net.ipv4.ip_forward=1"]
        lines += ["net.ipv4.conf.all.rp_filter=1", "net.ipv4.icmp_echo_ignore_broadcasts=1"]
        lines += [f"net.ipv6.conf.{kind}.{key}=0" for kind in ("default", "all") for key in _NO_AUTOCONF]
        self.write(path, "\n".join(lines) + "\n")

    def new_host_keys(self) -> None:
        """New SSH host keys of those types that the image has keys of, and of no other."""
        for kind in ("dsa", "rsa", "ecdsa", "ed25519"):
            key = f"/etc/ssh/ssh_host_{kind}_key"
            if not self.file(key).is_file():
                debug(f"skipping {kind} key gen")
                continue
            for old in self.file("/etc/ssh").glob(f"ssh_host_{kind}_*"):
                old.unlink()
            self.run("ssh-keygen", "-q", "-t", kind, "-f", key, "-N", "")

    def set_mdadm(self) -> None:
        """Let the new system find its arrays, as its own tool writes them down."""
        self.run("sh", "-c", "/usr/share/mdadm/mkconf >/etc/mdadm/mdadm.conf")

    def make_initramfs(self) -> None:
        """An initramfs for the kernel whose initramfs has the last of all names, made by the image's own tools."""
        if self.has("dracut") and not self.has("update-initramfs"):
            kernels = sorted(path.name for path in self.file("/lib/modules").glob("*") if (path / "kernel").is_dir())
            self.run("dracut", "--force", "--kver", kernels[-1] if kernels else "")
            return
        names = [path.name for path in self.file("/boot").rglob("initrd.img-*")]
        version = max((name for name in names if not name.endswith(("gz", "bak"))), default="").partition("-")[2]
        debug(f"# Kernel Version found: {version}")
        settings = self.file("/etc/kernel-img.conf")
        if settings.exists():
            settings.write_text(settings.read_text().replace("do_bootloader = yes", "do_bootloader = no"))
        else:
            quote(f"sed: can't read {settings}: No such file or directory")
        self.run("update-initramfs", "-u", "-k", version)

    # -- who may enter ---------------------------------------------------------------------------------------------

    def set_root_password(self, hashed: str) -> None:
        """Put a password hash (or "*") into the new system's shadow file."""
        shadow = self.file("/etc/shadow")
        lines = [
            ":".join(["root", hashed, *line.split(":")[2:]]) if line.startswith("root:") else line
            for line in shadow.read_text().splitlines()
        ]
        mode = shadow.stat()
        self.write("/etc/shadow", "\n".join(lines) + "\n", mode.st_mode & 0o777)
        os.chown(shadow, mode.st_uid, mode.st_gid)

    def set_root_login(self, value: str) -> None:
        """PermitRootLogin in sshd's configuration."""
        config = self.file("/etc/ssh/sshd_config")
        lines = [line for line in _text(config).splitlines() if not re.match(r"\s*#?\s*PermitRootLogin\b", line)]
        self.write("/etc/ssh/sshd_config", "\n".join([f"PermitRootLogin {value}", *lines]) + "\n")

    def add_root_keys(self, keys: str) -> None:
        """Let these keys in as root."""
        folder = self.file("/root/.ssh")
        folder.mkdir(mode=0o700, exist_ok=True)
        present = _text(folder / "authorized_keys")
        self.write("/root/.ssh/authorized_keys", present + keys.rstrip("\n") + "\n", 0o600)

    # -- logs ------------------------------------------------------------------------------------------------------

    def clear_logs(self) -> None:
        """Empty what the image's makers logged."""
        for log in self.file("/var/log").rglob("*"):
            if log.is_file() and not log.is_symlink():
                os.truncate(log, 0)


def rescue_password() -> str:
    """The hash of the rescue's root password; it cannot be used to log in when the rescue has none."""
    for line in _text(_RESCUE_SHADOW).splitlines():
        if line.startswith("root:"):
            return line.split(":")[1] or "*"
    debug("the rescue has no root password")
    raise Failed("password")


def _not_there(path: Path) -> None:
    """What a shell says on the terminal when it cannot write a file."""
    interrupt_line(f"/root/.oldroot/nfs/install/functions.sh: line 1: {path}: No such file or directory")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def install_bootloader(target: Target, storage: Storage, uefi: bool) -> None:
    """Make the new system start by itself, in the real one's order; only what grub-install says by UEFI decides."""
    _set_defaults(target.file("/etc/default/grub"))
    old = target.file("/boot/grub/grub.cfg")
    if old.exists():
        old.unlink()
    else:
        interrupt_line(f"rm: cannot remove '{old}': No such file or directory")
    target.run("grub-mkconfig", "-o", "/boot/grub/grub.cfg", check=False)
    if uefi and not vfat():
        _write_esp_unmounted(target, storage)
    elif uefi:
        # The removable path needs no boot entry, so a firmware finds it also after its memory was cleared.
        options = ("--no-floppy", "--no-nvram", "--removable")
        target.run("grub-install", "--target=x86_64-efi", "--efi-directory=/boot/efi", *options)
    else:
        for drive in storage.config.used_drives:
            target.run("grub-install", "--no-floppy", "--recheck", drive, check=False)
    target.file("/boot/grub/device.map").unlink(missing_ok=True)


def _set_defaults(file: Path) -> None:
    try:
        text = file.read_text()
    except OSError as error:
        quote(f"sed: can't read {file}: {error.strerror}")
        return
    for key, value in _DEFAULTS.items():
        text = re.sub(rf"^{key}=.*", f"{key}={value}", text, flags=re.MULTILINE)
    file.write_text(text)


def _write_esp_unmounted(target: Target, storage: Storage) -> None:
    """Put GRUB into a FAT that this kernel cannot mount, with mtools."""
    boot, prefix = storage.where("/boot/grub")
    target.write("/run/early.cfg", f"search.fs_uuid {uuid(boot)} root\nset prefix=($root){prefix}\n")
    target.run(
        "grub-mkimage", "--format=x86_64-efi", f"--prefix={prefix}", "--config=/run/early.cfg",
        "--output=/run/grub.efi", *_EFI_MODULES,
    )  # fmt: skip
    target.run("mkdir", "-p", "/boot/grub")
    target.run("cp", "-r", "/usr/lib/grub/x86_64-efi", "/boot/grub/")
    esp = next(volume.device for volume in storage.volumes if volume.filesystem == "esp")
    loader: Path = target.file("/run/grub.efi")
    settings = target.file("/run/mtoolsrc")
    settings.write_text("default_codepage=367\n")  # ASCII: the rescue has no tables for others
    mtools = ("env", f"MTOOLSRC={settings}")
    rescue_host.run(*mtools, "mmd", "-D", "s", "-i", esp, "::EFI", "::EFI/BOOT")
    rescue_host.run(*mtools, "mcopy", "-o", "-i", esp, str(loader), "::EFI/BOOT/BOOTX64.EFI")
