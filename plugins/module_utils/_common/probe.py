# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Asks a machine by SSH which system answers, where that came from, and by the one rule: is this the rescue?

The question is a POSIX shell script; nothing in its answer is trusted. A host name proves nothing: installimage renames
the rescue that it runs in, and a system on a disk may be called ``rescue``. What cannot be renamed is the root file
system: a rescue runs from memory or from the network, no disk is below its root, and Hetzner's carries marks of
Hetzner's.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from . import mounts
from .text import ascii_words, base64_bytes, whole_number

#: Where the root file system lies.
RAM, NETWORK, DISK, UNKNOWN = "ram", "network", "disk", "unknown"

_IN_RAM = frozenset(["rootfs", "ramfs", "tmpfs"])
_ON_NETWORK = frozenset(["nfs", "nfs4"])
_LAYER = re.compile(r"(?:^|,)(lowerdir|upperdir|lowerdir\+|datadir\+)=((?:\\.|[^,\\])*)")
_MOST = 64
_MOST_SECTORS = 1 << 50

_ABOUT_DISK = r"""
first_line() { # FILE: its first line as $line
    line=
    read -r line <"$1" || :
}
about_disk() { # FOLDER in /sys: what tells the disk from others
    first_line "$1/size"
    printf '%s\n' "disk ${1##*/}" "size $line"
    for file in "$1/wwid" "$1/device/wwid"; do
        [ ! -r "$file" ] || { first_line "$file" && printf 'wwn %s\n' "$line"; }
    done
    for file in "$1/serial" "$1/device/serial"; do
        [ ! -r "$file" ] || { first_line "$file" && printf 'serial %s\n' "$line"; }
    done
    first_line "$1/dev"
    sed -n -e 's/^E:ID_WWN=/wwn /p' -e 's/^E:ID_WWN_WITH_EXTENSION=/wwn /p' -e 's/^E:ID_SERIAL_SHORT=/serial /p' \
        -e 's/^E:ID_SCSI_SERIAL=/serial /p' "/run/udev/data/b$line"
}
"""

#: Shell functions (POSIX): ``seen_disks NAME…`` prints what `parse_written` reads of these disks.
SCRIPT_OF_DISKS = (
    r"""exec 2>/dev/null
"""
    + _ABOUT_DISK
    + r"""
seen_disks() { # NAME…: kernel names, WWNs, or names below /dev/disk/by-id
    whole=0
    for disk in /sys/block/*; do
        case ${disk##*/} in loop* | ram* | zram* | sr* | fd* | md* | dm-* | nbd*) ;; *) whole=$((whole + 1)) ;; esac
    done
    echo "disks $whole"
    udevadm settle --timeout=10
    for name; do
        for path in "/dev/$name" "/dev/disk/by-id/$name" "/dev/disk/by-id/wwn-$name" "/dev/disk/by-id/nvme-$name"; do
            [ -b "$path" ] || continue
            path=$(readlink -f "$path")
            about_disk "/sys/block/${path##*/}"
            for part in "$path" /sys/block/"${path##*/}"/"${path##*/}"*/partition; do
                [ "$part" = "$path" ] || { part=${part%/partition} && part=/dev/${part##*/}; }
                [ -b "$part" ] || continue
                blkid -p -o export "$part" | sed -n -e 's/^UUID=/holds /p' -e 's/^PTUUID=/holds /p' \
                    -e 's/^PART_ENTRY_UUID=/holds /p' -e 's/^PTTYPE=/kind /p' -e 's/^TYPE=/kind /p'
            done
            [ "$(head -c 1048576 "$path" | tr -d '\000' | wc -c)" -eq 0 ] || echo "kind data"
            break
        done
    done
    echo "end of disks"
}
"""
)

#: Addresses that a system tells of each kind. A node whose kube-proxy uses IPVS has one for each service.
MOST_ADDRESSES = 400

