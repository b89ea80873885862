# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Docker Engine with cri-dockerd in front, the original design's runtime."""

from __future__ import annotations

import json

from . import quoting
from .containerd import CNI_BIN, CNI_CONF
from .systems import DEBIAN, FLATCAR, RHEL, bin_dir, known

CONFIG = "/etc/docker/daemon.json"
SOCKET = "/run/cri-dockerd.sock"


def packages(node, inputs):
    """Packages that bring Docker Engine; nothing on Flatcar, which has it."""
    system = known(node)
    if system.family == FLATCAR:
        return []
    if from_repository(node, inputs):
        return ["docker-ce", "docker-ce-cli", "containerd.io"]
    if node["os"]["id"] == "debian" and node["os"].get("version_id") != "12":
        # Debian 13 took the command line out of docker.io; node_images needs it
        return [system.docker_package, "docker-cli"]
    return [system.docker_package] if system.docker_package else []


def from_repository(node, inputs):
    """Whether Docker Engine comes from Docker's own repository."""
    return inputs["containerd_source"] == "repository" and known(node).family in (DEBIAN, RHEL)


def daemon(inputs):
    """daemon.json: systemd as cgroup driver, capped logs, containers that outlive a restart of the daemon."""
    document = {
        "exec-opts": ["native.cgroupdriver=systemd"],
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-size": "10m", "max-file": "5"},
    }
    mirrors = [mirror["url"] for mirror in inputs["registry_mirrors"].get("docker.io", [])]
    if mirrors:
        document["registry-mirrors"] = mirrors
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def shim_unit(node, inputs):
    """cri-docker.service."""
    image = quoting.systemd_word("--pod-infra-container-image=" + inputs["sandbox_image"])
    return _SERVICE % {"bin": bin_dir(node, inputs), "image": image, "cni_bin": CNI_BIN, "cni_conf": CNI_CONF}


DROP_IN = """\
[Unit]
StartLimitIntervalSec=0

[Service]
Restart=always
OOMScoreAdjust=-500
"""

_SERVICE = """\
[Unit]
Description=CRI for Docker Engine
Documentation=https://mirantis.github.io/cri-dockerd
After=network-online.target docker.service cri-docker.socket
Wants=network-online.target
Requires=docker.service cri-docker.socket
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%(bin)s/cri-dockerd --container-runtime-endpoint=fd:// --network-plugin=cni --cni-bin-dir=%(cni_bin)s \
--cni-conf-dir=%(cni_conf)s %(image)s
ExecReload=/bin/kill -s HUP $MAINPID
Restart=always
RestartSec=2
LimitNPROC=infinity
LimitCORE=infinity
LimitNOFILE=1048576
TasksMax=infinity
Delegate=yes
KillMode=process

[Install]
WantedBy=multi-user.target
"""
SOCKET_UNIT = (
    """\
[Unit]
Description=Socket of the CRI for Docker Engine
PartOf=cri-docker.service

[Socket]
ListenStream=%s
SocketMode=0660
SocketUser=root
SocketGroup=root

[Install]
WantedBy=sockets.target
"""
    % SOCKET
)
