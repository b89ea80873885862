# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each machine of a mixed fleet is made, and in which batches; which nodes may be upgraded (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Required, TypedDict

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, intents
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import machine_error
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.check import skew_problem, version_pair

#: The playbook that makes machines of all kinds, and those whose tasks it runs for them: the ways to make a machine.
SITE = "site"
HCLOUD, HCLOUD_NAME = "hcloud_image_url", "hcloud_image_name"
ROBOT, INSTALLIMAGE = "robot_image_url", "robot_installimage"
WAYS = (HCLOUD, HCLOUD_NAME, ROBOT, INSTALLIMAGE)
#: A host with one of these is a dedicated server; every other one is a cloud machine.
DEDICATED = ("kubenode_server_number", "hrobot_server_number", "kubenode_server_ip")
_SIZES = "give a number of machines, a percentage such as 25%, a list of these, or the name of a variable of the hosts"
_SERIAL = "kubenode_serial"
_SHOWN = 3
#: what node_upgrade notes at a Node that it has cordoned
_UPGRADE = "kubenode.provision/node_upgrade"


class Batch(TypedDict):
    """Machines that are made together. ``name``: for people, such as ``1 of 3 (kubenode_location fsn1)``."""

    name: str
    #: Its place, from 0 on.
    place: int
    machines: list[str]


class Plan(TypedDict, total=False):
    """What a run does with which machines; with ``errors``, nothing."""

    errors: Required[list[str]]
    batches: Required[list[Batch]]
    #: By the name of a machine, its way.
    ways: dict[str, str]


def way(host: Mapping[str, Any]) -> str:
    """Which playbook's tasks make a machine of these variables."""
    if any(host.get(variable) for variable in DEDICATED):
        return INSTALLIMAGE if host.get("kubenode_image") else ROBOT
    return HCLOUD_NAME if host.get("kubenode_image_name") else HCLOUD


