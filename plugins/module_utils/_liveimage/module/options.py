# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The options of preprov_image_build. Secrets may be deep inside of them: they are neither logged nor returned."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback

from .request import OUTPUTS
from .work import FILE, MODES, OVERLAY, RESET, SHOW

#: what may be seen of the arguments: nothing of it is a secret
_SHOWN = (
    "base_initramfs", "base_iso", "base_kernel", "base_rootfs", "dest", "enlarge", "force", "group", "images", "mode",
    "nmstate", "on_error", "outputs", "owner", "permissions", "publish_url", "rootfs_url", "shared_dir", "verify",
)  # fmt: skip


def _or(variable: str, **option: Any) -> dict[str, Any]:
    """An option that falls back to the variable the peer reads."""
    return dict(option, fallback=(env_fallback, [variable]))


def _texts(**option: Any) -> dict[str, Any]:
    return dict(option, type="list", elements="str")


def _host() -> dict[str, Any]:
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


def spec() -> dict[str, Any]:
    """The argument spec."""
    return {
        "mode": {"type": "str", "choices": list(MODES), "default": FILE},
        "hosts": {"type": "list", "elements": "dict", "options": _host()},
        "images": {"type": "list", "elements": "path"},
        "dest": {"type": "path"},
        "outputs": _texts(choices=list(OUTPUTS), default=["iso"]),
        "base_iso": _or("DEPLOY_ISO", type="path"),
        "base_initramfs": _or("DEPLOY_INITRD", type="path"),
        "base_kernel": {"type": "path"},
        "base_rootfs": {"type": "path"},
        "shared_dir": _or("IMAGE_SHARED_DIR", type="path"),
        "publish_url": {"type": "str"},
        "rootfs_url": {"type": "str"},
        "names_secret_file": {"type": "path", "no_log": False},
        "agent_image": _or("IRONIC_AGENT_IMAGE", type="str"),
        "ironic_urls": _or("IRONIC_BASE_URL", **_texts()),
        "inspector_urls": _or("IRONIC_INSPECTOR_BASE_URL", **_texts()),
        "ironic_insecure": _or("IRONIC_INSECURE", type="bool", default=False),
        "pull_secret": _or("IRONIC_AGENT_PULL_SECRET", type="json", no_log=True),
        "pull_secret_file": {"type": "path", "no_log": False},
        "vlan_interfaces": _or("IRONIC_AGENT_VLAN_INTERFACES", type="str"),
        "ssh_keys": _texts(no_log=False),
        "registries_conf": {"type": "str"},
        "registries_conf_file": _or("REGISTRIES_CONF_PATH", type="path"),
        "ip_options": _or("IP_OPTIONS", type="str"),
        "http_proxy": _or("HTTP_PROXY", type="str"),
        "https_proxy": _or("HTTPS_PROXY", type="str"),
        "no_proxy": _or("NO_PROXY", type="str"),
        "ntp_servers": _or("ADDITIONAL_NTP_SERVERS", **_texts()),
        "ca_bundle": {"type": "str"},
        "ca_bundle_file": _or("CA_BUNDLE", type="path"),
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


REQUIRED_IF = [
    ("mode", FILE, ["hosts", "dest"]),
    ("mode", OVERLAY, ["hosts", "dest"]),
    ("mode", SHOW, ["images"]),
    ("mode", RESET, ["images"]),
]


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
