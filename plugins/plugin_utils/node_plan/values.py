# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a value handed to the provisioner must look like; every function returns it normalised or raises ValueError.

The messages go behind the name of the option or key that held the value. Values of secrets are not repeated in them.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import machine_error
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import is_http_url
from ansible_collections.kubenode.provision.plugins.module_utils._node.api import der

_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_VERSION = re.compile(r"v?((?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*))")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
#: visible ASCII that needs no quoting in a shell's single quotes or in curl's configuration
_URL = re.compile(r"[!#-&(-\[\]-_a-z{|}~]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_KEY_TYPE = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+")


def token(value: str) -> str:
    """A bootstrap token, six characters, a dot, sixteen characters (k8s.io, bootstrap tokens)."""
    value = value.strip()
    if not _TOKEN.fullmatch(value):
        raise ValueError("is no bootstrap token; it looks like abcdef.0123456789abcdef, in lower case")
    return value


def version(value: str) -> str:
    """A Kubernetes version without the v in front."""
    found = _VERSION.fullmatch(value)
    if not found:
        raise ValueError(f"is {value!r}; give a full version such as 1.36.4")
    return found.group(1)


def cloud_provider(value: str) -> str:
    """Nothing or `external`: providers inside the kubelet went with Kubernetes 1.31."""
    if value not in ("", "external"):
        raise ValueError(f"is {value!r}; the kubelet only knows external, or leave it empty")
    return value


def api_server(value: str) -> str:
    """The API server's URL: https, a host, a port, nothing else; 443 is written out."""
    try:
        parts = urlsplit(value)
        port = 443 if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"is {value!r}; give it as https://host:6443")
    host = parts.hostname or ""
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme != "https" or not _HOST.fullmatch(host) or extra:
        raise ValueError(f"is {value!r}; give it as https://host:6443, without path and user")
    return "https://%s:%d" % (f"[{host}]" if ":" in host else host, port)


def certificates(value: str) -> str:
    """PEM with one certificate or more; text around them is dropped."""
    try:
        found = der.pem_blocks(value, "CERTIFICATE")
    except der.BadCertificate:
        found = [b""]
    if not found:
        raise ValueError("holds no certificate; it must be PEM (-----BEGIN CERTIFICATE-----)")
    for block in found:
        # every certificate is a DER sequence with a length of two bytes
        if block[:2] != b"\x30\x82" or len(block) != 4 + int.from_bytes(block[2:4], "big"):
            raise ValueError("holds a certificate that is damaged; copy the PEM file as a whole")
    return "".join(map(der.pem, found))


def hostname(value: str) -> str:
    """A hostname that can be a node's name."""
    error = machine_error(value)
    if error is not None:
        raise ValueError(f"is {value!r}: {error}")
    return value


def ssh_key(value: str) -> str:
    """One line of authorized_keys; options in front of the key are allowed."""
    value = value.strip()
    if not value or not value.isprintable():
        raise ValueError("has a key that is empty or not one line of text")
    if not any(_KEY_TYPE.fullmatch(word) for word in value.split()):
        raise ValueError(f"has {value[:60]!r}, which is no public SSH key (ssh-ed25519 AAAA… name)")
    return value


def source(value: str) -> tuple[str, str]:
    """URL and SHA-256 (lower case) out of URL#sha256=DIGEST."""
    url, _separator, fragment = value.partition("#")
    name, _separator, digest = fragment.partition("=")
    if name != "sha256" or not _SHA256.fullmatch(digest):
        raise ValueError("has no digest; give it as URL#sha256=64 hexadecimal digits (sha256sum FILE)")
    if not _is_url(url) or not _URL.fullmatch(url):
        raise ValueError("must be an http or https URL whose special characters are percent-encoded")
    return url, digest.lower()


def _is_url(text: object) -> bool:
    """Whether it is an http or https URL as shell scripts take it, with its scheme in lower case."""
    return isinstance(text, str) and text.startswith(("http://", "https://")) and is_http_url(text)


def proxy(value: str) -> str:
    """A proxy's URL, or nothing."""
    if value and (not _is_url(value) or re.search(r"[\s'\"\\\x00-\x1f\x7f]", value)):
        raise ValueError("must be an http or https URL, or empty")
    return value
