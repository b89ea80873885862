# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a whole fleet's inputs before anything happens: one message with every finding of every machine."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._common.ssh_access import key_blob
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import counted, one_line

from ..rescue_run import install_plan, machine_install
from ..rescue_run.flow import Host
from . import specification

#: Takes a machine, and what finds the files that it names; returns what to report of it, and everything that is wrong
#: with it.
Examine = Callable[[Mapping[str, Any], Host], tuple[dict[str, Any], list[str]]]


def fleet_check(
    action: ActionBase, given: Mapping[str, Any], examine: Examine, task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """The task result for the fleet; ``given``: the options of the task."""
    machines, private_key = given["machines"], given["ssh_private_key"]
    names = [machine["name"] for machine in machines]
    addresses = Counter(machine["address"] for machine in machines if machine["address"])
    steps = {machine["name"]: machine for machine in given["steps"]}
    variables, hostvars = install_plan.variables(), task_vars.get("hostvars", {})
    results, everything = [], [] if names else ["machines is empty; name at least one"]
    for machine in machines:
        # None for options that a user has written into a play.
        own = (hostvars.get(machine["name"]) or {}) if given["variables"] else None
        host = Host(machine["name"], action, None, own)
        about, findings = examine(machine, host)
        findings = [*findings, *ssh_access.access_findings(machine)]
        if addresses[machine["address"]] > 1:
            findings.append(
                f"address {one_line(machine['address'], 60)!r}: another machine has it, too; give each "
                "machine the address of its own server"
            )
        if machine["drift"] not in (None, "report", "fail"):
            findings.append(f"drift {one_line(str(machine['drift']), 60)!r}: use one of report, fail")
        if names.count(machine["name"]) > 1:
            findings.append("name: it stands in the list more than once")
        findings = [in_variables(finding, given["variables"]) for finding in findings]
        wrong: dict[str, str] = {}
        if own is not None:
            wrong = specification.mistyped(own, *install_plan.PLAYBOOKS)
            findings = _but(wrong, findings)
            findings += [*wrong.values(), *specification.ways(own)]
        findings += _but(wrong, machine_install.findings(host, steps.get(machine["name"], {}), variables, findings))
        everything += [f"{machine['name']}: {finding}" for finding in findings]
        result = {"name": machine["name"], "changed": False, "failed": bool(findings), "msg": "; ".join(findings)}
        results.append({**result, **about} if not findings else result)
    if private_key:
        try:
            check_private_key(private_key)
        except KeyNotUsable as exc:
            everything.append(in_variables(f"ssh_private_key {private_key!r}: {exc}", given["variables"]))
    answer: dict[str, Any] = {"changed": False, "failed": bool(everything), "machines": results, "api_calls": 0}
    if everything:
        count = f"{counted(len(everything), 'finding')}, nothing was created or changed"
        answer["msg"] = f"{count}:\n" + "\n".join(f"- {finding}" for finding in everything)
    return answer


def _but(mistyped: Mapping[str, str], findings: list[str]) -> list[str]:
    """Those findings that are not about a variable whose value is of a wrong kind."""
    begin = re.compile(rf"(?:{'|'.join(map(re.escape, mistyped))})(?!\w)")
    return [one for one in findings if not begin.match(one)] if mistyped else findings


# --- whether SSH will be able to use a private key, found out before anything is created


_MAGIC = b"openssh-key-v1\0"
#: Seconds after which a program of OpenSSH that should answer at once is taken for hanging.
_HANGS = 120


class KeyNotUsable(ValueError):
    """SSH could not use the key; the text says why and what to do."""


def check_private_key(path: str) -> None:
    """Raise :class:`KeyNotUsable` unless the key opens without a question, or an agent holds it."""
    if not os.path.isfile(path):
        raise KeyNotUsable("there is no such file; give the private half of a key of the project")
    if not os.access(path, os.R_OK):
        raise KeyNotUsable("it is not readable for the user that runs Ansible")
    public = key_blob(Path(path).read_text(encoding="ascii", errors="replace"))
    if public is not None:
        if not _agent_holds(base64.b64encode(public).decode()):
            raise KeyNotUsable("it is a public key whose private half no agent holds; ssh-add that, or name its file")
        return
    # An empty passphrase is tried; ssh-keygen does not ask for one.
    answer = _run("ssh-keygen", "-y", "-P", "", "-f", path)
    if answer.returncode == 0:
        return
    error = answer.stderr.decode("utf-8", "replace")
    if "UNPROTECTED PRIVATE KEY FILE" in error or "bad permissions" in error:
        raise KeyNotUsable(f"others may read it, so ssh refuses it; chmod 600 {path}")
    if "passphrase" not in error:
        raise KeyNotUsable(f"it is not a private key ({one_line(error.splitlines()[-1] if error else '', 120)})")
    if not _agent_holds(_public_blob(Path(path))):
        raise KeyNotUsable("it is protected by a passphrase and no agent holds it; ssh-add it, or use another key")


def _public_blob(path: Path) -> str | None:
    """The public key as base64: a key in OpenSSH's format has it unencrypted, else it is in the .pub file."""
    lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    try:
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
    except ValueError:
        data = b""
    if data.startswith(_MAGIC):
        # cipher, key derivation and its options are strings; then the number of keys, then the public key as a string
        offset = len(_MAGIC)
        for _field in range(3):
            offset += 4 + int.from_bytes(data[offset : offset + 4], "big")
        offset += 4
        length = int.from_bytes(data[offset : offset + 4], "big")
        return base64.b64encode(data[offset + 4 : offset + 4 + length]).decode()
    try:
        return Path(f"{path}.pub").read_text(encoding="ascii", errors="replace").split()[1]
    except (OSError, IndexError):
        return None


def _agent_holds(blob: str | None) -> bool:
    if blob is None or not os.environ.get("SSH_AUTH_SOCK"):
        return False
    keys = _run("ssh-add", "-L").stdout.decode("ascii", "replace")
    return any(blob in line.split()[1:2] for line in keys.splitlines())


def _run(*command: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_HANGS, check=False)
    except subprocess.TimeoutExpired as exc:
        raise KeyNotUsable(
            f"{command[0]} did not end within {_HANGS} s; look at what the key needs to be read"
        ) from exc
    except FileNotFoundError as exc:
        raise KeyNotUsable(f"{command[0]} is not installed on the controller; install the OpenSSH client") from exc
