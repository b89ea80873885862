# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node trusts: certificates of users with the steps ca and proxy, and keys of repositories."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import base64_bytes
from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import plan_types, templates
from .plan_types import BaseInputs
from .systems import DEBIAN, FLATCAR, known

_BEGIN = "-----BEGIN "
_BLOCK = re.compile(_BEGIN + r"([A-Z0-9 ]+)-----[ \t]*\n((?:[^-]|-(?!----))*)-----END \1-----")


def certificates(text: str) -> list[str]:
    """Each certificate of the text as PEM of its own, in order; empty when any block is broken or is something else.

    A private key that came along by mistake is so refused instead of being written into a world-readable folder.
    """
    result = []
    blocks = _BLOCK.findall(text.replace("\r\n", "\n"))
    if len(blocks) < text.count(_BEGIN):
        return []
    for kind, body in blocks:
        certificate = base64_bytes("".join(body.split()))
        # every certificate is a DER SEQUENCE
        if kind != "CERTIFICATE" or not certificate or certificate[:1] != b"\x30":
            return []
        result.append(api_server.pem(certificate))
    return result


def names(inputs: BaseInputs) -> list[str]:
    """Names of the files of the user's own certificates."""
    return sorted({certificate_name(one) for one in _certificates(inputs)})


def certificate_name(certificate: str) -> str:
    """A short, stable name for the file of one certificate."""
    return hashlib.sha256(certificate.encode("ascii")).hexdigest()[:12]


#: What `certificate_name` makes.
_NAME = re.compile(r"[0-9a-f]{12}\Z")
#: family → folder, suffix and the command that takes the folder in
_STORES = {
    DEBIAN: ("/usr/local/share/ca-certificates", "crt", ["update-ca-certificates"]),
    FLATCAR: ("/etc/ssl/certs", "pem", ["update-ca-certificates"]),
}
_DNF_STORE = ("/etc/pki/ca-trust/source/anchors", "pem", ["update-ca-trust", "extract"])
#: what never goes through a proxy, besides what the user adds
_DIRECT = ("localhost", "127.0.0.0/8", "::1", ".svc", ".cluster.local")
_DROP_IN = "20-kubenode-proxy.conf"
_APT = "/etc/apt/apt.conf.d/90-kubenode-proxy"


def _certificates(inputs: BaseInputs) -> list[str]:
    return [certificate for text in inputs["extra_ca"] for certificate in certificates(text)]


def ids(inputs: BaseInputs) -> list[str]:
    """Ids of the CA files: a program reads its roots once, when it starts."""
    if not inputs["manage_ca"]:
        return []
    return list(dict.fromkeys("ca/" + certificate_name(certificate) for certificate in _certificates(inputs)))


def ca(node: Node, inputs: BaseInputs) -> list[Setting]:
    """One file for each certificate where the distribution's own tool takes it from, then that tool."""
    folder, suffix, command = _STORES.get(known(node).family, _DNF_STORE)
    result = {}
    for certificate in _certificates(inputs):
        name = certificate_name(certificate)
        path = f"{folder}/kubenode-{name}.{suffix}"
        result["ca/" + name] = plan_types.file("ca/" + name, path, certificate)
    for name in (node.get("base") or {}).get("extra_ca") or []:
        if _NAME.match(str(name)) and "ca/" + name not in result:
            # withdrawn: nothing on the machine trusts it any more
            result["ca/" + name] = plan_types.absent("ca/" + name, f"{folder}/kubenode-{name}.{suffix}", shown=True)
    if not result:
        return []
    return [*result.values(), plan_types.handler("ca/update", command, list(result))]


def no_proxy(inputs: BaseInputs) -> str:
    own = [item.strip() for item in inputs["no_proxy"].split(",") if item.strip()]
    return ",".join(dict.fromkeys([*_DIRECT, *own]))


def environment(inputs: BaseInputs) -> dict[str, str]:
    """Variables of a program that has to use the proxies; empty without a proxy."""
    values = {"HTTP_PROXY": inputs["http_proxy"], "HTTPS_PROXY": inputs["https_proxy"]}
    values = {name: value for name, value in values.items() if value}
    if values:
        values["NO_PROXY"] = no_proxy(inputs)
    return values


