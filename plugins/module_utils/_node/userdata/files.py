# Copyright (c) 2026 kubenode.provision authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause
"""The files of a first boot, whatever format carries them (pure)."""

from __future__ import annotations

import hashlib
import json
import pkgutil
from collections import namedtuple

FOLDER = "/etc/kubenode/provision"
SETUP = FOLDER + "/setup.sh"
#: Not where the kubelet looks for it: kubeadm joins no machine that has it there already.
CA = FOLDER + "/ca.crt"
CLOUD_CONFIG = "/etc/kubernetes/cloud-config"
PROGRAMS = "/var/lib/kubenode/provision-source"
PYTHON_HOME = "/opt/kubenode/python"

File = namedtuple("File", "path mode content")


def files(inputs):
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


def options(inputs):
    """The words behind `provision`."""
    words = ["--phase", inputs["phase"]]
    if inputs["prebake"]:
        words.append("--prebake")
    if inputs["vars"]:
        words += ["--vars", FOLDER + "/vars.json"]
    for option, key in (
        ("--kubelet-version", "kubelet_version"),
        ("--api-server", "api_server"),
        ("--cloud-provider", "cloud_provider"),
    ):
        if inputs[key] is not None:
            words += [option, inputs[key]]
    for option, key, path in (
        ("--ca-cert", "ca_cert", CA),
        ("--token-file", "token", FOLDER + "/token"),
        ("--cloud-config", "cloud_config", CLOUD_CONFIG),
    ):
        if inputs[key]:
            words += [option, path]
    return words


def settings(inputs):
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
    lines = ["%s=%s" % (name, quoted(value)) for name, value in assigned.items()]
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        value = inputs["vars"].get("base_" + name)
        if value:
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            lines.append("export %s=%s" % (name, quoted(text)))
    lines.append('provision_options() { "$@" %s; }' % " ".join(map(quoted, options(inputs))))
    return "\n".join(lines) + "\n"


def quoted(word):
    """A word for a POSIX shell, always in single quotes; it cannot hold NUL, which no argument can."""
    return "'%s'" % word.replace("'", "'\"'\"'")


def _identity(inputs):
    """Tells one set of inputs from another, so that a machine that is set up is not set up again; without secrets."""
    told = {key: value for key, value in inputs.items() if key not in ("token", "vars", "cloud_config")}
    told["vars"] = sorted(inputs["vars"])
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8")).hexdigest()[:16]
