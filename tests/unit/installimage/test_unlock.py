# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remote unlock: who may, over which network, and what the last step of an installation makes of it."""

from __future__ import annotations

import os

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import post_install
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.system_network import Network
from tests.folders import put_files, put_programs
from tests.unit.installimage import parts
from tests.unit.installimage.specifications import specified

ED, RSA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB"


def test_each_key_may_unlock_and_nothing_else():
    texts = [f'# mine\n{ED} me@home\nfrom="10.0.0.0/8",no-pty {RSA} other\n', f"{ED} again\nssh-dss AAAA old\n"]
    lines = post_install.authorized_keys(texts).splitlines()
    assert [" ".join(line.split()[-2:]) for line in lines] == [ED, RSA]
    assert all(line.startswith("no-port-forwarding,") and 'command="/bin/cryptroot-unlock" ' in line for line in lines)
    assert post_install.authorized_keys(["", "sk-ssh-ed25519@openssh.com AAAA x\n"]) == ""


@pytest.mark.parametrize(
    ("address", "gateway", "settings"),
    [
        ("203.0.113.10/26", "203.0.113.1", "203.0.113.10::203.0.113.1:255.255.255.192"),
        ("203.0.113.10/32", "203.0.113.1", "203.0.113.10::203.0.113.1:255.255.255.240"),
    ],
)
def test_the_initramfs_has_the_address_of_the_rescue_and_a_way_to_its_gateway(address, gateway, settings):
    found = Network("96:00:00:12:00:01", {4: address}, {4: gateway}, [])
    text = post_install.initramfs_network(found, "node-1.example.com")
    assert text.splitlines()[1:] == [f"IP={settings}:node-1::off", "BOOTIF=01-96-00-00-12-00-01"]


def test_an_initramfs_knows_ipv4_alone():
    assert post_install.initramfs_network(None, "n") is None
    assert post_install.initramfs_network(Network("m", {4: "203.0.113.10/32"}, {4: "172.31.1.1"}, []), "n") is None
    assert post_install.initramfs_network(Network("m", {6: "2001:db8::2/64"}, {6: "fe80::1"}, []), "n") is None


HOOKS = ("dropbear", "cryptroot", "cryptroot-unlock")
#: As of the packages, but for the compression: what is in the new initramfs lies in a folder.
PROGRAMS = {
    "dropbearkey": """
case $1 in
-t) echo "private $2" >"$4" ;;
-y) printf 'Public key portion is:\\nssh-ed25519 AAAAnew root@rescue\\nFingerprint: SHA256:x\\n' ;;
esac""",
    "update-initramfs": """
echo "$*" >"$TOP/called"
t=$TOP/new/main; mkdir -p $t/usr/sbin $t/usr/bin $t/cryptroot $t/etc/dropbear $t/root-x/.ssh $t/conf/conf.d
touch $t/usr/sbin/dropbear $t/usr/bin/cryptroot-unlock
cp "$TOP"/etc/crypttab $t/cryptroot/crypttab
cp "$TOP"/etc/dropbear/initramfs/dropbear_* $t/etc/dropbear/
cat "$TOP"/etc/dropbear/initramfs/authorized_keys >$t/root-x/.ssh/authorized_keys
cp "$TOP"/etc/initramfs-tools/conf.d/* $t/conf/conf.d/
eval "$BREAK"
""",
    "unmkinitramfs": """[ "$1" = "$TOP/boot/initrd.img-6.1.0-1-amd64" ] && cp -a "$TOP/new/main" "$2/main" """,
}
CRYPTTAB = """\
luks-1 UUID=1 none luks
# luks-9 a b c
luks-2 UUID=2 none luks,initramfs
luks-3 UUID=3 none luks,discard,tries=5
"""


