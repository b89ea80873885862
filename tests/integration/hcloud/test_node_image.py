# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_node_image against the lab: made once, kept, pruned, and never another owner's.

Most tests call what the module calls, over real HTTP; starting Ansible for each would cost two seconds a call.
"""

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import FleetError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import summary
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.snapshots import ImageFleet, ImageLookup
from tests.integration.hcloud.conftest import Project
from tests.integration.runs import Run
from tests.waiting import until

DIGEST = "0123456789abcdef" * 4


def wanted(name="n-1.36.4", server="builder", **more):
    about = {"kubernetes_version": "1.36.4", "base_image": "debian-13", "digest": DIGEST}
    return {"name": name, "server": server, **about, **more}


class Direct(Run):
    """One call of a fleet, with the results of a run of the module."""

    def __init__(self, api, fleet) -> None:
        try:
            result = {**summary(fleet.run(), "images"), "api_calls": api.calls, "msg": ""}
        except FleetError as error:
            result = {"images": [], "msg": str(error)}
        super().__init__(int(bool(result["msg"]) or any(image["failed"] for image in result["images"])), str(result))
        self.results = [{"result": result}]


def make(project, *images, **options):
    """One call of hcloud_node_image."""
    api = Api(project.lab.token, project.lab.endpoint)
    return Direct(api, ImageFleet(api, [{"running": "refuse", **image} for image in images], **options))


def find(project, *images, newest=False):
    """One call of hcloud_node_image_info."""
    api = Api(project.lab.token, project.lab.endpoint)
    asked = [{"architecture": "x86", **image} for image in images] or None
    return Direct(api, ImageLookup(api, asked, newest))


def server(project, name, **more):
    """A server that is ours and off, made by another client."""
    body = {"name": name, "server_type": "cx23", "location": "fsn1", "image": "debian-12", "start_after_create": False}
    labels = {"kubenode.provision/machine": name}
    made = project.call("POST", "/servers", {**body, "labels": labels, **more})["server"]
    until(lambda: project.servers()[name]["status"] != "initializing", f"the creation of {name}")
    return made


def snapshots(project: Project) -> dict[int, dict]:
    """All snapshots by id."""
    return {image["id"]: image for image in project.call("GET", "/images?type=snapshot&per_page=50")["images"]}


def first(run):
    return run.result["images"][0]


@pytest.fixture
def builder(project):
    """A server that is off."""
    server(project, "builder")
    return project


@pytest.fixture
def running(builder):
    """The same, running."""
    builder.call("POST", f"/servers/{builder.servers()['builder']['id']}/actions/poweron")
    until(lambda: builder.servers()["builder"]["status"] == "running", "the start of the builder")
    return builder


def test_a_snapshot_is_made_once_and_labelled(builder):
    run = builder.run("hcloud_node_image", images=[wanted(labels={"pool": "a"})]).ok()
    assert run.result["changed"]
    assert builder.lab.token not in run.output
    result = first(run)
    (image,) = snapshots(builder).values()
    assert image["labels"] == {
        "caph-image-name": "n-1.36.4",
        "kubenode.provision/node-image": "n-1.36.4",
        "kubenode.provision/kubernetes": "1.36.4",
        "kubenode.provision/base-image": "debian-13",
        "kubenode.provision/digest": "sha256-" + DIGEST[:56],
        "pool": "a",
    }
    assert (result["id"], result["created"], result["architecture"]) == (image["id"], True, "x86")
    assert result["disk_size"] == 40
    assert result["image_size"] is not None
    assert builder.commands("builder") == ["create_server", "create_image"]

    again = make(builder, wanted(labels={"pool": "a"}))
    assert not again.result["changed"]
    assert (first(again)["id"], first(again)["created"]) == (image["id"], False)
    assert again.result["api_calls"] <= 2

    builder.call("DELETE", f"/servers/{builder.servers()['builder']['id']}")
    gone = make(builder, wanted(architecture="x86")).ok()
    assert not gone.result["changed"]


def test_other_content_and_force_make_another_and_keep_prunes(builder):
    make(builder, wanted())
    (old,) = snapshots(builder)
    run = make(builder, wanted(digest="f" * 64))
    assert first(run)["created"]
    assert first(run)["others"] == [old]
    assert "CAPH calls the name ambiguous" in first(run)["msg"]
    run = make(builder, wanted(digest="f" * 64, force=True, keep=1))
    assert first(run)["created"]
    assert len(first(run)["deleted"]) == 2
    assert first(run)["others"] == []
    assert list(snapshots(builder)) == [first(run)["id"]]


def test_check_mode_reports_and_changes_nothing(builder):
    make(builder, wanted())
    before = snapshots(builder)
    make(builder, wanted(digest="f" * 64, keep=1), wanted("later", "none yet"), check_mode=True).fails(
        "image 'later': architecture: missing"
    )
    later = wanted("later", "none yet", architecture="arm")
    run = builder.run("hcloud_node_image", "--check", "--diff", images=[wanted(digest="f" * 64, keep=1), later]).ok()
    assert [image["created"] for image in run.result["images"]] == [True, True]
    assert first(run)["deleted"] == list(before)
    assert '+    "name": "later"' in run.output
    assert snapshots(builder) == before


def test_what_servers_the_inventory_or_others_use_is_never_pruned(builder):
    ids = [first(make(builder, wanted(force=True)))["id"] for _number in range(4)]
    body = {"name": "user", "server_type": "cx23", "image": ids[0], "start_after_create": False}
    builder.call("POST", "/servers", body)
    path = f"/servers/{builder.servers()['builder']['id']}/actions/create_image"
    foreign = builder.call("POST", path, {"labels": {"caph-image-name": "n-1.36.4"}})["image"]["id"]
    run = make(builder, wanted(keep=1), in_use=[str(ids[1])]).ok()
    assert first(run)["deleted"] == [ids[2]]
    assert {kept["id"]: kept["reason"] for kept in first(run)["kept"]} == {
        ids[0]: "server 'user' was made from it",
        ids[1]: "named in in_use",
        foreign: "not made by this collection",
    }
    again = make(builder, wanted(keep=1), in_use=[str(ids[1])])
    assert not again.result["changed"]

    run = make(builder, {"name": "n-1.36.4"}, state="absent").fails()
    assert f"{foreign} (not made by this collection)" in first(run)["msg"]
    assert sorted(snapshots(builder)) == sorted([ids[0], foreign])


def test_a_name_protects_all_that_bear_it_and_check_mode_says_the_same(builder):
    older, newer = [first(make(builder, wanted(force=True)))["id"] for _number in range(2)]
    again = wanted(keep=1, force=True)
    kept = [{"id": number, "reason": "named in in_use"} for number in (older, newer)]
    check = make(builder, again, in_use=["n-1.36.4"], check_mode=True).ok()
    assert (first(check)["kept"], first(check)["deleted"]) == (kept, [])
    run = make(builder, again, in_use=["n-1.36.4"]).ok()
    assert (first(run)["kept"], first(run)["deleted"]) == (kept, [])
    assert sorted(snapshots(builder)) == [older, newer, first(run)["id"]]

    # The newest counts as kept, also where its name is protected.
    run = make(builder, wanted(keep=1), in_use=["n-1.36.4"]).ok()
    assert (first(run)["kept"], first(run)["changed"]) == (kept, False)


def test_pruning_leaves_what_the_run_returns_although_another_run_has_made_a_newer_one(builder):
    """What was made from the same is returned; a newer one is of another run, or of other input."""
    mine, newer = (first(make(builder, wanted(digest=digit * 64)))["id"] for digit in "ab")
    for check in (True, False):
        run = make(builder, wanted(digest="a" * 64, keep=1), check_mode=check).ok()
        assert (first(run)["id"], first(run)["deleted"], first(run)["others"]) == (mine, [], [newer])
        assert first(run)["kept"] == [{"id": mine, "reason": f"the image of this run; newer: {newer}"}]
        assert first(run)["msg"] == f"exists; 1 kept: {mine} (the image of this run; newer: {newer})"
    assert sorted(snapshots(builder)) == [mine, newer]


@pytest.mark.parametrize("pruned", [False, True])
def test_of_two_makers_of_a_name_neither_deletes_its_own_and_one_says_that_its_own_is_gone(
    builder, monkeypatch, pruned
):
    server(builder, "second")
    other, read = [], ImageFleet._read_again

    def begin(api, look):
        """What another controller does between the first one's snapshot and its pruning."""
        monkeypatch.setattr(ImageFleet, "_read_again", read)
        keep = 1 if pruned else None
        other.append(first(make(builder, wanted(server="second", keep=keep, force=True)).ok())["id"])
        return read(api, look)

    monkeypatch.setattr(ImageFleet, "_read_again", begin)
    run = make(builder, wanted(keep=1, force=True))
    mine = first(run)["id"]
    if pruned:
        assert first(run)["msg"] == f"the snapshot {mine} was made, but another run has deleted it since; run again"
        assert (first(run)["failed"], sorted(snapshots(builder))) == (True, other)
    else:
        assert first(run)["kept"] == [{"id": mine, "reason": f"the image of this run; newer: {other[0]}"}]
        assert (first(run)["failed"], sorted(snapshots(builder))) == (False, [mine, *other])


