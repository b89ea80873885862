# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of faults of the API over a fleet: every machine is done in the end, and nothing is doubled."""

import re

import pytest

from tests.integration.faults.conftest import SIZE, SMALL
from tests.integration.faults.rows import ROWS, Row


def chosen(default: bool) -> list[object]:
    """The rows, by name."""
    return [pytest.param(row, id=row.name.replace(" ", "-")) for row in ROWS if row.default or not default]


def meet(fleet, row: Row, size: int) -> None:
    """A fleet meets a fault, and is run again until it is quiet."""
    one = fleet(row.name, size, **row.options)
    one.project.lab.control("POST", "/faults", row.script(one))
    first = one.run()
    if row.mended:
        one.project.forget_faults()
    assert bool(first.whole) == row.whole, one.described("as a whole")
    assert len(first.failed) <= row.failing, one.described("others failed")
    assert first.failed or row.whole or not row.failing, one.described("no machine failed")
    for reason in (*first.failed.values(), *filter(None, [first.whole])):
        assert re.search(row.says, reason), reason
    bystanders = [name for name in one.names if name not in first.failed]
    assert row.whole or not set(one.left()) & set(bystanders), one.described("others were not done")
    if row.deleted:
        second = one.run()
        assert set(second.failed) == set(first.failed), one.described("a second run")
        for name, reason in second.failed.items():
            assert "Delete it" in reason, reason
            one.project.call("DELETE", f"/servers/{one.rows()[name]['id']}")
    one.until_quiet()
    marked = one.names if row.whole and row.marks else [one.victim, *first.failed] if row.marks else ()
    one.judge(marked, row.extra)


@pytest.mark.parametrize("row", chosen(default=True))
def test_a_small_fleet_meets_the_usual_faults(fleet, row):
    meet(fleet, row, SMALL)


@pytest.mark.long
@pytest.mark.parametrize("row", chosen(default=False))
def test_a_fleet_meets_every_fault_of_the_api(fleet, row):
    meet(fleet, row, SIZE)
