# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers: how they are described, what is made up when it is not said, and the records of an account.

Host keys for rescues, too: three new ones for each boot, made ahead, so that no request waits for them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ipaddress
import re
import secrets
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from lab.api.resources import Boot
from lab.machines.disks import DiskSpec

ResetType = Literal["sw", "hw", "power", "power_long", "man"]
RESET_TYPES: tuple[ResetType, ...] = ("sw", "hw", "power", "power_long", "man")

#: Cloud servers are numbered from 60,000,001 on; machines of both must not meet.
MAX_NUMBER = 59_999_999
_FIRST_NUMBER = 2_000_001
_MAX_DISKS = 15
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECTOR = 512
_MIN_DISK = 1 << 20
_WWNS = {"sata": re.compile(r"0x[0-9a-f]{16}"), "nvme": re.compile(r"eui\.[0-9a-f]{16}")}
_WWN_FORMS = {"sata": "0x and 16 lower case hexadecimal digits", "nvme": "eui. and 16 lower case hexadecimal digits"}
_MODELS = {"sata": "LAB SATA SSD", "nvme": "LAB NVMe SSD"}
_HDD_MODEL = "LAB SATA HDD"


class SpecError(ValueError):
    """A description that cannot be followed; names the machine, the field, its value and what is accepted."""


def size(value: Any) -> int:
    """Bytes of a size as people write it; ValueError when it is none."""
    match = _SIZE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None:
        raise ValueError(f"'{value}' is no size; write bytes, or a number with K, M, G or T (of 1024), such as 8G")
    found = int(match[1]) * _UNITS[match[2]]
    if found < _MIN_DISK or found % _SECTOR:
        raise ValueError(f"'{value}' is {found} bytes; a disk has at least 1M and whole sectors of {_SECTOR} bytes")
    return found


def _unique(values: list[ResetType]) -> list[ResetType]:
    if len(set(values)) != len(values):
        raise ValueError("names a type twice")
    return values


def _address(value: str) -> str:
    return str(ipaddress.IPv4Address(value))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DiskEntry(_Entry):
    """One disk of a description."""

    size: Annotated[int, BeforeValidator(size)]
    kind: Literal["sata", "nvme"]
    serial: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,20}$")
    wwn: str = ""
    model: str = Field(default="", pattern=r"^[A-Za-z0-9_. -]{0,40}$")
    rotational: bool = False

    @model_validator(mode="after")
    def _fits_its_kind(self) -> DiskEntry:
        if self.wwn and not _WWNS[self.kind].fullmatch(self.wwn):
            raise ValueError(f"wwn '{self.wwn}' is not {_WWN_FORMS[self.kind]}")
        if self.rotational and self.kind == "nvme":
            raise ValueError("rotational is true, but an nvme disk does not rotate")
        return self


def _two_nvme() -> list[DiskEntry]:
    return [DiskEntry(size=8 << 30, kind="nvme"), DiskEntry(size=8 << 30, kind="nvme")]


class DedicatedSpec(_Entry):
    """One dedicated server of a description."""

    number: int | None = Field(default=None, ge=1, le=MAX_NUMBER)
    name: str = Field(default="", max_length=255, pattern=r"^[^\x00-\x1f\x7f/]*$")
    product: str = Field(default="AX41-NVMe", min_length=1, max_length=60, pattern=r"^[A-Za-z0-9_. -]+$")
    dc: str = Field(default="FSN1-DC8", min_length=1)
    cores: int = Field(default=2, ge=1, le=64)
    memory_mib: int = Field(default=4096, ge=256)
    uefi: bool = False
    swaps_letters: bool = False
    disks: list[DiskEntry] = Field(default_factory=_two_nvme, min_length=1, max_length=_MAX_DISKS)
    reset: Annotated[list[ResetType], AfterValidator(_unique)] = Field(default_factory=lambda: list(RESET_TYPES))
    wol: bool = True
    rescue: bool = True
    operating_status: bool = True
    failover: list[Annotated[str, AfterValidator(_address)]] = Field(default_factory=list)
    powered: bool = True
    image: str | None = Field(default=None, min_length=1)

    def disk_specs(self, number: int) -> tuple[DiskSpec, ...]:
        """The disks of server ``number``, with serials, WWNs and models made up where there are none."""
        return tuple(_disk(entry, number, index) for index, entry in enumerate(self.disks))


