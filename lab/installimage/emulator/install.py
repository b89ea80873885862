# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One installation, step by step, with the user's scripts before and after."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from . import rescue_host
from .config import Config
from .image import ImageFile, parse_image_name
from .rescue_host import DEBUG, Failed, Steps, debug, give_up, quote, say
from .storage import Storage, arrays, delete_partitions, plan
from .target import Target, install_bootloader, rescue_password

_POST_MOUNT = ("/post-mount", "/root/post-mount")
_POST_INSTALL = ("/root/post-install", "/post-install")
_IN_IMAGE = ("/root/post-install", "/root/post-install.sh")
_STEPS = 15
_RESCUE_KEYS = Path("/root/.ssh/robot_user_keys")


def post_mount() -> bool:
    """Run the post-mount script, if there is one; False when it failed, or may not be executed."""
    script = next((path for path in _POST_MOUNT if Path(path).exists()), None)
    if script is None:
        return True
    say("         :  Executing post mount script")
    if not os.access(script, os.X_OK):
        debug(f"# Found post-mount script {script}, but it isn't executable")
        return False
    debug(f"# Found post-mount script {script}; executing it...")
    status = rescue_host.stream(script)
    if status:
        debug(f"# Post-mount script didn't exit successfully (exit code = {status})")
    return status == 0


def post_install(target: Target) -> None:
    """Run the post-install script inside the new system; how it ends does not matter to the installation."""
    script = _place_script(target)
    if script is None:
        return
    say("         :  Executing post installation script")
    if not os.access(target.file(script), os.X_OK):
        debug(f"# Found post-installation script {script}, but it isn't executable")
        return
    debug(f"# Found post-installation script {script}; executing it...")
    status = target.stream(script)
    if status:
        debug(f"# Post-installation script didn't exit successfully (exit code = {status})")


def _place_script(target: Target) -> str | None:
    """The first script that is there counts, also when it may not be executed; one of the rescue stays as a copy."""
    for script in map(Path, _POST_INSTALL):
        if script.exists():
            target.file("/post-install").unlink(missing_ok=True)
            shutil.copy(script, target.file("/post-install"))
            return "/post-install"
    return next((script for script in _IN_IMAGE if target.file(script).exists()), None)


@dataclass
class InstallSpec:
    """What the command line adds to the config."""

    force_sign: bool = False
    keys: str = ""  # path or URL
    new_host_keys: bool = True
    report_url: str = ""
    take_over_keys: bool | None = None


