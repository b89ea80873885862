# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Task results as lines: what is shown, and what never is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.callback import node_steps as steps

SETTINGS = {
    "changed": True,
    "steps": [
        {"id": "kernel/modules", "step": "kernel", "changed": True, "seconds": 0.25},
        {"id": "swap/off", "step": "swap", "changed": False, "seconds": 0.1},
        {"id": "kernel/sysctl", "step": "kernel", "changed": False, "seconds": 0.5},
    ],
}
ARTIFACTS = {
    "changed": True,
    "artifacts": [
        {"name": "kubelet", "version": "1.36.4", "changed": True, "bytes": 60_500_000, "seconds": 2.0},
        {"name": "runc", "version": "1.4.3", "changed": False, "bytes": 0, "seconds": 0.1},
    ],
}


@pytest.mark.parametrize(
    ("result", "plain", "signs"),
    [
        (
            SETTINGS,
            ["changed:   kernel (1 of 2 changed, 0.8 s)", "ok:   swap (0.1 s)", "changed: Apply (changed, 3.0 s)"],
            ["✓   kernel", "✓   swap", "✓ Apply"],
        ),
        (
            ARTIFACTS,
            ["changed:   kubelet 1.36.4 (60.5 MB, 2.0 s)", "changed: Apply (changed, 3.0 s)"],
            ["✓   kubelet 1.36.4", "✓ Apply"],
        ),
        ({**SETTINGS, "_ansible_no_log": True}, ["changed: Apply (changed, 3.0 s)"], ["✓ Apply"]),
        ({"steps": "no list", "artifacts": [None, 5]}, ["changed: Apply (changed, 3.0 s)"], ["✓ Apply"]),
    ],
)
def test_lines(result, plain, signs):
    made = list(steps.steps("apply | Apply", result, 3.0, steps.CHANGED))
    assert [step.line(signs=False) for step in made] == plain
    assert [step.line(signs=True).split("  0")[0].split("  2")[0].split("  3")[0].rstrip() for step in made] == signs


def test_a_reason_has_its_code_and_no_control_characters():
    result = {"msg": "token refused\n\x1b[31mby the server", "failure": {"code": "token_refused", "detail": "x"}}
    assert steps.reason(result) == ["token refused", "[31mby the server", "code: token_refused"]


def test_a_hidden_reason_stays_hidden():
    assert "geheim" not in "".join(steps.reason({"msg": "geheim", "_ansible_no_log": True}))
    assert steps.message({"msg": "geheim", "_ansible_no_log": True}) == []


def test_messages():
    assert steps.message({"msg": ["a", "b\nc"]}) == ["a", "b c"]
    assert steps.message({"msg": "a"}) == ["a"]
    assert steps.message({"msg": {"a": 1}}) == []


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["msg", "steps", "artifacts", "failure", "module_stderr"]), VALUE), st.text())
def test_text_of_a_machine_stays_on_its_line(result, name):
    lines = [step.line(signs) for step in steps.steps(name, result, 1.0, steps.OK) for signs in (True, False)]
    lines += steps.reason(result) + steps.message(result)
    assert all(not set(line) & set("\r\n\x1b\u2028") for line in lines)
