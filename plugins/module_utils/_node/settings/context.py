# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a plan is made of: the context that all settings share, and one step for each setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

from .. import facts, info
from ..host import Host, Pending, label

#: Folders whose content systemd reads again only after a daemon-reload.
SYSTEMD_FOLDERS = (
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)
#: Files of which generators make units.
GENERATOR_FILES = ("/etc/fstab", "/etc/systemd/zram-generator.conf")
_PROPERTIES = (
    "Id,Type,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,SourcePath,ConditionResult,"
    "ConditionTimestampMonotonic,NeedDaemonReload,InvocationID,TimeoutStartUSec"
)


class _Named(TypedDict):
    id: str
    step: str
    kind: str


class Setting(_Named, total=False):
    """One setting: ``id``, ``step``, ``kind``, and the fields of its kind (see engine.KINDS)."""

    path: str
    mode: str
    owner: str
    group: str
    content: str
    content_b64: str
    content_secret: str
    secret: bool
    validate: list[str]
    create_only: bool
    target: str
    recursive: bool
    shown: bool
    keep_full: bool
    begins: str
    name: str
    #: a flag, but of sysctl a list of keys
    optional: Any
    values: dict[str, Any]
    enabled: bool | None
    masked: bool | None
    state: str | None
    restart_on: list[str]
    reload_on: list[str]
    wait: int
    argv: list[str]
    on: list[str]
    packages: list[str]
    held: bool
    ports: list[str]


class SettingError(Exception):
    """A setting cannot be reached; the text says why."""


class Step(NamedTuple):
    """What one setting does. ``act`` is called when it changes something, ``check`` when it does not."""

    changed: bool
    before: str
    after: str
    reason: str = ""
    act: Callable[[], None] | None = None
    check: Callable[[], None] | None = None
    diff: dict[str, str] | None = None
    #: whether what waits for this setting hears of its change
    heard: bool = True


def same(state: str, reason: str = "") -> Step:
    """A step that has nothing to do."""
    return Step(False, state, state, reason)


class Context:
    """What is known while settings are planned, and what remains to do while they are applied."""

    def __init__(
        self,
        host: Host,
        check_mode: bool,
        pending: Pending,
        changed: Iterable[str],
        warn: Callable[[str], None],
    ) -> None:
        self.host, self.check_mode, self.pending = host, check_mode, pending
        #: ids that changed or will have when the plan is applied
        self.changed = set(changed)
        #: paths that the plan makes (True) or removes (False)
        self.paths: dict[str, bool] = {}
        #: whether the plan changes what systemd reads, and whether that has happened
        self.reload_comes = self.reload_owed = False
        self.container = host.container
        self._units: dict[str, dict[str, str]] = {}
        self._modules: dict[str, str] = {}
        self._said: set[str] = set()
        self._warn = warn

    def warn(self, text: str) -> None:
        """Warn of something once."""
        if text not in self._said:
            self._said.add(text)
            self._warn(text)

    def heard(self, who: str, ids: Iterable[str]) -> list[str]:
        """Those of ``ids`` that changed now, or in an earlier run before ``who`` was notified."""
        return [key for key in ids if key in self.changed or key in self.pending.ids(who)]

    def touches(self, path: str, there: bool = True) -> None:
        """A path is made or removed by the plan."""
        self.paths[path] = there
        self.reload_comes = self.reload_comes or _read_by_systemd(path)

    def wrote(self, path: str) -> None:
        """A path was made or removed now."""
        self.reload_owed = self.reload_owed or _read_by_systemd(path)

    def look_at(self, units: Iterable[str] = (), modules: Sequence[str] = ()) -> None:
        """Ask for the state of these at once."""
        units = list(dict.fromkeys(units))
        if units:
            self._units.update(read_units(self.host, units))
        if modules:
            self._modules.update(info.kernel_modules(self.host, modules))

    def unit(self, name: str, fresh: bool = False) -> dict[str, str]:
        if fresh or name not in self._units:
            self.look_at([name])
        return self._units.get(name, {})

    def module(self, name: str) -> str:
        """loaded, builtin, available or missing."""
        if name not in self._modules:
            self.look_at(modules=[name])
        return self._modules[name]

    def reload(self) -> None:
        """Reload systemd when its files have changed."""
        if not self.reload_owed:
            return
        if self.host.systemd_runs:
            done = self.host.run(["systemctl", "daemon-reload"], 90)
            if done.code:
                raise SettingError(f"systemctl daemon-reload failed: {done.err.strip()}")
        self.reload_owed = False
        self.pending.drop(["daemon-reload"])

    def label(self, paths: Iterable[str]) -> None:
        """Give new files the SELinux label that the policy has for them."""
        done = label(self.host, paths)
        if done is not None and done.code:
            self.warn(f"restorecon failed: {done.err.strip()}")


def _read_by_systemd(path: str) -> bool:
    return path in GENERATOR_FILES or path.startswith(SYSTEMD_FOLDERS)


def read_units(host: Host, names: list[str]) -> dict[str, dict[str, str]]:
    """{name: properties}; where systemd does not run, only whether a unit is there and enabled."""
    if host.systemd_runs:
        done = host.run(["systemctl", "show", "--property=" + _PROPERTIES, "--"] + names, 60)
        if done.code:
            raise SettingError(f"systemctl show failed: {(done.err or done.out).strip()}")
        return facts.units(done.out, names)
    found = {}
    for name, done in zip(names, host.run_all([(["systemctl", "is-enabled", "--", name], 60, None) for name in names])):
        state = done.out.strip()
        there = bool(state) and state != "not-found"
        found[name] = {"LoadState": "loaded", "UnitFileState": state} if there else {"LoadState": "not-found"}
    return found
