# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Settings of a network card: offloads, virtual functions, and its identity for 802.1X."""

from __future__ import annotations

import re

from ..errors import ImageError
from .document import Fields
from .profile import Interface, mac_of, true_false

_U32 = 2**32 - 1
_ALIASES = {  # what ethtool's command line calls them → the kernel's name
    "rx": "rx-checksum",
    "rx-checksumming": "rx-checksum",
    "gso": "tx-generic-segmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "gro": "rx-gro",
    "generic-receive-offload": "rx-gro",
    "lro": "rx-lro",
    "large-receive-offload": "rx-lro",
    "rxvlan": "rx-vlan-hw-parse",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "txvlan": "tx-vlan-hw-insert",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple": "rx-ntuple-filter",
    "ntuple-filters": "rx-ntuple-filter",
    "rxhash": "rx-hashing",
    "receive-hashing": "rx-hashing",
}
_RENAMED = {  # the kernel's name → NetworkManager's, where it is another one
    "rx-checksum": "rx",
    "tx-scatter-gather": "sg",
    "tx-tcp-segmentation": "tso",
    "rx-gro": "gro",
    "tx-generic-segmentation": "gso",
    "rx-hashing": "rxhash",
    "rx-lro": "lro",
    "rx-ntuple-filter": "ntuple",
    "rx-vlan-hw-parse": "rxvlan",
    "tx-vlan-hw-insert": "txvlan",
}
_FEATURES = frozenset((
    "esp-hw-offload", "esp-tx-csum-hw-offload", "fcoe-mtu", "gro", "gso", "highdma", "hw-tc-offload",
    "l2-fwd-offload", "loopback", "lro", "macsec-hw-offload", "ntuple", "rx", "rx-all", "rx-fcs", "rx-gro-hw",
    "rx-gro-list", "rx-udp-gro-forwarding", "rx-udp_tunnel-port-offload", "rx-vlan-filter",
    "rx-vlan-stag-filter", "rx-vlan-stag-hw-parse", "rxhash", "rxvlan", "sg", "tls-hw-record",
    "tls-hw-rx-offload", "tls-hw-tx-offload", "tso", "tx", "tx-checksum-fcoe-crc", "tx-checksum-ip-generic",
    "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp", "tx-esp-segmentation", "tx-fcoe-segmentation",
    "tx-gre-csum-segmentation", "tx-gre-segmentation", "tx-gso-list", "tx-gso-partial", "tx-gso-robust",
    "tx-ipxip4-segmentation", "tx-ipxip6-segmentation", "tx-nocache-copy", "tx-scatter-gather-fraglist",
    "tx-sctp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation",
    "tx-tunnel-remcsum-segmentation", "tx-udp-segmentation", "tx-udp_tnl-csum-segmentation",
    "tx-udp_tnl-segmentation", "tx-vlan-stag-hw-insert", "txvlan",
))  # fmt: skip
_COALESCE = (
    "pkt-rate-high", "pkt-rate-low", "rx-frames", "rx-frames-high", "rx-frames-irq", "rx-frames-low", "rx-usecs",
    "rx-usecs-high", "rx-usecs-irq", "rx-usecs-low", "sample-interval", "stats-block-usecs", "tx-frames",
    "tx-frames-high", "tx-frames-irq", "tx-frames-low", "tx-usecs", "tx-usecs-high", "tx-usecs-irq", "tx-usecs-low",
)  # fmt: skip
_METHODS = ("leap", "md5", "tls", "peap", "ttls", "fast", "pwd")
_INNER = ("pap", "mschap", "mschapv2", "gtc", "otp", "md5", "tls", "chap")
_PATH = re.compile(r"/[!-:<-~]+\Z")  # a semicolon would end it
HIDDEN = "<_password_hid_by_nmstate>"


