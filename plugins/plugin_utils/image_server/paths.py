# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the role image_server puts what, on the machine."""

from __future__ import annotations

USER = "kubenode-images"
UNIT = "kubenode-image-server.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
LAUNCHER = "/usr/local/bin/kubenode-image-server"
PROGRAMS = "/usr/local/lib/kubenode-image-server"

CONFIG = "/etc/kubenode-image-server"
ENVIRONMENT = CONFIG + "/environment"
SECRET = CONFIG + "/secret"
PULL_SECRET = CONFIG + "/pull-secret"
TLS_CERTIFICATE = CONFIG + "/tls.crt"
TLS_KEY = CONFIG + "/tls.key"
REGISTRIES = CONFIG + "/registries.conf"
CA_BUNDLE = CONFIG + "/ca-bundle.pem"

DATA = "/var/lib/kubenode-image-server"
BASES = DATA + "/bases"
NMSTATE = DATA + "/nmstate"
OVERLAYS = DATA + "/overlays"

RUNTIME = "kubenode-image-server"  # below /run and /var/cache
URLS = f"/run/{RUNTIME}/urls.json"
DIGESTS = f"/var/cache/{RUNTIME}/base-digests.json"  # the service writes it
#: What earlier runs of the role wrote, so that only that is ever removed.
RECORD = "/etc/kubenode/image-server.json"
ARTIFACTS = "/etc/kubenode/artifacts"


def host(name: str) -> str:
    """A file of a host, by its name."""
    return f"{NMSTATE}/{name}"


def base(kind: str, arch: str = "") -> str:
    """The file of a base (``iso`` or ``initramfs``) by the program's rule; without architecture the usual one."""
    return f"{BASES}/coreos_{arch}.{kind}" if arch else f"{BASES}/coreos.{kind}"
