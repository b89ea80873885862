# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The module preprov_image_build: its options, and from them to its result.

Secrets may be deep inside of the options: they are neither logged nor returned.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback

from ..._common.text import json_value
from ..base_file import DIGESTS
from ..errors import ImageError
from ..nmstate import nmstatectl
from . import inspection, request
from .build import FILE, MODES, OVERLAY, RESET, SHOW, Build, failures
from .request import OUTPUTS
from .stores import Owned

#: what may be seen of the arguments: nothing of it is a secret
_SHOWN = (
    "base_initramfs", "base_iso", "base_kernel", "base_rootfs", "dest", "enlarge", "force", "group", "images", "mode",
    "nmstate", "on_error", "outputs", "owner", "permissions", "publish_url", "rootfs_url", "shared_dir", "verify",
)  # fmt: skip
REQUIRED_IF = [
    ("mode", FILE, ["hosts", "dest"]),
    ("mode", OVERLAY, ["hosts", "dest"]),
    ("mode", SHOW, ["images"]),
    ("mode", RESET, ["images"]),
]


def _or_variable(variable: str, **option: Any) -> dict[str, Any]:
    """An option that falls back to the variable the peer reads."""
    return dict(option, fallback=(env_fallback, [variable]))


def _texts(**option: Any) -> dict[str, Any]:
    return dict(option, type="list", elements="str")


def _host_options() -> dict[str, Any]:
    file = {
        "path": {"type": "str", "required": True},
        "content": {"type": "str"},
        "content_base64": {"type": "str"},
        "src": {"type": "path"},
        "mode": {"type": "str", "default": "0644"},
    }
    unit = {"name": {"type": "str", "required": True}, "contents": {"type": "str"}, "src": {"type": "path"}}
    arguments = {
        "append": _texts(default=[]),
        "replace": _texts(default=[]),
        "delete": _texts(default=[]),
        "reset": {"type": "bool", "default": False},
    }
    return {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "hostname": {"type": "str"},
        "architecture": {"type": "str"},
        "outputs": _texts(choices=list(OUTPUTS)),
        "network": {"type": "raw"},
        "network_file": {"type": "path"},
        "ignition": {"type": "raw"},
        "ignition_file": {"type": "path"},
        "merge": {"type": "raw"},
        "merge_file": {"type": "path"},
        "files": {"type": "list", "elements": "dict", "default": [], "options": file},
        "units": {"type": "list", "elements": "dict", "default": [], "options": unit},
        "ssh_keys": _texts(default=[], no_log=False),
        "kernel_arguments": {"type": "dict", "options": arguments},
        "initramfs_network": {"type": "bool", "default": True},
        "agent_image": {"type": "str"},
    }


