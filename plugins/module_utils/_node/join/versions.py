# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which kubelet may talk to which API server (pure).

https://kubernetes.io/releases/version-skew-policy/#kubelet
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
#: Since 1.25 a kubelet may be three minors older, before that two.
_THREE_MINORS_SINCE = (1, 25)


def version_pair(text):
    """(major, minor) of v1.36.4 and the like; raise ValueError for anything else."""
    found = _VERSION.match(text)
    if not found:
        raise ValueError("%r is no version" % (text,))
    return int(found.group(1)), int(found.group(2))


def skew_problem(kubelet, server):
    """Why these versions do not go together, empty when they do."""
    ours, theirs = version_pair(kubelet), version_pair(server)
    if ours[0] != theirs[0]:
        return "kubelet %s, API server %s: another major version" % (kubelet, server)
    if ours > theirs:
        return "kubelet %s is newer than the API server, which is %s" % (kubelet, server)
    most = 3 if ours >= _THREE_MINORS_SINCE else 2
    if theirs[1] - ours[1] > most:
        return "kubelet %s is more than %d minor versions older than the API server, which is %s" % (
            kubelet,
            most,
            server,
        )
    return ""
