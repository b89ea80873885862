# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Step runtime: containerd or Docker Engine, configured and running, and crictl pointed at it."""

from __future__ import annotations

from . import containerd, docker, parts, registries, toml, trust

#: settings of other steps that a daemon reads only when it starts
_PROXY = "proxy/%s"


def socket(inputs):
    """Path of the CRI socket."""
    return docker.SOCKET if inputs["container_runtime"] == "docker" else containerd.SOCKET


def units(inputs):
    """The runtime's units, the one the kubelet waits for last."""
    return (
        ["docker.service", "cri-docker.service"] if inputs["container_runtime"] == "docker" else ["containerd.service"]
    )


def runtime(node, inputs):
    """Files first, then the units."""
    crictl = "".join(
        "%s: %s\n" % pair
        for pair in (
            ("runtime-endpoint", "unix://" + socket(inputs)),
            ("image-endpoint", "unix://" + socket(inputs)),
            ("timeout", "10"),
        )
    )
    result = [parts.file("runtime/crictl", "/etc/crictl.yaml", parts.HEADER + crictl)]
    return result + (_docker(node, inputs) if inputs["container_runtime"] == "docker" else _containerd(node, inputs))


def _containerd(node, inputs):
    text = parts.HEADER + toml.dumps(containerd.config(node, inputs))
    result = [
        parts.directory("runtime/certs-dir", containerd.CERTS_DIR),
        parts.file("runtime/config", containerd.CONFIG, text),
        *registries.files(inputs),
    ]
    if inputs["containerd_source"] == "tarball":
        path = parts.UNIT_DIR + "/containerd.service"
        result.append(parts.file("runtime/unit", path, parts.HEADER + containerd.unit(node, inputs)))
    elif ((node.get("base") or {}).get("runtime") or {}).get("source") == "tarball":
        # what an earlier run wrote would hide the unit of the package
        result.append(parts.absent("runtime/unit", parts.UNIT_DIR + "/containerd.service"))
    result.append(
        parts.drop_in("runtime/drop-in", "containerd.service", "10-kubenode.conf", containerd.drop_in(node, inputs))
    )
    restart = ["runtime/config", "runtime/unit", "runtime/drop-in", _PROXY % "containerd", "artifact:containerd"]
    result.append(_running("containerd.service", inputs, restart))
    return result


def _docker(node, inputs):
    result = [
        parts.file("runtime/config", docker.CONFIG, docker.daemon(inputs)),
        parts.drop_in("runtime/drop-in", "docker.service", "10-kubenode.conf", docker.DROP_IN),
        parts.file("runtime/cri-socket", parts.UNIT_DIR + "/cri-docker.socket", parts.HEADER + docker.SOCKET_UNIT),
        parts.file(
            "runtime/cri-unit", parts.UNIT_DIR + "/cri-docker.service", parts.HEADER + docker.shim_unit(node, inputs)
        ),
    ]
    result.append(_running("docker.service", inputs, ["runtime/config", "runtime/drop-in", _PROXY % "docker"]))
    result.append(parts.unit("runtime/cri-socket-unit", "cri-docker.socket", enabled=True, state="started"))
    restart = ["runtime/cri-unit", "runtime/cri-socket", _PROXY % "cri-docker", "artifact:cri-dockerd"]
    result.append(_running("cri-docker.service", inputs, restart))
    return result


def _running(name, inputs, restart):
    restart = [*restart, *trust.ids(inputs)]
    identity = "runtime/" + name.partition(".")[0] + "-unit"
    return parts.unit(identity, name, enabled=True, masked=False, state="started", restart_on=restart)