def proxy(node: Node, inputs: BaseInputs) -> list[Setting]:
    """A drop-in for each unit and apt's own file; without a proxy they must not be there."""
    values, result = environment(inputs), []
    secret = any("@" in inputs[name] for name in ("http_proxy", "https_proxy"))
    for unit in [*plan_types.runtime_units(inputs), "kubelet.service"]:
        name, path = unit.removesuffix(".service"), f"{plan_types.UNIT_DIR}/{unit}.d/{_DROP_IN}"
        if not values:
            result.append(plan_types.absent("proxy/" + name, path, begins=plan_types.HEADER))
            continue
        lines = [templates.systemd_environment(key, value) for key, value in values.items()]
        text = plan_types.HEADER + "[Service]\n{}\n".format("\n".join(lines))
        result.append(plan_types.file("proxy/" + name, path, text, secret=secret))
    if known(node).package_manager == "apt":
        result.append(_apt(inputs, secret))
    return result


def _apt(inputs: BaseInputs, secret: bool) -> Setting:
    lines = []
    for scheme, value in (("http", inputs["http_proxy"]), ("https", inputs["https_proxy"])):
        if value:
            lines.append(f"Acquire::{scheme}::Proxy {templates.apt_value(value)};")
    header = plan_types.HEADER.replace("# ", "// ", 1)
    if not lines:
        return plan_types.absent("proxy/apt", _APT, begins=header)
    return plan_types.file("proxy/apt", _APT, header + "\n".join(lines) + "\n", secret=secret)


# --- the fingerprint of an ASCII-armoured OpenPGP key (RFC 4880, RFC 9580), so that a repository's key can be pinned


_ARMOUR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\n(?:[^\n:]+:[^\n]*\n)*[ \t]*\n"
    r"([A-Za-z0-9+/=\s]+?)(?:\n=[A-Za-z0-9+/]{4})?\s*"
    r"-----END PGP PUBLIC KEY BLOCK-----\s*\Z"
)
_PUBLIC_KEY, _SECRET_KEY, _SECRET_SUBKEY = 6, 5, 7


def fingerprint(text: str) -> str:
    """Fingerprint of the one primary key, upper-case hexadecimal. ValueError for none, a second or a secret one.

    A package manager trusts every primary key in the file, so the file may hold only one.
    """
    match = _ARMOUR.match(text.replace("\r\n", "\n").lstrip())
    if not match:
        raise ValueError("use one whole -----BEGIN PGP PUBLIC KEY BLOCK-----")
    try:
        data = base64.b64decode("".join(match.group(1).split()), validate=True)
        packets = list(_packets(data))
    except (ValueError, IndexError):
        raise ValueError("the key is damaged; fetch it once more") from None
    if any(tag in (_SECRET_KEY, _SECRET_SUBKEY) for tag, _body in packets):
        raise ValueError("this holds a secret key; give the public key only")
    primary = [body for tag, body in packets if tag == _PUBLIC_KEY]
    if len(primary) != 1 or packets[0][0] != _PUBLIC_KEY:
        raise ValueError(f"the block holds {len(primary)} keys; give one key only")
    return _key_digest(primary[0])


def _key_digest(body: bytes) -> str:
    if body[:1] == b"\x04":
        framed = b"\x99" + len(body).to_bytes(2, "big") + body
        return hashlib.sha1(framed).hexdigest().upper()
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError("the key is of a version that is not known; versions 4 and 6 are")


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, body) of each packet; IndexError when the data ends early."""
    place = 0
    while place < len(data):
        first = data[place]
        if not first & 0x80:
            raise IndexError("no packet")
        if first & 0x40:
            tag, (length, size) = first & 0x3F, _new_length(data, place + 1)
        else:
            tag, (length, size) = (first >> 2) & 0x0F, _old_length(data, place + 1, first & 3)
        start = place + 1 + size
        if start + length > len(data):
            raise IndexError("cut off")
        yield tag, data[start : start + length]
        place = start + length


def _new_length(data: bytes, place: int) -> tuple[int, int]:
    first = data[place]
    if first < 192:
        return first, 1
    if first < 224:
        return ((first - 192) << 8) + data[place + 1] + 192, 2
    if first == 255:
        return int.from_bytes(data[place + 1 : place + 5], "big"), 5
    raise IndexError("partial lengths are for data, not for keys")


def _old_length(data: bytes, place: int, kind: int) -> tuple[int, int]:
    if kind == 3:
        raise IndexError("a packet without a length")
    size = 1 << kind
    data[place + size - 1]
    return int.from_bytes(data[place : place + size], "big"), size
