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

from ansible_collections.kubenode.provision.plugins.module_utils._node import container_images
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done, Host

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
    assert container_images.canonical(given_reference) == listed
    assert container_images.canonical(listed) == listed


@pytest.mark.parametrize(
    "wrong", ["", " ", "a b", "a\n", "-flag", "a/B", "a:b:c", "a@sha256:12", "a/../b", "https://a/b"]
)
def test_what_is_no_reference_is_refused(wrong):
    with pytest.raises(container_images.BadReference):
        container_images.canonical(wrong)


@given(st.text())
def test_a_reference_never_looks_like_an_option_or_a_path(text):
    try:
        found = container_images.canonical(text)
    except container_images.BadReference:
        return
    assert "/" in found
    assert not found.startswith(("-", "/", "."))
    assert not set(found) & set(" \t\n'\"$`;")


def test_the_list_of_containerd_is_understood():
    there = container_images.parse_list(LISTED)
    assert set(there) == {PAUSE, "docker.io/library/a:1"}
    pinned = container_images.Containerd(None, 1).pinned
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
    assert container_images.names_in_archive(str(tmp_path / "oci")) == [PAUSE]
    write_archive(tmp_path / "docker", manifest_json=[{"RepoTags": ["a:1", PAUSE]}, {"RepoTags": None}])
    assert container_images.names_in_archive(str(tmp_path / "docker")) == ["docker.io/library/a:1", PAUSE]


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
    with pytest.raises(container_images.ArchiveError):
        container_images.names_in_archive(str(tmp_path / "archive"))


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "archive").write_bytes(b"\0" * 100 + b"x" * 1000)
    with pytest.raises(container_images.ArchiveError):
        container_images.names_in_archive(str(tmp_path / "archive"))


