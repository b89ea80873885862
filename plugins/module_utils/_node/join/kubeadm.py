# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What kubeadm is told, and what it says (pure): a JoinConfiguration, patches for the kubelet, why it failed.

https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..api.client import split_server
from . import paths
from .inputs import InvalidInput

#: kubeadm speaks v1beta4 since then.
_SINCE = (1, 31)
_PHASE = re.compile(r"error execution phase ([^\s:]+): (.*)", re.DOTALL)
#: One check of its preflight; what it says may go on in the next lines.
_CHECK = re.compile(r"^\s*\[ERROR ([^\]\s]+)\]: (.*(?:\n(?!\s*\[|error).*)*)", re.MULTILINE)
_NO_NEWS = re.compile(r"^To see the stack trace of .*$", re.MULTILINE)
_LONGEST = 1500

#: ``code`` of codes.CODES; ``of_kubelet``: kubeadm waited in vain for the kubelet, which may know why.
Failure = namedtuple("Failure", ("phase", "code", "detail", "of_kubelet"))


def files(kubelet, inputs, dump):
    """Settings of the files that `kubeadm join` reads; the one with the token comes from node_settings' secrets."""
    if tuple(map(int, kubelet.minor.split("."))) < _SINCE:
        raise InvalidInput("join_method: kubeadm needs Kubernetes 1.31 or newer, the kubelet is %s" % kubelet.version)
    patch = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    flags = "--bootstrap-kubeconfig=%s --kubeconfig=%s --config=%s" % (
        paths.BOOTSTRAP_KUBECONFIG,
        paths.KUBECONFIG,
        paths.CONFIG,
    )
    if kubelet.reads_drop_ins:
        flags += " --config-dir=" + paths.DROP_INS
    common = {"step": "join", "kind": "file", "mode": "0644"}
    listed = [
        {"id": "join/dir/patches", "step": "join", "kind": "directory", "path": paths.PATCHES, "mode": "0755"},
        dict(
            common,
            id="join/patch",
            path=paths.PATCHES + "/kubeletconfiguration+merge.yaml",
            content=dump(dict(patch, **_over(kubelet, inputs))),
        ),
        dict(common, id="join/args", path=paths.KUBELET_ENV, content='KUBELET_ARGS="%s"\n' % flags),
        dict(common, id="join/kubeadm-join", path=paths.KUBEADM_JOIN, mode="0600", content_secret="kubeadm-join"),
    ]
    if kubelet.reads_drop_ins:
        listed.append(
            {"id": "join/dir/drop-ins", "step": "join", "kind": "directory", "path": paths.DROP_INS, "mode": "0755"}
        )
        for name, content in sorted(inputs["kubelet_drop_ins"].items()):
            text = dump(dict(patch, **content))
            listed.append(dict(common, id="join/drop-in/" + name, path=paths.DROP_INS + "/" + name, content=text))
    return listed


def join_configuration(kubelet, inputs, token, ca_hashes):
    """The JoinConfiguration as a dictionary; it holds the token."""
    host, port = split_server(inputs["api_server"])
    extra = {
        "node-ip": ",".join(kubelet.addresses),
        "node-labels": ",".join("%s=%s" % item for item in sorted(inputs["labels"].items())),
        "cloud-provider": inputs["cloud_provider"],
    }
    extra.update(kubelet.extra_args())
    limit = "%dm%ds" % divmod(inputs["timeout"], 60)
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port),
                "token": token,
                "caCertHashes": list(ca_hashes),
            }
        },
        "nodeRegistration": {
            "name": kubelet.name,
            "criSocket": kubelet.config()["containerRuntimeEndpoint"],
            "taints": kubelet.taints,
            "kubeletExtraArgs": [{"name": name, "value": value} for name, value in sorted(extra.items()) if value],
        },
        "patches": {"directory": paths.PATCHES},
        "timeouts": {"discovery": limit, "kubeletHealthCheck": limit, "tlsBootstrap": limit},
    }


def failure(code, errors):
    """A :class:`Failure` from its exit code and what it said on its standard error."""
    told = _NO_NEWS.sub("", errors).strip()
    match = _PHASE.search(told)
    phase, why = match.groups() if match else ("", told.rpartition("\n")[2].strip())
    if why.startswith("error: "):
        why = why[len("error: ") :]
    refused = ["%s: %s" % one for one in _CHECK.findall(told)]
    if refused:
        why = "its checks: " + "; ".join(refused)
    elif phase:
        why = "%s: %s" % (phase, why)
    detail = " ".join(why.split())[:_LONGEST] or "it ended with the exit code %d and said nothing" % code
    waited = phase.startswith("kubelet") and bool(re.search(r"waiting|healthz|deadline exceeded|timed out", why))
    return Failure(phase, "discovery_signature" if "JWS signature" in why else "kubeadm_failed", detail, waited)


def _over(kubelet, inputs):
    """The fields of this machine; all else is the cluster's, from its ConfigMap kubelet-config."""
    made = kubelet.config()
    own = ("resolvConf", "kubeReserved", "systemReserved", "providerID", "volumePluginDir", "memorySwap", "maxPods")
    over = {name: made[name] for name in own if name in made}
    if not made.get("failSwapOn", True):
        over["failSwapOn"] = False
    if made.get("serverTLSBootstrap"):
        over["serverTLSBootstrap"] = True
    over.update(inputs["kubelet_config"])
    return over
