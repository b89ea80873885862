# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_machine deletes only what it made, and an adopted server only when `delete` names it."""

import pytest

from tests.integration.hcloud.conftest import project

__all__ = ["project"]
ADOPTED = "kubenode.provision/adopted"


@pytest.fixture
def foreign(project):
    """A server that was made by hand."""
    project.call("POST", "/servers", {"name": "db", "server_type": "cx23", "image": "debian-12"})
    return project


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("delete", [[], ["db"]])
def test_adopt_in_the_inventory_deletes_nothing(foreign, check, delete):
    machines = [{"name": "db", "adopt": True}]
    run = foreign.run("hcloud_machine", *["--check"] * check, machines=machines, state="absent", delete=delete).fails()
    assert "was not made by this collection" in run.machines["db"]["msg"]
    assert not run.machines["db"]["changed"]
    assert "db" in foreign.servers()


def test_an_adopted_server_goes_only_when_delete_names_it(foreign):
    machine = foreign.machine("db", adopt=True)
    assert foreign.run("hcloud_machine", machines=[machine]).machines["db"]["adopted"]
    # neither another run nor labels of the user take the mark away
    foreign.run("hcloud_machine", machines=[foreign.machine("db", labels={"pool": "a"})])
    assert foreign.servers()["db"]["labels"][ADOPTED] == "db"
    for flags in (["--check"], []):
        run = foreign.run("hcloud_machine", *flags, machines=[machine], state="absent").fails()
        assert "name it in delete" in run.machines["db"]["msg"]
        assert not run.result["changed"]
    foreign.run("hcloud_machine", machines=[machine], state="absent", delete=["bd"]).fails(
        "delete: 'bd' is none of the machines"
    )
    predicted = foreign.run("hcloud_machine", "--check", machines=[machine], state="absent", delete=["db"])
    assert predicted.machines["db"]["msg"] == "would delete the server"
    assert "db" in foreign.servers()
    run = foreign.run("hcloud_machine", machines=[machine], state="absent", delete=["db"])
    assert run.machines["db"]["changed"]
    assert foreign.servers() == {}


@pytest.mark.parametrize("key", ["kubenode.provision/machine", ADOPTED, "kubenode.provision/installation"])
def test_who_made_a_server_is_no_permission_of_the_user(foreign, key):
    foreign.run("hcloud_machine", machines=[foreign.machine("n1", labels={key: "n1"})]).fails(
        f"labels: the key '{key}' says who made a server"
    )
    assert set(foreign.servers()) == {"db"}
