#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_images
short_description: Has container images on a machine
version_added: 1.0.0
description:
  - Pulls container images that are missing, imports archives of them, and pins them, so that the kubelet does not
    remove them when disk space is short.
  - An image that is there is not pulled again, and an archive whose images are there is neither fetched nor read.
  - The container runtime must be running. With containerd, pulls go the way of the kubelet, so that the mirrors and
    credentials configured for it hold.
options:
  images:
    description: References of the images to have, such as V(registry.k8s.io/pause:3.10.1).
    type: list
    elements: str
    default: []
  archives:
    description: Archives with images to have, as C(docker save) or C(ctr images export) write them.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: Where the archive is downloaded from, by HTTP or HTTPS.
        type: str
      path:
        description: Where it lies on the machine.
        type: path
      sha256:
        description: Its SHA-256 sum.
        type: str
        required: true
  pin:
    description: Whether to pin all of these images. Docker Engine cannot pin.
    type: bool
    default: true
  runtime:
    description: The container runtime.
    type: str
    choices: [containerd, docker]
    default: containerd
  headers:
    description: HTTP headers for the downloads, such as credentials.
    type: dict
    default: {}
  timeout:
    description: Seconds that one pull, download or import may take.
    type: int
    default: 600
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
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.node_artifacts
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Have the image of the pod sandbox
  kubenode.provision.node_images:
    images:
      - registry.k8s.io/pause:3.10.1

- name: Bring images without a registry
  kubenode.provision.node_images:
    archives:
      - url: https://files.example.com/images/cni.tar
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""

RETURN = r"""
images:
  description: References of all images that were asked for or came with archives, with registry and tag.
  type: list
  elements: str
  returned: success
  sample: [registry.k8s.io/pause:3.10.1]
pulled:
  description: What was pulled, or would be in check mode.
  type: list
  elements: str
  returned: success
imported:
  description: Archives that were imported, or would be in check mode.
  type: list
  elements: str
  returned: success
pinned:
  description:
    - What was pinned, or would be in check mode. The images of an archive that was never imported are not known there.
  type: list
  elements: str
  returned: success
diff:
  description: The images before and after.
  type: dict
  returned: in diff mode
"""

from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import NoLogModule
from ansible_collections.kubenode.provision.plugins.module_utils._node import container_images, fetch
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host


def arguments() -> dict[str, Any]:
    """What the module takes."""
    archive = {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "url": {"type": "str"},
            "path": {"type": "path"},
            "sha256": {"type": "str", "required": True},
        },
        "mutually_exclusive": [("url", "path")],
        "required_one_of": [("url", "path")],
    }
    return {
        "images": {"type": "list", "elements": "str", "default": []},
        "archives": archive,
        "pin": {"type": "bool", "default": True},
        "runtime": {"type": "str", "choices": ["containerd", "docker"], "default": "containerd"},
        "headers": {"type": "dict", "default": {}, "no_log": True},
        "timeout": {"type": "int", "default": 600},
        "proxies": fetch.PROXIES,
    }


def main() -> None:
    """Find what is missing, bring it, say so."""
    module = NoLogModule(arguments(), supports_check_mode=True)
    given, host = module.params, Host()
    fetch.use_proxies(given["proxies"])
    kind = container_images.Docker if given["runtime"] == "docker" else container_images.Containerd
    work = container_images.Work(host, kind(host, given["timeout"]), given)
    try:
        result = work.predict() if module.check_mode else work.bring()
    except (
        container_images.ImagesFailed,
        container_images.BadReference,
        container_images.RuntimeFailed,
        OSError,
    ) as error:
        module.fail_json(msg=str(error))
    if module._diff:
        result["diff"] = container_images.difference(result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
