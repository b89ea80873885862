# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between neighbouring minors, for those whose sources are not at hand. A given source wins over this."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Table = tuple[dict[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Change:
    """How to get the table of a minor from another one's."""

    base: str
    why: str
    flags: dict[str, str | None] = field(default_factory=dict)  # None: the minor does not know it
    fields: dict[str, Any] = field(default_factory=dict)

    def apply(self, table: Table) -> Table:
        """Flags and fields of the derived minor."""
        flags, fields = dict(table[0]), copy.deepcopy(table[1])
        for changes, known in ((self.flags, flags), (self.fields, fields)):
            for name, value in changes.items():
                if value is None:
                    known.pop(name, None)
                else:
                    known[name] = value
        return flags, fields


CHANGES = {
    "1.34": Change(
        base="1.35",
        why="CHANGELOG-1.35 names no field that came; --pod-infra-container-image went with 1.35 "
        "(kubernetes/kubernetes issue 133779)",
        flags={"pod-infra-container-image": "deprecated"},
    ),
    "1.36": Change(
        base="1.35",
        why="CHANGELOG-1.36 names memoryReservationPolicy (pull request 137584); TLS curve preferences (137115) are "
        "left out, since it is not proven that the kubelet of 1.36 has them and not only the servers",
        fields={"memoryReservationPolicy": "string"},
    ),
}
