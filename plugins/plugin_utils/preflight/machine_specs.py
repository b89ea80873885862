# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lists of machines that the modules take, made of the variables of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.kubenode.provision.plugins.module_utils._common import names
from ansible_collections.kubenode.provision.plugins.module_utils._common import option_values as values
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_choices import words
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options

from . import controller_paths, known_variables

_ROBOT_SERVER: dict[str, tuple[str, ...]] = {
    "server_number": ("kubenode_server_number", "hrobot_server_number"),
    "server_ip": ("kubenode_server_ip",),
}
_ACCESS: dict[str, tuple[str, ...]] = {
    "os_user": ("kubenode_os_user",),
    "os_port": ("kubenode_os_port",),
    "os_private_key": ("kubenode_os_private_key",),
}
_KEYS: dict[str, tuple[str, ...]] = {"host_keys": ("kubenode_host_keys",)}
_PRE_PROVISION: dict[str, tuple[str, ...]] = {
    "pre_provision_command": ("kubenode_pre_provision_command",),
    "pre_provision_timeout": ("kubenode_pre_provision_timeout",),
}
#: For each purpose: key of the machine dictionary → variables that may hold it, the first one set wins.
VARIABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "access": {**_ACCESS, **_KEYS},
    "image_url_check": {
        "image_url": ("kubenode_image_url",),
        "command": ("kubenode_image_url_command",),
        "command_names": ("kubenode_command_names",),
        "require_digest": ("kubenode_require_digest",),
        "bootstrap_data": ("kubenode_bootstrap_data",),
        "bootstrap_data_file": ("kubenode_bootstrap_data_file",),
        "root_devices": ("kubenode_root_devices",),
        "oci_registry_auth_token": ("kubenode_registry_token",),
        "address": ("kubenode_address",),
        "drift": ("kubenode_drift",),
        **_PRE_PROVISION,
        **_ACCESS,
    },
    "hcloud_machine": {
        "server_type": ("kubenode_server_type", "hcloud_server_type"),
        "location": ("kubenode_location", "hcloud_location"),
        "image": ("kubenode_image_name", "kubenode_placeholder_image"),
        "image_newest": ("kubenode_image_newest",),
        "ssh_keys": ("kubenode_ssh_keys",),
        "labels": ("kubenode_labels",),
        "networks": ("kubenode_networks",),
        "firewalls": ("kubenode_firewalls",),
        "placement_group": ("kubenode_placement_group",),
        "enable_ipv4": ("kubenode_enable_ipv4",),
        "enable_ipv6": ("kubenode_enable_ipv6",),
        "user_data": ("kubenode_user_data",),
        "architecture": ("kubenode_architecture",),
        "adopt": ("kubenode_adopt",),
    },
    "installimage_check": {
        "image": ("kubenode_image",),
        "require_digest": ("kubenode_require_digest",),
        "oci_registry_auth_token": ("kubenode_registry_token",),
        "root_device_hints": ("kubenode_root_device_hints",),
        "address": ("kubenode_address",),
        "drift": ("kubenode_drift",),
        "swraid": ("kubenode_swraid",),
        "swraid_level": ("kubenode_swraid_level",),
        "partitions": ("kubenode_partitions",),
        "logical_volumes": ("kubenode_logical_volumes",),
        "subvolumes": ("kubenode_subvolumes",),
        "hostname": ("kubenode_hostname",),
        "post_install_script": ("kubenode_post_install_script",),
        "bootstrap_data": ("kubenode_bootstrap_data",),
        "bootstrap_data_file": ("kubenode_bootstrap_data_file",),
        "crypt_password": ("kubenode_crypt_password",),
        "remote_unlock": ("kubenode_remote_unlock",),
        "autosetup": ("kubenode_autosetup",),
        "network_config": ("kubenode_network_config",),
        **_PRE_PROVISION,
        **_ACCESS,
    },
    "robot_rescue": {**_ROBOT_SERVER, "first_contact": ("kubenode_first_contact",)},
    "wanted": {
        "image_url": ("kubenode_image_url", "kubenode_image"),
        "command": ("kubenode_image_url_command",),
        "server_type": ("kubenode_server_type", "hcloud_server_type"),
        "location": ("kubenode_location", "hcloud_location"),
        "proof": ("kubenode_proof",),
    },
    "robot_server": {**_ROBOT_SERVER, "rename": ("kubenode_server_name", "inventory_hostname")},
}
#: Options of a module that are no options of a machine; those of robot_rescue are of hcloud_rescue, too.
_OF_THE_RUN = {
    "image_url_check": {"command_dir": "kubenode_command_dir"},
    "installimage_check": {"command_dir": "kubenode_command_dir"},
    "hcloud_machine": {"delete": "kubenode_delete"},
    "robot_rescue": {
        "ssh_key_name": "kubenode_ssh_key_name",
        "ssh_keys": "kubenode_ssh_keys",
        "host_key_checking": "kubenode_host_key_checking",
        "reinstall": "kubenode_reinstall",
        "release": "kubenode_release",
        "drift": "kubenode_drift",
        "rescue_timeout": "kubenode_rescue_timeout",
        "give_back_after": "kubenode_give_back_after",
        "look_timeout": "kubenode_look_timeout",
        "ssh_timeout": "kubenode_ssh_reset_timeout",
        "sw_timeout": "kubenode_sw_reset_timeout",
        "hw_timeout": "kubenode_hw_reset_timeout",
        "power_timeout": "kubenode_power_reset_timeout",
        "on_reset_limit": "kubenode_on_reset_limit",
        "os_user": "kubenode_os_user",
        "os_port": "kubenode_os_port",
        "os_private_key": "kubenode_os_private_key",
    },
}
_LISTS = ("server_type", "location", "ssh_keys", "networks", "firewalls")
#: What hcloud_machine takes that Ansible would refuse by the names of its options.
_OF_CLOUD_MACHINES: dict[str, dict[str, Any]] = {
    **{name: {"type": "str"} for name in ("image", "placement_group")},
    **{name: {"type": "bool"} for name in ("image_newest", "enable_ipv4", "enable_ipv6", "adopt")},
    **{name: {"type": "list", "elements": "str"} for name in _LISTS},
    "labels": {"type": "dict"},
    "user_data": {"type": "str", "no_log": True},
    "architecture": {"type": "str", "choices": ["x86", "arm"]},
}
#: Modules that check options of the modules after them.
_CHECKS = {"image_url_check": options.image_url_check_spec, "installimage_check": options.installimage_check_spec}


