# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our tables of flags and fields against the kubelets of their minors: the newest and the oldest that are built."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.kubelet_config import FIELDS, FLAGS
from lab import cluster

pytestmark = [
    pytest.mark.cluster(cluster.OLDEST),
    pytest.mark.parametrize("version", [cluster.KUBERNETES, cluster.OLDEST]),
]

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
EMPTY = {"bool": False, "int": 0, "float": 0.0, "string": "", "duration": "0s", "quantity": "0", "duration|int": "0s"}


def empty(kind: Any) -> Any:
    """A value of this type, with every field that it has."""
    if isinstance(kind, dict):
        return {"a": empty(kind["*"])} if list(kind) == ["*"] else {name: empty(one) for name, one in kind.items()}
    if isinstance(kind, list):
        return [empty(kind[0])]
    return EMPTY.get(kind)


def said(version: str, folder: Path, config: dict[str, Any]) -> str:
    """What the kubelet says of a configuration before it ends, since one value cannot be."""
    file = folder / "config.json"
    file.write_text(json.dumps({**config, **HEAD, "featureGates": {}, "oomScoreAdj": -5000}))
    kubelet = cluster.ensure_node(version) / "kubelet"
    command = [kubelet, f"--config={file}", f"--root-dir={folder}/root", f"--cert-dir={folder}/pki"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, "command failed" in done.stderr) == (1, True), done.stderr
    return done.stderr


def minor(version: str) -> str:
    return version.rpartition(".")[0]


def test_its_flags_are_those_of_the_table(version: str) -> None:
    command = [cluster.ensure_node(version) / "kubelet", "--help"]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^ +(?:-[a-z], )?--([a-z0-9-]+)", reported, re.MULTILINE)) == set(FLAGS[minor(version)])


def test_it_knows_every_field_of_the_table(version: str, tmp_path: Path) -> None:
    assert "unknown field" not in said(version, tmp_path, empty(FIELDS[minor(version)]))
    assert 'unknown field \\"hairPinMode\\"' in said(version, tmp_path, {"hairPinMode": "none"})