def parse(entries: Any) -> list[DedicatedSpec]:
    """The descriptions in a list (or one mapping) as JSON and YAML give them; SpecError names what is wrong."""
    if isinstance(entries, dict):
        entries = [entries]
    if not isinstance(entries, list):
        raise SpecError("dedicated machines must be a list of mappings")
    specs = []
    for position, entry in enumerate(entries, 1):
        try:
            specs.append(DedicatedSpec.model_validate(entry))
        except ValidationError as error:
            name = entry.get("name") if isinstance(entry, dict) else None
            what = f"dedicated machine {position}" + (f" ('{name}')" if name else "")
            raise SpecError(f"{what}: {'; '.join(_problem(detail) for detail in error.errors())}") from error
    return specs


def numbered(specs: list[DedicatedSpec], taken: Collection[int]) -> list[tuple[int, DedicatedSpec]]:
    """Every description with its server number; SpecError when one is taken, or serials or WWNs meet."""
    wanted = [spec.number for spec in specs if spec.number is not None]
    for number in wanted:
        if number in taken or wanted.count(number) > 1:
            raise SpecError(f"server number {number} is taken; choose another one, or leave number out")
    used, result = {*taken, *wanted}, []
    for spec in specs:
        number = spec.number or next(free for free in range(_FIRST_NUMBER, MAX_NUMBER) if free not in used)
        used.add(number)
        _check_identities(number, spec)
        result.append((number, spec))
    return result


def _check_identities(number: int, spec: DedicatedSpec) -> None:
    disks = spec.disk_specs(number)
    for what in ("serial", "wwn"):
        values = [getattr(disk, what) for disk in disks]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise SpecError(f"dedicated machine {number}: two disks have the {what} '{twice[0]}'")


def _disk(entry: DiskEntry, number: int, index: int) -> DiskSpec:
    made_up = f"{(number << 4) + index:08x}"
    wwn = "eui.0025385b" + made_up if entry.kind == "nvme" else "0x5002538d" + made_up
    return DiskSpec(
        size_bytes=entry.size,
        kind=entry.kind,
        serial=entry.serial or f"S{number:08d}N{index}",
        wwn=entry.wwn or wwn,
        model=entry.model or (_HDD_MODEL if entry.rotational else _MODELS[entry.kind]),
        rotational=entry.rotational,
    )


def _problem(detail: ErrorDetails) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "entry"
    if detail["type"] == "extra_forbidden":
        known = DiskEntry.model_fields if "disks" in detail["loc"] else DedicatedSpec.model_fields
        return f"unknown key '{field}'; there are {', '.join(known)}"
    return f"{field} {detail['input']!r}: {detail['msg'].removeprefix('Value error, ')}"


#: The six kinds of boot configuration, in the order of the answer.
KINDS = ("rescue", "linux", "vnc", "windows", "plesk", "cpanel")
#: The rules of a firewall by chain.
Rules = dict[str, list[dict[str, str | None]]]


@dataclass
class Key:
    """A public SSH key of the account; ``created`` in Unix seconds."""

    name: str
    fingerprint: str
    type: str
    size: int
    data: str
    created: float


@dataclass(frozen=True)
class HostFingerprint:
    """What the API says of one host key of a rescue."""

    fingerprint: str
    type: str
    size: int


@dataclass
class Activation:
    """A boot configuration that was asked for, until a boot takes it, a client withdraws it, or it expires."""

    kind: str
    system: str  # the os of a rescue, the dist of an installation
    arch: int
    lang: str
    password: str
    keys: tuple[Key, ...]
    expires: float
    host_keys: tuple[HostKey, ...] = ()
    withdrawn: bool = False
    booted: float | None = None
    shown: tuple[HostFingerprint, ...] = ()

    def active(self, now: float) -> bool:
        """Whether the next boot would take it."""
        return self.booted is None and not self.withdrawn and now < self.expires


@dataclass(frozen=True)
class Reset:
    """One reset that was asked for and accepted; ``at`` in Unix seconds."""

    at: float
    type: str