#: Shell functions and commands (POSIX) that print what `Origin.parse` reads, as lines ``key=value``, and keep the texts
#: for `_TEXTS`. They need /proc, and say less where /sys or udev's database is missing.
_ORIGIN = (
    _ABOUT_DISK
    + r"""
on() { # PATH: as $all the lines of mountinfo of what is mounted there, as $last the one that is seen
    all= last=
    set -f
    while read -r line; do
        set -- "$1" $line
        [ "$6" != "$1" ] || { all="$all$line
" && last=$line; }
    done </proc/self/mountinfo
    set +f
}
disks_below() ( # MAJOR:MINOR: the folders in /sys of the whole disks below a device
    folder=$(readlink -f "/sys/dev/block/$1") && [ -e "$folder/dev" ] || exit 0
    if [ -e "$folder/partition" ]; then folder=${folder%/*}; fi
    for below in "$folder"/slaves/*/dev; do
        [ -e "$below" ] || { echo "$folder" && exit 0; }
        first_line "$below" && disks_below "$line"
    done
)
seen_root() { # what the system runs from: the root file system, or the disk that one of the others is on
    for place in / /sysroot /etc /var /usr; do
        on "$place"
        set -f
        set -- $last
        set +f
        [ "$#" -gt 6 ] || continue
        number=$3
        while [ "$#" -gt 0 ] && [ "$1" != - ]; do shift; done
        if [ ! -e "/sys/dev/block/$number" ]; then
            source=$(readlink -f "${3:-}")
            first_line "/sys/class/block/${source##*/}/dev" && number=$line
        fi
        [ -n "$number" ] && [ -e "/sys/dev/block/$number" ] || continue
        echo "on $number"
        sed -n -e 's/^E:ID_FS_UUID=/uuid /p' -e 's/^E:ID_PART_ENTRY_UUID=/uuid /p' "/run/udev/data/b$number"
        disks_below "$number" | sort -u | while read -r folder; do about_disk "$folder"; done
        break
    done
}
while read -r key _ uid _ && [ "$key" != Uid: ]; do :; done </proc/self/status
echo "uid=$uid"
read -r uptime _ </proc/uptime
echo "uptime=$uptime"
on /
root=$all mounts=
case $root in *' - overlay '*)
    mounts=$(LC_ALL=C grep ' - [^ ]* /dev/' /proc/self/mountinfo)
    # a layer may lie on any of them: without all of them, nothing is known of the root
    [ "$?" -le 1 ] && [ "${#mounts}" -le 32768 ] || root= mounts= ;;
esac
marks=
[ ! -d /root/.oldroot/nfs ] || marks=$marks,oldroot
while read -r line || [ -n "$line" ]; do
    case $line in *'Hetzner Rescue System'*) marks=$marks,motd && break ;; esac
done </etc/motd
echo "rescue_marks=${marks#,}"
disks=$(seen_root) || :
most=@MOST@ number=0 found=
echo "addresses=$(awk -v most=$most '/32 host LOCAL/ && !seen[a]++ && n++ < most { printf "%s ", a } { a = $2 }' \
    /proc/net/fib_trie)"
while [ "$number" -lt "$most" ] && read -r address _; do found="$found$address " && number=$((number + 1)); done \
    </proc/net/if_inet6
echo "addresses6=$found"
""".replace("@MOST@", str(MOST_ADDRESSES))
)


class Disk(TypedDict):
    """What identifies a disk."""

    name: str
    #: In bytes, 0 where it is not known.
    size: int
    wwns: list[str]
    serials: list[str]


class WrittenDisk(Disk, total=False):
    """A disk that an image command wrote, with the UUIDs and the kinds of what it holds."""

    holds: list[str]
    kinds: list[str]
    #: Whether the machine has no other disk.
    only: bool
    #: What it held before the command; None where that is not known.
    before: list[str] | None


