# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role join: checked, with their defaults."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import HOST_NAME, LABEL_WORD, InvalidName
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import truth
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.api_server import split_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Network
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import tokens

from .. import role_specs
from ..preflight import controller_paths, kubeconfigs
from ..role_specs import yaml_value
from . import kubelet_config
from .plan_types import Discovery, JoinInputs, Taint

#: variables that are not checked yet
Raw = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Value = TypeVar("_Value")


#: variable → families that are looked for, in the order in which the Node lists them
AUTOMATIC = {"auto4": (4,), "auto6": (6,), "dual": (4, 6)}


class InvalidAddress(ValueError):
    """The address is refused; the text names it and the fix."""


def check_addresses(value: Any) -> str | list[str]:
    """A name of :data:`AUTOMATIC`, or a list of addresses: normalised; raise :class:`InvalidAddress` if neither."""
    if isinstance(value, str):
        if value in AUTOMATIC or not value:
            return value
        value = [part.strip() for part in value.split(",")]
    return [str(_address(part)) for part in value]


def node_addresses(wanted: str | list[str], network: Network) -> list[str]:
    """The addresses for ``--node-ip``, an empty list when the kubelet is to choose.

    ``wanted`` is what :func:`check_addresses` returns, ``network`` the part of that name of node_info.
    """
    if not wanted:
        return []
    if isinstance(wanted, str):
        return [_automatic(family, wanted, network) for family in AUTOMATIC[wanted]]
    families = [ipaddress.ip_address(address).version for address in wanted]
    if len(wanted) > 2 or len(set(families)) < len(families):
        raise InvalidAddress(f"{', '.join(wanted)}: give one address, or one IPv4 and one IPv6 address")
    own = {str(_address(entry["address"])) for entry in network.get("addresses", [])}
    for text in wanted:
        if not _is_reached(_address(text)):
            raise InvalidAddress(f"{text} is not an address that other machines reach")
        if text not in own:
            raise InvalidAddress(f"{text} is no address of this machine; it has {', '.join(sorted(own)) or 'none'}")
    return list(wanted)


def _automatic(family: int, wanted: str, network: Network) -> str:
    default = (network.get("default") or {}).get(str(family)) or {}
    interface = default.get("interface")
    usable = [
        entry
        for entry in network.get("addresses", [])
        if entry.get("family") == family and _is_reached(_address(entry["address"]))
    ]
    # of several, the one the default route uses; an address that changes by itself (IPv6 privacy) comes last
    usable.sort(
        key=lambda entry: (
            bool(entry.get("deprecated")),
            entry.get("interface") != interface,
            family == 6 and bool(entry.get("dynamic")) and entry.get("prefix") != 128,
            entry["address"] != default.get("address"),
        )
    )
    if not interface or not usable:
        raise InvalidAddress(
            f"{wanted}: this machine has no IPv{family} address with a default route; name the address itself"
        )
    return str(_address(usable[0]["address"]))


def _is_reached(address: Address) -> bool:
    """Whether other machines may reach it."""
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


def _address(text: Any) -> Address:
    try:
        # a zone may be any text, and a number is taken for an address
        if not isinstance(text, str) or "%" in text:
            raise ValueError(text)
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidAddress(f"{text!r} is no IP address") from error


#: type in the argument specs → types of Python
_TYPES: dict[str, Any] = {"str": str, "path": str, "bool": bool, "int": int, "list": list, "dict": dict}
#: variables of the type raw → types of Python
_RAW: dict[str, tuple[type, ...]] = {
    "cni_config": (str, dict),
    "config_dir": (str, bool),
    "node_ip": (str, list),
    "reserved": (str, dict),
}
_DROP_IN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.conf\Z")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")


class InvalidInput(ValueError):
    """A variable is refused; the text names it, its value and the fix, in one printable line."""

    def __init__(self, text: str) -> None:
        """Keys and values are the user's, and may hold any character."""
        super().__init__(escaped(text))


