# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the playbooks by name, so that a misspelt one gives a warning before anything is done."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import option_values
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, whole_number

from .. import role_specs

PREFIX = "kubenode_"
#: What users set; docs/ says what each one means.
_OF_USERS = """
    kubenode_address kubenode_adopt kubenode_autosetup kubenode_boot_timeout kubenode_bootstrap_data
    kubenode_bootstrap_data_file kubenode_check_hostname kubenode_check_image
    kubenode_clear_quarantine kubenode_cloud_init_timeout kubenode_command_dir
    kubenode_command_names kubenode_command_timeout kubenode_crypt_password kubenode_delete
    kubenode_device_strings kubenode_dir kubenode_disk_health kubenode_drift kubenode_enable_ipv4
    kubenode_enable_ipv6 kubenode_event_object kubenode_events kubenode_evict_emptydir_data kubenode_evict_force
    kubenode_evict_timeout kubenode_firewalls kubenode_first_contact kubenode_give_back_after kubenode_host_key_checking
    kubenode_host_keys kubenode_hostname kubenode_hosts kubenode_hw_reset_timeout kubenode_ignore_unreachable
    kubenode_image kubenode_image_agent_environment kubenode_image_agent_image kubenode_image_architecture
    kubenode_image_base_initramfs kubenode_image_base_iso kubenode_image_base_kernel
    kubenode_image_base_rootfs kubenode_image_ca_bundle kubenode_image_ca_bundle_file kubenode_image_dest
    kubenode_image_enlarge kubenode_image_files kubenode_image_force kubenode_image_group
    kubenode_image_hostname kubenode_image_http_proxy kubenode_image_https_proxy kubenode_image_ignition
    kubenode_image_ignition_file kubenode_image_in_use kubenode_image_initramfs_network
    kubenode_image_inspector_urls kubenode_image_ip_options kubenode_image_ironic_insecure
    kubenode_image_ironic_urls kubenode_image_keep kubenode_image_kernel_arguments kubenode_image_labels
    kubenode_image_matrix kubenode_image_merge kubenode_image_merge_file kubenode_image_name
    kubenode_image_network kubenode_image_network_file kubenode_image_newest kubenode_image_nmstate
    kubenode_image_no_proxy kubenode_image_ntp_servers kubenode_image_outputs kubenode_image_owner
    kubenode_image_permissions kubenode_image_podman_options kubenode_image_publish_url
    kubenode_image_pull_secret kubenode_image_pull_secret_file kubenode_image_registries_conf
    kubenode_image_registries_conf_file kubenode_image_rootfs_url kubenode_image_serial kubenode_image_server
    kubenode_image_server_types kubenode_image_shared_dir kubenode_image_ssh_keys kubenode_image_state
    kubenode_image_timeout kubenode_image_units kubenode_image_uploads kubenode_image_url
    kubenode_image_url_command kubenode_image_user_data kubenode_image_verify kubenode_image_vlan_interfaces
    kubenode_images kubenode_kube_context kubenode_kubeconfig kubenode_labels kubenode_location
    kubenode_logical_volumes kubenode_look_timeout kubenode_network_config kubenode_networks kubenode_node_name
    kubenode_notify_secret kubenode_notify_timeout kubenode_notify_url kubenode_on_reset_limit
    kubenode_os_port kubenode_os_private_key kubenode_os_user kubenode_partitions
    kubenode_pipelining kubenode_placeholder_image kubenode_placement_group kubenode_post_install_script
    kubenode_power_off kubenode_power_reset_timeout kubenode_pre_provision_command
    kubenode_pre_provision_timeout kubenode_progress kubenode_proof kubenode_ready_timeout kubenode_reboot_again
    kubenode_registry_token kubenode_reinstall kubenode_release kubenode_remote_unlock kubenode_rename
    kubenode_require_digest kubenode_rescue_timeout kubenode_root_device_hints kubenode_root_devices
    kubenode_serial
    kubenode_server_ip kubenode_server_name kubenode_server_number kubenode_server_type kubenode_ssh_key_name
    kubenode_ssh_keys kubenode_ssh_reset_timeout kubenode_subvolumes kubenode_success
    kubenode_sw_reset_timeout kubenode_swraid kubenode_swraid_level kubenode_tarball_dir
    kubenode_tarball_formats kubenode_tarball_level kubenode_tarball_name kubenode_tarball_systems
    kubenode_user_data kubenode_wait_cloud_init kubenode_wipe
"""
#: What the playbooks themselves keep for hosts; more of theirs begin with ``kubenode__``.
_OF_PLAYBOOKS = """
    kubenode_after kubenode_architecture kubenode_armed kubenode_bases kubenode_boot kubenode_build
    kubenode_builds kubenode_checked kubenode_cleaned kubenode_created kubenode_deleting
    kubenode_disarmed kubenode_disks kubenode_drained kubenode_forgotten kubenode_found kubenode_image_armed
    kubenode_image_boot kubenode_image_builds kubenode_image_upload kubenode_image_write kubenode_installed
    kubenode_leave kubenode_looked
    kubenode_machine_labels kubenode_named kubenode_node kubenode_packing kubenode_plan kubenode_powered_off
    kubenode_reached kubenode_ready kubenode_rearmed kubenode_reboot kubenode_records
    kubenode_releasing kubenode_removed kubenode_sink kubenode_snapshots kubenode_sources kubenode_stragglers
    kubenode_summary kubenode_tarball kubenode_tarball_builds kubenode_tarball_files kubenode_tarballs
    kubenode_uncordoned
    kubenode_wiping
"""
OF_USERS, OF_PLAYBOOKS = frozenset(_OF_USERS.split()), frozenset(_OF_PLAYBOOKS.split())
_ALL = OF_USERS | OF_PLAYBOOKS
#: What the roles say to those who run them.
_MADE_BY_ROLES = frozenset(["base_changed_steps", "join_failure"])
#: How near a name must be, from 0 to 1, to be suggested.
_NEAR = 0.8

