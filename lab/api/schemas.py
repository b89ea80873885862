# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients send, and how it is refused.

Numbers, labels and their selectors; the API's errors; request bodies: every field with its type and rule, unknown
fields are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

#: what the real API's numbers may be
LARGEST = (1 << 63) - 1
_DIGITS = re.compile(r"[0-9]{1,19}")


def whole_number(text: str, limit: int = LARGEST) -> int | None:
    """The number in a text of at most 19 ASCII digits; nothing for all else, and above the limit."""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if number <= limit else None


class ApiError(Exception):
    """A refusal as the API words it: HTTP status, error code, message and details."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


def not_found(kind: str, identifier: object) -> ApiError:
    """404 for an object that does not exist (or belongs to another project)."""
    return ApiError(404, "not_found", f"{kind} with ID '{identifier}' not found")


def invalid_input(fields: dict[str, list[str]], message: str | None = None) -> ApiError:
    """422 naming every wrong field and what is wrong with it."""
    if message is None:
        message = "invalid input in field " + ", ".join(f"'{name}'" for name in fields)
    details = {"fields": [{"name": name, "messages": messages} for name, messages in fields.items()]}
    return ApiError(422, "invalid_input", message, details)


def not_unique(field: str, message: str) -> ApiError:
    """409 for a name or key that the project already has."""
    return ApiError(409, "uniqueness_error", message, {"fields": [{"name": field}]})


def locked(kind: str) -> ApiError:
    """423 while an action runs on the object."""
    return ApiError(423, "locked", f"cannot perform operation because {kind} is locked")


def protected(what: str) -> ApiError:
    """423 for an object whose protection forbids the operation."""
    return ApiError(423, "protected", f"{what} is protected")


def limit_exceeded(limit: str, message: str) -> ApiError:
    """403 when the project may not have more of something."""
    return ApiError(403, "resource_limit_exceeded", message, {"limits": [{"name": limit}]})


def unavailable(message: str) -> ApiError:
    """412 when the provider is out of stock."""
    return ApiError(412, "resource_unavailable", message)


def no_room(code: str) -> ApiError:
    """412 when no host takes the server: out of stock, or none that its placement group allows."""
    return ApiError(412, code, "error during placement")


def unsupported(message: str) -> ApiError:
    """422 for an operation that the object, or the lab, cannot do."""
    return ApiError(422, "unsupported_error", message)


LabelMap = Mapping[str, str]
Predicate = Callable[[LabelMap], bool]

_LABEL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_KEY = rf"(?:(?P<prefix>{_DNS_LABEL}(?:\.{_DNS_LABEL})*)/)?(?P<name>{_LABEL_NAME})"
_KEY_RE = re.compile(_KEY)
_VALUE_RE = re.compile(rf"(?:{_LABEL_NAME})?")
_RESERVED_PREFIX = "hetzner.cloud"
_MAX_PREFIX = 253

_SET_RE = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY_RE = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*)")
_EXISTS_RE = re.compile(r"(?P<negated>!)?\s*(?P<key>[^=!\s]+)")


def key_problem(key: str) -> str | None:
    """Why ``key`` is no label key, or None when it is one."""
    match = _KEY_RE.fullmatch(key)
    if match is None:
        return f"label key '{key}' is not [prefix/]name with a name of 1 to 63 characters from A-Z a-z 0-9 - _ ."
    prefix = match["prefix"]
    if prefix is not None and len(prefix) > _MAX_PREFIX:
        return f"label key '{key}' has a prefix of more than {_MAX_PREFIX} characters"
    if prefix == _RESERVED_PREFIX:
        return f"label key '{key}' uses the reserved prefix {_RESERVED_PREFIX}/"
    return None


def value_problem(value: str) -> str | None:
    """Why ``value`` is no label value, or None when it is one."""
    if _VALUE_RE.fullmatch(value):
        return None
    return f"label value '{value}' is not empty or 1 to 63 characters from A-Z a-z 0-9 - _ ."


def label_problems(labels: LabelMap) -> list[str]:
    problems = [key_problem(key) for key in labels] + [value_problem(value) for value in labels.values()]
    return [problem for problem in problems if problem]


def parse_selector(selector: str) -> Predicate:
    """Compile a label selector; the comma is a logical AND, an empty selector matches everything."""
    if not selector.strip():
        return lambda labels: True
    outside_parentheses = r",(?![^()]*\))"
    terms = [_term(text.strip(), selector) for text in re.split(outside_parentheses, selector)]
    return lambda labels: all(term(labels) for term in terms)


def _term(text: str, selector: str) -> Predicate:
    if match := _SET_RE.fullmatch(text):
        key = _checked_key(match["key"], selector)
        values = frozenset(_checked_value(value.strip(), selector) for value in match["values"].split(","))
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALITY_RE.fullmatch(text):
        key, value = _checked_key(match["key"], selector), _checked_value(match["value"], selector)
        if match["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS_RE.fullmatch(text):
        key = _checked_key(match["key"], selector)
        if match["negated"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise _refusal(selector, f"'{text}' is no term of a label selector")


def _checked_key(key: str, selector: str) -> str:
    problem = key_problem(key)
    if problem and _RESERVED_PREFIX not in problem:
        raise _refusal(selector, problem)
    return key


def _checked_value(value: str, selector: str) -> str:
    problem = value_problem(value)
    if problem:
        raise _refusal(selector, problem)
    return value


def _refusal(selector: str, problem: str) -> Exception:
    return invalid_input({"label_selector": [f"{problem} (in '{selector}')"]})


_HOSTNAME_RE = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
MAX_USER_DATA = 32 * 1024
Name = Annotated[str, Field(min_length=1, max_length=255)]
IdOrName = int | str
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]
BalancerProtocol = Literal["tcp", "http", "https"]
Algorithm = Literal["round_robin", "least_connections"]
BodyType = TypeVar("BodyType", bound=BaseModel)


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


class ChangeDeleteProtection(Body):
    delete: bool | None = None


class ChangeServerProtection(ChangeDeleteProtection):
    rebuild: bool | None = None


class AttachIso(Body):
    iso: IdOrName


class AttachToNetwork(Body):
    network: int
    ip: str | None = None
    alias_ips: list[str] | None = None
    ip_range: str | None = None


class ChangeAliasIps(Body):
    network: int
    alias_ips: list[str]


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


class PrimaryIpCreate(Body):
    name: Name
    type: Literal["ipv4", "ipv6"]
    assignee_type: Literal["server", "load_balancer"] = "server"
    assignee_id: int | None = None
    location: IdOrName | None = None
    auto_delete: bool = False
    labels: Labels | None = None


class PrimaryIpUpdate(NamedUpdate):
    auto_delete: bool | None = None


class PlacementGroupCreate(Body):
    name: Name
    type: Literal["spread"]
    labels: Labels | None = None


class SubnetCreate(Body):
    type: Literal["cloud", "server", "vswitch"]
    network_zone: str
    ip_range: str | None = None
    vswitch_id: int | None = None


class NetworkCreate(Body):
    name: Name
    ip_range: str
    labels: Labels | None = None
    subnets: list[SubnetCreate] | None = None
    routes: list[dict[str, Any]] | None = None
    expose_routes_to_vswitch: bool | None = None


class FirewallCreate(Body):
    name: Name
    labels: Labels | None = None
    rules: list[dict[str, Any]] | None = None
    apply_to: list[dict[str, Any]] | None = None


class HealthCheckHttp(Body):
    domain: str | None = None
    path: str | None = None
    response: str | None = None
    status_codes: list[str] | None = None
    tls: bool | None = None


class HealthCheck(Body):
    protocol: BalancerProtocol | None = None
    port: Port | None = None
    interval: Seconds | None = None
    timeout: Seconds | None = None
    retries: Annotated[int, Field(ge=1)] | None = None
    http: HealthCheckHttp | None = None


class ServiceHttp(Body):
    cookie_name: str | None = None
    cookie_lifetime: Seconds | None = None
    certificates: list[int] | None = None
    redirect_http: bool | None = None
    sticky_sessions: bool | None = None
    timeout_idle: Seconds | None = None


class ServiceUpdate(Body):
    listen_port: Port
    protocol: BalancerProtocol | None = None
    destination_port: Port | None = None
    proxyprotocol: bool | None = None
    http: ServiceHttp | None = None
    health_check: HealthCheck | None = None


class ServiceCreate(Body):
    protocol: BalancerProtocol
    listen_port: Port | None = None
    destination_port: Port | None = None
    proxyprotocol: bool | None = None
    http: ServiceHttp | None = None
    health_check: HealthCheck | None = None


class ServiceDelete(Body):
    listen_port: Port


class TargetServer(Body):
    id: int


class TargetSelector(Body):
    selector: Annotated[str, Field(min_length=1)]


class TargetIp(Body):
    ip: str


class BalancerTarget(Body):
    type: Literal["server", "label_selector", "ip"]
    server: TargetServer | None = None
    label_selector: TargetSelector | None = None
    ip: TargetIp | None = None
    use_private_ip: bool | None = None


class AlgorithmChange(Body):
    type: Algorithm


class BalancerPublicNet(Body):
    ipv4: int | None = None
    ipv6: int | None = None


class LoadBalancerCreate(Body):
    name: Name
    load_balancer_type: IdOrName
    algorithm: AlgorithmChange | None = None
    location: IdOrName | None = None
    network_zone: str | None = None
    labels: Labels | None = None
    services: list[ServiceCreate] | None = None
    targets: list[BalancerTarget] | None = None
    public_interface: bool | None = None
    public_net: BalancerPublicNet | None = None
    network: int | None = None


class Metrics(BaseModel):
    """The query of a request for metrics: texts, so they are converted."""

    type: list[Literal["open_connections", "connections_per_second", "requests_per_second", "bandwidth"]]
    start: AwareDatetime
    end: AwareDatetime
    step: Annotated[int, Field(ge=1)] | None = None


class LoadBalancerChangeType(Body):
    load_balancer_type: IdOrName


class LoadBalancerAttach(Body):
    network: int
    ip: str | None = None
    ip_range: str | None = None


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
