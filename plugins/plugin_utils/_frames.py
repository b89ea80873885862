# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of a fleet as lines of text for a screen of a given size, and what draws it over the one before (pure).

No library is needed for it. The cursor always rests below the table, is never hidden, and no setting of the terminal
is changed, so a run may end or be killed at any moment.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.plugin_utils import _fleet

#: A screen with less room than this shows lines.
LEAST_WIDTH, LEAST_HEIGHT = 60, 8
_LONGEST_NAME = 24
_STATE, _FOR, _RATE, _LEFT = 9, 6, 9, 6
#: What is done: share and bytes, on a narrow screen the share alone.
_DONE, _SHARE, _WIDE = 18, 8, 100


def rows(fleet: _fleet.Fleet, width: int, height: int, now: float) -> list[str]:
    """At most ``height`` lines of at most ``width`` columns: the sum, failures, then the slowest of those at work."""
    total = textwrap.wrap(fleet.sum_line(), width, max_lines=2, placeholder=" …") or [""]
    failed, busy = fleet.failures(), _slowest_first(fleet.busy(), now)
    if not failed and not busy:
        return total[:height]
    name = min(_LONGEST_NAME, max(7, *(cells(one.name) for one in failed + busy)), max(8, width // 4))
    room = max(1, height - len(total) - 1)
    shown = failed + busy
    if len(shown) > room:
        # Failures never take all the room.
        few = max(1, room - 1)
        kept = failed[: max(1, few - min(len(busy), few // 2))]
        shown = kept + busy[: few - len(kept)]
    lines = [_row(one, name, width, now) for one in shown]
    hidden = len(failed) + len(busy) - len(shown)
    if hidden:
        lines.append(f"and {hidden} more")
    head = ["machine", "state", "for", "done", "rate", "left", "last message"]
    return [*total, _columns(head, name, width), *lines][:height]


def cells(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(_cells_of(one) for one in text)


def cut(text: str, width: int) -> str:
    """The text, cut to so many columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for one in text:
        used += _cells_of(one)
        if used > width - 1:
            break
        kept.append(one)
    return "".join(kept) + "…" if width > 0 else ""


def clock(seconds: float) -> str:
    """``0:41`` or ``1:02:03``."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def draw(lines: Sequence[str], before: int) -> str:
    """What draws a table over one of ``before`` lines that stands right above the cursor."""
    return erase(before) + "".join(f"{line}\n" for line in lines)


def erase(before: int) -> str:
    """What takes a table away; the cursor is then where its first line began."""
    return f"\x1b[{before}A\r\x1b[J" if before else ""


def _slowest_first(machines: Sequence[_fleet.Machine], now: float) -> list[_fleet.Machine]:
    """First what is earlier on its way, then what has most time left, then what has stood there longest."""
    early = {state: place for place, state in enumerate(boot_states.ORDER)}
    return sorted(machines, key=lambda one: (early[one.state], -(one.left(now) or 0.0), one.since))


def _row(machine: _fleet.Machine, name: int, width: int, now: float) -> str:
    share, rate, left = machine.share(), machine.rate(now), machine.left(now)
    done = ""
    if machine.done is not None and not machine.outcome:
        size = f"{machine.done // 10**6}" + (f"/{machine.total // 10**6}" if machine.total else "") + " MB"
        done = f"{_fleet.percent(share)} {size}" if share is not None else size
        done = done if width >= _WIDE or share is None else _fleet.percent(share)
    fields = [
        machine.name,
        machine.outcome.upper() or _fleet.AT[machine.state][1],
        clock((machine.ended or now) - machine.since),
        done,
        _fleet.speed(rate) if rate is not None and not machine.outcome else "",
        clock(left) if left is not None and not machine.outcome else "",
        machine.message.removeprefix(f"{machine.name}: "),
    ]
    return _columns(fields, name, width)


def _columns(fields: Sequence[str], name: int, width: int) -> str:
    """One line. A failure's message begins where the numbers would stand, as it has none."""
    widths = [name, _STATE, _FOR, _DONE if width >= _WIDE else _SHARE, _RATE, _LEFT]
    if not any(fields[3:6]):
        # Without numbers, the message has their room.
        widths = widths[:3]
        fields = [*fields[:3], fields[6]]
    line = ""
    for text, room in zip(fields, widths, strict=False):
        text = cut(text, room)
        gap = " " * (room - cells(text))
        line += (text + gap if not line or room == _STATE else gap + text) + " "
    return cut(f"{line} {fields[len(widths)]}".rstrip(), width)


def _cells_of(one: str) -> int:
    if unicodedata.combining(one) or unicodedata.category(one) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1
