# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short makers of settings, so that a step reads as what it sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from .plan_types import BaseInputs

UNIT_DIR = "/etc/systemd/system"
HEADER = "# Written by kubenode.provision (base); changes are overwritten.\n"


def setting(kind: str, identity: str, **fields: Any) -> Setting:
    """One setting; ``identity`` is step/name, the step comes from it. Fields that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return cast(Setting, {"id": identity, "step": identity.partition("/")[0], "kind": kind, **given})


def file(identity: str, path: str, content: str, mode: str = "0644", secret: bool = False) -> Setting:
    return setting("file", identity, path=path, mode=mode, secret=secret or None, content=content)


def without_secrets(settings: Iterable[Setting]) -> list[Setting]:
    """The settings as they are shown: a secret file has the name of its content (``content_secret``) instead of it."""
    return [
        cast(Setting, {**{key: value for key, value in item.items() if key != "content"}, "content_secret": item["id"]})
        if item.get("secret")
        else item
        for item in settings
    ]


def secrets_of(settings: Iterable[Setting]) -> dict[str, str]:
    """Name → content of the secret files."""
    return {item["id"]: item["content"] for item in settings if item.get("secret")}


def directory(identity: str, path: str, mode: str = "0755") -> Setting:
    return setting("directory", identity, path=path, mode=mode)


def link(identity: str, path: str, target: str) -> Setting:
    return setting("link", identity, path=path, target=target)


def secret_file(identity: str, path: str, name: str) -> Setting:
    """A file whose content is the secret ``name``."""
    return setting("file", identity, path=path, mode="0600", content_secret=name)


def absent(identity: str, path: str, recursive: bool = False) -> Setting:
    """A file that must not be there, or a whole tree."""
    return setting("absent", identity, path=path, recursive=recursive or None)


def unit(identity: str, name: str, **fields: Any) -> Setting:
    return setting("unit", identity, name=name, **fields)


def handler(identity: str, argv: list[str], on: list[str]) -> Setting:
    """A command that runs once when one of the named settings changed."""
    return setting("handler", identity, argv=argv, on=on)


def users_drop_ins(step: str, unit_name: str, node: Node, inputs: BaseInputs) -> list[Setting]:
    """The user's drop-ins of a unit; those that an earlier run wrote and that are wanted no more are removed."""
    wanted = inputs["unit_drop_ins"].get(unit_name, {})
    before = ((node.get("base") or {}).get("unit_drop_ins") or {}).get(unit_name, [])
    gone = [name for name in before if name not in wanted]
    identity, folder = f"{step}/drop-in-{unit_name}/", f"{UNIT_DIR}/{unit_name}.d/"
    return [
        *(file(identity + name, folder + name, HEADER + text) for name, text in sorted(wanted.items())),
        *(absent(identity + name, folder + name) for name in gone),
    ]


def drop_in(identity: str, unit_name: str, name: str, text: str, secret: bool = False) -> Setting:
    path = f"{UNIT_DIR}/{unit_name}.d/{name}"
    return file(identity, path, HEADER + text, "0600" if secret else "0644", secret)
