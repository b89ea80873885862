# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""User data for cloud-init (cloud-config) and Ignition 3.3.0: its inputs, and the files of a first boot (pure).

The inputs are checked together, so that one error names everything that is wrong.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import machine_error
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import wrong_value
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import is_http_url
from ansible_collections.kubenode.provision.plugins.module_utils._node.api_server import BadCertificate, pem, pem_blocks

from .. import role_specs
from . import base_inputs, join_inputs
from .base_inputs import PlanError
from .kubelet import KubeletOptions
from .kubelet_config import nearest
from .plan_types import UserData

# --- what a value handed to the provisioner must look like; every function returns it normalised or raises ValueError.
#
# The messages go behind the name of the option or key that held the value. Values of secrets are not repeated in them.


_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_VERSION = re.compile(r"v?((?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*))")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
#: visible ASCII that needs no quoting in a shell's single quotes or in curl's configuration
_URL = re.compile(r"[!#-&(-\[\]-_a-z{|}~]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_KEY_TYPE = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+")


def token(value: str) -> str:
    """A bootstrap token, six characters, a dot, sixteen characters (k8s.io, bootstrap tokens)."""
    value = value.strip()
    if not _TOKEN.fullmatch(value):
        raise ValueError("is no bootstrap token; it looks like abcdef.0123456789abcdef, in lower case")
    return value


def version(value: str) -> str:
    """A Kubernetes version without the v in front."""
    found = _VERSION.fullmatch(value)
    if not found:
        raise ValueError(f"is {value!r}; give a full version such as 1.36.4")
    return found.group(1)


def cloud_provider(value: str) -> str:
    """Nothing or `external`: providers inside the kubelet went with Kubernetes 1.31."""
    if value not in ("", "external"):
        raise ValueError(f"is {value!r}; the kubelet only knows external, or leave it empty")
    return value


def api_server(value: str) -> str:
    """The API server's URL: https, a host, a port, nothing else; 443 is written out."""
    try:
        parts = urlsplit(value)
        port = 443 if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"is {value!r}; give it as https://host:6443")
    host = parts.hostname or ""
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme != "https" or not _HOST.fullmatch(host) or extra:
        raise ValueError(f"is {value!r}; give it as https://host:6443, without path and user")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def certificates(value: str) -> str:
    """PEM with one certificate or more; text around them is dropped."""
    try:
        found = pem_blocks(value, "CERTIFICATE")
    except BadCertificate:
        found = [b""]
    if not found:
        raise ValueError("holds no certificate; it must be PEM (-----BEGIN CERTIFICATE-----)")
    for block in found:
        # every certificate is a DER sequence with a length of two bytes
        if block[:2] != b"\x30\x82" or len(block) != 4 + int.from_bytes(block[2:4], "big"):
            raise ValueError("holds a certificate that is damaged; copy the PEM file as a whole")
    return "".join(map(pem, found))


def hostname(value: str) -> str:
    """A hostname that can be a node's name."""
    error = machine_error(value)
    if error is not None:
        raise ValueError(f"is {value!r}: {error}")
    return value


def ssh_key(value: str) -> str:
    """One line of authorized_keys; options in front of the key are allowed."""
    value = value.strip()
    if not value or not value.isprintable():
        raise ValueError("has a key that is empty or not one line of text")
    if not any(_KEY_TYPE.fullmatch(word) for word in value.split()):
        raise ValueError(f"has {value[:60]!r}, which is no public SSH key (ssh-ed25519 AAAA… name)")
    return value


def url_and_digest(value: str) -> tuple[str, str]:
    """URL and SHA-256 (lower case) out of URL#sha256=DIGEST."""
    url, _separator, fragment = value.partition("#")
    name, _separator, digest = fragment.partition("=")
    if name != "sha256" or not _SHA256.fullmatch(digest):
        raise ValueError("has no digest; give it as URL#sha256=64 hexadecimal digits (sha256sum FILE)")
    if not _is_url(url) or not _URL.fullmatch(url):
        raise ValueError("must be an http or https URL whose special characters are percent-encoded")
    return url, digest.lower()


