# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are written from templates: roles/ROLE/templates, before which the user's own folders are searched.

A template sees the role's variables by their names (checked and complete), the facts of the machine as ``node``, and
what the plan gives it besides. The filters ``to_json``, ``toml`` and ``systemd_word`` write a value for such a file.
``{% extends "base/templates/kubelet.service.j2" %}`` and the like mean the role's own template.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

from ..preflight import controller_paths
from ..role_specs import ROLES
from . import formats


class TemplateFailed(ValueError):
    """A template cannot be rendered; the text names the variable, the template and why."""


def folders(role: str, given: Iterable[str], inventory_dir: str | None, search: Iterable[str]) -> list[str]:
    """The folders of ``ROLE_template_path``, absolute; raise :class:`TemplateFailed` for one that is not there."""
    found = []
    for path in given:
        try:
            found.append(controller_paths.find(path, inventory_dir, search))
        except controller_paths.NotThere as error:
            raise TemplateFailed(f"{role}_template_path: {error}") from error
        if not os.path.isdir(found[-1]):
            raise TemplateFailed(f"{role}_template_path: {found[-1]} is no folder; give folders that hold templates")
    return found


def render(role: str, template: str, inputs: Mapping[str, Any], /, **variables: Any) -> str:
    """The text of a template; raise :class:`TemplateFailed` for one that cannot be rendered.

    ``inputs``: the role's variables without ``ROLE_``, with ``template_path``.
    """
    given = {f"{role}_{variable}": value for variable, value in inputs.items()}
    try:
        return _environment(role, tuple(inputs["template_path"])).get_template(template).render(given, **variables)
    except (
        jinja2.TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise TemplateFailed(f"{role}_template_path: {template}{line}: {error or type(error).__name__}") from error


@functools.cache
def _environment(role: str, given: tuple[str, ...]) -> jinja2.Environment:
    """As Ansible's own templates are read: the line end after a block goes, what is not defined is an error."""
    searched = [*given, str(ROLES / role / "templates"), str(ROLES)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(searched),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(to_json=_to_json, toml=formats.toml_value, systemd_word=formats.systemd_word)
    return environment


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
