# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lists of machines that the modules take, made of the variables of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleFilterError
from ansible.plugins.loader import connection_loader

from ansible_collections.kubenode.provision.plugins.module_utils._common import names
from ansible_collections.kubenode.provision.plugins.module_utils._common import option_values as values
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_orders import words
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.spec import IMAGES

from ..shown_warnings import warn
from . import controller_paths, specification

#: What a list of machines is for; for most of them the module of that name.
PURPOSES = (
    "access", "hcloud_machine", "image_url_check", "installimage_check", "robot_rescue", "robot_server", "wanted",
)  # fmt: skip
#: What the playbooks themselves set for a temporary machine.
_OF_BUILDS = {"architecture": "kubenode_architecture"}
_ARCHITECTURES = {"type": "str", "choices": ["x86", "arm"]}
#: Paths that a module takes as they are; others are found by those who read the file.
_FOUND_HERE = frozenset(["kubenode_command_dir", "kubenode_os_private_key", "kubenode_user_data_file"])
#: Modules with the option ``access``.
_WITH_ACCESS = ("hcloud_rescue", "robot_rescue")
#: Modules that check options of the modules after them.
_CHECKS = {"image_url_check": options.image_url_check_spec, "installimage_check": options.installimage_check_spec}


def machine_specs(hosts: Iterable[Mapping[str, Any]], purpose: str) -> list[dict[str, Any]]:
    """See the filter ``machine_specs``; raises AnsibleFilterError with every wrong value of every machine."""
    if purpose not in PURPOSES:
        raise AnsibleFilterError(f"machine_specs: purpose is {purpose!r}; use one of {', '.join(PURPOSES)}")
    hosts = list(hosts)
    specs, refused = _specs(hosts, purpose)
    if purpose == "robot_rescue" and "kubenode_first_contact" not in specification.of_the_command_line():
        # A permission in an inventory is there in every later run, too.
        specs = [{**spec, "first_contact": "once"} if spec.get("first_contact") == "reset" else spec for spec in specs]
    if refused:
        raise AnsibleFilterError("nothing was changed: " + "; ".join(refused))
    for sentence in [*specification.misspelt(hosts), *specification.unknown(hosts)]:
        warn(sentence)
    return specs


def refusals(hosts: Iterable[Mapping[str, Any]], purpose: str) -> list[str]:
    """A sentence for each name that no machine can have, and for each value that Ansible would refuse in its words."""
    return _specs(hosts, purpose)[1]


def _specs(hosts: Iterable[Mapping[str, Any]], purpose: str) -> tuple[list[dict[str, Any]], list[str]]:
    specs, refused = [], []
    for host in hosts:
        if not isinstance(host, Mapping) or "inventory_hostname" not in host:
            raise AnsibleFilterError("machine_specs: feed it host variables: groups['…'] | map('extract', hostvars)")
        error = names.machine_error(host["inventory_hostname"])
        if error is not None:
            refused.append(
                f"the host {host['inventory_hostname']!r:.100} of the inventory cannot be a machine: {error}"
            )
        spec = {"name": host["inventory_hostname"]}
        for key, variables in _variables(purpose).items():
            for variable in variables:
                value = specification.os_port(host) if key == "os_port" else host.get(variable)
                if value is not None:
                    spec[key] = controller_paths.as_found(value, host) if variable in _FOUND_HERE else value
                    wrong = _wrong(purpose, key, variable, value)
                    if (
                        wrong
                        and purpose in _CHECKS
                        and _is_mistyped(variable, value)
                        and not _is_required(purpose, key)
                    ):
                        del spec[key]  # the check says it, with everything else
                    elif wrong:
                        refused.append(f"{host['inventory_hostname']}: {variable} {wrong}")
                    break
        if purpose == "access":
            spec.update({"ssh_args": args} if (args := _ssh_args(host)) else {})
        if values.truth(spec.get("enable_ipv4")) is False and not host.get("kubenode_address"):
            spec["ssh_args"] = _ssh_args(host)
        specs.append(_as_recorded(spec) if purpose == "wanted" else spec)
    return specs, refused