def run(top, breaks="", hooks=HOOKS):
    """Run the part in a folder in place of the new system; returns what it said, the folder's name left out."""
    files = {
        **{f"usr/share/initramfs-tools/hooks/{name}": "x" for name in hooks},
        "etc/dropbear/initramfs/dropbear_rsa_host_key": "of the image",
        "etc/crypttab": CRYPTTAB,
        "etc/initramfs-tools/conf.d/keep": "x",
        "boot/initrd.img-6.1.0-1-amd64": "x",
        "dir/keep": "x",
    }
    put_files(top, files)
    put_programs(top / "programs", PROGRAMS)
    before = f"dir='{top}/dir'\nconfig=x\nnamed() {{ echo /initrd.img-6.1.0-1-amd64; }}\n"
    part = before + post_install.unlock_part(f"a {ED}\n", "IP=x\n")
    return parts.said(top, part, f"{top}/programs:{os.environ['PATH']}", TOP=str(top), BREAK=breaks)


def test_the_new_initramfs_is_made_and_its_host_key_is_said(tmp_path):
    assert run(tmp_path) == "unlock-key ssh-ed25519 AAAAnew\n"
    assert (tmp_path / "called").read_text() == "-u -k 6.1.0-1-amd64\n"
    folder = tmp_path / "etc/dropbear/initramfs"
    assert sorted(path.name for path in folder.iterdir()) == ["authorized_keys", "dropbear_ed25519_host_key"]
    assert ((folder / "authorized_keys").read_text(), (folder / "authorized_keys").stat().st_mode & 0o777) == (
        f"a {ED}\n", 0o600)  # fmt: skip
    assert (tmp_path / "etc/initramfs-tools/conf.d/kubenode-unlock").read_text() == "IP=x\n"
    words = [line.split()[-1] for line in (tmp_path / "etc/crypttab").read_text().splitlines()]
    assert words == ["luks,initramfs,tries=0", "c", "luks,initramfs,tries=0", "luks,discard,tries=5,initramfs"]
    assert not (tmp_path / "dir/tree").exists()


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        ("rm $t/usr/sbin/dropbear", "the new initramfs lacks dropbear"),
        ("rm $t/usr/bin/cryptroot-unlock", "the new initramfs lacks cryptroot-unlock"),
        ("echo >$t/root-x/.ssh/authorized_keys", "the new initramfs lacks authorized_keys, or has another one"),
        ("echo >$t/etc/dropbear/dropbear_ed25519_host_key", "the new initramfs lacks dropbear_ed25519_host_key"),
        ("rm $t/conf/conf.d/kubenode-unlock", "the new initramfs lacks kubenode-unlock"),
        (": >$t/cryptroot/crypttab", "the new initramfs would open no device"),
        ("echo no space; exit 1", "update-initramfs fails: no space"),
        ("rm -r $TOP/new", "/boot/initrd.img-6.1.0-1-amd64 cannot be read: cp: cannot stat"),
    ],
)
def test_an_initramfs_that_could_not_be_unlocked_fails_the_installation(tmp_path, breaks, words):
    assert run(tmp_path, breaks).startswith(f"failed 0 remote_unlock: {words}")


@pytest.mark.parametrize("missing", HOOKS)
def test_an_image_without_the_packages_fails_the_installation(tmp_path, missing):
    said = run(tmp_path, hooks=[name for name in HOOKS if name != missing])
    assert f"has no {missing}; use an image with cryptsetup-initramfs and dropbear-initramfs" in said


def test_only_encrypted_systems_of_debian_are_unlocked():
    name = "Rocky-1000-amd64-base.tar.zst"
    image = {"kind": specs.NAME, "location": "/i", "file_name": name, "digest": "", "shown": ""}
    spec = specified(hostname="n", image=image, remote_unlock=True)
    found = [one for one in specs.findings(spec, with_disks=False) if one.startswith("remote_unlock")]
    assert [one.partition(":")[2].split(",")[0] for one in found] == [
        " no partition has crypt: true", " only images of Debian and Ubuntu can have it; leave it out"]  # fmt: skip


def test_the_host_key_of_the_initramfs_is_none_of_the_system():
    said = f"{post_install.TAG} 5f unlock-key {ED}\n{post_install.TAG} 5f host-key {RSA} root\n"
    report = post_install.Report(said, "5f")
    assert (report.unlock_keys, report.host_keys) == ([ED], [RSA])