_BOOLS = """
    kubenode_adopt kubenode_check_hostname kubenode_check_image kubenode_enable_ipv4 kubenode_enable_ipv6
    kubenode_events kubenode_evict_emptydir_data kubenode_evict_force kubenode_ignore_unreachable
    kubenode_image_newest kubenode_power_off kubenode_reboot_again kubenode_remote_unlock kubenode_rename
    kubenode_require_digest
    kubenode_wait_cloud_init
"""
_INTS = """
    kubenode_boot_timeout kubenode_cloud_init_timeout kubenode_command_timeout kubenode_evict_timeout
    kubenode_give_back_after kubenode_hw_reset_timeout kubenode_look_timeout kubenode_notify_timeout
    kubenode_power_reset_timeout kubenode_ready_timeout kubenode_rescue_timeout kubenode_server_number
    kubenode_ssh_reset_timeout
    kubenode_sw_reset_timeout
"""
_TEXTS = """
    kubenode_address kubenode_bootstrap_data_file kubenode_command_dir kubenode_dir
    kubenode_hostname kubenode_image_name kubenode_image_url_command kubenode_kube_context kubenode_kubeconfig
    kubenode_node_name kubenode_os_private_key kubenode_os_user kubenode_placeholder_image
    kubenode_placement_group kubenode_post_install_script kubenode_pre_provision_command kubenode_server_ip
    kubenode_server_name kubenode_ssh_key_name
"""
_LISTS = """
    kubenode_clear_quarantine kubenode_firewalls kubenode_location kubenode_networks kubenode_root_devices
    kubenode_server_type kubenode_ssh_keys
"""
#: What the values of variables may be, where no module can say it before something is created or written.
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"type": "bool"} for name in _BOOLS.split()},
    **{name: {"type": "int"} for name in _INTS.split()},
    **{name: {"type": "str"} for name in _TEXTS.split()},
    **{name: {"type": "list", "elements": "str"} for name in _LISTS.split()},
    "kubenode_command_names": {"type": "str", "choices": ["prefixed", "any"]},
    "kubenode_crypt_password": {"type": "str", "no_log": True},
    "kubenode_first_contact": {"type": "str", "choices": ["refuse", "reset"]},
    "kubenode_image_url": {"type": "str", "no_log": True},
    "kubenode_event_object": {"type": "dict"},
    "kubenode_labels": {"type": "dict"},
    "kubenode_progress": {"type": "str", "choices": ["fleet", "lines", "none"]},
    "kubenode_network_config": {"type": "str", "choices": ["rescue", "image"]},
    "kubenode_notify_secret": {"type": "str", "no_log": True},
    "kubenode_notify_url": {"type": "str", "no_log": True},
    "kubenode_registry_token": {"type": "str", "no_log": True},
}
#: What ssh would read as something else than the user or the host that it is given.
_NO_WORD = re.compile(r"-|.*[\s\x00-\x1f\x7f\"'`$;]", re.DOTALL)


