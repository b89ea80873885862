# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several replicas, restarts of theirs and of the API server, rights: each serves everything, writes are few."""

import json

import pytest
import yaml

from tests.unit.liveimage.maker import Layout, make
from tests.waiting import until

from .world import MANIFESTS, World, conditions, kubeconfig, network

pytestmark = pytest.mark.cluster
HOSTS = [f"host-{number}" for number in range(1, 7)]


def filled(world: World) -> dict[str, str]:
    """Hosts with network data, one Secret for two of them each; their URLs."""
    for number in range(1, 4):
        world.secret(f"net-{number}", nmstate=network(f"198.51.100.{number}"))
    for place, name in enumerate(HOSTS):
        world.create(name, networkDataName=f"net-{place // 2 + 1}")

    def settled() -> dict[str, str] | None:
        found = {name: world.get(name).get("status", {}) for name in HOSTS}
        for place, name in enumerate(HOSTS):
            ready = conditions(found[name]).get("Ready", ("",))[0] == "True"
            if not ready or found[name]["networkData"]["version"] != world.version(f"net-{place // 2 + 1}"):
                return None
        return {name: status["imageUrl"] for name, status in found.items()}

    return until(settled, "all hosts are ready for the Secrets as they are")


def test_two_replicas_agree_and_come_to_rest(world, start):
    with start(namespace=world.namespace) as one, start(namespace=world.namespace) as two:
        one.until_ready()
        two.until_ready()
        urls = filled(world)
        assert len(set(urls.values())) == len(HOSTS)
        for replica in (one, two):
            for url in urls.values():
                until(lambda replica=replica, url=url: replica.serves(url), url)
        assert all(one.fetch(url).content == two.fetch(url).content for url in urls.values())
        both = (one, two)
        until(lambda: all(replica.number("waiting") == 0 for replica in both), "nothing is under way")
        looks = [replica.number("looks_total") + len(HOSTS) for replica in both]
        writes = [replica.number("status_writes_total") for replica in both]
        for name in HOSTS:  # every replica looks at everything once more
            world.change(name, metadata={"labels": {"seen": "again"}})
        for replica, wanted in zip(both, looks, strict=True):
            until(lambda replica=replica, wanted=wanted: replica.number("looks_total") >= wanted, "every look")
        until(lambda: all(replica.number("waiting") == 0 for replica in both), "nothing is under way")
        assert [replica.number("status_writes_total") for replica in both] == writes
        assert {name: world.get(name)["status"]["imageUrl"] for name in HOSTS} == urls


def test_a_restarted_replica_serves_everything_and_writes_nothing(world, start):
    with start(namespace=world.namespace) as replica:
        urls = filled(replica.until_ready() and world)
        before = {name: world.get(name) for name in HOSTS}
        content = replica.fetch(urls["host-1"])
    with start(namespace=world.namespace) as replica:
        replica.until_ready()
        assert all(replica.serves(url) for url in urls.values())
        again = replica.fetch(urls["host-1"])
        assert again.content == content.content
        assert {key: again.headers[key] for key in ("ETag", "Last-Modified")} == {
            key: content.headers[key] for key in ("ETag", "Last-Modified")
        }
        assert replica.number("status_writes_total") == 0
        assert {name: world.get(name) for name in HOSTS} == before
        replica.signal()
        assert replica.ended() == 0
        assert [line for line in replica.log if "ignored" in line] == []


def test_the_api_server_restarts(world, start, cluster):
    with start(namespace=world.namespace) as replica:
        urls = filled(replica.until_ready() and world)
        cluster.stop()
        try:
            assert all(replica.serves(url) for url in urls.values())
            assert replica.watch("/healthz") == "ok\n"
            assert replica.watch("/readyz") == "ok\n"
        finally:
            cluster.start()
        world.secret("net-1", nmstate=network("203.0.113.1"))  # known only to who watches again
        until(lambda: world.ready("host-1")["status"]["imageUrl"] != urls["host-1"], "the change is seen")
        world.create("host-9")
        assert replica.serves(world.ready("host-9")["status"]["imageUrl"])
        assert all(replica.serves(url) for name, url in urls.items() if name not in ("host-1", "host-2"))


def test_a_base_that_is_replaced_is_noticed(world, start, bases):
    """A reader gets no bytes of another base than the one the image was made of."""
    make(bases / "live_s390x.iso", Layout())
    (bases / "live_s390x.img").write_bytes(b"INITRD" * 3335)
    world.create("host-1", architecture="s390x")
    with start(namespace=world.namespace) as replica:
        before = world.ready("host-1")["status"]
        old = replica.fetch(before["imageUrl"]).content
        make(bases / "new.iso", Layout(rootfs=400_000)).rename(bases / "live_s390x.iso")

        def whole() -> bytes | None:
            answer = replica.fetch(before["imageUrl"])
            return answer.content if answer.status_code == 200 and len(answer.content) > len(old) else None

        new = until(whole, "the image over the new base")
        assert new.startswith((bases / "live_s390x.iso").read_bytes()[:32768])
        assert world.ready("host-1")["status"]["imageUrl"] == before["imageUrl"]
        (bases / "live_s390x.iso").rename(bases / "away.iso")
        lacks = "there is no file for architecture s390x there or beside it"
        until(lambda: lacks in replica.watch("/status"), "the problem")
        assert replica.serves(before["imageUrl"])  # over the file that was there
        world.create("host-2", architecture="s390x")
        waits = world.until("host-2", lambda found: "not ready yet: " in str(found.get("conditions")))["status"]
        assert conditions(waits)["Ready"][2].endswith(lacks)
        assert conditions(waits)["Error"][0] == "False"
        failed = "kubenode_image_server_hosts_failed"
        until(lambda: f"{failed} 1\n" in replica.watch("/metrics"), "the image that is not served")
        (bases / "away.iso").rename(bases / "live_s390x.iso")
        world.ready("host-2")
        until(lambda: f"{failed} 0\n" in replica.watch("/metrics"), "the image")
        until(lambda: lacks not in replica.watch("/status"), "the end of the problem")


