# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a playbook checks first: its variables, and which machines are to leave. Warnings are shown at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from . import conflicts, known_variables, leaving


def variable_findings(hosts: Iterable[Mapping[str, Any]], playbook: str, roles: Iterable[str] = ()) -> list[str]:
    """A sentence for each contradiction among the variables of the hosts of a run.

    A variable that does not exist, or that the playbook does not use although one could think so, is a warning.
    ``playbook``: without ``kubenode.provision.``. ``roles``: those of this collection that it runs; a variable that is
    nearly one of theirs is a warning, too.
    """
    hosts = list(hosts)
    misspelt = [*known_variables.unknown(hosts), *known_variables.unknown_of_roles(hosts, roles)]
    for sentence in [*misspelt, *conflicts.unused(hosts, playbook)]:
        Display().warning(sentence)
    return [*conflicts.refused(hosts, playbook), *conflicts.misfits(hosts, playbook)]


def leave_plan(
    hosts: Iterable[Mapping[str, Any]], word: str = "", given: Any = None, known: Collection[str] = ()
) -> dict[str, Any]:
    """Which hosts of a run are to leave, see :func:`leaving.plan`. A variable that does not exist is a warning.

    Raises ValueError for another ``word`` than ``delete`` and ``release``.
    """
    if word not in ("", "delete", "release"):
        raise ValueError(f"leave_plan: word is {word!r}; use delete or release, or leave it out")
    hosts = list(hosts)
    for sentence in known_variables.unknown(hosts):
        Display().warning(sentence)
    # Ansible reads the extra variables of the command line when it starts, and keeps them.
    return leaving.plan(hosts, word, given, known, load_extra_vars(DataLoader()))
