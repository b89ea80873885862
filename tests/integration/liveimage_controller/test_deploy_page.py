# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""deploy/image_server/README.md as printed, from its first file to its last command, on a cluster that is new."""

import base64
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cluster.running_cluster import RunningCluster
from tests.documents import CHECKOUT, Block, blocks

from .world import new_cluster

pytestmark = pytest.mark.cluster
PAGE = "deploy/image_server/README.md"
NAMESPACE = "/api/v1/namespaces/kubenode-images"
#: what wants a registry, or a node that runs pods
ELSEWHERE = ("podman", "kubectl -n kubenode-images wait", "kubectl -n kubenode-images cp",
             "kubectl -n kubenode-images rollout")  # fmt: skip
PULL_SECRET = json.dumps({"auths": {"registry.example.com": {"auth": "dTpw"}}})


@pytest.fixture(scope="module")
def fresh() -> Iterator[RunningCluster]:
    """One without the manifests."""
    with new_cluster() as cluster:
        yield cluster


def run(cluster: RunningCluster, command: str, folder: Path) -> str:
    path = f"{cluster.programs.kubectl.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": path, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def follow(cluster: RunningCluster, block: Block, folder: Path) -> None:
    """Write the file, or run the commands."""
    if block.language == "yaml":
        name = block.text.partition("\n")[0].removeprefix("# ")
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(block.text)
        return
    for line in block.text.splitlines():
        if not line.startswith(ELSEWHERE):
            run(cluster, line, folder)


def test_the_page_makes_all_that_the_pod_needs(fresh, tmp_path):
    shutil.copytree(CHECKOUT / "deploy", tmp_path / "deploy")
    (tmp_path / "pull-secret.json").write_text(PULL_SECRET)
    # the last commands throw the pod away that the bases were put in with
    *first, last = blocks(PAGE)
    for block in first:
        follow(fresh, block, tmp_path)
    run(fresh, last.text.splitlines()[0], tmp_path)  # the restricted namespace takes the pod
    filling = fresh.api.get(f"{NAMESPACE}/pods/fill-bases")["spec"]
    run(fresh, last.text.splitlines()[-2], tmp_path)
    pod = fresh.api.get("/apis/apps/v1/namespaces/kubenode-images/deployments/image-server")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == filling["containers"][0]["image"] == "registry.example.com/image-server"
    settings = fresh.api.get(f"{NAMESPACE}/configmaps/image-server")["data"]
    assert settings["IRONIC_AGENT_IMAGE"].endswith("ironic-agent:1.0")
    assert settings["DEPLOY_ISO"] == "/bases/live.iso"
    claims = {one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one}
    assert claims == {"image-bases"}
    assert fresh.api.get(f"{NAMESPACE}/persistentvolumeclaims/image-bases")["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claims == {filling["volumes"][0]["persistentVolumeClaim"]["claimName"]}
    copied = {shlex.split(line)[-1] for line in last.text.splitlines() if " cp " in line}
    assert copied == {f"fill-bases:{settings[name]}" for name in ("DEPLOY_ISO", "DEPLOY_INITRD")}
    key = fresh.api.get(f"{NAMESPACE}/secrets/image-server-key")["data"]["key"]
    assert len(base64.b64decode(key)) == 64
    pull = fresh.api.get(f"{NAMESPACE}/secrets/image-server-pull-secret")["data"][".dockerconfigjson"]
    assert base64.b64decode(pull).decode() == PULL_SECRET
    # once more, with the other flavour
    mine = tmp_path / "my-image-server/kustomization.yaml"
    mine.write_text(mine.read_text().replace("/cluster", "/namespaced"))
    run(fresh, "kubectl apply -k my-image-server", tmp_path)
    assert fresh.api.get(f"{NAMESPACE}/configmaps/image-server")["data"]["WATCH_NAMESPACE"] == "metal3"
