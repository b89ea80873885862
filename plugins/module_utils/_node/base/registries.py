# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Registry mirrors as files below certs.d, which containerd reads anew for every pull."""

from __future__ import annotations

import base64

from . import parts, pem, toml
from .containerd import CERTS_DIR

_SERVERS = {"docker.io": "https://registry-1.docker.io"}


def files(inputs):
    """One hosts.toml for each registry, and the CA files it names. A file with credentials is secret and 0600."""
    result = []
    for host, mirrors in inputs["registry_mirrors"].items():
        folder = "%s/%s" % (CERTS_DIR, host)
        result.append(parts.directory("runtime/certs-dir-" + host, folder))
        secret = any(_header(mirror) for mirror in mirrors)
        blocks = [] if host == "_default" else ["server = %s\n" % toml.string(_SERVERS.get(host, "https://" + host))]
        for mirror in mirrors:
            authorities, cas = [], mirror.get("ca") or ""
            if cas.startswith("/"):
                authorities = [cas]
            for certificate in pem.certificates(cas):
                path = "%s/ca-%s.crt" % (folder, pem.name_of(certificate))
                authorities.append(path)
                result.append(
                    parts.file("runtime/certs-ca-%s-%s" % (host, pem.name_of(certificate)), path, certificate)
                )
            blocks.append(_block(mirror, authorities))
        content = parts.HEADER + "\n".join(blocks)
        path = folder + "/hosts.toml"
        result.append(parts.file("runtime/certs-" + host, path, content, "0600" if secret else "0644", secret))
    # two mirrors of one registry may share a CA
    return list({item["id"]: item for item in result}.values())


def _header(mirror):
    header = dict(mirror.get("header") or {})
    if mirror.get("username"):
        pair = "%s:%s" % (mirror["username"], mirror["password"])
        header["Authorization"] = "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")
    return header


def _block(mirror, authorities):
    name = "host.%s" % toml.string(mirror["url"].rstrip("/"))
    lines = ["[%s]" % name, "  capabilities = %s" % toml.value(["pull", "resolve"])]
    if authorities:
        lines.append("  ca = %s" % toml.value(authorities))
    for field in ("skip_verify", "override_path"):
        if mirror.get(field):
            lines.append("  %s = true" % field)
    header = _header(mirror)
    if header:
        lines.append("  [%s.header]" % name)
        lines += ["    %s = %s" % (toml.key(key), toml.value(value)) for key, value in header.items()]
    return "\n".join(lines) + "\n"
