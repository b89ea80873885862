# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags of the kubelet: names that Go code registers, each current or deprecated."""

from __future__ import annotations

import re

from dev.kubelet_api.gosource import GoFile, Missing, Package, Sources, arguments

OPTIONS = "k8s.io/kubernetes/cmd/kubelet/app/options"
#: packages with flags that methods of foreign types add (followed by name only where imports say so)
BESIDE = ("k8s.io/kubernetes/pkg/kubelet/config",)
#: registered by the command itself
OF_THE_COMMAND = ("help",)

CURRENT, DEPRECATED = "current", "deprecated"

_ADDS = re.compile(r"add\w*flags\Z", re.I)
_REGISTRATION = re.compile(r"\b\w+\.((?:[A-Z]\w*)?Var(?:PF?)?|BoolP)\(")
_REGISTER = re.compile(r"\b(register|pflagRegister|registerDeprecated|pflagRegisterDeprecated)\(global, local, ")
_MARKED = re.compile(r"\.MarkDeprecated\(\s*\"([^\"]+)\"")
_CALL = re.compile(r"\b(\w+)\.(\w*[fF]lags)\(")
_LOCAL_CALL = re.compile(r"(?<![\w.])(\w*[fF]lags)\(")
#: a function that deprecates every flag it registered, and its exceptions
_ALL_DEPRECATED = re.compile(r"f\.Deprecated\s*=\s*deprecated")
_SPARED = re.compile(r"\"([\w-]+)\":\s*true")


def flags(sources: Sources) -> dict[str, str]:
    """Flag (without dashes) → ``current`` or ``deprecated``."""
    found = dict.fromkeys(OF_THE_COMMAND, CURRENT)
    for path in (OPTIONS, *BESIDE):
        try:
            package = sources.package(path)
        except Missing:
            if path == OPTIONS:
                raise
            continue
        for file in package.files:
            for name, body in file.functions():
                if _ADDS.match(name):
                    _merge(found, _of_body(sources, package, file, body))
    return found


def _of_body(sources: Sources, package: Package, file: GoFile, body: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _REGISTRATION.finditer(body):
        given = arguments(body, match.end() - 1)
        place = 0 if match.group(1) == "BoolP" else 1
        name = _literal(sources, package, file, given[place]) if len(given) > place else None
        if name:
            found[name] = CURRENT
    for match in _REGISTER.finditer(body):
        given = arguments(body, body.index("(", match.start()))
        name = _literal(sources, package, file, given[2])
        if name:
            found[name.replace("_", "-")] = DEPRECATED if "Deprecated" in match.group(1) else CURRENT
    for alias, function in _CALL.findall(body):
        if alias in file.imports and _ADDS.match(function):
            _merge(found, _of_package(sources, file.imports[alias], function))
    for name in _MARKED.findall(body):
        if name in found:
            found[name] = DEPRECATED
    if _ALL_DEPRECATED.search(body):
        spared = set(_SPARED.findall(body))
        found = {name: state if name in spared else DEPRECATED for name, state in found.items()}
    return found


def _of_package(sources: Sources, path: str, function: str) -> dict[str, str]:
    """Flags that one exported function of another package adds, with the functions of that package that it calls."""
    try:
        package = sources.package(path)
    except Missing:
        return {}
    bodies = {name: (file, body) for file in package.files for name, body in file.functions()}
    found: dict[str, str] = {}
    wanted, seen = [function], set()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in bodies:
            continue
        seen.add(name)
        file, body = bodies[name]
        _merge(found, _of_body(sources, package, file, body))
        if name == "AddFlags" and path.endswith("/verflag"):
            found["version"] = CURRENT  # one flag that is registered when the package is loaded
        wanted.extend(called for called in _LOCAL_CALL.findall(body) if _ADDS.match(called))
    return found


def _literal(sources: Sources, package: Package, file: GoFile, text: str) -> str | None:
    """The text itself, or that of a constant, which may be another package's."""
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    alias, dot, name = text.partition(".")
    if dot:
        if alias not in file.imports:
            return None
        package, text = sources.package(file.imports[alias]), name
    for each in package.files:
        if text in each.constants:
            return each.constants[text]
    return None


def _merge(found: dict[str, str], more: dict[str, str]) -> None:
    for name, state in more.items():
        # a flag that is registered twice is current when one of them is
        found[name] = CURRENT if CURRENT in (state, found.get(name)) else DEPRECATED
