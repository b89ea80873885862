# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The script that installimage runs inside of the new system: the user's own, then what makes it ours (pure).

installimage neither passes on its exit status nor keeps its output apart, so it reports by lines of its own, marked
with a random word that no image can know.

An encrypted system can be unlocked from afar: an SSH server in its initramfs takes the passphrase alone. The initramfs
lies on a partition that is not encrypted. So it has host keys of its own, made on the machine, never those of the
system.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from . import system_network
from .spec import Spec
from .system_network import Network

#: What may be in front of a key are options of OpenSSH, some of which dropbear does not know.
_KEY = re.compile(r"(?:^|\s)((?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+={0,2})(?:\s|\Z)")
#: A key unlocks the disks; it opens no shell and no tunnel.
_OPTIONS = 'no-port-forwarding,no-agent-forwarding,no-X11-forwarding,command="/bin/cryptroot-unlock"'
#: The initramfs seeks all of its own network without the gateway, so that must not be half of the world.
_WIDEST = 16

#: Runs behind the proof of the boot loader, whose ``config`` and ``named`` it uses.
UNLOCK_PART = r"""unlock() { fail "0 remote_unlock: $*"; }
hooks=$top/usr/share/initramfs-tools/hooks
for file in dropbear cryptroot cryptroot-unlock; do
    [ -e "$hooks/$file" ] ||
        unlock "the initramfs of this image has no $file; use an image with cryptsetup-initramfs and dropbear-initramfs"
done
# before Debian 12 and Ubuntu 22.04 in another folder
folder=$top/etc/dropbear/initramfs
[ -d "$folder" ] || folder=$top/etc/dropbear-initramfs
# what came with the image is known to all who have it
rm -f "$folder"/dropbear_*_host_key "$folder"/id_*.pub
hostkey=$folder/dropbear_ed25519_host_key
dropbearkey -t ed25519 -f "$hostkey" >/dev/null 2>&1 && [ -s "$hostkey" ] || unlock "dropbearkey makes no host key"
put 600 "$folder/authorized_keys" <<'END'
@AUTHORIZED@
END
put 644 "$top/etc/initramfs-tools/conf.d/kubenode-unlock" <<'END'
@INITRAMFS@
END
option() { # WORD TEXT: what every line of crypttab has in its options
    sed -i -E "/^[[:space:]]*(#|\$)/b
/[[:space:],]$1([=,[:space:]]|\$)/b
s/^(([^[:space:]]+[[:space:]]+){3}[^[:space:]]+)/\1,$2/" "$top/etc/crypttab"
}
# others than / would be asked for later, at the console alone
option initramfs initramfs
# every login with one of these keys counts as a try, and after three vain ones the initramfs would ask no more
option tries tries=0
image=$(named "$config" initrd)
image=$top/boot/${image##*/}
update-initramfs -u -k "${image##*/initrd.img-}" >"$dir/initramfs.log" 2>&1 ||
    unlock "update-initramfs fails: $(tail -n 1 "$dir/initramfs.log")"
mkdir "$dir/tree" && unmkinitramfs "$image" "$dir/tree" 2>"$dir/initramfs.log" ||
    unlock "$image cannot be read: $(tail -n 1 "$dir/initramfs.log")"
holds() { # PATTERN [FILE]: whether the initramfs has such a file, with this content
    find "$dir/tree" -path "*/$1" | { IFS= read -r one && { [ -z "$2" ] || cmp -s "$one" "$2"; }; }
}
while read -r pattern file; do
    holds "$pattern" "$file" || unlock "the new initramfs lacks ${pattern##*/}, or has another one"
done <<END
sbin/dropbear
bin/cryptroot-unlock
cryptroot/crypttab
etc/dropbear/dropbear_ed25519_host_key $hostkey
root-*/.ssh/authorized_keys $folder/authorized_keys
conf/conf.d/kubenode-unlock $top/etc/initramfs-tools/conf.d/kubenode-unlock
END
grep -q . "$(find "$dir/tree" -path '*/cryptroot/crypttab' | head -n 1)" ||
    unlock "the new initramfs would open no device; debug.txt has what update-initramfs said"
rm -rf "$dir/tree"
say "unlock-key $(dropbearkey -y -f "$hostkey" | sed -n 's/^\(ssh-ed25519 [^ ]*\).*/\1/p')"
"""


