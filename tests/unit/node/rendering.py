# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole plan as text that a person can read and compare."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._node import node_artifacts
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import (
    base_plan,
    downloads,
    packages,
    templates,
)
from tests.unit.node.facts import READ_AT

#: the script is the same everywhere and has a file of its own
_PROBE = "health/probe"
PROBE_SCRIPT = templates.render("base", "runtime-probe.sh.j2", {"template_path": []})


def rendered(node: dict[str, Any], inputs: dict[str, Any]) -> str:
    """Refusals or the plan: packages, artifacts, then every setting in its order."""
    lines = [
        "# %s" % node["os"]["pretty_name"],
        "# %s" % node["arch"],
        "# Kubernetes %s" % inputs["kubernetes_version"],
    ]
    against = base_plan.refusals(node, inputs, READ_AT, READ_AT)
    if against:
        return "\n".join([*lines, "refused:", *("  " + text for text in against)]) + "\n"
    lines += ["warning: " + text for text in base_plan.warnings(node, inputs)]
    lines.append("packages: %s" % " ".join(packages.packages(node, inputs)["missing"]))
    for item in downloads.artifacts(node, inputs):
        lines += [
            "",
            "%s %s" % (item["name"], item["version"]),
            "  from %s" % item["url"],
            "  %s %s" % node_artifacts.pinned_digest(item),
        ]
        lines += ["  %s" % _place(entry) for entry in item["install"]]
    secrets = base_plan.secrets(node, inputs)
    for item in base_plan.settings(node, {**inputs, "at": "2026-11-21T12:00:00Z"}):
        lines += ["", *_setting(item, secrets)]
    return "\n".join(lines) + "\n"


def _place(entry: dict[str, str]) -> str:
    source = entry["member"] + " " if "member" in entry else ""
    return "%s→ %s %s" % (source, entry.get("path") or entry["directory"] + "/", entry["mode"])


def _setting(item: dict[str, Any], secrets: dict[str, str]) -> list[str]:
    if item["kind"] != "file":
        rest = {key: value for key, value in item.items() if key not in ("id", "step", "kind")}
        return ["== %s: %s" % (item["id"], item["kind"]), "  " + json.dumps(rest, ensure_ascii=False)]
    head = "== %s: file %s %s%s" % (
        item["id"],
        item["path"],
        item["mode"],
        " secret" if "content_secret" in item else "",
    )
    content = secrets[item["content_secret"]] if "content_secret" in item else item["content"]
    if item["id"] == _PROBE:
        content = "(golden/runtime-probe.sh)\n"
    return [head, *("  " + line if line else "" for line in content.splitlines())]
