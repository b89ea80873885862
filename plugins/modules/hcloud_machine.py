#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hcloud_machine
short_description: Create, adopt or delete the Hetzner Cloud servers of a whole fleet
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Makes sure that servers with these exact names exist. Missing ones are created B(powered off), so that their first
    boot can be the rescue system (see M(kubenode.provision.hcloud_rescue)).
  - Every input of every machine is checked before the first change - names, server types, images, locations, SSH
    keys, networks, firewalls and placement groups. If anything cannot work, nothing is changed and all findings are
    reported together.
  - Servers are marked with the label C(kubenode.provision/machine), adopted ones with C(kubenode.provision/adopted)
    too. A server that has the name of a machine but not the first label belongs to others and is refused, unless
    O(machines[].adopt=true).
  - A server that has the label of a machine and another name was renamed. O(state=absent) looks for it when no server
    has the name of the machine; the other states notice it where all servers are listed. It is refused.
  - An existing server is never changed apart from its labels, and never rebuilt.
extends_documentation_fragment:
  - kubenode.provision.hetzner.hcloud
  - kubenode.provision.attributes
  - kubenode.provision.hetzner.progress
  - kubenode.provision.attributes.own_run
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  machines:
    description: The machines of the fleet.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the machine, and of its server. It must be a valid host name (RFC 1123) in lower case of at most 63
            characters, and neither V(rescue) nor V(localhost).
        type: str
        required: true
      server_type:
        description:
          - Names or IDs of server types, for example V(cx23), the best one first.
          - Where the API has no room for one (C(resource_unavailable), C(placement_error)), the next is tried - all of
            O(machines[].location) with the first type, then all with the second one, and so on. See
            RV(machines[].tried).
          - Types of different architectures are refused unless O(state=started), since what is written to a disk
            has one. A type that is offered in none of the locations is refused, as is a location that offers none
            of the types.
          - Required unless O(state=absent).
        type: list
        elements: str
      location:
        description:
          - Names or IDs of locations, for example V(fsn1), the best one first. Without one the API chooses.
          - New machines of one O(machines[].placement_group) are spread over several locations. Each begins with the
            one that has the fewest servers of the group.
        type: list
        elements: str
      image:
        description:
          - What the disk holds until it is overwritten - the name of an image, the value of the label
            C(caph-image-name) of a snapshot, or the ID of either.
          - It must have the architecture of each O(machines[].server_type) and fit on its disk. As with Cluster API
            Provider Hetzner, a name that fits several images and snapshots is refused.
          - Without it, Hetzner's image C(ubuntu-24.04) is taken.
        type: str
      image_newest:
        description: Whether the newest is taken when O(machines[].image) fits several.
        type: bool
        default: false
      architecture:
        description: The architecture that O(machines[].server_type) must have. Not checked when it is not set.
        type: str
        choices: [x86, arm]
      ssh_keys:
        description:
          - Names or IDs of SSH keys that are registered with the project. A dictionary with the key
            C(label_selector) stands for all keys with these labels.
          - At least one is required unless O(state=absent), so that no root password is made.
        type: list
        elements: raw
        default: []
      labels:
        description:
          - Labels the server has at least. Other labels of an existing server are kept.
          - A label without a value (V(null)) is removed.
        type: dict
        default: {}
      networks:
        description:
          - Private networks that a new server is attached to, by name or ID, or as a dictionary with C(name), C(ip)
            (a static address), C(alias_ips) (a list of further ones) and C(subnet) (the range of one of its subnets).
          - Addresses are checked before anything is created - whether they are in a subnet, free, and not those that
            the API keeps; and whether the location is in the zone of the subnets.
          - What an interrupted run left out is attached later, as long as the server has never started.
        type: list
        elements: raw
        default: []
      firewalls:
        description:
          - Names or IDs of firewalls for a new server. A firewall that does not let port 22 in also blocks the
            rescue.
        type: list
        elements: str
        default: []
      placement_group:
        description: Name or ID of the placement group of a new server.
        type: str
      enable_ipv4:
        description:
          - Whether a new server gets a public IPv4 address.
          - Without both, it needs a private network. Hetzner's rescue has its network on the public interface, so
            M(kubenode.provision.hcloud_rescue) refuses such a server; one of an image needs O(state=started).
        type: bool
        default: true
      enable_ipv6:
        description: Whether a new server gets a public IPv6 network.
        type: bool
        default: true
      primary_ipv4:
        description:
          - Name or ID of a primary IP that a new server gets as its IPv4 address. It must be free, and decides the
            location.
          - With O(state=absent), a server that would take it along is refused.
        type: str
      primary_ipv6:
        description: The same for its IPv6 network.
        type: str
      ssh_args:
        description:
          - Arguments with which later steps start SSH, such as C(-o ProxyJump=bastion). Where it is set, also to an
            empty text, a new server without a public IPv4 address is refused when this controller has no route to the
            addresses that it would have, and neither these arguments nor the configuration of SSH name another host
            on the way.
        type: str
      user_data:
        description:
          - User data of a new server, at most 32 KiB. The metadata service shows it to every process of the server
            for as long as the server lives, so do not put secrets in it.
        type: str
      user_data_file:
        description: File of the user data on the controller, instead of O(machines[].user_data).
        type: path
      adopt:
        description:
          - Whether a server of this name that was made by others may be taken over. It gets the label
            C(kubenode.provision/adopted) as well.
          - It permits nothing with O(state=absent), see O(delete).
        type: bool
        default: false
  delete:
    description:
      - Names of machines whose servers may be deleted by O(state=absent) although they were adopted. Other states
        ignore it.
      - A dictionary of names and installations (at least the first eight digits of their ids) says which installation
        goes. A server that was made or written for another one, or for none, is refused.
      - Servers that this collection made are deleted without it, servers that it neither made nor adopted are not
        deleted at all.
    type: raw
    default: []
  state:
    description:
      - V(present) creates missing servers, powered off.
      - V(absent) deletes the servers that this collection made, and the adopted ones that O(delete) names. The others
        are refused, and so is a server that is protected against deletion, also in check mode. A server is refused,
        too, that would take a primary IP along (C(auto_delete) is on) which a machine names, or which was not made
        together with it.
      - V(started) creates missing servers and powers on what is off, for images that need no rescue, such as those of
        M(kubenode.provision.hcloud_node_image).
    type: str
    choices: [present, started, absent]
    default: present
  ssh_private_key:
    description:
      - File of the SSH private key on the controller that later steps will use.
      - If it is given, its public half must be one of O(machines[].ssh_keys) of every machine. Otherwise the module
        refuses before anything is created.
      - The public half is derived from the key itself, or read from the C(.pub) file beside it if the key has a
        passphrase.
    type: path
  wait:
    description:
      - Whether to wait until the API has finished creating or deleting.
      - With V(false) the results carry RV(machines[].create_action), and M(kubenode.provision.hcloud_rescue) waits
        for it. So a fleet goes through both modules without a barrier in between.
      - With V(false) the requests for arming and starting are counted, too, when the API's budget is judged before
        the first server is created.
    type: bool
    default: true
  timeout:
    description: Seconds each machine has for reaching its state, including repeated requests.
    type: int
    default: 360
