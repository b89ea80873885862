# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All Ignition that is written here, read by CoreOS's own library, which a small Go program brings."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import agent, hosts
from lab import cache
from lab.cluster import go_build
from lab.cluster.go_build import discard
from tests.unit.liveimage.nmstate.test_golden import DOCUMENTS
from tests.unit.node_userdata.examples import FULL, SMALL, rendered

pytestmark = pytest.mark.cluster
SOURCES = Path(__file__).parent / "ignition_check"
PATIENCE = 900.0
AGENT = agent.AgentInputs(agent_image="quay.io/example/agent:1", ironic_urls=("https://ironic.example.com",))
#: every input that a host's Ignition can have
WHOLE = agent.AgentInputs(
    agent_image="quay.io/example/agent@sha256:" + "a" * 64,
    ironic_urls=("https://ironic.example.com", "https://[2001:db8::1]:6385"),
    inspector_urls=("https://inspector.example.com",),
    insecure=True,
    pull_secret='{"auths": {"quay.io": {"auth": "aHVudGVyMg=="}}}',
    vlan_interfaces="always",
    ssh_keys=("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== someone",),
    registries_conf='[[registry]]\nlocation = "mirror.test"\n',
    ip_options="ip=dhcp6",
    http_proxy="http://me:p%40ss@proxy.test:3128",
    https_proxy="http://proxy.test:3129",
    no_proxy="localhost,.test",
    ntp_servers=("time.example.com",),
    ca_bundle="-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n",
    environment={"IPA_DEBUG": "1"},
    podman_options=("--memory=1g",),
)
HOST = hosts.HostInputs(
    "web-1",
    files={"/etc/motd": (b"hello \xe2\x98\xba\n" * 500, 0o644)},
    units={"own.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
    ssh_keys=("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC== other",),
    merge={"storage": {"files": [{"path": "/etc/merged", "contents": {"source": "data:,merged"}}]}},
)


def written() -> Mapping[str, bytes]:
    """Name → Ignition: user data of nodes, and that of live images."""
    found = {f"node-{label}": rendered(inputs, "ignition").encode() for label, inputs in NODES.items()}
    for label, inputs in (("small", AGENT), ("whole", WHOLE)):
        found[f"live-{label}"] = hosts.build(inputs, HOST if inputs is WHOLE else hosts.HostInputs("web-1")).ignition
    for document in DOCUMENTS:
        host = hosts.HostInputs("web-1", network=document.read_text())
        found[f"network-{document.stem}"] = hosts.build(AGENT, host).ignition
    given = {"ignition": {"version": "3.4.0"}}
    own = hosts.HostInputs("web-1", hostname="web-1", ignition=given, ssh_keys=HOST.ssh_keys)
    found["live-given"] = hosts.build(None, own).ignition
    return found


NODES: Mapping[str, Mapping[str, Any]] = {"full": FULL, "small": SMALL}


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built once for its sources by modules of the Go module proxy."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.iterdir()):
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    folder = cache.root() / f"ignition-check-{digest.hexdigest()[: cache.DIGITS]}"
    go_build.once(folder, build, print, ("go",))
    return folder / "ignition_check"


def build(folder: Path) -> None:
    work = folder / "work"
    shutil.copytree(SOURCES, work / "source")
    environment = {**os.environ, "GOPATH": str(work / "go"), "GOCACHE": str(work / "cache"), "CGO_ENABLED": "0"}
    environment.update(GOFLAGS="-mod=readonly", GO111MODULE="on")
    command = ["nice", "-n", "10", "go", "build", "-trimpath", "-o", str(folder / "ignition_check"), "."]
    done = subprocess.run(
        command, cwd=work / "source", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, f"go 1.24 or newer and the Go module proxy are needed: {done.stderr[-1500:]}"
    discard(work)


def said(program: Path, folder: Path, configs: Mapping[str, bytes]) -> Mapping[str, list[str]]:
    """What the library says of each configuration; nothing is well."""
    for name, data in configs.items():
        (folder / name).write_bytes(data)
    done = subprocess.run(
        [program, *configs], cwd=folder, capture_output=True, text=True, check=True, timeout=PATIENCE
    )  # fmt: skip
    return json.loads(done.stdout)


def test_the_library_has_nothing_to_say_of_what_is_written_here(program, tmp_path):
    configs = written()
    assert len(configs) > len(DOCUMENTS) > 10
    assert said(program, tmp_path, configs) == {name: [] for name in configs}


def test_the_library_says_what_is_wrong(program, tmp_path):
    """Were it silent, the test above would show nothing."""
    config = json.loads(rendered(SMALL, "ignition"))
    config["storage"]["files"][0]["path"] = "relative"
    newer = {"ignition": {"version": "3.9.0"}}
    found = said(program, tmp_path, {"path": json.dumps(config).encode(), "newer": json.dumps(newer).encode()})
    assert "path not absolute" in str(found["path"])
    assert "unsupported config version" in str(found["newer"])


def test_versions_are_the_oldest_that_suffice():
    versions = {name: json.loads(data)["ignition"]["version"] for name, data in written().items()}
    assert {version for name, version in versions.items() if name.startswith("node-")} == {"3.3.0"}
    assert {version for name, version in versions.items() if name.startswith(("live-small", "live-whole"))} == {"3.2.0"}


def test_the_whole_agent_has_every_input():
    defaults = agent.AgentInputs(agent_image="", ironic_urls=())
    same = [one.name for one in fields(WHOLE) if getattr(WHOLE, one.name) == getattr(defaults, one.name)]
    assert same == []