def mistyped(host: Mapping[str, Any]) -> dict[str, str]:
    """For each variable of a host whose value is of a wrong kind, a finding; secrets are not shown."""
    found = {}
    for variable, kind in KINDS.items():
        value = host.get(variable) if variable in host else None
        if value is None:
            continue
        wrong = option_values.wrong_value(kind, value)
        if not wrong and kind["type"] == "str" and isinstance(value, (list, dict)):
            # Ansible would make a text of it.
            shown = "(hidden)" if kind.get("no_log") else repr(one_line(str(value), 60))
            wrong = f"{shown}: give a text, not a {'list' if isinstance(value, list) else 'dictionary'}"
        if wrong:
            found[variable] = f"{variable} {wrong}"
    return found


def ways(host: Mapping[str, Any]) -> list[str]:
    """What is wrong with the host, the user and the port that Ansible itself gives to ssh."""
    found = []
    for variable in ("ansible_host", "ansible_user"):
        value = host.get(variable) if variable in host else None
        # A text of a vault is no str before ansible-core 2.19.
        if value is not None and (isinstance(value, (list, dict, bool)) or _NO_WORD.match(str(value))):
            found.append(f"{variable} {one_line(repr(value), 100)}: ssh would read it as something else; give one word")
    port = host.get("ansible_port") if "ansible_port" in host else None
    if port is not None and not _is_port(port):
        found.append(f"ansible_port {one_line(repr(port), 60)}: it is no port; use a number from 1 to 65535")
    return found


def os_port(host: Mapping[str, Any]) -> Any:
    """Where the installed system of a host listens; its rescue always does on port 22. None: there, too.

    ``ways`` reports a wrong ``ansible_port``.
    """
    own, port = host.get("kubenode_os_port"), host.get("ansible_port")
    return own if own is not None else port if port is not None and _is_port(port) else None


def _is_port(value: Any) -> bool:
    return not isinstance(value, bool) and 0 < (whole_number(str(value)) or 0) < 65536


def unknown(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each variable of these hosts that has our prefix and is none of ours."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        for name in host:
            if name.startswith(PREFIX) and not name.startswith("kubenode__") and name not in _ALL:
                found.setdefault(name, []).append(str(host.get("inventory_hostname")))
    return [_sentence(name, sorted(hosts)) for name, hosts in sorted(found.items())]


def unknown_of_roles(hosts: Iterable[Mapping[str, Any]], roles: Iterable[str]) -> list[str]:
    """The same for variables that are nearly one of a role's; others with its prefix may be anything of the user's."""
    hosts, found = list(hosts), []
    for role in roles:
        given = {name for host in hosts for name in host if name.startswith(role + "_")}
        known = role_specs.variables(role) if given else {}
        for name in sorted(given - set(known) - _MADE_BY_ROLES):
            whose = sorted(str(host.get("inventory_hostname")) for host in hosts if name in host)
            if difflib.get_close_matches(name, sorted(known), n=1, cutoff=_NEAR):
                found.append(_sentence(name, whose, known))
    return found


def _sentence(name: str, hosts: list[str], known: Iterable[str] = OF_USERS) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_NEAR)
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    text = f"{name}, set for {', '.join(hosts[:3])}{more}, is no variable of kubenode.provision and does nothing"
    return text + (f"; {near[0]} is one" if near else "")
