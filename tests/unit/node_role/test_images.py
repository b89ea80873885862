# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""References, archives and plans of container images, and whole runs against a runtime that is a dictionary."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node.images import (
    archive,
    fetch,
    images,
    references,
    runtimes,
)
from ansible_collections.kubenode.provision.plugins.module_utils._node.machine.host import Host

DIGEST = "sha256:" + "a" * 64
PAUSE = "registry.k8s.io/pause:3.10.2"
LISTED = """\
REF                          TYPE                                       DIGEST        SIZE      PLATFORMS   LABELS
registry.k8s.io/pause:3.10.2 application/vnd.oci.image.manifest.v1+json sha256:b53e22 546.2 KiB linux/amd64 \
io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned
docker.io/library/a:1        application/vnd.oci.image.manifest.v1+json sha256:b53e22 1.0 MiB   linux/amd64 -
"""


@pytest.mark.parametrize(
    ("given_reference", "listed"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("grafana/grafana", "docker.io/grafana/grafana:latest"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("localhost/own", "localhost/own:latest"),
        ("registry:5000/own/image:1", "registry:5000/own/image:1"),
        (PAUSE, PAUSE),
        ("quay.io/a/b:tag@" + DIGEST, "quay.io/a/b@" + DIGEST),
        ("registry:5000/a@" + DIGEST, "registry:5000/a@" + DIGEST),
    ],
)
def test_references_are_written_as_the_runtime_lists_them(given_reference, listed):
    assert references.canonical(given_reference) == listed
    assert references.canonical(listed) == listed


@pytest.mark.parametrize(
    "wrong", ["", " ", "a b", "a\n", "-flag", "a/B", "a:b:c", "a@sha256:12", "a/../b", "https://a/b"]
)
def test_what_is_no_reference_is_refused(wrong):
    with pytest.raises(references.BadReference):
        references.canonical(wrong)


@given(st.text())
def test_a_reference_never_looks_like_an_option_or_a_path(text):
    try:
        found = references.canonical(text)
    except references.BadReference:
        return
    assert "/" in found
    assert not found.startswith(("-", "/", "."))
    assert not set(found) & set(" \t\n'\"$`;")


def test_the_list_of_containerd_is_understood():
    there = runtimes.parse_list(LISTED)
    assert set(there) == {PAUSE, "docker.io/library/a:1"}
    pinned = runtimes.Containerd(None, 1).pinned
    assert pinned(there[PAUSE])
    assert not pinned(there["docker.io/library/a:1"])


def write_archive(path, **files):
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            member = tarfile.TarInfo(name.replace("_", "."))
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def index(*names, note="io.containerd.image.name"):
    return {"manifests": [{"annotations": {note: name}} for name in names]}


def test_names_in_archives_of_both_kinds(tmp_path):
    write_archive(tmp_path / "oci", index_json=index(PAUSE))
    assert archive.names(str(tmp_path / "oci")) == [PAUSE]
    write_archive(tmp_path / "docker", manifest_json=[{"RepoTags": ["a:1", PAUSE]}, {"RepoTags": None}])
    assert archive.names(str(tmp_path / "docker")) == ["docker.io/library/a:1", PAUSE]


@pytest.mark.parametrize(
    "files",
    [
        {"other": b"x"},
        {"index_json": b"no json"},
        {"index_json": ["wrong"]},
        {"index_json": {"manifests": [{}]}},
        {"index_json": index("3.10.2", note="org.opencontainers.image.ref.name")},
        {"manifest_json": [{"RepoTags": ["-flag"]}]},
    ],
)
def test_an_archive_without_names_is_refused(tmp_path, files):
    write_archive(tmp_path / "archive", **files)
    with pytest.raises(archive.ArchiveError):
        archive.names(str(tmp_path / "archive"))


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "archive").write_bytes(b"\0" * 100 + b"x" * 1000)
    with pytest.raises(archive.ArchiveError):
        archive.names(str(tmp_path / "archive"))


