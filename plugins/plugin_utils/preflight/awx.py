# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook ``awx`` makes in AWX, as options of the modules of awx.awx (pure).

No secret is in a plan: the playbook adds the inputs of a credential by its ``what``.

Surveys come from the specification of variables. An answer becomes an extra variable, which counts more than any
inventory. So no question has a default, and one that is not answered sets nothing. An answer is a text, a number or a
list of choices; what is a dictionary, a list of dictionaries or a word of consent is no question: it belongs in the
inventory, or in the extra variables of a launch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypedDict

from ansible_collections.kubenode.provision.plugins.module_utils._common import web

from . import specification
from .specification import Variable

PLAYBOOK = "awx"
Item = dict[str, Any]

#: Kind of credential → its type's title, its fields (name, label, secret, multiline) and what jobs get of it.
_TYPES: dict[str, tuple[str, tuple[tuple[str, str, bool, bool], ...], Item]] = {
    "hcloud": (
        "Hetzner Cloud",
        (("token", "API token of the project", True, False),),
        {"env": {"HCLOUD_TOKEN": "{{ token }}"}},
    ),
    "robot": (
        "Hetzner Robot",
        (("user", "User of the webservice", False, False), ("password", "Password", True, False)),
        {"env": {"HROBOT_API_USER": "{{ user }}", "HROBOT_API_PASSWORD": "{{ password }}"}},
    ),
    "registry": (
        "image registry",
        (("token", "OCI token, USER:PASSWORD or a bearer token", True, False),),
        {"env": {"OCI_REGISTRY_AUTH_TOKEN": "{{ token }}"}},
    ),
    "kubeconfig": (
        "kubeconfig",
        (("kubeconfig", "Content of the file", True, True),),
        {
            "file": {"template": "{{ kubeconfig }}"},
            "env": {"K8S_AUTH_KUBECONFIG": "{{ tower.filename }}"},
            "extra_vars": {"kubenode_kubeconfig": "{{ tower.filename }}"},
        },
    ),
}
#: AWX's own type for keys; jobs get them by an SSH agent.
_MACHINE = "Machine"
#: Dynamic source → its file in the project. The plugins know theirs by the end of the name.
_SOURCES = {"hcloud": "inventory/hcloud.yml", "robot": "inventory/robot.yml"}
_MACHINES = "inventory/machines.yml"
#: What a survey asks when the user does not say it.
_ASKED: dict[str, tuple[str, ...]] = {
    "hcloud_image_url": (
        "kubenode_image_url", "kubenode_image_url_command", "kubenode_server_type", "kubenode_location",
    ),
    "hcloud_image_name": ("kubenode_image_name", "kubenode_server_type", "kubenode_location"),
    "robot_inspect": ("kubenode_first_contact",),
    "robot_image_url": ("kubenode_image_url", "kubenode_image_url_command", "kubenode_first_contact"),
    "robot_installimage": ("kubenode_first_contact",),
    "site": (
        "kubenode_image_name", "kubenode_image_url", "kubenode_image_url_command",
        "kubenode_first_contact",
    ),
}  # fmt: skip
#: Playbooks that may reset dedicated servers: Robot counts the resets of an account, in all jobs together.
_RESETTING = ("robot_inspect", "robot_image_url", "robot_installimage", "robot_release", "site")
#: Seconds until an approval that is not given ends its workflow.
_APPROVAL = 7 * 24 * 3600


