# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""With any files in a folder: the server goes on, good hosts are served, and no two share a name."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import KINDS, Bases
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.urls import static_path
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import static_folders as module
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Registry
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.publisher import Publisher
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.static_folders import (
    DescriptorFolder,
    HostFolder,
    grouped,
    host_of,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.watched import (
    CommonInputs,
    Problems,
)
from tests.unit.liveimage.maker import LAYOUTS, make
from tests.waiting import until

ENVIRON = {"IRONIC_AGENT_IMAGE": "example.test/ipa:1", "IRONIC_BASE_URL": "http://ironic.test"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
GOOD = b"interfaces: [{name: eth0, type: ethernet, state: up}]"


@pytest.fixture(scope="module")
def bases(place: Path) -> Bases:
    return Bases(str(place / "live.iso"), str(place / "live.img"), "", "x86_64")


class World:
    """Static mode without its program."""

    def __init__(
        self, bases: Bases, folder: Path, environ: Mapping[str, str] | None = None, secret: bytes | None = None
    ) -> None:
        self.folder, self.registry, self.problems = folder, Registry(), Problems()
        inputs = CommonInputs(ENVIRON if environ is None else environ, self.problems)
        publisher = Publisher(
            self.registry, bases, inputs, secret or b"", "http://192.0.2.1",
            path_of=lambda key, suffix: static_path(key + suffix, secret),
        )  # fmt: skip
        self.static = HostFolder(publisher, bases, str(folder), inputs, self.problems)
        self.static.begin()
        self.static.refresh()

    def served(self) -> set[str]:
        return {path for path, image in self.registry.items() if image.host != "boot files"}


NAMES = st.one_of(
    st.binary(min_size=1, max_size=24),
    st.text(st.sampled_from("ab.?%#/ \n\t~é☃-_:"), min_size=1, max_size=10).map(lambda name: name.encode()),
    st.sampled_from([b"a", b"a.yaml", b"a.yml", b"a.json", b"a.host.yml", b"a.yaml.yaml", b"a.iso", b".host.yml",
                     b"a.yaml.host.yml", b"a.host.yml.host.yml", b"a" * 250 + b".yaml",
                     b"x.yaml~", b"..data", b"\xff.yaml"]),
).filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))  # fmt: skip
CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"", GOOD, b"interfaces: 3", b"[1, 2]", b"hostname: {config: x}", b"&a [*a]", b"a: &x [1]\nb: *x",
                     b"arch: riscv64", b"hostname: h", b"ignition: {}", b"{", b"!!python/x y",
                     b"files: [{path: /x, content: y}]", b"formats: [iso]", b"merge: {storage: {files: 3}}",
                     b"enlarge: true", b"\xef\xbb\xbfinterfaces: []"]),
)  # fmt: skip