def argument_spec() -> dict[str, Any]:
    """The argument spec."""
    return {
        "mode": {"type": "str", "choices": list(MODES), "default": FILE},
        "hosts": {"type": "list", "elements": "dict", "options": _host_options()},
        "images": {"type": "list", "elements": "path"},
        "dest": {"type": "path"},
        "outputs": _texts(choices=list(OUTPUTS), default=["iso"]),
        "base_iso": _or_variable("DEPLOY_ISO", type="path"),
        "base_initramfs": _or_variable("DEPLOY_INITRD", type="path"),
        "base_kernel": {"type": "path"},
        "base_rootfs": {"type": "path"},
        "shared_dir": _or_variable("IMAGE_SHARED_DIR", type="path"),
        "publish_url": {"type": "str"},
        "rootfs_url": {"type": "str"},
        "names_secret_file": {"type": "path", "no_log": False},
        "agent_image": _or_variable("IRONIC_AGENT_IMAGE", type="str"),
        "ironic_urls": _or_variable("IRONIC_BASE_URL", **_texts()),
        "inspector_urls": _or_variable("IRONIC_INSPECTOR_BASE_URL", **_texts()),
        "ironic_insecure": _or_variable("IRONIC_INSECURE", type="bool", default=False),
        "pull_secret": _or_variable("IRONIC_AGENT_PULL_SECRET", type="json", no_log=True),
        "pull_secret_file": {"type": "path", "no_log": False},
        "vlan_interfaces": _or_variable("IRONIC_AGENT_VLAN_INTERFACES", type="str"),
        "ssh_keys": _texts(no_log=False),
        "registries_conf": {"type": "str"},
        "registries_conf_file": _or_variable("REGISTRIES_CONF_PATH", type="path"),
        "ip_options": _or_variable("IP_OPTIONS", type="str"),
        "http_proxy": _or_variable("HTTP_PROXY", type="str"),
        "https_proxy": _or_variable("HTTPS_PROXY", type="str"),
        "no_proxy": _or_variable("NO_PROXY", type="str"),
        "ntp_servers": _or_variable("ADDITIONAL_NTP_SERVERS", **_texts()),
        "ca_bundle": {"type": "str"},
        "ca_bundle_file": _or_variable("CA_BUNDLE", type="path"),
        "agent_environment": {"type": "dict"},
        "podman_options": _texts(),
        "nmstate": {"type": "str", "choices": ["auto", "builtin", "nmstatectl"], "default": "builtin"},
        "force": {"type": "bool", "default": False},
        "enlarge": {"type": "bool", "default": False},
        "verify": {"type": "str", "choices": ["record", "full"], "default": "record"},
        "permissions": {"type": "str", "default": "0600"},
        "owner": {"type": "str"},
        "group": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


class SecretiveModule(AnsibleModule):
    """Keeps its arguments out of the machine's log and out of every result."""

    def _log_invocation(self) -> None:
        self.log("Invoked; the arguments are not logged, since they may hold secrets")

    def exit_json(self, **result: Any) -> None:
        """As it is, with what may be seen of the arguments."""
        super().exit_json(**dict({"invocation": {"module_args": self._seen()}}, **result))

    def fail_json(self, msg: str, **result: Any) -> None:
        """The same; also for arguments that are no good."""
        super().fail_json(msg, **dict({"invocation": {"module_args": self._seen()}}, **result))

    def _seen(self) -> dict[str, Any]:
        params = self.params if isinstance(self.params, dict) else {}
        found = {name: params.get(name) for name in _SHOWN}
        hosts = params.get("hosts")
        if isinstance(hosts, list):
            found["hosts"] = [str(host.get("name")) if isinstance(host, dict) else "?" for host in hosts]
        return found


def run(module: Any) -> None:
    """The module's work; ends it."""
    module.no_log_values.update(secret_texts(module.params))
    DIGESTS.keep(os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kubenode.provision"))
    try:
        if module.params["mode"] in (SHOW, RESET):
            _inspect_images(module)
        else:
            _build_images(module)
    except ImageError as error:
        module.fail_json(msg=str(error), hosts=[], shared=[], shared_msg="", images=[], urls={})


def secret_texts(params: Mapping[str, Any]) -> set[str]:
    """Texts inside of secrets: Ansible masks a secret as a whole only, not a part of it."""
    found: set[str] = set()
    try:
        auths = json_value(params["pull_secret"] or "{}")["auths"].values()
    except (ValueError, KeyError, AttributeError, TypeError):
        return found
    for entry in auths:
        if isinstance(entry, dict):
            found.update(text for text in entry.values() if isinstance(text, str) and len(text) >= 8)
    return found


def _build_images(module: Any) -> None:
    params = module.params
    owned = Owned(request.mode_of("permissions", params["permissions"]), _owner(module))
    work = Build(params, check=module.check_mode, diff=module._diff, owned=owned, run=_nmstatectl(module))
    work.run()
    for result in work.results:
        for warning in result.warnings:
            module.warn(f"{result.name}: {warning}")
    everyone = [*work.results, work.shared]
    hosts = [result.as_result() for result in work.results]
    outcome: dict[str, Any] = {
        "changed": any(result.changed for result in everyone),
        "hosts": hosts,
        "shared": work.shared.images,
        "shared_msg": work.shared.error,
        "images": [],
        "urls": {host["name"]: host["urls"] for host in hosts if host["urls"]},
    }
    if module._diff:
        outcome["diff"] = work.diff
    failed = [result for result in everyone if result.error]
    if failed and params["on_error"] == "fail":
        count = sum(1 for result in work.results if result.error)
        module.fail_json(msg=f"{count} of {len(hosts)} hosts failed: {failures(failed)}", **outcome)
    module.exit_json(**outcome)


def _inspect_images(module: Any) -> None:
    diff: list[inspection.DiffEntry] = []
    if module.params["mode"] == SHOW:
        images = inspection.show_images(module.params["images"])
    else:
        images, diff = inspection.reset_images(module.params["images"], check=module.check_mode)
    outcome: dict[str, Any] = {
        "changed": any(image["changed"] for image in images), "images": images, "hosts": [], "shared": [],
        "shared_msg": "", "urls": {},
    }  # fmt: skip
    if module._diff:
        outcome["diff"] = diff
    failed = [image for image in images if image["failed"]]
    if failed and module.params["on_error"] == "fail":
        text = "; ".join(image["msg"] for image in failed)
        module.fail_json(msg=f"{len(failed)} of {len(images)} images failed: {text}", **outcome)
    module.exit_json(**outcome)


def _owner(module: Any) -> Any:
    """Sets user and group; with ``check`` it only returns whether they differ."""
    user, group = module.params["owner"], module.params["group"]
    for option, name, known in (("owner", user, pwd.getpwnam), ("group", group, grp.getgrnam)):
        if name is not None and not re.fullmatch(r"[0-9]{1,10}", name):
            try:
                known(name)
            except KeyError as error:
                raise ImageError(f"{option} {name!r} does not exist on this machine") from error

    def set_owner(path: str, check: bool) -> bool:
        if user is None and group is None:
            return False
        was, module.check_mode = module.check_mode, check or module.check_mode
        try:
            changed = module.set_owner_if_different(path, user, False)
            return bool(module.set_group_if_different(path, group, changed))
        finally:
            module.check_mode = was

    return set_owner


def _nmstatectl(module: Any) -> Any:
    def start(command: Sequence[str], text: str) -> tuple[int, str, str]:
        code, out, err = module.run_command(list(command), data=text, binary_data=True)
        return code, out, err

    return nmstatectl.chosen(module.params["nmstate"], module.get_bin_path, start)
