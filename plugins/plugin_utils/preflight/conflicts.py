# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of a playbook that contradict each other, or that it would silently ignore.

A contradiction is refused: nothing is done. A variable that the playbook does not use is a warning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import (
    in_variables,
    truth,
    wrong_value,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url

from ..node_plan import user_data
from ..report import exports, report_files
from ..shown_warnings import warn
from . import controller_paths, machine_specs, site, specification
from .site import HCLOUD, HCLOUD_NAME, INSTALLIMAGE, ROBOT, SITE

INSPECT, LIVE = "robot_inspect", "preprov_images"
_LEAVING = ("hcloud_delete", "robot_release", "node_reboot", "node_upgrade")
_JOINING = ("node", "node_join", SITE)
_CLOUD, _ROBOT = (HCLOUD, HCLOUD_NAME), (ROBOT, INSTALLIMAGE)
_INSTALLING = (HCLOUD, ROBOT, INSTALLIMAGE)
_WRITING = (*_CLOUD, *_ROBOT)
_CONFIG = "kubenode_kubeconfig"
_KNOWN = "kubenode_known_machines"
_URL = "kubenode_notify_url"
_IMAGE_NAME = "kubenode_image_name"
#: What the role node_user_data keeps of each host before it looks at all of them: names of its variables, and its file.
_USER_DATA = "__node_user_data_of_host"
#: What no two machines of a run have; the playbooks that write in a rescue look at addresses with the other inputs.
_OWN: Mapping[str, Sequence[str]] = {
    "kubenode_server_number": (*_ROBOT, SITE, INSPECT, "robot_release"),
    "kubenode_server_ip": (*_ROBOT, SITE, INSPECT, "robot_release"),
    "kubenode_address": (INSPECT,),
    "join_node_name": _JOINING,
    _IMAGE_NAME: (LIVE,),
}
CALLBACK = "kubenode.provision.provision_report"
#: What the first list of machines is for that a playbook makes of its hosts; it would refuse the same in its own words.
_PURPOSES = {
    HCLOUD: "image_url_check",
    ROBOT: "image_url_check",
    INSTALLIMAGE: "installimage_check",
    INSPECT: "robot_rescue",
}


@dataclass(frozen=True)
class Pair:
    """Two variables that a machine cannot have both."""

    playbooks: Sequence[str]
    one: str
    other: str
    fix: str


@dataclass(frozen=True)
class Unused:
    """A variable that a playbook does not use; ``unless``: but with this variable, ``when``: only with such a value."""

    playbooks: Sequence[str]
    variable: str
    instead: str
    unless: str = ""
    of: str = ""
    values: Sequence[Any] = ()


PAIRS = (
    Pair(
        _CLOUD,
        "kubenode_image_name",
        "kubenode_image_url",
        "hcloud_image_name makes a machine of the image kubenode_image_name, hcloud_image_url writes "
        "kubenode_image_url on one that begins with kubenode_placeholder_image; leave one of the two out",
    ),
    Pair(
        _INSTALLING,
        "kubenode_image",
        "kubenode_image_url",
        "robot_installimage writes kubenode_image, an image command kubenode_image_url; leave one of the two out",
    ),
    Pair(
        (*_ROBOT, INSPECT, "robot_release"),
        "kubenode_ssh_public_key",
        "kubenode_ssh_public_key_file",
        "both say which key opens the rescue; leave one of the two out",
    ),
    Pair(_JOINING, "join_ca_cert", "join_ca_file", "both say which CA the cluster has; leave one of the two out"),
)
#: Of another kind of machine: going on would make a second one of its name, or reset a wrong one.
FOREIGN = tuple(
    Unused((playbook,), one.name, why)
    for one in specification.variables().values()
    for playbook, why in one.refused.items()
)
UNUSED = (
    *(
        Unused((playbook,), one.name, instead)
        for one in specification.variables().values()
        for playbook, instead in one.instead.items()
    ),
    Unused((INSTALLIMAGE,), "kubenode_swraid_level", "set kubenode_swraid to 1, too", unless="kubenode_swraid"),
    Unused(_WRITING, "kubenode_pre_provision_timeout", "there is no command", unless="kubenode_pre_provision_command"),
    *(
        Unused(_INSTALLING, variable, f"with this kubenode_proof {why}", of="kubenode_proof", values=("port", "none"))
        for variable, why in (
            ("kubenode_host_keys", "no host key is looked at"),
            ("kubenode_cloud_init_timeout", "nothing waits for cloud-init"),
        )
    ),
    *(
        Unused(_LEAVING, f"kubenode_evict_{what}", "without kubenode_kubeconfig no pod is evicted", unless=_CONFIG)
        for what in ("timeout", "force", "emptydir_data")
    ),
    Unused(
        ("node_reboot",), "kubenode_ready_timeout", "without kubenode_kubeconfig no Node is waited for", unless=_CONFIG
    ),
)
#: Read once for the whole run, from its first machine: another value of another machine would count for nothing.
OF_THE_RUN: dict[str, Sequence[str]] = {one.name: one.once for one in specification.variables().values() if one.once}
#: Other variables that may hold the kubeconfig of a cluster.
_ALSO = {"kubenode_kubeconfig": ("join_token_create",)}


def role_findings(names: Iterable[str], role: str, host: str) -> list[str]:
    """A sentence for each of these names of variables of a host that is nearly one of a role's, each a warning, too."""
    return _warned(specification.unknown_of_roles([{**dict.fromkeys(names), "inventory_hostname": host}], [role]))


def user_data_of_hosts(hosts: Mapping[str, Any]) -> list[str]:
    """What is wrong with hosts that get user data together; a misspelt variable is a warning.

    ``hosts``: the variables of all; what the role node_user_data has kept of each one is among them.
    """
    kept = {name: variables[_USER_DATA] for name, variables in hosts.items() if _USER_DATA in variables}
    given = [{**dict.fromkeys(one["names"]), "inventory_hostname": name} for name, one in kept.items()]
    _warned(specification.unknown_of_roles(given, ("node_user_data", *user_data.ROLES)))
    files: dict[str, list[str]] = {}
    for name, one in kept.items():
        files.setdefault(one["path"], []).append(name)
    return [
        f"node_user_data_dest: {path} is the file of {listed(sorted(names))}; give each host its own, with "
        "inventory_hostname in the name"
        for path, names in files.items()
        if path and len(names) > 1
    ]


def _warned(sentences: list[str]) -> list[str]:
    for sentence in sentences:
        warn(sentence)
    return sentences


def image_server_findings(
    hosts: Iterable[Mapping[str, Any]], servers: Iterable[Mapping[str, Any]], folder: str
) -> list[str]:
    """A sentence for each thing that a server would leave out, and say so on its own page of status only.

    ``hosts`` and ``servers``: their variables. ``folder``: where servers of the role take descriptors from.
    """
    hosts, found = list(hosts), []
    names = [str(host.get("kubenode_image_name") or host["inventory_hostname"]) for host in hosts]
    given = [name for host, name in zip(hosts, names, strict=True) if host.get("kubenode_image_state") != "absent"]
    for server in servers:
        own = server.get("image_server_hosts")
        twice = [name for name in given if isinstance(own, Mapping) and name in own]
        who = server["inventory_hostname"]
        if twice:
            found.append(
                f"{listed(twice)}: {who} has an image of that name by its image_server_hosts, and would not serve a "
                "second one; take the host out there and run the role, or leave it out of this run"
            )
        dest = hosts[0].get("kubenode_image_dest") if hosts else None
        if dest and os.path.normpath(str(dest)) != folder:
            found.append(
                f"kubenode_image_dest is {one_line(dest, 200)}, but {who} serves the descriptors in {folder}; leave "
                "kubenode_image_dest out, which is for files on this controller"
            )
    return found


def variable_findings(hosts: Iterable[Mapping[str, Any]], playbook: str, roles: Iterable[str] = ()) -> list[str]:
    """A sentence for each contradiction among the variables of the hosts of a run.

    A misspelt variable is one of them. A variable with our prefix that is far from all of ours, or that the playbook
    does not use although one could think so, is a warning. ``playbook``: without ``kubenode.provision.``. ``roles``:
    those of this collection that it runs; a variable that is nearly one of theirs is a warning, too.
    """
    hosts = list(hosts)
    strangers = [*specification.unknown(hosts), *specification.unknown_of_roles(hosts, roles)]
    keeps_state = playbook in specification.variables()["kubenode_dir"].playbooks
    errors, warnings = controller_paths.findings(hosts) if keeps_state else ([], [])
    # What a machine needs and does not use depends on how it is made, also where one playbook makes all kinds.
    kinds = site.by_way(hosts) if playbook == SITE else {}
    found = [*strangers, *unused(hosts, playbook), *_unused_of_kinds(kinds), *unsent(hosts, playbook), *warnings]
    _warned([*found, *named_strangers(hosts, playbook)])
    found = [
        *specification.misspelt(hosts, playbook),
        *mistyped(hosts, playbook),
        *_of_kinds(mistyped, kinds),
        *refused(hosts, playbook),
        *_of_kinds(refused, kinds),
        *misfits(hosts, playbook),
        *shared(hosts, playbook),
        *unsendable(hosts, playbook),
        *forged(hosts, playbook),
        *unthrottled(hosts, playbook),
        *missing(hosts, playbook),
        *_of_kinds(missing, kinds),
        *errors,
    ]
    return list(dict.fromkeys(found))


def _of_kinds(
    check: Callable[[Iterable[Mapping[str, Any]], str], list[str]], kinds: Mapping[str, Iterable[Mapping[str, Any]]]
) -> list[str]:
    return [finding for way, hosts in kinds.items() for finding in check(hosts, way)]


def _unused_of_kinds(kinds: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[str]:
    """A variable of the command line is for those machines of a mixed fleet that take it."""
    found = [unused(hosts, way) for way, hosts in kinds.items()]
    given = [f"{name}, " for name in specification.of_the_command_line()]
    taken = tuple(name for name in given if not all(any(one.startswith(name) for one in of_way) for of_way in found))
    return [one for of_way in found for one in of_way if not one.startswith(taken)]


def refused(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each contradiction among the variables of the hosts of a run."""
    hosts, found = _of_users(hosts), []
    for pair in PAIRS:
        both = [
            host for host in hosts if playbook in pair.playbooks and _has(host, pair.one) and _has(host, pair.other)
        ]
        if both:
            first = both[0]
            found.append(
                f"{_names(both)}: {pair.one} is {_value(first, pair.one)} and {pair.other} is "
                f"{_value(first, pair.other)}; {pair.fix}"
            )
    for one in FOREIGN:
        strange = [host for host in hosts if playbook in one.playbooks and _has(host, one.variable)]
        if strange:
            found.append(f"{_names(strange)}: {one.variable} is {_value(strange[0], one.variable)}: {one.instead}")
    hidden = [host for host in hosts if playbook == HCLOUD and _is_private(host)]
    if hidden:
        found.append(
            f"{_names(hidden)}: kubenode_enable_ipv4 and kubenode_enable_ipv6 are false, but hcloud_image_url writes a "
            "machine in Hetzner's rescue, which has its network on the public interface; leave one of the two enabled, "
            "or make the machine of a node image by hcloud_image_name"
        )
    gone = [host for host in hosts if playbook == SITE and host.get("join_state") == "absent"]
    if gone:
        found.append(
            f"{_names(gone)}: join_state is 'absent', but site makes nodes; kubenode.provision.node_join with it lets "
            "a machine leave its cluster"
        )
    for variable, playbooks in OF_THE_RUN.items():
        if variable == _KNOWN and variable in specification.of_the_command_line():
            continue  # the same for all, and too large to be compared for each
        unlike = [host for host in hosts if playbook in playbooks and host.get(variable) != hosts[0].get(variable)]
        if unlike:
            found.append(
                f"{variable} is {_value(hosts[0], variable)} for {_names(hosts[:1])} and {_value(unlike[0], variable)} "
                f"for {_names(unlike)}, but it counts for the whole run; give all machines of a run the same, or run "
                "the playbook once for each value with --limit"
            )
    return found


def misfits(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each value of a wrong kind, and for each address, user and port that ssh must not be given.

    Playbooks that write machines have a check of their own, which reports these with everything else.
    """
    found = []
    for host in [] if playbook in _INSTALLING else _of_users(hosts):
        wrong = specification.mistyped(host, playbook, but=_KNOWN)
        wrong.update(_of_images(host) if playbook == LIVE else {})
        given = {"kubenode_address": "address", "kubenode_os_user": "os_user", "kubenode_os_port": "os_port"}
        access_of = {
            option: host.get(variable)
            for variable, option in given.items()
            if variable in host and variable not in wrong
        }
        names = {option: variable for variable, option in given.items()}
        texts = [in_variables(text, names) for text in ssh_access.access_findings(access_of)]
        found += [f"{_names([host])}: {text}" for text in (*wrong.values(), *texts, *specification.ways(host))]
    return found


def _of_images(host: Mapping[str, Any]) -> dict[str, str]:
    """Finding by variable: what the module of live images would refuse, and the specification does not know.

    The module is called once for all hosts; Ansible would refuse the call in its own words, and name neither of both.
    """
    # other playbooks do not need it, and its import takes time
    from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build

    found: dict[str, str] = {}
    spec = image_build.argument_spec()
    for name, option in {**spec, **spec["hosts"]["options"]}.items():
        variable = f"{specification.PREFIX}image_{name}"
        value, specified = host.get(variable), specification.variables().get(variable)
        members = option.get("options")
        if value is None or specified is None or not (members or specified.type == "raw"):
            continue
        many = members and option["type"] == "list"
        kind = {"type": "dict" if many else option["type"], "no_log": specified.secret}
        kind.update({"options": members} if members else {})
        for at, entry in enumerate(value if many and isinstance(value, list) else [value]):
            wrong = wrong_value(kind, entry)
            if wrong:
                found.setdefault(variable, f"{variable}{f'[{at}]' if many else ''} {wrong}")
    return found


def shared(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each server, and each address of one, that more than one machine names as its own."""
    found = []
    for variable, playbooks in _OWN.items():
        whose: dict[str, list[Mapping[str, Any]]] = {}
        for host in _of_users(hosts) if playbook in playbooks else ():
            fallback = specification.variables()[variable].fallback if variable in specification.variables() else ""
            fallback = "inventory_hostname" if variable == _IMAGE_NAME else fallback
            value = host.get(variable) if _has(host, variable) or not fallback else host.get(fallback)
            if value and not isinstance(value, (list, dict)):
                whose.setdefault(str(value).strip().lower(), []).append(host)
        found += [
            f"{_names(these)}: {variable} is {one_line(value, 60)} for each of them; give each machine its own"
            for value, these in whose.items()
            if len(these) > 1
        ]
    return found


def unsendable(hosts: Sequence[Mapping[str, Any]], playbook: str) -> list[str]:
    """Why the report could not be sent; found out before the run, as the callback learns it at the end."""
    if not report_files.is_enabled() or _URL not in {one.name for one in specification.taken_by(playbook)}:
        return []
    given, name = (hosts[0].get(_URL) if hosts else None), _URL
    if given is None:
        given, name = report_files.notify_url(), "notify_url of the callback (KUBENODE_NOTIFY_URL or ansible.cfg)"
    # What is no text is a finding already; one of a vault is no str before ansible-core 2.19.
    wrong = exports.wrong_address(str(given)) if given and not isinstance(given, (list, dict)) else ""
    return [f"{name}: {wrong}"] if wrong else []


def forged(hosts: Sequence[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each thing that no run can have handed on; it counts for the whole run."""
    taken = playbook in specification.variables()[_KNOWN].playbooks
    given = hosts[0].get(_KNOWN) if hosts and taken else None
    return [f"{_KNOWN}: {text}" for text in ssh_access.handed_on_findings(given)] if given else []


def unthrottled(hosts: Sequence[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for a number of machines that there cannot be; a text that is no number is found with other inputs."""
    name = "kubenode_throttle"
    value = hosts[0].get(name) if hosts and playbook in specification.variables()[name].playbooks else None
    text = str(value).strip()
    if not isinstance(value, bool) and not (text.startswith("-") and whole_number(text[1:])):
        return []
    return [f"{name} {one_line(text, 60)}: use a number of machines, or 0 for all of them"]


def mistyped(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each host whose name no machine can have, and for each value that its option cannot have."""
    purpose = _PURPOSES.get(playbook)
    return machine_specs.refusals(_of_users(hosts), purpose) if purpose else []


def named_strangers(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence about names in a permission that no host of the whole inventory has: one of them may be misspelt."""
    known: set[str] = set()
    named: set[str] = set()
    for host in hosts if playbook in specification.variables()["kubenode_reinstall"].playbooks else ():
        groups = host.get("groups")
        known.update(map(str, groups.get("all") or ()) if isinstance(groups, Mapping) else ())
        named.update(consent.Words("reinstall", host.get("kubenode_reinstall")))
    strange = [one_line(name, 63) for name in sorted(named - known)] if known else []
    if not strange:
        return []
    which = "which is no host" if len(strange) == 1 else "which are no hosts"
    return [f"kubenode_reinstall names {listed(strange)}, {which} of the inventory; correct it, or leave it out"]


def missing(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for a kubeconfig that is not there; it is read when the machines have been written."""
    found = []
    for host in hosts if playbook in _INSTALLING else ():
        path = host.get(_CONFIG)
        if path and isinstance(path, str):
            try:
                controller_paths.find(path, controller_paths.inventory_dir_of(host))
            except controller_paths.NotThere as error:
                found.append(f"{_names([host])}: {_CONFIG}: {error}")
    return found[:1]  # it counts for the whole run


def unused(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence for each variable that the playbook does not use although one could think so."""
    hosts, found = _of_users(hosts), []
    for one in UNUSED:
        these = [host for host in hosts if playbook in one.playbooks and _is_unused(host, one)]
        if these:
            found.append(f"{one.variable}, set for {_names(these)}, is not used by {playbook}: {one.instead}")
    return found


def unsent(hosts: Iterable[Mapping[str, Any]], playbook: str) -> list[str]:
    """A sentence about what only the report callback does, when that is not enabled."""
    if report_files.is_enabled() or "kubenode_notify_url" not in {one.name for one in specification.taken_by(playbook)}:
        return []
    set_here = [name for name in ("kubenode_notify_url",) if any(_has(host, name) for host in hosts)]
    set_here += [name for name in ("KUBENODE_NOTIFY_URL", "KUBENODE_METRICS_FILE") if os.environ.get(name)]
    if not set_here:
        return []
    return [
        f"{listed(set_here)} is set, but nothing will be sent or written: the callback {CALLBACK} does that, and it "
        f"is not enabled. Set ANSIBLE_CALLBACKS_ENABLED={CALLBACK}, or callbacks_enabled in ansible.cfg"
    ]


def _of_users(hosts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the temporary machines of node images, whose variables a playbook has made."""
    return [host for host in hosts if "kubenode_build" not in host and "kubenode_tarball" not in host]


def _is_unused(host: Mapping[str, Any], one: Unused) -> bool:
    if not _has(host, one.variable):
        return False
    if one.of:
        return host.get(one.of) in one.values
    return not (one.unless and any(_has(host, name) for name in (one.unless, *_ALSO.get(one.unless, ()))))


def _has(host: Mapping[str, Any], variable: str) -> bool:
    """Whether it says anything; a zero or false is how one says no."""
    return bool(host.get(variable))


def _is_private(host: Mapping[str, Any]) -> bool:
    """Whether its server gets no public address."""
    return all(truth(host.get(f"kubenode_enable_{kind}")) is False for kind in ("ipv4", "ipv6"))


def _value(host: Mapping[str, Any], variable: str) -> str:
    value = host.get(variable)
    if value is None:
        return "not set"
    specified = specification.variables().get(variable)
    if specified and specified.secret and variable != "kubenode_image_url":
        return "(hidden)"
    if isinstance(value, str) and variable == "kubenode_image_url":
        value = image_url.redact(value)
    if isinstance(value, Mapping) and "url" in value:
        value = {**value, "url": image_url.redact(str(value["url"]))}
    return one_line(json.dumps(value, default=str, ensure_ascii=False), 100)


def _names(hosts: Sequence[Mapping[str, Any]]) -> str:
    return listed([str(host["inventory_hostname"]) for host in hosts])
