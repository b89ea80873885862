# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every step of a reconciliation, one by one: what is asked for, written, and when it is looked at again."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.reconcile import (
    FINALIZER,
    FOREIGN_LABEL,
    BuildRequest,
    Built,
    Images,
    Missing,
    NotYet,
    Observed,
    Plan,
    Refused,
    decide,
    problem_of,
)
from tests.unit.image_server.controller.cluster import Shelf
from tests.unit.image_server.controller.objects import NOW, THEN, conditions, image, secret, with_metadata, with_status

READY = {
    "imageUrl": "http://a/old.iso",
    "format": "iso",
    "architecture": "x86_64",
    "networkData": {"name": "net", "version": "7"},
    "conditions": [
        {
            "type": kind,
            "status": value,
            "reason": "ImageSuccess",
            "message": message,
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, value, message in (("Ready", "True", "Generated image"), ("Error", "False", ""))
    ],
}
NOT_READY = {
    **{key: value for key, value in READY.items() if key != "imageUrl"},
    "conditions": [{**READY["conditions"][0], "status": "False", "message": "Config changed"}, READY["conditions"][1]],
}
FAILED = {
    "conditions": [
        {**READY["conditions"][0], "status": "False", "reason": "MissingNetworkData", "message": ""},
        {
            **READY["conditions"][1],
            "status": "True",
            "reason": "MissingNetworkData",
            "message": "NetworkData secret not found",
            "lastTransitionTime": THEN,
        },
    ]
}


def seen(body, **more) -> Observed:
    return Observed(**{"image": body, "now": NOW, "supported": True, **more})


def test_a_new_object_gets_the_finalizer_behind_those_it_has():
    body = with_metadata(image(), finalizers=["another"])
    assert decide(seen(body)) == Plan(finalizers=("another", FINALIZER))


def test_an_object_with_a_deletion_time_loses_image_and_finalizer():
    body = with_metadata(with_status(image(), READY), deletionTimestamp=THEN)
    assert decide(seen(body)) == Plan(forget=True, finalizers=())
    body = with_metadata(body, finalizers=[])
    assert decide(seen(body)) == Plan(forget=True)


def test_an_image_is_served_as_long_as_another_controller_needs_the_object():
    body = with_metadata(with_status(image(), READY), deletionTimestamp=THEN, finalizers=["another", FINALIZER])
    assert decide(seen(body)) == Plan(read="net")
    plan = decide(seen(body, secret=secret()))
    assert plan == Plan(build=BuildRequest("iso", "x86_64", secret()))
    assert decide(seen(body, secret=secret(), outcome=Built("http://a/old.iso"))) == Plan()
    # only what the status names is served
    assert decide(seen(body, secret=secret(version="8"))) == Plan()
    assert decide(seen(body, secret=Missing())) == Plan()
    assert decide(seen(with_status(body, NOT_READY))) == Plan()
    assert decide(seen(with_metadata(body, finalizers=["another"]))) == Plan(forget=True)


def test_a_label_of_the_assisted_installer_ends_our_part():
    labelled = with_metadata(with_status(image(), READY), labels={FOREIGN_LABEL: ""})
    assert decide(seen(labelled)) == Plan(forget=True, finalizers=())
    assert decide(seen(with_metadata(labelled, finalizers=["another"]))) == Plan(forget=True)


@pytest.mark.parametrize(
    ("body", "facts", "message"),
    [
        pytest.param(image(), {"supported": False}, "Architecture not supported", id="architecture"),
        pytest.param(image(acceptFormats=[]), {}, "No acceptable image format supported", id="none"),
        pytest.param(image(acceptFormats=None), {}, "No acceptable image format supported", id="absent"),
        pytest.param(image(acceptFormats=["qcow2"]), {}, "No acceptable image format supported", id="other"),
    ],
)
def test_what_cannot_be_served_is_reported_once(body, facts, message):
    plan = decide(seen(with_status(body, READY), **facts))
    assert plan.retry is None
    assert "imageUrl" not in plan.status
    assert plan.status["format"] == "iso"
    assert conditions(plan.status) == {
        "Ready": ("False", "ConfigurationError", ""),
        "Error": ("True", "ConfigurationError", message),
    }
    assert decide(seen(with_status(body, plan.status), **facts)) == Plan()


def test_the_first_format_that_is_supported_is_taken():
    body = image(acceptFormats=["initrd", "iso"], networkDataName=None)
    assert decide(seen(body)).status["format"] == "initrd"
    other = image(acceptFormats=["qcow2", "iso"], networkDataName=None)
    assert decide(seen(other)).status["format"] == "iso"


@pytest.mark.parametrize(
    ("age", "delay"), [(0, 10), (10, 20), (30, 40), (70, 80), (589, 599), (590, 600), (100_000, 600)]
)
def test_a_missing_secret_is_looked_for_ever_more_rarely(age, delay):
    body = with_status(image(), FAILED)
    plan = decide(seen(body, now=NOW + age, secret=Missing()))
    assert plan == Plan(retry=delay)


def test_a_missing_secret_is_an_error_of_the_object():
    plan = decide(seen(with_status(image(), READY), secret=Missing()))
    assert plan.retry == 10
    assert "imageUrl" not in plan.status
    assert conditions(plan.status) == {
        "Ready": ("False", "MissingNetworkData", ""),
        "Error": ("True", "MissingNetworkData", "NetworkData secret not found"),
    }
    assert {one["lastTransitionTime"] for one in plan.status["conditions"]} == {THEN}


def test_two_writes_before_the_first_build():
    body = image()
    assert decide(seen(body)) == Plan(read="net", claim=True)
    first = decide(seen(body, secret=secret()))
    assert first.forget
    assert first.status["networkData"] == {"name": "net", "version": "7"}
    assert conditions(first.status) == {
        "Ready": ("False", "ImageSuccess", "Config changed"),
        "Error": ("False", "ImageSuccess", ""),
    }
    body = with_status(body, first.status)
    wish = decide(seen(body, secret=secret()))
    assert wish == Plan(build=BuildRequest("iso", "x86_64", secret()))
    done = decide(seen(body, secret=secret(), outcome=Built("http://a/new.iso")))
    assert done.status["imageUrl"] == "http://a/new.iso"
    assert conditions(done.status)["Ready"] == ("True", "ImageSuccess", "Generated image")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"acceptFormats": ["initrd"]}, id="format"),
        pytest.param({"architecture": "aarch64"}, id="architecture"),
        pytest.param({"networkDataName": None}, id="without-secret"),
        pytest.param({"networkDataName": "other"}, id="other-secret"),
    ],
)
def test_a_changed_spec_withdraws_ready_first_and_then_the_image(changed):
    body = with_metadata(with_status(image(**changed), READY), generation=2)
    name = body["spec"].get("networkDataName")
    found = secret(name=name, version="9") if name else None
    first = decide(seen(body, secret=found))
    assert not first.forget
    assert first.status["imageUrl"] == "http://a/old.iso"
    assert first.status["networkData"] == READY["networkData"]
    assert conditions(first.status)["Ready"] == ("False", "ImageSuccess", "Config changed")
    assert first.status["conditions"][0]["observedGeneration"] == 2
    assert first.status["conditions"][1] == READY["conditions"][1]
    second = decide(seen(with_status(body, first.status), secret=found))
    assert second.forget
    assert "imageUrl" not in second.status
    assert second.status["architecture"] == body["spec"]["architecture"]
    assert second.status["networkData"] == ({"name": name, "version": "9"} if found else {})


