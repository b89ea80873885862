# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Token discovery: what kube-public/cluster-info says, and who signed it (pure).

https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#configmap-signing
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..._common.text import base64_bytes, json_value
from . import der

TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})\Z")
_PIN = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CA_LINE = re.compile(r"^\s*(?:-\s*)?certificate-authority-data:\s*[\"']?([A-Za-z0-9+/=]+)[\"']?\s*$", re.MULTILINE)


class DiscoveryError(ValueError):
    """What was found cannot be trusted; ``code`` is the failure code, the text says why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def split_token(token: str) -> tuple[str, str]:
    """(id, secret) of a bootstrap token; raise ValueError without repeating it."""
    found = TOKEN.match(token)
    if not found:
        raise ValueError("a bootstrap token is six and sixteen lower-case letters or digits: abcdef.0123456789abcdef")
    return found[1], found[2]


def check_pin(pin: Any) -> str:
    """Return ``pin`` in lower case when it is ``sha256:`` and 64 hexadecimal digits, else raise ValueError."""
    if not isinstance(pin, str) or not _PIN.match(pin.lower()):
        raise ValueError(
            "%r is no pin of a CA; write sha256: and the 64 hexadecimal digits that "
            "'kubeadm token create --print-join-command' shows" % (pin,)
        )
    return pin.lower()


def matching_certificates(ca_pem: str, pins: Iterable[str]) -> str:
    """The PEM of those CA certificates whose public key is pinned; none raises :class:`DiscoveryError`."""
    found = der.certificates(ca_pem)
    kept = [block for block in found if der.public_key_pin(block) in pins]
    if not kept:
        raise DiscoveryError(
            "pin_mismatch",
            "the CA has the public key %s, pinned is %s"
            % (", ".join(der.public_key_pin(block) for block in found), ", ".join(sorted(pins))),
        )
    return "".join(map(der.pem, kept))


def check_signature(data: Mapping[str, Any], kubeconfig: str, token: str) -> None:
    """Check the detached JWS (HS256) that the cluster's signer made of ``kubeconfig`` with this token."""
    name, secret = split_token(token)
    signature = data.get("jws-kubeconfig-" + name)
    if not signature or not isinstance(signature, str):
        raise DiscoveryError(
            "discovery_signature",
            "cluster-info holds no signature of the token %s; the token is unknown or expired, its use for signing is "
            "not allowed, or the cluster runs no bootstrapsigner" % name,
        )
    parts = signature.split(".")
    if len(parts) != 3 or parts[1]:
        raise DiscoveryError("discovery_signature", "the signature of cluster-info is no detached JWS")
    header = _json(_unpadded(parts[0]))
    if header.get("alg") != "HS256" or header.get("kid") != name:
        raise DiscoveryError(
            "discovery_signature", "cluster-info is signed by %(alg)s for %(kid)s" % {"alg": "?", "kid": "?", **header}
        )
    payload = base64.urlsafe_b64encode(kubeconfig.encode("utf-8")).rstrip(b"=").decode("ascii")
    wanted = hmac.new(secret.encode("ascii"), ("%s.%s" % (parts[0], payload)).encode("ascii"), hashlib.sha256).digest()
    if not hmac.compare_digest(wanted, _unpadded(parts[2])):
        raise DiscoveryError("discovery_signature", "cluster-info was signed with another token, or was changed since")


def discovered_ca(config_map: Mapping[str, Any], pins: set[str], token: str | None) -> str:
    """The CA (PEM) of a cluster-info ConfigMap, proven by pins, by the token's signature or by both.

    ``pins`` may be empty and ``token`` None, but not both.
    """
    if not pins and not token:
        raise ValueError("neither pins nor a token to prove cluster-info with")
    data = config_map.get("data")
    kubeconfig = data.get("kubeconfig") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kubeconfig, str):
        raise DiscoveryError("discovery_signature", "the ConfigMap kube-public/cluster-info holds no kubeconfig")
    if token:
        check_signature(data, kubeconfig, token)
    found = _authorities(kubeconfig)
    if len(found) != 1:
        raise DiscoveryError("discovery_signature", "the kubeconfig of cluster-info names %d CAs, not 1" % len(found))
    try:
        ca_pem = (base64_bytes(found[0]) or b"").decode("ascii")
        return matching_certificates(ca_pem, pins) if pins else "".join(map(der.pem, der.certificates(ca_pem)))
    except (UnicodeDecodeError, der.BadCertificate) as error:
        raise DiscoveryError("discovery_signature", "the CA of cluster-info cannot be read: %s" % error) from error


def _authorities(kubeconfig: str) -> list[str]:
    """What a kubeconfig in JSON, or in YAML as kubeadm writes it, holds as certificate-authority-data."""
    try:
        clusters = json_value(kubeconfig)["clusters"]
        return [str(one["cluster"]["certificate-authority-data"]) for one in clusters]
    except ValueError:
        return _CA_LINE.findall(kubeconfig)
    except (KeyError, TypeError):
        return []


def _unpadded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise DiscoveryError("discovery_signature", "the signature of cluster-info is not base64") from error


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json_value(data.decode("utf-8"))
    except ValueError as error:
        raise DiscoveryError("discovery_signature", "the head of the signature is not JSON") from error
    if not isinstance(value, dict):
        raise DiscoveryError("discovery_signature", "the head of the signature is no object")
    return value
