# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Flags of a kubelet: only those its minor version knows are written (pure)."""

from __future__ import annotations

import re

from .config import minor_number, nearest

#: flag → the role variable that sets it
OWNED = {
    "bootstrap-kubeconfig": "join_token",
    "kubeconfig": "join_api_server",
    "config": "join_kubelet_config",
    "config-dir": "join_kubelet_drop_ins",
    "hostname-override": "join_node_name",
    "node-ip": "join_node_ip",
    "node-labels": "join_labels",
    "cloud-provider": "join_cloud_provider",
    "provider-id": "join_provider_id",
    "register-with-taints": "join_taints",
}
#: Flags of ours below the oldest minor with a table: the first minor that takes each without an environment variable.
_SINCE = {"config-dir": (1, 30)}
#: cAdvisor's flags but --housekeeping-interval: a kubelet that is given one does not start any more, since this minor
_CADVISOR_SINCE = (1, 37)
_CADVISOR = (
    "application-metrics-count-limit",
    "boot-id-file",
    "container-hints",
    "containerd",
    "containerd-namespace",
    "enable-load-reader",
    "event-storage-age-limit",
    "event-storage-event-limit",
    "global-housekeeping-interval",
    "log-cadvisor-usage",
    "machine-id-file",
    "storage-driver-buffer-duration",
    "storage-driver-db",
    "storage-driver-host",
    "storage-driver-password",
    "storage-driver-secure",
    "storage-driver-table",
    "storage-driver-user",
)
# systemd splits $KUBELET_ARGS at white space and reads quotes, backslashes and % on its way
_UNSAFE = re.compile(r"[\s\"'\\$`\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


class InvalidFlag(ValueError):
    """The flag is refused; the text names it and the fix."""


def takes(name, minor, table):
    """Whether a kubelet of this minor has a flag of ours; ``table`` is None for a minor without one."""
    return name in table if table is not None else minor_number(minor) >= _SINCE.get(name, (0, 0))


def flag_lines(wanted, minor, table):
    """``--name=value`` for each of ``wanted`` ({flag: value, empty when unset}) that the minor has."""
    return [
        "--%s=%s" % (name, check_value(name, value))
        for name, value in wanted.items()
        if value and takes(name, minor, table)
    ]


def check_extra(extra, table, minor, allow=False):
    """The user's flags as text, without those set to null; raise :class:`InvalidFlag` for one that cannot be.

    ``allow``: whether the kubelet knows a flag is left to the kubelet.
    """
    result = {}
    for given, value in sorted(extra.items()):
        name = str(given).lstrip("-")
        if name in OWNED:
            raise InvalidFlag("--%s is written by the role; set %s instead" % (name, OWNED[name]))
        if not _NAME.match(name):
            raise InvalidFlag("%r is no name of a flag" % (given,))
        if value is None:
            continue
        if not allow:
            _check_known(name, table, minor)
        result[name] = check_value(name, _text(value))
    return result


def _check_known(name, table, minor):
    if name in _CADVISOR and minor_number(minor) >= _CADVISOR_SINCE:
        text = "kubelet %s does not start with --%s; of cAdvisor's flags, it has --housekeeping-interval only"
        raise InvalidFlag(text % (minor, name))
    if table is not None and name not in table:
        raise InvalidFlag("kubelet %s knows no flag --%s%s" % (minor, name, nearest(name, table)))


def check_value(name, value):
    """Return ``value`` when the unit can pass it on unchanged, else raise :class:`InvalidFlag`."""
    if _UNSAFE.search(value):
        raise InvalidFlag("--%s: the value %r holds white space, a quote, a backslash, '$' or '`'" % (name, value))
    return value


def _text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        raise InvalidFlag("%r: the value of a flag is a text" % (value,))
    return str(value)
