# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Options of the modules of the SSH phase: one specification for the module and the action plugin in front of it.

Names that end up in arguments and paths are checked here, too: image command, root devices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback

from .._common.names import InvalidName
from .._common.option_values import VARIABLES
from .installimage import spec as installimage

COMMAND_PREFIX = "image-url-command-"
_COMMAND = re.compile(r"image-url-command-[a-z0-9][a-z0-9._-]*\Z")
_ANY_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
#: Which names of commands are taken.
PREFIXED, ANY = "prefixed", "any"
#: Kernel names, WWNs and /dev/disk/by-id names; udev escapes everything else.
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9#+.:=@_-]*\Z")
_PARTITION = re.compile(r"((?:[shv]d|xvd)[a-z]+[0-9]+|(?:nvme[0-9]+n|mmcblk|md|loop)[0-9]+p[0-9]+|.*-part[0-9]+)\Z")


def check_command_name(name: str, allowed: str = PREFIXED) -> str:
    """Return ``name`` when it is the bare name of an image command, else raise :class:`InvalidName`.

    ``allowed``: names that begin with ``image-url-command-``, as in CAPH until 2026, or any plain name.
    """
    if "/" in name:
        raise InvalidName("it holds a '/'; give the name alone and the directory as command_dir")
    if ".." in name:
        raise InvalidName("it holds '..'; give the plain name of a file in command_dir")
    if allowed == ANY:
        if not _ANY_COMMAND.match(name):
            raise InvalidName(
                "it may hold only letters, digits, '.', '_' and '-', and must begin with a letter or digit"
            )
        return name
    if not name.startswith(COMMAND_PREFIX):
        raise InvalidName(f"it does not begin with '{COMMAND_PREFIX}'; rename the program, or set command_names to any")
    if not _COMMAND.match(name):
        raise InvalidName(
            f"after '{COMMAND_PREFIX}' it may hold only lower-case letters, digits, '.', '_' and '-', "
            "and must begin with a letter or digit"
        )
    return name


def check_root_devices(devices: Sequence[str]) -> Sequence[str]:
    """Return ``devices`` when it is a non-empty list of device names without directory, else raise."""
    if not devices:
        raise InvalidName("the list is empty; name at least one device, such as sda")
    for device in devices:
        if "/" in device:
            raise InvalidName(f"{device!r} holds a '/'; give the name below /dev (sda, nvme0n1) or the WWN alone")
        if not _DEVICE.match(device):
            raise InvalidName(
                f"{device!r} is not a device name; give a kernel name (sda, nvme0n1), a WWN or a by-id name"
            )
        if _PARTITION.match(device):
            raise InvalidName(f"{device!r} is a partition; name the disk it is on")
    if len(set(devices)) != len(devices):
        raise InvalidName(f"a device is named twice: {' '.join(devices)}")
    return devices


def _flow_options(boot_state: str) -> dict[str, Any]:
    return {
        "boot_state": {"type": "str", "default": boot_state},
        "boot_state_since": {"type": "str"},
        "known_hosts_dir": {"type": "path"},
        "machine_name": {"type": "str"},
        "variables": dict(VARIABLES),
    }


#: Of the new system; looked at by _common/ssh_access.py, which names the variables.
_ACCESS = {
    "os_user": {"type": "raw"},
    "os_port": {"type": "raw"},
    "os_private_key": {"type": "raw", "no_log": False},
}
#: Looked at by plugin_utils/rescue_run/image_inputs.py, which names the variables.
_PRE_PROVISION = {"pre_provision_command": {"type": "str"}, "pre_provision_timeout": {"type": "raw"}}
_BOOTSTRAP_DATA = {"bootstrap_data": {"type": "raw", "no_log": True}, "bootstrap_data_file": {"type": "path"}}
_TOKEN = {"type": "str", "no_log": True}
#: How the rescue system is reached.
_RESCUE = {
    "rescue_timeout": {"type": "int", "default": 360},
    "previous_boot_id": {"type": "str"},
    "addresses": {"type": "list", "elements": "str"},
    "host_keys": {"type": "list", "elements": "str", "no_log": False},
}
_LOGGED = {"poll": {"type": "float", "default": 2.0}, "log_dir": {"type": "path"}}
_PROGRESS = {"type": "str", "choices": ["fleet", "lines", "none"]}
_ON_ERROR = {"type": "str", "choices": ["fail", "report"], "default": "fail"}
_COMMAND_DIR = {"type": "path", "default": "/shared"}
_COMMAND_NAMES = {"type": "str", "choices": ["prefixed", "any"], "default": "prefixed"}