class Runtime:
    """A container runtime that keeps its images in a dictionary."""

    def __init__(self, brings=()):
        self.there, self.done, self._brings = {}, [], brings

    def list(self):
        return dict(self.there)

    def pull(self, name):
        self.done.append(("pull", name))
        self.there[name] = {}

    def load(self, path):
        self.done.append(("load",))
        self.there.update({name: {} for name in self._brings})

    def pinned(self, labels):
        return "pinned" in labels

    def pin(self, name):
        self.done.append(("pin", name))
        self.there[name] = {"pinned": ""}


def work(root, runtime, **options):
    given_options = {"images": [], "archives": [], "pin": True, "headers": {}, "timeout": 5, **options}
    return images.Work(Host(str(root)), runtime, given_options)


def archived(root):
    """An archive with the pause image, on the machine."""
    root.mkdir(exist_ok=True)
    return {"path": "/pause.tar", "sha256": write_archive(root / "pause.tar", index_json=index(PAUSE)).upper()}


def test_missing_images_are_pulled_and_pinned_once(tmp_path):
    runtime = Runtime()
    given_images = ["a:1", "docker.io/library/a:1", PAUSE]
    foretold = work(tmp_path, runtime, images=given_images).predict()
    assert runtime.done == []
    result = work(tmp_path, runtime, images=given_images).bring()
    assert result == foretold
    assert result["pulled"] == result["pinned"] == ["docker.io/library/a:1", PAUSE]
    again = work(tmp_path, runtime, images=given_images).bring()
    assert not again["changed"]
    assert len(runtime.done) == 4


def test_an_archive_brings_what_then_is_not_pulled_and_is_needed_once(tmp_path):
    runtime, one = Runtime(brings=[PAUSE]), archived(tmp_path)
    result = work(tmp_path, runtime, images=[PAUSE], archives=[one]).bring()
    assert result["imported"] == ["/pause.tar"]
    assert runtime.done == [("load",), ("pin", PAUSE)]
    (tmp_path / "pause.tar").unlink()
    again = work(tmp_path, runtime, images=[PAUSE], archives=[one]).bring()
    assert not again["changed"]
    assert again["images"] == [PAUSE]


def test_an_image_that_was_removed_is_brought_again(tmp_path):
    runtime, one = Runtime(brings=[PAUSE]), archived(tmp_path)
    work(tmp_path, runtime, archives=[one]).bring()
    runtime.there.clear()
    assert work(tmp_path, runtime, archives=[one]).bring()["imported"] == ["/pause.tar"]


def test_a_wrong_archive_is_never_imported(tmp_path):
    runtime, one = Runtime(brings=[PAUSE]), archived(tmp_path)
    one["sha256"] = "0" * 64
    with pytest.raises(fetch.FetchFailed, match="0000") as failed:
        work(tmp_path, runtime, archives=[one]).bring()
    assert hashlib.sha256((tmp_path / "pause.tar").read_bytes()).hexdigest() in str(failed.value)
    assert runtime.done == []


def test_an_archive_that_does_not_bring_what_it_names_is_an_error(tmp_path):
    with pytest.raises(images.ImagesFailed, match="is not there"):
        work(tmp_path, Runtime(brings=[]), archives=[archived(tmp_path)]).bring()
    assert images.read_record(Host(str(tmp_path))) == {}


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"a": 1}'])
def test_a_broken_record_is_no_record(tmp_path, text):
    (tmp_path / "etc/kubenode").mkdir(parents=True)
    (tmp_path / "etc/kubenode/images.json").write_text(text)
    assert images.read_record(Host(str(tmp_path))) == {}


def test_credentials_in_urls_are_not_shown():
    assert images.public("https://user:secret@host:1/a.tar?token=secret#x") == "https://host:1/a.tar"


@pytest.mark.parametrize("url", ["file:///etc/shadow", "ftp://host/a.tar"])
def test_only_http_is_fetched(tmp_path, url):
    with pytest.raises(fetch.FetchFailed, match="only http"):
        work(tmp_path, Runtime(), archives=[{"url": url, "sha256": "0" * 64}]).bring()