def test_an_empty_architecture_is_reported_as_it_was_asked_for():
    body = with_status(image(architecture=None), NOT_READY)
    plan = decide(seen(body, secret=secret()))
    assert "architecture" not in plan.status
    assert decide(seen(with_status(body, plan.status), secret=secret())).build.architecture == ""


def test_kernel_and_its_arguments_come_and_go_with_the_image():
    body = with_status(image(), NOT_READY)
    made = Built("http://a/x.initramfs", "http://a/x.kernel", "coreos.live.rootfs_url=http://a/x.rootfs")
    plan = decide(seen(body, secret=secret(), outcome=made))
    assert plan.status["kernelUrl"] == made.kernel_url
    assert plan.status["extraKernelParams"] == made.extra_kernel_params
    failed = decide(seen(with_status(body, plan.status), secret=secret(), outcome=Refused("no")))
    assert not {"imageUrl", "kernelUrl", "extraKernelParams"} & set(failed.status)


def test_a_refused_image_is_an_error_that_only_a_change_mends():
    body = with_status(image(), NOT_READY)
    plan = decide(seen(body, secret=secret(), outcome=Refused("it is 12 bytes too large")))
    assert plan.retry is None
    assert conditions(plan.status) == {
        "Ready": ("False", "ImageBuildInvalid", ""),
        "Error": ("True", "ImageBuildInvalid", "Cannot generate image: it is 12 bytes too large"),
    }
    again = decide(seen(with_status(body, plan.status), secret=secret(), outcome=Refused("it is 12 bytes too large")))
    assert again == Plan()


def test_a_message_fits_its_field():
    body = with_status(image(), NOT_READY)
    plan = decide(seen(body, secret=secret(), outcome=Refused("x" * 40_000)))
    assert len(plan.status["conditions"][1]["message"]) == 32768


def test_an_image_that_is_not_ready_is_asked_for_every_ten_seconds():
    body = with_status(image(), READY)
    plan = decide(seen(body, secret=secret(), outcome=NotYet()))
    assert plan.retry == 10
    assert conditions(plan.status)["Ready"] == ("False", "ImageSuccess", "Image is not ready yet")
    assert decide(seen(with_status(body, plan.status), secret=secret(), outcome=NotYet())) == Plan(retry=10)