def _is_url(text: object) -> bool:
    """Whether it is an http or https URL as shell scripts take it, with its scheme in lower case."""
    return isinstance(text, str) and text.startswith(("http://", "https://")) and is_http_url(text)


def proxy(value: str) -> str:
    """A proxy's URL, or nothing."""
    if value and (not _is_url(value) or re.search(r"[\s'\"\\\x00-\x1f\x7f]", value)):
        raise ValueError("must be an http or https URL, or empty")
    return value


# --- variables of the roles base and join, checked without the machine by the same rules as in the roles


ROLES = ("base", "join")


def findings(variables: Mapping[str, Any], running: Iterable[str]) -> list[str]:
    """A line for each of ``variables`` that is refused, as far as that needs no machine.

    ``running``: the roles that will run; variables of others need only be there and be of their type.
    """
    known, texts, good = role_specs.variables(*ROLES), [], {}
    for name, value in sorted(variables.items()):
        option = known.get(name)
        # a dictionary in the wrong place may be one with a password in it
        option = dict(option, no_log=True) if option and option.get("type") == "dict" else option
        wrong = wrong_value(option, value) if option and value is not None else ""
        if option is None:
            texts.append(f"vars: has {name!r}, which is no variable of the roles{nearest(name, known)}")
        elif wrong:
            texts.append(f"{name} is {wrong}")
        else:
            good[name] = value
    version = ""
    if "base" in running:
        given = {name: value for name, value in good.items() if name.startswith("base_")}
        try:
            inputs = base_inputs.normalised(given, role_specs.versions())
            version = inputs["kubernetes_version"] if inputs["manage_kubelet"] else ""
        except PlanError as error:
            texts += str(error).splitlines()
    if "join" in running:
        try:
            _check_join(good, version)
        except join_inputs.InvalidInput as error:
            texts.append(str(error))
    return texts


def _check_join(variables: Mapping[str, Any], version: str) -> None:
    given = {name.removeprefix("join_"): value for name, value in variables.items() if name.startswith("join_")}
    token = str(given.pop("token", None) or "")
    inputs = join_inputs.checked(join_inputs.with_drop_ins(given), token)
    join_inputs.check_one_token(inputs, token)
    if version and inputs["state"] == "present":
        KubeletOptions(inputs, version).check()


# --- the inputs together

PHASES = ("all", "base", "join")


class InputError(Exception):
    """Inputs that no machine should be started with; the text has one line for each key."""


def _one_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {value!r}; it must be true or false")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ValueError(f"is {value!r}; it must be a whole number from 1 to 1000")
    return value


def _phase(value: Any) -> str:
    if not isinstance(value, str) or value not in PHASES:
        raise ValueError(f"is {value!r}; choose one of {', '.join(PHASES)}")
    return value


def _source(value: Any) -> tuple[str, str]:
    return url_and_digest(_one_text(value))


