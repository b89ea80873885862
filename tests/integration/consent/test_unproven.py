# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubenode_proof: port and none: the second run of a system that does not let us in."""

import json

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import intents
from tests.integration.hcloud.conftest import project

__all__ = ["project"]
CLOSED, OPEN = "-o ProxyCommand='sh -c \"exit 1\"'", "-o ProxyCommand=yes"
ID = "5f" * 16


@pytest.fixture
def finished(project, tmp_path):
    """A machine that runs; returns what a later run says of it, after an installation that ended in ``state``."""
    machines = project.run("hcloud_machine", machines=[project.machine("n1")]).result["machines"]
    project.run("hcloud_rescue", machines=machines, ssh_keys=["deploy"], prove=False)
    server = project.servers()["n1"]
    labels = {**server["labels"], "kubenode.provision/installation": ID}
    project.call("PUT", f"/servers/{server['id']}", {"labels": labels})

    def run(proof, state=intents.DONE, ssh_args=OPEN, installation=ID, **options):
        kept = dict(intents.make("n1", installation, "fresh", image_url="https://i/old.raw"), state=state)
        intents.write(intents.file_of(str(tmp_path / "intents"), "n1"), kept)
        wanted = [{"name": "n1", "proof": proof, "image_url": "https://i/new.raw"}]
        done = project.run(
            "hcloud_rescue", machines=[{"name": "n1"}], ssh_keys=["deploy"], prove=False, rescue_timeout=3,
            wanted=wanted, intents_dir=str(tmp_path / "intents"), ssh_args=ssh_args, on_error="report", **options,
        )  # fmt: skip
        return done.machines["n1"]

    run.folder, run.project = tmp_path / "intents", project
    return run


@pytest.mark.parametrize(
    ("proof", "ssh_args", "state", "installation", "left_alone"),
    [
        ("port", OPEN, intents.DONE, ID, True),
        ("none", CLOSED, intents.DONE, ID, True),
        ("ssh", OPEN, intents.DONE, ID, False),
        ("none", CLOSED, intents.OPEN, ID, False),
        ("none", CLOSED, intents.GIVEN_UP, ID, False),
        ("none", CLOSED, intents.DONE, "a" * 32, False),
    ],
)
def test_what_asks_for_no_login_is_left_alone_when_it_was_finished(
    finished, proof, ssh_args, state, installation, left_alone
):
    found = finished(proof, state, ssh_args, installation)
    assert (found["installed"], found["failed"]) == (left_alone, not left_alone), found["msg"]
    assert not found["proven"]
    assert ("not verified, as kubenode_proof" in found["msg"]) is left_alone
    assert [one["what"] for one in found["drift"]] == (["image_url"] if left_alone else [])
    assert json.loads((finished.folder / "n1.json").read_text())["state"] == state


def test_a_permission_of_the_user_still_counts(finished):
    before = finished.project.commands("n1")
    assert finished("none", ssh_args=CLOSED, reinstall=["n1"])["armed_here"]
    assert finished.project.commands("n1")[len(before) :] == ["enable_rescue", "reset_server"]