def authorized_keys(texts: Iterable[str]) -> str:
    """What dropbear reads: each key of these files, once, bound to unlocking; empty without keys."""
    lines = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [match.group(1) for match in map(_KEY.search, lines) if match]
    return "".join(f"{_OPTIONS} {key}\n" for key in dict.fromkeys(found))


def initramfs_network(network: Network | None, hostname: str) -> str | None:
    """Settings of the initramfs: the rescue's IPv4 address, by the card with its hardware address.

    ``network``: None where the rescue has none. None when it has no such address, or a gateway that is far away.
    """
    if network is None or 4 not in network.addresses:
        return None
    address, gateway = ipaddress.ip_interface(network.addresses[4]), ipaddress.ip_address(network.gateways[4])
    # The initramfs knows no gateway outside of the own network.
    net = address.network
    while gateway not in net:
        net = net.supernet()
    if net.prefixlen < _WIDEST:
        return None
    lines = ["# written by kubenode.provision: the network that the rescue had"]
    lines.append(f"IP={address.ip}::{gateway}:{net.netmask}:{hostname.partition('.')[0]}::off")
    lines.append(f"BOOTIF=01-{network.mac.replace(':', '-')}")
    return "\n".join(lines) + "\n"


TAG = "kubenode-post-install"
SEED = "/var/lib/cloud/seed/nocloud-net"
#: cloud-init settings in user data that make other host keys than those installimage made.
_OWN_KEYS = re.compile(r"(?:^|[{,])[ \t]*['\"]?(ssh_keys|ssh_deletekeys|ssh_genkeytypes)['\"]?\s*:", re.MULTILINE)

_SCRIPT = r"""#!/bin/sh
# Written by kubenode.provision for installimage; it removes itself.
say() { printf '\n%s %s %s\n' @TAG@ @NONCE@ "$*"; }
fail() { say "failed $*"; exit 1; }
self=$0
dir=$(mktemp -d /root/.kubenode.XXXXXX) || fail "0 no directory can be made in /root of the new system"
trap 'rm -rf "$dir"; rm -f "$self" 2>/dev/null' EXIT
put() { # MODE PATH: what comes in, base64; whole or not at all
    mkdir -p "${2%/*}" && (umask 077 && base64 -d >"$2.new") && chmod "$1" "$2.new" && mv -f "$2.new" "$2" ||
        fail "0 $2 cannot be written in the new system"
}
say begin
@USER@say scripted
@SEED@if [ -d /etc/cloud ]; then
    put 644 /etc/cloud/cloud.cfg.d/zz-kubenode-installimage.cfg <<'END'
@CONFIG@
END
    rm -f /var/lib/cloud/instance
fi
@NETWORK@put 644 /etc/kubenode/installed.json <<'END'
@RECORD@
END
@SCRUB@@PROOF@@CRYPT@@UNLOCK@@KEYS@for key in /etc/ssh/ssh_host_*_key.pub; do
    [ ! -r "$key" ] || say "host-key $(head -n 1 "$key")"
done
awk '$2 == "/" { print $1, $3, $4 }' /proc/mounts 2>/dev/null | tail -n 1 | while read -r root; do
    say "root $root"
done
sync
say done
"""

_USER = r"""put 700 "$dir/script" <<'END'
@SCRIPT@
END
(cd / && exec "$dir/script") </dev/null 2>&1
code=$?
[ "$code" -eq 0 ] || fail "$code the post-install script"
"""

_SEED = r"""command -v cloud-init >/dev/null 2>&1 ||
    fail "0 bootstrap_data: the new system lacks cloud-init; use an image with it, or install it by post_install_script"
[ ! -e /etc/cloud/cloud-init.disabled ] ||
    fail "0 bootstrap_data: /etc/cloud/cloud-init.disabled switches cloud-init off in the new system; remove that file"
mkdir -p @DIR@ && chmod 700 @DIR@
put 600 @DIR@/meta-data <<'END'
@META@
END
put 600 @DIR@/user-data <<'END'
@DATA@
END
"""

