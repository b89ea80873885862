#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_settings
short_description: Brings many settings of a machine into the wanted state, in one call
version_added: 1.0.0
description:
  - Takes a list of settings (files, directories, links, kernel modules, sysctl values, swap, systemd units, and more),
    looks at everything first, then changes what differs, in the order of the list.
  - Nothing is changed when a setting is wrong or cannot be reached; the error names all of these.
  - Files appear as a whole or not at all. When a setting fails, the error says what was applied before it, and a
    second run goes on from there. A service whose file was written by a run that was cut off is restarted by the next
    one; what remains to do is kept in C(/run/kubenode/pending.json).
  - The roles of this collection render their settings on the controller and apply them with this module.
options:
  settings:
    description:
      - The settings. Each is a dictionary with C(id) (unique), C(step) (any word, see O(only)), C(kind), and the fields
        of its kind.
      - C(file) has C(path), one of C(content), C(content_b64) and C(content_secret) (a name in O(secrets)), C(mode)
        (V("0644"), with a secret V("0600")), C(owner), C(group) (C(root)), C(secret) (its content is shown nowhere;
        C(content_secret) implies it), C(validate) (a command with V(%s) for the new content's path) and C(create_only)
        (an existing file is left). Missing directories above it are made.
      - C(directory) has C(path), C(mode), C(owner) and C(group). C(link) has C(path) and C(target).
      - C(absent) has C(path), of a file, a link or an empty directory. With C(recursive) it may be a tree, but only at
        or below C(/etc/kubernetes), C(/var/lib/kubelet), C(/etc/cni), C(/var/lib/cni), C(/etc/containerd), and below
        C(/run). What is mounted there is unmounted first. With C(keep_full), a directory with something else in it
        stays, with a warning, and with C(begins) a file whose text begins otherwise. A diff names each file that goes,
        and with C(shown) has the text of a single one.
      - C(module) has C(name) of a kernel module to load, and C(optional).
      - C(sysctl) has C(values) for the running kernel, and C(optional), keys that the kernel need not have. Kernel
        modules and sysctls are left as they are in containers; their files are settings of the kind C(file).
      - C(swap) has C(mode). With V(off), swap is switched off and kept off. Its lines in C(/etc/fstab) become comments,
        C(swap.target) and the C(.swap) units are masked, zram is disabled. With V(limited) and V(keep) it stays.
      - C(unit) has C(name), C(enabled), C(masked), C(state) (C(started), C(stopped), or C(restarted_on), which is like
        no state and means that a running unit is restarted when it must), C(restart_on) and C(reload_on) (ids of
        earlier settings or of O(changed_before)), C(wait) (seconds until it is active, by itself as long as the unit
        says, from V(30) to V(600); V(0) does not wait) and C(optional) (it may not exist).
      - C(handler) has C(argv), a command that is run when one of the settings in C(on) changed.
      - C(hold) has C(packages) and C(held). C(selinux) has C(mode) (C(enforcing) or C(permissive)). C(firewall) has
        C(ports), such as V(10250/tcp) or V(30000-32767/udp), to open in an active firewalld or ufw. C(hostname) has
        C(name).
    type: list
    elements: dict
    required: true
  secrets:
    description: Contents of files that are shown nowhere, by names for C(content_secret).
    type: dict
    default: {}
  only:
    description: Apply only settings whose C(step) is one of these. Empty means all. All of them are checked.
    type: list
    elements: str
    default: []
  changed_before:
    description:
      - Ids of what changed before this task, such as C(artifact:NAME) of M(kubenode.provision.node_artifacts), for
        C(restart_on), C(reload_on) and C(on).
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
    details: The plan is made and returned. A unit that is yet to be installed counts as one that changes.
  diff_mode:
    support: full
    details:
      - One entry for each setting that changes. The content of secret files is not shown. A mode or an owner that
        differs alone is a line with the path; what waits for a file hears only of another content.
  idempotent:
    support: full
notes:
  - The module's arguments are not written to the machine's log, since they may hold secrets.
seealso:
  - module: kubenode.provision.node_info
  - module: kubenode.provision.node_artifacts
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Forward packets, now and after a reboot, and cap the journal
  kubenode.provision.node_settings:
    settings:
      - id: kernel/sysctl-file
        step: kernel
        kind: file
        path: /etc/sysctl.d/90-example.conf
        content: |
          net.ipv4.ip_forward = 1
      - id: kernel/sysctl
        step: kernel
        kind: sysctl
        values:
          net.ipv4.ip_forward: "1"
      - id: journald/file
        step: journald
        kind: file
        path: /etc/systemd/journald.conf.d/90-example.conf
        content: |
          [Journal]
          SystemMaxUse=1G
      - id: journald/unit
        step: journald
        kind: unit
        name: systemd-journald
        restart_on: [journald/file]
"""

RETURN = r"""
steps:
  description: What each setting did, or would do in check mode, in their order. After a failure, what came before it.
  type: list
  elements: dict
  returned: always
  contains:
    id:
      description: The setting's C(id).
      type: str
    step:
      description: The setting's C(step).
      type: str
    kind:
      description: The setting's C(kind).
      type: str
    changed:
      description: Whether it changed something.
      type: bool
    before:
      description: State before, in a few words.
      type: str
    after:
      description: State after.
      type: str
    reason:
      description: Why it changed, or why it did not.
      type: str
    seconds:
      description: How long it took.
      type: float
changed_ids:
  description: Ids of the settings that changed.
  type: list
  elements: str
  returned: always
errors:
  description: Everything that is wrong with the settings, a line each.
  type: list
  elements: str
  returned: when nothing was changed because of them
failed_id:
  description: The setting that failed.
  type: str
  returned: when one failed while it was applied
diff:
  description: One entry for each setting that changes.
  type: list
  elements: dict
  returned: in diff mode
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import NoLogModule
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host, Pending
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Context


def main() -> None:
    """Check, plan, apply."""
    module = NoLogModule(
        {
            "settings": {"type": "list", "elements": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "only": {"type": "list", "elements": "str", "default": []},
            "changed_before": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    settings, errors = engine.with_secrets(module.params["settings"], module.params["secrets"])
    module.no_log_values.update(engine.secret_values(settings))
    arguments = dict(module.params, settings=engine.masked(settings), secrets=engine.MASK)
    hidden = {"invocation": {"module_args": arguments}}
    errors += engine.setting_errors(module.params["settings"])
    if errors:
        module.fail_json(msg="wrong settings: " + "; ".join(errors), errors=errors, steps=[], changed_ids=[], **hidden)
    host = Host()
    context = Context(host, module.check_mode, Pending(host), module.params["changed_before"], module.warn)
    try:
        planned = engine.plan(context, settings, module.params["only"])
    except engine.PlanError as error:
        text = f"nothing was changed: {error}"
        module.fail_json(msg=text, errors=error.errors, steps=[], changed_ids=[], **hidden)
    diff = {"diff": engine.diffs(planned)} if module._diff else {}
    if module.check_mode:
        results = [engine.result(item) for item in planned]
    else:
        try:
            results = engine.apply(context, planned, settings)
        except engine.ApplyError as error:
            module.fail_json(
                msg=str(error),
                failed_id=error.failed,
                steps=error.results,
                changed_ids=changed(error.results),
                changed=bool(changed(error.results)),
                **diff,
                **hidden,
            )
    module.exit_json(changed=bool(changed(results)), steps=results, changed_ids=changed(results), **diff, **hidden)


def changed(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ids of those that changed."""
    return [result["id"] for result in results if result["changed"]]


if __name__ == "__main__":
    main()
