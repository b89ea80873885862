# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole plan as text that a person can read and compare."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._node import node_artifacts
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_plan, software, templates
from tests.unit.node.facts import READ_AT

#: the script is the same everywhere and has a file of its own
_PROBE = "health/probe"
PROBE_SCRIPT = templates.render("base", "runtime-probe.sh.j2", {"template_path": []})


def rendered(node: dict[str, Any], inputs: dict[str, Any]) -> str:
    """Refusals or the plan: packages, artifacts, then every setting in its order."""
    lines = [
        f"# {node['os']['pretty_name']}",
        f"# {node['arch']}",
        f"# Kubernetes {inputs['kubernetes_version']}",
    ]
    against = base_plan.refusals(node, inputs, READ_AT, READ_AT)
    if against:
        return "\n".join([*lines, "refused:", *("  " + text for text in against)]) + "\n"
    lines += ["warning: " + text for text in base_plan.warnings(node, inputs)]
    lines.append(f"packages: {' '.join(software.missing_packages(node, inputs))}")
    for item in software.artifacts(node, inputs):
        lines += [
            "",
            f"{item['name']} {item['version']}",
            f"  from {item['url']}",
            "  " + " ".join(node_artifacts.pinned_digest(item)),
        ]
        lines += [f"  {_place(entry)}" for entry in item["install"]]
    secrets = base_plan.secrets(node, inputs)
    for item in base_plan.settings(node, {**inputs, "at": "2026-11-21T12:00:00Z"}):
        lines += ["", *_setting(item, secrets)]
    return "\n".join(lines) + "\n"


def _place(entry: dict[str, str]) -> str:
    source = entry["member"] + " " if "member" in entry else ""
    return f"{source}→ {entry.get('path') or entry['directory'] + '/'} {entry['mode']}"


def _setting(item: dict[str, Any], secrets: dict[str, str]) -> list[str]:
    if item["kind"] != "file":
        rest = {key: value for key, value in item.items() if key not in ("id", "step", "kind")}
        return [f"== {item['id']}: {item['kind']}", "  " + json.dumps(rest, ensure_ascii=False)]
    head = f"== {item['id']}: file {item['path']} {item['mode']}{' secret' if 'content_secret' in item else ''}"
    content = secrets[item["content_secret"]] if "content_secret" in item else item["content"]
    if item["id"] == _PROBE:
        content = "(golden/runtime-probe.sh)\n"
    return [head, *("  " + line if line else "" for line in content.splitlines())]
