# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Remote unlock: an SSH server in the initramfs of an encrypted system, which takes the passphrase alone (pure).

The initramfs lies on a partition that is not encrypted. So it has host keys of its own, made on the machine, never
those of the system.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from .network import Network

#: What may be in front of a key are options of OpenSSH, some of which dropbear does not know.
_KEY = re.compile(r"(?:^|\s)((?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+={0,2})(?:\s|\Z)")
#: A key unlocks the disks; it opens no shell and no tunnel.
_OPTIONS = 'no-port-forwarding,no-agent-forwarding,no-X11-forwarding,command="/bin/cryptroot-unlock"'
#: The initramfs seeks all of its own network without the gateway, so that must not be half of the world.
_WIDEST = 16

#: Runs behind the proof of the boot loader, whose ``config`` and ``named`` it uses.
PART = r"""unlock() { fail "0 remote_unlock: $*"; }
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

    ``network``: a :class:`network.Network`, or None. None when it has no such address, or a gateway that is far away.
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
    words = (address.ip, gateway, net.netmask, hostname.partition(".")[0])
    lines = ["# written by kubenode.provision: the network that the rescue had", "IP=%s::%s:%s:%s::off" % words]
    lines.append(f"BOOTIF=01-{network.mac.replace(':', '-')}")
    return "\n".join(lines) + "\n"
