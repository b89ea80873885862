# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module documents, what its code accepts, and how its examples use it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring

CHECKOUT = Path(__file__).resolve().parents[3]
COLLECTION = "kubenode.provision"
PLUGINS = f"ansible_collections.{COLLECTION}.plugins"
RULES = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")


class Captured(BaseException):
    """Carries the argument spec out of a plugin; a BaseException, so that no plugin catches it."""

    def __init__(self, accepted: dict) -> None:
        super().__init__("captured")
        self.accepted = accepted


def compare(path: Path, wanted: str) -> None:
    """A file is what the specifications make it, or becomes it when that is asked for."""
    if os.environ.get("KUBENODE_TABLES") == "write" and path.read_text(encoding="utf-8") != wanted:
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted, "write it: KUBENODE_TABLES=write dev/run pytest tests/unit/docs"


def module_names() -> list[str]:
    """Every module of the collection."""
    return sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("[a-z]*.py"))


def documented(name: str) -> tuple[dict, list, dict]:
    """DOCUMENTATION with its fragments, EXAMPLES and RETURN."""
    path = CHECKOUT / "plugins/modules" / (name + ".py")
    doc, examples, returned, _metadata = get_docstring(
        str(path), fragment_loader, collection_name=COLLECTION, is_module=True, plugin_type="module"
    )
    return doc, yaml.safe_load(examples) or [], yaml.safe_load(returned) if isinstance(returned, str) else returned


def accepted(name: str) -> dict:
    """Keyword arguments of the code's AnsibleModule, or of the action plugin's validate_argument_spec."""
    module = importlib.import_module(f"{PLUGINS}.modules.{name}")
    try:
        if hasattr(module, "main"):
            _capture_module(module.main)
        else:
            _capture_action(importlib.import_module(f"{PLUGINS}.action.{name}").ActionModule)
    except Captured as captured:
        return captured.accepted
    raise AssertionError(f"{name} neither makes an AnsibleModule nor calls validate_argument_spec")


def _capture_module(main) -> None:
    def init(self, argument_spec, **rest):
        raise Captured(dict(rest, argument_spec=argument_spec))

    with mock.patch.object(AnsibleModule, "__init__", init):
        main()


def _capture_action(action) -> None:
    def validate(self, argument_spec=None, **rest):
        raise Captured(dict(rest, argument_spec=argument_spec, supports_check_mode=self._supports_check_mode))

    # a task without arguments; its spec is asked for before anything is done with a machine
    task = mock.MagicMock(args={}, async_val=0, check_mode=False, diff=False, environment=[], delegate_to=None)
    plugin = action(task, mock.MagicMock(), mock.MagicMock(), mock.MagicMock(), mock.MagicMock(), mock.MagicMock())
    with mock.patch.object(ActionBase, "validate_argument_spec", validate):
        plugin.run(task_vars={})


def example_tasks(examples: list, name: str) -> Iterator[dict]:
    """Arguments of every task that uses the module, in plays and blocks too."""
    for entry in examples:
        for section in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from example_tasks(entry.get(section) or [], name)
        if f"{COLLECTION}.{name}" in entry:
            yield entry[f"{COLLECTION}.{name}"] or {}


def concrete(value, option: dict):
    """A value of the option's type in place of a template; None for an item that cannot be made up."""
    if isinstance(value, str) and value.lstrip().startswith("{{"):
        if option.get("choices"):
            return option["choices"][0]
        return {"list": [], "dict": None, "bool": True, "int": 1, "float": 1.0}.get(option.get("type"), "value")
    suboptions = option.get("options") or {}
    if isinstance(value, dict) and suboptions:
        return {key: concrete(item, suboptions.get(key, {})) for key, item in value.items()}
    if isinstance(value, list):
        element = {"type": option.get("elements"), "options": suboptions}
        return [item for item in (concrete(item, element) for item in value) if item is not None]
    return value


def example_errors(arguments: dict, code: dict) -> list[str]:
    """What Ansible would say of these arguments."""
    spec = code["argument_spec"]
    made = {name: concrete(value, spec.get(name, {})) for name, value in arguments.items()}
    validator = ArgumentSpecValidator(spec, **{rule: code[rule] for rule in RULES if code.get(rule)})
    return validator.validate({name: value for name, value in made.items() if value is not None}).error_messages


def spec_differences(documentation: dict, spec: dict, where: str = "") -> list[str]:
    """Where documentation and code disagree, suboptions included."""
    result = [f"{where}{name} is not documented" for name in sorted(set(spec) - set(documentation))]
    result += [f"{where}{name} is documented only" for name in sorted(set(documentation) - set(spec))]
    for name in sorted(set(spec) & set(documentation)):
        doc, code = documentation[name], spec[name]
        pairs = {
            "default": (doc.get("default"), code.get("default")),
            "type": (doc.get("type", "str"), code.get("type", "str")),
            "elements": (doc.get("elements"), code.get("elements")),
            "required": (bool(doc.get("required")), bool(code.get("required"))),
            "choices": (list(doc.get("choices") or []), list(code.get("choices") or [])),
            "aliases": (sorted(doc.get("aliases") or []), sorted(code.get("aliases") or [])),
        }
        result += [
            f"{where}{name}: {field} is {documented!r} in the documentation, {coded!r} in the code"
            for field, (documented, coded) in pairs.items()
            if documented != coded
        ]
        result += spec_differences(doc.get("suboptions") or {}, code.get("options") or {}, where + name + ".")
    return result


def undocumented_returns(returned: dict, where: str = "") -> list[str]:
    """Results that lack a description, a type or the condition under which they come."""
    result = []
    for name, entry in returned.items():
        result += [
            f"{where}{name} has no {field}"
            for field in ("description", "type", *([] if where else ["returned"]))
            if not entry.get(field)
        ]
        result += undocumented_returns(entry.get("contains") or {}, where + name + ".")
    return result
