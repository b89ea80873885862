# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory of the machines that runs have proven, in ``kubenode_dir``: how each is reached, from any folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed

from ..preflight import controller_paths, specification
from ..role_specs import plain, yaml_value

Hosts = dict[str, dict[str, Any]]

NAME = "inventory.yml"
#: Addresses that a message lists.
_SHOWN = 10
#: A file without it is not ours.
_HEAD = (
    "# Written by kubenode.provision: how the machines are reached that its runs have made. Give it after your own\n"
    "# inventory. Each run writes its machines again; what else is changed here is lost.\n"
)
#: By these a user says whether Ansible lets ssh check host keys; its setting of the environment is not of one host.
_CHECKING = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
#: In the place of the run that has proven a machine, when that was another controller's.
_ANOTHER_RUN = "another"
#: Where ssh finds a host key; a user who says so has a way of his own.
_KEY_OPTION = re.compile(r"(-o)?\s*(UserKnownHostsFile|HostKeyAlias)\b", re.IGNORECASE)


class InventoryError(ValueError):
    """The file cannot be read or written; the text names the path and the way out."""


def hosts_of(
    machines: Iterable[Mapping[str, Any]],
    hostvars: Mapping[str, Mapping[str, Any]],
    phase: Iterable[Mapping[str, Any]],
    directory: str,
) -> Hosts:
    """The variables by which the systems are reached that were proven, of a list of results.

    ``machines``: each with ``name``, ``address`` and whether its new system ``runs``; ``phase``: what the provider's
    API said of them; ``directory``: of what runs keep.
    """
    servers: dict[str, Mapping[str, Any]] = {}
    for one in phase:
        servers.setdefault(str(one["name"]), one)
    return {
        str(one["name"]): _variables(hostvars[one["name"]], one, servers.get(str(one["name"]), {}), directory)
        for one in machines
        if one.get("runs") and "kubenode_build" not in hostvars[one["name"]]
    }


def _variables(
    host: Mapping[str, Any], machine: Mapping[str, Any], server: Mapping[str, Any], directory: str
) -> dict[str, Any]:
    key = controller_paths.as_found(host.get("kubenode_os_private_key"), host)
    key = key or host.get("ansible_ssh_private_key_file") or host.get("ansible_private_key_file")
    number = server.get("id") or server.get("server_number")
    found = {
        "ansible_host": machine.get("address")
        or server.get("ipv4")
        or server.get("ipv6_address")
        or host.get("ansible_host"),
        "ansible_user": host.get("kubenode_os_user") or host.get("ansible_user"),
        "ansible_port": specification.os_port(host),
        "ansible_ssh_private_key_file": controller_paths.of_ssh(key),
        "ansible_ssh_extra_args": ssh_args(host, directory),
        "ansible_host_key_checking": is_pinned(host, directory),
        "kubenode_server_id": number if isinstance(number, int) else None,  # a text could be a template
    }
    return {variable: plain(value) for variable, value in found.items() if value}


def ssh_args(host: Mapping[str, Any], directory: str) -> str:
    """``ansible_ssh_extra_args`` of a host, with its pinned host keys where a run has left some."""
    given = str(host.get("ansible_ssh_extra_args") or "").strip()
    return " ".join([given, *map(shlex.quote, _pinning(host, directory))]).strip()


def _pinning(host: Mapping[str, Any], directory: str) -> list[str]:
    """Arguments for ssh by which it takes the pinned host keys alone; none where there are none, or a user's own."""
    path = _pin(directory, str(host["inventory_hostname"]))
    if not os.path.isfile(path) or names_host_keys(host):
        return []
    alias = ssh_access.alias(str(host["inventory_hostname"]), "os")
    return [f"-oUserKnownHostsFile={ssh_access.quoted(path)}", f"-oHostKeyAlias={alias}"]


def is_pinned(host: Mapping[str, Any], directory: str) -> bool:
    """Whether no other host key than the pinned one is taken, also where Ansible is set to take any, as in AWX."""
    return bool(_pinning(host, directory)) and not any(variable in host for variable in _CHECKING)


def another_server(node: Any, server: Mapping[str, Any], host: Mapping[str, Any], directory: str) -> str:
    """A text for the user when the machine which answers is shown not to be the one of this server; else empty.

    ``node``: what node_info says of the machine, ``server``: what the provider says. A pinned host key proves more.
    """
    if _pinning(host, directory):
        return ""
    found = [server.get("ipv4"), server.get("ipv6"), *(net.get("ip") for net in server.get("private_net") or [])]
    own = [str(one) for one in found if one]
    networks = [ip_network(one, strict=False) for one in own]
    shown = []
    for entry in ((node or {}).get("network") or {}).get("addresses") or []:
        with contextlib.suppress(ValueError):  # it is a machine of which nothing is known
            shown.append(ip_address(str(entry["address"])))
    if not (networks and shown) or any(one in network for one in shown for network in networks):
        return ""
    return (
        f"the machine that answers is another one: it has {listed([str(one) for one in shown], _SHOWN)}; the server "
        f"has {listed(own, _SHOWN)}. Correct kubenode_address, or the way that SSH takes"
    )


def names_host_keys(host: Mapping[str, Any]) -> bool:
    """Whether the arguments of a host for ssh say where its host key is; not that of a jump host in a ProxyCommand."""
    given = " ".join(str(host.get(variable) or "") for variable in specification.SSH_ARGS)
    try:
        words = shlex.split(given)
    except ValueError:  # ssh gets none of it
        words = given.split()
    return any(_KEY_OPTION.match(word) for word in words)