def machine_specs(hosts: Iterable[Mapping[str, Any]], purpose: str) -> list[dict[str, Any]]:
    """See the filter ``machine_specs``; raises AnsibleFilterError with every wrong value of every machine."""
    if purpose not in VARIABLES:
        raise AnsibleFilterError(f"machine_specs: purpose is {purpose!r}; use one of {', '.join(sorted(VARIABLES))}")
    hosts, kinds = list(hosts), _kinds(purpose)
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
        for key, variables in VARIABLES[purpose].items():
            for variable in variables:
                value = known_variables.os_port(host) if key == "os_port" else host.get(variable)
                if value is not None:
                    spec[key] = controller_paths.as_found(value, host) if variable in controller_paths.PATHS else value
                    wrong = values.wrong_value(kinds[key], value) if key in kinds else ""
                    if wrong and variable in known_variables.KINDS and purpose in _CHECKS:
                        del spec[key]  # the check says it, with everything else
                    elif wrong:
                        refused.append(f"{host['inventory_hostname']}: {variable} {wrong}")
                    break
        specs.append(_as_recorded(spec) if purpose == "wanted" else spec)
    if purpose == "robot_rescue" and "kubenode_first_contact" not in _of_the_command_line():
        # A permission in an inventory is there in every later run, too.
        specs = [{**spec, "first_contact": "once"} if spec.get("first_contact") == "reset" else spec for spec in specs]
    if refused:
        raise AnsibleFilterError("nothing was changed: " + "; ".join(refused))
    for sentence in known_variables.unknown(hosts):
        Display().warning(sentence)
    return specs


def variable_names(purpose: str) -> dict[str, str]:
    """For messages: the options of a module and of its machines, and the variables that hold them."""
    if purpose not in VARIABLES:
        raise AnsibleFilterError(f"variable_names: {purpose!r} must be one of {', '.join(sorted(VARIABLES))}")
    first = {key: variables[0] for key, variables in VARIABLES[purpose].items()}
    return {**first, **_OF_THE_RUN.get(purpose, {}), "ssh_private_key": "ansible_ssh_private_key_file"}


def _of_the_command_line() -> Any:
    # It was read when Ansible started, and is kept.
    return load_extra_vars(DataLoader())


def _kinds(purpose: str) -> dict[str, dict[str, Any]]:
    """What each option of a machine may be, where Ansible would refuse a value by the option's name."""
    if purpose == "hcloud_machine":
        return _OF_CLOUD_MACHINES
    if purpose in _CHECKS:
        options: dict[str, dict[str, Any]] = _CHECKS[purpose]()["machines"]["options"]
        return options
    return {}


def _as_recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """As an installed record has it: without secrets, the digest apart; several types or locations as a list."""
    spec.update({key: words(spec[key]) for key in ("server_type", "location") if key in spec})
    url = spec.get("image_url")
    if isinstance(url, Mapping):
        # An image of installimage.
        value = url.get("url") or url.get("path") or url.get("name") or url.get("file") or ""
        spec.update(
            image_url=image_url.redact(str(value)), image_digest=str(url.get("digest") or ""), command="installimage"
        )
        if not url.get("url"):
            del spec["image_url"]
    elif url is not None:
        spec.update(image_url=image_url.redact(str(url)), image_digest=image_url.digest_in(str(url)))
    return spec