def test_absent_deletes_all_of_a_name_but_what_the_inventory_names(builder):
    make(builder, wanted(), wanted("other"))
    run = make(builder, {"name": "n-1.36.4"}, state="absent", in_use=["n-1.36.4"]).fails()
    assert "named in in_use" in first(run)["msg"]
    make(builder, {"name": "n-1.36.4"}, state="absent").ok()
    assert [image["labels"]["caph-image-name"] for image in snapshots(builder).values()] == ["other"]
    assert not make(builder, {"name": "n-1.36.4"}, state="absent").result["changed"]


def test_a_running_server_is_refused_unless_it_may_be_switched_off(running):
    run = make(running, wanted()).fails()
    assert "server 'builder' is running; a snapshot of a running disk is not consistent" in first(run)["msg"]
    assert snapshots(running) == {}
    assert running.servers()["builder"]["status"] == "running"
    make(running, wanted(running="cut")).ok()
    assert running.commands("builder")[-2:] == ["stop_server", "create_image"]


def test_a_server_of_another_user_is_never_switched_off(project):
    project.call("POST", "/servers", {"name": "theirs", "server_type": "cx23", "image": "debian-12"})
    run = make(project, wanted(server="theirs", running="cut")).fails()
    assert "was not made by this collection, so it is not switched off" in first(run)["msg"]
    assert project.servers()["theirs"]["status"] in ("running", "starting")
    assert snapshots(project) == {}