seealso:
  - module: kubenode.provision.hcloud_rescue
"""

EXAMPLES = r"""
- name: Create three machines, powered off
  kubenode.provision.hcloud_machine:
    machines:
      - name: worker-1
        server_type: cx23
        location: fsn1
        ssh_keys: [deploy]
      - name: worker-2
        server_type: cx23
        location: nbg1
        ssh_keys: [deploy]
      - name: worker-arm
        server_type: cax11
        location: hel1
        ssh_keys: [deploy]
        labels:
          pool: arm
    ssh_private_key: ~/.ssh/deploy
    wait: false
  delegate_to: localhost
  run_once: true
  register: fleet

- name: Create a machine where there is room
  kubenode.provision.hcloud_machine:
    machines:
      - name: worker-4
        server_type: [cx23, cx33]
        location: [fsn1, nbg1, hel1]
        ssh_keys: [deploy]
  delegate_to: localhost

- name: Create a machine without public addresses, with a static private one
  kubenode.provision.hcloud_machine:
    state: started
    machines:
      - name: worker-5
        server_type: cx23
        location: fsn1
        image: debian-13-kubernetes-1.36.4
        ssh_keys: [deploy]
        enable_ipv4: false
        enable_ipv6: false
        networks:
          - name: cluster
            ip: 10.0.0.5
            alias_ips: [10.0.0.105]
  delegate_to: localhost

