# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rule for every variable that holds a path of the controller.

Absolute, or from ``~``. Else beside the inventory, else in the working directory, else where Ansible searches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import no_path
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line

from .. import role_specs

#: Below each place where Ansible searches, as for its own modules.
_FILES = "files"


class NotThere(AnsibleError):
    """There is no such file; the text names all places that were looked at, or says why there can be none."""


def places(path: str, inventory_dir: str | None, search: Iterable[str] = ()) -> list[str]:
    """Where a path may lead to, the first one that is there counts. Raises `NotThere` for what can be no path."""
    if why := no_path(path):
        raise NotThere(f"there can be no {path!r}: {why}")
    path = os.path.expanduser(path)
    if os.path.isabs(path):
        return [path]
    folders = [inventory_dir or "", os.getcwd()]
    # a role of this collection holds no file of the user's
    others = [one for one in search if not Path(one).resolve().is_relative_to(role_specs.ROLES.resolve())]
    folders += [folder for one in others for folder in (os.path.join(one, _FILES), one)]
    found = [os.path.abspath(os.path.join(folder, path)) for folder in folders if folder]
    return list(dict.fromkeys(found))


def find(path: str, inventory_dir: str | None, search: Iterable[str] = ()) -> str:
    """Where it is; raises `NotThere`."""
    looked = places(path, inventory_dir, search)
    for place in looked:
        if os.path.lexists(place):
            return place
    raise NotThere(f"there is no {path!r}; looked at {', '.join(looked)}")


def for_writing(path: str, inventory_dir: str | None, sources: Iterable[str] = ()) -> str:
    """Where a folder is, or will be made: beside the inventory.

    ``sources``: the inventories of the run. Ansible reads all that lies in one that is a folder; it is made beside it.
    """
    looked = places(path, inventory_dir)
    beside = next((str(Path(one).parent) for one in sources if _is_of(inventory_dir, one)), inventory_dir)
    made = places(path, beside)[0]
    return next((place for place in (*looked, made) if os.path.lexists(place)), made)


def _is_of(inventory_dir: str | None, source: str) -> bool:
    """Whether an inventory is a folder that the inventory of a host lies in."""
    return bool(inventory_dir) and Path(source).is_dir() and Path(str(inventory_dir)).is_relative_to(source)


def as_found(path: Any, variables: Mapping[str, Any]) -> Any:
    """A path in a variable of a host, absolute when it is there; else it is left for the message of who takes it."""
    if not isinstance(path, str) or not path or no_path(path):
        return path
    looked = places(path, inventory_dir_of(variables))
    return next((place for place in looked if os.path.lexists(place)), path)


def of_ssh(path: Any) -> Any:
    """A path that Ansible hands to ssh, which it starts in the working directory; the rule above is not ssh's.

    Ansible runs modules of the controller where the playbook lies, so they need it absolute.
    """
    if not isinstance(path, str) or not path or path.startswith("~") or no_path(path):
        return path
    return os.path.abspath(path)


def inventory_dir_of(variables: Mapping[str, Any]) -> str | None:
    """The folder of the inventory that a host comes from; None when it comes from none."""
    folder = variables.get("inventory_dir")
    return str(folder) if folder else None


# --- where ``kubenode_dir`` is: with the inventory when it is not set, wherever a run is started.
#
# The first inventory of the run that is a file or a folder decides. Beside a file (a list of hosts, a script, the
# configuration of a plugin) it is called ``kubenode``. Ansible reads all that lies in a folder of inventories but names
# with a dot in front, so there it is called ``.kubenode``; one of the two that is there already is taken. A run without
# any inventory of its own (``-i host,``) has it in the working directory, as all runs of earlier releases.


NAME, HIDDEN = "kubenode", ".kubenode"
#: What a run keeps in it, by which such a folder is known.
_PARTS = ("intents", "known_hosts", "locks", "logs", "quarantine", "reboots")
#: How the inventory in it begins (records/machine_inventory.py).
_WRITTEN = b"# Written by kubenode.provision"
#: What protects a machine.
_NOTES = ("intents/{}.json", "quarantine/{}.json", "known_hosts/{}.os", "reboots/{}.json")


