# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What changed and whom it was not told yet, kept until the next boot, which makes every service read its files anew.

It is written before a change is made: a run that is cut off between a new file and the restart of its service
leaves the debt to the next run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..._common.text import json_object
from .files import write_file
from .host import Host

PATH = "/run/kubenode/pending.json"
#: The debt of a `systemctl daemon-reload`.
RELOAD = "daemon-reload"


class Pending:
    """Changed ids, each with those who have been told: ``{"id": ["unit id", …]}``."""

    def __init__(self, host: Host) -> None:
        self._host = host
        read = json_object(host.text(PATH)) or {}
        self._told = {key: list(told) for key, told in read.items() if isinstance(told, list)}

    def ids(self, who: str | None = None) -> set[str]:
        """Ids of changes that ``who`` was not told of."""
        return {key for key, told in self._told.items() if who not in told}

    def add(self, ids: Iterable[str]) -> None:
        """These are about to change."""
        if any(self._told.get(key) != [] for key in ids):
            self._told.update((key, []) for key in ids)
            self._save()

    def told(self, who: str, ids: Iterable[str]) -> None:
        """``who`` has taken over these changes."""
        mine = [key for key in ids if who not in self._told.get(key, [who])]
        for key in mine:
            self._told[key].append(who)
        if mine:
            self._save()

    def drop(self, ids: Iterable[str]) -> None:
        """Nobody waits for these any more."""
        gone = [key for key in ids if self._told.pop(key, None) is not None]
        if gone:
            self._save()

    def _save(self) -> None:
        write_file(self._host, PATH, json.dumps(self._told, sort_keys=True).encode("utf-8"), 0o644)