def _installation_options() -> dict[str, Any]:
    return {
        "installation": {"type": "str"},
        "consent": {"type": "str", "default": "empty"},
        "reinstall": {"type": "raw", "default": []},
        "intent_file": {"type": "path"},
    }


def _list_of(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A list of mappings with these options."""
    return {"type": "list", "elements": "dict", "options": options, **more}


def _check_options(machine: dict[str, Any]) -> dict[str, Any]:
    """Options of image_url_check and installimage_check; ``machine``: what only one of them looks at."""
    machine.update(name={"type": "str", "required": True}, address={"type": "str"}, drift={"type": "raw"})
    return {
        "machines": _list_of(dict(machine, **_PRE_PROVISION, **_ACCESS), required=True),
        "steps": {"type": "list", "elements": "dict", "default": []},
        "variables": dict(VARIABLES),
        "command_dir": dict(_COMMAND_DIR),
        "ssh_private_key": {"type": "path", "no_log": False},
    }


def action_only(name: str, spec: dict[str, Any]) -> None:
    """What a module does when its action plugin, which does everything, was left out."""
    module = AnsibleModule(spec, supports_check_mode=True)
    module.fail_json(msg=f"{name} works through its action plugin; call it as a task, not as a bare module")


def image_url_command_spec() -> dict[str, Any]:
    return dict(
        _flow_options("BootingToRescue"),
        **_installation_options(),
        image_url={"type": "str", "required": True},
        command={"type": "str", "required": True},
        command_dir=dict(_COMMAND_DIR),
        command_names=dict(_COMMAND_NAMES),
        require_digest={"type": "bool", "default": False},
        check_image={"type": "bool", "default": True},
        empty={"type": "list", "elements": "dict", "default": []},
        still_empty={"type": "list", "elements": "dict", "default": []},
        root_devices={"type": "list", "elements": "str", "default": ["sda"]},
        **_BOOTSTRAP_DATA,
        oci_registry_auth_token=dict(_TOKEN, fallback=(env_fallback, ["OCI_REGISTRY_AUTH_TOKEN"])),
        timeout={"type": "int", "default": 1200},
        success={"type": "str", "choices": ["marker_and_exit_code", "marker"], "default": "marker_and_exit_code"},
        **_RESCUE,
        **_LOGGED,
    )


def pre_provision_command_spec() -> dict[str, Any]:
    return dict(
        _flow_options("BootingToRescue"),
        command={"type": "str", "required": True},
        command_dir=dict(_COMMAND_DIR),
        timeout={"type": "int", "default": 300},
        provider={"type": "str", "choices": ["hcloud", "robot"]},
        server={"type": "str"},
        secrets={"type": "list", "elements": "str", "default": [], "no_log": True},
        **_BOOTSTRAP_DATA,
        intent_file={"type": "path"},
        **_RESCUE,
        **_LOGGED,
    )


def robot_installimage_spec() -> dict[str, Any]:
    filesystem = {"type": "str", "required": True}
    return dict(
        _flow_options("BootingToRescue"),
        **_installation_options(),
        image={
            "type": "dict",
            "required": True,
            "options": {
                "name": {"type": "str"},
                "path": {"type": "str"},
                "url": {"type": "str"},
                "file": {"type": "str"},
                "digest": {"type": "str"},
            },
            "mutually_exclusive": [("path", "url", "file"), ("name", "path"), ("name", "file")],
            "required_one_of": [("name", "path", "url", "file")],
        },
        require_digest={"type": "bool", "default": True},
        oci_registry_auth_token=dict(_TOKEN, fallback=(env_fallback, ["OCI_REGISTRY_AUTH_TOKEN"])),
        root_devices={"type": "list", "elements": "str", "required": True},
        empty={"type": "list", "elements": "dict", "default": []},
        swraid={"type": "int", "choices": [0, 1], "default": 0},
        swraid_level={"type": "int", "choices": [0, 1, 5, 6, 10], "default": 1},
        partitions=_list_of(
            {
                "mount": {"type": "str", "required": True},
                "filesystem": dict(filesystem),
                "size": {"type": "str", "required": True},
                "crypt": {"type": "bool", "default": False},
            },
            default=[],
        ),
        logical_volumes=_list_of(
            {
                "vg": {"type": "str", "required": True},
                "name": {"type": "str", "required": True},
                "mount": {"type": "str", "required": True},
                "filesystem": dict(filesystem),
                "size": {"type": "str", "required": True},
            },
            default=[],
        ),
        subvolumes=_list_of(
            {
                "volume": {"type": "str", "required": True},
                "subvolume": {"type": "str", "required": True},
                "mount": {"type": "str", "required": True},
            },
            default=[],
        ),
        hostname={"type": "str"},
        post_install_script={"type": "str"},
        **_BOOTSTRAP_DATA,
        crypt_password={"type": "str", "no_log": True},
        remote_unlock={"type": "bool", "default": False},
        autosetup={"type": "dict", "default": {}},
        network_config={"type": "str", "choices": ["rescue", "image"], "default": "rescue"},
        uefi={"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
        command={"type": "str", "default": installimage.COMMAND},
        timeout={"type": "int", "default": 1800},
        **_RESCUE,
        **_LOGGED,
    )


def machine_boot_spec() -> dict[str, Any]:
    return dict(
        _flow_options("RunningImageCommand"),
        expect={"type": "str", "choices": ["os", "rescue"], "default": "os"},
        reboot={"type": "bool", "default": True},
        previous_boot_id={"type": "str"},
        hostname={"type": "str"},
        check_hostname={"type": "bool", "default": True},
        host_keys={"type": "list", "elements": "str", "no_log": False},
        unlock_password={"type": "str", "no_log": True},
        unlock_host_keys={"type": "list", "elements": "str", "no_log": False},
        unlock_port={"type": "int"},
        unlock_private_key={"type": "path", "no_log": False},
        wait_cloud_init={"type": "bool", "default": True},
        timeout={"type": "int", "default": 360},
        cloud_init_timeout={"type": "int", "default": 600},
        os_user={"type": "str"},
        os_port={"type": "int"},
        os_private_key={"type": "path", "no_log": False},
        image_url={"type": "str"},
        command={"type": "str"},
        write_record={"type": "bool", "default": True},
        claim_file={"type": "path"},
        intent_file={"type": "path"},
        installation={"type": "str"},
        written={"type": "list", "elements": "dict"},
        proof={"type": "str", "choices": ["nonce", "disk", "ssh", "port", "none"]},
        adopt={"type": "bool", "default": False},
        secrets={"type": "list", "elements": "str", "default": [], "no_log": True},
        **_BOOTSTRAP_DATA,
    )


def machine_install_spec() -> dict[str, Any]:
    """Options of machine_install; each step has those of the module of its name, which are looked at when it begins."""
    return {
        "machines": _list_of(
            {
                "name": {"type": "str", "required": True},
                "address": {"type": "str"},
                "refused": {"type": "str"},
                "notes": {"type": "list", "elements": "str"},
                "installed": {"type": "bool", "default": False},
                "may_be_late": {"type": "bool", "default": False},
                "second_try": {"type": "bool", "default": False},
                "pre_provision_command": {"type": "dict"},
                "machine_disks": {"type": "dict"},
                "image_url_command": {"type": "dict"},
                "robot_installimage": {"type": "dict"},
                "machine_boot": {"type": "dict"},
            },
            required=True,
        ),
        "throttle": {"type": "int", "default": 0},
        "on_error": dict(_ON_ERROR),
        "progress": dict(_PROGRESS),
        "variables": dict(VARIABLES),
    }


def image_url_check_spec() -> dict[str, Any]:
    return _check_options(
        {
            "image_url": {"type": "str"},
            "command": {"type": "str"},
            "command_names": dict(_COMMAND_NAMES),
            "require_digest": {"type": "bool", "default": False},
            "oci_registry_auth_token": dict(_TOKEN),
            "root_devices": {"type": "list", "elements": "str", "default": ["sda"]},
            **_BOOTSTRAP_DATA,
        }
    )


def node_image_source_spec() -> dict[str, Any]:
    return {
        "images": _list_of(
            {
                "name": {"type": "str", "required": True},
                "path": {"type": "path", "required": True},
                "sha256": {"type": "str"},
                "kind": {"type": "str", "choices": ["disk", "root"], "default": "disk"},
            },
            required=True,
        ),
        "cache_dir": {"type": "path", "required": True},
    }


def node_image_sink_spec() -> dict[str, Any]:
    return {
        "dest": {"type": "path", "required": True},
        "files": {"type": "list", "elements": "str", "required": True},
    }


def node_image_archive_spec() -> dict[str, Any]:
    return {
        "source": {"type": "path", "required": True},
        "kind": {"type": "str", "choices": ["tarball", "raw"], "default": "tarball"},
        "path": {"type": "path"},
        "url": {"type": "str", "no_log": True},
        "name": {"type": "str"},
        "level": {"type": "int", "default": 9},
        "epoch": {"type": "int"},
        "exclude": {"type": "list", "elements": "str", "default": []},
        "prebaked": {"type": "bool", "default": True},
        "arrives_at": {"type": "path"},
        "progress": dict(_PROGRESS),
    }


def node_image_debian_spec() -> dict[str, Any]:
    return {
        "path": {"type": "path", "required": True},
        "suite": {"type": "str", "required": True},
        "architecture": {"type": "str", "choices": ["amd64", "arm64"], "default": "amd64"},
        "mirrors": {"type": "list", "elements": "str", "default": []},
        "include": {"type": "list", "elements": "str", "default": []},
        "kernel": {"type": "str"},
        "keyring": {"type": "path"},
        "apt_options": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 3600},
        "force": {"type": "bool", "default": False},
        "progress": dict(_PROGRESS),
    }


def machine_quarantine_spec() -> dict[str, Any]:
    return {
        "machines": {"type": "list", "elements": "dict", "required": True},
        "quarantine_dir": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["checked", "set"], "default": "checked"},
        "clear": {"type": "list", "elements": "str", "default": []},
        "on_error": dict(_ON_ERROR),
    }


def machine_lock_spec() -> dict[str, Any]:
    return {
        "names": {"type": "list", "elements": "str", "required": True},
        "lock_dir": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["taken", "released"], "default": "taken"},
    }


def machine_inventory_spec() -> dict[str, Any]:
    return {
        "path": {"type": "path", "required": True},
        "hosts": {"type": "dict", "default": {}},
        "gone": {"type": "list", "elements": "str", "default": []},
        "known": {"type": "dict", "default": {}},
    }


def machine_disks_spec() -> dict[str, Any]:
    return dict(
        _flow_options("BootingToRescue"),
        root_device_hints={
            "type": "dict",
            "options": {
                "wwn": {"type": "str"},
                "serial": {"type": "str"},
                "by_id": {"type": "str"},
                "model": {"type": "str"},
                "min_size": {"type": "str"},
                "smallest": {"type": "bool"},
                "raid": {"type": "dict", "options": {"wwn": {"type": "list", "elements": "str", "required": True}}},
                "query": {"type": "str"},
                "rotational": {"type": "bool"},
                "kind": {"type": "str", "choices": ["nvme", "sata", "scsi", "virtio"]},
            },
        },
        wipe={"type": "raw", "default": []},
        state={"type": "str", "choices": ["facts", "ready", "wiped"], "default": "facts"},
        empty={"type": "str", "choices": ["now", "later"], "default": "now"},
        device_strings={"type": "str", "choices": ["short", "wwn", "by-id"], "default": "short"},
        health={"type": "str", "choices": ["check", "speed", "ignore"], "default": "check"},
        reinstall={"type": "raw", "default": False},
        claim_file={"type": "path"},
        **_RESCUE,
    )


def installimage_check_spec() -> dict[str, Any]:
    """Options of installimage_check: what robot_installimage will be given, as far as it is known."""
    installation = robot_installimage_spec()
    names = (
        "image", "require_digest", "swraid", "swraid_level", "partitions", "logical_volumes", "subvolumes", "hostname",
        "post_install_script", "bootstrap_data", "bootstrap_data_file", "crypt_password", "remote_unlock",
        "autosetup", "network_config", "uefi", "command",
    )  # fmt: skip
    machine = {name: installation[name] for name in names}
    return _check_options(dict(machine, oci_registry_auth_token=dict(_TOKEN), root_device_hints={"type": "dict"}))
