# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and values of the variables of hosts, looked at before anything is done; specification.py has what they are."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

from ansible_collections.kubenode.provision.plugins.module_utils._common import option_values
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line, whole_number

from .. import role_specs
from . import specification

PREFIX = "kubenode_"
#: What the playbooks themselves keep for hosts; more of theirs begin with ``kubenode__``.
_OF_PLAYBOOKS = """
    kubenode_after kubenode_architecture kubenode_armed kubenode_asked kubenode_awx
    kubenode_awx_settled kubenode_awx_there kubenode_awx_waiting kubenode_bases kubenode_boot
    kubenode_build kubenode_builds kubenode_checked kubenode_cleaned kubenode_created kubenode_deleting
    kubenode_disarmed kubenode_disks kubenode_drained kubenode_forgotten kubenode_found
    kubenode_image_armed kubenode_image_boot kubenode_image_builds kubenode_image_upload
    kubenode_image_write kubenode_images kubenode_installed kubenode_inventory kubenode_leave
    kubenode_looked kubenode_machine_labels kubenode_named kubenode_node kubenode_packing kubenode_plan
    kubenode_powered_off kubenode_reached kubenode_ready kubenode_rearmed kubenode_reboot
    kubenode_records kubenode_releasing kubenode_removed kubenode_reset kubenode_reset_again
    kubenode_runs kubenode_server_id kubenode_sink kubenode_site kubenode_snapshots kubenode_sources
    kubenode_started kubenode_stragglers kubenode_summary kubenode_tarball kubenode_tarball_builds
    kubenode_tarball_files kubenode_tarballs kubenode_uncordoned kubenode_upgrade kubenode_wiping
"""
OF_PLAYBOOKS = frozenset(_OF_PLAYBOOKS.split())
#: What the roles say to those who run them.
_MADE_BY_ROLES = frozenset(["base_changed_steps", "join_failure"])
#: How near a name must be, from 0 to 1, to be suggested.
_NEAR = 0.8

#: Arguments for ssh, such as those of a jump host.
SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
#: What ssh would read as something else than the user or the host that it is given.
_NO_WORD = re.compile(r"-|.*[\s\x00-\x1f\x7f\"'`$;]", re.DOTALL)


def mistyped(host: Mapping[str, Any], *playbooks: str) -> dict[str, str]:
    """For each variable of a host that these playbooks take and whose value is of a wrong kind, a finding.

    Secrets are not shown.
    """
    found = {}
    taken = {one.name: one for playbook in playbooks for one in specification.taken_by(playbook)}
    for variable, specified in taken.items():
        value = host.get(variable) if variable in host else None
        if value is None:
            continue
        wrong = wrong_kind(specified, value)
        if wrong:
            found[variable] = f"{variable} {wrong}"
    return found


def wrong_kind(specified: specification.Variable, value: Any) -> str:
    """Why a value cannot be the variable's, and what can; empty when it can."""
    wrong = option_values.wrong_value(specified.kind, value)
    if not wrong and specified.type in ("str", "path") and isinstance(value, (list, dict)):
        # Ansible would make a text of it.
        shown = "(hidden)" if specified.secret else repr(one_line(str(value), 60))
        wrong = f"{shown}: give a text, not a {'list' if isinstance(value, list) else 'dictionary'}"
    return wrong


def ways(host: Mapping[str, Any]) -> list[str]:
    """What is wrong with the host, the user, the port and the arguments that Ansible itself gives to ssh."""
    found = []
    for variable in ("ansible_host", "ansible_user"):
        value = host.get(variable) if variable in host else None
        # A text of a vault is no str before ansible-core 2.19.
        if value is not None and (isinstance(value, (list, dict, bool)) or _NO_WORD.match(str(value))):
            found.append(f"{variable} {one_line(repr(value), 100)}: ssh would read it as something else; give one word")
    port = host.get("ansible_port") if "ansible_port" in host else None
    if port is not None and not _is_port(port):
        found.append(f"ansible_port {one_line(repr(port), 60)}: it is no port; use a number from 1 to 65535")
    for variable in SSH_ARGS:
        try:
            shlex.split(str((host.get(variable) if variable in host else None) or ""))
        except ValueError as error:
            given = one_line(repr(host[variable]), 200)
            found.append(f"{variable} {given}: it cannot be split into words ({error}); close each quote")
    return found


def os_port(host: Mapping[str, Any]) -> Any:
    """Where the installed system of a host listens; its rescue always does on port 22. None: there, too.

    ``ways`` reports a wrong ``ansible_port``.
    """
    own, port = host.get("kubenode_os_port"), host.get("ansible_port")
    return own if own is not None else port if port is not None and _is_port(port) else None


def _is_port(value: Any) -> bool:
    return not isinstance(value, bool) and 0 < (whole_number(str(value)) or 0) < 65536


def misspelt(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each variable of these hosts that has our prefix and is nearly, but not quite, one of ours."""
    return [text for text, near in _strangers(hosts) if near]


def unknown(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each other variable of these hosts that has our prefix and is none of ours."""
    return [text for text, near in _strangers(hosts) if not near]


def unknown_of_roles(hosts: Iterable[Mapping[str, Any]], roles: Iterable[str]) -> list[str]:
    """The same for variables that are nearly one of a role's; others with its prefix may be anything of the user's."""
    hosts, found = list(hosts), []
    for role in roles:
        given = {name for host in hosts for name in host if name.startswith(role + "_")}
        known = role_specs.variables(role) if given else {}
        for name in sorted(given - set(known) - _MADE_BY_ROLES):
            whose = sorted(str(host.get("inventory_hostname")) for host in hosts if name in host)
            near = _nearest(name, known)
            if near:
                found.append(f"{_of(name, whose)} is no variable of kubenode.provision and does nothing; {near} is one")
    return found


def _strangers(hosts: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What is said of each variable with our prefix that is none of ours, and which one of ours is near."""
    ours = {*specification.variables(), *OF_PLAYBOOKS}
    found: dict[str, list[str]] = {}
    for host in hosts:
        for name in host:
            if name.startswith(PREFIX) and not name.startswith("kubenode__") and name not in ours:
                found.setdefault(name, []).append(str(host.get("inventory_hostname")))
    answer = []
    for name, whose in sorted(found.items()):
        near = _nearest(name, specification.variables())
        text = f"{_of(name, sorted(whose))} is no variable of kubenode.provision"
        if near:
            text += f"; did you mean {near}? A variable of your own needs a name that does not begin with {PREFIX}"
        else:
            text += " and does nothing"
        answer.append((text, near))
    return answer


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_NEAR)
    return near[0] if near else ""


def _of(name: str, hosts: list[str]) -> str:
    if name in of_the_command_line():
        return f"{name}, given by -e,"
    return f"{name}, set for {listed(hosts)},"


def of_the_command_line() -> Any:
    """The variables of ``-e``; they were read when Ansible started, and are kept."""
    return load_extra_vars(DataLoader())