@contextlib.contextmanager
def folder_of(contents: dict[bytes, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        for name, data in contents.items():
            with contextlib.suppress(OSError):  # a name that is too long is no name
                Path(os.fsdecode(os.path.join(os.fsencode(place), name))).write_bytes(data)
        (Path(place) / "good-host.yaml").write_bytes(GOOD)
        yield Path(place)


@pytest.mark.parametrize("secret", [None, b"s" * 32], ids=["names", "unguessable"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(contents=st.dictionaries(NAMES, CONTENTS, max_size=6))
@example(contents={b"a": b"", b"a.yaml": b""})
@example(contents={b"a.iso.yaml": b"", b"a": b"", b"a.initramfs": b""})
@example(contents={b"good-host.host.yml.yaml": b"", b"good-host": GOOD[:-1]})
@example(contents={b"\xff.yaml": b"", b"\xff.host.yml": b"hostname: h", b"\xfe.host.yml": b"hostname: h"})
def test_any_content(bases, secret, contents):
    with folder_of({name: data for name, data in contents.items() if name not in TOUCHING}) as place:
        world = World(bases, place, secret=secret)
        assert {static_path("good-host" + end, secret) for end in (".iso", ".initramfs")} <= world.served()
        by_path: dict[str, set[str]] = {}
        for key in grouped(module.scan(str(place))):
            for kind in KINDS:
                by_path.setdefault(static_path(key + module.SUFFIXES[kind], secret), set()).add(key)
        assert all(len(keys) == 1 for keys in by_path.values())
        assert world.served() <= set(by_path)
        for problem in (*world.problems.all(), *world.problems.all().values()):
            assert problem.isprintable()
        # everything goes away again, and nothing of it stays
        for file in place.iterdir():
            file.unlink()
        world.static.refresh()
        world.static.refresh()
        assert world.served() == set()
        assert (len(world.static), world.static.failed) == (0, 0)


#: names that mean the good host itself
TOUCHING = (b"good-host", b"good-host.yaml", b"good-host.host.yml")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(NAMES.map(lambda name: name[:200] + b".json"), CONTENTS, max_size=4))
@example({b"a.json": b'{"kubenode_image": 1, "name": "a.iso", "host": "", "created": 1, "overlay": {"version": 1}}'})
@example({b"a.json": b'{"kubenode_image": 1, "name": "a.iso", "host": "", "created": 1, "overlay": 5}'})
def test_any_descriptor(contents):
    with folder_of(contents) as place:
        registry = Registry()
        descriptors = DescriptorFolder(registry, str(place), static_path, Problems())
        descriptors.refresh()
        descriptors.refresh()
        assert len(registry) == 0


@pytest.mark.parametrize(
    ("name", "host"),
    [("web.yaml", "web"), ("web.yml", "web"), ("web.json", "web"), ("web", "web"), ("a.example.com", "a.example.com"),
     ("a.example.com.yaml", "a.example.com"), ("web.yaml.yaml", "web.yaml"), (".yaml", ".yaml")],
)  # fmt: skip
def test_names_of_hosts(name, host):
    assert host_of(name) == host


def test_a_defect_of_ours_hurts_one_host(bases, tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_bytes(GOOD)
    good = module.host_of

    def broken(name: str) -> str:
        if name == "a.yaml":
            raise ZeroDivisionError
        return good(name)

    monkeypatch.setattr(module, "host_of", broken)
    world = World(bases, tmp_path)
    assert world.served() == {"/b.iso", "/b.initramfs"}
    assert world.problems.all() == {"host a": f"{tmp_path}/a.yaml: a defect of the image server: ZeroDivisionError"}


@pytest.mark.usefixtures("at_once")
def test_what_is_reported_is_in_accord_with_what_is_served(bases, tmp_path, monkeypatch):
    """Who waits for a problem to come or to go finds what it says at once, whatever all hosts have in common."""
    folder, bundle = tmp_path / "hosts", tmp_path / "ca.pem"
    folder.mkdir()
    (folder / "a.yaml").write_bytes(GOOD)
    own = Bases(str(tmp_path / "live.iso"), bases.path("", "initramfs"), "", "x86_64")
    bundle.write_text(CERTIFICATE % "MII=")
    world = World(own, folder, {**ENVIRON, "CA_BUNDLE": str(bundle)})
    reported: list[tuple[str, bool, dict[str, str]]] = []
    report = world.problems.report

    def tags() -> dict[str, str]:
        return {path: image.etag for path, image in world.registry.items() if image.host != "boot files"}

    def noted(what: str, problem: str) -> None:
        before = world.problems.all()
        report(what, problem)
        if world.problems.all() != before:
            reported.append((what, bool(problem), tags()))

    monkeypatch.setattr(world.problems, "report", noted)

    def refresh() -> list[tuple[str, bool]]:
        """What was reported, if all of it was in accord with what this refresh left."""
        reported.clear()
        world.static.refresh()
        assert all(served == tags() for _what, _problem, served in reported), reported
        return [(what, problem) for what, problem, _served in reported]

    assert world.served() == {"/a.initramfs"}
    shutil.copy(bases.path("", "iso"), tmp_path / "live.iso")
    assert refresh() == [("bases of x86_64", False)]
    assert world.served() == {"/a.iso", "/a.initramfs"}
    before = tags()
    bundle.write_text("no certificate")
    assert refresh() == [("common inputs", True)]
    assert tags() == before
    bundle.write_text(CERTIFICATE % "AAAA")
    assert refresh() == [("common inputs", False)]
    assert tags().keys() == before.keys()
    assert tags() != before
    (tmp_path / "live.iso").unlink()
    assert refresh() == [("bases of x86_64", True)]
    (folder / "a.yaml").write_bytes(b"interfaces: 3")
    assert refresh() == []  # it may still be written
    assert refresh() == [("host a", True)]
    assert world.served() == set()


def test_nothing_is_done_when_nothing_changed(bases, tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_bytes(GOOD)
    (tmp_path / "bad.yaml").write_bytes(b"interfaces: 3")
    world = World(bases, tmp_path)
    monkeypatch.setattr(module, "read_text", None)  # no file is opened again
    changes = world.registry.changes
    for _look in range(3):
        world.static.refresh()
    assert world.registry.changes == changes


def test_memory_of_inputs_is_shared():
    inputs = CommonInputs(ENVIRON, Problems())
    assert isinstance(inputs(), AgentInputs)
    assert inputs() is inputs()
    assert inputs.refresh() is False


def test_a_problem_that_is_reported_counts_in_the_metrics_already(bases, tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("interfaces: 7")
    counted, report = [], Problems.report

    def watched(problems: Problems, what: str, text: str) -> None:
        if what == "host a":
            counted.append(made[0].failed)
        report(problems, what, text)

    made: list[HostFolder] = []
    monkeypatch.setattr(
        HostFolder, "begin", lambda folder, begin=HostFolder.begin: (made.append(folder), begin(folder))
    )
    monkeypatch.setattr(Problems, "report", watched)
    World(bases, tmp_path)
    assert counted == [1]


@pytest.mark.usefixtures("at_once")
def test_hosts_whose_base_is_bad_are_not_served(bases, tmp_path, caplog):
    """The line in the log, the metric and what readiness says: the base's fault, and a host's own with its document."""
    caplog.set_level("INFO", "kubenode.images")
    folder = tmp_path / "hosts"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_bytes(GOOD)
    (folder / "bad.yaml").write_bytes(b"interfaces: 3")
    (tmp_path / "live.iso").write_text("no ISO\n")
    own = Bases(str(tmp_path / "live.iso"), bases.path("", "initramfs"), "", "x86_64")
    world = World(own, folder)
    place, initramfs = f"bases of x86_64: {tmp_path}/live.iso", {"/a.initramfs", "/b.initramfs"}
    assert (len(world.static), world.static.wanted, world.static.served, world.static.failed) == (3, 2, 0, 3)
    assert world.static.summary().startswith(f"0 of 3 hosts are served ({place}")
    assert world.static.summary().endswith("; with errors of their own: 1)")
    assert world.problems.all()["host bad"].startswith(f"{folder}/bad.yaml: ")
    assert world.served() == initramfs
    shutil.copy(bases.path("", "iso"), tmp_path / "live.iso")
    world.static.refresh()
    assert world.static.summary() == "2 of 3 hosts are served (with errors of their own: 1)"
    os.truncate(tmp_path / "live.iso", 40_000)
    world.static.refresh()
    assert (world.static.served, world.served()) == (0, initramfs)
    said = [record.getMessage() for record in caplog.records if "hosts are served" in record.getMessage()]
    assert [line.split(" (")[0] for line in said] == [f"{count} of 3 hosts are served" for count in (0, 2, 0)]
    assert place in said[0]


def test_what_is_not_wanted_is_not_missed(bases, tmp_path):
    (tmp_path / "a.yaml").write_bytes(GOOD)
    (tmp_path / "b.host.yml").write_text("formats: [initramfs]\n")
    (tmp_path / "c.host.yml").write_text("arch: riscv64\n")
    only_iso = World(Bases(bases.path("", "iso"), "", "", "x86_64"), tmp_path)
    assert (only_iso.static.served, only_iso.served()) == (1, {"/a.iso"})
    both = World(bases, tmp_path)
    assert both.served() == {"/a.iso", "/a.initramfs", "/b.initramfs"}
    assert both.static.summary().startswith("2 of 3 hosts are served (bases of riscv64: ")


def test_a_base_that_no_host_needs_is_no_problem(tmp_path):
    """With an ISO alone; but why a host that wants an initramfs alone has none is said as long as it wants that."""
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts/web-1.yaml").write_bytes(GOOD)
    bases = Bases(str(make(tmp_path / "live.iso", LAYOUTS["2023-igninfo"])), "", "", "x86_64")
    world = World(bases, tmp_path / "hosts")
    assert world.served() == {"/web-1.iso"}
    assert world.problems.all() == {}
    assert world.static.summary() == "1 of 1 hosts are served"
    own = tmp_path / "hosts/web-1.host.yml"
    for text, words in (("formats: [initramfs]", "base_initramfs (DEPLOY_INITRD) is not set"), ("", "")):
        own.write_text(text)
        until(lambda: world.static.refresh() or world.static.failed == bool(words), "the change")  # noqa: B023
        assert words in world.problems.all().get("bases of x86_64", "")
        assert words in world.static.summary()
        assert bool(world.problems.all()) == bool(words)
