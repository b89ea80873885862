# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller does with its rights: Secrets are watched where that is one, else read now and then."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import controller as run
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import kubernetes_api

EVERYTHING = {**kubernetes_api.IMAGE_RIGHTS, ("", "secrets", ""): ("get", "list", "watch", "update")}


class FakeApi:
    """An API server that says which rights there are."""

    def __init__(self, given):
        self.given = given

    def missing_rights(self, namespace, rights):
        wanted = [(place, verb) for place, verbs in rights.items() for verb in verbs]
        return [f"{verb} on {place[1]}" for place, verb in wanted if verb not in self.given.get(place, ())]

    def kind_exists(self):
        return True


def controller(monkeypatch, given, namespaces):
    monkeypatch.setattr(run.kubernetes_api, "configuration", lambda environ: None)
    monkeypatch.setattr(run, "Api", lambda connection: FakeApi(given))
    bases = type("Bases", (), {"state": None, "supports": None})
    return run.Controller(run.Settings(namespaces=namespaces), None, bases, {})


@pytest.mark.parametrize(
    ("given", "namespaces", "watched"),
    [
        (EVERYTHING, (), True),
        (EVERYTHING, ("metal3",), True),
        (kubernetes_api.IMAGE_RIGHTS, (), False),
        ({**kubernetes_api.IMAGE_RIGHTS, **kubernetes_api.SECRET_RIGHTS}, ("metal3",), False),
    ],
)
def test_secrets_are_watched_where_that_is_a_right(monkeypatch, given, namespaces, watched):
    found = controller(monkeypatch, given, namespaces)
    found._check()
    assert found._watched is watched
    asked = []
    monkeypatch.setattr(
        run, "ClusterWatch", lambda *arguments: asked.append(arguments) or type("W", (), {"run": print})()
    )
    found._watching()
    assert (asked[0][3] is not None) is watched


def test_in_one_namespace_secrets_have_to_be_read(monkeypatch):
    with pytest.raises(kubernetes_api.Forbidden, match="lacks get on secrets; update on secrets"):
        controller(monkeypatch, kubernetes_api.IMAGE_RIGHTS, ("metal3",))._check()
