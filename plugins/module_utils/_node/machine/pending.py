# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Changes that units were not restarted for yet, kept until the next boot, when every service reads its files.

It is written before a change is made: a run that is cut off between a new file and the restart of its service
leaves the restart to the next run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..._common.text import json_object
from .atomic import write_file
from .host import Host

PATH = "/run/kubenode/pending.json"
#: The entry for a `systemctl daemon-reload`.
RELOAD = "daemon-reload"


class Pending:
    """Changed ids, each with the units that were notified: ``{"id": ["unit id", …]}``."""

    def __init__(self, host: Host) -> None:
        self._host = host
        read = json_object(host.text(PATH)) or {}
        self._notified = {key: list(notified) for key, notified in read.items() if isinstance(notified, list)}

    def ids(self, who: str | None = None) -> set[str]:
        """Ids of changes that ``who`` was not notified of."""
        return {key for key, notified in self._notified.items() if who not in notified}

    def add(self, ids: Iterable[str]) -> None:
        """These are about to change."""
        if any(self._notified.get(key) != [] for key in ids):
            self._notified.update((key, []) for key in ids)
            self._save()

    def notified(self, who: str, ids: Iterable[str]) -> None:
        """``who`` has taken over these changes."""
        mine = [key for key in ids if who not in self._notified.get(key, [who])]
        for key in mine:
            self._notified[key].append(who)
        if mine:
            self._save()

    def drop(self, ids: Iterable[str]) -> None:
        """No unit waits for these any more."""
        gone = [key for key in ids if self._notified.pop(key, None) is not None]
        if gone:
            self._save()

    def _save(self) -> None:
        write_file(self._host, PATH, json.dumps(self._notified, sort_keys=True).encode("utf-8"), 0o644)
