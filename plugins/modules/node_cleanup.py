#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_cleanup
short_description: Makes a machine fit to become an image
version_added: 1.0.0
description:
  - Removes what makes a machine this machine, and what an image does not need, so that its disk can become the disk of
    many machines.
  - Run it as the last task on a machine, then turn the machine off. Without host keys, sshd may take no new connection
    until the next boot; the connection that is open goes on.
  - Links are not followed, and what is mounted where it cleans stays as it is, bind mounts too; a warning names it. The
    machine's own file systems at C(/boot), C(/home), C(/tmp), C(/var) and the like are cleaned, unless they come from
    the network.
  - A machine that belongs to a cluster is refused, since every machine made from it would claim to be the same node.
options:
  remove:
    description:
      - What to remove. The order does not matter.
      - V(machine-id) empties C(/etc/machine-id); systemd makes a new one at the next boot. On Flatcar
        the file goes.
      - V(host-keys) removes the SSH host keys. cloud-init makes new ones; where the system has no unit of its own for
        it, one is written that makes those that are missing before sshd starts.
      - V(cloud-init) makes cloud-init take the next boot for the first one of a new machine. What goes is its state,
        its logs, seeds with user data and, where cloud-init is installed, the network configuration that it wrote.
      - V(installed-record) removes the record of how this machine was installed.
      - V(iscsi) makes the iSCSI initiator take a new name.
      - V(leases) removes what DHCP clients remember, and persistent names of network cards.
      - V(package-cache) removes package files, and the lists of packages of all repositories.
      - V(logs) removes old logs below C(/var/log) and empties the others, and removes core dumps.
      - V(journal) removes the journal. Until the next boot it is kept in memory only.
      - V(random-seed) removes the seed, and keeps the shutdown from saving one.
      - V(shell-history) removes the histories of shells and the like, of all users below C(/root) and C(/home).
      - V(tmp) empties C(/tmp) and C(/var/tmp), but for what this module, Ansible and running services keep there.
      - V(authorized-keys) removes the keys that may log in. V(hostname) removes C(/etc/hostname). Neither is removed
        by default, since both may be what leads to the machine.
    type: list
    elements: str
    choices:
      - authorized-keys
      - cloud-init
      - host-keys
      - hostname
      - installed-record
      - iscsi
      - journal
      - leases
      - logs
      - machine-id
      - package-cache
      - random-seed
      - shell-history
      - tmp
    default:
      - machine-id
      - host-keys
      - cloud-init
      - installed-record
      - iscsi
      - leases
      - package-cache
      - logs
      - journal
      - random-seed
      - shell-history
      - tmp
  trim:
    description: Whether to report the free blocks to the disks at the end (C(fstrim)), where they support it.
    type: bool
    default: true
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: partial
    details: Between two runs the system may write logs and the like again.
seealso:
  - module: kubenode.provision.node_settings
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Make the machine fit to become an image
  kubenode.provision.node_cleanup:

- name: Remove the keys that may log in, too
  kubenode.provision.node_cleanup:
    remove: [machine-id, host-keys, cloud-init, authorized-keys]
    trim: false
"""

RETURN = r"""
removed:
  description: What was removed, or would be in check mode, in the order in which it happens.
  type: list
  elements: dict
  returned: success
  contains:
    item:
      description: Entry of O(remove) that it belongs to.
      type: str
      sample: host-keys
    action:
      description: V(remove), V(empty) or V(write).
      type: str
      sample: remove
    path:
      description: Path of the file or folder.
      type: str
      sample: /etc/ssh/ssh_host_ed25519_key
diff:
  description: The same as text, an entry for each item.
  type: list
  elements: dict
  returned: in diff mode
"""

import os
import re
from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node import cleanup
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host


def arguments() -> dict[str, Any]:
    """What the module takes."""
    return {
        "remove": {
            "type": "list",
            "elements": "str",
            "choices": sorted(cleanup.ITEMS),
            "default": [
                "machine-id",
                "host-keys",
                "cloud-init",
                "installed-record",
                "iscsi",
                "leases",
                "package-cache",
                "logs",
                "journal",
                "random-seed",
                "shell-history",
                "tmp",
            ],
        },
        "trim": {"type": "bool", "default": True},
    }


def differences(actions: Iterable[cleanup.Action]) -> list[dict[str, str]]:
    """One entry for each item, as Ansible's diff wants them."""
    entries = []
    for item in cleanup.ITEMS:
        lines = [f"{action.verb} {action.path}\n" for action in actions if action.item == item]
        if lines:
            entries.append({"before_header": item, "after_header": item, "before": "".join(lines), "after": ""})
    return entries


def main() -> None:
    """Find what is to be removed, remove it, say so."""
    module = AnsibleModule(arguments(), supports_check_mode=True)
    host = Host()
    # where Ansible keeps what this run still needs; asking for module.tmpdir would make a folder
    home = os.environ.get("HOME", "/root")
    own = [os.path.realpath(re.sub(r"\A~(?=/|\Z)", home, path)) for path in (module._remote_tmp, __file__)]
    try:
        cleanup.refuse_joined(host)
        found = cleanup.Reach(host)
        actions = cleanup.actions(host, module.params["remove"], own, found)
        warnings = found.left
        if not module.check_mode:
            warnings += cleanup.apply(host, actions)
            if module.params["trim"]:
                warnings += cleanup.trim(host)
    except cleanup.Refused as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be cleaned: {error.strerror}")
    for warning in warnings:
        module.warn(warning)
    result = {
        "changed": bool(actions),
        "removed": [{"item": action.item, "action": action.verb, "path": action.path} for action in actions],
    }
    if module._diff:
        result["diff"] = differences(actions)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
