# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""KubeletConfiguration of the template and the user's fields, and which fields and flags a kubelet takes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import join_files

from ..role_specs import yaml_value
from . import templates
from .plan_types import JoinInputs
from .systems import minor_number

#: field → its type, or the fields below it
Fields = Mapping[str, Any]
#: flag without dashes → current or deprecated
Flags = Mapping[str, str]


def read_tables(path: Path) -> tuple[dict[str, Flags], dict[str, Fields]]:
    """By minor, what each kubelet knows; ``python -m dev.kubelet_api`` wrote it, from Kubernetes' Go modules.

    Types: ``bool int float string duration quantity time``, ``duration|int``, ``[T]`` a list, ``{"*": T}`` a map with
    any keys, ``{name: T}`` a struct. What is not named, the minor does not know.
    """
    data: Any = json_value(path.read_text(encoding="utf-8"))

    def by_minor(name: str) -> dict[str, Any]:
        return {minor: {**data[name]["all"], **own} for minor, own in data[name]["of"].items()}

    return by_minor("flags"), by_minor("fields")


FLAGS, FIELDS = read_tables(Path(__file__).with_name("kubelet_tables.json"))

API_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
_TEMPLATE = "kubelet-config.yaml.j2"
RESOLVED = "/run/systemd/resolve/resolv.conf"

# what the kubelet keeps when no signal is set; setting one drops the others
_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
#: Fields and flags of ours below the oldest minor with a table: the first minor that takes each without an environment
#: variable.
_SINCE = {
    "shutdownGracePeriod": (1, 21),
    "shutdownGracePeriodCriticalPods": (1, 21),
    "memorySwap": (1, 22),
    "providerID": (1, 22),
    "registerWithTaints": (1, 23),
    "seccompDefault": (1, 25),
    "containerRuntimeEndpoint": (1, 27),
    "maxParallelImagePulls": (1, 27),
    "config-dir": (1, 30),
}


class InvalidConfig(ValueError):
    """The configuration is refused; the text names the field and the fix."""


def defaults(inputs: JoinInputs, facts: Mapping[str, Any]) -> dict[str, Any]:
    """KubeletConfiguration as the template says it; raise :class:`templates.TemplateFailed` when it says none.

    ``inputs``: the role's. ``facts``: runtime_socket, swap (off, limited or keep), resolv ({file: [nameservers]}),
    read_only_usr, shutdown (spans that base was given: grace_period, grace_period_critical), taints (parsed),
    kube_reserved and system_reserved (None: none).
    """
    given = {**facts, "ca_file": join_files.CA, "resolv_conf": resolv_conf(facts["resolv"])}
    text = templates.render("join", _TEMPLATE, inputs, **given)
    try:
        config = yaml_value(text)
    except ValueError as error:
        raise templates.TemplateFailed(f"join_template_path: {_TEMPLATE}: no YAML: {error}") from error
    if not isinstance(config, dict):
        raise templates.TemplateFailed(f"join_template_path: {_TEMPLATE}: it is no dictionary of fields")
    return config


def resolv_conf(resolv: Mapping[str, list[str]]) -> str:
    """The file with the name servers pods are to use; never one that leads back to the machine's own stub.

    Empty on a machine without any such file: a kubelet that is given a path that is not there makes no pod.
    """
    if not resolv:
        return ""
    servers = resolv.get("/etc/resolv.conf") or []
    if resolv.get(RESOLVED) and any(server.startswith("127.") or server == "::1" for server in servers):
        return RESOLVED
    return "/etc/resolv.conf"


def takes(name: str, minor: str, table: Fields | Flags | None) -> bool:
    """Whether a kubelet of this minor has a top-level field, or a flag of ours.

    ``table``: all of them, None for a minor without one.
    """
    return name in table if table is not None else minor_number(minor) >= _SINCE.get(name, (0, 0))


def taken_fields(config: Mapping[str, Any], minor: str, fields: Fields | None) -> dict[str, Any]:
    """``config`` without top-level fields that a kubelet of this minor does not have."""
    return {name: value for name, value in config.items() if takes(name, minor, fields)}


def merged_config(config: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults and the user's fields as the file is to be, with apiVersion and kind."""
    result = templates.merged(config, user)
    given = user.get("evictionHard")
    if isinstance(given, dict) and given and not result.get("mergeDefaultEvictionSettings"):
        # a null in the user's dictionary still takes a signal away
        result["evictionHard"] = templates.merged(_EVICTION_HARD, given)
    if "serializeImagePulls" not in user and user.get("maxParallelImagePulls") == 1:
        result["serializeImagePulls"] = True
    if result.get("serializeImagePulls"):
        if (user.get("maxParallelImagePulls") or 1) > 1:
            raise InvalidConfig("maxParallelImagePulls: more than 1 needs serializeImagePulls false")
        result.pop("maxParallelImagePulls", None)
    return dict({"apiVersion": API_VERSION, "kind": KIND}, **result)


def check_fields(config: Mapping[str, Any], fields: Fields, where: str = "") -> None:
    """Raise :class:`InvalidConfig` naming the first field the table does not hold, and the nearest it does."""
    for name, value in sorted(config.items(), key=lambda item: str(item[0])):
        if not where and name in ("apiVersion", "kind"):
            continue
        if name not in fields:
            raise InvalidConfig(f"{where}{name}: this kubelet knows no such field{nearest(name, fields)}")
        _check_field(f"{where}{name}", value, fields[name])


def check_head(config: Mapping[str, Any], name: str) -> None:
    """Raise :class:`InvalidConfig` when a drop-in is of another kind; ``name`` is the drop-in's."""
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if config.get(field, wanted) != wanted:
            raise InvalidConfig(f"{name}: {field} is {config[field]!r}; it must be {wanted}")


def nearest(name: object, names: Iterable[Any]) -> str:
    """The end of an error that names what may have been meant, empty when nothing is near."""
    lower = {str(one).lower(): one for one in names}
    found = difflib.get_close_matches(str(name).lower(), list(lower), n=1, cutoff=0.7)
    return f"; did you mean {lower[found[0]]}?" if found else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_duration(value: Any) -> bool:
    return isinstance(value, str) and bool(_DURATION.match(value))


def _is_quantity(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, str) and bool(_QUANTITY.match(value)))


