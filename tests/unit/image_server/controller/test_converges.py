# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two replicas, and users who change things at any moment: each status is true and written once; then all is quiet."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.kubernetes_api import Conflict
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.reconcile import (
    FINALIZER,
    FOREIGN_LABEL,
    Images,
    Reconciler,
)
from tests.unit.image_server.controller.cluster import Cluster, Shelf
from tests.unit.image_server.controller.objects import NOW, conditions

ARCHITECTURES = ["x86_64", "aarch64", "sparc"]  # the last one is not supported
OTHERS = "other.example/finalizer"


class Replica:
    """One controller process."""

    def __init__(self, cluster: Cluster) -> None:
        self.shelf = Shelf()
        self._reconciler = Reconciler(
            cluster, Images(self.shelf, lambda arch: self.shelf.based), lambda arch: arch != "sparc", lambda: NOW
        )  # type: ignore[arg-type]

    def look(self) -> float | None:
        return self._reconciler.reconcile("metal", "host-1", lambda _image: None)


def changes(cluster: Cluster) -> st.SearchStrategy[Callable[[], None]]:
    """A change that a user makes."""
    texts = st.sampled_from(["", "interfaces: []", "interfaces: [a]", "refused"])
    spec = st.sampled_from(
        [{"architecture": one} for one in (*ARCHITECTURES, None)]
        + [{"acceptFormats": one} for one in (["iso"], ["initrd", "iso"], [])]
        + [{"networkDataName": one} for one in ("one", "two", None)]
    )
    names = st.sampled_from(["one", "two"])
    return st.one_of(
        spec.map(lambda found: lambda: cluster.change(**found)),
        st.tuples(names, texts).map(lambda found: lambda: cluster.put_secret(found[0], nmstate=found[1])),
        names.map(lambda name: lambda: cluster.put_secret(name, other="x")),
        names.map(lambda name: lambda: cluster.put_secret(name)),
        names.map(lambda name: lambda: _ignore(cluster.secrets.pop(name, None))),
        st.booleans().map(lambda on: lambda: cluster.mark(labels={FOREIGN_LABEL: "x"} if on else {})),
        st.booleans().map(lambda on: lambda: cluster.finalize(OTHERS, on)),
        st.just(cluster.delete),
        spec.map(lambda found: lambda: _recreate(cluster, found)),
    )


def _ignore(_value: object) -> None:
    return None


def _recreate(cluster: Cluster, spec: dict[str, Any]) -> None:
    if cluster.object is None:
        wanted = {"acceptFormats": ["iso"], "networkDataName": "one", **spec}
        cluster.create({key: value for key, value in wanted.items() if value is not None})


