# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options for the Ironic agent of a live image; each one falls back to the variable that the peer reads."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the agent."""

    DOCUMENTATION = r"""
options:
  agent_image:
    description:
      - Image of the Ironic agent. Falls back to E(IRONIC_AGENT_IMAGE). Required unless each host has an Ignition of
        its own.
    type: str
  ironic_urls:
    description:
      - URLs of Ironic's API; port 6385 is added to those that have none. Falls back to E(IRONIC_BASE_URL), a list with
        commas. Required unless each host has an Ignition of its own.
    type: list
    elements: str
  inspector_urls:
    description:
      - URLs of the inspector; port 5050 and C(/v1/continue) are added. Falls back to E(IRONIC_INSPECTOR_BASE_URL).
    type: list
    elements: str
  ironic_insecure:
    description: Whether the agent trusts any certificate of Ironic. Falls back to E(IRONIC_INSECURE).
    type: bool
    default: false
  pull_secret:
    description:
      - Credentials for the agent's image, the JSON of an C(auth.json), also in base64. Falls back to
        E(IRONIC_AGENT_PULL_SECRET), then to the file C(/run/secrets/pull-secret) if there is one.
    type: json
  pull_secret_file:
    description: File with O(pull_secret).
    type: path
  vlan_interfaces:
    description:
      - Whether the agent makes VLAN interfaces of what its switch announces - V(always), V(never), or anything else for
        only without network data. Falls back to E(IRONIC_AGENT_VLAN_INTERFACES).
    type: str
  ssh_keys:
    description:
      - Public keys that may log in as C(core) on every host. E(IRONIC_RAMDISK_SSH_KEY) is used when this is not given,
        one key a line.
    type: list
    elements: str
  registries_conf:
    description: Content of C(/etc/containers/registries.conf).
    type: str
  registries_conf_file:
    description: File with O(registries_conf). Falls back to E(REGISTRIES_CONF_PATH).
    type: path
  ip_options:
    description: The C(ip=) options of the installed system, which the agent passes on. Falls back to E(IP_OPTIONS).
    type: str
  http_proxy:
    description: Proxy of the agent. Falls back to E(HTTP_PROXY).
    type: str
  https_proxy:
    description: Proxy of the agent. Falls back to E(HTTPS_PROXY).
    type: str
  no_proxy:
    description: What the agent reaches without a proxy. Falls back to E(NO_PROXY).
    type: str
  ntp_servers:
    description: Further NTP servers. Falls back to E(ADDITIONAL_NTP_SERVERS), a list with commas.
    type: list
    elements: str
  ca_bundle:
    description: Certificates (PEM) that the live system trusts besides its own.
    type: str
  ca_bundle_file:
    description: File with O(ca_bundle). Falls back to E(CA_BUNDLE).
    type: path
  agent_environment:
    description: Further environment variables of the agent's container.
    type: dict
  podman_options:
    description: Further options for C(podman run) of the agent.
    type: list
    elements: str
"""