def ethtool(fields: Fields, found: Interface) -> None:
    """The section ``ethtool``."""
    settings: dict[str, str] = {}
    pause = fields.mapping("pause")
    if pause is not None:
        auto, given = pause.flag("autoneg"), {key: pause.flag(key) for key in ("rx", "tx")}
        pause.done()
        if auto is None and any(one is not None for one in given.values()):
            raise ImageError(f"{pause.at('autoneg')} is missing; rx and tx need autoneg: false")
        if auto is not None:
            settings["pause-autoneg"] = true_false(auto)
        if auto is False:
            settings.update({"pause-" + key: true_false(one) for key, one in given.items() if one is not None})
    feature = fields.mapping("feature")
    if feature is not None:
        for given_name in feature.names():
            name = _ALIASES.get(given_name, given_name)
            name = _RENAMED.get(name, name)
            if name not in _FEATURES:
                raise ImageError(f"{feature.at(given_name)} is no feature that NetworkManager can set")
            value = feature.flag(given_name)
            if value is not None:
                settings["feature-" + name] = true_false(value)
    coalesce = fields.mapping("coalesce")
    if coalesce is not None:
        for key in ("adaptive-rx", "adaptive-tx"):
            value = coalesce.flag(key)
            if value is not None:
                settings["coalesce-" + key] = str(int(value))
        settings.update(_numbers(coalesce, "coalesce-", _COALESCE))
    ring = fields.mapping("ring")
    if ring is not None:
        ring.ignore("rx-max", "rx-mini-max", "rx-jumbo-max", "tx-max")
        settings.update(_numbers(ring, "ring-", ("rx", "rx-jumbo", "rx-mini", "tx")))
    fields.done()
    if settings:
        found.settings["ethtool"] = settings


def _numbers(fields: Fields, prefix: str, keys: tuple[str, ...]) -> dict[str, str]:
    numbers = {key: fields.number(key, 0, _U32) for key in keys}
    fields.done()
    return {prefix + key: str(number) for key, number in numbers.items() if number is not None}


def sriov(fields: Fields, found: Interface) -> None:
    """The section ``sr-iov`` of an ethernet interface."""
    total, probe = fields.number("total-vfs", 0, 65535), fields.flag("drivers-autoprobe")
    functions: dict[int, str] = {}
    for one in fields.mappings("vfs"):
        number = one.number("id", 0, 65534)
        if number is None:
            raise ImageError(f"{one.at('id')} is missing")
        if number in functions:
            raise one.wrong("id", "is given twice")
        if total is not None and number >= total:
            raise one.wrong("id", f"is not below the total-vfs of {total}")
        functions[number] = _function(one)
    fields.done()
    if total == 0:
        return
    if functions and total is None:
        total = max(functions) + 1
    settings = {} if total is None else {"total-vfs": str(total)}
    if probe is not None:
        settings["autoprobe-drivers"] = str(int(probe))
    settings.update({f"vf.{number}": text for number, text in functions.items()})
    if settings:
        found.settings["sriov"] = settings


def _function(fields: Fields) -> str:
    """One virtual function as NetworkManager lists its properties."""
    fields.ignore("iface-name")
    words = []
    address = mac_of(fields, "mac-address")
    if address is not None:
        words.append(f"mac={address}")
    for key in ("spoof-check", "trust"):
        value = fields.flag(key)
        if value is not None:
            words.append(f"{key}={true_false(value)}")
    rates = {key: fields.number(key, 0, _U32) for key in ("min-tx-rate", "max-tx-rate")}
    words += [f"{key}={rate}" for key, rate in rates.items() if rate is not None]
    vlan, priority = fields.number("vlan-id", 0, 4095), fields.number("qos", 0, 7)
    protocol = fields.choice("vlan-proto", ("802.1q", "802.1ad")) or "802.1q"
    fields.done()
    if protocol == "802.1ad" and not vlan and not priority:
        raise fields.wrong("vlan-proto", "needs vlan-id or qos")
    if vlan is not None:
        words.append(f"vlans={vlan}.{priority or 0}.{'q' if protocol == '802.1q' else 'ad'}")
    return " ".join(words)


def ieee8021x(fields: Fields, found: Interface) -> None:
    """The section ``802.1x``. Its passwords are in the profile, which only root reads, and in no message."""
    methods = fields.texts("eap-methods")
    for one in methods:
        if one not in _METHODS:
            raise fields.wrong("eap-methods", f"has {one!a}, which is not one of {', '.join(_METHODS)}")
    if not methods:
        raise ImageError(f"{fields.at('eap-methods')} is missing; give one or more of {', '.join(_METHODS)}")
    settings = {"eap": "".join(one + ";" for one in methods), "identity": fields.text("identity") or ""}
    for key in ("ca-cert", "client-cert", "private-key"):
        path = fields.text(key)
        if path and not _PATH.match(path):
            raise fields.wrong(key, "is no absolute path of a file in the live system")
        settings[key] = path or ""
    for key in ("private-key-password", "password"):
        secret = fields.secret(key)
        if secret == HIDDEN:
            raise ImageError(f"{fields.at(key)} was hidden by nmstatectl; give the password itself")
        settings[key] = secret or ""
    settings["phase2-auth"] = fields.choice("phase2-auth", _INNER) or ""
    fields.done()
    found.settings["802-1x"] = settings
