# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendered configuration, read by the containerd versions that will read it."""

import subprocess
import tomllib

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import runtime, templates
from lab import cluster
from lab.mirror import checksums, program
from tests.unit.node.facts import given, node

pytestmark = pytest.mark.mirror

SANDBOX = "registry.example/pause:9.9"
#: (plugin, key, …) → value, in the schema 2 and in the schemas 3 and 4
_CRI = "io.containerd.grpc.v1.cri"
_IMAGES, _RUNTIME = "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"
_RUNC = ("containerd", "runtimes", "runc", "options", "SystemdCgroup")
OLD = {
    (_CRI, "sandbox_image"): SANDBOX,
    (_CRI, "registry", "config_path"): "/etc/containerd/certs.d",
    (_CRI, *_RUNC): True,
    (_CRI, "cni", "bin_dir"): "/opt/cni/bin",
    (_CRI, "containerd", "snapshotter"): "native",
    (_CRI, "max_concurrent_downloads"): 7,
}
NEW = {
    (_IMAGES, "pinned_images", "sandbox"): SANDBOX,
    (_IMAGES, "registry", "config_path"): "/etc/containerd/certs.d",
    (_RUNTIME, *_RUNC): True,
    (_RUNTIME, "cni", "bin_dirs"): ["/opt/cni/bin", "/usr/lib/cni"],
    (_IMAGES, "snapshotter"): "native",
    (_IMAGES, "max_concurrent_downloads"): 7,
}


@pytest.mark.parametrize(
    ("version", "schema", "expected", "plugin"),
    [
        ("1.6.20", 2, OLD, _CRI),
        ("1.7.24", 2, OLD, _CRI),
        ("2.1.9", 3, NEW, _IMAGES),
        pytest.param(cluster.CONTAINERD, 4, NEW, _IMAGES, marks=pytest.mark.cluster),
    ],
)
def test_containerd_takes_every_value(tmp_path, version, schema, expected, plugin):
    built = version == cluster.CONTAINERD
    sums = checksums("containerd", "kubelet", real=(cluster.KUBERNETES,)) if built else checksums("containerd")
    inputs = given(
        containerd_version=version,
        checksums=sums,
        sandbox_image=SANDBOX,
        snapshotter="native",
        containerd_config={"plugins": {plugin: {"max_concurrent_downloads": 7}}},
    )
    path = tmp_path / "config.toml"
    document = runtime.containerd_config(node("debian-13"), inputs)
    assert document["version"] == schema
    path.write_text(templates.toml_document(document))
    daemon = (
        cluster.ensure_containerd() / "containerd" if built else program("containerd", version, "containerd", tmp_path)
    )
    ended = subprocess.run(
        [daemon, "--config", path, "config", "dump"], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    # what a version does not know it names here
    assert "ignor" not in ended.stderr.lower(), ended.stderr
    assert "deprecat" not in ended.stderr.lower(), ended.stderr
    dumped = tomllib.loads(ended.stdout)
    assert dumped["version"] == schema
    assert "migrat" not in ended.stderr.lower(), ended.stderr
    assert dumped["disabled_plugins"] == []
    for (name, *keys), value in expected.items():
        found = dumped["plugins"][name]
        for key in keys:
            found = found[key]
        assert found == value, (name, keys)


def test_an_older_containerd_refuses_the_newer_schema(tmp_path):
    """Why the version decides: the wrong schema would keep the daemon from starting."""
    path = tmp_path / "config.toml"
    path.write_text(templates.toml_document(runtime.containerd_config(node("debian-13"), given())))
    daemon = program("containerd", "1.7.24", "containerd", tmp_path)
    ended = subprocess.run(
        [daemon, "--config", path, "config", "dump"], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode != 0