_DURATION = re.compile(r"-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+\Z|0\Z")
_QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?\Z")
#: what the tables call the kinds of values: (test, what to write)
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (_is_int, "a whole number"),
    "float": (_is_number, "a number"),
    "string": (lambda value: isinstance(value, str), "a text (in quotes)"),
    "time": (lambda value: isinstance(value, str), "a time as text"),
    "duration": (_is_duration, "a duration such as 30s or 1h30m"),
    "quantity": (_is_quantity, "a quantity such as 100m or 200Mi"),
    "duration|int": (lambda value: _is_int(value) or _is_duration(value), "a duration such as 30s, or a number"),
}


def _check_field(where: str, value: Any, kind: Any) -> None:
    if value is None:
        return
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise InvalidConfig(f"{where}: it is {value!r}, but must be a dictionary")
        if list(kind) == ["*"]:
            for name, item in sorted(value.items(), key=lambda pair: str(pair[0])):
                _check_field(f"{where}.{name}", item, kind["*"])
        else:
            check_fields(value, kind, where + ".")
    elif isinstance(kind, (list, tuple)):
        if not isinstance(value, list):
            raise InvalidConfig(f"{where}: it is {value!r}, but must be a list")
        for number, item in enumerate(value):
            _check_field(f"{where}[{number}]", item, kind[0])
    else:
        fits, wanted = _TYPES[kind]
        if not fits(value):
            raise InvalidConfig(f"{where}: it is {value!r}, but must be {wanted}")


#: flag → the role variable that sets it
OWNED = {
    "bootstrap-kubeconfig": "join_token",
    "kubeconfig": "join_api_server",
    "config": "join_kubelet_config",
    "config-dir": "join_kubelet_drop_ins",
    "hostname-override": "join_node_name",
    "node-ip": "join_node_ip",
    "node-labels": "join_labels",
    "cloud-provider": "join_cloud_provider",
    "provider-id": "join_provider_id",
    "register-with-taints": "join_taints",
}
#: cAdvisor's flags but --housekeeping-interval: a kubelet that is given one does not start any more, since this minor
_CADVISOR_SINCE = (1, 37)
_CADVISOR = (
    "application-metrics-count-limit",
    "boot-id-file",
    "container-hints",
    "containerd",
    "containerd-namespace",
    "enable-load-reader",
    "event-storage-age-limit",
    "event-storage-event-limit",
    "global-housekeeping-interval",
    "log-cadvisor-usage",
    "machine-id-file",
    "storage-driver-buffer-duration",
    "storage-driver-db",
    "storage-driver-host",
    "storage-driver-password",
    "storage-driver-secure",
    "storage-driver-table",
    "storage-driver-user",
)
# systemd splits $KUBELET_ARGS at white space and reads quotes, backslashes and % on its way
_UNSAFE = re.compile(r"[\s\"'\\$`\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


class InvalidFlag(ValueError):
    """The flag is refused; the text names it and the fix."""


def flag_lines(wanted: Mapping[str, str], minor: str, table: Flags | None) -> list[str]:
    """``--name=value`` for each of ``wanted`` ({flag: value, empty when unset}) that the minor has."""
    return [
        f"--{name}={check_flag(name, value)}" for name, value in wanted.items() if value and takes(name, minor, table)
    ]


def check_extra(extra: Mapping[str, Any], table: Flags | None, minor: str, allow: bool = False) -> dict[str, str]:
    """The user's flags as text, without those set to null; raise :class:`InvalidFlag` for one that cannot be.

    ``allow``: whether the kubelet knows a flag is left to the kubelet.
    """
    result = {}
    for given, value in sorted(extra.items()):
        name = str(given).lstrip("-")
        if name in OWNED:
            raise InvalidFlag(f"--{name} is written by the role; set {OWNED[name]} instead")
        if not _NAME.match(name):
            raise InvalidFlag(f"{given!r} is no name of a flag")
        if value is None:
            continue
        if not allow:
            _check_known(name, table, minor)
        result[name] = check_flag(name, _text(value))
    return result


def _check_known(name: str, table: Flags | None, minor: str) -> None:
    if name in _CADVISOR and minor_number(minor) >= _CADVISOR_SINCE:
        raise InvalidFlag(
            f"kubelet {minor} does not start with --{name}; of cAdvisor's flags, it has --housekeeping-interval only"
        )
    if table is not None and name not in table:
        raise InvalidFlag(f"kubelet {minor} knows no flag --{name}{nearest(name, table)}")


def check_flag(name: str, value: str) -> str:
    """Return ``value`` when the unit can pass it on unchanged, else raise :class:`InvalidFlag`."""
    if _UNSAFE.search(value):
        raise InvalidFlag(f"--{name}: the value {value!r} holds white space, a quote, a backslash, '$' or '`'")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise InvalidFlag(f"{value!r}: the value of a flag is a text")
    return str(value)
