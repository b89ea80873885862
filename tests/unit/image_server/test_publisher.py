# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts behind URLs: same inputs same URL, other inputs another image, nothing old where something is wrong now."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso, urls
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import Bases, NotReady
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import (
    LONGEST_PATH,
    public_path,
    static_path,
    unsign_path,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import publisher as module
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.publisher import Publisher
from tests.unit.liveimage.maker import Layout, make

SECRET = b"s" * 32
INPUTS = AgentInputs(agent_image="example.test/ipa:1", ironic_urls=("http://ironic.test",))
ADDRESS = "http://192.0.2.1:8084"
HOST = HostInputs("web-1")
BOTH = ("iso", "initramfs")


class World:
    """A publisher over bases in a folder."""

    def __init__(self, place: Path, **options) -> None:
        self.place, self.inputs, self.gone = place, INPUTS, []
        self.registry = Registry()
        self.bases = Bases(str(place / "live.iso"), str(place / "live.img"), "", "x86_64")
        options.setdefault("publish_addr", ADDRESS)
        self.publisher = Publisher(
            self.registry, self.bases, lambda: self.inputs, SECRET, gone=self.gone.append, **options
        )

    def image(self, url: str):
        return self.registry.get(url.removeprefix(ADDRESS))


@pytest.fixture
def world(place) -> World:
    return World(place)


@pytest.fixture
def own(place: Path, tmp_path: Path, at_once) -> Path:
    """Bases that a test may replace."""
    for path in (place / "live.iso", place / "live.img"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_same_inputs_give_the_same_url_and_no_work(world, monkeypatch):
    first = world.publisher.publish("ns-web-1-uid-x86_64", HOST, "x86_64", BOTH, modified=5)
    images = [world.image(url) for url in first.values()]
    monkeypatch.setattr(module.hosts, "build", None)  # nothing is built again
    assert world.publisher.publish("ns-web-1-uid-x86_64", HOST, "x86_64", BOTH) == first
    assert [world.image(url) for url in first.values()] == images


def test_paths_are_short_have_suffixes_and_are_those_of_every_replica(place):
    urls = [World(place).publisher.publish("key", HOST, "", BOTH, modified=5) for _replica in range(2)]
    assert urls[0] == urls[1]
    path = urls[0]["iso"].removeprefix(ADDRESS)
    assert path == public_path(SECRET, "key", ".iso")
    assert len(path) <= LONGEST_PATH
    assert urls[0]["initramfs"].endswith(".initramfs")


def test_other_inputs_give_another_image_behind_the_same_url(world):
    first = world.publisher.publish("key", HOST, "", ["iso"], modified=5)
    before = world.image(first["iso"])
    assert world.publisher.publish("key", replace(HOST, hostname="db-1"), "", ["iso"], modified=5) == first
    after = world.image(first["iso"])
    assert after.etag != before.etag
    assert after.modified > before.modified


def test_other_inputs_of_all_hosts_are_noticed(world):
    url = world.publisher.publish("key", HOST, "", ["iso"])["iso"]
    before = world.image(url).etag
    world.inputs = replace(INPUTS, ntp_servers=("time.test",))
    world.publisher.publish("key", HOST, "", ["iso"])
    assert world.image(url).etag != before


def test_values_of_one_host(world):
    outcome = world.publisher.offer("key", HOST, "", ["iso"], agent={"agent_image": "example.test/other:2"})
    (embedded,) = iso.of(world.image(outcome.urls["iso"]).overlay).embedded.values()
    assert b"example.test/other:2" in embedded
    assert b"example.test/ipa:1" not in embedded


def test_what_is_wrong_now_is_not_served_as_it_was(world):
    url = world.publisher.publish("key", HOST, "", ["iso"])["iso"]
    with pytest.raises(ImageError, match="RFC 1123"):
        world.publisher.publish("key", replace(HOST, hostname="no good"), "", ["iso"])
    assert world.image(url) is None
    assert world.publisher.withheld(url.removeprefix(ADDRESS))
    world.publisher.publish("key", HOST, "", ["iso"])
    assert world.image(url) is not None
    assert not world.publisher.withheld(url.removeprefix(ADDRESS))


def test_too_large_is_known_when_it_is_published(world):
    host = replace(HOST, files={"/etc/noise": (random.Random(1).randbytes(300_000), 0o600)})
    with pytest.raises(ImageError, match=r"too large: packed it has \d+ bytes, \d+ more than the 262144"):
        world.publisher.publish("key", host, "", ["iso"])
    outcome = world.publisher.offer("key", host, "", BOTH)
    assert list(outcome.problems) == ["iso"]
    assert list(outcome.urls) == ["initramfs"]  # which has no limit
    assert not world.publisher.offer("key", host, "", BOTH, enlarge=True).problems


@pytest.mark.usefixtures("at_once")
def test_a_missing_base_is_waited_for(tmp_path, place):
    world = World(tmp_path)
    with pytest.raises(NotReady, match="there is no file for architecture x86_64"):
        world.publisher.publish("key", HOST, "", ["iso"])
    (tmp_path / "live.iso").write_bytes((place / "live.iso").read_bytes())
    assert world.image(world.publisher.publish("key", HOST, "", ["iso"])["iso"]) is not None


def test_a_base_that_went_away_after_all_was_made_changes_nothing(own):
    world = World(own)
    urls = world.publisher.publish("key", HOST, "", BOTH)
    (own / "live.iso").unlink()
    assert world.publisher.publish("key", HOST, "", BOTH) == urls
    with pytest.raises(NotReady):
        world.publisher.publish("key", replace(HOST, hostname="db-1"), "", BOTH)
    assert world.image(urls["iso"]) is None
    assert world.image(urls["initramfs"]) is not None


def test_a_replaced_base_means_another_image(own):
    world = World(own)
    url = world.publisher.publish("key", HOST, "", ["iso"])["iso"]
    before, state = world.image(url), world.bases.state("")
    os.replace(make(own / "new", Layout(rootfs=400_000)), own / "live.iso")
    assert world.bases.state("") != state
    world.publisher.publish("key", HOST, "", ["iso"])
    assert world.image(url).etag != before.etag
    assert len({image.file for _path, image in world.registry.items()}) == len(world.registry._files) == 1


def test_a_format_that_is_not_wanted_any_more_goes(world):
    urls = world.publisher.publish("key", HOST, "", BOTH)
    world.publisher.publish("key", HOST, "", ["iso"])
    assert world.image(urls["initramfs"]) is None


def test_discard(world):
    urls = world.publisher.publish("key", HOST, "", BOTH)
    world.publisher.discard("key")
    world.publisher.discard("key")
    assert len(world.registry) == 0
    assert set(world.gone) == {"web-1"}
    assert not any(world.publisher.withheld(url.removeprefix(ADDRESS)) for url in urls.values())
    assert world.registry._files == {}


def test_boot_files(world, place):
    urls = world.publisher.boot_files("x86_64")
    assert urls == World(place).publisher.boot_files("x86_64")
    assert world.image(urls["kernel"]).overlay.size == 6000
    assert world.image(urls["rootfs"]).overlay.size > 200_000
    assert world.publisher.boot_files("s390x") == {}


def test_signed_urls_stay_for_a_while_and_end(place, monkeypatch):
    world = World(place, signed=600)
    now = [1_000_200.0]
    monkeypatch.setattr(urls.time, "time", lambda: now[0])
    url = world.publisher.publish("key", HOST, "", ["iso"], modified=5)["iso"]
    now[0] += 599
    assert world.publisher.publish("key", HOST, "", ["iso"], modified=5)["iso"] == url
    path = url.removeprefix(ADDRESS)
    assert len(path) <= LONGEST_PATH
    assert unsign_path(SECRET, path, now[0] + 600) == public_path(SECRET, "key", ".iso")
    assert unsign_path(SECRET, path, now[0] + 1200) is None


def test_names_as_paths_are_quoted(place):
    world = World(place, path_of=lambda key, suffix: static_path(key + suffix))
    assert world.publisher.publish("a b?%\n/é", HOST, "", ["iso"])["iso"] == ADDRESS + "/a%20b%3F%25%0A%2F%C3%A9.iso"


@pytest.mark.parametrize("secret", [None, SECRET], ids=["plain", "unguessable"])
def test_two_keys_never_share_a_path(place, secret):
    keys = ["a", "a.iso", "a/b", "a%2Fb", "A", "a ", ".", "..", "ÿ"]
    paths = [static_path(key + suffix, secret) for key in keys for suffix in module.SUFFIXES.values()]
    assert len(set(paths)) == len(paths)


def test_the_table_has_what_is_served(place):
    world = World(place, path_of=lambda key, suffix: static_path(key + suffix))
    world.publisher.publish("web-1", HOST, "", BOTH)
    world.publisher.boot_files("")
    world.publisher.offer("bad", replace(HOST, hostname="no good"), "", BOTH)
    names_ = ["boot-x86_64.kernel", "boot-x86_64.rootfs", "web-1.initramfs", "web-1.iso"]
    assert world.publisher.table() == {name: f"{ADDRESS}/{name}" for name in names_}


@pytest.mark.parametrize(
    "given", ["", "192.0.2.1:8084", "ftp://x", "http://", "http://x:port", "http://u:p@x", "http://x/?q", "http://a b"]
)
def test_addresses_that_are_none(place, given):
    with pytest.raises(ImageError, match="images-publish-addr"):
        World(place, publish_addr=given)


_8021X = """
interfaces:
- name: eth0
  type: ethernet
  state: up
  802.1x: {eap-methods: [peap], identity: me, phase2-auth: mschapv2, password: S3CRET}
"""
SECRETS = {
    "pull secret": (HOST, {"pull_secret": '{"auths": {"a": {"auth": "S3CRET"}}}'}, "the agent's pull secret"),
    "proxy": (HOST, {"https_proxy": "http://me:S3CRET@proxy.test"}, "a proxy's password"),
    "Ignition": (replace(HOST, ignition={"ignition": {"version": "3.2.0"}}), {}, "an Ignition of the host's own"),
    "merge": (replace(HOST, merge={"storage": {}}), {}, "an Ignition of the host's own"),
    "file": (replace(HOST, files={"/etc/key": (b"S3CRET", 0o600)}), {}, "files of the host's own"),
    "unit": (replace(HOST, units={"a.service": "[Service]\nExecStart=/x S3CRET\n"}), {}, "files of the host's own"),
    "network": (replace(HOST, network=_8021X), {}, "a password of the host's network"),
}


@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_is_not_served_under_a_name_that_can_be_guessed(place, case):
    host, agent, secret = SECRETS[case]
    world = World(place, secrets=False)
    good = world.publisher.offer("db", replace(HOST, name="db"), "", BOTH)
    assert set(good.urls) == set(BOTH)
    outcome = world.publisher.offer("web-1", host, "", BOTH, agent=agent)
    assert outcome.urls == {}
    for problem in outcome.problems.values():
        assert f"the image holds {secret}, and its name can be guessed; give secret-file" in str(problem)
        assert "S3CRET" not in str(problem)
    assert world.publisher.withheld(world.publisher.path("web-1", "iso"))
    assert set(World(place).publisher.offer("web-1", host, "", BOTH, agent=agent).urls) == set(BOTH)