class Layout:
    """An OCI layout, and the digests of what was put into it."""

    def __init__(self, path, arch="amd64"):
        self.path, self.arch, self._blobs, self.index = path, arch, {}, []

    def blob(self, content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        return {"digest": f"sha256:{digest}", "size": len(data), "mediaType": "x"}

    def image(self, *layers, arch="amd64"):
        config = self.blob({"architecture": arch, "os": "linux", "rootfs": {}, "of": arch})
        manifest = {"config": config, "layers": [self.blob(layer) for layer in layers]}
        return {**self.blob(manifest), "platform": {"os": "linux", "architecture": arch}}, config["digest"][7:]

    def write(self, mode="w", prefix=""):
        """The index comes last, as in archives of containerd."""
        with tarfile.open(self.path, mode) as tar:
            everything = {f"blobs/sha256/{name}": data for name, data in sorted(self._blobs.items())}
            everything |= {"oci-layout": b"{}", "index.json": json.dumps({"manifests": self.index}).encode()}
            for name, data in everything.items():
                member = tarfile.TarInfo(prefix + name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return str(self.path)


def named(descriptor, *names):
    return [{**descriptor, "annotations": {"io.containerd.image.name": name}} for name in names]


class DockerHost(Host):
    """A machine whose Docker takes down what it is given."""

    def run(self, argv, seconds=30, stdin=None):
        assert argv[:-1] == ["docker", "load", "--quiet", "--input"]
        with tarfile.open(argv[-1]) as tar:
            self.given = {member.name: tar.extractfile(member).read() for member in tar}
        return Done(0, "", "")


def loaded(tmp_path, archive_path, machine="x86_64"):
    host = DockerHost(str(tmp_path / "root"))
    container_images.Docker(host, 5, machine).load(archive_path)
    assert list((tmp_path / "root/var/lib/kubenode").iterdir()) == []
    return json.loads(host.given.pop("manifest.json")), host.given


@pytest.mark.parametrize(("mode", "prefix"), [("w", ""), ("w:gz", "./")])
@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_docker_gets_an_oci_layout_as_an_archive_of_its_own(tmp_path, mode, prefix, machine, arch):
    """Docker without containerd's image store asks for a manifest.json."""
    layout, configs = Layout(tmp_path / "archive"), {}
    several = []
    for one in ("amd64", "arm64"):
        image, configs[one] = layout.image(b"base", f"of {one}".encode(), arch=one)
        several.append(image)
    attested = {**layout.blob({"layers": []}), "platform": {"os": "unknown", "architecture": "unknown"}}
    nested = layout.blob({"manifests": [attested, *several]})
    layout.index = [*named(nested, PAUSE, "docker.io/library/a:1"), *named(several[0], "docker.io/library/only:1")]
    path = layout.write(mode, prefix)
    images_, blobs = loaded(tmp_path, path, machine)
    layers = [hashlib.sha256(data).hexdigest() for data in (b"base", f"of {arch}".encode())]
    # what is for one platform alone is taken as it is
    alone = ["docker.io/library/only:1"]
    assert images_[0] == {
        "Config": f"blobs/sha256/{configs[arch]}",
        "RepoTags": [PAUSE, "docker.io/library/a:1", *(alone if arch == "amd64" else [])],
        "Layers": [f"blobs/sha256/{digest}" for digest in layers],
    }
    assert [image["RepoTags"] for image in images_[1:]] == ([] if arch == "amd64" else [alone])
    needed = {name for image in images_ for name in (image["Config"], *image["Layers"])}
    assert set(blobs) == needed
    assert all(hashlib.sha256(data).hexdigest() == name[-64:] for name, data in blobs.items())


def test_docker_gets_an_archive_of_its_own_as_it_is(tmp_path):
    host = DockerHost(str(tmp_path))
    write_archive(tmp_path / "docker", manifest_json=[{"RepoTags": [PAUSE]}], other=b"kept")
    container_images.Docker(host, 5).load(str(tmp_path / "docker"))
    assert host.given["other"] == b"kept"


def test_what_docker_could_not_import_is_refused_before(tmp_path):
    other = Layout(tmp_path / "other")
    other.index = named(other.blob({"manifests": [other.image(b"l", arch="s390x")[0]]}), PAUSE)
    by_digest = Layout(tmp_path / "digest")
    by_digest.index = named(by_digest.image(b"l")[0], "quay.io/a/b@" + DIGEST)
    holes = Layout(tmp_path / "holes")
    holes.index = named({"digest": DIGEST}, PAUSE)
    outside = Layout(tmp_path / "outside")
    outside.index = named({"digest": "sha256:../../etc/shadow"}, PAUSE)
    layers = Layout(tmp_path / "layers")
    config = layers.blob({"rootfs": {}})
    layers.index = named(layers.blob({"config": config, "layers": [{"digest": DIGEST}]}), PAUSE)
    endless = Layout(tmp_path / "endless")
    endless.index = named(endless.blob({"manifests": "no list"}), PAUSE)
    for layout, words in (
        (other, "linux/amd64"), (by_digest, "by tag"), (holes, DIGEST), (outside, "digest"), (layers, DIGEST),
        (endless, "no OCI layout"),
    ):  # fmt: skip
        host = DockerHost(str(tmp_path))
        with pytest.raises(container_images.ArchiveError, match=words):
            container_images.Docker(host, 5, "x86_64").load(layout.write())
        assert not hasattr(host, "given")


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
    return container_images.Work(Host(str(root)), runtime, given_options)


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
    with pytest.raises(container_images.FetchFailed, match="0000") as failed:
        work(tmp_path, runtime, archives=[one]).bring()
    assert hashlib.sha256((tmp_path / "pause.tar").read_bytes()).hexdigest() in str(failed.value)
    assert runtime.done == []


def test_an_archive_that_does_not_bring_what_it_names_is_an_error(tmp_path):
    with pytest.raises(container_images.ImagesFailed, match="is not there"):
        work(tmp_path, Runtime(brings=[]), archives=[archived(tmp_path)]).bring()
    assert container_images.read_record(Host(str(tmp_path))) == {}


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"a": 1}'])
def test_a_broken_record_is_no_record(tmp_path, text):
    (tmp_path / "etc/kubenode").mkdir(parents=True)
    (tmp_path / "etc/kubenode/images.json").write_text(text)
    assert container_images.read_record(Host(str(tmp_path))) == {}


def test_credentials_in_urls_are_not_shown():
    assert container_images.public("https://user:secret@host:1/a.tar?token=secret#x") == "https://host:1/a.tar"


@pytest.mark.parametrize("url", ["file:///etc/shadow", "ftp://host/a.tar"])
def test_only_http_is_fetched(tmp_path, url):
    with pytest.raises(container_images.FetchFailed, match="only http"):
        work(tmp_path, Runtime(), archives=[{"url": url, "sha256": "0" * 64}]).bring()
