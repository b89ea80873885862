#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_artifacts
short_description: Installs programs from the network with pinned digests, several at once
version_added: 1.0.0
description:
  - Fetches files over HTTP or HTTPS side by side, verifies their SHA-256 or SHA-512, and puts them, or members of them,
    in their places. A file is there as a whole or not at all.
  - What is installed is recorded in C(/etc/kubenode/artifacts/NAME.json). An artifact whose recorded files still have
    their digests needs no network.
  - A download that was cut is resumed where it ended, within a run and by the next one, when the server can do that.
  - Proxies are taken from O(proxies), else from the environment (E(https_proxy), E(http_proxy), E(no_proxy)).
options:
  artifacts:
    description: What to install.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the artifact, unique.
        type: str
        required: true
      version:
        description: Its version, for the record and for messages.
        type: str
        required: true
      url:
        description: Where it comes from. A user and a password in it are not shown.
        type: str
        required: true
      sha256:
        description:
          - SHA-256 of what is at O(artifacts[].url), as hexadecimal digits.
          - Exactly one of O(artifacts[].sha256) and O(artifacts[].sha512) must be given.
        type: str
      sha512:
        description: SHA-512 of what is at O(artifacts[].url), as hexadecimal digits.
        type: str
      kind:
        description:
          - V(binary) is installed as it is. V(tar) is an archive, plain or packed with gzip, bzip2, xz or zstd (which
            needs the program C(zstd)), some of whose members are installed.
        type: str
        choices: [binary, tar]
        required: true
      install:
        description: What goes where. A V(binary) has one entry with O(artifacts[].install[].path).
        type: list
        elements: dict
        required: true
        suboptions:
          member:
            description:
              - Name of a member of the archive, or a pattern such as V(bin/*). A C(*) does not go into folders. Each
                must mean at least one regular file.
            type: str
          path:
            description: The file to install.
            type: str
          directory:
            description: The directory to install into, by the last part of the member's name.
            type: str
          mode:
            description: Mode of the installed file, as an octal number in quotes.
            type: str
            default: "0755"
      links:
        description: Symbolic links to make.
        type: list
        elements: dict
        default: []
        suboptions:
          path:
            description: The link.
            type: str
            required: true
          target:
            description: Where it leads.
            type: str
            required: true
  fetch_only:
    description:
      - Fetch and verify what would be fetched, and install nothing. The next run finds it on the machine, and fails for
        no mirror or network. It changes nothing then but the folder C(/var/cache/kubenode/artifacts).
    type: bool
    default: false
  parallel:
    description: How many are fetched at the same time.
    type: int
    default: 4
  timeout:
    description: Seconds that one artifact may take.
    type: int
    default: 900
  retries:
    description: How often a download that failed for a reason that may pass is tried again.
    type: int
    default: 4
  headers:
    description: Headers for every request, such as C(Authorization). Redirects to another host do not get them.
    type: dict
    default: {}
  extra_ca:
    description: Certificates (PEM) that are trusted besides the system's own.
    type: list
    elements: str
    default: []
  proxies:
    description: Proxies for this module, which no command line shows, unlike those in the C(environment) of a task.
    type: dict
    suboptions:
      http:
        description: Proxy for HTTP, as URL.
        type: str
      https:
        description: Proxy for HTTPS, as URL.
        type: str
      exceptions:
        description: Hosts, domains and networks that need no proxy, separated by commas.
        type: str
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
    details: Files are looked at, and nothing is fetched.
  diff_mode:
    support: full
    details: The version before and after of each artifact that changes.
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.node_settings
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Install runc and some CNI plugins
  kubenode.provision.node_artifacts:
    artifacts:
      - name: runc
        version: 1.4.3
        kind: binary
        url: https://github.com/opencontainers/runc/releases/download/v1.4.3/runc.amd64
        sha256: "{{ runc_sha256 }}"
        install:
          - path: /usr/local/sbin/runc
      - name: cni-plugins
        version: 1.9.1
        kind: tar
        url: https://github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz
        sha256: "{{ cni_plugins_sha256 }}"
        install:
          - member: bridge
            directory: /opt/cni/bin
          - member: loopback
            directory: /opt/cni/bin
  register: fetched
"""

RETURN = r"""
artifacts:
  description: What was done, in the order of O(artifacts).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the artifact.
      type: str
    version:
      description: Its version.
      type: str
    changed:
      description: Whether it was installed, or would be in check mode.
      type: bool
    reason:
      description: Why.
      type: str
    bytes:
      description: Bytes that were fetched.
      type: int
    seconds:
      description: How long it took.
      type: float
    error:
      description: Why it failed.
      type: str
      returned: when it failed
changed_ids:
  description: C(artifact:NAME) for each that changed, for O(kubenode.provision.node_settings#module:changed_before).
  type: list
  elements: str
  returned: always
diff:
  description: Versions before and after.
  type: list
  elements: dict
  returned: in diff mode
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import NoLogModule
from ansible_collections.kubenode.provision.plugins.module_utils._node import fetch, node_artifacts
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host, Pending
from ansible_collections.kubenode.provision.plugins.module_utils._node.node_artifacts import ADOPTED


def main() -> None:
    """Look, fetch, install."""
    install = {
        "member": {"type": "str"},
        "path": {"type": "str"},
        "directory": {"type": "str"},
        "mode": {"type": "str", "default": "0755"},
    }
    link = {"path": {"type": "str", "required": True}, "target": {"type": "str", "required": True}}
    artifact = {
        "name": {"type": "str", "required": True},
        "version": {"type": "str", "required": True},
        "url": {"type": "str", "required": True},
        "sha256": {"type": "str"},
        "sha512": {"type": "str"},
        "kind": {"type": "str", "required": True, "choices": ["binary", "tar"]},
        "install": {"type": "list", "elements": "dict", "required": True, "options": install},
        "links": {"type": "list", "elements": "dict", "default": [], "options": link},
    }
    module = NoLogModule(
        {
            "artifacts": {"type": "list", "elements": "dict", "required": True, "options": artifact},
            "fetch_only": {"type": "bool", "default": False},
            "parallel": {"type": "int", "default": 4},
            "timeout": {"type": "int", "default": 900},
            "retries": {"type": "int", "default": 4},
            "headers": {"type": "dict", "default": {}, "no_log": True},
            "extra_ca": {"type": "list", "elements": "str", "default": []},
            "proxies": fetch.PROXIES,
        },
        supports_check_mode=True,
    )
    run(module)


def run(module: NoLogModule) -> None:
    """The module's work."""
    params = module.params
    for artifact in params["artifacts"]:
        for entry in artifact["install"]:
            for field in [field for field, value in entry.items() if value is None]:
                del entry[field]
    fetch.use_proxies(params["proxies"])
    shown = [artifact["url"] for artifact in params["artifacts"]]
    shown += [params["proxies"][name] for name in ("http", "https") if (params["proxies"] or {}).get(name)]
    module.no_log_values.update(fetch.secrets(shown))
    errors = node_artifacts.artifact_errors(params["artifacts"])
    errors += [f"{name} must be at least 1" for name in ("parallel", "timeout") if params[name] < 1]
    if errors:
        module.fail_json(msg="wrong artifacts: " + "; ".join(errors), artifacts=[], changed_ids=[])
    host = Host()
    try:
        headers = {str(name): str(value) for name, value in params["headers"].items()}
        fetcher = fetch.Fetcher(headers, params["extra_ca"], max(0, params["retries"]), params["timeout"])
        wait = 0 if module.check_mode else params["timeout"]
        reasons = node_artifacts.plan(host, params["artifacts"], params["parallel"])
        done = {}
        shows_diff = module._diff and not params["fetch_only"]
        diff = {"diff": differences(host, params["artifacts"], reasons)} if shows_diff else {}
        if any(reasons) and not module.check_mode:
            with node_artifacts.locked(host, wait):
                # another process may have installed them meanwhile
                reasons = node_artifacts.plan(host, params["artifacts"], params["parallel"])
                wanted = [artifact for artifact, reason in zip(params["artifacts"], reasons) if reason]
                if params["fetch_only"]:
                    results = node_artifacts.fetch_only(host, wanted, fetcher, params["parallel"])
                else:
                    results = node_artifacts.apply(host, wanted, fetcher, Pending(host), params["parallel"])
                done = {artifact["name"]: result for artifact, result in zip(wanted, results)}
    except (fetch.FetchError, OSError, ssl.SSLError) as error:
        module.fail_json(msg=str(error), artifacts=[], changed_ids=[])
    found = [report(*pair, done) for pair in zip(params["artifacts"], reasons)]
    if params["fetch_only"]:
        found = [dict(entry, changed=False) for entry in found]
    failed = [entry["error"] for entry in found if "error" in entry]
    ids = [
        node_artifacts.change_id(entry["name"]) for entry in found if entry["changed"] and entry["reason"] != ADOPTED
    ]
    result = dict(diff, changed=any(entry["changed"] for entry in found), artifacts=found, changed_ids=ids)
    if failed:
        module.fail_json(msg="; ".join(failed), **result)
    module.exit_json(**result)


def report(
    artifact: node_artifacts.Artifact, reason: str | None, done: Mapping[str, tuple[int, float, str | None]]
) -> dict[str, Any]:
    """One entry of the result."""
    came, seconds, error = done.get(artifact["name"], (0, 0.0, None))
    entry = {
        "name": artifact["name"],
        "version": artifact["version"],
        "changed": bool(reason) and not error,
        "reason": reason or "",
        "bytes": came,
        "seconds": round(seconds, 3),
    }
    return dict(entry, error=error) if error else entry


def differences(
    host: Host, artifacts: Sequence[node_artifacts.Artifact], reasons: Sequence[str | None]
) -> list[dict[str, str]]:
    """A diff for every artifact that changes."""
    found = []
    for artifact, reason in zip(artifacts, reasons):
        if reason:
            before = node_artifacts.as_it_is(host, artifact)
            header = f"{artifact['name']} ({reason})"
            found.append(
                {
                    "before_header": header,
                    "after_header": header,
                    "before": "".join(f"{line}\n" for line in before),
                    "after": f"{artifact['version']}\n",
                }
            )
    return found


if __name__ == "__main__":
    main()
