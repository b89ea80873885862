# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one specification of the playbooks' variables: variables/PAGE.yml, where docs/PAGE.md has their table.

From it come the checks of names, kinds and playbooks, the options of modules that variables become, the names in
messages, the tables in docs and the surveys of AWX.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

from ansible_collections.kubenode.provision.plugins.module_utils._common import option_values
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line, whole_number

from .. import role_specs
from . import site

_FILES = Path(__file__).parent / "variables"
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Variable:
    """One variable, with the keys of its entry in variables/PAGE.yml."""

    name: str
    #: The page of docs that has it in its table.
    page: str
    #: One sentence for people, as Markdown.
    says: str
    #: As in an argument spec of Ansible; ``raw`` where something else looks at the value. ``path``: of the controller.
    type: str
    #: The playbooks that take it.
    playbooks: tuple[str, ...]
    #: For people, which kinds of value ``raw`` stands for.
    type_says: str = ""
    elements: str = ""
    choices: tuple[Any, ...] = ()
    #: The default, those of playbooks that have another one, or words where no value says it.
    default: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    default_says: str = ""
    #: Never shown in a message.
    secret: bool = False
    #: An environment variable that is read where the variable is not set.
    environment: str = ""
    #: Playbooks that cannot do without.
    required: tuple[str, ...] = ()
    #: Module → the key of each of its machines that it becomes (preflight/machine_specs.py).
    machine: Mapping[str, str] = field(default_factory=dict)
    #: Step of the SSH phase → the option that it becomes (rescue_run/install_plan.py).
    step: Mapping[str, str] = field(default_factory=dict)
    #: Module → the option that a task makes of it.
    option: Mapping[str, str] = field(default_factory=dict)
    #: What is taken in the place of a variable that is not set.
    fallback: str = ""
    #: Playbooks that read it once for the whole run.
    once: tuple[str, ...] = ()
    #: Playbooks that do not take it although one could think so, and what to use there: a warning.
    instead: Mapping[str, str] = field(default_factory=dict)
    #: Playbooks that a host with this variable is not for, and why: an error.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: Other pages in whose tables it stands with another meaning.
    pages: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> dict[str, Any]:
        """As an option of an argument spec."""
        found: dict[str, Any] = {"type": self.type}
        if self.elements and self.elements != "raw":
            found["elements"] = self.elements
        if self.choices:
            found["choices"] = list(self.choices)
        if self.secret:
            found["no_log"] = True
        return found


@functools.cache
def variables() -> dict[str, Variable]:
    """Every variable by its name, in the order of the files and their entries."""
    found: dict[str, Variable] = {}
    for path in sorted(_FILES.glob("*.yml")):
        entries = yaml.load(path.read_text(encoding="utf-8"), _FAST_LOADER)["variables"]
        for name, entry in entries.items():
            found[name] = _variable(name, path.stem, dict(entry))
    return found


def _variable(name: str, page: str, entry: dict[str, Any]) -> Variable:
    playbooks = tuple(entry.pop("playbooks"))
    once = entry.pop("once", ())
    # It makes machines of each kind by the tasks of these playbooks, and reads once what all of them read once.
    if once is True:
        once = (*playbooks, *([site.SITE] if set(site.WAYS) <= {*playbooks} else []))
    if set(site.WAYS) & {*playbooks} and site.SITE not in playbooks:
        playbooks = (*playbooks, site.SITE)
    return Variable(
        name=name,
        page=page,
        playbooks=playbooks,
        once=tuple(once),
        choices=tuple(entry.pop("choices", ())),
        required=tuple(entry.pop("required", ())),
        fallback=entry.pop("else", ""),
        **entry,
    )


@functools.cache
def of_machines(module: str) -> dict[str, tuple[str, ...]]:
    """Key of each machine that a module takes → the variables that may hold it, the first one set wins."""
    found: dict[str, tuple[str, ...]] = {}
    for one in variables().values():
        key = one.machine.get(module)
        if key:
            found[key] = (*found.get(key, ()), one.name, *([one.fallback] if one.fallback else []))
    return found


#: The steps of the SSH phase, in the order in which a machine takes them.
STEPS = ("pre_provision_command", "machine_disks", "image_url_command", "robot_installimage", "machine_boot")


@functools.cache
def of_step(step: str) -> dict[str, str]:
    """Option of a step of the SSH phase → the variable that holds it."""
    return {one.step[step]: one.name for one in variables().values() if step in one.step}


@functools.cache
def of_options(module: str) -> dict[str, str]:
    """Option that a task gives to a module → the variable that it is made of."""
    return {one.option[module]: one.name for one in variables().values() if module in one.option}


@functools.cache
def taken_by(playbook: str) -> tuple[Variable, ...]:
    return tuple(one for one in variables().values() if playbook in one.playbooks)


@functools.cache
def playbooks() -> frozenset[str]:
    return frozenset(playbook for one in variables().values() for playbook in one.playbooks)


