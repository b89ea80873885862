# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: preprov_images
short_description: Turns host variables into the options of preprov_image_build, and its results into a table
version_added: 1.0.0
positional: purpose
description:
  - V(inputs) reads the C(kubenode_image_*) variables of each host and returns C(hosts) and C(common), the options of
    M(kubenode.provision.preprov_image_build). Files that variables name are read here, since the module may run
    elsewhere. What concerns all hosts must be the same for all; a variable that differs is an error that names it.
  - V(table) takes the module's results and returns the lines of a table of images. With O(check) it says of those that
    would be written where they would be.
options:
  _input:
    description:
      - The variables of the hosts, usually C(ansible_play_batch | map('extract', hostvars)), or results of the module.
    type: list
    elements: dictionary
    required: true
  purpose:
    description:
      - What to make of them.
    type: string
    choices: [inputs, table]
    required: true
  check:
    description:
      - Whether the results are those of a run in check mode, which writes nothing.
    type: boolean
    default: false
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: What preprov_image_build is to make for the group
  ansible.builtin.debug:
    msg: "{{ (groups['workers'] | map('extract', hostvars) | kubenode.provision.preprov_images('inputs')).hosts }}"
"""

RETURN = r"""
_value:
  description: A dictionary with C(hosts) and C(common), or the lines of the table.
  type: raw
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

PREFIX = "kubenode_image_"
#: what every host of a run shares: options of the module
COMMON = (
    "server", "base_iso", "base_initramfs", "base_kernel", "base_rootfs", "shared_dir", "dest", "publish_url",
    "rootfs_url", "ironic_urls", "inspector_urls", "ironic_insecure", "pull_secret", "vlan_interfaces",
    "registries_conf", "ip_options", "http_proxy", "https_proxy", "no_proxy", "ntp_servers", "ca_bundle",
    "agent_environment", "podman_options", "nmstate", "force", "enlarge", "verify", "permissions", "owner", "group",
)  # fmt: skip
#: what each host may have of its own: options of `hosts`
OWN = (
    "state", "hostname", "architecture", "outputs", "network", "ignition", "merge", "files", "units", "ssh_keys",
    "kernel_arguments", "initramfs_network", "agent_image",
)  # fmt: skip
#: whose content may also be in a file of the controller, named by the variable with _file behind it
IN_FILES = ("network", "ignition", "merge", "pull_secret", "registries_conf", "ca_bundle")
#: paths of the machine that the module runs on
_PATHS = ("base_iso", "base_initramfs", "base_kernel", "base_rootfs", "shared_dir", "dest")
_MOST_BYTES = 16 * 1024 * 1024


def preprov_images(given: Iterable[Mapping[str, Any]], purpose: str, *, check: bool = False) -> Any:
    if purpose == "inputs":
        return _inputs(list(given))
    if purpose == "table":
        return _table(list(given), check=check)
    raise AnsibleFilterError(f"preprov_images: purpose is {purpose!r}; use inputs or table")


def _inputs(hosts: list[Mapping[str, Any]]) -> dict[str, Any]:
    if not all(isinstance(host, Mapping) and "inventory_hostname" in host for host in hosts):
        raise AnsibleFilterError("preprov_images: feed it host variables: groups['…'] | map('extract', hostvars)")
    common: dict[str, Any] = {}
    specs = []
    for host in hosts:
        for name in COMMON:
            value = _value(host, name, strict=True)
            if host is hosts[0]:
                if value is not None:
                    common[name] = value
            elif value != common.get(name):
                first, other = hosts[0]["inventory_hostname"], host["inventory_hostname"]
                raise AnsibleFilterError(
                    f"{PREFIX}{name} differs between {first} and {other}; it must be the same for all hosts of a "
                    "run: set it for the whole group, or run the playbook once for each value with --limit. "
                    "Nothing was made."
                )
        specs.append(_host(host))
    if not common.get("server"):  # else they are paths of the server
        common.update({name: _place(hosts[0], name, str(common[name])) for name in _PATHS if common.get(name)})
    images = [spec["agent_image"] for spec in specs if "agent_image" in spec]
    if images:
        common["agent_image"] = images[0]  # the default; every host that differs says so itself
    return {"hosts": specs, "common": common}


