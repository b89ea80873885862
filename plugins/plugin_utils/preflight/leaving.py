# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines of a run leave, and everything that is wrong with the inputs, before anything is done."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, intents, names
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import guard

from ..shown_warnings import warn
from . import controller_paths, kubeconfigs, site, specification

_LIMITS = ("kubenode_evict_timeout", "kubenode_ready_timeout")
_SWITCHES = (
    "kubenode_evict_emptydir_data",
    "kubenode_evict_force",
    "kubenode_ignore_unreachable",
    "kubenode_power_off",
    "kubenode_reboot_again",
)
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0")
_SHOWN = 10
_PLAYBOOKS = {"delete": "hcloud_delete", "release": "robot_release"}


def leave_plan(
    hosts: Iterable[Mapping[str, Any]], word: str = "", given: Any = None, known: Collection[str] = ()
) -> dict[str, Any]:
    """Which hosts of a run are to leave, see :func:`plan`. A variable that does not exist is a warning.

    Raises ValueError for another ``word`` than ``delete`` and ``release``.
    """
    if word not in ("", "delete", "release"):
        raise ValueError(f"leave_plan: word is {word!r}; use delete or release, or leave it out")
    hosts = list(hosts)
    for sentence in specification.unknown(hosts):
        warn(sentence)
    return plan(hosts, word, given, known, specification.of_the_command_line())


def plan(
    hosts: Sequence[Mapping[str, Any]],
    word: str = "",
    given: Any = None,
    known: Collection[str] = (),
    extra: Collection[str] = (),
) -> dict[str, Any]:
    """What a run does with each of its hosts.

    ``word``: ``delete`` or ``release``, empty for playbooks that need none; ``given``: the value of its variable;
    ``known``: all hosts of the inventory; ``extra``: the names of the variables of the command line.
    """
    # before this run locks the machines there
    errors = [
        *specification.misspelt(hosts, _PLAYBOOKS.get(word, "")),
        *controller_paths.findings(hosts)[0],
        *(error for host in hosts for error in _of_host(host)),
    ]
    here = [str(host["inventory_hostname"]) for host in hosts]
    if not word:
        return {
            "errors": errors,
            "named": here,
            "machines": [{"name": name} for name in here],
            "left": [],
            "elsewhere": [],
            "word": [],
        }
    variable = f"kubenode_{word}"
    if variable not in extra and any(variable in host for host in hosts):
        errors.append(
            f"{variable} stands in the inventory, where it would count again in every later run; give it for one run: "
            + consent.extra_var(word, given if isinstance(given, (list, dict)) and given else here[:1])
        )
    words = consent.Words(word, given)
    errors += [f"kubenode_{finding}" for finding in words.findings]
    if not words.findings and not list(words):
        errors.append(
            f"{variable} names no machine; it says which machines of this run are to go ({_listed(here)}): "
            + consent.extra_var(word, here[:1])
        )
    strange = [name for name in words if name not in known and name not in here]
    if strange:
        errors.append(
            f"{variable} names {_listed(strange)}, which the inventory does not have; this run has {_listed(here)}"
        )
    named = [name for name in here if words.names(name)]
    if word == "release":
        leaving = [host for host in hosts if str(host["inventory_hostname"]) in named]
        errors += [error for host in leaving for error in _of_wipe(host, extra)]
    return {
        "errors": errors,
        "named": named,
        "machines": [_machine(host, word) for host in hosts if str(host["inventory_hostname"]) in named],
        "left": [name for name in here if not words.names(name)],
        "elsewhere": [name for name in words if name not in here and name not in strange],
        "word": {name: given[name] for name in named} if isinstance(given, Mapping) else named,
    }


def _machine(host: Mapping[str, Any], word: str) -> dict[str, Any]:
    """A machine that leaves, as hcloud_machine takes it: a primary IP that it names is not to go with its server."""
    primary = {option: host.get(f"kubenode_{option}") for option in ("primary_ipv4", "primary_ipv6")}
    named = {option: value for option, value in primary.items() if value} if word == "delete" else {}
    return {"name": str(host["inventory_hostname"]), **named}


