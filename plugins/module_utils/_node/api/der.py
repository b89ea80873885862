# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Very little of DER: what the public-key pin, the life and the owner of a certificate need (pure).

Only what the stdlib of Python 3.8 does not give is read; signatures are left to ssl and to the API server.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import re
from typing import Any, Tuple

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)-----END \1-----")
_SEQUENCE, _SET, _OID, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x31, 0x06, 0x17, 0x18
_VERSION = 0xA0
_COMMON_NAME, _ORGANIZATION = b"\x55\x04\x03", b"\x55\x04\x0a"


#: tag, content, whole
Element = Tuple[int, bytes, bytes]


class BadCertificate(ValueError):
    """The text or the bytes are no certificate (or signing request) that can be read."""


def pem_blocks(text: str, label: str) -> list[bytes]:
    """The DER bytes of every PEM block of this label, in their order; a broken one raises :class:`BadCertificate`."""
    blocks = []
    for found in _PEM.finditer(text):
        if found.group(1) != label:
            continue
        try:
            blocks.append(base64.b64decode("".join(found.group(2).split()), validate=True))
        except (binascii.Error, ValueError) as error:
            raise BadCertificate("a PEM block of %s is not base64: %s" % (label, error)) from error
    return blocks


def certificates(text: str) -> list[bytes]:
    """The DER bytes of every certificate in PEM; none raises :class:`BadCertificate`."""
    blocks = pem_blocks(text, "CERTIFICATE")
    if not blocks:
        raise BadCertificate("there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    for block in blocks:
        public_key_pin(block)
    return blocks


def pem(certificate: bytes) -> str:
    """A DER certificate in PEM."""
    text = base64.b64encode(certificate).decode("ascii")
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n" % "\n".join(lines)


def public_key_pin(certificate: bytes) -> str:
    """``sha256:HEX`` of the SubjectPublicKeyInfo of a DER certificate, as kubeadm prints it."""
    return "sha256:" + hashlib.sha256(_fields(certificate)[5][2]).hexdigest()


def validity(certificate: bytes) -> tuple[float, float]:
    """(not before, not after) of a DER certificate in seconds since the epoch."""
    start, end = _children(_fields(certificate)[3][1])[:2]
    return _time(start), _time(end)


def subject(certificate: bytes) -> dict[str, Any]:
    """{"CN": name, "O": [organizations]} of a DER certificate."""
    return _name(_fields(certificate)[4][1])


def request_subject(request: bytes) -> dict[str, Any]:
    """The same of a DER certificate signing request (PKCS #10)."""
    try:
        info = _children(_children(request)[0][1])[0]
        parts = _children(info[1])
        return _name(parts[1][1])
    except IndexError as error:
        raise BadCertificate("the signing request ends early") from error


def _fields(certificate: bytes) -> list[Element]:
    """(tag, content, whole) of serial, algorithm, issuer, validity, subject and key, after a version or None."""
    try:
        outer = _children(certificate)[0]
        if outer[0] != _SEQUENCE:
            raise BadCertificate("a certificate begins with a SEQUENCE")
        fields = _children(_children(outer[1])[0][1])
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        if len(fields) < 6:
            raise BadCertificate("the certificate ends early")
        return fields
    except IndexError as error:
        raise BadCertificate("the certificate ends early") from error


def _children(data: bytes) -> list[Element]:
    """[(tag, content, whole)] of the elements that follow each other in ``data``."""
    elements, start = [], 0
    while start < len(data):
        tag, position = data[start], start + 1
        if tag & 0x1F == 0x1F or position >= len(data):
            raise BadCertificate("an element of a kind that certificates do not have")
        length = data[position]
        position += 1
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or position + count > len(data):
                raise BadCertificate("an element of unreadable length")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise BadCertificate("an element that is longer than the rest")
        elements.append((tag, data[position:end], data[start:end]))
        start = end
    return elements


def _name(content: bytes) -> dict[str, Any]:
    common_name = ""
    organizations: list[str] = []
    for dummy, names, _dummy_whole in _children(content):
        for _dummy_tag, pair, _dummy_pair in _children(names):
            parts = _children(pair)
            if len(parts) != 2 or parts[0][0] != _OID:
                raise BadCertificate("a name without type or value")
            text = parts[1][1].decode("utf-8", "replace")
            if parts[0][1] == _COMMON_NAME:
                common_name = text
            elif parts[0][1] == _ORGANIZATION:
                organizations.append(text)
    return {"CN": common_name, "O": organizations}


def _time(element: Element) -> float:
    tag, content = element[0], element[1].decode("ascii", "replace")
    digits = re.match(r"([0-9]{2}|[0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})Z\Z", content)
    if not digits or (tag, len(digits.group(1))) not in ((_UTC_TIME, 2), (_GENERALIZED_TIME, 4)):
        raise BadCertificate("a time that cannot be read: %r" % content)
    year, month, day, hour, minute, second = (int(part) for part in digits.groups())
    if tag == _UTC_TIME:
        year += 1900 if year >= 50 else 2000
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone.utc).timestamp()
    except ValueError as error:
        raise BadCertificate("a time that is none: %r" % content) from error
