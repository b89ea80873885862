# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of plans makes exactly the plans it was made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.node.differences import (
    DoesNotFitError,
    applied,
    blocks,
    differences,
    joined,
    made,
    read,
    section,
    table,
)
from tests.unit.node.samples import unhurried

LINES = st.lists(st.sampled_from(["", "  a", "  b", "  - c", "  @@ d", "  ### e", "  ...", "  f "]), max_size=9)
PLANS = st.dictionaries(st.sampled_from(["one", "two", "three", "four", "five"]), LINES, max_size=5).map(
    lambda parts: {"plan": ["# a plan"], **{key: ["== %s: file" % key, *lines] for key, lines in parts.items()}}
)
PLAN = """\
# Debian
packages: jq

runc 1.4.3
  from https://files.example/runc

== swap/swap: swap
  {"mode": "off"}

== facts/base: file /etc/kubenode/base.json 0644
  {
    "a": 1,

    "b": 1,
    "c": 1
  }
"""


@unhurried
@given(PLANS, PLANS, PLANS, PLANS)
def test_a_table_is_read_back_and_makes_the_same_plans(first, second, third, fourth):
    plans = {"first": first, "second": second, "third": third, "fourth": fourth}
    sections = {"second": section("first", plans, {}, second)}
    sections["third"] = section("nothing", plans, {}, third)
    sections["fourth"] = section("third", plans, {"second": sections["second"].own}, fourth)
    again = read(table(sections))
    assert again == sections
    for name, plan in plans.items():
        assert list(made(name, again, {"first": first}).items()) == list(plan.items())


def test_blocks_are_the_whole_text():
    assert list(blocks(PLAN)) == ["plan", "runc", "swap/swap", "facts/base"]
    assert joined(blocks(PLAN)) == PLAN


def test_a_name_means_one_block():
    with pytest.raises(ValueError, match="two blocks are called 'runc'"):
        blocks(PLAN + "\nrunc 1.4.4\n")


def test_a_shared_difference_leaves_the_rest_to_the_section():
    plans = {"old": blocks(PLAN), "other": blocks(PLAN.replace("# Debian", "# Rocky").replace("/runc", "/static-runc"))}
    changed = PLAN.replace("1.4.3", "1.5.0").replace('"b": 1', '"b": 2')
    sections = {"new": section("old", plans, {}, blocks(changed))}
    wanted = blocks(changed.replace("# Debian", "# Rocky").replace("/runc", "/static-runc").replace("off", "on"))
    sections["other-new"] = section("other", plans, {"new": sections["new"].own}, wanted)
    assert (
        table(sections).partition("\n\n")[2]
        == """\
### new: old
@@ runc
-runc 1.4.3
+runc 1.5.0
@@ facts/base
-    "b": 1,
+    "b": 2,

### other-new: other, like new
@@ swap/swap
-  {"mode": "off"}
+  {"mode": "on"}
"""
    )


def test_a_place_is_found_once_or_never():
    old = blocks(PLAN)
    changes = differences(old, blocks(PLAN.replace('"b": 1', '"b": 2')))
    for lines in (['    "b": 3,'], ['    "b": 1,', '    "b": 1,']):
        with pytest.raises(DoesNotFitError, match=r"the block facts/base has these lines [02] times: "):
            applied({**old, "facts/base": lines}, changes)
    with pytest.raises(DoesNotFitError, match="the block facts/base is not there"):
        applied({"plan": ["# Debian"]}, changes)


def test_a_block_is_not_added_twice_nor_after_one_that_is_not_there():
    old = blocks(PLAN)
    [new] = differences({key: lines for key, lines in old.items() if key != "swap/swap"}, old)
    with pytest.raises(DoesNotFitError, match="the block swap/swap is already there"):
        applied(old, [new])
    with pytest.raises(DoesNotFitError, match="the block swap/swap comes after runc, which is not there"):
        applied({"plan": ["# Debian"]}, [new])


def test_a_table_that_does_not_fit_names_its_plan():
    changed = blocks(PLAN.replace("off", "on"))
    sections = {"new": section("old", {"old": blocks(PLAN)}, {}, changed)}
    with pytest.raises(DoesNotFitError, match=r"the block swap/swap has these lines 0 times: .*, says the section new"):
        made("new", sections, {"old": changed})