#: Who configures the network: what installimage wrote, when a program of the image reads it, else a file of ours for
#: the program that is there. Then cloud-init must not ask by DHCP besides. Neither is done where the image or the user
#: has given cloud-init a network configuration.
_NETWORK = r"""top=''
settled=''
on() { systemctl is-enabled --quiet "$1" 2>/dev/null; }
theirs() { grep -qsi '^#.*installimage' "$@"; }
plugin() { [ -n "$(find "$top"/usr/lib*/NetworkManager -name 'libnm-settings-plugin-ifcfg-rh.so' 2>/dev/null)" ]; }
if cat "$top"/etc/cloud/cloud.cfg "$top"/etc/cloud/cloud.cfg.d/*.cfg 2>/dev/null |
    awk '/^network:/ { one = $0; getline; if ((one $0) !~ /disabled/) found = 1 } END { exit !found }'; then
    : # with cloud-init's own words
elif theirs "$top/etc/netplan/01-netcfg.yaml" && command -v netplan >/dev/null; then
    settled=installimage
elif theirs "$top/etc/network/interfaces" && command -v ifup >/dev/null && on networking.service; then
    settled=installimage
    command -v route >/dev/null || # as they write it, the neighbours would be sought in the own network
        sed -i 's|^  up route add -net .* dev \([^ ]*\)$|  up ip route prepend @NET@ via @GATEWAY@ dev \1|' \
            "$top/etc/network/interfaces"
elif theirs "$top"/etc/systemd/network/10-*.network; then
    settled=installimage
elif on NetworkManager.service; then
    settled=installimage
    if ! theirs "$top"/etc/sysconfig/network-scripts/ifcfg-* || ! plugin; then
        settled=NetworkManager
        put 600 "$top/etc/NetworkManager/system-connections/kubenode.nmconnection" <<'END'
@KEYFILE@
END
    fi
elif on systemd-networkd.service || command -v netplan >/dev/null; then
    settled=systemd-networkd
    put 644 "$top/etc/systemd/network/05-kubenode.network" <<'END'
@NETWORKD@
END
    on systemd-networkd.service || systemctl enable --quiet systemd-networkd.service
elif theirs "$top"/etc/sysconfig/network/ifcfg-* "$top"/etc/sysconfig/network-scripts/ifcfg-*; then
    settled=installimage
else
    say "warning the image has no program that is known to configure the network; what it does by itself decides"
fi
if [ -n "$settled" ]; then
    say "network $settled"
    [ ! -d "$top/etc/cloud" ] || put 644 "$top/etc/cloud/cloud.cfg.d/zz-kubenode-network.cfg" <<'END'
@NOCLOUD@
END
fi
"""

#: installimage makes keys only of those types that the image has, and an image for many machines has none. What sshd
#: is to show is made now, so that the first contact is proven.
_KEYS = r"""command -v ssh-keygen >/dev/null 2>&1 && ssh-keygen -A >/dev/null 2>&1
if command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ]; then
    set -- /etc/ssh/ssh_host_*_key.pub
    [ -s "$1" ] ||
        fail "0 the new system has an SSH server and no host keys, and none can be made; install ssh-keygen in it"
fi
"""