def access(host: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """How an earlier run reached the system of a host; empty when none did, or when the user says how it is reached."""
    if str(host.get("ansible_connection") or "ssh").rpartition(".")[2] not in ("ssh", "smart") or names_host_keys(host):
        return {}
    return read(os.path.join(directory, NAME)).get(str(host["inventory_hostname"]), {})


def read(path: str) -> Hosts:
    """The hosts of the file, and their variables; none when there is no file. Raises `InventoryError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InventoryError(f"{path} cannot be read ({reason}); make it readable, or remove it") from error
    if not text.startswith(_HEAD.partition(":")[0]):
        raise InventoryError(
            f"{path} is not the file that runs keep their machines in; give kubenode_dir a folder of its own"
        )
    try:
        hosts = (yaml_value(text) or {"all": {"hosts": {}}})["all"]["hosts"] or {}
        return {str(name): dict(variables or {}) for name, variables in hosts.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InventoryError(f"{path} is damaged; remove it, each run writes its machines again") from error


def change(
    path: str, hosts: Mapping[str, Mapping[str, Any]], gone: Iterable[str] = (), check_mode: bool = False
) -> bool:
    """Put hosts into the file and take others out, whichever other runs do so at the same time.

    Returns whether anything changed, or would in ``check_mode``; raises `InventoryError`.
    """
    folder, gone = os.path.dirname(path), set(gone)

    def changed(before: Hosts) -> Hosts:
        return {name: host for name, host in {**before, **plain(hosts)}.items() if name not in gone}

    if check_mode:
        there = read(path)
        return changed(there) != there
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            before = read(path)
            after = changed(before)
            if after == before:
                return False
            with safe_files.replacing(path) as (file, _draft):
                text = yaml.safe_dump({"all": {"hosts": after}}, allow_unicode=True, width=10000)
                file.write((_HEAD + text).encode("utf-8"))
        finally:
            os.close(handle)
    except OSError as error:
        raise InventoryError(safe_files.unwritable(path, error)) from error
    return True


def handed_on(path: str, hosts: Mapping[str, Mapping[str, Any]]) -> Hosts:
    """What another controller needs to reach these hosts of the file: addresses and pinned public keys."""
    found: Hosts = {}
    for name, host in hosts.items():
        one = {"address": host["ansible_host"]} if host.get("ansible_host") else {}
        text = _text_of(_pin(os.path.dirname(path), name))
        boot, keys = ssh_access.proven_in(text)[0], ssh_access.key_lines(text)
        if boot and keys:
            one.update(host_keys=keys, boot_id=boot)
        if not ssh_access.handed_on_findings({name: one}):
            found[name] = one
    return found


def take(
    path: str, machines: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]], check_mode: bool = False
) -> bool:
    """Reach machines as another controller did that has proven them; what is known here of one stays.

    ``machines``: what :func:`handed_on` returned there. Returns whether anything changed, or would in ``check_mode``;
    raises `InventoryError`, and nothing is written then.
    """
    findings = ssh_access.handed_on_findings(machines)
    if findings:
        raise InventoryError("; ".join(findings))
    folder = os.path.dirname(path)
    there, pins, others = read(path), {}, []
    for name, one in machines.items():
        keys = [ssh_access.parse_host_key(line) for line in one.get("host_keys", ())]
        mine = ssh_access.key_lines(_text_of(_pin(folder, name)))
        if keys and not mine:
            boot = ssh_access.header(one["boot_id"], _ANOTHER_RUN)
            pins[name] = boot + ssh_access.known_hosts(ssh_access.alias(name, "os"), keys)
        elif keys and set(keys).isdisjoint(mine):
            others.append(name)
    if others:
        raise InventoryError(
            f"{listed(others)}: the host keys that were handed on are others than those in {_pin(folder, others[0])}, "
            "by which this controller knows the machine. Hand none on when they are old; remove that file when it is"
        )
    try:
        for name, text in () if check_mode else pins.items():
            os.makedirs(os.path.dirname(_pin(folder, name)), mode=0o700, exist_ok=True)
            with safe_files.replacing(_pin(folder, name)) as (file, _draft):
                file.write(text.encode("utf-8"))
    except OSError as error:
        raise InventoryError(safe_files.unwritable(folder, error, folder)) from error
    new = {name: one for name, one in machines.items() if name in hostvars and name not in there}
    proven = ({"name": name, **one, "runs": True} for name, one in new.items())
    return change(path, hosts_of(proven, hostvars, (), folder), check_mode=check_mode) or bool(pins)


def _pin(folder: str, name: str) -> str:
    """The file with the host keys of the system of a machine."""
    return os.path.join(folder, "known_hosts", ssh_access.known_hosts_name(name, "os"))


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InventoryError(f"{path} cannot be read ({error.strerror}); make it readable, or remove it") from error


def command(path: str, sources: Iterable[str]) -> str:
    """The command that makes nodes of the machines; ``sources``: the inventories of the run."""
    given = [source for source in sources if os.path.abspath(source) != os.path.abspath(path)]
    words = [word for source in [*given, path] for word in ("-i", source)]
    return shlex.join(["ansible-playbook", *words, "kubenode.provision.node"])
