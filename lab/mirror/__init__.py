# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's mirror: what nodes download, under the paths of the projects that publish it, and an apt repository.

Everything is made of Debian's packages, or by other parts of the lab, on first use and kept in the cache. Versions
are Debian's. containerd 1.6.20 (bookworm), 1.7.24 (trixie) and 2.1.9 (sid), the CNI plugins 1.1.1 and 1.9.1 and
runc 1.1.5 run on bookworm and trixie; runc 1.1.15 and 1.3.6 need trixie's C library.
"""

from .content import apt, checksums, find, packaged, prepare, program
from .repository import cloud_config

__all__ = ["apt", "checksums", "cloud_config", "find", "packaged", "prepare", "program"]