PREFIX = "kubenode_"
#: What the playbooks themselves keep for hosts; more of theirs begin with ``kubenode__``.
_OF_PLAYBOOKS = """
    kubenode_after kubenode_architecture kubenode_armed kubenode_asked kubenode_awx
    kubenode_awx_settled kubenode_awx_there kubenode_awx_waiting kubenode_bases kubenode_boot
    kubenode_build kubenode_builds kubenode_checked kubenode_cleaned kubenode_created kubenode_deleting
    kubenode_disarmed kubenode_disks kubenode_drained kubenode_forgotten kubenode_found
    kubenode_image_armed kubenode_image_boot kubenode_image_builds kubenode_image_upload
    kubenode_image_write kubenode_images kubenode_installed kubenode_inventory kubenode_leave
    kubenode_looked kubenode_machine_labels kubenode_name_asked kubenode_named kubenode_new_systems
    kubenode_node kubenode_packing kubenode_plan
    kubenode_powered_off kubenode_reached kubenode_ready kubenode_rearmed kubenode_reboot
    kubenode_records kubenode_release_rescue kubenode_releasing kubenode_removed kubenode_reset kubenode_reset_again
    kubenode_runs kubenode_server_id kubenode_sink kubenode_site kubenode_site_stopped kubenode_snapshots
    kubenode_sources kubenode_started kubenode_stragglers kubenode_summary kubenode_tarball kubenode_tarball_builds
    kubenode_tarball_files kubenode_tarballs kubenode_uncordoned kubenode_upgrade kubenode_wiping
"""
OF_PLAYBOOKS = frozenset(_OF_PLAYBOOKS.split())
#: What the roles say to those who run them.
_MADE_BY_ROLES = frozenset(["base_changed_steps", "image_server_url", "join_failure"])
#: How near a name must be, from 0 to 1, to be suggested.
_NEAR = 0.8

#: Arguments for ssh, such as those of a jump host.
SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
#: What ssh would read as something else than the user or the host that it is given.
_NO_WORD = re.compile(r"-|.*[\s\x00-\x1f\x7f\"'`$;]", re.DOTALL)


def mistyped(host: Mapping[str, Any], *playbooks: str, but: str = "") -> dict[str, str]:
    """For each variable of a host that these playbooks take and whose value is of a wrong kind, a finding.

    Secrets are not shown. ``but``: a variable that is looked at elsewhere.
    """
    found = {}
    taken = {one.name: one for playbook in playbooks for one in taken_by(playbook) if one.name != but}
    for variable, specified in taken.items():
        value = host.get(variable) if variable in host else None
        if value is None:
            continue
        wrong = wrong_kind(specified, value)
        if wrong:
            found[variable] = f"{variable} {wrong}"
    return found


def wrong_kind(specified: Variable, value: Any) -> str:
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


def misspelt(hosts: Iterable[Mapping[str, Any]], playbook: str = "") -> list[str]:
    """A sentence for each variable of these hosts that has our prefix and is nearly, but not quite, one of ours.

    One that the playbook takes is suggested before others.
    """
    return [text for text, near in _strangers(hosts, playbook) if near]


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


def _strangers(hosts: Iterable[Mapping[str, Any]], playbook: str = "") -> list[tuple[str, str]]:
    """What is said of each variable with our prefix that is none of ours, and which one of ours is near."""
    ours = {*variables(), *OF_PLAYBOOKS}
    found: dict[str, list[str]] = {}
    for host in hosts:
        for name in host:
            if name.startswith(PREFIX) and not name.startswith("kubenode__") and name not in ours:
                found.setdefault(name, []).append(str(host.get("inventory_hostname")))
    answer = []
    for name, whose in sorted(found.items()):
        near = _nearest(name, (one.name for one in taken_by(playbook))) or _nearest(name, variables())
        who = _of(name, sorted(whose))
        if near:
            own = f"A variable of your own needs a name that does not begin with {PREFIX}"
            text = f"{who} is no variable of kubenode.provision; did you mean {near}? {own}"
        else:
            text = f"{who} is no variable of kubenode.provision and does nothing"
        answer.append((text, near))
    return answer


def _nearest(name: str, known: Iterable[str]) -> str:
    """The most alike; of several in what comes behind the words that all of them begin with."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=len(known) or 1, cutoff=_NEAR)
    begin = (name[:end] for end in range(len(name), -1, -1))
    start = next(text for text in begin if all(one.startswith(text) for one in near)).rfind("_") + 1
    matcher = difflib.SequenceMatcher(b=name[start:])

    def likeness(one: str) -> float:
        matcher.set_seq1(one[start:])
        return matcher.ratio()

    return max(near, key=likeness, default="")


def _of(name: str, hosts: list[str]) -> str:
    if name in of_the_command_line():
        return f"{name}, given by -e,"
    return f"{name}, set for {listed(hosts)},"


def of_the_command_line() -> Any:
    """The variables of ``-e``; they were read when Ansible started, and are kept."""
    return load_extra_vars(DataLoader())
