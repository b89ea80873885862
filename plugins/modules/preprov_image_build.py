#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preprov_image_build
short_description: Makes CoreOS live images for a group of hosts, each with its own Ignition and network
version_added: 1.0.0
description:
  - Puts an Ignition with the Ironic agent (or one of yours), NetworkManager profiles, kernel arguments, files, units
    and SSH keys into a CoreOS live ISO or initramfs, for every host of a list in one call.
  - An image is an overlay over its base. It becomes a file (O(mode=file)), whose unchanged parts share their blocks
    with the base where the file system can do that, or a descriptor of a few KB (O(mode=overlay)), from which the image
    server streams the image.
  - Everything of every host is made and checked before anything is written. A host with an error gets nothing, the
    others get their images.
  - Runs on the machine where the bases and O(dest) are, usually the controller (C(delegate_to)) or an image server.
options:
  mode:
    description:
      - V(file) writes images, V(overlay) writes descriptors for the image server.
      - V(show) returns what O(images) have embedded, without secrets. V(reset) makes ISOs as they were published.
    type: str
    choices: [file, overlay, show, reset]
    default: file
  hosts:
    description: The hosts. Required for O(mode=file) and O(mode=overlay).
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the host (RFC 1123, lower case). Its files are called V(NAME.iso), V(NAME-minimal.iso),
            V(NAME.initramfs) and V(NAME.ipxe).
        type: str
        required: true
      state:
        description:
          - V(absent) removes what this module wrote for the host in O(dest). A file whose size or date is not the one
            that was written stays, and the host fails.
          - With V(present), a file of others with the name of an image stays, too, and the hosts that need it fail.
        type: str
        choices: [present, absent]
        default: present
      hostname:
        description: The name the host gets when nothing else gives it one, instead of O(hosts[].name). Empty for none.
        type: str
      architecture:
        description:
          - Architecture of the host, such as V(x86_64) or V(arm64). Its base lies beside O(base_iso) (or in
            O(shared_dir)) and is called like it, with C(_) or C(.) and the architecture before the suffix, for example
            V(coreos_aarch64.iso).
          - Without it, and for the architecture of the machine this runs on, O(base_iso) and O(base_initramfs) are
            taken.
        type: str
      outputs:
        description: What to make for this host, instead of O(outputs).
        type: list
        elements: str
        choices: [iso, minimal_iso, initramfs, pxe]
      network:
        description: NMState document, as data or as text. Without one the host uses DHCP.
        type: raw
      network_file:
        description: File with the NMState document.
        type: path
      ignition:
        description:
          - An Ignition (version 3) instead of the agent's, as data or as JSON. Network, O(hosts[].files),
            O(hosts[].units), O(hosts[].ssh_keys) and O(hosts[].hostname) are laid over it.
        type: raw
      ignition_file:
        description: File with that Ignition.
        type: path
      merge:
        description: An Ignition that is laid over the result, as data or as JSON.
        type: raw
      merge_file:
        description: File with that Ignition.
        type: path
      files:
        description: Further files of the live system.
        type: list
        elements: dict
        default: []
        suboptions:
          path:
            description: Absolute path on the host.
            type: str
            required: true
          content:
            description: Its content as text. One of this, O(hosts[].files[].content_base64) and O(hosts[].files[].src).
            type: str
          content_base64:
            description: Its content in base64.
            type: str
          src:
            description: File with its content.
            type: path
          mode:
            description: Its mode, as an octal number in quotes. What only its owner may read is never shown.
            type: str
            default: "0644"
      units:
        description: Further systemd units; they are enabled.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the unit with its suffix.
            type: str
            required: true
          contents:
            description: The unit file. One of this and O(hosts[].units[].src).
            type: str
          src:
            description: File with the unit file.
            type: path
      ssh_keys:
        description: Public keys that may log in as C(core), besides O(ssh_keys).
        type: list
        elements: str
        default: []
      kernel_arguments:
        description:
          - Changes of the kernel arguments, of ISOs and iPXE scripts. Delete comes first, then replace, then append.
        type: dict
        suboptions:
          append:
            description: Arguments to add.
            type: list
            elements: str
            default: []
          replace:
            description: Arguments to replace, each as C(KEY=OLD=NEW).
            type: list
            elements: str
            default: []
          delete:
            description: Arguments to delete; each must be there.
            type: list
            elements: str
            default: []
          reset:
            description: Begin with the arguments the ISO was published with.
            type: bool
            default: false
      initramfs_network:
        description:
          - Whether the network profiles are for the initramfs, too, where the base reads them. Ignition itself and a
            root file system from the network need that.
        type: bool
        default: true
      agent_image:
        description: The agent's image for this host, instead of O(agent_image).
        type: str
  images:
    description:
      - Images to look at or to reset. Required for O(mode=show) and O(mode=reset).
      - O(mode=show) takes ISOs, initramfs and descriptors, O(mode=reset) ISOs.
    type: list
    elements: path
  dest:
    description:
      - Folder for the images or descriptors. It is made, for its owner alone, when its parent is there. Required for
        O(mode=file) and O(mode=overlay).
    type: path
  outputs:
    description:
      - What to make.
      - V(iso) is the base with the host's Ignition. V(minimal_iso) is a small ISO that fetches its root file system
        from O(rootfs_url).
      - V(initramfs) is the base initramfs followed by the host's Ignition. V(pxe) is the same with an iPXE script, and
        with kernel and root file system, which all hosts of an architecture share.
    type: list
    elements: str
    choices: [iso, minimal_iso, initramfs, pxe]
    default: [iso]
  base_iso:
    description: The base live ISO, a file or a block device. Falls back to E(DEPLOY_ISO).
    type: path
  base_initramfs:
    description: The base initramfs. Falls back to E(DEPLOY_INITRD), then to the one inside of O(base_iso).
    type: path
  base_kernel:
    description: The kernel for V(pxe), instead of the one inside of O(base_iso).
    type: path
  base_rootfs:
    description: The root file system for V(pxe), instead of the one inside of O(base_iso).
    type: path
  shared_dir:
    description:
      - Folder of the bases of other architectures, instead of the folders of O(base_iso) and O(base_initramfs). Falls
        back to E(IMAGE_SHARED_DIR).
    type: path
  publish_url:
    description: URL under which O(dest) is published, for RV(urls), iPXE scripts and minimal ISOs.
    type: str
  rootfs_url:
    description: URL of the root file system for V(minimal_iso) and V(pxe), when it is not published beside the images.
    type: str
  names_secret_file:
    description: The secret of an image server whose paths cannot be guessed; RV(urls) are then those of that server.
    type: path
  nmstate:
    description:
      - What converts NMState documents - V(builtin), which needs nothing, or the program V(nmstatectl). With V(auto) it
        is that program where it is installed.
    type: str
    choices: [auto, builtin, nmstatectl]
    default: builtin
  force:
    description: Whether a base that has something embedded already is taken; what it has is replaced.
    type: bool
    default: false
  enlarge:
    description:
      - Whether an Ignition that does not fit into the area of the ISO gets a larger one at the end of the image.
        Without it, such an Ignition is refused with the number of bytes it has too many.
    type: bool
    default: false
  verify:
    description:
      - How an image file that is there already is recognised. V(record) trusts the record beside it
        (C(.NAME.kubenode.json)) while inode, size and times are those of the record, and reads the whole file in all
        other cases. V(full) reads the whole file each time.
    type: str
    choices: [record, full]
    default: record
  permissions:
    description: Permissions of what is written, as an octal number in quotes. Images and descriptors hold secrets.
    type: str
    default: "0600"
  owner:
    description: User of what is written.
    type: str
  group:
    description: Group of what is written.
    type: str
  on_error:
    description:
      - Whether one host's error fails the task (V(fail), after the other hosts got their images) or is only in its
        result (V(report)).
    type: str
    choices: [fail, report]
    default: fail
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
      - Whether the agent makes VLAN interfaces of what its switch announces - V(always), V(never), or V(automatic) for
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
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Ignition, network profiles and kernel arguments before and after, without secrets.
  idempotent:
    support: full