@dataclass(frozen=True)
class Origin:
    """What a system runs from. ``root``: RAM, NETWORK, DISK or UNKNOWN; ``marks``: Hetzner's, of its rescue."""

    uid: int = -1
    root: str = UNKNOWN
    marks: Sequence[str] = ()
    uptime: float | None = None
    #: The whole disks below the root file system.
    disks: Sequence[Disk] = ()
    #: UUIDs of the root file system and of its partition.
    uuids: Sequence[str] = ()

    @property
    def is_rescue(self) -> bool:
        """Whether the provider's rescue answers, as root."""
        return not self.why_no_rescue

    @property
    def why_no_rescue(self) -> str:
        """Why it is no rescue, as a clause; empty when it is one."""
        if self.root == DISK:
            return "it runs from a disk"
        if self.root == UNKNOWN:
            return "it does not tell what its root file system is"
        if not self.marks:
            return "it runs from memory and has none of the marks of Hetzner's rescue"
        return "" if self.uid == 0 else "the user is not root"

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Origin:
        """From `fields_of`; nothing in it is trusted to be well-formed."""
        uid, uptime = whole_number(fields.get("uid")), fields.get("uptime", "")
        disks, uuids = parse_disks(fields.get("root_disks", ""))
        return cls(
            uid=-1 if uid is None else uid,
            root=place_of(fields.get("root", ""), fields.get("block_mounts", "")),
            marks=[mark for mark in fields.get("rescue_marks", "").split(",") if mark in ("oldroot", "motd")],
            uptime=float(uptime) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", uptime) else None,
            disks=tuple(disks),
            uuids=tuple(uuids),
        )


def place_of(root_lines: str, block_mounts: str) -> str:
    """Where the root file system lies: from the lines of mountinfo for ``/``, and those of what is on block devices.

    A disk anywhere below is a disk: also in a lower layer of an overlay, and under what was mounted over it.
    """
    on_disks = [mount.point for mount in mounts.parse(block_mounts)]
    places = [_place(mount, on_disks) for mount in mounts.parse(root_lines) if mount.point == "/"]
    for place in (DISK, UNKNOWN, NETWORK, RAM):
        if place in places:
            return place
    return UNKNOWN


def _place(mount: mounts.Mount, on_disks: Sequence[str]) -> str:
    if mount.kind == "overlay":
        # Layers may have been mounted before the root was changed, so that their paths lead nowhere now.
        seen = [layer for layer in _layers(mount.options) if any(_below(layer, place) for place in on_disks)]
        return DISK if seen else RAM
    if mount.device.split(":")[0] != "0" or mount.source.startswith("/dev/"):
        return DISK
    if mount.kind in _IN_RAM:
        return RAM
    return NETWORK if mount.kind in _ON_NETWORK else UNKNOWN


def _layers(options: str) -> list[str]:
    found: list[str] = []
    for key, value in _LAYER.findall(options):
        parts = re.split(r"(?<!\\):", value) if key == "lowerdir" else [value]
        found += [mounts.unescape(part).replace("\\:", ":") for part in parts if part.startswith("/")]
    return found


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def parse_disks(text: str) -> tuple[list[Disk], list[str]]:
    """``(disks, uuids)`` of the listing that the script makes of the root's disks."""
    disks: list[Disk] = []
    uuids: list[str] = []
    for line in text.split("\n"):
        key, _blank, value = line.partition(" ")
        value = ascii_words(value)
        if key == "disk" and value and len(disks) < _MOST:
            disks.append({"name": value, "size": 0, "wwns": [], "serials": []})
        elif key == "size" and disks:
            disks[-1]["size"] = (whole_number(value, _MOST_SECTORS) or 0) * 512
        elif key in ("wwn", "serial") and disks and value:
            numbers = disks[-1]["wwns"] if key == "wwn" else disks[-1]["serials"]
            if value not in numbers:
                numbers.append(value)
        elif key == "uuid" and value and not disks:
            uuids.append(value.lower())
    return disks, uuids