def inventory_of(sources: Iterable[str]) -> Path | None:
    """The first inventory of a run that is a file or a folder."""
    for source in sources:
        path = Path(os.path.abspath(os.path.expanduser(str(source))))
        if "," not in str(source) and path.exists():
            return path
    return None


def inventory_folder(sources: Sequence[str]) -> str:
    """The folder beside whose files relative paths of the whole run are; empty for a run without any inventory."""
    found = inventory_of(sources)
    return "" if found is None else str(found if found.is_dir() else found.parent)


def state_folder(sources: Sequence[str], given: str = "") -> str:
    """``kubenode_dir``, one folder for the whole run; ``sources``: what Ansible calls ``ansible_inventory_sources``."""
    found = inventory_of(sources)
    if given:
        return for_writing(given, inventory_folder(sources), sources)
    if found is None:
        return str(_older())
    folder = Path(inventory_folder(sources))
    if (folder.name in (NAME, HIDDEN) and _is_state(folder)) or _is_written(found):
        return str(folder)  # a run has written this inventory there
    wanted = _wanted(found)
    if not wanted.exists():
        for there in (folder / NAME, folder / HIDDEN, _older()):
            if _is_state(there):
                return str(there)
    return str(wanted)


def findings(hosts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """What speaks against ``kubenode_dir``, or against the folder that is taken without it: errors, warnings."""
    sources = hosts[0].get("ansible_inventory_sources") if hosts else None
    if not sources:
        return [], []
    sources = list(sources)
    if given := hosts[0].get("kubenode_dir"):
        return _of_given(sources, given), []
    taken, older, inventory = Path(state_folder(sources)), _older(), inventory_of(sources)
    if not _can_be_made(taken):
        return [f"kubenode_dir is not set, and {taken} cannot be written; set it to a folder that can"], []
    if inventory is None or not _is_state(older) or _same(older, _wanted(inventory)):
        return [], []
    if _same(taken, older):
        return [], [
            f"{older} of the working directory is taken as kubenode_dir, as in earlier releases, since there is none "
            "with the inventory yet. A run from another directory does not find it: "
            f"mv {older} {_wanted(inventory)}, or set kubenode_dir"
        ]
    names = [str(host["inventory_hostname"]) for host in hosts]
    lost = [name for name in names if any(_has(older, one, name) and not _has(taken, one, name) for one in _NOTES)]
    if not lost:
        return [], []
    return [
        f"kubenode_dir is not set, and two folders could be it: {taken}, with the inventory, and {older} of the "
        "working directory, where earlier releases had it. What the second one knows about "
        f"{listed(lost)}, the first one lacks. Add it (cp -an {older}/. {taken}/) and remove the second one, or set "
        "kubenode_dir"
    ], []


def _of_given(sources: Sequence[str], given: Any) -> list[str]:
    if not isinstance(given, str) or no_path(given):
        return []  # the check of kinds says it
    folder = Path(state_folder(sources, given))
    if _can_be_made(folder):
        return []
    shown = one_line(given, 100)
    where = "" if str(folder) == given else f" ({folder})"
    return [f"kubenode_dir is {shown}{where}, where no file can be written; set it to a folder that can be written"]


def _wanted(inventory: Path) -> Path:
    return inventory / HIDDEN if inventory.is_dir() else inventory.parent / NAME


def _older() -> Path:
    """Where earlier releases had it."""
    return Path(os.getcwd()) / NAME


def _is_state(folder: Path) -> bool:
    return any((folder / part).is_dir() for part in _PARTS)


def _is_written(inventory: Path) -> bool:
    if not inventory.is_file():
        return False
    with inventory.open("rb") as file:
        return file.read(len(_WRITTEN)) == _WRITTEN


def _has(folder: Path, note: str, name: str) -> bool:
    return (folder / note.format(name)).is_file()


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _can_be_made(folder: Path) -> bool:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