class TwoReplicas(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.replicas = [Replica(self.cluster), Replica(self.cluster)]
        self.cluster.create({"acceptFormats": ["iso"], "networkDataName": "one", "architecture": "x86_64"})
        self.cluster.put_secret("one", nmstate="interfaces: []")
        self.contents: dict[tuple[str, str], dict[str, str]] = {}
        self.checked = 0
        self.replicas[0].look()

    @rule(data=st.data(), looking=st.sets(st.integers(0, 1)))
    def a_user_changes_something(self, data, looking):
        data.draw(changes(self.cluster))()
        self.remember()
        for number in sorted(looking):
            self.a_replica_looks(number)

    @rule(number=st.integers(0, 1), based=st.booleans())
    def a_base_comes_or_goes(self, number, based):
        self.replicas[number].shelf.based = based

    def a_replica_looks(self, number):
        with contextlib.suppress(Conflict):
            self.replicas[number].look()

    @rule(number=st.integers(0, 1), at=st.integers(1, 8), data=st.data())
    def something_changes_under_a_replica(self, number, at, data):
        change = data.draw(changes(self.cluster))
        left = [at]

        def disturb() -> None:
            left[0] -= 1
            if left[0] == 0:
                change()
            self.remember()

        self.cluster.disturb = disturb
        with contextlib.suppress(Conflict):
            self.replicas[number].look()
        self.cluster.disturb = self.remember

    @rule(first=st.integers(0, 1), at=st.integers(1, 8))
    def one_looks_while_the_other_does(self, first, at):
        left = [at]

        def disturb() -> None:
            left[0] -= 1
            if left[0] == 0:
                with contextlib.suppress(Conflict):
                    self.replicas[1 - first].look()

        self.cluster.disturb = disturb
        with contextlib.suppress(Conflict):
            self.replicas[first].look()
        self.cluster.disturb = self.remember

    @rule(number=st.integers(0, 1))
    def a_replica_restarts(self, number):
        based = self.replicas[number].shelf.based
        self.replicas[number] = Replica(self.cluster)
        self.replicas[number].shelf.based = based

    @rule()
    def everything_settles(self):
        for replica in self.replicas:
            replica.shelf.based = True
        for _turn in range(30):
            before = self.cluster.writes
            for replica in self.replicas:
                with contextlib.suppress(Conflict):
                    replica.look()
            if self.cluster.writes == before:
                break
        else:
            raise AssertionError("it does not come to rest")
        self.check_end()

    def remember(self) -> None:
        """What was in a Secret at each version."""
        for name, secret in self.cluster.secrets.items():
            self.contents[(name, secret["metadata"]["resourceVersion"])] = secret["data"]

    @invariant()
    def what_was_written_was_true(self):
        self.remember()
        for written in self.cluster.written[self.checked :]:
            status, spec = written["status"], written["spec"]
            assert FINALIZER in written["metadata"]["finalizers"]
            assert "deletionTimestamp" not in written["metadata"]
            assert all(one["observedGeneration"] <= written["metadata"]["generation"] for one in status["conditions"])
            ready = next(one for one in status["conditions"] if one["type"] == "Ready")
            if ready["status"] == "True":
                assert ready["observedGeneration"] == written["metadata"]["generation"]
                assert status["architecture" if "architecture" in spec else "format"]
                assert status.get("architecture") == spec.get("architecture")
                assert status["format"] in spec["acceptFormats"]
                assert status.get("networkData", {}).get("name") == spec.get("networkDataName")
                assert status["imageUrl"].endswith({"iso": ".iso", "initrd": ".initramfs"}[status["format"]])
            if conditions(status).get("Error", ("False",))[0] == "True":
                assert ready["status"] == "False"
                assert "imageUrl" not in status
        self.checked = len(self.cluster.written)

    def check_end(self) -> None:
        found = self.cluster.object
        served = [set(replica.shelf.served) for replica in self.replicas]
        assert all(len(one) <= 1 for one in served), "more than one image of one object is served"
        if found is None or FOREIGN_LABEL in found["metadata"].get("labels", {}):
            assert served == [set(), set()]
            assert found is None or FINALIZER not in found["metadata"].get("finalizers", [])
            return
        status, spec = found.get("status", {}), found["spec"]
        by_type = conditions(status)
        if "deletionTimestamp" not in found["metadata"]:
            assert by_type["Error" if self._error() else "Ready"] == (
                self._error() or ("True", "ImageSuccess", "Generated image")
            )
        if by_type.get("Ready", ("",))[0] == "True":
            data = self.contents.get((spec.get("networkDataName", ""), status["networkData"].get("version", "")), {})
            text = base64.b64decode(data.get("nmstate", "")).decode()
            kind = {"iso": "iso", "initrd": "initramfs"}[status["format"]]
            for replica in self.replicas if "deletionTimestamp" not in found["metadata"] else ():
                assert list(replica.shelf.served.values()) == [(kind, text)]
                (served,) = replica.shelf.served
                assert status["imageUrl"] == f"http://images/{served}.{kind}"
            assert ("kernelUrl" in status) == (status["format"] == "initrd")

    def _error(self) -> tuple[str, str, str] | None:
        """What is wrong with the world as it is."""
        spec = self.cluster.object["spec"] if self.cluster.object else {}
        if spec.get("architecture") == "sparc":
            return ("True", "ConfigurationError", "Architecture not supported")
        if not spec["acceptFormats"]:
            return ("True", "ConfigurationError", "No acceptable image format supported")
        name = spec.get("networkDataName")
        if name and name not in self.cluster.secrets:
            return ("True", "MissingNetworkData", "NetworkData secret not found")
        data = self.cluster.secrets[name]["data"] if name else {}
        if data and "nmstate" not in data:
            reason = "network data Secret provided but missing required 'nmstate' key"
            return ("True", "ImageBuildInvalid", "Cannot generate image: " + reason)
        if base64.b64decode(data.get("nmstate", "")) == b"refused":
            return ("True", "ImageBuildInvalid", "Cannot generate image: the NMState document is refused")
        return None


TestTwoReplicas = TwoReplicas.TestCase
TestTwoReplicas.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