@dataclass
class TrafficWarnings:
    """When Robot writes a mail about the traffic of an address (GB an hour and a day, TB a month)."""

    on: bool = False
    hourly: int = 200
    daily: int = 2000
    monthly: int = 20


@dataclass
class Firewall:
    """The firewall of a server, metadata only; a change is in process until ``busy_until``."""

    status: str = "disabled"
    filter_ipv6: bool = False
    whitelist_hos: bool = True
    rules: Rules = field(default_factory=lambda: {"input": [], "output": []})
    busy_until: float = 0.0


@dataclass
class Template:
    """A set of rules for firewalls."""

    id: int
    name: str
    filter_ipv6: bool
    whitelist_hos: bool
    is_default: bool
    rules: Rules


@dataclass
class VSwitch:
    """A virtual switch; its members by server number, each in process until a moment."""

    id: int
    name: str
    vlan: int
    cancelled: bool = False
    members: dict[int, float] = field(default_factory=dict)

    def busy(self, now: float) -> bool:
        """Whether a change is in process."""
        return any(now < until for until in self.members.values())


@dataclass
class Dedicated:
    """A dedicated server as Robot knows it; `DedicatedPower` handles its machine."""

    number: int
    name: str
    index: int
    spec: DedicatedSpec
    ipv4: str
    ipv6_net: str
    mac: str
    last: dict[str, Activation] = field(default_factory=dict)
    boots: list[Boot] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    manual_reset: bool = False
    pointers: dict[str, str] = field(default_factory=dict)  #: reverse DNS by address
    traffic: dict[str, TrafficWarnings] = field(default_factory=dict)  #: by address and by network
    routed: dict[str, int | None] = field(default_factory=dict)  #: its failover addresses: to which server
    firewall: Firewall = field(default_factory=Firewall)

    def activation(self, now: float) -> Activation | None:
        """The boot configuration that the next boot would take; there is never more than one."""
        return next((last for last in self.last.values() if last.active(now)), None)

    def offers(self, kind: str) -> bool:
        """Whether this server has this kind of boot configuration."""
        return {"rescue": self.spec.rescue, "linux": True, "vnc": True}.get(kind, False)


_RSA_BITS = 3072
_MOST_SETS = 64


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
        return _fingerprint(digest)


def make_host_keys() -> tuple[HostKey, ...]:
    """Three new host keys; takes a fifth of a second of one core."""
    return (*_elliptic_keys(), _host_key(rsa.generate_private_key(65537, _RSA_BITS), "RSA", _RSA_BITS))


def make_public_host_keys() -> tuple[HostKey, ...]:
    """Three new host keys that no SSH server can use: to look for RSA's primes takes nearly all of the time."""
    modulus = secrets.randbits(_RSA_BITS) | 1 << (_RSA_BITS - 1) | 1
    public = _public_line(rsa.RSAPublicNumbers(65537, modulus).public_key())
    return (*(replace(key, private="") for key in _elliptic_keys()), HostKey("", public, "RSA", _RSA_BITS))


def other_fingerprint() -> str:
    """A fingerprint that belongs to no key."""
    return _fingerprint(secrets.token_bytes(32))


class HostKeyStock:
    """Sets of host keys kept ready, made one after the other in a thread by ``make``."""

    def __init__(self, make: Callable[[], tuple[HostKey, ...]] = make_host_keys) -> None:
        self._make = make
        self._ready = 0
        self._sets: deque[tuple[HostKey, ...]] = deque()
        self._filling: asyncio.Task[None] | None = None

    def fill(self, ready: int) -> None:
        """Begin to make sets until ``ready`` of them are there (at most 64)."""
        self._ready = min(ready, _MOST_SETS)
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


def _elliptic_keys() -> tuple[HostKey, HostKey]:
    return (
        _host_key(ec.generate_private_key(ec.SECP256R1()), "ECDSA", 256),
        _host_key(ed25519.Ed25519PrivateKey.generate(), "ED25519", 256),
    )


def _host_key(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey, kind: str, size: int
) -> HostKey:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return HostKey(private, _public_line(key.public_key()), kind, size)


def _public_line(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey) -> str:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _fingerprint(digest: bytes) -> str:
    return base64.b64encode(digest).decode().rstrip("=")