@pytest.mark.parametrize(
    ("image", "finding"),
    [
        ({"name": "n" * 64}, "cannot be the value of the label caph-image-name"),
        ({"architecture": "arm"}, "arm is wanted, but server 'builder' is x86 (cx23)"),
        ({"digest": "12"}, "digest: '12' is no SHA-256"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(builder, image, finding):
    make(builder, wanted("good"), wanted(**image)).fails("nothing was changed, because of", finding)
    assert snapshots(builder) == {}


def test_a_missing_server_is_one_images_failure(builder):
    run = make(builder, wanted(server="missing", architecture="x86"), wanted("good")).fails()
    assert "no server 'missing' to make it from" in first(run)["msg"]
    assert run.result["images"][1]["created"]


@pytest.mark.parametrize("how", [{"status": 502}, {"status": 504, "code": "timeout"}, {"drop": True}])
def test_a_lost_snapshot_is_found_and_not_doubled(builder, how):
    make(builder, wanted())
    builder.fault(point="request", method="POST", path=".*/create_image", after_effect=True, **how)
    run = make(builder, wanted(force=True)).ok()
    assert first(run)["created"]
    assert len(snapshots(builder)) == 2


def test_a_failed_snapshot_leaves_nothing_and_the_next_run_makes_it(builder):
    builder.fault(point="action", machine="builder", command="create_image", code="action_failed", message="no space")
    run = make(builder, wanted()).fails()
    assert "create_image" in first(run)["msg"]
    assert snapshots(builder) == {}
    assert first(make(builder, wanted()))["created"]


def test_a_snapshot_that_is_being_made_is_waited_for(builder):
    builder.fault(point="action", machine="builder", command="create_image", effect="stuck")
    cut = make(builder, wanted(), timeout=3).fails()
    assert "was not reached within 3 s" in first(cut)["msg"]
    builder.forget_faults()
    make(builder, wanted()).ok()
    assert len(snapshots(builder)) == 1
    assert builder.commands("builder").count("create_image") == 1


def test_many_images_are_made_side_by_side_with_few_requests(project):
    names = [f"b{number}" for number in range(12)]
    for name in names:
        server(project, name)
    run = make(project, *[wanted(f"n-{name}", name, keep=1) for name in names]).ok()
    assert len(snapshots(project)) == 12
    assert run.result["api_calls"] <= 12 + 10


def test_info_finds_by_the_rules_of_caph(builder):
    make(builder, wanted())
    ask = [{"name": "n-1.36.4"}, {"name": "debian-13", "architecture": "arm"}, {"name": "nothing"}]
    run = builder.run("hcloud_node_image_info", images=ask, on_error="report")
    one, two, three = run.result["images"]
    assert one["labels"]["kubenode.provision/base-image"] == "debian-13"
    assert (two["type"], two["architecture"]) == ("system", "arm")
    assert three["failed"]
    assert "'nothing' is neither the name nor the id" in three["msg"]

    newer = first(make(builder, wanted(force=True)))["id"]
    assert "is ambiguous" in first(find(builder, {"name": "n-1.36.4"}))["msg"]
    assert first(find(builder, {"name": "n-1.36.4"}, newest=True))["id"] == newer
    assert first(find(builder))["id"] == newer
    assert "images[0].name: missing" in find(builder, {"name": ""}).result["msg"]


def test_a_machine_is_made_and_started_from_a_node_image(builder):
    made = first(make(builder, wanted()))
    machine = builder.machine("from-image", image="n-1.36.4")
    run = builder.run("hcloud_machine", machines=[machine], state="started").ok()
    assert builder.servers()["from-image"]["image"]["id"] == made["id"]
    assert builder.commands("from-image") == ["create_server", "start_server"]
    assert [step["to"] for step in run.machines["from-image"]["transitions"]] == ["Initializing", "BootingToRealOS"]
    again = builder.run("hcloud_machine", machines=[machine], state="started")
    assert not again.result["changed"]
    make(builder, wanted(force=True))
    twice = builder.machine("twice", image="n-1.36.4")
    other = builder.machine("other", image="n-1.36.4", server_type="cax11", location="hel1")
    wrong = builder.machine("wrong", architecture="arm")
    message = builder.run("hcloud_machine", machines=[twice, other, wrong]).result["msg"]
    assert "machine 'twice': image: 'n-1.36.4' is ambiguous" in message
    assert "machine 'other': image: 'n-1.36.4' exists for x86 only" in message
    assert "machine 'wrong': architecture: arm is wanted, but server type 'cx23' is x86" in message
    builder.run("hcloud_machine", machines=[{**twice, "image_newest": True}]).ok()
    assert builder.servers()["twice"]["image"]["id"] > made["id"]


def test_an_image_larger_than_the_disk_is_refused_before_anything_is_made(project):
    server(project, "builder", server_type="cx33")
    make(project, wanted())
    project.run("hcloud_machine", machines=[project.machine("small", image="n-1.36.4")]).fails(
        "needs a disk of 80 GB, server type 'cx23' has 40 GB"
    )
    assert "small" not in project.servers()