@dataclass
class Installation:
    """A config that was accepted, on its way onto the drives."""

    config: Config
    text: str  # the config as it was written
    folder: Path  # the work directory
    uefi: bool
    wishes: InstallSpec = field(default_factory=InstallSpec)

    def __post_init__(self) -> None:
        config = self.config
        self.target = Target(self.folder / "hdd")
        sizes = [rescue_host.size_bytes(drive) for drive in config.used_drives]
        self.layout = plan(config, min(sizes), self.uefi)
        self.arrays = arrays(config, self.layout)
        self.storage = Storage(config, self.layout, self.arrays, self.target.root)
        self.image = ImageFile(parse_image_name(config.image), self.folder, self.target.root)
        extra = (config.raid, config.crypt, config.lvm, bool(config.subvolumes), self.image.name.way == "http")
        self.steps = Steps(_STEPS + sum(extra))

    def run(self) -> int:
        """Install; returns the exit status."""
        say()
        say("                Hetzner Online GmbH - installimage (lab)")
        say("  Your server will be installed now, this will take some minutes")
        say("             You can abort at any time with CTRL+C ...")
        say()
        try:
            self._begin()
            self._drives()
            if not post_mount():
                return 0
            self._system()
            self._access()
            with self.steps.step(f"Installing bootloader {self.config.bootloader}"):
                install_bootloader(self.target, self.storage, self.uefi)
            self._finish()
        except (Failed, OSError, ValueError) as error:
            if not isinstance(error, Failed):
                quote(f"{type(error).__name__}: {error}")
            give_up()
            debug("# report installation")
            return 1
        debug("# report installation")
        say()
        say("                  INSTALLATION COMPLETE")
        say("   You can now reboot and log in to your new system with the")
        say(" same credentials that you used to log into the rescue system.")
        say()
        return 0

    def _begin(self) -> None:
        kind = self.image.name.distribution
        for text, note in (
            ("Reading configuration", ""),
            ("Loading image file variables", ""),
            (f"Loading {kind} specific functions ", f"# load {kind} specific functions..."),
        ):
            with self.steps.aside(text, note):
                pass

    def _drives(self) -> None:
        config, steps, storage = self.config, self.steps, self.storage
        with steps.step("Deleting partitions"):
            delete_partitions(config.erased_drives)
        with steps.step("Test partition size"):
            debug(self.layout.table())
        with steps.step("Creating partitions and /etc/fstab"):
            for drive in config.used_drives:
                storage.partition(drive)
            storage.find_volumes()
        if config.raid:
            with steps.step(f"Creating software RAID level {config.level}"):
                storage.make_arrays()
        if config.crypt:
            with steps.step("Encrypt partitions and create /etc/crypttab"):
                storage.encrypt()
        if config.lvm:
            with steps.step("Creating LVM volumes"):
                storage.make_volumes()
        steps.title("Formatting partitions")
        storage.format(steps)
        if config.subvolumes:
            with steps.step("Creating btrfs subvolumes"):
                storage.make_subvolumes()
        with steps.step("Mounting partitions"):
            storage.mount()

    def _system(self) -> None:
        steps, image, target = self.steps, self.image, self.target
        with steps.step("Sync time via ntp"):
            debug("the clock of a lab's machine is its host's")
        if image.name.way == "http":
            with steps.step("Downloading image (http)"):
                image.fetch()
        elif image.name.way == "nfs":
            image.mount_share()
        with steps.aside("Importing public key for image validation"):
            debug("no keys are imported in the lab")
        with steps.step("Validating image before starting extraction") as step:
            image.validate(step, self.config.force_sign or self.wishes.force_sign)
        with steps.step(f"Extracting image ({image.name.way})"):
            image.extract()
            image.forget()
            target.write("/etc/fstab", self.storage.fstab())
            if self.storage.crypttab:
                target.write("/etc/crypttab", self.storage.crypttab)
        with steps.step("Setting up network config"):
            addresses = target.set_network(image.name, self.config.ipv4_only)
        steps.title("Executing additional commands")
        with steps.part("Setting hostname"):
            target.set_hostname(self.config.hostname, addresses)
        if self.wishes.new_host_keys:
            with steps.part("Generating new SSH keys"):
                target.new_host_keys()
        if self.config.raid:
            with steps.part("Generating mdadm config"):
                target.set_mdadm()
        with steps.part("Generating ramdisk"):
            target.make_initramfs()
        with steps.part("Generating ntp config"):
            debug("the clock of a lab's machine is its host's")
        with steps.step("Setting up miscellaneous files"):
            target.set_resolver()
            target.set_sysctl()

    def _access(self) -> None:
        """Root's keys or root's password: a list of keys that is empty means the password."""
        steps, target, config = self.steps, self.target, self.config
        steps.title("Configuring authentication")
        source = config.sshkeys_url or self.wishes.keys
        wanted = config.take_over_keys if self.wishes.take_over_keys is None else self.wishes.take_over_keys
        if not source and wanted and _RESCUE_KEYS.exists():
            source = str(_RESCUE_KEYS)
        keys = ""
        if source:
            with steps.part("Fetching SSH keys"):
                keys = self._fetch_keys(source)
        if keys and not config.force_password:
            with steps.part("Disabling root password"):
                target.set_root_password("*")
            with steps.part("Disabling SSH root login with password"):
                target.set_root_login("prohibit-password")
        else:
            with steps.part("Setting root password"):
                target.set_root_password(rescue_password())
            with steps.part("Enabling SSH root login with password"):
                target.set_root_login("yes")
        if keys:
            with steps.part("Copying SSH keys"):
                target.add_root_keys(keys)

    def _fetch_keys(self, source: str) -> str:
        if source.startswith(("http:", "https:", "ftp:")):
            text = rescue_host.run(
                "wget", "--quiet", "--no-check-certificate", "--output-document=-", source, check=False
            )
        else:
            try:
                text = Path(source).read_text()
            except OSError as error:
                debug(f"SSH keys: {error}")
                text = ""
        return text if text.strip() else ""

    def _finish(self) -> None:
        steps, target = self.steps, self.target
        with steps.step(f"Running some {self.image.name.distribution} specific functions"):
            resume = target.file("/etc/initramfs-tools/conf.d/resume")
            if resume.exists():
                resume.write_text("\n")
        with steps.step("Clearing log files"):
            target.clear_logs()
        post_install(target)
        if self.wishes.report_url:
            self._report_first_boot()
        self._tell_host_keys()
        shown = "".join(f"{line}\n" for line in self.text.splitlines() if line and not line.startswith("#"))
        target.write("/installimage.conf", f"# the config this system was installed with\n\n{shown}", 0o640)
        shutil.copyfile(DEBUG, target.file("/installimage.debug"))
        target.file("/installimage.debug").chmod(0o640)

    def _report_first_boot(self) -> None:
        """Call the URL once, some time after the new system's first boot."""
        url = self.wishes.report_url
        if any(character in url for character in "'\"\\% \n"):
            debug("-R: the URL has characters that no URL has; no report will be sent")
            return
        unit = "/etc/systemd/system/installimage-report.service"
        name = Path(unit).name
        done = f"/bin/sh -c 'rm -f {unit} /etc/systemd/system/multi-user.target.wants/{name}'"
        self.target.write(
            unit,
            "[Unit]\nAfter=network-online.target\n\n[Service]\nType=oneshot\nExecStartPre=/bin/sleep 60\n"
            f"ExecStart=/usr/bin/curl -s -f --retry 36 --retry-delay 10 --retry-all-errors {url}\n"
            f"ExecStartPost={done}\n\n[Install]\nWantedBy=multi-user.target\n",
        )
        self.target.run("systemctl", "enable", name)

    def _tell_host_keys(self) -> None:
        """Send the fingerprints of the new system to the HTTP server that the SSH keys came from."""
        source = self.config.sshkeys_url or self.wishes.keys
        if not source.startswith(("http:", "https:")):
            return
        prints = [
            rescue_host.run("ssh-keygen", "-l", "-f", str(key)).split()[1]
            for key in sorted(self.target.file("/etc/ssh").glob("ssh_host_*_key.pub"))
        ]
        rescue_host.run(
            "curl", "--silent", "--max-time", "10", "--request", "POST", "--header", "Content-Type: application/json",
            "--data", json.dumps({"fingerprints": prints}), "--output", "/dev/null", source, check=False,
        )  # fmt: skip

    def close(self) -> None:
        """Unmount everything: what was written is on the drives afterwards."""
        self.target.leave()
        self.storage.unmount()
