# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The options of the module as what the rest of this package works with; each error names its option."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..._common.masking import without_login
from ..._common.option_values import no_path
from ..._common.text import base64_bytes
from .. import ignition
from ..agent import AgentInputs, from_environment, host_name
from ..hosts import HostInputs
from ..image_error import ImageError, failing
from ..kargs import Edit
from ..urls import SHORTEST_SECRET

ISO, MINIMAL, INITRAMFS, PXE = "iso", "minimal_iso", "initramfs", "pxe"
OUTPUTS = (ISO, MINIMAL, INITRAMFS, PXE)
_MOST_BYTES = 16 * 1024 * 1024  # of one file that is read
_URL = re.compile(r"https?://[A-Za-z0-9.:_\[\]-]+(/[!-~]*)?\Z")
_MODE = re.compile(r"0?[0-7]{3}\Z")


@dataclass(frozen=True)
class HostRequest:
    """One host that shall have images, or none any more."""

    name: str
    architecture: str
    outputs: tuple[str, ...]
    present: bool
    agent: AgentInputs | None = field(repr=False)
    inputs: HostInputs = field(repr=False)


@dataclass(frozen=True)
class Common:
    """What is the same for all hosts."""

    dest: str
    base_iso: str
    base_initramfs: str
    base_kernel: str
    base_rootfs: str
    shared_dir: str
    publish_url: str
    rootfs_url: str
    name_secret: bytes | None = field(repr=False)
    force: bool
    enlarge: bool
    full: bool


def common(params: Mapping[str, Any]) -> Common:
    """Checked; ImageError for the first thing that is wrong."""
    if not params["dest"]:
        raise ImageError("dest is missing: give the folder for the images or descriptors")
    if not (params["base_iso"] or params["base_initramfs"]):
        raise ImageError(
            "base_iso (DEPLOY_ISO) and base_initramfs (DEPLOY_INITRD) are missing: give at least one of them"
        )
    for name in ("base_iso", "base_initramfs", "base_kernel", "base_rootfs"):
        if os.path.isdir(params.get(name) or ""):
            raise ImageError(f"{name} {params[name]} is a folder; name the file in it")
    for name in ("publish_url", "rootfs_url"):
        if params[name] and not _is_url(params[name]):
            raise ImageError(f"{name} {without_login(params[name])!r} is no http or https URL without credentials")
    secret = None
    if params["names_secret_file"]:
        secret = read_file("names_secret_file", params["names_secret_file"]).rstrip()  # as the server reads it
        if len(secret) < SHORTEST_SECRET:
            raise ImageError(f"names_secret_file {params['names_secret_file']} has less than {SHORTEST_SECRET} bytes")
    return Common(
        dest=os.path.abspath(params["dest"]),
        base_iso=_absolute(params["base_iso"]),  # descriptors name their base
        base_initramfs=_absolute(params["base_initramfs"]),
        base_kernel=_absolute(params["base_kernel"]),
        base_rootfs=_absolute(params["base_rootfs"]),
        shared_dir=_absolute(params["shared_dir"]),
        publish_url=(params["publish_url"] or "").rstrip("/"),
        rootfs_url=params["rootfs_url"] or "",
        name_secret=secret,
        force=params["force"],
        enlarge=params["enlarge"],
        full=params["verify"] == "full",
    )


def _is_url(text: str) -> bool:
    try:
        return bool(_URL.match(text) and urllib.parse.urlsplit(text).hostname)
    except ValueError:  # an open bracket
        return False


def agent_of(params: Mapping[str, Any]) -> AgentInputs:
    """The agent's inputs, read from their files and checked."""

    def read(path: str) -> str | None:
        if not os.path.exists(path):
            return None
        return text_file("file", path)

    environ = {
        "IRONIC_AGENT_PULL_SECRET": _given("pull_secret", params)[0] or "",
        "IRONIC_RAMDISK_SSH_KEY": os.environ.get("IRONIC_RAMDISK_SSH_KEY", "") if params["ssh_keys"] is None else "",
        "REGISTRIES_CONF_PATH": "" if params["registries_conf"] else params["registries_conf_file"] or "",
        "CA_BUNDLE": "" if params["ca_bundle"] else params["ca_bundle_file"] or "",
    }
    found = from_environment(environ, read)
    found = replace(
        found,
        agent_image=(params["agent_image"] or "").strip(),
        ironic_urls=_words(params["ironic_urls"]),
        inspector_urls=_words(params["inspector_urls"]),
        insecure=params["ironic_insecure"],
        vlan_interfaces=params["vlan_interfaces"] or "",
        ssh_keys=found.ssh_keys + tuple(key.strip() for key in params["ssh_keys"] or () if key.strip()),
        registries_conf=params["registries_conf"] or found.registries_conf,
        ip_options=params["ip_options"] or "",
        http_proxy=params["http_proxy"] or "",
        https_proxy=params["https_proxy"] or "",
        no_proxy=params["no_proxy"] or "",
        ntp_servers=_words(params["ntp_servers"]),
        ca_bundle=params["ca_bundle"] or found.ca_bundle,
        environment={str(name): str(value) for name, value in (params["agent_environment"] or {}).items()},
        podman_options=tuple(params["podman_options"] or ()),
    )
    return found.checked()