def by_way(hosts: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The hosts of each way that there is among them."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for host in hosts:
        found.setdefault(way(host), []).append(host)
    return found


def site_plan(hosts: Iterable[Mapping[str, Any]], serial: Any = None) -> Plan:
    """Ways and batches of the hosts of a run. ``serial``: the variable ``kubenode_serial``."""
    hosts = list(hosts)
    plan = batch_plan(hosts, "100%" if serial is None else serial)
    errors = [*_unmade(hosts), *_keys(hosts), *plan["errors"]]
    return {**plan, "errors": errors, "ways": {_name(host): way(host) for host in hosts}}


def batch_plan(hosts: Iterable[Mapping[str, Any]], serial: Any, variable: str = _SERIAL) -> Plan:
    """The batches of the hosts of a run, and why there can be none. ``serial``: the value of ``variable``."""
    try:
        return {"errors": [], "batches": batches_of(list(hosts), serial, variable)}
    except ValueError as error:
        return {"errors": [str(error)], "batches": []}


def new_systems(hosts: Iterable[Mapping[str, Any]], looked: Iterable[Mapping[str, Any]], intents_dir: str) -> list[str]:
    """The machines that will have another system after a run, as far as the controller knows.

    ``looked``: what ``hcloud_machine`` said in check mode. A name in ``kubenode_reinstall`` that an installation has
    used up, as far as is known here, is none.
    """
    made = {machine["name"] for machine in looked if machine.get("created")}
    return [name for host in hosts if (name := _name(host)) in made or _is_reinstalled(name, host, intents_dir)]


def _is_reinstalled(name: str, host: Mapping[str, Any], intents_dir: str) -> bool:
    words = consent.Words("reinstall", host.get("kubenode_reinstall"))
    return words.names(name) and not words.used_by(name, intents.read(intents.file_of(intents_dir, name)))


def machine_names(hosts: Iterable[str]) -> list[str]:
    """Those of these names that a machine can have; addresses and ``localhost`` are none."""
    return [host for host in hosts if not machine_error(host)]


def upgrade_problems(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each node whose kubelet cannot become that of ``base_kubernetes_version``.

    ``kubenode_asked`` of a host is the result of node_join_check, ``kubenode_reached`` that of node_info,
    ``__base_inputs`` are the checked inputs of base.
    """
    return [f"{_name(host)}: {problem}" for host in hosts if (problem := _upgrade_problem(host))]


def _upgrade_problem(host: Mapping[str, Any]) -> str:
    asked, wanted = host.get("kubenode_asked") or {}, str(host["__base_inputs"]["kubernetes_version"])
    if "need_bootstrap" not in asked:
        return "it is no node yet; kubenode.provision.site or kubenode.provision.node makes one of it"
    if asked["need_bootstrap"] or not asked["node"]["exists"]:
        return "its Node or its kubelet's certificate is gone; kubenode.provision.node_join mends that"
    server, runs = str(asked["server_version"] or ""), str(asked["node"]["kubelet_version"] or "")
    if not server:
        return "the API server does not report its version, so whether it takes such a kubelet cannot be known"
    problem = skew_problem(wanted, server)
    if problem:
        return f"{problem}; upgrade the control plane first, or set another base_kubernetes_version"
    if runs and version_pair(wanted) < version_pair(runs):
        return (
            f"its kubelet is {runs}, and base_kubernetes_version is {wanted}: going back to an older minor version is "
            "no upgrade; set base_kubernetes_version to the version that is meant"
        )
    return _not_ready(host, runs.lstrip("v") == wanted)


def _not_ready(host: Mapping[str, Any], is_wanted: bool) -> str:
    """Why a Node cannot be Ready at the end of an upgrade which did not make it so; ``is_wanted``: it has the version.

    One that an earlier run has cordoned is where that run was cut off; what is left to do restarts the kubelet.
    """
    node = host["kubenode_asked"]["node"]
    goes_on = node["cordoned_by"] == _UPGRADE
    if goes_on and not is_wanted:
        return ""
    unit = host["kubenode_reached"]["node"]["units"].get("kubelet.service") or {}
    limit = f"--limit 'all:!{_name(host)}'"
    out = f"see journalctl -u kubelet there, and run this again when it is Ready, or leave it out: {limit}"
    # a Node stays Ready for most of a minute without its kubelet
    if unit.get("active") == "activating":
        return f"kubelet.service is activating on it: it begins right now, or again and again; {out}"
    if unit.get("active") in ("inactive", "failed"):
        return f"kubelet.service is {unit['active']} on it; start it (systemctl start kubelet): {out}"
    if not node["ready"] and not goes_on:
        return f"its Node is NotReady, before anything was done to it; {out}"
    return ""


def _unmade(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each kind of machine of which nothing says how it is made."""
    bare = {
        kind: [_name(host) for host in hosts if way(host) == kind and not host.get("kubenode_image_url")]
        for kind in (HCLOUD, ROBOT)
    }
    texts = {
        HCLOUD: "a cloud machine needs kubenode_image_name (a node image by its name), or kubenode_image_url with "
        "kubenode_image_url_command; a dedicated server needs kubenode_server_number",
        ROBOT: "a dedicated server needs kubenode_image (installimage), or kubenode_image_url with "
        "kubenode_image_url_command",
    }
    return [f"nothing says how {listed(names)} is made: {texts[kind]}" for kind, names in bare.items() if names]


def _keys(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each part of the API phase knows a system by the key of its first machine."""
    keys: dict[str, str] = {}
    for host in hosts:
        keys.setdefault(str(host.get("ansible_ssh_private_key_file") or "not set"), _name(host))
    if len(keys) < 2:
        return []
    shown = ", ".join(f"{key} for {name}" for key, name in list(keys.items())[:_SHOWN])
    return [f"ansible_ssh_private_key_file must be the same for all machines of a run, and is {shown}; set it for all"]


def batches_of(hosts: Sequence[Mapping[str, Any]], serial: Any, variable: str = _SERIAL) -> list[Batch]:
    """The machines that go together, batch by batch; raises ValueError for a ``serial`` that says nothing."""
    sizes = [_size(one, len(hosts)) for one in (serial if isinstance(serial, list) else [serial])]
    if sizes and None not in sizes:
        groups = _by_size([_name(host) for host in hosts], [size for size in sizes if size is not None])
    elif isinstance(serial, str) and serial.isidentifier():
        groups = _by_value(hosts, serial, variable)
    else:
        raise ValueError(f"{variable} is {one_line(repr(serial), 60)}: {_SIZES}")
    return [
        {
            "name": f"{place + 1} of {len(groups)}" + (f" ({serial} {label})" if label else ""),
            "place": place,
            "machines": names,
        }
        for place, (label, names) in enumerate(groups)
    ]


def _size(value: Any, total: int) -> int | None:
    """How many machines a number or a percentage means, at least one; None for anything else."""
    if isinstance(value, bool):
        return None
    text = str(value).strip()
    share = whole_number(text.removesuffix("%")) if text.endswith("%") else None
    if share is not None:
        return max(1, total * share // 100) if 0 < share <= 100 else None
    number = whole_number(text)
    return number if number else None


def _by_size(names: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, list[str]]]:
    """The last size counts for all that are left, as with ``serial`` of a play."""
    groups, rest, turn = [], list(names), 0
    while rest:
        size = sizes[min(turn, len(sizes) - 1)]
        groups.append(("", rest[:size]))
        rest, turn = rest[size:], turn + 1
    return groups


def _by_value(hosts: Sequence[Mapping[str, Any]], serial: str, variable: str) -> list[tuple[str, list[str]]]:
    without = [_name(host) for host in hosts if not _is_plain(host.get(serial))]
    if len(without) == len(hosts):
        raise ValueError(f"{variable} is {serial}, which is no variable of any host of this run: {_SIZES}")
    if without:
        raise ValueError(
            f"{variable} is {serial}, but {listed(without)} has no such variable with one value; set it for "
            "every host, such as its location or failure domain"
        )
    groups: dict[str, list[str]] = {}
    for host in hosts:
        groups.setdefault(one_line(str(host[serial]), 60), []).append(_name(host))
    return list(groups.items())


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and str(value) != ""


def _name(host: Mapping[str, Any]) -> str:
    return str(host["inventory_hostname"])
