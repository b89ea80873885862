# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""User data for cloud-init (cloud-config) and Ignition 3.3.0: the files of a first boot."""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
from typing import Any, NamedTuple

from .plan_types import UserData
from .user_data_inputs import InputError, normalised

FOLDER = "/etc/kubenode/provision"
SETUP = FOLDER + "/setup.sh"
#: Not where the kubelet looks for it: kubeadm joins no machine that has it there already.
CA = FOLDER + "/ca.crt"
CLOUD_CONFIG = "/etc/kubernetes/cloud-config"
PROGRAMS = "/var/lib/kubenode/provision-source"
PYTHON_HOME = "/opt/kubenode/python"


class File(NamedTuple):
    path: str
    mode: int
    content: str


def files(inputs: UserData) -> list[File]:
    """Files of normalised inputs, in the order in which they are to be written."""
    script = pkgutil.get_data(__package__, "setup.sh")
    if script is None:
        raise AssertionError("every loader that Ansible has gives data")
    result = [
        File(SETUP, 0o700, script.decode("utf-8")),
        File(FOLDER + "/id", 0o600, _identity(inputs) + "\n"),
        File(FOLDER + "/settings", 0o600, settings(inputs)),
    ]
    if inputs["source_ca"]:
        result.append(File(FOLDER + "/source-ca.crt", 0o600, inputs["source_ca"]))
    if inputs["vars"]:
        result.append(File(FOLDER + "/vars.json", 0o600, json.dumps(inputs["vars"], sort_keys=True) + "\n"))
    if inputs["token"]:
        result.append(File(FOLDER + "/token", 0o600, inputs["token"] + "\n"))
    if inputs["ca_cert"]:
        result.append(File(CA, 0o644, inputs["ca_cert"]))
    if inputs["cloud_config"]:
        result.append(File(CLOUD_CONFIG, 0o600, inputs["cloud_config"]))
    return result


def options(inputs: UserData) -> list[str]:
    """The words behind `provision`."""
    words = ["--phase", inputs["phase"]]
    if inputs["prebake"]:
        words.append("--prebake")
    if inputs["vars"]:
        words += ["--vars", FOLDER + "/vars.json"]
    for option, value in (
        ("--kubelet-version", inputs["kubelet_version"]),
        ("--api-server", inputs["api_server"]),
        ("--cloud-provider", inputs["cloud_provider"]),
    ):
        if value is not None:
            words += [option, value]
    for option, value, path in (
        ("--ca-cert", inputs["ca_cert"], CA),
        ("--token-file", inputs["token"], FOLDER + "/token"),
        ("--cloud-config", inputs["cloud_config"], CLOUD_CONFIG),
    ):
        if value:
            words += [option, path]
    return words


def settings(inputs: UserData) -> str:
    """What setup.sh reads: shell assignments, and a function that puts the options behind its arguments."""
    url, sha256 = inputs["provision_source"]
    python_url, python_sha256 = inputs["python_source"] or ("", "")
    assigned = {
        "url": url,
        "sha256": sha256,
        "python_url": python_url,
        "python_sha256": python_sha256,
        "source_ca": "yes" if inputs["source_ca"] else "",
        "attempts": str(inputs["attempts"]),
        "pause": str(inputs["pause"]),
        "programs": PROGRAMS,
        "python_home": PYTHON_HOME,
    }
    lines = [f"{name}={quoted(value)}" for name, value in assigned.items()]
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        value = inputs["vars"].get("base_" + name)
        if value:
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            lines.append(f"export {name}={quoted(text)}")
    lines.append(f'provision_options() {{ "$@" {" ".join(map(quoted, options(inputs)))}; }}')
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """A word for a POSIX shell, always in single quotes; it cannot hold NUL, which no argument can."""
    return "'{}'".format(word.replace("'", "'\"'\"'"))


def _identity(inputs: UserData) -> str:
    """An id of the inputs without their secrets: a machine that was set up with them is not set up again."""
    public = {key: value for key, value in inputs.items() if key not in ("token", "vars", "cloud_config")}
    public["vars"] = sorted(inputs["vars"])
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def cloud_config(inputs: UserData) -> str:
    """The cloud-config of normalised inputs."""
    lines = ["#cloud-config"]
    if inputs["hostname"]:
        lines += ["preserve_hostname: false", f"hostname: {_text(inputs['hostname'])}"]
    if inputs["ssh_authorized_keys"]:
        lines += ["disable_root: false", "ssh_authorized_keys:"]
        lines += [f"  - {_text(key)}" for key in inputs["ssh_authorized_keys"]]
    lines.append("write_files:")
    for entry in files(inputs):
        lines += [
            f"  - path: {_text(entry.path)}",
            f'    permissions: "{entry.mode:04o}"',
            "    encoding: b64",
            f"    content: {base64.b64encode(entry.content.encode('utf-8')).decode('ascii')}",
        ]
    lines += ["runcmd:", f"  - [/bin/sh, {SETUP}]"]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    """A YAML scalar: JSON's double quotes are YAML's; the values are printable by their checks."""
    return json.dumps(value, ensure_ascii=False)


SETUP_UNIT = "kubenode-setup.service"
_SETUP_UNIT = f"""\
[Unit]
Description=Makes this machine a Kubernetes node
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/bin/sh {SETUP}
Restart=on-failure
RestartSec=30
RestartPreventExitStatus=2

[Install]
WantedBy=multi-user.target
"""


def ignition_config(inputs: UserData) -> str:
    """The Ignition configuration of normalised inputs."""
    written = files(inputs)
    if inputs["hostname"]:
        written.append(File("/etc/hostname", 0o644, inputs["hostname"] + "\n"))
    result = {
        "ignition": {"version": "3.3.0"},
        "storage": {"directories": [{"path": FOLDER, "mode": 0o700}], "files": [_file(entry) for entry in written]},
        "systemd": {"units": [{"name": SETUP_UNIT, "enabled": True, "contents": _SETUP_UNIT}]},
    }
    if inputs["ssh_authorized_keys"]:
        user = {"name": inputs["ssh_user"], "sshAuthorizedKeys": inputs["ssh_authorized_keys"]}
        result["passwd"] = {"users": [user]}
    return json.dumps(result, indent=1, sort_keys=True) + "\n"


def _file(entry: File) -> dict[str, Any]:
    source = "data:;base64," + base64.b64encode(entry.content.encode("utf-8")).decode("ascii")
    return {"path": entry.path, "mode": entry.mode, "overwrite": True, "contents": {"source": source}}


FORMATS = {"cloud-init": cloud_config, "ignition": ignition_config}
#: bytes of user data that Hetzner Cloud takes (POST /servers, user_data)
HETZNER_LIMIT = 32 * 1024


def user_data(inputs: Any, format_name: str = "cloud-init", limit: int = HETZNER_LIMIT) -> str:
    """The user data as text; InputError when an input is wrong or the result is over `limit` bytes (0: no limit)."""
    if format_name not in FORMATS:
        raise InputError(f"the format is {format_name!r}; choose one of {', '.join(FORMATS)}")
    text = FORMATS[format_name](normalised(inputs))
    size = len(text.encode("utf-8"))
    if limit and size > limit:
        raise InputError(
            "the user data is %d bytes, %d more than the %d allowed; bake what is large (CAs, archives, "
            "configuration) into the image, or serve it and give its URL" % (size, size - limit, limit)
        )
    return text
