# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""installimage in a rescue, called over SSH as a person or a program calls it."""

import re
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend
from tests.lab.machines.guest import BOOT_ID, Answer, Bench, DiskSpec, FromDisk, Key, Rescue, dedicated

pytestmark = pytest.mark.nspawn
_NVME = (DiskSpec(4 << 30, "nvme"), DiskSpec(1 << 30, "nvme"))
_IMAGE = f"/root/.oldroot/nfs/images/{images.TARBALL}"
_CONFIG = f"DRIVE1 /dev/nvme0n1|SWRAID 0|BOOTLOADER grub|HOSTNAME node-1|PART / ext4 all|IMAGE {_IMAGE}"
_RUN = "echo x | TERM=xterm installimage -a -c /root/config"
_SEED = """#!/bin/sh
echo "I am in $(. /etc/os-release; echo $ID)"
seed=/var/lib/cloud/seed/nocloud-net
mkdir -p $seed
printf 'instance-id: i-1\nlocal-hostname: seeded\n' >$seed/meta-data
printf '#cloud-config\nwrite_files:\n- {path: /etc/seeded, content: "yes"}\n' >$seed/user-data
ls /etc/ssh/ssh_host_* 2>/dev/null  # the image has none, so none were made
ssh-keygen -A >/dev/null
cat /etc/ssh/ssh_host_ed25519_key.pub
exit 7
"""


async def _write(one: Bench, path: str, text: str, mode: str = "0600") -> None:
    answer = await one.ssh(f"cat >{path} <<'END'\n{text}\nEND\nchmod {mode} {path}")
    assert answer.status == 0, answer


async def _install(one: Bench, config: str, command: str = _RUN) -> tuple[Answer, str]:
    """Run installimage with a config (lines parted by |); its answer and the debug log."""
    await _write(one, "/root/config", config.replace("|", "\n"))
    answer = await one.ssh(command)
    return answer, (await one.ssh("cat /root/debug.txt")).out


async def _rescued(one: Bench) -> Bench:
    await one.start()
    await one.answers("hostname")
    return one


@pytest.mark.long
async def test_what_is_refused_leaves_the_disks_alone(backend: Backend, key: Key) -> None:
    small = (DiskSpec(2 << 30, "nvme"), DiskSpec(2 << 30, "nvme"))
    one = await _rescued(dedicated(backend, key, 1, small, uefi=True))
    before = [await one.machine.disk_mark(index) for index in range(2)]
    esp = _CONFIG.replace("PART /", "PART /boot/efi esp 256M|PART /")
    for config, reason in (
        (_CONFIG, "ERROR: ESP missing or multiple ESP found"),
        (esp.replace("SWRAID 0", "SWRAID 1"), "ERROR: You need to select at least 2 disks for creating software raid!"),
        (f"{esp}|PART /home ext4 all", 'ERROR: Partition size "all" has to be on the last partition'),
        (esp.replace("-amd64-", "_"), "ERROR: can not determine image arch from filename"),
        (f"{esp}|DRIVE2 /dev/nvme1n1|SWRAID 1".replace("SWRAID 0|", ""), "ERROR: no software RAID in a container"),
        (esp.replace("nvme0n1", "nvme7n1"), "ERROR: Value for DRIVE1 is not correct: /dev/nvme7n1"),
    ):
        answer, debug = await _install(one, config)
        assert answer.status == 1
        assert answer.out.endswith("Cancelled.\n")
        assert reason not in answer.out
        assert reason in debug
    assert [await one.machine.disk_mark(index) for index in range(2)] == before
    # Each call took its config away, so that no later one begins by itself.
    assert (await one.ssh("ls -d /autosetup /installimage.*; ls /autosetup.bak-*")).out.startswith("/autosetup.bak-")


async def test_command_line(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME[:1]))
    await _write(one, "/root/config", _CONFIG.replace("|", "\n"))
    installed = "/root/.oldroot/nfs/install/installimage"
    for command, status, words in (
        ("TERM=xterm installimage -h", 0, "usage: installimage"),
        ("TERM=xterm installimage -a", 1, "in automatic mode you need to specify an image and a config file"),
        ("TERM=xterm installimage -a -c /root/none", 1, "FAILED: config file /root/none for autosetup not found"),
        (
            "TERM=xterm installimage -a -c /root/config -x /root/none",
            1,
            "FAILED: post-install file /root/none not found",
        ),
        ("rm -f /autosetup; TERM=xterm installimage -r yes -d sda </dev/null", 1, "interactive mode"),
        ("env -u TERM installimage -a -c /root/config 2>&1", 1, "TERM environment variable not set"),
        ("echo n | TERM=xterm installimage -c /root/config", 0, "ABORT"),
        (
            f"cp -r {Path(installed).parent} /root/own; touch /root/own/disabled; "
            "echo x | TERM=xterm /root/own/installimage -a -c /root/config",
            1,
            "temporarily unavailable",
        ),
    ):
        answer = await one.ssh(command)
        assert (answer.status, words in answer.out) == (status, True), (command, answer)
    assert await _is_blank(one)


