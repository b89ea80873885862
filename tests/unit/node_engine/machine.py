# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in a folder: its files are real, its programs are described here, and it remembers what was run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._node.host import PENDING_FILE, Done, Host, Pending
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Context
from tests.folders import put


class PowerCut(BaseException):
    """The run ends here, in the middle of its work."""


class Machine:
    """systemd and other programs, as far as node_settings speaks with them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: dict[str, dict[str, str]] = {}
        self.ran: list[str] = []
        #: beginning of a command line → what it answers, or what it does
        self.programs: dict[str, Done | Callable[[], Done]] = {}
        self.host = Host(str(root), self.run_all)
        self.warnings: list[str] = []
        (root / "run/systemd/system").mkdir(parents=True)

    def file(self, path: str) -> Path:
        """Where a path of the machine lies."""
        return self.root / path.lstrip("/")

    def put(self, path: str, text: str = "", mode: int = 0o644) -> None:
        """Write a file."""
        put(self.file(path), text, mode)

    def unit(self, name: str, active: str = "inactive", enabled: str = "disabled", **more: str) -> dict[str, str]:
        """Install a unit."""
        given = {"LoadState": "loaded", "ActiveState": active, "UnitFileState": enabled, "Type": "notify"}
        self.units[name] = {**given, "ConditionTimestampMonotonic": "0", **more}
        return self.units[name]

    def run_all(self, commands: Sequence[tuple]) -> list[Done]:
        """What Host calls for its programs."""
        return [self._run([os.path.basename(argv[0]), *argv[1:]]) for argv, *_rest in commands]

    def _run(self, argv: list[str]) -> Done:
        line = " ".join(argv)
        if argv[:2] != ["systemctl", "show"]:
            self.ran.append(line)
        for begin, answer in self.programs.items():
            if line.startswith(begin):
                return answer if isinstance(answer, Done) else answer()
        return self._systemctl(argv[1:]) if argv[0] == "systemctl" else Done(0, "", "")

    def _systemctl(self, words: list[str]) -> Done:
        verb, names = words[0], words[words.index("--") + 1 :] if "--" in words else []
        if verb == "show":
            blocks = [self.units.get(name, {"LoadState": "not-found", "ActiveState": "inactive"}) for name in names]
            return Done(0, "\n\n".join("\n".join(f"{k}={v}" for k, v in block.items()) for block in blocks) + "\n", "")
        if verb in ("list-unit-files", "list-units"):
            return Done(0, "".join(f"{name} x x\n" for name in self.units if name.endswith(".swap")), "")
        changes = {
            "start": {"ActiveState": "active"},
            "restart": {"ActiveState": "active"},
            "stop": {"ActiveState": "inactive"},
            "enable": {"UnitFileState": "enabled"},
            "disable": {"UnitFileState": "disabled"},
            "mask": {"UnitFileState": "masked", "LoadState": "masked"},
            "unmask": {"UnitFileState": "disabled", "LoadState": "loaded"},
        }
        for name in names:
            self.units[name].update(changes.get(verb, {}))
        if verb == "daemon-reload":
            for folder in ("etc/systemd/system", "usr/lib/systemd/system"):
                for path in (self.root / folder).glob("*.*"):
                    if path.name not in self.units:
                        self.unit(path.name)
        return Done(0, "", "")

    def context(self, check_mode: bool = False, changed: Sequence[str] = ()) -> Context:
        """What the module would make."""
        return Context(self.host, check_mode, Pending(self.host), changed, self.warnings.append)

    def plan(self, settings: list[dict], **options: Any) -> list[engine.Planned]:
        """Check mode."""
        assert engine.setting_errors(settings) == []
        return engine.plan(self.context(True), settings, **options)

    def apply(self, settings: list[dict], changed: Sequence[str] = (), only: Sequence[str] = ()) -> dict[str, bool]:
        """One run of node_settings: which settings changed, by id."""
        assert engine.setting_errors(settings) == []
        self.ran.clear()
        context = self.context(False, changed)
        results = engine.apply(context, engine.plan(context, settings, only), settings)
        return {result["id"]: result["changed"] for result in results}

    @property
    def pending(self) -> str:
        """What remains to do."""
        return self.file(PENDING_FILE).read_text() if self.file(PENDING_FILE).exists() else "{}"


def setting(kind: str, label: str = "", /, **fields: Any) -> dict[str, Any]:
    """A setting; files belong to the user that runs the tests."""
    own = {"owner": str(os.getuid()), "group": str(os.getgid())} if kind in ("file", "directory") else {}
    return {"id": label or kind, "step": "s", "kind": kind, **own, **fields}
