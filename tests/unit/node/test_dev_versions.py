# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/versions against a small server with the projects' sum files."""

from __future__ import annotations

import hashlib
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import software
from dev import versions
from tests.folders import put
from tests.web_servers import Handler, Server

HEAD = """---
# kept as it is
base_versions:
  defaults:
    crictl:
      "1.36": "1.36.0"
  checksums:
"""
KNOWN = {"kubelet": "1.36.4", "kubeadm": "1.36.4", "kubectl": "1.36.4", "runc": "1.4.3", "containerd": "2.3.4"}


def digest(*words: str) -> str:
    return hashlib.sha256("-".join(words).encode()).hexdigest()


def data_file(folder: Path) -> Path:
    sums = {
        component: {version: {arch: digest(component, version, arch) for arch in versions.ARCHITECTURES}}
        for component, version in KNOWN.items()
    }
    path = folder / "versions.yml"
    path.write_text(versions.rendered(HEAD, sums))
    return path


class Projects:
    """Folders with what the projects publish, served at ``url``/HOST/PATH."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def put(self, url: str, text: str) -> None:
        put(self.folder / url.partition("://")[2], text)

    def publish(self, component: str, version: str) -> None:
        source = versions.SOURCES[component]
        for arch in versions.ARCHITECTURES:
            name = source.file_url(version, arch).rpartition("/")[2]
            if not source.sums:
                self.put(source.file_url(version, arch), "-".join((component, version, arch)))
            elif component == versions.NODE_ARCHIVE:
                self.put(source.sums_url(version, arch), digest(component, version, arch) * 2)
            elif component in KNOWN and component.startswith("kube"):
                self.put(source.sums_url(version, arch), digest(component, version, arch))
            elif component != "runc":
                self.put(source.sums_url(version, arch), f"{digest(component, version, arch)}  {name}\n")
        if component == "runc":
            rows = [f"{digest(component, version, arch)} *runc.{arch}" for arch in versions.ARCHITECTURES]
            self.put(source.sums_url(version, "amd64"), "\n".join([*rows, "0" * 64 + " *runc.s390x", ""]))


class Files(Handler, SimpleHTTPRequestHandler):
    """Those of a folder."""


@pytest.fixture
def projects(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with Server(partial(Files, directory=str(folder))) as server:
        served = Projects(folder, server.url)
        for component, version in KNOWN.items():
            served.publish(component, version)
        served.put("https://dl.k8s.io/release/stable-1.36.txt", "v1.36.4")
        yield served


def run(projects: Projects, file: Path, *words: str) -> int:
    return versions.main(["--mirror", projects.url, *words], file)


def test_a_file_that_is_right_stays(tmp_path, projects, capsys):
    file = data_file(tmp_path)
    before = file.read_text()
    assert run(projects, file) == 0
    assert run(projects, file, "--check") == 0
    assert file.read_text() == before
    assert "nothing to change" in capsys.readouterr().out


def test_the_newest_patch_comes_in_and_goes_on_top(tmp_path, projects):
    file = data_file(tmp_path)
    projects.put("https://dl.k8s.io/release/stable-1.36.txt", "v1.36.10\n")
    for component in ("kubelet", "kubeadm", "kubectl"):
        projects.publish(component, "1.36.10")
    assert run(projects, file, "--check") == 1
    assert run(projects, file) == 0
    text = file.read_text()
    assert text.startswith(HEAD)
    sums = yaml.safe_load(text)["base_versions"]["checksums"]
    assert list(sums["kubelet"]) == ["1.36.10", "1.36.4"]
    assert sums["kubeadm"]["1.36.10"] == {arch: digest("kubeadm", "1.36.10", arch) for arch in versions.ARCHITECTURES}
    assert run(projects, file, "--check") == 0


ADDED = [
    "crictl=1.37.0",
    "cni-plugins=1.10.0",
    "containerd-static=2.3.5",
    "runc=1.5.1",
    "cri-dockerd=0.4.0",
    "kubelet=1.37.1",
]


@pytest.mark.parametrize("added", ADDED)
def test_every_kind_of_sum_file_is_read(tmp_path, projects, added):
    component, _sign, version = added.partition("=")
    file = data_file(tmp_path)
    for name in ("kubelet", "kubeadm", "kubectl") if component == "kubelet" else (component,):
        projects.publish(name, version)
    assert run(projects, file, added) == 0
    sums = yaml.safe_load(file.read_text())["base_versions"]["checksums"]
    assert sums[component][version] == {arch: digest(component, version, arch) for arch in versions.ARCHITECTURES}
    assert sums["containerd"]["2.3.4"]["amd64"] == digest("containerd", "2.3.4", "amd64")


NODE = "https://dl.k8s.io/v1.37.1/kubernetes-node-linux-%s.tar.gz"


@pytest.mark.parametrize("quote", ["", "`"])
def test_the_sums_of_the_archive_of_all_programs_are_in_the_change_log_too(tmp_path, projects, quote):
    file, log = data_file(tmp_path), tmp_path / "CHANGELOG-1.37.md"
    rows = {arch: digest("log", arch) * 2 for arch in versions.ARCHITECTURES}
    for arch, found in rows.items():
        url = NODE % arch
        with log.open("a") as sink:
            sink.write(f"[kubernetes-node-linux-{arch}.tar.gz]({url}) | {quote}{found}{quote}\n")
            sink.write(f"[kubernetes-node-linux-{arch}.tar.gz]({url.replace('7.1', '7.0')}) | {'0' * 128}\n")
    assert run(projects, file, "--changelog", str(log), "kubernetes-node=1.37.1") == 0
    assert yaml.safe_load(file.read_text())["base_versions"]["checksums"]["kubernetes-node"]["1.37.1"] == rows
    projects.publish(versions.NODE_ARCHIVE, "1.37.1")
    assert run(projects, file, "--check") == 2, "the project says otherwise"


def test_a_change_log_without_the_version(tmp_path, projects, capsys):
    log = tmp_path / "CHANGELOG-1.37.md"
    log.write_text("# v1.37.1\n")
    assert run(projects, data_file(tmp_path), "--changelog", str(log), "kubernetes-node=1.37.1") == 2
    assert "does not tell one sha512 of " + NODE % "amd64" in capsys.readouterr().err


KUBELET = "https://dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256"
RUNC = "https://github.com/opencontainers/runc/releases/download/v1.4.3/runc.sha256sum"
SURPRISES = [
    (KUBELET, "f" * 64, "find out why"),
    (KUBELET, "<html>moved</html>", "does not tell one sha256"),
    ("https://dl.k8s.io/release/stable-1.36.txt", "v1.37.0", "no release of 1.36"),
    (RUNC, "0" * 64 + " x\n", "runc.amd64"),
]


@pytest.mark.parametrize(("url", "answer", "message"), SURPRISES)
def test_a_surprise_writes_nothing(tmp_path, projects, capsys, url, answer, message):
    file = data_file(tmp_path)
    before = file.read_text()
    projects.put(url, answer)
    assert run(projects, file) == 2
    assert message in capsys.readouterr().err
    assert file.read_text() == before


def test_a_version_that_is_not_published(tmp_path, projects, capsys):
    assert run(projects, data_file(tmp_path), "runc=9.9.9") == 2
    assert "runc.sha256sum: HTTP Error 404" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["runc", "runc=v1.2.3", "etcd=3.6.0"])
def test_what_cannot_be_asked_for(tmp_path, projects, capsys, word):
    assert run(projects, data_file(tmp_path), word) == 2
    assert "use COMPONENT=VERSION" in capsys.readouterr().err


def test_the_file_of_the_role_is_written_as_this_program_writes_it():
    text = versions.FILE.read_text(encoding="utf-8")
    assert versions.rendered(text, yaml.safe_load(text)["base_versions"]["checksums"]) == text


def test_sums_are_of_the_files_the_role_fetches():
    for component, url in software.URLS.items():
        assert versions.SOURCES[component].file == url
