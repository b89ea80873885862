# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rule for every variable that holds a path of the controller.

Absolute, or from ``~``. Else beside the inventory, else in the working directory, else where Ansible searches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

#: Below each place where Ansible searches, as for its own modules.
_FILES = "files"


class NotThere(AnsibleError):
    """There is no such file; the text names all places that were looked at."""


def places(path: str, inventory_dir: str | None, search: Iterable[str] = ()) -> list[str]:
    """Where a path may lead to, the first one that is there counts."""
    path = os.path.expanduser(path)
    if os.path.isabs(path):
        return [path]
    folders = [inventory_dir or "", os.getcwd()]
    folders += [folder for one in search for folder in (os.path.join(one, _FILES), one)]
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
    if not isinstance(path, str) or not path:
        return path
    looked = places(path, inventory_dir_of(variables))
    return next((place for place in looked if os.path.lexists(place)), path)


def inventory_dir_of(variables: Mapping[str, Any]) -> str | None:
    """The folder of the inventory that a host comes from; None when it comes from none."""
    folder = variables.get("inventory_dir")
    return str(folder) if folder else None