- name: Take over a server that was made by hand
  kubenode.provision.hcloud_machine:
    machines:
      - name: old-server
        server_type: cx23
        ssh_keys: [deploy]
        adopt: true
  delegate_to: localhost

- name: Create and boot a machine from a node image
  kubenode.provision.hcloud_machine:
    state: started
    machines:
      - name: worker-3
        server_type: cx23
        image: debian-13-kubernetes-1.36.4
        ssh_keys: [deploy]
  delegate_to: localhost

- name: Delete two machines that this module made
  kubenode.provision.hcloud_machine:
    state: absent
    machines:
      - name: worker-1
      - name: worker-2
  delegate_to: localhost

- name: Delete a server that was made by hand and adopted later
  kubenode.provision.hcloud_machine:
    state: absent
    machines:
      - name: old-server
    delete: [old-server]
  delegate_to: localhost

- name: Delete a machine only while it is this installation
  kubenode.provision.hcloud_machine:
    state: absent
    machines:
      - name: worker-3
    delete: {worker-3: 5f0c6f1d}
  delegate_to: localhost
"""

RETURN = r"""
machines:
  description: One result for each machine, in the order of the option O(machines).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the machine.
      type: str
      sample: worker-1
    id:
      description: ID of the server, V(null) if there is none.
      type: int
      sample: 42
    ipv4:
      description: Public IPv4 address, V(null) if there is none.
      type: str
      sample: 192.0.2.10
    ipv6:
      description: Public IPv6 network, V(null) if there is none.
      type: str
      sample: 2001:db8:0:1::/64
    ipv6_address:
      description: The first address of that network, which is the server's.
      type: str
      sample: 2001:db8:0:1::1
    private_net:
      description:
        - Its places in private networks - the ID of the C(network), C(ip) and C(alias_ips).
        - With O(wait=false), C(ip) is V(null) where the API has not said yet which address it has chosen for a server
          that was created by this call and has a public address.
      type: list
      elements: dict
      sample:
        - network: 7
          ip: 10.0.0.2
          alias_ips: []
    address:
      description: Where SSH reaches it - at its public IPv4 address, else at C(ipv6_address), else at a private one.
      type: str
      sample: 192.0.2.10
    status:
      description: Status of the server as far as it is known.
      type: str
      sample: 'off'
    server_type:
      description: Name of the server type the server has, or shall have.
      type: str
      sample: cx23
    location:
      description: Name of the location the server is in, or shall be in.
      type: str
      sample: fsn1
    image:
      description: Name or ID of the image the server was made from.
      type: raw
      sample: ubuntu-24.04
    tried:
      description:
        - For a server that was created by this call, the types and locations that were tried before and for which the
          API had no room, with the code of its answer.
        - What the API answered for another machine of this call is not asked again.
      type: list
      elements: dict
      sample:
        - server_type: cx23
          location: fsn1
          error: resource_unavailable
    instead:
      description: The same as a clause for people, empty if nothing was tried before.
      type: str
      sample: cx33 in nbg1, as there was no room for cx23 in fsn1 (resource_unavailable)
    created:
      description: Whether the server was created by this call.
      type: bool
    adopted:
      description: Whether the server was adopted by this call.
      type: bool
    fresh:
      description:
        - V(true) if the server was created by this call and so never started, V(false) if it has certainly been
          started.
        - V(null) if that would have to be looked up.
      type: bool
    price_hourly:
      description:
        - Net price of the server for an hour, without its addresses and its traffic. V(null) if the API does not
          report it, or there is no server.
      type: float
      sample: 0.0064
    price_monthly:
      description: The most that the server costs in a calendar month, net.
      type: float
      sample: 3.99
    server_created:
      description: When the server was created, by the clock of the API. V(null) if there is none.
      type: str
      sample: '2026-11-21T00:00:00Z'
    create_action:
      description: The action of the API that creates the server, if it was created by this call.
      type: dict
      sample:
        id: 7
        command: create_server
        status: running
        started: '2026-11-21T00:00:00Z'
    ssh_keys:
      description: The registered SSH keys that the server was made with, if it was created by this call.
      type: list
      elements: dict
      sample:
        - id: 3
          name: deploy
          public_key: ssh-ed25519 AAAA… deploy
    boot_state:
      description: Boot state of the machine, empty if it is not known.
      type: str
      sample: Initializing
    boot_state_since:
      description: When the boot state began.
      type: str
      sample: '2026-11-21T00:00:00.000Z'
    transitions:
      description: Changes of the boot state during this call.
      type: list
      elements: dict
      sample:
        - machine: worker-1
          from: ''
          to: Initializing
          at: '2026-11-21T00:00:00.000Z'
          seconds: 0.412
    api_calls:
      description: Requests that were made for this machine alone.
      type: int
      sample: 1
    changed:
      description:
        - Whether anything about this machine was changed. A request that the API refused changes nothing; one that got
          no answer counts as a change, since it may have been carried out.
      type: bool
    failed:
      description: Whether this machine failed.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
      sample: created, powered off
