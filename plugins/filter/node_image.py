# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the playbook node_image_snapshot; their documentation is in the .yml files of their names."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

_COLLECTION = Path(__file__).resolve().parents[2]


def role_version() -> str:
    """The version of this collection: built ones have a manifest, a checkout has galaxy.yml."""
    manifest = _COLLECTION / "MANIFEST.json"
    if manifest.exists():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    found = re.search(r"^version: *(\S+)", (_COLLECTION / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def node_image_builds(inputs: Mapping[str, Any], bases: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """See node_image_builds.yml."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_builds as _builds

    if not isinstance(inputs, Mapping):
        raise AnsibleFilterError("node_image_builds: feed it a dictionary with matrix, uploads and server_types")
    version = role_version()
    owner = inputs.get("owner") or f"{getpass.getuser()}@{socket.gethostname()}"
    try:
        return _builds.builds({**inputs, "owner": owner, "role_version": version}, bases)
    except _builds.BuildsNotUsable as exc:
        raise AnsibleFilterError(str(exc)) from None


def node_image_faults(*given: Any, **named: Any) -> Any:
    """See node_image_faults.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_faults as _faults

    return _faults.faults(*given, **named)


def node_image_outcomes(*given: Any, **named: Any) -> Any:
    """See node_image_outcomes.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_builds as _builds

    return _builds.outcomes(*given, **named)


def node_image_table(*given: Any, **named: Any) -> Any:
    """See node_image_table.yml."""
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _node_image_builds as _builds

    return _builds.table(*given, **named)


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {
            "node_image_builds": node_image_builds,
            "node_image_faults": node_image_faults,
            "node_image_outcomes": node_image_outcomes,
            "node_image_table": node_image_table,
        }
