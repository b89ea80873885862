# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH host keys for rescues: three new ones for each boot, made ahead, so that no request waits for them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

_RSA_BITS = 3072
_MOST = 64


@dataclass(frozen=True)
class HostKey:
    """A host key: the private half as OpenSSH keeps it in a file, the public half as one line."""

    #: empty where no machine has a use for it
    private: str
    public: str
    type: str
    size: int

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key in base64, without padding and without a prefix."""
        digest = hashlib.sha256(base64.b64decode(self.public.split()[1])).digest()
        return _unpadded(digest)


def make() -> tuple[HostKey, ...]:
    """Three new host keys; takes a fifth of a second of one core."""
    return (*_elliptic(), _host_key(rsa.generate_private_key(65537, _RSA_BITS), "RSA", _RSA_BITS))


def make_public() -> tuple[HostKey, ...]:
    """Three new host keys that no SSH server can use: to look for RSA's primes takes nearly all of the time."""
    modulus = secrets.randbits(_RSA_BITS) | 1 << (_RSA_BITS - 1) | 1
    public = _line(rsa.RSAPublicNumbers(65537, modulus).public_key())
    return (*(replace(key, private="") for key in _elliptic()), HostKey("", public, "RSA", _RSA_BITS))


def other_fingerprint() -> str:
    """A fingerprint that belongs to no key."""
    return _unpadded(secrets.token_bytes(32))


class Stock:
    """Sets of host keys kept ready, made one after the other in a thread by ``make``."""

    def __init__(self, make: Callable[[], tuple[HostKey, ...]] = make) -> None:
        self._make = make
        self._ready = 0
        self._sets: deque[tuple[HostKey, ...]] = deque()
        self._filling: asyncio.Task[None] | None = None

    def fill(self, ready: int) -> None:
        """Begin to make sets until ``ready`` of them are there (at most 64)."""
        self._ready = min(ready, _MOST)
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def take(self) -> tuple[HostKey, ...]:
        """A set of its own for each caller; begins to make the next one when none is left."""
        taken = self._sets.popleft() if self._sets else await asyncio.to_thread(self._make)
        if not self._sets:
            self.fill(1)
        return taken

    async def close(self) -> None:
        if self._filling is not None:
            self._filling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._filling

    async def _fill(self) -> None:
        while len(self._sets) < self._ready:
            self._sets.append(await asyncio.to_thread(self._make))


def _elliptic() -> tuple[HostKey, HostKey]:
    return (
        _host_key(ec.generate_private_key(ec.SECP256R1()), "ECDSA", 256),
        _host_key(ed25519.Ed25519PrivateKey.generate(), "ED25519", 256),
    )


def _host_key(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, kind: str, size: int
) -> HostKey:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return HostKey(private, _line(key.public_key()), kind, size)


def _line(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _unpadded(digest: bytes) -> str:
    return base64.b64encode(digest).decode().rstrip("=")
