# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""galaxy.yml, changelog, roles and what is shipped agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))
#: where the version stands beside galaxy.yml, which programs on machines and pip cannot read
VERSIONS = {
    "plugins/module_utils/_common/web.py": r'^AGENT, VERSION = "[\w.]+", "([\w.]+)"$',
    "lab/pyproject.toml": r'^version = "([\w.]+)"$',
}


def load(path: Path) -> dict:
    """A YAML file; an absent or empty one is empty."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def test_version_is_released_or_has_fragments():
    releases = load(CHECKOUT / "changelogs/changelog.yaml").get("releases", {})
    fragments = [path.name for path in (CHECKOUT / "changelogs/fragments").glob("*.y*ml")]
    assert re.fullmatch(r"\d+\.\d+\.\d+", GALAXY["version"])
    assert GALAXY["version"] in releases or fragments

    def key(version):
        return tuple(map(int, version.split(".")))

    assert max([GALAXY["version"], *releases], key=key) == GALAXY["version"], "the changelog is ahead of galaxy.yml"


def test_the_version_is_one_everywhere():
    text = {path: (CHECKOUT / path).read_text(encoding="utf-8") for path in VERSIONS}
    found = {path: re.findall(pattern, text[path], re.MULTILINE) for path, pattern in VERSIONS.items()}
    assert found == {path: [GALAXY["version"]] for path in VERSIONS}


def test_what_a_reader_copies_has_this_version():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    installation = text.partition("\n## Installation\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"\b\d+\.\d+\.\d+\b", installation)) == {GALAXY["version"]}
    molecule = (CHECKOUT / "docs/molecule.md").read_text(encoding="utf-8")
    assert set(re.findall(r"hetzner_lab-([\d.]+)-py3", molecule)) == {GALAXY["version"]}


def test_a_kubernetes_that_a_reader_copies_is_the_default_or_has_sums():
    pinned = load(CHECKOUT / "roles/base/vars/main/versions.yml")["base_versions"]
    known = {version for name in ("kubelet", "kubernetes-node") for version in pinned["checksums"][name]}
    default, upgrades = pinned["defaults"]["kubernetes"], 0
    for path in (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        matrix = ",".join(re.findall(r"^ *kubernetes: \[(.*)\]$", text, re.MULTILINE))
        assert set(re.findall(r"[\d.]+", matrix)) <= known, path.name
        written = set(re.findall(r"\bbase_kubernetes_version: ([\d.]+)", text))
        given = set(re.findall(r"\bbase_kubernetes_version=([\d.]+)", text))
        assert given <= {default}, path.name
        # what a page upgrades is older before
        assert written <= known - {default} if given else written <= {default}, path.name
        upgrades += bool(given and written)
    assert upgrades > 1


def test_what_was_added_was_added_in_a_version_that_there_is():
    releases = {GALAXY["version"], *load(CHECKOUT / "changelogs/changelog.yaml").get("releases", {})}
    paths = [
        path
        for folder in ("plugins", "roles")
        for suffix in ("py", "yml")
        for path in (CHECKOUT / folder).rglob(f"*.{suffix}")
    ]
    added = {
        path: set(re.findall(r"version_added: *['\"]?([\w.]+)", path.read_text(encoding="utf-8"))) for path in paths
    }
    assert len([path for path in added if added[path]]) > 30
    assert {str(path): versions - releases for path, versions in added.items() if versions - releases} == {}


def test_repository_only_folders_are_not_shipped():
    shipped = {"changelogs", "docs", "extensions", "LICENSES", "meta", "playbooks", "plugins", "roles"}
    tops = {path.name for path in CHECKOUT.iterdir() if path.is_dir() and path.name not in (".git", "__pycache__")}
    assert tops - shipped <= set(GALAXY["build_ignore"])


def test_licences_named_are_the_texts_there():
    """Those of files that are not in the built collection stay out of it, too."""
    texts = {path.stem for path in (CHECKOUT / "LICENSES").iterdir()}
    left_out = {Path(path).stem for path in GALAXY["build_ignore"] if path.startswith("LICENSES/")}
    assert set(GALAXY["license"]) == texts - left_out
    assert left_out < texts


def tasks_in(entries: list, folder: Path) -> Iterator[dict]:
    """Every task of a play, with those of blocks and imported files."""
    for task in entries:
        yield task
        for section in ("block", "rescue", "always"):
            yield from tasks_in(task.get(section) or [], folder)
        imported = task.get("ansible.builtin.import_tasks")
        if imported:
            path = folder / imported
            yield from tasks_in(yaml.safe_load(path.read_text()), path.parent)


def entries_of(path: Path) -> Iterator[dict]:
    """The tasks of a file of tasks, or of all plays of a playbook."""
    for entry in yaml.safe_load(path.read_text()) or []:
        sections = ("pre_tasks", "tasks", "post_tasks", "handlers") if "hosts" in entry else ()
        found = [task for one in sections for task in entry.get(one) or []] if sections else [entry]
        yield from tasks_in(found, path.parent)


@pytest.mark.parametrize(
    "path",
    [*sorted((CHECKOUT / "playbooks").rglob("*.yml")), *sorted((CHECKOUT / "roles").glob("*/tasks/*.yml"))],
    ids=lambda path: str(path.relative_to(CHECKOUT)),
)
def test_what_a_person_reads_first_of_a_failure_is_its_reason(path):
    """ansible-core 2.21 puts a sentence about the expression before the message of a task that failed by one.

    ``false`` fails no task, so that nothing is put before anything.
    """
    if path.parent.name == "vars":
        return
    for task in entries_of(path):
        assert task.get("failed_when", False) is False, task["name"]


@pytest.mark.parametrize("folder", ["playbooks", "roles"])
def test_no_template_is_none_as_a_whole_since_ansible_core_2_18_makes_it_an_empty_text(folder):
    found = [
        f"{path.relative_to(CHECKOUT)}: {line.strip()}"
        for path in sorted((CHECKOUT / folder).rglob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"""["'>]\s*\{\{[^{}()]*\|\s*default\(none(, true)?\)\s*\}\}""", line)
    ]
    assert found == []


@pytest.mark.parametrize("path", sorted((CHECKOUT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_a_user_s_strategy_does_not_run_the_phase_of_a_fleet_once_a_host(path):
    for play in yaml.safe_load(path.read_text()):
        if "hosts" not in play:
            continue
        tasks = [task for section in ("pre_tasks", "tasks", "post_tasks") for task in play.get(section) or []]
        once = any(task.get("run_once") for task in tasks_in(tasks, path.parent))
        allowed = ["ansible.builtin.linear"] if once else ["ansible.builtin.linear", "ansible.builtin.free"]
        assert play.get("strategy") in allowed, play["name"]
