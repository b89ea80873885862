# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every playbook does for the machines on which it runs base or join."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.node_role.templating import templated

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def texts(playbook: Path) -> str:
    """A playbook with all task files that it imports or includes by name, one after the other."""
    text = playbook.read_text(encoding="utf-8")
    for name in re.findall(r"(?:import|include)_tasks:(?:\n +file:)? (\S+\.yml)", text):
        text += texts(playbook.parent / name)
    return text


def with_roles() -> list[str]:
    return [
        playbook.name
        for playbook in sorted(PLAYBOOKS.glob("*.yml"))
        if re.search(r"(?:name|role): kubenode\.provision\.(base|join)$", texts(playbook), re.MULTILINE)
    ]


@pytest.mark.parametrize("playbook", with_roles())
def test_no_machine_is_warned_of_for_its_python(playbook):
    assert "ansible_python_interpreter: auto_silent" in texts(PLAYBOOKS / playbook)


@pytest.mark.parametrize(
    ("there", "ready"),
    [
        (["base.json", "join.json"], True),
        # a join that was cut off is finished
        (["base.json", "bootstrap-kubelet.conf"], False),
        (["base.json", "bootstrap-kubelet.conf", "join.json"], True),
        # another tool made a node of it
        (["bootstrap-kubelet.conf"], True),
        ([], True),
    ],
)
def test_a_ready_node_is_left_alone_when_its_join_has_ended(there, ready):
    paths = {"base.json": "/etc/kubenode", "join.json": "/etc/kubenode", "bootstrap-kubelet.conf": "/etc/kubernetes"}
    files = {f"{folder}/{name}": {"exists": name in there} for name, folder in paths.items()}
    known = {
        "kubenode_asked": {"node": {"ready": True}, "need_bootstrap": False},
        "kubenode_reached": {"node": {"units": {"kubelet.service": {"active": "active"}}, "files": files}},
    }
    folder = PLAYBOOKS / "vars"
    variables = [yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in ("leave.yml", "site.yml")]
    assert templated("{{ kubenode__is_ready }}", variables[0] | variables[1] | known) is ready


def test_the_playbooks_that_make_nodes_are_among_them():
    assert {"node.yml", "node_base.yml", "node_image_snapshot.yml", "site.yml"} <= set(with_roles())


def test_no_playbook_forgets_by_end_play_that_a_machine_failed():
    """ansible-core exits with 0 after it, when the failed task was in an included file (seen with 2.21.5)."""
    assert [
        path.name for path in PLAYBOOKS.rglob("*.yml") if "meta: end_play" in path.read_text(encoding="utf-8")
    ] == []


def keys(value: object) -> Iterator[object]:
    """Every key of every mapping."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(one)
    yield from value if isinstance(value, dict) else ()


def test_no_key_is_a_truth_value():
    """YAML reads the keys on, off, yes and no as truth values, and a playbook does not find them by their names."""
    paths = [*PLAYBOOKS.rglob("*.yml"), *(PLAYBOOKS.parent / "roles").rglob("*.yml")]
    found = {
        path.name: [key for key in keys(yaml.safe_load(path.read_text())) if isinstance(key, bool)] for path in paths
    }
    assert len(found) > 30
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