def checked(given: Mapping[str, Any], token: str) -> JoinInputs:
    """All inputs with their defaults, normalised; raise :class:`InvalidInput` at the first that cannot be.

    ``given`` has the variables without ``join_`` and without secrets; ``token`` is the bootstrap token or empty.
    """
    inputs = _typed(given)
    if inputs["state"] == "absent":
        return cast(JoinInputs, inputs)
    _each(
        inputs,
        api_server=_server,
        ca_cert=_ca,
        cluster_domain=_domain,
        node_name=lambda name: check_node_name(name) if name else name,
        node_ip=check_addresses,
        labels=check_labels,
        provider_id=lambda text: check_provider_id(text) if text else text,
        cluster_dns=check_addresses,
        max_pods=lambda number: _within(number, 0, 1024),
        timeout=lambda number: _within(number, 5, 86400),
        max_clock_skew=lambda number: _within(number, 1, 3600),
        config_dir=_config_dir,
        template_path=_template_path,
        reserved=_reserved,
        kubelet_drop_ins=_drop_ins,
        discovery=_discovery,
        token_create=_token_create,
    )
    of_variable("taints", parse_taints, inputs["taints"])
    of_variable("token_create", _usages, inputs)
    _together(inputs, token)
    return cast(JoinInputs, inputs)