def _host(host: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": host.get(PREFIX + "name") or host["inventory_hostname"]}
    for name in OWN:
        value = _value(host, name)
        if value is not None:
            spec[name] = value
    for name in IN_FILES[:3]:
        # a file that cannot be read is this host's error, and the module names it
        if name not in spec and host.get(f"{PREFIX}{name}_file"):
            spec[f"{name}_file"] = _place(host, f"{name}_file", str(host[f"{PREFIX}{name}_file"]))
    for name, key, read in (("files", "content_base64", _bytes), ("units", "contents", _text)):
        entries = spec.get(name)
        if isinstance(entries, list):
            spec[name] = [_inlined(host, name, entry, key, read) for entry in entries]
    return spec


def _inlined(host: Mapping[str, Any], name: str, entry: Any, key: str, read: Any) -> Any:
    """An entry of files or units with its content instead of the name of a file."""
    if not isinstance(entry, Mapping) or not entry.get("src"):
        return entry
    path = _place(host, name, str(entry["src"]))
    content = read(path)
    if content is None:
        return {**entry, "src": path}
    rest = {one: value for one, value in entry.items() if one != "src"}
    return {**rest, key: base64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content}


def _value(host: Mapping[str, Any], name: str, *, strict: bool = False) -> Any:
    """A variable's value, or the content of the file that its sibling names."""
    value = host.get(PREFIX + name)
    path = host.get(f"{PREFIX}{name}_file") if name in IN_FILES else None
    if not path:
        return value
    who = host["inventory_hostname"]
    if value is not None:
        raise AnsibleFilterError(f"{who}: {PREFIX}{name} and {PREFIX}{name}_file are both set; set one")
    text = _text(_place(host, f"{name}_file", str(path)))
    if text is None and strict:
        raise AnsibleFilterError(
            f"{who}: {PREFIX}{name}_file: {path} cannot be read, or is no text in UTF-8 of at most {_MOST_BYTES} "
            "bytes; correct the path or the file"
        )
    return text


def _place(host: Mapping[str, Any], name: str, path: str) -> str:
    """Where a path in a variable leads to, by the rule for all of them."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import controller_paths

    folder, sources = controller_paths.inventory_dir_of(host), host.get("ansible_inventory_sources") or ()
    try:
        return str(controller_paths.for_writing(path, folder, sources))
    except controller_paths.NotThere as error:
        who = host["inventory_hostname"]
        raise AnsibleFilterError(f"{who}: {PREFIX}{name}: {error}; correct the path") from None


def _bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= _MOST_BYTES else None


def _text(path: str) -> str | None:
    data = _bytes(path)
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


_URLS = "/run/kubenode-image-server/urls.json"


def _table(results: list[Mapping[str, Any]], *, check: bool) -> list[str]:
    """A line for each image: host, kind, size, URL or path; one for each host that failed.

    Where a server did not say what its URLs begin with, the last line says where they are.
    """
    rows, silent = [("host", "image", "MiB", "where")], []
    for result in results:
        entries = [*(result.get("hosts") or []), {"name": "(shared)", "images": result.get("shared") or []}]
        for host in entries:
            if host.get("failed"):
                rows.append((host["name"], "failed", "", str(host["msg"])))
                continue
            for image in host["images"]:
                size = f"{image['size'] / 2**20:.1f}"
                place = image["url"] or image["path"]
                if not image["url"] and result.get("item", "localhost") != "localhost":
                    silent.append(str(result["item"]))
                place = f"would be at {place}" if check and image["changed"] else place
                rows.append((host["name"], image["kind"], size, place))
            if not host["images"] and host.get("msg"):
                rows.append((host["name"], "none", "", host["msg"]))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in dict.fromkeys(rows)
    ]
    if silent:
        where = f"their URLs are in {_URLS} (for root) on {', '.join(dict.fromkeys(silent))}"
        lines.append(f"{where}; set kubenode_image_publish_url to what they begin with, and they are shown here")
    return lines


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"preprov_images": preprov_images}
