#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hcloud_node_image
short_description: Make, keep and prune node images, as labelled snapshots of a Hetzner Cloud project
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Makes snapshots of servers that are off. A snapshot has no name of its own, so the label C(caph-image-name) carries
    it, as Cluster API Provider Hetzner expects; further labels say what the image was made from.
  - A snapshot of that name and architecture that was made from the same is left alone, and no server is needed then.
  - One error lists everything that cannot work, of all images together, before the first change.
  - Only snapshots that this module made are ever deleted.
extends_documentation_fragment:
  - kubenode.provision.hetzner.hcloud
  - kubenode.provision.attributes.own_run
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details: With O(images[].force=true), every run makes a snapshot.
options:
  images:
    description: The node images.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the image, the value of the label C(caph-image-name), at most 63 characters.
        type: str
        required: true
      server:
        description: Name of the server whose disk becomes the image. It is needed when the image does not exist.
        type: str
      architecture:
        description:
          - Architecture of the image. The default is that of the server.
          - With O(state=absent), the default is every architecture.
        type: str
        choices: [x86, arm]
      running:
        description:
          - What to do about a server that is not off. Servers that this collection did not make are never switched off.
          - V(shutdown) asks the system to go down, and fails when it has not after five minutes.
          - V(cut) takes its power away. This is right only when nothing is left to be written, such as in the rescue.
        type: str
        choices: [refuse, shutdown, cut]
        default: refuse
      kubernetes_version:
        description: Version of Kubernetes inside, for the label C(kubenode.provision/kubernetes).
        type: str
      base_image:
        description:
          - What the image was made from, for the label C(kubenode.provision/base-image). What a label cannot hold is
            replaced by C(-), and only the last 63 characters are kept.
        type: str
      role_version:
        description: Version of what prepared the system, for the label C(kubenode.provision/role).
        type: str
      digest:
        description:
          - SHA-256 of everything that the content depends on, for the label C(kubenode.provision/digest), which holds
            56 of its 64 digits.
        type: str
      labels:
        description: Further labels of a new snapshot.
        type: dict
        default: {}
      description:
        description: Description of a new snapshot. The default is O(images[].name).
        type: str
      force:
        description: Whether to make a snapshot although there is one that was made from the same.
        type: bool
        default: false
      keep:
        description:
          - How many snapshots of this name and architecture to keep. Older ones are deleted, unless a server was made
            from them, they are named in O(in_use), they are protected, or they were not made here. The image that this
            task returns is never deleted, also when there are that many newer ones.
          - The newest ones count, whatever else protects them; what stays beside them for such a reason does not count.
          - Without it, nothing is deleted. Cluster API Provider Hetzner takes a name for ambiguous that two snapshots
            have, so give V(1) where it uses the image.
        type: int
  in_use:
    description:
      - Images that are never deleted, by ID or name. A name protects all snapshots that bear it, of each architecture,
        so that of an O(images[].name) that is named here O(images[].keep) deletes none.
    type: list
    elements: str
    default: []
  state:
    description: V(present) makes missing images, V(absent) deletes all snapshots of the names.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description: Seconds that each image may take.
    type: int
    default: 1800
seealso:
  - module: kubenode.provision.hcloud_node_image_info
  - module: kubenode.provision.hcloud_machine
  - module: kubenode.provision.node_cleanup
"""

EXAMPLES = r"""
- name: Make an image of a prepared machine, and keep no older one
  kubenode.provision.hcloud_node_image:
    images:
      - name: debian-13-kubernetes-1.36.4
        server: image-builder
        running: shutdown
        kubernetes_version: 1.36.4
        base_image: debian-13
        keep: 1
  delegate_to: localhost

- name: Delete an image
  kubenode.provision.hcloud_node_image:
    state: absent
    images:
      - name: debian-13-kubernetes-1.33.1
    in_use: "{{ groups['nodes'] | map('extract', hostvars, 'kubenode_image_name') | unique }}"
  delegate_to: localhost
"""

RETURN = r"""
images:
  description: One result for each image, in the order of the option O(images).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the image.
      type: str
      sample: debian-13-kubernetes-1.36.4
    architecture:
      description: Architecture of the image.
      type: str
      sample: x86
    server:
      description: Name of the server, as it was given.
      type: str
      sample: image-builder
    id:
      description: ID of the snapshot, V(null) if there is none.
      type: int
      sample: 77
    status:
      description: Status of the snapshot.
      type: str
      sample: available
    description:
      description: Description of the snapshot.
      type: str
      sample: debian-13-kubernetes-1.36.4
    labels:
      description: Labels of the snapshot.
      type: dict
      sample:
        caph-image-name: debian-13-kubernetes-1.36.4
        kubenode.provision/node-image: debian-13-kubernetes-1.36.4
        kubenode.provision/kubernetes: 1.36.4
    created:
      description: Whether the snapshot was made by this call.
      type: bool
    created_at:
      description: When the snapshot was made.
      type: str
      sample: '2026-11-21T00:00:00Z'
    image_size:
      description: GB that the snapshot takes.
      type: float
      sample: 1.2
    disk_size:
      description: GB that the disk of a server must have at least.
      type: float
      sample: 40.0
    deleted:
      description: IDs of snapshots that were deleted.
      type: list
      elements: int
      sample: [75]
    kept:
      description: Snapshots that pruning left, and why.
      type: list
      elements: dict
      sample:
        - id: 76
          reason: server 'worker-1' was made from it
    others:
      description: IDs of all other snapshots of this name and architecture.
      type: list
      elements: int
      sample: [76]
    api_calls:
      description: Requests that were made for this image alone.
      type: int
      sample: 1
    changed:
      description:
        - Whether anything was changed. A request that the API refused changes nothing; one that got no answer counts
          as a change, since it may have been carried out.
      type: bool
    failed:
      description: Whether this image failed.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
      sample: made of server 'image-builder'
api_calls:
  description: Requests that were made for all images, shared ones included.
  returned: always
  type: int
  sample: 9
api_budget:
  description: The request limit of the project (C(limit) an hour) and what was C(remaining) of it; C(api) is V(hcloud).
  returned: when the API reports it
  type: dict
  sample: {api: hcloud, limit: 3600, remaining: 3592}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import run_options
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import (
    Api,
    api_options,
    open_cloud,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import run_fleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.snapshots import ImageFleet


def argument_spec() -> dict[str, Any]:
    image = {
        "name": {"type": "str", "required": True},
        "server": {"type": "str"},
        "architecture": {"type": "str", "choices": ["x86", "arm"]},
        "running": {"type": "str", "choices": ["refuse", "shutdown", "cut"], "default": "refuse"},
        "kubernetes_version": {"type": "str"},
        "base_image": {"type": "str"},
        "role_version": {"type": "str"},
        "digest": {"type": "str"},
        "labels": {"type": "dict", "default": {}},
        "description": {"type": "str"},
        "force": {"type": "bool", "default": False},
        "keep": {"type": "int"},
    }
    return dict(
        api_options(),
        **run_options(),
        images={"type": "list", "elements": "dict", "required": True, "options": image},
        in_use={"type": "list", "elements": "str", "default": []},
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        timeout={"type": "int", "default": 1800},
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params

    def work(api: Api) -> list[dict[str, Any]]:
        fleet = ImageFleet(
            api,
            params["images"],
            state=params["state"],
            in_use=params["in_use"],
            timeout=params["timeout"],
            check_mode=module.check_mode,
        )
        return fleet.run()

    run_fleet(module, work, open_cloud, items="images")


if __name__ == "__main__":
    main()