def account(world: World, folder, rules, name="weak"):
    """A service account with these rules in the world's namespace, and its kubeconfig."""
    place = f"/api/v1/namespaces/{world.namespace}/serviceaccounts"
    world.api.create(place, {"metadata": {"name": name}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    world.api.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    world.api.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": world.namespace}],
        },
    )
    return kubeconfig(world.cluster, folder, world.namespace, name)


def rules(without: tuple[str, str] | None = None) -> list[dict]:
    """The rules of the manifests, without one verb on one resource."""
    found = yaml.safe_load((MANIFESTS / "namespaced" / "role.yaml").read_text())["rules"]
    for rule in found:
        rule["verbs"] = [verb for verb in rule["verbs"] if without != (verb, rule["resources"][0])]
    return [rule for rule in found if rule["verbs"]]


def give(world: World, rules: list[dict]) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles/weak"
    world.api.call("PATCH", path, {"rules": rules}, "application/merge-patch+json")


@pytest.mark.parametrize(
    ("verb", "resource"), [("update", "secrets"), ("patch", "preprovisioningimages/status")], ids=["secrets", "status"]
)
def test_a_right_that_is_missing_is_named(world, start, tmp_path, verb, resource):
    file = account(world, tmp_path, rules(without=(verb, resource)))
    world.create("host-1")
    with start(kubeconfig=file, namespace=world.namespace) as replica:
        named = f'the service account lacks verb "{verb}" on {resource} in API group '
        until(lambda: named in replica.watch("/readyz"), named, show=lambda: replica.watch("/readyz"))
        until(lambda: any(named in line for line in replica.log), named, show=lambda: replica.log)
        assert "status" not in world.get("host-1")
        give(world, rules())  # without a restart
        assert replica.until_ready()
        world.ready("host-1")


def test_a_right_that_is_taken_away_is_named_and_waited_for(world, start, tmp_path):
    file = account(world, tmp_path, rules())
    with start(kubeconfig=file, namespace=world.namespace) as replica:
        replica.until_ready()
        give(world, rules(without=("patch", "preprovisioningimages/status")))
        world.create("host-1")
        named = 'lacks verb "patch" on preprovisioningimages/status in API group "metal3.io"'
        until(lambda: any(named in line for line in replica.log), named, show=lambda: replica.log)
        give(world, rules())
        assert replica.serves(world.ready("host-1")["status"]["imageUrl"])
        assert not any("Traceback" in line for line in replica.log)


def test_a_secret_of_a_namespace_without_the_binding_is_an_error_of_its_object_until_it_is_there(world, start):
    world.secret("net", nmstate=network("192.0.2.9"))
    world.bind(False)
    with start() as replica:
        replica.until_ready()
        world.create("host-1", networkDataName="net")
        status = world.failed("host-1", "MissingNetworkData")["status"]
        named = f'lacks verb "get" on secrets in API group "" in namespace {world.namespace}'
        assert named in conditions(status)["Error"][2]
        problem = f"image {world.namespace}/host-1"
        found = json.loads(replica.watch("/status"))["problems"]
        assert named in found[problem]
        world.bind(True)
        assert replica.serves(world.ready("host-1")["status"]["imageUrl"])
        until(lambda: problem not in json.loads(replica.watch("/status"))["problems"], "no problem")


def test_one_namespace_by_the_manifests_for_one(cluster, start, tmp_path, world):
    """The rights of ``namespaced`` suffice for its namespace, and nothing happens elsewhere."""
    settings = yaml.safe_load((MANIFESTS / "namespaced" / "watch.yaml").read_text())
    role = yaml.safe_load((MANIFESTS / "namespaced" / "role.yaml").read_text())
    metal = World(cluster, settings["data"]["WATCH_NAMESPACE"])
    assert role["metadata"]["namespace"] == metal.namespace
    file = account(metal, tmp_path, role["rules"])
    metal.create("host-1")
    with start(kubeconfig=file, namespace=metal.namespace) as replica:
        assert replica.until_ready().serves(metal.ready("host-1")["status"]["imageUrl"])
        world.create("elsewhere")
        metal.create("host-2")
        metal.ready("host-2")
        assert "status" not in world.get("elsewhere")
        assert "finalizers" not in world.get("elsewhere")["metadata"]
    metal.delete("host-1")
    metal.delete("host-2")


def test_secrets_are_in_no_log(world, start):
    world.secret("net", nmstate='interfaces: [{name: eth0, type: ethernet, "802.1x": {password: hunter2}}]')
    with start("--log-level", "debug", namespace=world.namespace) as replica:
        replica.until_ready()
        world.create("host-1", networkDataName="net")
        world.until("host-1", lambda status: "Error" in conditions(status) and "format" in status)
        until(lambda: replica.number("waiting") == 0, "nothing is under way")
        log = "\n".join(replica.log)
        assert "host-1" in log
        assert "hunter2" not in log
        assert "aW50ZXJm" not in log  # the same in base64
        assert "earer" not in json.dumps(replica.log)
