# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A small client of the Kubernetes API: one host, its CA, a token or a client certificate; and token discovery.

Everything that can go wrong before an answer is an :class:`ApiError` with one of the failure codes. Discovery is what
kube-public/cluster-info says, and who signed it (pure):
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#configmap-signing
Of DER very little is read: what the public-key pin, the life and the owner of a certificate need, and the stdlib of
Python 3.8 does not give. Signatures are left to ssl and to the API server.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Tuple
from urllib.parse import quote, urlsplit

from .._common.text import base64_bytes, json_value

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
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
        except ValueError as error:
            raise BadCertificate(f"a PEM block of {label} is not base64: {error}") from error
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
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


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
        raise BadCertificate(f"a time that cannot be read: {content!r}")
    year, month, day, hour, minute, second = (int(part) for part in digits.groups())
    if tag == _UTC_TIME:
        year += 1900 if year >= 50 else 2000
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone.utc).timestamp()
    except ValueError as error:
        raise BadCertificate(f"a time that is none: {content!r}") from error


#: The most bytes that are read of an answer.
LONGEST_ANSWER = 8 * 1024 * 1024
# numbers of X509_V_ERR_*: https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/
_NOT_YET_VALID, _HAS_EXPIRED = 9, 10
_WRONG_NAME = (62, 64)


class ApiError(Exception):
    """No answer was had; ``code`` is the failure code, the text says what happened."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Answer(NamedTuple):
    """Status, JSON body (None when it is none), seconds by which the server's clock is ahead (None: no date)."""

    status: int
    body: Any
    skew: float | None = None

    @property
    def message(self) -> str:
        """What the API says of a refusal."""
        return str(self.body.get("message") or "") if isinstance(self.body, dict) else ""


def split_server(server: str) -> tuple[str, int]:
    """(host, port) of ``https://host[:port]``; anything else raises ValueError."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, 443 if parts.port is None else parts.port
    except ValueError as error:
        raise ValueError(f"{server!r} has no address, or no port between 1 and 65535") from error
    if not port:
        raise ValueError(f"{server!r} has no port between 1 and 65535")
    extra = parts.path.rstrip("/") or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme != "https" or not host or extra:
        raise ValueError(f"{server!r} is no address of an API server; write https://HOST:6443")
    return host, port


def node_path(name: str) -> str:
    """Where a Node is asked for."""
    return "/api/v1/nodes/" + quote(name, safe="")


def options() -> dict[str, Any]:
    """The argument spec of the documentation fragment ``kubernetes.joining``."""
    return {name: {"type": "str", "required": True} for name in ("api_server", "node_name")}


def check_address(module: Any) -> None:
    """End a module whose option ``api_server`` is no address of one."""
    try:
        split_server(module.params["api_server"])
    except ValueError as error:
        module.fail_json(msg=f"api_server: {error}")


#: Annotation of a Node: who has cordoned it, of those who use this collection.
CORDONED = "kubenode.provision/cordoned-by"


def cordoned_by(node: Mapping[str, Any]) -> str:
    """The manager of ours that has cordoned the Node, in this call or in an earlier one; empty without such a cordon.

    The annotation says so. A person who uncordons the Node leaves it there, so where the API server notes who has set
    the field, that counts as well.
    """
    metadata = node.get("metadata") or {}
    manager = str((metadata.get("annotations") or {}).get(CORDONED) or "")
    if not (node.get("spec") or {}).get("unschedulable"):
        return ""
    holders = [
        entry.get("manager")
        for entry in metadata.get("managedFields") or []
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return manager if not holders or manager in holders else ""


def ready_condition(node: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a Node says of being Ready; empty while it says nothing."""
    conditions: list[dict[str, Any]] = ((node or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == "Ready"), {})


def old_kubelet(node: Mapping[str, Any], wanted: str) -> str:
    """That a Node is not of a kubelet of this version yet; empty when it is, or when none is wanted."""
    reported = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")
    if not wanted or reported.lstrip("v") == wanted.lstrip("v"):
        return ""
    return f"its kubelet still reports the version {reported or '(none)'}"


