#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hcloud_node_image_info
short_description: Find node images of a Hetzner Cloud project by name and architecture
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Finds images the way Cluster API Provider Hetzner does - the name of an image and the value of the label
    C(caph-image-name) count alike, both within one architecture. No match is an error, and so are several.
  - Without names, the result holds all snapshots that carry the label C(caph-image-name).
extends_documentation_fragment:
  - kubenode.provision.hetzner.hcloud
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  images:
    description: The images to find.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of an image, or value of the label C(caph-image-name) of a snapshot. Where it is neither, the ID of an
            image.
        type: str
        required: true
      architecture:
        description: Architecture of the image.
        type: str
        choices: [x86, arm]
        default: x86
  newest:
    description:
      - Whether the newest available image is taken when several have the name.
      - Cluster API Provider Hetzner does not do this; it calls the name ambiguous.
    type: bool
    default: false
seealso:
  - module: kubenode.provision.hcloud_node_image
  - module: kubenode.provision.hcloud_machine
"""

EXAMPLES = r"""
- name: Find an image for both architectures
  kubenode.provision.hcloud_node_image_info:
    images:
      - name: debian-13-kubernetes-1.36.4
      - name: debian-13-kubernetes-1.36.4
        architecture: arm
  delegate_to: localhost
  register: found

- name: List all node images of the project
  kubenode.provision.hcloud_node_image_info:
  delegate_to: localhost
"""

RETURN = r"""
images:
  description: One result for each entry of the option O(images), else one for each node image.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name that was asked for.
      type: str
      sample: debian-13-kubernetes-1.36.4
    architecture:
      description: Architecture of the image.
      type: str
      sample: x86
    id:
      description: ID of the image, V(null) if none was found.
      type: int
      sample: 77
    type:
      description: Type of the image, such as V(snapshot) or V(system).
      type: str
      sample: snapshot
    status:
      description: Status of the image.
      type: str
      sample: available
    description:
      description: Description of the image.
      type: str
      sample: debian-13-kubernetes-1.36.4
    labels:
      description: Labels of the image.
      type: dict
      sample:
        caph-image-name: debian-13-kubernetes-1.36.4
    created_at:
      description: When the image was made.
      type: str
      sample: '2026-11-21T00:00:00Z'
    image_size:
      description: GB that the image takes.
      type: float
      sample: 1.2
    disk_size:
      description: GB that the disk of a server must have at least.
      type: float
      sample: 40.0
    changed:
      description: Always V(false).
      type: bool
    failed:
      description: Whether the name means no image, or several.
      type: bool
    msg:
      description: V(found), or why nothing was.
      type: str
      sample: found
api_calls:
  description: Requests that were made.
  returned: always
  type: int
  sample: 4
api_budget:
  description: The request limit of the project (C(limit) an hour) and what was C(remaining) of it; C(api) is V(hcloud).
  returned: when the API reports it
  type: dict
  sample: {api: hcloud, limit: 3600, remaining: 3592}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import api_options, open_cloud
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import run_fleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.snapshots import ImageLookup


def argument_spec() -> dict[str, Any]:
    image = {
        "name": {"type": "str", "required": True},
        "architecture": {"type": "str", "choices": ["x86", "arm"], "default": "x86"},
    }
    return dict(
        api_options(),
        images={"type": "list", "elements": "dict", "options": image},
        newest={"type": "bool", "default": False},
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    run_fleet(
        module, lambda api: ImageLookup(api, params["images"], params["newest"]).run(), open_cloud, items="images"
    )


if __name__ == "__main__":
    main()
