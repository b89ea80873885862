# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""From the module's options to its result."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import DIGESTS
from ..errors import ImageError
from ..nmstate import nmstatectl
from . import inspection, request
from .files import Owned
from .work import RESET, SHOW, Build, failures


def run(module: Any) -> None:
    """The module's work; ends it."""
    module.no_log_values.update(secret_texts(module.params))
    DIGESTS.keep(os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kubenode.provision"))
    try:
        if module.params["mode"] in (SHOW, RESET):
            _inspect(module)
        else:
            _build(module)
    except ImageError as error:
        module.fail_json(msg=str(error), hosts=[], shared=[], shared_msg="", images=[], urls={})


def secret_texts(params: Mapping[str, Any]) -> set[str]:
    """Texts inside of secrets: Ansible masks a secret as a whole only, not a part of it."""
    found: set[str] = set()
    try:
        auths = json.loads(params["pull_secret"] or "{}")["auths"].values()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return found
    for entry in auths:
        if isinstance(entry, dict):
            found.update(text for text in entry.values() if isinstance(text, str) and len(text) >= 8)
    return found


def _build(module: Any) -> None:
    params = module.params
    owned = Owned(request.mode_of("permissions", params["permissions"]), _owner(module))
    work = Build(params, check=module.check_mode, diff=module._diff, owned=owned, run=_nmstatectl(module))
    work.run()
    for result in work.results:
        for warning in result.warnings:
            module.warn("%s: %s" % (result.name, warning))
    everyone = [*work.results, work.shared]
    hosts = [result.told() for result in work.results]
    outcome: dict[str, Any] = {
        "changed": any(result.changed for result in everyone),
        "hosts": hosts,
        "shared": work.shared.images,
        "shared_msg": work.shared.error,
        "images": [],
        "urls": {host["name"]: host["urls"] for host in hosts if host["urls"]},
    }
    if module._diff:
        outcome["diff"] = work.diff
    failed = [result for result in everyone if result.error]
    if failed and params["on_error"] == "fail":
        count = sum(1 for result in work.results if result.error)
        module.fail_json(msg="%d of %d hosts failed: %s" % (count, len(hosts), failures(failed)), **outcome)
    module.exit_json(**outcome)


def _inspect(module: Any) -> None:
    diff: list[dict[str, str]] = []
    if module.params["mode"] == SHOW:
        images = inspection.show(module.params["images"])
    else:
        images, diff = inspection.reset(module.params["images"], check=module.check_mode)
    outcome: dict[str, Any] = {
        "changed": any(image["changed"] for image in images), "images": images, "hosts": [], "shared": [],
        "shared_msg": "", "urls": {},
    }  # fmt: skip
    if module._diff:
        outcome["diff"] = diff
    failed = [image for image in images if image["failed"]]
    if failed and module.params["on_error"] == "fail":
        text = "; ".join(image["msg"] for image in failed)
        module.fail_json(msg="%d of %d images failed: %s" % (len(failed), len(images), text), **outcome)
    module.exit_json(**outcome)


def _owner(module: Any) -> Any:
    """Sets user and group; with ``check`` it only tells whether they differ."""
    user, group = module.params["owner"], module.params["group"]
    for option, name, known in (("owner", user, pwd.getpwnam), ("group", group, grp.getgrnam)):
        if name is not None and not re.fullmatch(r"[0-9]{1,10}", name):
            try:
                known(name)
            except KeyError as error:
                raise ImageError("%s %r does not exist on this machine" % (option, name)) from error

    def set_owner(path: str, check: bool) -> bool:
        if user is None and group is None:
            return False
        was, module.check_mode = module.check_mode, check or module.check_mode
        try:
            changed = module.set_owner_if_different(path, user, False)
            return bool(module.set_group_if_different(path, group, changed))
        finally:
            module.check_mode = was

    return set_owner


def _nmstatectl(module: Any) -> Any:
    def start(command: Sequence[str], text: str) -> tuple[int, str, str]:
        code, out, err = module.run_command(list(command), data=text, binary_data=True)
        return code, out, err

    return nmstatectl.chosen(module.params["nmstate"], module.get_bin_path, start)