def parse_written(text: str) -> list[WrittenDisk] | None:
    """What ``seen_disks`` said: each disk with what it ``holds`` (UUIDs), the ``kinds`` of that, and whether it is the
    ``only`` disk of the machine. None when the listing is not whole."""
    lines = text.split("\n")
    if "end of disks" not in lines:
        return None
    only = "disks 1" in lines
    disks = [
        cast(WrittenDisk, {**disk, "holds": [], "kinds": [], "only": only})  # mypy misses the keys that may be absent
        for disk in parse_disks(text)[0]
    ]
    place = -1
    for line in lines:
        key, _blank, value = line.partition(" ")
        place += key == "disk"
        if key in ("holds", "kind") and 0 <= place < len(disks) and ascii_words(value):
            (disks[place]["kinds"] if key == "kind" else disks[place]["holds"]).append(ascii_words(value).lower())
    return disks


WWN, SERIAL, SIZE = "wwn", "serial", "size"


def same_disk(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[bool | None, str]:
    """Whether two descriptions are of the same disk: (True, False or None for "unknown"; by what)."""
    for what, numbers in ((WWN, _wwns), (SERIAL, _serials)):
        mine, theirs = numbers(one), numbers(other)
        if mine and theirs:
            return bool(mine & theirs), what
    if one.get("size") and other.get("size") and one["size"] != other["size"]:
        return False, SIZE
    return None, ""


def _wwns(disk: Mapping[str, Any]) -> set[str]:
    """Without the ways to write them: naa., eui., 0x, and the extension of a volume's number."""
    found = set()
    for text in disk.get("wwns") or []:
        number = re.sub(r"^(naa\.|eui\.|nvme\.|uuid\.|t10\.|0x)+", "", text.lower())
        if number.strip("0"):
            found.add(number)
    return found


def _serials(disk: Mapping[str, Any]) -> set[str]:
    return {text.strip().lower() for text in disk.get("serials") or [] if text.strip()}


#: The first line of every answer.
_BEGIN = "kubenode-probe=1"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")

_ORIGIN_FIRST = f"exec 2>/dev/null\necho {_BEGIN}\n{_ORIGIN}"
_THEN_WHO = r"""
read -r boot </proc/sys/kernel/random/boot_id
read -r name </proc/sys/kernel/hostname
read -r kernel </proc/sys/kernel/osrelease
os=
unquoted() { # TEXT: as $os, without quotation marks
    set -f
    IFS='"'
    set -- $1
    IFS=
    os="$*"
    unset IFS
    set +f
}
while read -r line || [ -n "$line" ]; do
    case $line in PRETTY_NAME=*) unquoted "${line#PRETTY_NAME=}" && break ;; esac
done </etc/os-release
printf '%s\n' "boot_id=$boot" "hostname=$name" "kernel=$kernel" "os=$os" # echo may obey a backslash in them
"""

#: What only a text says, and no line.
_NAMES_OF_TEXTS = frozenset(
    ["root", "block_mounts", "root_disks", "record", "intent"]
    + ["host_keys", "instance", "cloud_init_result", "cloud_init_status"]
)
#: Prints texts of several lines behind each other, each after a line that no file can hold, in base64 by one process.
#: They are bounded: modules read 64 KiB of an answer, and of texts that are cut they know nothing. Nor is anything
#: known of a root file system that takes more than its share.
_TEXTS = r"""
mark=
! command -v base64 >/dev/null || read -r mark </proc/sys/kernel/random/uuid
text() { # NAME [FILE BYTES]
    [ "$#" -eq 1 ] || [ -s "$2" ] || return 0
    printf '\n%s %s\n' "$mark" "$1"
    [ "$#" -eq 1 ] || head -c "$3" "$2"
}
echo "texts=$mark"
{
    [ "${#root}" -gt 8192 ] || { text root && printf %s "$root"; }
    [ -z "$mounts" ] || { text block_mounts && printf %s "$mounts"; }
    [ "${#disks}" -gt 16384 ] || { text root_disks && printf %s "$disks"; }
    text record /etc/kubenode/installed.json 16384
    text intent /root/.kubenode/intent.json 8192
    @MORE@
    text end
} | base64 || [ -z "$mark" ] || exit 0 # without its texts, nothing is done that comes after them
echo --
"""


def script(before: str = "", texts: str = "", after: str = "") -> str:
    """A script that prints what `fields_of` reads: lines ``key=value``, then texts.

    ``before``: commands that may wait for something; where the root file system lies and which addresses there are has
    been asked before them, the names are asked after them. ``texts``: calls of ``text NAME FILE BYTES``; ``text NAME``
    is followed by what the next command prints. ``after``: commands that print lines; ``$boot`` is the boot id.
    """
    return _ORIGIN_FIRST + before + _THEN_WHO + _TEXTS.replace("@MORE@", texts or ":") + after + "echo end=1\n"


SCRIPT = script()


def fields_of(text: str) -> dict[str, str] | None:
    """The lines and texts of an answer by their names, the first of each; None when the probe did not run.

    Text before the answer, such as a banner, is left out. Without a part of its texts, an answer has no ``end``.
    """
    _before, start, answer = text.replace("\r\n", "\n").partition(_BEGIN + "\n")
    if not start:
        return None
    fields: dict[str, str] = {}
    before, _equals, packed = ("\n" + answer).partition("\ntexts=")
    mark, _end, packed = packed.partition("\n")
    encoded, _dashes, after = packed.partition("--\n")
    texts = _texts(mark, encoded)
    for line in (before + "\n" + after).split("\n"):
        key, equals, value = line.partition("=")
        if equals and key not in _NAMES_OF_TEXTS:
            fields.setdefault(key, value.strip())
    if texts is None:
        fields.pop("end", None)
    return {**fields, **{key: value for key, value in (texts or {}).items() if key in _NAMES_OF_TEXTS}}


def _texts(mark: str, encoded: str) -> dict[str, str] | None:
    """The texts behind each other, by name; None when not all of them came. Without base64, a machine gives no mark."""
    packed = (base64_bytes(encoded.replace("\n", "")) or b"").decode("utf-8", "replace")
    parts = packed.split(f"\n{mark} ")[1:] if mark else []
    named = [part.partition("\n")[::2] for part in parts]
    if (mark or encoded) and not (named and named[-1][0] == "end"):
        return None
    return dict(named[:-1])


def boot_id_of(fields: dict[str, str]) -> str:
    """The kernel's boot id; empty when the answer has none."""
    found = fields.get("boot_id", "")
    return found if _BOOT_ID.match(found) else ""


def addresses_of(fields: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses that a system has itself; none when it does not tell them."""
    words = fields.get("addresses", "").split()
    # As in /proc/net/if_inet6: 32 hexadecimal digits.
    words += [":".join(re.findall("....", word)) for word in fields.get("addresses6", "").split() if len(word) == 32]
    found = []
    for word in words[: 2 * MOST_ADDRESSES]:
        with contextlib.suppress(ValueError):
            found.append(str(ipaddress.ip_address(word)))
    return tuple(found)


def is_server(shown: Sequence[str], wanted: Sequence[str]) -> bool | None:
    """Whether a system with the addresses ``shown`` runs on the server that has those ``wanted``; None: unknown.

    Robot names an IPv6 network without its length, which is 64.
    """
    networks = []
    for one in wanted:
        with contextlib.suppress(ValueError):  # an answer may hold anything
            networks.append(ipaddress.ip_network(one if "/" in one or ":" not in one else f"{one}/64", strict=False))
    if any(ipaddress.ip_address(address) in network for address in shown for network in networks):
        return True
    return False if networks and shown and len(shown) < MOST_ADDRESSES else None


def another_server(shown: Sequence[str], wanted: Sequence[str]) -> str:
    """What to say of a system that runs on another server than the one with the addresses ``wanted``."""
    ours = [ipaddress.ip_address(one) for one in shown]
    own = [str(one) for one in ours if not (one.is_loopback or one.is_link_local)]
    return (
        f"the server that answers is another one: it has {', '.join(own[:10]) or 'no address that it tells'}; this "
        f"machine's has {', '.join(wanted)}. Correct kubenode_address, or the way that SSH takes"
    )