def with_drop_ins(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The variables with drop-ins that were given as YAML read; raise :class:`InvalidInput` for a text that is none."""
    drop_ins = given.get("kubelet_drop_ins")
    if not isinstance(drop_ins, dict):
        return given
    read = {}
    for name, content in drop_ins.items():
        try:
            read[name] = yaml_value(content) if isinstance(content, str) else content
        except ValueError as error:
            raise InvalidInput(f"join_kubelet_drop_ins: {name}: not YAML: {' '.join(str(error).split())}") from error
    return dict(given, kubelet_drop_ins=read)


def with_ca_file(given: Mapping[str, Any], inventory_dir: str | None, search: Sequence[str]) -> Mapping[str, Any]:
    """The variables with the CA read from its file; raise :class:`InvalidInput` when it holds none."""
    path = given.get("ca_file")
    if given.get("state") == "absent" or given.get("ca_cert") or not isinstance(path, str) or not path:
        return given
    try:
        found = controller_paths.find(path, inventory_dir, search)
        with open(found, encoding="utf-8") as file:
            text = file.read()
    except controller_paths.NotThere as error:
        raise InvalidInput(f"join_ca_file: {error}") from error
    except OSError as error:
        raise InvalidInput(f"join_ca_file: {found} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidInput(f"join_ca_file: {found} is no text; give a certificate in PEM") from error
    if not text.strip():
        raise InvalidInput(f"join_ca_file: {found} is empty")
    return dict(given, ca_cert=of_variable(f"ca_file: {found}", _ca, text))


def check_one_token(inputs: JoinInputs, token: str) -> None:
    """Raise :class:`InvalidInput` when the user gives a token and wants one to be made."""
    if token and inputs["token_create"]:
        raise InvalidInput("join_token and join_token_create: give one of them")


def check_kubeconfig(inputs: JoinInputs, inventory_dir: str | None, search: Sequence[str]) -> None:
    """Raise :class:`InvalidInput` when the kubeconfig is one of this controller that cannot be used."""
    made = inputs["token_create"]
    path = made.get("kubeconfig")
    if not path or (made.get("delegate_to") or "localhost") != "localhost":
        return
    where = "join_token_create: kubeconfig"
    try:
        found = controller_paths.find(str(path), inventory_dir, search)
    except controller_paths.NotThere as error:
        raise InvalidInput(f"{where}: {error}") from error
    if not os.path.isfile(found) or not os.access(found, os.R_OK):
        raise InvalidInput(f"{where}: {found} is no file that this controller can read; correct the path, or its mode")
    if fault := kubeconfigs.fault(found, made.get("context")):
        raise InvalidInput(f"{where}: {found} {fault}")


def _together(inputs: Raw, token: str) -> None:
    pins, jws = inputs["discovery"]["ca_hashes"], inputs["discovery"]["jws"]
    if token:
        try:
            api_server.split_token(token)
        except ValueError as error:
            raise InvalidInput(f"join_token: {error}") from error
    # what is in a file, the caller has read, or cannot read here
    if not (inputs["ca_cert"] or inputs["ca_file"] or pins or (jws and token)):
        raise InvalidInput(
            "join_ca_cert: there is no CA to trust; give join_ca_cert, join_ca_file or join_discovery.ca_hashes "
            "(a signature by join_discovery.jws needs a join_token that exists before)"
        )
    if inputs["method"] == "kubeadm":
        for name in ("kubelet_extra_args", "kubelet_drop_ins"):
            if any("config-dir" in str(key) for key in inputs[name]):
                raise InvalidInput(f"join_{name}: kubeadm writes the flags of the kubelet itself")
    if inputs["config_dir"] == "false" and inputs["kubelet_drop_ins"]:
        raise InvalidInput("join_kubelet_drop_ins: they need join_config_dir auto or true")


def variables() -> dict[str, role_specs.Option]:
    """Name without ``join_`` → its option in the argument specs; the token is no input of the plan."""
    return {name: option for name, option in sorted(role_specs.options("join").items()) if name != "token"}


def _typed(given: Mapping[str, Any]) -> Raw:
    options = variables()
    unknown = sorted(set(given) - set(options))
    if unknown:
        raise InvalidInput(f"join_{unknown[0]}: no such variable{kubelet_config.nearest(unknown[0], options)}")
    inputs = {}
    for name, option in options.items():
        kinds = _RAW[name] if option["type"] == "raw" else _TYPES[option["type"]]
        value = given.get(name)
        value = role_specs.default(option) if value is None else _converted(value, kinds)
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is int):
            raise InvalidInput(f"join_{name}: {value!r} must be {_kinds(kinds)}")
        choices = option.get("choices")
        if choices and value not in choices:
            raise InvalidInput(f"join_{name}: {value!r} must be one of {', '.join(map(repr, choices))}")
        inputs[name] = value
    return inputs


def _converted(value: Any, kinds: Any) -> Any:
    """Numbers and truth as they come from the command line."""
    if kinds is int and whole_number(value) is not None:
        return whole_number(value)
    return truth(value) if kinds is bool else value


def _kinds(kinds: Any) -> str:
    words = {str: "a text", list: "a list", dict: "a dictionary", int: "a whole number", bool: "true or false"}
    return " or ".join(words[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def _each(inputs: Raw, **checks: Callable[[Any], Any]) -> None:
    for name, check in checks.items():
        inputs[name] = of_variable(name, check, inputs[name])


def of_variable(name: str, function: Callable[..., _Value], *values: Any) -> _Value:
    """What a function makes of the values of a variable; its ValueError becomes one that names the variable."""
    try:
        return function(*values)
    except ValueError as error:
        raise InvalidInput(f"join_{name}: {error}") from error


def _server(server: str) -> str:
    if not server:
        raise ValueError("it is empty; give the address of the API server, https://HOST:6443")
    split_server(server)
    return server.rstrip("/")


def _ca(text: str) -> str:
    if not text:
        return ""
    if "PRIVATE KEY" in text:
        raise ValueError("it holds a private key; give the certificate of the CA alone")
    api_server.certificates(text)
    return text.strip() + "\n"


def _domain(name: str) -> str:
    if not _DOMAIN.match(name):
        raise ValueError(f"{name!r} is no domain; write it as cluster.local")
    return name


def _within(number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise ValueError(f"{number} must be from {least} to {most}")
    return number


def _config_dir(value: Any) -> str:
    if str(value).lower() not in ("auto", "true", "false"):
        raise ValueError(f"{value!r} must be auto, true or false")
    return str(value).lower()


def _template_path(value: list[Any]) -> list[str]:
    for path in value:
        if not isinstance(path, str) or not path or not path.isprintable():
            raise ValueError(f"{path!r} must be the path of a folder on the controller")
    return value


def _reserved(value: Any) -> Any:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{value!r} must be auto or a dictionary of kube and system")
        return value
    for name, part in value.items():
        if name not in ("kube", "system") or not isinstance(part, dict):
            raise ValueError(f"{name!r} must be kube or system, each a dictionary such as {{cpu: 100m, memory: 200Mi}}")
    return value


def _drop_ins(value: dict[str, Any]) -> dict[str, Any]:
    for name, content in value.items():
        if not _DROP_IN.match(str(name)):
            raise ValueError(f"{name!r} is no name of a drop-in; use letters, digits, '-', '_', '.', ending with .conf")
        if not isinstance(content, dict):
            raise ValueError(f"{name}: it must be a dictionary of fields of KubeletConfiguration")
        kubelet_config.check_head(content, name)
    return value


def _discovery(value: dict[str, Any]) -> Discovery:
    _known("discovery", value)
    pins = value.get("ca_hashes") or []
    if not isinstance(pins, list):
        raise ValueError(f"ca_hashes: {pins!r} must be a list")
    jws = truth(value.get("jws") or False)
    if not isinstance(jws, bool):
        raise ValueError(f"jws: {jws!r} must be true or false")
    return {"ca_hashes": [api_server.check_pin(pin) for pin in pins], "jws": jws}


def _token_create(value: dict[str, Any]) -> dict[str, Any]:
    _known("token_create", value)
    if value.get("ttl") is not None:
        tokens.ttl_seconds(value["ttl"])
    groups = value.get("groups") or []
    groups = groups.split(",") if isinstance(groups, str) else groups
    if not isinstance(groups, list):
        raise ValueError(f"groups: {groups!r} must be a list")
    tokens.check_groups(str(group) for group in groups)
    return value


def _usages(inputs: Raw) -> None:
    """What a token that is made may be used for; kubeadm proves the cluster by a signature with it."""
    made, kubeadm = inputs["token_create"], inputs["method"] == "kubeadm"
    if not made:
        return
    usages = made.get("usages") or (["authentication", "signing"] if kubeadm else ["authentication"])
    if not isinstance(usages, list):
        raise ValueError(f"usages: {usages!r} must be a list")
    if "authentication" not in usages:
        raise ValueError("usages: a machine cannot join without authentication")
    if kubeadm and "signing" not in usages:
        raise ValueError("usages: kubeadm needs signing, too: it proves the cluster by the token's signature")
    inputs["token_create"] = dict(made, usages=usages)


def _known(variable: str, value: Mapping[str, Any]) -> None:
    options = role_specs.options("join")[variable]["options"]
    for name in value:
        if name not in options:
            raise ValueError(f"{name!r} is no option; there are {', '.join(options)}")


# --- names, labels and taints a kubelet may give its own Node (pure)


_PROVIDER_ID = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~/:@+-]+\Z")
#: Providers of which the form of the identifier is known.
_NUMBERED = ("hcloud", "hrobot")

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
_OWN_KEYS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    )
)
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLUSTER_DOMAINS = ("kubernetes.io", "k8s.io")


def check_node_name(name: Any) -> str:
    """Return ``name`` when a Node can have it (RFC 1123, lower case), else raise :class:`InvalidName`."""
    # the name is also the value of the label kubernetes.io/hostname, which is shorter than a host name may be
    if not isinstance(name, str) or len(name) > 63 or not HOST_NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} is no name for a node; use up to 63 lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit"
        )
    return name


def node_name(wanted: str, hostname: str) -> str:
    """The name of the Node: ``wanted``, else the host name as the kubelet reads it."""
    return check_node_name(wanted or hostname.strip().lower())


def check_label_key(key: object) -> str:
    """Return ``key`` when Kubernetes takes it as a key of a label or taint, else raise :class:`InvalidName`."""
    prefix, slash, name = key.rpartition("/") if isinstance(key, str) else ("", "", "")
    if slash and (len(prefix) > 253 or not HOST_NAME.fullmatch(prefix)):
        raise InvalidName(f"{key!r}: what is before '/' must be a DNS name in lower case")
    if not isinstance(key, str) or not LABEL_WORD.fullmatch(name):
        raise InvalidName(
            f"{key!r}: the key must be 1 to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return key


def check_label_value(key: object, value: object) -> str:
    """Return ``value`` when Kubernetes takes it, else raise :class:`InvalidName`; ``key`` is named in the error."""
    if not isinstance(value, str):
        raise InvalidName(f"{key}: the value {value!r} is not a text; quote it")
    if value and not LABEL_WORD.fullmatch(value):
        raise InvalidName(
            f"{key}: the value {value!r} must be up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return value


def check_own_label(given: object) -> str:
    """Return the key when a kubelet may set this label on its own Node, else raise :class:`InvalidName`."""
    key = check_label_key(given)
    prefix = key.rpartition("/")[0]
    if key in _OWN_KEYS or _below(prefix, _OWN_DOMAINS) or not _below(prefix, _CLUSTER_DOMAINS):
        return key
    if _below(prefix, ("node-role.kubernetes.io",)) or prefix == "node-role.kubernetes.io":
        hint = f"a role is given with administrator's rights, after the join: kubectl label node NAME {key}="
    else:
        hint = (
            "within kubernetes.io and k8s.io a kubelet may set only {} and names below {}; "
            "use a prefix of your own, or set it with administrator's rights".format(
                ", ".join(sorted(_OWN_KEYS)), " and ".join(_OWN_DOMAINS)
            )
        )
    raise InvalidName(f"a kubelet may not set the label {key!r} on its own Node: {hint}")


def check_labels(labels: dict[Any, Any]) -> dict[str, str]:
    """Return ``labels`` ({key: value}) when a kubelet may set all of them, else raise :class:`InvalidName`."""
    for key, value in sorted(labels.items(), key=lambda item: str(item[0])):
        check_own_label(key)
        check_label_value(key, value)
    return labels


def parse_taint(text: Any) -> Taint:
    """``key=value:Effect`` or ``key:Effect`` as {key, value, effect}; raise :class:`InvalidName` for anything else."""
    if not isinstance(text, str) or ":" not in text:
        raise InvalidName(f"{text!r} is no taint; write key=value:Effect or key:Effect")
    head, _colon, effect = text.rpartition(":")
    key, _equals, value = head.partition("=")
    if effect not in EFFECTS:
        raise InvalidName(f"{text!r}: the effect {effect!r} must be one of {', '.join(EFFECTS)}")
    check_label_key(key)
    check_label_value(key, value)
    return {"key": key, "value": value, "effect": effect}


def parse_taints(texts: Iterable[Any]) -> list[Taint]:
    """All taints; the same key with the same effect twice raises :class:`InvalidName`."""
    taints, seen = [], set()
    for text in texts:
        taint = parse_taint(text)
        mark = (taint["key"], taint["effect"])
        if mark in seen:
            raise InvalidName(f"{text!r}: the key {taint['key']} has the effect {taint['effect']} twice")
        seen.add(mark)
        taints.append(taint)
    return taints


def check_provider_id(text: str) -> str:
    """Return ``text`` when it is a provider ID such as ``hcloud://123``, else raise :class:`InvalidName`."""
    if not _PROVIDER_ID.match(text):
        raise InvalidName(f"{text!r} is no provider ID; write PROVIDER://ID, such as hcloud://123456")
    scheme, _mark, rest = text.partition("://")
    if scheme in _NUMBERED and not re.match(r"[1-9][0-9]*\Z", rest):
        raise InvalidName(f"{text!r}: after {scheme}:// stands the number of the server")
    return text


def _below(prefix: str, domains: Iterable[str]) -> bool:
    return any(prefix == domain or prefix.endswith("." + domain) for domain in domains)
