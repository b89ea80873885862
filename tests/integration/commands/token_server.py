# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that gives out the tokens that a registry accepts, for a login."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from tests.web_servers import Handler, Server

SERVICE, ISSUER = "test registry", "test tokens"


def encoded(data: bytes) -> str:
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Request(Handler):
    """Answers to the one login there is."""

    tokens: TokenServer

    def do_GET(self):
        """Hand a token out."""
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.tokens.seen.append((query, self.headers.get("Authorization", "")))
        allowed = self.headers.get("Authorization") == self.tokens.login
        body = json.dumps({"token": self.tokens.token(query)} if allowed else {}).encode()
        self.reply(200 if allowed else 401, body)


class TokenServer:
    """A running token server; `stale` tokens are over before they are handed out."""

    def __init__(self, home: Path, login: str):
        self.login = "Basic " + base64.b64encode(login.encode()).decode()
        self.seen: list[tuple[dict, str]] = []
        self.stale = 0
        self.key = ec.generate_private_key(ec.SECP256R1())
        name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")]), datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self.key.public_key())
        made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = made.sign(self.key, hashes.SHA256())
        bundle = home / "tokens.pem"
        bundle.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        server = Server(type("Bound", (Request,), {"tokens": self}))
        self.close, realm = server.close, f"{server.url}/token"
        self.auth = {
            "token": {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(bundle)}
        }  # fmt: skip

    def token(self, query: dict) -> str:
        """A signed token for the scope that was asked for, and for pushing."""
        stale, self.stale = self.stale > 0, max(0, self.stale - 1)
        now = int(time.time()) - (3600 if stale else 0)
        kind, name, _actions = query.get("scope", "repository:node/image:pull").split(":")
        access = [{"type": kind, "name": name, "actions": ["pull", "push"]}]
        der = base64.b64encode(self.certificate.public_bytes(serialization.Encoding.DER)).decode()
        claims = {
            "iss": ISSUER, "sub": "robot", "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now, "jti": "1",
            "access": access,
        }  # fmt: skip
        parts = [json.dumps(one).encode() for one in ({"typ": "JWT", "alg": "ES256", "x5c": [der]}, claims)]
        text = ".".join(map(encoded, parts))
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
