# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What people may see of an image: everything but secrets (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .. import agent, ignition, iso
from ..errors import ImageError

HIDDEN = "********"
_SECRET_KEYS = ("httpHeaders", "keyFile", "passwordHash")
_URL_USER = re.compile(r"(://)[^/\s\"'@]+@")
# what was given to the agent's container; the variables of our own are no secrets
_UNIT_VARIABLE = re.compile(r'("--env=(?!IPA_COREOS_|IPA_DEFAULT_HOSTNAME=)[^="\\]+=)(?:[^"\\]|\\.)*"')
_KEYFILE_SECRET = re.compile(
    r"^(\s*[\w.-]*(?:password|passwd|psk|secret|wep-key|private-key|pin)[\w.-]*\s*=).*$", re.IGNORECASE | re.MULTILINE
)


def ignition_shown(config: bytes | Mapping[str, Any]) -> Any:
    """An Ignition as data without its secrets; a short text when it is none."""
    if isinstance(config, bytes):
        try:
            config = ignition.parse(config)
        except ImageError:
            return "(%d bytes that are no valid Ignition)" % len(config)
    return _masked(ignition.shown(config))


def profiles(members: Mapping[str, bytes]) -> dict[str, str]:
    """The network profiles for the initramfs among the members of an archive."""
    return {
        name.rpartition("/")[2]: keyfile(data)
        for name, data in sorted(members.items())
        if name.startswith(iso.NETWORK + "/")
    }


def own_profiles(config: bytes) -> dict[str, str]:
    """The network profiles inside an Ignition: only root reads them on the host, but people shall see what changes."""
    found = {}
    try:
        for entry in (ignition.parse(config).get("storage") or {}).get("files") or []:
            folder, name = str(entry.get("path")).rpartition("/")[::2]
            data = ignition.content(entry.get("contents") or {}) if folder == agent.PROFILES else None
            if data is not None:
                found[name] = keyfile(data)
    except ImageError:
        return {}
    return found


def keyfile(data: bytes) -> str:
    """A NetworkManager keyfile without the values that are secrets."""
    return _KEYFILE_SECRET.sub(r"\g<1>" + HIDDEN, data.decode("utf-8", "replace"))


def text_of(members: Mapping[str, bytes]) -> str:
    """What is embedded as one text, for a diff: a heading for each thing, its content indented."""
    lines: list[str] = []
    if iso.IGNITION in members:
        lines += _lines(ignition_shown(members[iso.IGNITION]))
        for name, text in own_profiles(members[iso.IGNITION]).items():
            lines += _block("network profile %s" % name, text)
    for name, text in profiles(members).items():
        lines += _block("network profile of the initramfs %s" % name, text)
    return "".join("%s\n" % line for line in lines)


def _lines(config: Any) -> list[str]:
    if not isinstance(config, Mapping):
        return [str(config)]
    rest = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    lines = ["Ignition %s" % rest.get("ignition", {}).pop("version", "")]
    for entry in rest.get("storage", {}).pop("files", []):
        text = "".join(one for key in ("contents", "append") for one in entry.get(key, ()))
        how = "".join(" %s" % key for key in ("append", "overwrite") if entry.get(key))
        lines += _block("file %s %04o%s" % (entry.get("path"), int(entry.get("mode") or 0o644), how), text)
    for entry in rest.get("systemd", {}).pop("units", []):
        how = "".join(" %s" % key for key in ("enabled", "mask") if entry.get(key))
        lines += _block("unit %s%s" % (entry.get("name"), how), str(entry.get("contents") or ""))
        for dropin in entry.get("dropins") or []:
            lines += _block("drop-in %s" % dropin.get("name"), str(dropin.get("contents") or ""))
    for user in rest.get("passwd", {}).pop("users", []):
        lines += _block("user %s" % user.get("name"), "\n".join(map(str, user.get("sshAuthorizedKeys") or [])))
    more = {key: value for key, value in rest.items() if value}
    return lines + (_block("more", json.dumps(more, indent=2, sort_keys=True)) if more else [])


def _block(heading: str, text: str) -> list[str]:
    return [heading, *("    " + line for line in text.splitlines())]


def _masked(value: Any, key: str = "") -> Any:
    if key in _SECRET_KEYS and value:
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _masked(one, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if not isinstance(value, str):
        return value
    if key == "source":
        return "(data)" if value.startswith("data:") else _URL_USER.sub(r"\g<1>%s@" % HIDDEN, value.partition("?")[0])
    return _UNIT_VARIABLE.sub(r'\g<1>%s"' % HIDDEN, _URL_USER.sub(r"\g<1>%s@" % HIDDEN, value))
