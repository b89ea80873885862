#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Tells what a machine is and has, as far as a Kubernetes node is concerned
version_added: 1.0.0
description:
  - Reads the facts from which the roles of this collection plan, in one call and within a fraction of a second. Files
    are read, and the few programs that are needed run at the same time.
  - Changes nothing, needs no network and updates no package index.
options:
  packages:
    description: Names of packages whose installed version is wanted.
    type: list
    elements: str
    default: []
  candidates:
    description:
      - Whether to return also the version of each of O(packages) that the package manager would install, as far as the
        index that is on the machine knows.
    type: bool
    default: false
  binaries:
    description: Names or absolute paths of programs. They are run in order to learn their version.
    type: list
    elements: str
    default: []
  units:
    description: Names of systemd units; C(.service) may be left out.
    type: list
    elements: str
    default: []
  files:
    description: Absolute paths of files to describe.
    type: list
    elements: str
    default: []
  sysctls:
    description: Sysctl keys whose value in the running kernel is wanted.
    type: list
    elements: str
    default: []
  modules:
    description: Names of kernel modules.
    type: list
    elements: str
    default: []
  artifacts:
    description:
      - Whether to return what M(kubenode.provision.node_artifacts) installed, and whether its files are still the same.
        They are read whole for that.
    type: bool
    default: false
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
    details: The module changes nothing anyway.
  diff_mode:
    support: N/A
    details: There is nothing to compare.
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.node_settings
  - module: kubenode.provision.node_artifacts
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Look at a machine
  kubenode.provision.node_info:
    packages: [conntrack, ethtool]
    binaries: [containerd, /usr/local/bin/kubelet]
    units: [containerd, kubelet]
    sysctls: [net.ipv4.ip_forward]
    modules: [overlay, br_netfilter]
  register: looked

- name: Show what it runs
  ansible.builtin.debug:
    msg: "{{ looked.node.os.pretty_name }}, Linux {{ looked.node.kernel }}"
"""

RETURN = r"""
node:
  description: What was found.
  type: dict
  returned: always
  contains:
    os:
      description: RV(ignore:id), RV(ignore:version_id), RV(ignore:id_like), RV(ignore:pretty_name) and
        RV(ignore:codename) of C(/etc/os-release).
      type: dict
    arch:
      description: Architecture in the words of Kubernetes.
      type: str
      sample: amd64
    kernel:
      description: Release of the kernel.
      type: str
    systemd:
      description: Version of systemd; V(null) when it is not there.
      type: int
    cgroup:
      description: Version of the cgroup tree, V(1) or V(2).
      type: int
    container:
      description: Whether the machine is a container.
      type: bool
    virtualization:
      description: In the words of C(systemd-detect-virt); V(none) on bare metal.
      type: str
    python:
      description: Version of the Python that runs this module.
      type: str
    package_manager:
      description: V(apt), V(dnf) or V(none).
      type: str
    read_only_usr:
      description: Whether C(/usr) is mounted read-only.
      type: bool
    selinux:
      description: V(enforcing), V(permissive), V(disabled) or V(absent).
      type: str
    firewall:
      description: V(active), V(inactive) or V(absent) for each of C(firewalld), C(ufw) and C(nftables).
      type: dict
    cpus:
      description: Number of processors.
      type: int
    memory_bytes:
      description: Memory in bytes.
      type: int
    disk_free:
      description: Bytes that are free below some directories.
      type: dict
    time:
      description: RV(ignore:unix) (seconds), RV(ignore:ntp_synchronized) (V(null) when the kernel does not say) and
        RV(ignore:services).
      type: dict
    swaps:
      description: Swap in use, each with RV(ignore:name), RV(ignore:type) and RV(ignore:size) in bytes.
      type: list
      elements: dict
    machine_id:
      description: Content of C(/etc/machine-id).
      type: str
    boot_id:
      description: Id of this boot.
      type: str
    hostname:
      description: Hostname of the running system.
      type: str
    uid:
      description: The user that this module ran as; V(0) is root.
      type: int
    in_rescue:
      description: Whether Hetzner's rescue system runs, and not an installed system.
      type: bool
    network:
      description: RV(ignore:addresses) of all interfaces but the loopback, and for either family the
        RV(ignore:default) address, interface and gateway.
      type: dict
    resolv:
      description: The nameservers of each C(resolv.conf) that exists.
      type: dict
    packages:
      description: Installed version of each of O(packages); V(null) when it is not installed.
      type: dict
    candidates:
      description: Version of each of O(packages) that would be installed, with O(candidates).
      type: dict
    held:
      description: Those of O(packages) that are held at their version.
      type: list
      elements: str
    binaries:
      description: RV(ignore:path) and RV(ignore:version) of each of O(binaries); V(null) when it is not there.
      type: dict
    units:
      description: RV(ignore:load), RV(ignore:active) and RV(ignore:enabled) of each of O(units).
      type: dict
    files:
      description: RV(ignore:exists), RV(ignore:type), RV(ignore:leads_to) (the type of what is there when links are
        followed), RV(ignore:sha256) (of a file of at most 64 MiB), RV(ignore:mode) and RV(ignore:size) of each of
        O(files).
      type: dict
    sysctls:
      description: Value of each of O(sysctls); V(null) when the kernel does not have it.
      type: dict
    modules:
      description: V(loaded), V(builtin), V(available) or V(missing) for each of O(modules).
      type: dict
    artifacts:
      description: By name, what M(kubenode.provision.node_artifacts) wrote down, such as C(version) and C(sha256);
        C(files) has for each path its C(mode) and whether it is the C(same), or V(null) when it is not there.
        Empty unless O(artifacts=true).
      type: dict
    base:
      description: Content of C(/etc/kubenode/base.json), in which the role C(base) says what is installed.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node import info
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host


def main() -> None:
    """Read the facts and return them."""
    names = {"type": "list", "elements": "str", "default": []}
    spec = {option: dict(names) for option in ("packages", "binaries", "units", "files", "sysctls", "modules")}
    module = AnsibleModule(
        dict(spec, candidates={"type": "bool", "default": False}, artifacts={"type": "bool", "default": False}),
        supports_check_mode=True,
    )
    errors = info.query_errors(module.params)
    if errors:
        module.fail_json(msg="; ".join(errors))
    asked = info.Queries(**{field: module.params[field] for field in info.Queries._fields})
    try:
        module.exit_json(changed=False, node=info.read(Host(), asked))
    except info.Late as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