class Api:
    """Requests to one API server.

    ``ca_pem`` None means that the server's certificate is not checked (only for what proves itself otherwise).
    ``client_pem`` is the path of a file with certificate and key. ``timeout`` in seconds is for one request.
    """

    def __init__(
        self,
        server: str,
        ca_pem: str | None,
        token: str | None = None,
        client_pem: str | None = None,
        timeout: float = 10,
    ) -> None:
        self.host, self.port = split_server(server)
        self.server = server
        self.timeout = timeout
        self._token = token
        self._context = self._make_context(ca_pem, client_pem)

    def get(self, path: str) -> Answer:
        return self._request("GET", path, None)

    def post(self, path: str, body: Any) -> Answer:
        return self._request("POST", path, json.dumps(body).encode("utf-8"))

    @staticmethod
    def _make_context(ca_pem: str | None, client_pem: str | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if ca_pem is None:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            else:
                context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise ApiError("ca_mismatch", f"the CA cannot be read: {error}") from error
        if client_pem is not None:
            try:
                context.load_cert_chain(client_pem)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                text = f"the client certificate {client_pem} cannot be used: {error}"
                raise ApiError("token_refused", text) from error
        return context

    def _request(self, method: str, path: str, body: bytes | None) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": "kubenode.provision", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout, context=self._context)
        sent = time.time()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read(LONGEST_ANSWER + 1)
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from error
        except socket.gaierror as error:
            raise ApiError("api_unreachable", f"the name {self.host} cannot be resolved: {error}") from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            # UnicodeError: of a host name that is none
            text = str(error) or type(error).__name__
            raise ApiError("api_unreachable", f"{self.server} does not answer: {text}") from error
        finally:
            connection.close()
        if len(data) > LONGEST_ANSWER:
            raise ApiError("api_unreachable", f"{self.server} answers with more than {LONGEST_ANSWER} bytes")
        return Answer(response.status, _json_answer(data), _skew(response.getheader("Date"), sent, time.time()))

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> ApiError:
        if error.verify_code in (_NOT_YET_VALID, _HAS_EXPIRED):
            skew = self._unproven_skew()
            when = "not valid yet" if error.verify_code == _NOT_YET_VALID else "expired"
            if skew is not None and abs(skew) > 60:
                return ApiError(
                    "clock_skew",
                    f"by the clock of this machine the certificate of {self.server} is {when}; "
                    f"the clocks are {int(abs(skew))} s apart",
                )
            return ApiError("ca_mismatch", f"the certificate of {self.server} is {when}")
        if error.verify_code in _WRONG_NAME:
            return ApiError(
                "ca_mismatch",
                f"the certificate of {self.server} is not for the host {self.host}; "
                "use a name or address that it holds",
            )
        return ApiError(
            "ca_mismatch",
            f"the certificate of {self.server} was not signed by the CA given ({error.verify_message}); "
            "give the CA of this cluster",
        )

    def _unproven_skew(self) -> float | None:
        """The server's clock against ours by a server that is not proven: for the text of an error, nothing else."""
        try:
            return Api(self.server, None, timeout=self.timeout).get("/version").skew
        except ApiError:
            return None


def _skew(date: str | None, sent: float, received: float) -> float | None:
    """Seconds the server's clock is ahead; its date has no fractions, so up to a second is nothing."""
    if not date:
        return None
    try:
        there = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):  # older Pythons raise any of them
        return None
    if there + 1 < sent:
        return there + 1 - sent
    return max(0.0, there - received)


def _json_answer(data: bytes) -> Any:
    try:
        return json_value(data.decode("utf-8"))
    except ValueError:
        return None


TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})\Z")
_PIN = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CA_LINE = re.compile(
    r"^[ \t]*(?:-[ \t]*)?certificate-authority-data:\s*[\"']?([A-Za-z0-9+/=]+)[\"']?\s*$", re.MULTILINE
)


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
            f"{pin!r} is no pin of a CA; write sha256: and the 64 hexadecimal digits that "
            "'kubeadm token create --print-join-command' shows"
        )
    return pin.lower()


def matching_certificates(ca_pem: str, pins: Iterable[str]) -> str:
    """The PEM of those CA certificates whose public key is pinned; none raises :class:`DiscoveryError`."""
    found = certificates(ca_pem)
    kept = [block for block in found if public_key_pin(block) in pins]
    if not kept:
        keys, pinned = ", ".join(map(public_key_pin, found)), ", ".join(sorted(pins))
        raise DiscoveryError("pin_mismatch", f"the CA has the public key {keys}, pinned is {pinned}")
    return "".join(map(pem, kept))


def check_signature(data: Mapping[str, Any], kubeconfig: str, token: str) -> None:
    """Check the detached JWS (HS256) that the cluster's signer made of ``kubeconfig`` with this token."""
    name, secret = split_token(token)
    signature = data.get("jws-kubeconfig-" + name)
    if not signature or not isinstance(signature, str):
        raise DiscoveryError(
            "discovery_signature",
            f"cluster-info holds no signature of the token {name}; the token is unknown or expired, "
            "its use for signing is not allowed, or the cluster runs no bootstrapsigner",
        )
    parts = signature.split(".")
    if len(parts) != 3 or parts[1]:
        raise DiscoveryError("discovery_signature", "the signature of cluster-info is no detached JWS")
    header = _json_object(_unpadded(parts[0]))
    if header.get("alg") != "HS256" or header.get("kid") != name:
        raise DiscoveryError(
            "discovery_signature", f"cluster-info is signed by {header.get('alg', '?')} for {header.get('kid', '?')}"
        )
    payload = base64.urlsafe_b64encode(kubeconfig.encode("utf-8")).rstrip(b"=").decode("ascii")
    wanted = hmac.new(secret.encode("ascii"), f"{parts[0]}.{payload}".encode("ascii"), hashlib.sha256).digest()
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
        raise DiscoveryError("discovery_signature", f"the kubeconfig of cluster-info names {len(found)} CAs, not 1")
    try:
        ca_pem = (base64_bytes(found[0]) or b"").decode("ascii")
        return matching_certificates(ca_pem, pins) if pins else "".join(map(pem, certificates(ca_pem)))
    except (UnicodeDecodeError, BadCertificate) as error:
        raise DiscoveryError("discovery_signature", f"the CA of cluster-info cannot be read: {error}") from error


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


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json_value(data.decode("utf-8"))
    except ValueError as error:
        raise DiscoveryError("discovery_signature", "the head of the signature is not JSON") from error
    if not isinstance(value, dict):
        raise DiscoveryError("discovery_signature", "the head of the signature is no object")
    return value