notes:
  - Environment variables are those of the machine and task this runs in.
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Make ISOs with the Ironic agent for two hosts
  kubenode.provision.preprov_image_build:
    base_iso: /srv/bases/coreos.iso
    dest: /srv/images
    publish_url: http://images.example.com:8084
    agent_image: quay.io/metal3-io/ironic-python-agent:latest
    ironic_urls: [https://ironic.example.com]
    pull_secret_file: pull-secret.json
    hosts:
      - name: web-1
        network:
          interfaces:
            - name: eno1
              type: ethernet
              state: up
              ipv4:
                enabled: true
                dhcp: false
                address: [{ip: 192.0.2.11, prefix-length: 24}]
          routes:
            config:
              - {destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: eno1}
      - name: web-2
        kernel_arguments:
          append: [console=ttyS0]
  delegate_to: localhost
  run_once: true
  register: images

- name: Publish descriptors on an image server, and stop publishing one host
  kubenode.provision.preprov_image_build:
    mode: overlay
    base_iso: /var/lib/kubenode-image-server/bases/coreos.iso
    dest: /var/lib/kubenode-image-server/overlays
    permissions: "0640"
    group: kubenode-images
    publish_url: http://images.example.com:8084
    outputs: [iso, pxe]
    hosts:
      - name: db-1
        ignition: "{{ lookup('ansible.builtin.file', 'db-1.ign') }}"
      - name: db-2
        state: absent

- name: Look at what an image has embedded
  kubenode.provision.preprov_image_build:
    mode: show
    images: [/srv/images/web-1.iso]

- name: Give an image back as it was published
  kubenode.provision.preprov_image_build:
    mode: reset
    images: [/srv/images/coreos.iso]
"""

RETURN = r"""
hosts:
  description: One result for each host, in the order of O(hosts).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the host.
      type: str
    changed:
      description: Whether anything of this host was written or removed, or would be in check mode.
      type: bool
    failed:
      description: Whether this host got nothing, or not everything.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
    images:
      description: Its images.
      type: list
      elements: dict
      contains:
        kind:
          description: V(iso), V(minimal_iso), V(initramfs) or V(ipxe).
          type: str
        name:
          description: Name of the image.
          type: str
        path:
          description: The image file, or the descriptor.
          type: str
        url:
          description: Where it is published, empty without O(publish_url).
          type: str
        size:
          description: Size of the image in bytes.
          type: int
        etag:
          description: Digest of its content; the entity tag that every image server with such a base gives it.
          type: str
        own_bytes:
          description: Bytes that it does not share with its base.
          type: int
        changed:
          description: Whether it was written, or would be in check mode.
          type: bool
    urls:
      description: URL of each kind of image.
      type: dict
      sample: {"iso": "http://images.example.com:8084/web-1.iso"}
    ignition_bytes:
      description: Size of its Ignition before it is packed.
      type: int
    area_bytes:
      description: Size of the area that a packed Ignition must fit into, V(null) without an ISO.
      type: int
    warnings:
      description: What has no effect, or may not work with every BMC.
      type: list
      elements: str
shared:
  description: Kernels and root file systems, which hosts share; entries as in RV(hosts[].images).
  type: list
  elements: dict
  returned: always
shared_msg:
  description: Why they could not be written, empty when they could.
  type: str
  returned: always
urls:
  description: URLs by host and kind.
  type: dict
  returned: always
  sample: {"web-1": {"iso": "http://images.example.com:8084/web-1.iso"}}
images:
  description: One entry for each of O(images).
  type: list
  elements: dict
  returned: always
  contains:
    path:
      description: The image.
      type: str
    failed:
      description: Whether it could not be read or written.
      type: bool
    changed:
      description: Whether it was reset, or would be in check mode.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
    kind:
      description: V(iso), V(initramfs) or V(other) (nothing is embedded behind it).
      type: str
      returned: for O(mode=show)
    size:
      description: Size in bytes.
      type: int
      returned: for O(mode=show)
    etag:
      description: Digest of the image.
      type: str
      returned: for O(mode=show)
    customised:
      description: Whether anything is embedded, or the kernel arguments are not the published ones.
      type: bool
      returned: for O(mode=show)
    members:
      description: Names of the embedded files.
      type: list
      elements: str
      returned: for O(mode=show)
    ignition:
      description: The embedded Ignition without its secrets, V(null) without one.
      type: dict
      returned: for O(mode=show)
    ignition_bytes:
      description: Its size.
      type: int
      returned: for O(mode=show)
    network:
      description: Network profiles of the live system.
      type: dict
      returned: for O(mode=show)
    initramfs_network:
      description: Network profiles of its initramfs.
      type: dict
      returned: for O(mode=show)
    area:
      description: Where the area for the Ignition is, and which file says so.
      type: dict
      returned: for ISOs
      sample: {"offset": 1048576, "length": 262144, "source": "igninfo"}
    volume_id:
      description: Name of the volume.
      type: str
      returned: for ISOs
    features:
      description: What the ISO says that it can do.
      type: dict
      returned: for ISOs
    has_minimal:
      description: Whether a minimal ISO can be made of it.
      type: bool
      returned: for ISOs
    kernel_arguments:
      description: Kernel arguments now and as published, and how many bytes they may have.
      type: dict
      returned: for ISOs that have areas for them
"""

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build


def main() -> None:
    module = image_build.SecretiveModule(
        image_build.argument_spec(), required_if=image_build.REQUIRED_IF, supports_check_mode=True
    )
    image_build.run(module)


if __name__ == "__main__":
    main()