_OF_IMAGES = "kubenode_image_"


def variable_names(module: str) -> dict[str, Any]:
    """For messages: the options of a module and of its machines, and the variables that hold them.

    Of ``machine_install``, the same for each of its steps.
    """
    if module == "preprov_image_build":  # each of its options is one variable, and is called like it
        listed = specification.taken_by("preprov_images")
        found = {one.name.removeprefix(_OF_IMAGES): one.name for one in listed if one.name.startswith(_OF_IMAGES)}
        return {**found, "hosts[].name": _OF_IMAGES + "name"}
    if module == "machine_install":
        return {step: specification.of_step(step) for step in specification.STEPS}
    more = specification.of_machines("access") if module in _WITH_ACCESS else {}
    of_machines = {key: variables[0] for key, variables in {**more, **specification.of_machines(module)}.items()}
    found = {**of_machines, **specification.of_options(module), **specification.of_step(module)}
    if not found:
        raise AnsibleFilterError(f"variable_names: no variable becomes an option of {module!r}")
    return {**found, "ssh_private_key": "ansible_ssh_private_key_file", "ssh_args": "ansible_ssh_common_args"}


#: How ssh hears of jump hosts and the like; as for Ansible's own connection, in variables, files and options.
_SSH_ARGS = ("ssh_args", "ssh_common_args", "ssh_extra_args")


def _ssh_args(host: Mapping[str, Any]) -> str:
    """The arguments with which Ansible starts ssh for a host, without those that are its default."""
    connection_loader.get("ssh", class_only=True)  # its options are known from then on
    found = [
        C.config.get_config_value_and_origin(option, plugin_type="connection", plugin_name="ssh", variables=host)
        for option in _SSH_ARGS
    ]
    return " ".join(str(value) for value, origin in found if value and origin != "default")


def _variables(purpose: str) -> dict[str, tuple[str, ...]]:
    found = specification.of_machines(purpose)
    return {**found, **{key: (name,) for key, name in _OF_BUILDS.items()}} if purpose == "hcloud_machine" else found


def _wrong(purpose: str, key: str, variable: str, value: Any) -> str:
    """What is wrong with a value, where Ansible would refuse it by the name of the option."""
    if purpose == "hcloud_machine":
        # what stands in for a variable has its kind
        specified = specification.variables().get(_variables(purpose)[key][0])
        return values.wrong_value(specified.kind if specified else _ARCHITECTURES, value)
    if purpose in _CHECKS:
        options: dict[str, dict[str, Any]] = _CHECKS[purpose]()["machines"]["options"]
        return values.wrong_value(options[key], value) if key in options else ""
    return ""


def _is_required(purpose: str, key: str) -> bool:
    """Whether the check of these machines cannot be called without this value."""
    options: dict[str, dict[str, Any]] = _CHECKS[purpose]()["machines"]["options"]
    return bool(options[key].get("required"))


def _is_mistyped(variable: str, value: Any) -> bool:
    specified = specification.variables().get(variable)
    return specified is not None and bool(specification.wrong_kind(specified, value))


def _as_recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """As an installed record has it: without secrets, the digest apart; several types or locations as a list."""
    spec.update({key: words(spec[key]) for key in ("server_type", "location") if key in spec})
    url = spec.get("image_url")
    if isinstance(url, Mapping):
        # An image of installimage.
        place = url.get("url") or url.get("path") or (f"{IMAGES}/{url['name']}" if url.get("name") else "")
        if url.get("file"):
            place = ""  # on another controller it may lie elsewhere; its digest tells
        spec.update(
            image_url=image_url.redact(str(place)), image_digest=str(url.get("digest") or ""), command="installimage"
        )
    elif url is not None:
        spec.update(image_url=image_url.redact(str(url)), image_digest=image_url.digest_in(str(url)))
    return spec
