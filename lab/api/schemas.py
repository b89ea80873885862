# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request bodies: every field with its type and rule; unknown fields are refused."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from lab.api.errors import ApiError, invalid_input
from lab.api.selectors import label_problems

_HOSTNAME_RE = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
MAX_USER_DATA = 32 * 1024


def _hostname(value: str) -> str:
    if not _HOSTNAME_RE.fullmatch(value):
        raise ValueError(f"'{value}' is not a valid hostname (RFC 1123: letters, digits, '-' and '.')")
    return value


def _labels(value: dict[str, str]) -> dict[str, str]:
    problems = label_problems(value)
    if problems:
        raise ValueError("; ".join(problems))
    return value


def _user_data(value: str) -> str:
    size = len(value.encode())
    if size > MAX_USER_DATA:
        raise ValueError(f"is {size} bytes long; at most {MAX_USER_DATA} bytes (32 KiB) are allowed")
    return value


Hostname = Annotated[str, AfterValidator(_hostname)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]
UserData = Annotated[str, AfterValidator(_user_data)]
Name = Annotated[str, Field(min_length=1, max_length=255)]
IdOrName = int | str


class Body(BaseModel):
    """A JSON object; types are taken as they are, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Empty(Body):
    """A request without fields."""


class PublicNetCreate(Body):
    enable_ipv4: bool = True
    enable_ipv6: bool = True
    ipv4: int | None = None
    ipv6: int | None = None


class FirewallReference(Body):
    firewall: int


class ServerCreate(Body):
    name: Hostname
    server_type: IdOrName
    image: IdOrName
    location: IdOrName | None = None
    datacenter: IdOrName | None = None
    ssh_keys: list[IdOrName] | None = None
    user_data: UserData | None = None
    labels: Labels | None = None
    networks: list[int] | None = None
    firewalls: list[FirewallReference] | None = None
    volumes: list[int] | None = None
    automount: bool | None = None
    placement_group: int | None = None
    public_net: PublicNetCreate | None = None
    start_after_create: bool | None = None


class ServerUpdate(Body):
    name: Hostname | None = None
    labels: Labels | None = None


class EnableRescue(Body):
    type: Literal["linux64"] | None = None
    ssh_keys: list[int] | None = None


class CreateImage(Body):
    type: Literal["snapshot", "backup"] | None = None
    description: str | None = None
    labels: Labels | None = None


class Rebuild(Body):
    image: IdOrName
    user_data: UserData | None = None


class ChangeType(Body):
    server_type: IdOrName
    upgrade_disk: bool


class ChangeServerProtection(Body):
    delete: bool | None = None
    rebuild: bool | None = None


class ChangeDeleteProtection(Body):
    delete: bool | None = None


class AttachIso(Body):
    iso: IdOrName


class AttachToNetwork(Body):
    network: int
    ip: str | None = None
    alias_ips: list[str] | None = None
    ip_range: str | None = None


class DetachFromNetwork(Body):
    network: int


class AddToPlacementGroup(Body):
    placement_group: int


class SshKeyCreate(Body):
    name: Name
    public_key: str
    labels: Labels | None = None


class NamedUpdate(Body):
    name: Name | None = None
    labels: Labels | None = None


class ImageUpdate(Body):
    description: str | None = None
    type: Literal["snapshot"] | None = None
    labels: Labels | None = None


class PlacementGroupCreate(Body):
    name: Name
    type: Literal["spread"]
    labels: Labels | None = None


class NetworkCreate(Body):
    name: Name
    ip_range: str
    labels: Labels | None = None
    subnets: list[dict[str, Any]] | None = None
    routes: list[dict[str, Any]] | None = None
    expose_routes_to_vswitch: bool | None = None


class FirewallCreate(Body):
    name: Name
    labels: Labels | None = None
    rules: list[dict[str, Any]] | None = None
    apply_to: list[dict[str, Any]] | None = None


BodyType = TypeVar("BodyType", bound=Body)


def parse(model: type[BodyType], body: dict[str, Any]) -> BodyType:
    """Check a request body; what is wrong is said field by field, as the API does."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise refusal(error) from error


def refusal(error: ValidationError) -> ApiError:
    """The API's wording of a pydantic error."""
    details = error.errors(include_url=False)
    unknown = [_field(detail) for detail in details if detail["type"] == "extra_forbidden"]
    fields: dict[str, list[str]] = {}
    for detail in details:
        messages = fields.setdefault(_field(detail), [])
        text = _message(detail)
        if text not in messages:
            messages.append(text)
    return invalid_input(fields, f"unknown field name '{unknown[0]}'" if unknown else None)


def _field(detail: ErrorDetails) -> str:
    # The branches of a union ("int", "str") are pydantic's, not the user's: only field names and indexes remain.
    parts = [part for part in detail["loc"] if isinstance(part, int) or part not in ("int", "str")]
    return ".".join(str(part) for part in parts) or "body"


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "Missing data for required field."
    if detail["type"] == "extra_forbidden":
        return "Unknown field."
    return detail["msg"].removeprefix("Value error, ")