def _keys(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of public SSH keys")
    return [ssh_key(_one_text(key)) for key in value]


def _user(value: Any) -> str:
    if not isinstance(value, str) or not value.isidentifier() or not value.isascii():
        raise ValueError(f"is {value!r}; it must be a user's name")
    return value


def _variables(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a dictionary of variables of the roles base and join")
    for name in value:
        if not isinstance(name, str) or not name.startswith(("base_", "join_")):
            raise ValueError(f"has {name!r}; variables of the roles begin with base_ or join_")
    for part in ("base_http_proxy", "base_https_proxy"):
        try:
            proxy(value.get(part) or "")
        except (TypeError, ValueError):
            raise ValueError(f"has a {part} that is no http or https URL") from None
    excluded = value.get("base_no_proxy") or ""
    words = excluded if isinstance(excluded, (list, tuple)) else [excluded]
    if not all(isinstance(word, str) and word.isprintable() for word in words):
        raise ValueError("has a base_no_proxy that is no text of one line")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("holds something that JSON does not know; use text, numbers, lists and dictionaries") from None
    return value


def _checked(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: check(_one_text(value))


#: key → (check that returns the value normalised, default)
KEYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "provision_source": (_source, None),
    "phase": (_phase, "all"),
    "prebake": (_flag, False),
    "hostname": (_checked(hostname), None),
    "ssh_authorized_keys": (_keys, []),
    "ssh_user": (_user, "core"),
    "kubelet_version": (_checked(version), None),
    "cloud_provider": (_checked(cloud_provider), None),
    "cloud_config": (_one_text, None),
    "token": (_checked(token), None),
    "ca_cert": (_checked(certificates), None),
    "api_server": (_checked(api_server), None),
    "vars": (_variables, {}),
    "source_ca": (_checked(certificates), None),
    "python_source": (_source, None),
    "attempts": (_number, 10),
    "pause": (_number, 10),
}


def normalised(inputs: Any) -> UserData:
    """Every key with its value or default; InputError names each key that is unknown, missing or wrong."""
    if not isinstance(inputs, dict):
        raise InputError("the inputs must be a dictionary")
    result: dict[str, Any] = {}
    errors = []
    for name in sorted(set(map(str, inputs)) - set(KEYS)):
        errors.append(f"{name}: is no input; there are {', '.join(KEYS)}")
    for name, (check, default) in KEYS.items():
        value = inputs.get(name)
        # empty text means the same as a key that is left out, since templates often give it
        if value is None or (value == "" and name != "cloud_provider"):
            result[name] = default
            continue
        try:
            result[name] = check(value)
        except ValueError as error:
            errors.append(f"{name}: {error}")
    if not errors:
        taken = cast(UserData, result)
        errors = _together(taken) or findings(variables(taken), running(taken))
        if not errors:
            return taken
    raise InputError("\n".join(errors))


def _together(inputs: UserData) -> list[str]:
    """What is wrong about inputs that are right one by one."""
    errors = []
    if inputs.get("provision_source") is None:
        errors.append("provision_source: is missing; give URL#sha256=DIGEST of the program (make provision prints it)")
    if inputs["prebake"]:
        if inputs["phase"] == "join":
            errors.append("prebake: ends after base, but phase is join; leave one of them out")
        inputs["phase"] = "base"
    if inputs["phase"] == "base":
        return errors
    joins, given = f"phase {inputs['phase']} joins a cluster", inputs["vars"]
    if not (inputs["api_server"] or given.get("join_api_server")):
        errors.append(f"api_server: is missing; {joins}: https://host:6443")
    if not (inputs["token"] or given.get("join_token")):
        errors.append(f"token: is missing; {joins}, and join_token_create makes one from a controller only")
    if given.get("join_state") == "absent":
        errors.append(f"join_state: is absent; {joins}, so leave it out")
    return errors


#: key → the variable of a role that it becomes
_BECOMES = {
    "kubelet_version": "base_kubernetes_version",
    "api_server": "join_api_server",
    "ca_cert": "join_ca_cert",
    "cloud_provider": "join_cloud_provider",
    "token": "join_token",
}


def in_role(line: str) -> str:
    """A line about an input, with the variable of the role node_user_data in the place of its key."""
    key, colon, text = line.partition(": ")
    if not colon or key not in KEYS or key == "vars":
        return line
    return f"{_BECOMES.get(key, 'node_user_data_' + key)}: {text}"


def variables(inputs: UserData) -> dict[str, Any]:
    """The variables of the roles that the machine will have."""
    given: Mapping[str, Any] = inputs
    return {**inputs["vars"], **{name: given[key] for key, name in _BECOMES.items() if given[key] is not None}}


def running(inputs: UserData) -> tuple[str, ...]:
    """The roles that the machine will run."""
    return ROLES if inputs["phase"] == "all" else (inputs["phase"],)


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
            f"the user data is {size} bytes, {size - limit} more than the {limit} allowed; bake what is large "
            "(CAs, archives, configuration) into the image, or serve it and give its URL"
        )
    return text


def problems(inputs: Any, format_name: str, limit: int) -> list[str]:
    """What is wrong with the inputs of one host, by the names of the variables of the role node_user_data."""
    found = []
    if format_name not in FORMATS:
        found.append(f"node_user_data_format: is {format_name!r}; choose one of {', '.join(FORMATS)}")
        format_name = next(iter(FORMATS))
    try:
        user_data(role_specs.plain(inputs), format_name, limit)
    except InputError as error:
        found += map(in_role, str(error).splitlines())
    return found