def names(params: Mapping[str, Any]) -> list[str]:
    """The names of the hosts as they are given, each once."""
    found = [entry["name"] for entry in params["hosts"]]
    for place, name in enumerate(found):
        if name in found[:place]:
            first = found.index(name)
            raise ImageError(f"hosts[].name: {name!r:.200} is given twice, for hosts[{first}] and hosts[{place}]")
    return found


def _checked_name(given: str) -> str:
    """A name becomes that of files, and a path of URLs."""
    try:
        name = host_name(given)
    except ImageError as error:
        raise ImageError(f"hosts[].name: {error}") from error
    if name != given:
        raise ImageError(f"hosts[].name {given!r} is not in lower case; its files would be called {name}")
    return name


def host_request(params: Mapping[str, Any], entry: Mapping[str, Any], agent: AgentInputs | None) -> HostRequest:
    name = _checked_name(entry["name"])
    outputs = tuple(dict.fromkeys(entry["outputs"] or params["outputs"]))
    present = entry["state"] == "present"
    own = _ignition("ignition", entry)
    if agent is not None and entry["agent_image"]:
        agent = replace(agent, agent_image=entry["agent_image"])
    inputs = HostInputs(
        name=name,
        hostname=entry["hostname"],
        network=_given("network", entry)[0],
        ignition=own,
        merge=_ignition("merge", entry),
        files=_files(entry["files"] or ()),
        units=_units(entry["units"] or ()),
        ssh_keys=tuple(key.strip() for key in entry["ssh_keys"] or ()),
        arguments=_edit(entry["kernel_arguments"]),
        initramfs_network=entry["initramfs_network"],
    )
    return HostRequest(name, entry["architecture"] or "", outputs, present, None if own else agent, inputs)


def needs_agent(params: Mapping[str, Any]) -> bool:
    """Whether a host's image starts the agent."""
    return any(
        entry["state"] == "present" and not entry["ignition"] and not entry["ignition_file"]
        for entry in params["hosts"]
    )


def read_file(what: str, path: str) -> bytes:
    """The content of a small file that an option names."""
    if why := no_path(path):
        raise ImageError(f"{what}: there can be no {path!r}: {why}; correct the path")
    with failing(f"{what}: {path} cannot be read"), open(path, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ImageError(f"{what}: {path} has more than {_MOST_BYTES} bytes")
    return data


def text_file(what: str, path: str) -> str:
    """The same as text."""
    try:
        return read_file(what, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImageError(f"{what}: {path} is no text in UTF-8") from error


def mode_of(what: str, text: str) -> int:
    """Permissions as three or four octal digits."""
    if not _MODE.match(text):
        raise ImageError(f"{what} {text!r} is not an octal mode such as '0600'")
    return int(text, 8)


def _given(what: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """An option's value, or the text of the file that its other form names; and which of both it is."""
    given, path = options[what], options[f"{what}_file"]
    if given and path:
        raise ImageError(f"{what} and {what}_file are both given; give one")
    return (text_file(f"{what}_file", path), f"{what}_file {path}") if path else (given, what)


def _ignition(what: str, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    given, what = _given(what, entry)
    if not given:
        return None
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        raise ImageError(f"{what} is neither a mapping nor text")
    try:
        return ignition.parse(given)
    except ImageError as error:
        raise ImageError(f"{what}: {error}") from error


def _files(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[bytes, int]]:
    found: dict[str, tuple[bytes, int]] = {}
    for entry in entries:
        path = entry["path"]
        if path in found:
            raise ImageError(f"files: {path} is given twice")
        if not path.startswith("/"):
            raise ImageError(f"files: path {path!r:.200} is not absolute")
        sources = [key for key in ("content", "content_base64", "src") if entry[key] is not None]
        if len(sources) != 1:
            raise ImageError(f"files: {path} needs exactly one of content, content_base64 and src")
        if sources[0] == "src":
            data = read_file(f"files: src of {path}", entry["src"])
        elif sources[0] == "content":
            data = entry["content"].encode("utf-8", "surrogateescape")
        else:
            decoded = base64_bytes("".join(entry["content_base64"].split()))
            if decoded is None:
                raise ImageError(f"files: content_base64 of {path} is no base64")
            data = decoded
        found[path] = (data, mode_of(f"files: mode of {path}", entry["mode"]))
    return found


def _units(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        name = entry["name"]
        if name in found:
            raise ImageError(f"units: {name} is given twice")
        if (entry["contents"] is None) == (entry["src"] is None):
            raise ImageError(f"units: {name} needs exactly one of contents and src")
        text = entry["contents"] if entry["src"] is None else text_file(f"units: src of {name}", entry["src"])
        found[name] = text
    return found


def _edit(entry: Mapping[str, Any] | None) -> Edit:
    if not entry:
        return Edit()
    append, replace, delete = (tuple(entry[key] or ()) for key in ("append", "replace", "delete"))
    return Edit(append, replace, delete, bool(entry["reset"]))


def _absolute(path: str | None) -> str:
    return os.path.abspath(path) if path else ""


def _words(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in given or () if part.strip())