#: installimage succeeds also without a working boot loader. What the machine will start from is checked here: GRUB's
#: configuration, its first entry's kernel and initramfs, fstab, and the boot loader itself.
_PROOF = r"""top=''
dead() { fail "0 the new system would not start: $*"; }
hint="debug.txt has what grub-mkconfig and grub-install said; an image needs GRUB, /boot/grub and /etc/default/grub"
named() { # FILE WORD: the first file that an entry names after linux or initrd
    awk -v word="^$2(efi|16)?\$" '$1 ~ word { print $2; exit }' "$1"
}
there() { [ -n "$1" ] && { [ -s "$top$1" ] || [ -s "$top/boot$1" ] || [ -s "$top/boot/${1##*/}" ]; }; }
starts() { there "$(named "$1" linux)" && there "$(named "$1" initrd)"; }
config=''
for file in "$top/boot/grub/grub.cfg" "$top/boot/grub2/grub.cfg"; do
    [ -n "$config" ] || [ ! -s "$file" ] || config=$file
done
[ -n "$config" ] || dead "there is no /boot/grub/grub.cfg, or it is empty; $hint"
if ! starts "$config"; then
    found=''
    if grep -q '^[[:space:]]*blscfg' "$config"; then
        for file in "$top"/boot/loader/entries/*.conf; do
            [ ! -s "$file" ] || ! starts "$file" || found=$file
        done
    fi
    kernel=$(named "$config" linux) initrd=$(named "$config" initrd)
    [ -n "$found" ] ||
        dead "of what $config starts (kernel ${kernel:-none}, initramfs ${initrd:-none}), something is not in /boot"
fi
number() { stat -Lc %t:%T "$1" 2>/dev/null; }
mounted() { awk -v place="$1" '$2 == place { print $1 }' "$top/proc/mounts" | tail -n 1; }
listed() { awk -v place="$1" '$1 !~ /^#/ && $2 == place { print $1; exit }' "$top/etc/fstab" 2>/dev/null | tr -d '"'; }
same() { # ENTRY DEVICE: whether an entry of fstab means a device
    case $1 in
        UUID=*) [ "$(blkid -p -s UUID -o value "$2" 2>/dev/null)" != "${1#UUID=}" ] || return 0 ;;
    esac
    case $1 in
        /*) device=$1 ;;
        *) device=$(findfs "$1" 2>/dev/null) ;;
    esac
    [ -n "$device" ] && [ -n "$(number "$device")" ] && [ "$(number "$device")" = "$(number "$2")" ]
}
for place in / /boot; do
    source=$(mounted "$place") entry=$(listed "$place")
    if [ "$place" != / ] && [ -z "$source" ]; then continue; fi
    [ -n "$entry" ] || dead "/etc/fstab has no line for $place"
    same "$entry" "$source" || dead "/etc/fstab mounts $entry at $place, which is on $source"
done
@LOADER@"""
_LOADER_UEFI = r"""case $(uname -m) in
    aarch64) loader=BOOTAA64.EFI ;;
    *) loader=BOOTX64.EFI ;;
esac
if [ -z "$(mounted /boot/efi)" ]; then
    say "warning the EFI system partition is not mounted at /boot/efi, so its boot loader was not looked at"
elif [ ! -s "$top/boot/efi/EFI/BOOT/$loader" ]; then
    dead "there is no EFI/BOOT/$loader in the EFI system partition; $hint"
fi
"""
_LOADER_LEGACY = r"""for disk in @DISKS@; do
    dd "if=$disk" bs=440 count=1 2>/dev/null | LC_ALL=C tr -cd A-Z | grep -q GRUB ||
        dead "there is no boot loader at the beginning of $disk; $hint"
done
"""

#: installimage encrypts whether the image can open it again or not.
_CRYPT = r"""if [ -s "$top/etc/crypttab" ]; then
    command -v cryptsetup >/dev/null 2>&1 || dead "/etc/crypttab names encrypted devices; the image lacks cryptsetup"
    if lsblk -nso TYPE "$(mounted /)" 2>/dev/null | grep -q crypt; then
        opens=''
        for file in "$top"/usr/share/initramfs-tools/hooks/cryptroot "$top"/usr/lib/dracut/modules.d/*crypt; do
            [ ! -e "$file" ] || opens=$file
        done
        [ -n "$opens" ] || dead "/ is encrypted, and no initramfs of this image opens it; add cryptsetup-initramfs"
    fi
fi
"""

#: In case installimage has written it already; otherwise it is done when installimage has ended.
_SCRUB = "[ ! -f /installimage.conf ] || sed -i '/CRYPTPASSWORD/d' /installimage.conf\n"


def script(
    spec: Spec,
    nonce: str,
    instance: str,
    record: Mapping[str, str],
    drives: Sequence[str],
    uefi: bool,
    found: Network | None = None,
    unlocking: tuple[str, str] | None = None,
) -> str:
    """The script; ``nonce`` marks its lines, ``instance`` is cloud-init's instance id, ``drives`` are those named.

    ``found``: the :class:`network.Network` of the rescue, None to leave the network to installimage and the image.
    ``unlocking``: for remote unlock, authorized_keys and the network of the initramfs.
    """
    user = spec["post_install_script"]
    data = spec["bootstrap_data"]
    parts = {
        "USER": _fill(_USER, {"SCRIPT": _encode(_program(user))}) if user.strip() else "",
        "SEED": "",
        "CONFIG": _encode(cloud_config(data is not None)),
        "NETWORK": network_part(found) if found else "",
        "RECORD": _encode(json.dumps(record, indent=2, sort_keys=True) + "\n"),
        "SCRUB": _SCRUB if spec["crypt_password"] else "",
        "CRYPT": _CRYPT if spec["crypt_password"] else "",
        "UNLOCK": unlock_part(*unlocking) if unlocking else "",
        "PROOF": proof(drives if spec["swraid"] else drives[:1], uefi),
        # Not in place of keys that the bootstrap data brings.
        "KEYS": "" if own_host_keys(data) else _KEYS,
        "TAG": TAG,
        "NONCE": nonce,
    }
    if data is not None:
        meta = f"instance-id: {json.dumps(instance)}\nlocal-hostname: {json.dumps(spec['hostname'])}\n"
        parts["SEED"] = _fill(_SEED, {"DIR": SEED, "META": _encode(meta), "DATA": _encode(data)})
    return _fill(_SCRIPT, parts)