async def _is_blank(one: Bench) -> bool:
    return (await one.ssh("cmp -n 16777216 /dev/nvme0n1 /dev/zero")).status == 0


async def _fails(one: Bench, config: str, command: str, step: str, reason: str) -> None:
    """One step fails, the debug log says why, and nothing stays mounted."""
    answer, debug = await _install(one, config, command)
    assert answer.status == 1
    assert "INSTALLATION COMPLETE" not in answer.out
    (last,) = [line for line in answer.out.splitlines() if "failed" in line]
    assert step in last
    assert "An error occured while installing the new system!" in answer.out.partition(last)[2]
    end = ["=> FAILED", "# report installation", "cleaning up"]
    assert [line[11:] for line in debug.splitlines() if line[11:] in end] == end
    assert reason in debug
    assert (await one.ssh("grep -c installimage /proc/self/mounts; ls -d /installimage.*")).out == "0\n"


_STUBS = """set -e
mkdir -p tree/boot tree/etc/network tree/etc/ssh tree/root tree/sbin
cp --parents /bin/sh /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/libc.so.6 tree
echo 'root:*:1::::::' >tree/etc/shadow
touch tree/boot/initrd.img-6.1.0-9 tree/boot/initrd.img-6.1.0-10 tree/boot/initrd.img-7.bak
stub() { printf '#!/bin/sh\necho "%s called: $*"\n%s\n' "$1" "$2" >tree/sbin/$1; chmod 755 tree/sbin/$1; }
stub update-initramfs 'exit 0'
stub grub-mkconfig 'echo "cannot create $2.new: Directory nonexistent"; exit 2'
stub grub-install 'echo "not today"; exit 1'
tar --zstd -C tree -cf Debian-1200-stubs-amd64-x.tar.zst .
"""


async def test_what_grub_says_decides_nothing_by_bios(backend: Backend, key: Key) -> None:
    """As the real one: an image without a folder for GRUB's configuration is installed "completely"."""
    one = await _rescued(dedicated(backend, key, 1, _NVME[:1]))
    assert (await one.ssh(f"cd /root; {_STUBS}")).status == 0
    config = _CONFIG.replace(_IMAGE, "/root/Debian-1200-stubs-amd64-x.tar.zst")
    answer, debug = await _install(one, config)
    assert (answer.status, "INSTALLATION COMPLETE" in answer.out) == (0, True), debug
    calls = [line.partition(":   ")[2] for line in debug.splitlines() if " called: " in line]
    assert calls == [
        "update-initramfs called: -u -k 6.1.0-9",  # the last name, not the last version
        "grub-mkconfig called: -o /boot/grub/grub.cfg",
        "grub-install called: --no-floppy --recheck /dev/nvme0n1",
    ]
    for words in ("Directory nonexistent", "not today", "can't read /installimage."):
        assert words in debug
    # Some of what its programs say lands on the terminal, between a step and how it ended.
    assert re.search(r"bootloader grub .*busy.*rm: cannot remove '\S+/boot/grub/grub.cfg': No such file", answer.out)
    files = "/mnt/etc/network/interfaces /mnt/etc/sysctl.conf"
    written = f"mount /dev/nvme0n1p1 /mnt && cat {files}; ls /mnt/etc/systemd /mnt/boot; umount /mnt"
    system = (await one.ssh(written)).out
    network = ".".join(one.hardware.ipv4.split(".")[:3])
    assert f"  up route add -net {network}.0 netmask 255.255.255.0 gw {backend.gateway} dev eth0\n" in system
    assert "grub" not in system.split()
    assert "net.ipv4.conf.all.rp_filter=1\n" in system
    assert "net.ipv6.conf.all.accept_ra=0\n" in system
    answer, debug = await _install(one, config.replace("BOOTLOADER grub", "BOOTLOADER Grub"))
    assert (answer.status, "grub-install called" in debug) == (0, True), debug
    await _write(one, "/root/post-install", "#!/bin/sh\necho never", "0644")
    await _write(one, "/root/after", "#!/bin/sh\necho never", "0755")
    answer, debug = await _install(one, config, f"{_RUN} -x /root/after")
    assert (answer.status, "never" in answer.out) == (0, False)
    assert "# Found post-installation script /post-install, but it isn't executable" in debug


@pytest.mark.long
async def test_failures_while_installing_end_with_status_1(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME[:1]))
    await one.ssh(f"cd /root && head -c 5000000 {_IMAGE} >Broken-1200-x-amd64-a.tar.zst")
    await _write(one, "/root/fill", "#!/bin/sh\ncd /installimage.*/hdd && fallocate -l 1200M filler", "0755")
    await _write(one, "/root/fail", "#!/bin/sh\nexit 1", "0755")
    hook = "ln -sf /root/{} /post-mount; {}"
    for config, step, reason in (
        (_CONFIG.replace(_IMAGE, "/root/Broken-1200-x-amd64-a.tar.zst"), "Extracting image", "zst"),
        (_CONFIG.replace(_IMAGE, "/root/None-1200-x-amd64-a.tar.zst"), "Validating image", "there is no image file"),
        (f"{_CONFIG}|FORCE_SIGN 1", "Validating image", "FORCE_SIGN set, but validation failed"),
    ):
        await _fails(one, config, _RUN, step, reason)
    small = _CONFIG.replace("ext4 all", "ext4 1500M")
    await _fails(one, small, hook.format("fill", _RUN), "Extracting image", "No space left on device")
    answer, _debug = await _install(one, _CONFIG, hook.format("fail", _RUN))
    assert (answer.status, "INSTALLATION COMPLETE" in answer.out) == (0, False)


