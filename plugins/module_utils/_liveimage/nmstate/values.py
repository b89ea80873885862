# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Names and addresses as NetworkManager takes them."""

from __future__ import annotations

import ipaddress
import re
from typing import Union

from ..errors import ImageError
from .fields import Fields, shown

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_NAME = re.compile(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]{0,14}\Z")  # 15 bytes, no slash, colon or blank; no hidden file
_RESERVED = ("all", "default", "bonding_masters", "lo")
_PROFILE = re.compile(r"[A-Za-z0-9_+@-]([A-Za-z0-9_.+@ -]{0,98}[A-Za-z0-9_+@-])?\Z")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(\1[0-9A-Fa-f]{2}){4}\Z")


def interface_name(text: str, path: str) -> str:
    """A kernel interface's name."""
    if not _NAME.match(text) or text in _RESERVED:
        raise ImageError(
            "%s: %s is no name for an interface: 1 to 15 letters, digits or any of _.+@-, not %s"
            % (path, shown(text), ", ".join(_RESERVED))
        )
    return text


def profile_name(text: str, path: str) -> str:
    """A profile's name, which is also its file's."""
    if not _PROFILE.match(text):
        raise ImageError(
            "%s: %s is no name for a profile: 1 to 100 letters, digits, blanks or any of _.+@-" % (path, shown(text))
        )
    return text


def mac(text: str, path: str, *, group: bool = False) -> str:
    """A MAC address in capitals with colons; ``group``: of a group rather than of one interface."""
    if not _MAC.match(text):
        raise ImageError("%s: %s is no MAC address such as 52:54:00:12:34:56" % (path, shown(text)))
    found = text.upper().replace("-", ":")
    if not group and (int(found[:2], 16) & 1 or found == "00:00:00:00:00:00"):
        raise ImageError("%s: %s is no address of a single interface" % (path, found))
    return found


def address(text: str, path: str, version: int | None = None) -> Address:
    """An address, of one version when that is given."""
    if "%" in text:
        raise ImageError("%s: %s has a zone, which has no place here" % (path, shown(text)))
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise ImageError("%s: %s is no IP address" % (path, shown(text))) from error
    if version is not None and found.version != version:
        raise ImageError("%s: %s is no IPv%d address" % (path, shown(text), version))
    return found


def host_address(text: str, path: str, version: int) -> Address:
    """An address that an interface or a gateway can have."""
    found = address(text, path, version)
    if found.is_multicast or found.is_unspecified or found.is_loopback or str(found) == "255.255.255.255":
        raise ImageError("%s: %s is no address of a host" % (path, found))
    return found


def network(text: str, path: str) -> Network:
    """A network; without a prefix length, one address; bits of the host are cleared."""
    whole, slash, prefix = text.partition("/")
    found = address(whole, path)
    if slash and not (re.match(r"[0-9]{1,3}\Z", prefix) and int(prefix) <= found.max_prefixlen):
        raise ImageError("%s: %s has no prefix length of 0 to %d" % (path, shown(text), found.max_prefixlen))
    return ipaddress.ip_network("%s/%s" % (whole, prefix if slash else found.max_prefixlen), strict=False)


def mac_of(fields: Fields, key: str, *, group: bool = False) -> str | None:
    """A MAC address of a mapping."""
    text = fields.text(key)
    return None if text is None else mac(text, fields.at(key), group=group)
