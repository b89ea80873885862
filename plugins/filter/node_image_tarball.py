# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the playbook node_image_tarball; their documentation is in the .yml files of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def node_image_tarballs(
    builds: list[dict[str, Any]], inputs: Mapping[str, Any], snapshots: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """See node_image_tarballs.yml."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_tarballs as _tarballs

    try:
        return _tarballs.tarballs(builds, inputs, snapshots or [])
    except _tarballs.TarballsNotUsable as exc:
        raise AnsibleFilterError(str(exc)) from None


def node_image_tarball_outcomes(*given: Any, **named: Any) -> Any:
    """See node_image_tarball_outcomes.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_tarballs as _tarballs

    return _tarballs.outcomes(*given, **named)


def node_image_tarball_record(*given: Any, **named: Any) -> Any:
    """See node_image_tarball_record.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_tarballs as _tarballs

    return _tarballs.record(*given, **named)


def node_image_tarball_table(*given: Any, **named: Any) -> Any:
    """See node_image_tarball_table.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_tarballs as _tarballs

    return _tarballs.table(*given, **named)


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {
            "node_image_tarballs": node_image_tarballs,
            "node_image_tarball_outcomes": node_image_tarball_outcomes,
            "node_image_tarball_record": node_image_tarball_record,
            "node_image_tarball_table": node_image_tarball_table,
        }
