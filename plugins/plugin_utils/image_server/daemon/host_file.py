# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NAME.host.yml: what one host of the static mode has of its own, beside its NMState document (pure)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import KINDS
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.document import Fields, parse, shown

SUFFIX = ".host.yml"
_ARCH = re.compile(r"[A-Za-z0-9_]{1,32}\Z")
_MODE = re.compile(r"0?[0-7]{3}\Z")
_AGENT_TEXTS = ("agent_image", "vlan_interfaces", "ip_options", "http_proxy", "https_proxy", "no_proxy")
_AGENT_LISTS = ("ntp_servers", "podman_options")


@dataclass(frozen=True)
class HostOptions:
    """What the file says."""

    inputs: Mapping[str, Any] = field(default_factory=dict)  # of HostInputs
    agent: Mapping[str, Any] = field(default_factory=dict)  # of AgentInputs
    arch: str = ""
    formats: tuple[str, ...] = KINDS
    enlarge: bool = False

    def laid_over(self, host: HostInputs) -> HostInputs:
        """The host with these values."""
        return replace(host, **self.inputs)


def parse_options(text: str) -> HostOptions:
    """The file's content; ImageError names the key that is wrong, and its place."""
    try:
        document = parse(text)
    except ImageError as error:
        raise ImageError(str(error).replace("the NMState document", "the file", 1)) from error
    fields = Fields(document, "")
    inputs: dict[str, Any] = {
        "hostname": fields.text("hostname"),
        "arguments": _arguments(fields.mapping("kernel_arguments")),
        "files": dict(_file(one) for one in _unlike(fields.mappings("files"), "path")),
        "units": _texts(fields, "units"),
        "ssh_keys": _keys(fields),
        "ignition": _plain(fields, "ignition"),
        "merge": _plain(fields, "merge"),
        "initramfs_network": fields.flag("initramfs_network"),
    }
    agent: dict[str, Any] = {key: fields.text(key) for key in _AGENT_TEXTS}
    for key in _AGENT_LISTS:
        agent[key] = tuple(fields.texts(key)) if fields.raw(key) is not None else None
    agent["environment"] = _texts(fields, "environment") or None
    arch, formats, enlarge = fields.text("arch") or "", fields.texts("formats"), bool(fields.flag("enlarge"))
    fields.done()
    if arch and not _ARCH.match(arch):
        raise ImageError(f"arch: {shown(arch)} is no architecture such as aarch64")
    for at, kind in enumerate(formats):
        if kind not in KINDS:
            raise ImageError(f"formats[{at}]: {shown(kind)} is not one of {', '.join(KINDS)}")
    if inputs["ignition"] is not None:
        given = sorted(key for key, value in agent.items() if value is not None)
        if given:
            raise ImageError(f"{given[0]} has no effect beside ignition, which takes the place of the agent")
    return HostOptions(_set(inputs), _set(agent), arch, tuple(dict.fromkeys(formats)) or KINDS, enlarge)


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _arguments(fields: Fields | None) -> Edit | None:
    if fields is None:
        return None
    append, replaced, delete = (tuple(fields.texts(key)) for key in ("append", "replace", "delete"))
    edit = Edit(append, replaced, delete, bool(fields.flag("reset")))
    fields.done()
    return edit


def _unlike(entries: list[Fields], key: str) -> list[Fields]:
    """The entries, of which no two have the same key."""
    seen: dict[str, str] = {}
    for one in entries:
        value = one.needed(key)
        if value in seen:
            raise ImageError(f"{one.at(key)}: {shown(value)} is also {seen[value]}")
        seen[value] = one.path
    return entries


def _file(fields: Fields) -> tuple[str, tuple[bytes, int]]:
    path, mode = fields.needed("path"), fields.text("mode") or "0644"
    if not _MODE.match(mode):
        raise fields.wrong("mode", "is no file mode such as 0644")
    plain, coded = fields.raw("content"), fields.raw("content_base64")
    if (plain is None) == (coded is None):
        raise ImageError(f"{fields.path}: give either content or content_base64")
    for key, value in (("content", plain), ("content_base64", coded)):
        if value is not None and not isinstance(value, str):
            raise ImageError(f"{fields.at(key)}: {shown(value)} is no text; put it into quotes")
    if coded is None:
        data = _encoded(plain, fields.at("content"))
    else:
        try:
            data = base64.b64decode("".join(coded.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ImageError(f"{fields.at('content_base64')} is no base64: {error}") from error
    fields.done()
    return path, (data, int(mode, 8))


def _keys(fields: Fields) -> tuple[str, ...]:
    """Lines for authorized_keys, which may be longer than other texts; what they are is checked with the host."""
    found = fields.entries("ssh_keys")
    for at, key in enumerate(found):
        if not isinstance(key, str):
            raise ImageError(f"{fields.at('ssh_keys')}[{at}]: {shown(key)} is no text")
    return tuple(found)


def _texts(fields: Fields, key: str) -> Mapping[str, str]:
    """A mapping of names to texts, which may have several lines."""
    below = fields.mapping(key)
    if below is None:
        return {}
    found = {}
    for name, value in dict(fields.raw(key)).items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise ImageError(f"{below.at(shown(name))}: {shown(value)} is no text; put it into quotes")
        _encoded(str(value), below.at(shown(name)))
        found[str(name)] = str(value)
    return found


def _plain(fields: Fields, key: str) -> Mapping[str, Any] | None:
    """An Ignition as YAML; it has checks of its own."""
    below = fields.mapping(key)
    return None if below is None else dict(fields.raw(key))


def _encoded(text: str, path: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ImageError(f"{path} is no text in UTF-8") from error
