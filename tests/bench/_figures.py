# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures beside what they stand against: one printed line each, and the file build/bench/NAME.json."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from dev.toolchain.paths import CHECKOUT

RESULTS = CHECKOUT / "build" / "bench"


def figure(
    name: str, value: float, unit: str, how: str, against: str | None, other: float | None = None
) -> dict[str, Any]:
    """One line of the result file; ``other``: the same figure of what it stands against, if there is one."""
    return {
        "figure": name,
        "value": round(value, 3),
        "unit": unit,
        "against": against if other is None else f"{against}: {round(other, 3)}",
        "ratio": round(value / other, 3) if other else None,
        "how": how,
    }


def show(lines: Sequence[dict[str, Any]]) -> None:
    for line in lines:
        shown = f"({line['against']}, ratio {line['ratio']})"
        print(f"{line['figure']}: {line['value']} {line['unit']} {shown}", flush=True)


def write(name: str, lines: Sequence[dict[str, Any]]) -> None:
    (RESULTS / f"{name}.json").write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")


def each_size(
    name: str, variable: str, sizes: str, measure: Callable[[int], list[dict[str, Any]]], bad: Sequence[str]
) -> int:
    """Measure every size that an environment variable names, else those of ``sizes``; show and write the figures.

    The exit code is 1 where a figure of one of the units ``bad`` is not 0.
    """
    lines: list[dict[str, Any]] = []
    for size in os.environ.get(variable, sizes).split():
        found = measure(int(size))
        show(found)
        lines += found
    write(name, lines)
    return 1 if any(line["value"] for line in lines if line["unit"] in bad) else 0
