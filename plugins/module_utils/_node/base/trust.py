# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Steps ca and proxy: what every program that talks to the network has to know."""

from __future__ import annotations

from . import parts, pem, quoting
from .systems import DEBIAN, FLATCAR, known

#: family → folder, suffix and the command that takes the folder in
_STORES = {
    DEBIAN: ("/usr/local/share/ca-certificates", "crt", ["update-ca-certificates"]),
    FLATCAR: ("/etc/ssl/certs", "pem", ["update-ca-certificates"]),
}
_DNF_STORE = ("/etc/pki/ca-trust/source/anchors", "pem", ["update-ca-trust", "extract"])
#: what never goes through a proxy, whatever the user adds
_DIRECT = ("localhost", "127.0.0.0/8", "::1", ".svc", ".cluster.local")
_DROP_IN = "20-kubenode-proxy.conf"
_APT = "/etc/apt/apt.conf.d/90-kubenode-proxy"


def _certificates(inputs):
    return [certificate for text in inputs["extra_ca"] for certificate in pem.certificates(text)]


def ids(inputs):
    """Ids of the CA files: a program reads its roots once, when it starts."""
    if not inputs["manage_ca"]:
        return []
    return list(dict.fromkeys("ca/" + pem.name_of(certificate) for certificate in _certificates(inputs)))


def ca(node, inputs):
    """One file for each certificate where the distribution's own tool takes it from, then that tool."""
    folder, suffix, command = _STORES.get(known(node).family, _DNF_STORE)
    result = {}
    for certificate in _certificates(inputs):
        name = pem.name_of(certificate)
        path = "%s/kubenode-%s.%s" % (folder, name, suffix)
        result["ca/" + name] = parts.file("ca/" + name, path, certificate)
    if not result:
        return []
    return [*result.values(), parts.handler("ca/update", command, list(result))]


def no_proxy(inputs):
    """Value of NO_PROXY."""
    own = [item.strip() for item in inputs["no_proxy"].split(",") if item.strip()]
    return ",".join(dict.fromkeys([*_DIRECT, *own]))


def environment(inputs):
    """Variables of a program that has to use the proxies; empty without a proxy."""
    values = {"HTTP_PROXY": inputs["http_proxy"], "HTTPS_PROXY": inputs["https_proxy"]}
    values = {name: value for name, value in values.items() if value}
    if values:
        values["NO_PROXY"] = no_proxy(inputs)
    return values


def proxy_units(inputs):
    """Names (without .service) of the units that talk to the network."""
    return ["docker", "cri-docker", "kubelet"] if inputs["container_runtime"] == "docker" else ["containerd", "kubelet"]


def proxy(node, inputs):
    """A drop-in for each unit and apt's own file; without a proxy they must not be there."""
    values, result = environment(inputs), []
    secret = any("@" in inputs[name] for name in ("http_proxy", "https_proxy"))
    for name in proxy_units(inputs):
        path = "%s/%s.service.d/%s" % (parts.UNIT_DIR, name, _DROP_IN)
        if not values:
            result.append(parts.absent("proxy/" + name, path))
            continue
        lines = [quoting.systemd_environment(key, value) for key, value in values.items()]
        text = "[Service]\n%s\n" % "\n".join(lines)
        result.append(parts.drop_in("proxy/" + name, name + ".service", _DROP_IN, text, secret))
    if known(node).package_manager == "apt":
        result.append(_apt(inputs, secret))
    return result


def _apt(inputs, secret):
    lines = []
    for scheme in ("http", "https"):
        value = inputs[scheme + "_proxy"]
        if value:
            lines.append("Acquire::%s::Proxy %s;" % (scheme, quoting.apt_value(value)))
    if not lines:
        return parts.absent("proxy/apt", _APT)
    header = parts.HEADER.replace("# ", "// ", 1)
    return parts.file("proxy/apt", _APT, header + "\n".join(lines) + "\n", "0600" if secret else "0644", secret)