@pytest.mark.long
async def test_installs_and_boots_by_bios(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME))
    await _write(one, "/root/after", _SEED, "0755")
    await one.ssh("echo foreign | dd of=/dev/nvme1n1 conv=fsync status=none")
    second = await one.machine.disk_mark(1)
    config = _CONFIG.replace("PART /", "PART swap swap 256M|PART /boot ext3 300M|PART /")
    rescue = (await one.ssh(BOOT_ID)).out
    answer, debug = await _install(one, f"{config}|CRYPTPASSWORD unused", f"{_RUN} -x /root/after")
    assert answer.status == 0, debug
    assert "INSTALLATION COMPLETE" in answer.out
    assert "I am in debian" in answer.out  # its status does not matter
    assert "I am in debian" not in debug
    assert "# Post-installation script didn't exit successfully (exit code = 7)" in debug
    assert "CRYPTPASSWORD unused" in answer.out, "as it shows its whole configuration"
    assert "skipping ed25519 key gen" in debug
    assert "/etc/ssh/ssh_host_" not in answer.out
    (host_key,) = [line for line in answer.out.splitlines() if line.startswith("ssh-ed25519 ")]
    assert await one.machine.disk_mark(1) == second

    one.arm(FromDisk())
    await one.machine.reset()
    await one.answers("cloud-init status --wait >/dev/null; hostname", unless="rescue")
    assert (await one.ssh(BOOT_ID)).out != rescue
    assert (await one.ssh("hostname; cat /etc/seeded; ls /post-install")).out == "seeded\nyes/post-install\n"
    assert host_key.split()[1] in " ".join(await one.host_keys())
    assert (await one.ssh("stat -c '%a %n' /installimage.*")).out == "640 /installimage.conf\n640 /installimage.debug\n"
    fstab = (await one.ssh("cat /etc/fstab")).out
    assert [line.split()[1:3] for line in fstab.splitlines()] == [
        ["/proc", "proc"],
        ["none", "swap"],
        ["/boot", "ext3"],
        ["/", "ext4"],
    ]
    assert (
        await one.ssh("lsblk -no PARTUUID /dev/nvme0n1 | sort -u | wc -l; lsblk -no FSTYPE /dev/nvme0n1")
    ).out.split()[1:] == [
        "swap",
        "ext3",
        "ext4",
    ]
    assert (await one.ssh("findmnt -no SOURCE /")).out == "/dev/nvme0n1p3\n"


@pytest.mark.long
async def test_installs_and_boots_by_uefi_with_the_rescues_password(backend: Backend, key: Key) -> None:
    one = dedicated(backend, key, 1, (DiskSpec(4 << 30, "sata"), DiskSpec(4 << 30, "sata")), uefi=True)
    one.arm(Rescue((key.public,), password="let-me-in-please"))
    await _rescued(one)
    await one.ssh(
        "cd /root/.oldroot/nfs/images; (python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &); "
        "for try in $(seq 1800); do curl -s -o /dev/null http://127.0.0.1:8000 && break; sleep 0.1; done"
    )
    config = _CONFIG.replace("nvme0n1", "sda").replace(_IMAGE, f"http://127.0.0.1:8000/{images.TARBALL}")
    config = config.replace("PART /", "PART /boot/efi esp 256M|PART /")
    keep = f"mkdir -p /root/.ssh; echo '{key.public}' >/root/.ssh/authorized_keys; grep ^root: /etc/shadow"
    await _write(one, "/root/post-install", f"#!/bin/sh\nssh-keygen -A\n{keep}", "0755")
    answer, debug = await _install(one, f"{config}|TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS no")
    assert answer.status == 0, debug
    assert "Downloading image (http)" in answer.out
    rescue_hash = (await one.ssh("grep ^root: /etc/shadow")).out.split(":")[1]
    assert f"root:{rescue_hash}:" in answer.out
    listing = await one.ssh("MTOOLSRC=/dev/stdin mdir -b -i /dev/sda1 ::EFI ::EFI/BOOT <<<default_codepage=367")
    assert listing.out.split() == ["::/EFI/BOOT/", "::/EFI/BOOT/BOOTX64.EFI"]

    assert await one.system(by_reset=True) == "node-1"
    assert (await one.ssh("findmnt -no SOURCE /; ls /Debian*")).out == "/dev/sda2\n"
    assert (await one.ssh("sshd -T | grep -i '^permitrootlogin'")).out == "permitrootlogin yes\n"
