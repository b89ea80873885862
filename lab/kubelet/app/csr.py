# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys, certificate requests and certificates, by the program openssl."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_LIMIT = 60


class CertificateError(ValueError):
    """A key or certificate could not be made or read."""


@dataclass(frozen=True)
class Validity:
    """Times since the epoch, and whom the certificate names."""

    begins: float
    ends: float
    subject: str


def openssl(*arguments: str, given: bytes = b"") -> bytes:
    """Standard output of the program; raises :class:`CertificateError`."""
    try:
        done = subprocess.run(["openssl", *arguments], input=given, capture_output=True, timeout=_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CertificateError("openssl: %s" % problem) from None
    if done.returncode:
        raise CertificateError("openssl %s: %s" % (arguments[0], done.stderr.decode("utf-8", "replace").strip()[-300:]))
    return done.stdout


def key() -> bytes:
    """A new P-256 key, PEM."""
    return openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def request(private: bytes, name: str, names: tuple[str, ...] = (), addresses: tuple[str, ...] = ()) -> bytes:
    """A certificate request of node ``name``, PEM; with subject alternative names when there are any."""
    sans = ["DNS:" + each for each in names] + ["IP:" + each for each in addresses]
    settings = "[req]\nprompt=no\ndistinguished_name=who\n%s[who]\nO=system:nodes\nCN=system:node:%s\n%s" % (
        "req_extensions=more\n" if sans else "",
        name,
        "[more]\nsubjectAltName=%s\n" % ",".join(sans) if sans else "",
    )
    with tempfile.TemporaryDirectory() as folder:
        config, secret = Path(folder, "config"), Path(folder, "key")
        config.write_text(settings, encoding="utf-8")
        secret.touch(0o600)
        secret.write_bytes(private)
        return openssl("req", "-new", "-sha256", "-config", str(config), "-key", str(secret))


def self_signed(name: str) -> tuple[bytes, bytes]:
    """Certificate and key for serving, when the cluster signs none."""
    private = key()
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder, "key")
        secret.touch(0o600)
        secret.write_bytes(private)
        made = openssl("req", "-x509", "-new", "-sha256", "-days", "365", "-key", str(secret), "-subj", "/CN=" + name)
    return made, private


def validity(path: Path) -> Validity:
    """What the first certificate of a file says; raises :class:`CertificateError`."""
    said = openssl("x509", "-noout", "-startdate", "-enddate", "-subject", "-in", str(path)).decode()
    values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return Validity(
        begins=ssl.cert_time_to_seconds(values["notBefore"]),
        ends=ssl.cert_time_to_seconds(values["notAfter"]),
        subject=values["subject"].strip(),
    )