def reboot_plan(hosts: Iterable[Mapping[str, Any]], serial: Any = None) -> site.Plan:
    """The batches of node_reboot. ``serial``: ``kubenode_serial``; the one of an inventory is for ``site``."""
    hosts = list(hosts)
    of_run = "kubenode_serial" in specification.of_the_command_line()
    if serial is None or (not of_run and any(host.get("kubenode_serial") == serial for host in hosts)):
        serial = 1
    return site.batch_plan(hosts, serial)


def is_releasing(folder: str, machine: str) -> bool:
    """Whether a run of robot_release of this controller took this machine out of its cluster, and was cut off then.

    ``folder``: where intents lie. Such a run opens its intent when the machine has left.
    """
    try:
        intent = intents.read(intents.file_of(folder, machine))
    except intents.IntentError as error:
        raise ValueError(str(error)) from error
    released = consent.RELEASE in str((intent or {}).get("consent") or "").split("+")
    return released and intents.is_open(intent, machine)


def _config_fault(host: Mapping[str, Any], path: str) -> str:
    """What is wrong with a kubeconfig, as the end of a sentence; nothing for one that can be used."""
    try:
        looked = controller_paths.places(path, controller_paths.inventory_dir_of(host))
    except controller_paths.NotThere:
        looked = []
    there = next((place for place in looked if os.path.isfile(place) and os.access(place, os.R_OK)), None)
    if there is None:
        return "this controller cannot read; correct the path"
    made = host.get("join_token_create")
    of_join = made.get("context") if isinstance(made, Mapping) else None
    return kubeconfigs.fault(there, host.get("kubenode_kube_context", of_join))


def _kubeconfig(host: Mapping[str, Any]) -> tuple[str, Any]:
    """The variable that is taken, and its value, as vars/leave.yml does."""
    if "kubenode_kubeconfig" in host:
        return "kubenode_kubeconfig", host["kubenode_kubeconfig"]
    made = host.get("join_token_create")
    where = "join_token_create.kubeconfig, which counts without kubenode_kubeconfig,"
    return where, made.get("kubeconfig") if isinstance(made, Mapping) else None


def _of_host(host: Mapping[str, Any]) -> list[str]:
    name = str(host["inventory_hostname"])
    errors = []
    refused = names.machine_error(name)
    if refused:
        errors.append(f"the host {name!r:.100} of the inventory cannot be a machine: {refused}")
    variable, config = _kubeconfig(host)
    if config and (fault := _config_fault(host, str(config))):
        errors.append(f"{name}: {variable} is {config}, which {fault}")
    for variable in _LIMITS:
        limit = host.get(variable)
        if limit is not None and not whole_number(str(limit)):
            errors.append(f"{name}: {variable} is {limit!r:.50}; give whole seconds, at least 1")
    for switch in _SWITCHES:
        value = host.get(switch)
        if value is not None and str(value).lower() not in _BOOLEANS:
            errors.append(f"{name}: {switch} is {value!r:.50}; give true or false")
    return errors


def _of_wipe(host: Mapping[str, Any], extra: Collection[str]) -> list[str]:
    """What is wrong with the disks that a machine is to lose; on a data disk no record uses up an old permission."""
    name, wipe = str(host["inventory_hostname"]), host.get("kubenode_wipe")
    if not wipe:
        return []
    if "kubenode_wipe" not in extra:
        return [
            f"{name}: kubenode_wipe stands in the inventory, and robot_release empties only disks that are named for "
            f"one run; to empty them: {consent.extra_var('wipe', wipe)}, to keep them: {consent.extra_var('wipe', [])}"
        ]
    words = consent.Words("wipe", wipe)
    return [f"{name}: kubenode_{text}" for text in [*words.findings, *guard.check_entries(words)]]


def _listed(machines: Iterable[str]) -> str:
    return listed([f"{name:.70}" for name in machines], _SHOWN) or "no host"