def awx_plan(host: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> Item:
    """What the variables of ``host`` ask for, and ``errors``; nothing is to be made when there are some.

    ``secrets``: the inputs of each kind of credential, of which it is only looked whether they are there.
    """
    taken = {one.name: one for one in specification.taken_by(PLAYBOOK)}
    wish = {
        name.removeprefix("kubenode_awx_"): one.default if host.get(name) is None else host[name]
        for name, one in taken.items()
    }
    name, organization = str(wish["name"]), str(wish["organization"])
    kinds, workflows = list(wish["credentials"]), list(wish["workflows"])
    named = [*wish["playbooks"], *(step for one in workflows for _node, step, _check in _steps(one) if step)]
    playbooks = list(dict.fromkeys(named))
    given = {what for what, inputs in secrets.items() if inputs and all(inputs.values())}
    plan: Item = {"errors": _errors(wish, playbooks, given)}
    if plan["errors"]:
        return plan
    every = {"organization": organization}
    plan["organization"] = {
        "name": organization,
        "galaxy_credentials": list(wish["galaxy_credentials"]) or None,
    }
    plan["types"] = [_credential_type(name, what) for what in _TYPES]
    plan["credentials"] = [
        {"what": what, "name": f"{name} {what}", "credential_type": _type_name(name, what), **every} for what in kinds
    ]
    plan["environment"] = {"name": name, "image": str(wish["image"]), **every}
    plan["project"] = {
        "name": name,
        "scm_url": str(wish["project_url"]),
        "scm_branch": str(wish["project_branch"] or ""),
        "default_environment": name,
        **every,
    }
    plan["inventory"] = {"name": name, **every}
    plan["sources"] = [
        {
            "name": f"{name} {what}",
            "inventory": name,
            "source_project": name,
            "source_path": path,
            "execution_environment": name,
            "credential": f"{name} {what}" if what in kinds else None,
            **every,
        }
        for what, path in {"machines": _MACHINES, **{one: _SOURCES[one] for one in wish["sources"]}}.items()
    ]
    asked = {one: _survey(one, wish["surveys"]) for one in playbooks}
    plan["templates"] = [
        {
            "name": f"{name} {one}",
            "playbook": f"{one}.yml",
            "project": name,
            "inventory": name,
            "execution_environment": name,
            "credentials": [f"{name} {what}" for what in kinds if what != "kubeconfig" or _posts(one)] or None,
            "job_slice_count": int(wish["slices"]),
            "survey_enabled": None if asked[one] is None else bool(asked[one]),
            "survey_spec": asked[one],
            "extra_vars": _extra_vars(one, name, wish),
            **every,
        }
        for one in playbooks
    ]
    plan["workflows"] = [
        {
            "name": f"{name} workflow {one}",
            "survey_enabled": None if asked[one] is None else bool(asked[one]),
            "survey_spec": {**spec, "name": f"{name} workflow {one}"} if (spec := asked[one]) else spec,
            "workflow_nodes": _nodes(name, organization, one),
            **every,
        }
        for one in workflows
    ]
    plan["files"] = project_files(playbooks, list(wish["sources"]), str(wish["hosts"]))
    return plan


def _errors(wish: Mapping[str, Any], playbooks: Iterable[str], given: Collection[str]) -> list[str]:
    known = specification.playbooks() - {PLAYBOOK}
    found = [
        f"{one} is no playbook with a job; there are {', '.join(sorted(known))}"
        for one in playbooks
        if one not in known
    ]
    for what in wish["credentials"]:
        if what not in given:
            found.append(f"kubenode_awx_credentials names {what}, and its secrets are missing: {_WHENCE[what]}")
    if int(wish["slices"]) < 1:
        found.append("kubenode_awx_slices must be 1 or more")
    if int(wish["slices"]) > 1 and not wish["dir"]:
        resetting = sorted({*playbooks} & {*_RESETTING})
        if resetting:
            found.append(
                f"kubenode_awx_slices is {wish['slices']}, and {', '.join(resetting)} may reset dedicated servers: "
                "without kubenode_awx_dir the jobs do not know of each other's resets, and Robot allows few an hour"
            )
    for one, names in wish["surveys"].items():
        try:
            _survey(one, {one: names})
        except (ValueError, TypeError) as error:
            found.append(f"kubenode_awx_surveys: {error}")
    return found


#: Where the secrets of a credential come from.
_WHENCE = {
    "hcloud": "HCLOUD_TOKEN of the environment",
    "robot": "HROBOT_API_USER and HROBOT_API_PASSWORD of the environment",
    "registry": "OCI_REGISTRY_AUTH_TOKEN of the environment",
    "kubeconfig": "kubenode_awx_kubeconfig_file",
    "ssh": "kubenode_awx_ssh_key_file",
}


def _type_name(name: str, what: str) -> str:
    return f"{name} {_TYPES[what][0]}" if what in _TYPES else _MACHINE


def _credential_type(name: str, what: str) -> Item:
    _title, fields, injectors = _TYPES[what]
    return {
        "name": _type_name(name, what),
        "inputs": {
            "fields": [
                {"id": key, "label": label, "type": "string"}
                | ({"secret": True} if secret else {})
                | ({"multiline": True} if multiline else {})
                for key, label, secret, multiline in fields
            ],
            "required": [key for key, *_more in fields],
        },
        "injectors": injectors,
    }


def _survey(playbook: str, chosen: Mapping[str, Any]) -> Item | None:
    """Empty where nothing is to be asked: AWX takes no survey without questions, and deletes the one that was.

    None where no survey is ours: one that a person made stays.
    """
    if playbook not in chosen and not _ASKED.get(playbook):
        return None
    names = chosen.get(playbook, _ASKED.get(playbook, ()))
    if not isinstance(names, (list, tuple)):
        raise ValueError(f"{playbook}: give a list of variables")
    found = survey(playbook, names)
    # there, no names stand for all that can be asked
    return {**found} if names else {}


def _extra_vars(playbook: str, name: str, wish: Mapping[str, Any]) -> Item:
    found = {"kubenode_hosts": wish["hosts"], "kubenode_dir": wish["dir"], "kubenode_image_owner": f"awx {name}"}
    takes = {one.name for one in specification.taken_by(playbook)}
    return {variable: str(value) for variable, value in found.items() if value and variable in takes}


def _posts(playbook: str) -> bool:
    """Whether a playbook may talk to a cluster; another one would say that it does not need the kubeconfig."""
    return any(one.name == "kubenode_kubeconfig" for one in specification.taken_by(playbook))


def _steps(playbook: str) -> list[tuple[str, str, bool]]:
    """The nodes of a workflow: what each is, its playbook (an approval has none), and whether it only checks."""
    look = "robot_inspect" if playbook.startswith("robot_") else playbook
    node = [] if playbook == "site" else [("node", "node", False)]
    return [("inspect", look, look == playbook), ("approve", "", False), ("write", playbook, False), *node]


def _nodes(name: str, organization: str, playbook: str) -> list[Item]:
    steps = _steps(playbook)
    nodes: list[Item] = []
    for place, (step, runs, check) in enumerate(steps):
        node: Item = {"identifier": step}
        if runs:
            node["unified_job_template"] = {
                "name": f"{name} {runs}",
                "type": "job_template",
                "organization": {"name": organization},
            }
        else:
            node["unified_job_template"] = {
                "name": f"{name} approve {playbook}",
                "type": "workflow_approval",
                "description": "The job before shows what would be written.",
                "timeout": _APPROVAL,
            }
        if check:
            node["job_type"] = "check"
        after = [{"identifier": other} for other, *_more in steps[place + 1 : place + 2]]
        node["related"] = {"success_nodes": after}
        nodes.append(node)
    return nodes


def project_files(playbooks: Iterable[str], sources: Iterable[str], hosts: str) -> list[Item]:
    """The files of the project; ``keep``: a person writes on in it, so one that is there stays."""
    collections = [
        "kubenode.provision",
        "hetzner.hcloud",
        "community.hrobot",
        "community.library_inventory_filtering_v1",
    ]
    required = [{"name": one} | ({"version": web.VERSION} if one == collections[0] else {}) for one in collections]
    dynamic = {
        "hcloud": {"plugin": "hetzner.hcloud.hcloud"},
        "robot": {"plugin": "community.hrobot.robot", "compose": {"kubenode_server_number": "hrobot_server_number"}},
    }
    files: list[tuple[str, str, bool]] = [
        ("ansible.cfg", "[defaults]\ncallbacks_enabled = kubenode.provision.provision_report\n", True),
        ("collections/requirements.yml", _yaml({"collections": required}), True),
        (_MACHINES, _yaml({hosts: {"hosts": {}}}), True),
        *((_SOURCES[one], _yaml(dynamic[one]), True) for one in sources),
    ]
    for one in playbooks:
        play = {"name": f"Run {one}", "ansible.builtin.import_playbook": f"kubenode.provision.{one}"}
        files.append((f"{one}.yml", _yaml([play]), False))
    return [{"path": path, "content": content, "keep": keep} for path, content, keep in files]


def _yaml(value: Any) -> str:
    """Every JSON text is YAML."""
    return "---\n" + json.dumps(value, indent=2) + "\n"


#: Part of a plan → the list of AWX's API where its names are.
_LISTS = {
    "organization": "organizations",
    "types": "credential_types",
    "credentials": "credentials",
    "environment": "execution_environments",
    "project": "projects",
    "inventory": "inventories",
    "sources": "inventory_sources",
    "templates": "job_templates",
    "workflows": "workflow_job_templates",
}
#: What an option names, by the part of a plan that makes it.
_NEEDS = {
    "organization": "organization",
    "credential_type": "types",
    "credential": "credentials",
    "credentials": "credentials",
    "default_environment": "environment",
    "execution_environment": "environment",
    "project": "project",
    "source_project": "project",
    "inventory": "inventory",
}


def awx_lists(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """The lists of the API, and the names that are looked for in them."""
    return {path: [str(one["name"]) for one in _items(plan, part)] for part, path in _LISTS.items()}


def awx_waiting(plan: Mapping[str, Any], there: Mapping[str, Iterable[str]]) -> list[str]:
    """What a check run cannot try, since something that it needs is not there yet: "templates/kubenode site"."""
    lacking = {
        (part, one["name"])
        for part, path in _LISTS.items()
        for one in _items(plan, part)
        if one["name"] not in set(there.get(path, ()))
    }
    waiting = []
    for part in _LISTS:
        for one in _items(plan, part):
            needs = {(_NEEDS[key], name) for key in _NEEDS if key in one for name in _listed(one[key])}
            for node in one.get("workflow_nodes", ()):
                if node["unified_job_template"]["type"] == "job_template":
                    needs.add(("templates", node["unified_job_template"]["name"]))
            # a workflow that is not there has no nodes to compare
            if needs & lacking or (part == "workflows" and (part, one["name"]) in lacking):
                waiting.append(f"{part}/{one['name']}")
    return waiting


def awx_settled(plan: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The workflows whose nodes are in AWX as the plan has them; ``nodes``: what the API says of all of theirs.

    awx.awx says at every run that it changed an approval: it sends fields that no approval has, and misses them then.
    """
    there: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        there.setdefault(node["summary_fields"]["workflow_job_template"]["name"], []).append(node)
    settled = []
    for one in plan["workflows"]:
        named = {node["id"]: node["identifier"] for node in there.get(one["name"], ())}
        found = [
            {
                "identifier": node["identifier"],
                "runs": node["summary_fields"].get("unified_job_template", {}).get("name"),
                "job_type": node["job_type"],
                "after": sorted(named[other] for other in node["success_nodes"] if other in named),
            }
            for node in there.get(one["name"], ())
        ]
        wanted = [
            {
                "identifier": node["identifier"],
                "runs": node["unified_job_template"]["name"],
                "job_type": node.get("job_type"),
                "after": sorted(other["identifier"] for other in node["related"]["success_nodes"]),
            }
            for node in one["workflow_nodes"]
        ]
        if all(node in found for node in wanted):
            settled.append(one["name"])
    return settled


def _items(plan: Mapping[str, Any], part: str) -> list[Item]:
    found = plan[part]
    return found if isinstance(found, list) else [found]


def _listed(value: Any) -> list[str]:
    return [] if value is None else list(value) if isinstance(value, list) else [str(value)]


class Question(TypedDict, total=False):
    """A question as AWX takes it."""

    variable: str
    question_name: str
    question_description: str
    type: str
    required: bool
    choices: list[str]
    min: int
    max: int


class Survey(TypedDict):
    """The option ``survey_spec`` of awx.awx.job_template."""

    name: str
    description: str
    spec: list[Question]


#: AWX takes no longer answer to a question of text.
_LONGEST = 1024
_MOST = 2**31 - 1
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def survey(playbook: str, names: Iterable[str] = (), required: Collection[str] = ()) -> Survey:
    """The survey of a playbook, what must be answered first.

    ``names``: the variables that are asked for, in this order; all that can be asked for without them. ``required``:
    those that must be answered. Raises ValueError for a playbook without variables, and for a name that it does not
    take or that no question can give.
    """
    if playbook not in specification.playbooks():
        raise ValueError(
            f"survey: {playbook!r} takes no variables; use one of {', '.join(sorted(specification.playbooks()))}"
        )
    taken = {one.name: one for one in specification.taken_by(playbook)}
    names = list(names)
    wrong = [name for name in [*names, *required] if name not in taken or not _kind(taken[name])]
    if wrong:
        raise ValueError(f"survey: {', '.join(wrong)}: no question of {playbook} can give it")
    asked = [taken[name] for name in names] or [one for one in taken.values() if _kind(one)]
    asked = sorted(asked, key=lambda one: one.name not in required)
    return {
        "name": f"kubenode.provision.{playbook}",
        "description": "What is not answered stays as the inventory has it.",
        "spec": [_question(one, playbook, one.name in required) for one in asked],
    }


def _kind(variable: Variable) -> str:
    """The type of a question, empty for a variable that no question can give."""
    if variable.type == "list" and variable.elements == "str":
        return "multiselect" if variable.choices else "text"
    if variable.type == "bool" or variable.choices:
        return "multiplechoice"
    if variable.secret:
        return "password" if variable.type == "str" else ""
    return {"int": "integer", "float": "float", "str": "text", "path": "text"}.get(variable.type, "")


def _question(variable: Variable, playbook: str, required: bool) -> Question:
    kind = _kind(variable)
    found: Question = {
        "variable": variable.name,
        "question_name": variable.name.removeprefix("kubenode_").replace("_", " "),
        "question_description": _description(variable, playbook),
        "type": kind,
        "required": required,
    }
    if kind in ("multiplechoice", "multiselect"):
        found["choices"] = [str(choice) for choice in variable.choices] or ["true", "false"]
    if kind in ("text", "password"):
        found["min"], found["max"] = 1, _LONGEST
    if kind == "integer":
        found["min"], found["max"] = 0, _MOST
    return found


def _description(variable: Variable, playbook: str) -> str:
    text = plain(variable.says)
    if variable.type == "list" and not variable.choices:
        text += " (separated by commas)"
    default = variable.defaults.get(playbook, variable.default)
    if variable.default_says:
        text += f"; default: {plain(variable.default_says)}"
    elif default not in (None, [], {}):
        shown = str(default).lower() if isinstance(default, bool) else default
        text += f"; default: {', '.join(map(str, shown)) if isinstance(shown, list) else shown}"
    return text


def plain(text: str) -> str:
    """A text of the specification without its Markdown."""
    return _LINK.sub(r"\1", text).replace("`", "")