def network_part(found: Network) -> str:
    """The part that gives the new system the network of the rescue, a :class:`network.Network`."""
    net = ipaddress.ip_interface(found.addresses[4]).network if 4 in found.addresses else ""
    parts = {
        "NET": str(net),
        "GATEWAY": found.gateways.get(4, ""),
        "KEYFILE": _encode(system_network.keyfile(found)),
        "NETWORKD": _encode(system_network.networkd(found)),
        "NOCLOUD": _encode("# written by kubenode.provision\nnetwork: {config: disabled}\n"),
    }
    return _fill(_NETWORK, parts)


def unlock_part(authorized_keys: str, initramfs: str) -> str:
    """The part that lets the new system be unlocked by SSH."""
    return _fill(UNLOCK_PART, {"AUTHORIZED": _encode(authorized_keys), "INITRAMFS": _encode(initramfs)})


def proof(drives: Sequence[str], uefi: bool) -> str:
    """The part that fails unless the new system can start; ``drives`` are those that a BIOS may start from."""
    loader = _LOADER_UEFI if uefi else _fill(_LOADER_LEGACY, {"DISKS": " ".join(map(shlex.quote, drives))})
    return _fill(_PROOF, {"LOADER": loader})


def cloud_config(seeded: bool) -> str:
    """cloud-init keeps the host keys that installimage made, and looks nowhere else when it got a seed."""
    pin = "datasource_list: [ NoCloud, None ]\n" if seeded else ""
    return "# written by kubenode.provision\nssh_deletekeys: false\n" + pin


def own_host_keys(bootstrap_data: str | None) -> bool:
    """Whether the bootstrap data gives the new system other host keys than those made during the installation."""
    return bool(_OWN_KEYS.search(bootstrap_data or ""))


class Report:
    """What the script said, found in the output of installimage, which changes it."""

    def __init__(self, text: str, nonce: str) -> None:
        self.begun = self.scripted = self.done = False
        self.failure, self.root, self.network = None, "", ""
        self.host_keys: list[str] = []
        self.unlock_keys: list[str] = []
        self.warnings: list[str] = []
        for match in re.finditer(rf"{TAG} {re.escape(nonce)} (\S+) ?([^\r\n]*)", text):
            word, rest = match.group(1), match.group(2).strip()
            if word == "begin":
                self.begun = True
            elif word == "scripted":
                self.scripted = True
            elif word == "failed":
                self.failure = rest
            elif word in ("host-key", "unlock-key"):
                key = " ".join(rest.split()[:2])
                keys = self.host_keys if word == "host-key" else self.unlock_keys
                if key not in keys:
                    keys.append(key)
            elif word == "warning":
                if rest not in self.warnings:
                    self.warnings.append(rest)
            elif word == "root":
                self.root = rest
            elif word == "network":
                self.network = rest
            elif word == "done":
                self.done = True
        lines = [line.strip(" :") for line in output_of(text, nonce).splitlines() if line.strip(" :")]
        #: What the user's script printed last: it is not in debug.txt.
        self.last = lines[-1] if lines else ""


def output_of(text: str, nonce: str) -> str:
    """What the user's script printed: the lines between ours."""
    found = re.search(
        r"{0} {1} begin[^\n]*\n(.*?)(?:^[^\n]*{0} {1} |\Z)".format(TAG, re.escape(nonce)), text, re.S | re.M
    )
    return found.group(1).strip("\n") if found else ""


def _program(text: str) -> str:
    return text if text.startswith("#!") else "#!/bin/bash\n" + text


def _encode(text: str) -> str:
    # Lines of a length that every shell and every installimage copes with.
    encoded = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")
    return "\n".join(encoded[start : start + 76] for start in range(0, len(encoded), 76))


def _fill(template: str, parts: Mapping[str, str]) -> str:
    # One pass, so that nothing in a part is taken for a place to fill.
    return re.sub(
        r"@([A-Z]+)@", lambda match: parts[match.group(1)] if match.group(1) in parts else match.group(), template
    )