def test_an_image_without_its_base_keeps_its_url_and_names_the_file():
    body = with_status(image(), READY)
    plan = decide(seen(body, secret=secret(), outcome=NotYet("base /bases/live.iso is being written")))
    assert plan.retry == 10
    assert plan.status["imageUrl"] == READY["imageUrl"]
    said = "Image is not ready yet: base /bases/live.iso is being written"
    assert conditions(plan.status) == {
        "Ready": ("False", "ImageSuccess", said),
        "Error": ("False", "ImageSuccess", ""),
    }
    after = with_status(body, plan.status)
    assert problem_of(with_metadata(after, finalizers=[FINALIZER])) == said
    # another replica lacks another file: they do not correct each other without end
    assert decide(seen(after, secret=secret(), outcome=NotYet("base /other is gone"))) == Plan(retry=10)


@pytest.mark.parametrize(
    ("status", "finalizers", "problem"),
    [
        ({}, [FINALIZER], ""),
        (READY, [FINALIZER], ""),
        (NOT_READY, [FINALIZER], ""),  # about to be made
        (FAILED, [FINALIZER], "NetworkData secret not found"),
        (FAILED, [], ""),  # not ours
    ],
)
def test_what_keeps_an_image_from_being_served_is_in_its_status(status, finalizers, problem):
    assert problem_of(with_metadata(with_status(image(), status), finalizers=finalizers)) == problem


def test_nothing_is_written_when_nothing_differs():
    body = with_status(image(), READY)
    assert decide(seen(body, secret=secret(), outcome=Built("http://a/old.iso"))) == Plan()
    # what the API server leaves out is what is empty
    bare = with_status(image(networkDataName=None), {**READY, "networkData": {}})
    del bare["status"]["networkData"]
    assert decide(seen(bare, outcome=Built("http://a/old.iso"))) == Plan()


def test_a_time_of_transition_moves_with_the_value_only():
    body = with_metadata(with_status(image(), READY), generation=5)
    plan = decide(seen(body, secret=secret(), outcome=Built("http://a/old.iso")))
    assert [one["observedGeneration"] for one in plan.status["conditions"]] == [5, 5]
    assert [one["lastTransitionTime"] for one in plan.status["conditions"]] == ["2026-01-01T00:00:00Z"] * 2
    plan = decide(seen(body, secret=secret(), outcome=Refused("no")))
    assert [one["lastTransitionTime"] for one in plan.status["conditions"]] == [THEN] * 2


def test_deciding_changes_nothing_that_is_seen():
    body = with_status(image(), READY)
    before = repr(body)
    for outcome in (Refused("no"), NotYet(), Built("u"), None):
        decide(dataclasses.replace(seen(body, secret=secret(version="8")), outcome=outcome))
        decide(dataclasses.replace(seen(body, secret=secret()), outcome=outcome))
    assert repr(body) == before


def test_a_secret_does_not_show_what_is_in_it():
    assert "aW50ZXJm" not in repr(decide(seen(with_status(image(), NOT_READY), secret=secret())))


# --- what a replica serves: one image an object, over the bases that are there


def test_another_network_is_another_url_and_the_old_one_ends():
    shelf = Shelf()
    images = Images(shelf, lambda arch: "")
    one = images.build(image(), BuildRequest("iso", "x86_64", secret(text="a")))
    assert images.build(image(), BuildRequest("iso", "x86_64", secret(version="8", text="a"))) == one
    two = images.build(image(), BuildRequest("iso", "x86_64", secret(text="b")))
    assert isinstance(one, Built)
    assert isinstance(two, Built)
    assert one.image_url != two.image_url
    assert [data for _kind, data in shelf.served.values()] == ["b"]
    images.forget("metal", "host-1")
    images.forget("metal", "host-1")
    assert not shelf.served
    assert images.held() == []


def test_keys_hold_nothing_of_the_network():
    shelf = Shelf()
    Images(shelf, lambda arch: "").build(image(), BuildRequest("iso", "", secret(text="192.0.2.1")))
    assert "192.0.2.1" not in str(list(shelf.served))


def test_images_over_other_bases_are_outdated_until_they_are_built_again():
    states = {"x86_64": 1, "aarch64": 1}
    shelf = Shelf()
    images = Images(shelf, lambda arch: states[arch])
    wish = BuildRequest("iso", "x86_64", None)
    images.build(image(), wish)
    assert images.outdated() == []
    states["x86_64"] = 2
    assert images.outdated() == [("metal", "host-1")]
    shelf.based = False
    assert images.build(image(), wish) == NotYet("there is no base")
    assert images.outdated() == [("metal", "host-1")]
    shelf.based = True
    images.build(image(), wish)
    assert images.outdated() == []
    states["x86_64"] = 3
    assert isinstance(images.build(image(), BuildRequest("iso", "x86_64", secret(text="refused"))), Refused)
    assert images.outdated() == []