api_calls:
  description: Requests that were made for the whole fleet, shared ones included.
  returned: always
  type: int
  sample: 8
api_budget:
  description: The request limit of the project (C(limit) an hour) and what was C(remaining) of it; C(api) is V(hcloud).
  returned: when the API reports it
  type: dict
  sample: {api: hcloud, limit: 3600, remaining: 3592}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import VARIABLES
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import (
    Api,
    api_options,
    open_cloud,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_machines import MachineFleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import progress_options, run_fleet


def argument_spec() -> dict[str, Any]:
    machine = {
        "name": {"type": "str", "required": True},
        "server_type": {"type": "list", "elements": "str"},
        "location": {"type": "list", "elements": "str"},
        "image": {"type": "str"},
        "image_newest": {"type": "bool", "default": False},
        "architecture": {"type": "str", "choices": ["x86", "arm"]},
        "ssh_keys": {"type": "list", "elements": "raw", "default": [], "no_log": False},
        "labels": {"type": "dict", "default": {}},
        "networks": {"type": "list", "elements": "raw", "default": []},
        "firewalls": {"type": "list", "elements": "str", "default": []},
        "placement_group": {"type": "str"},
        "enable_ipv4": {"type": "bool", "default": True},
        "enable_ipv6": {"type": "bool", "default": True},
        "primary_ipv4": {"type": "str"},
        "primary_ipv6": {"type": "str"},
        "ssh_args": {"type": "str"},
        "user_data": {"type": "str", "no_log": True},
        "user_data_file": {"type": "path"},
        "adopt": {"type": "bool", "default": False},
    }
    return dict(
        api_options(),
        machines={"type": "list", "elements": "dict", "required": True, "options": machine},
        delete={"type": "raw", "default": []},
        state={"type": "str", "choices": ["present", "started", "absent"], "default": "present"},
        ssh_private_key={"type": "path", "no_log": False},
        wait={"type": "bool", "default": True},
        timeout={"type": "int", "default": 360},
        variables=dict(VARIABLES),
        **progress_options(),
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params

    def work(api: Api) -> list[dict[str, Any]]:
        fleet = MachineFleet(
            api,
            params["machines"],
            state=params["state"],
            wait=params["wait"],
            timeout=params["timeout"],
            check_mode=module.check_mode,
            private_key=params["ssh_private_key"],
            delete=params["delete"],
        )
        return fleet.run()

    run_fleet(module, work, open_cloud)


if __name__ == "__main__":
    main()
