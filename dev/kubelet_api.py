# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m dev.kubelet_api`` writes the tables of a kubelet's flags and fields from Kubernetes' Go modules."""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

_COMMENT_OR_STRING = re.compile(r'("(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/', re.S)
_IMPORT_BLOCK = re.compile(r"^import\s*\(\s*\n(.*?)^\)", re.S | re.M)
_IMPORT = re.compile(r'^[ \t]*(?:([\w.]+)\s+)?"([^"]+)"', re.M)
_CONSTANT = re.compile(r'^[ \t]*(?:const\s+)?(\w+)\s*(?:\w+\s*)?=\s*"((?:\\.|[^"\\])*)"\s*$', re.M)
_FUNCTION = re.compile(r"^func\s+(?:\([^)]*\)\s*)?(\w+)\s*\(", re.M)
_BUILD = re.compile(r"^//\s*(?:go:build|\+build)\s+(.+)$", re.M)


class Missing(LookupError):
    """The sources lack something that the tables need."""


class GoFile:
    """One file, without its comments."""

    def __init__(self, text: str) -> None:
        self.text = _COMMENT_OR_STRING.sub(lambda match: match.group(1) or " ", text)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Alias → import path."""
        imports = (found for block in _IMPORT_BLOCK.findall(self.text) for found in _IMPORT.findall(block))
        return {alias or path.rsplit("/", 1)[-1]: path for alias, path in imports}

    @cached_property
    def constants(self) -> dict[str, str]:
        """Name → value of the constants that are plain strings."""
        return dict(_CONSTANT.findall(self.text))

    def functions(self) -> Iterator[tuple[str, str]]:
        """Name and body of every function and method."""
        for match in _FUNCTION.finditer(self.text):
            start = self.text.find("{\n", match.end())
            if start >= 0:
                yield match.group(1), self.text[start + 1 : closing(self.text, start)]


#: the files of one folder that are built for Linux
Package = list[GoFile]


class Sources:
    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._packages: dict[str, Package] = {}

    def package(self, path: str) -> Package:
        """The package of an import path; raises :class:`Missing`."""
        if path not in self._packages:
            if path not in self._folders:
                raise Missing(f"there is no package {path}")
            files = sorted(self._folders[path].glob("*.go"))
            kept = [file for file in files if not file.stem.endswith(("_test", "_windows", "_darwin", "_freebsd"))]
            texts = [file.read_text(encoding="utf-8") for file in kept]
            self._packages[path] = [GoFile(text) for text in texts if for_linux(text)]
        return self._packages[path]


def for_linux(text: str) -> bool:
    """Whether the build constraint at the top of a file lets Linux in."""
    head = text.split("\npackage ", 1)[0]
    for line in _BUILD.findall(head):
        # the old form separates alternatives by blanks and conditions by commas
        terms = line if "&&" in line or "||" in line else line.replace(" ", " || ").replace(",", " && ")
        words = re.sub(r"[\w.]+", lambda match: str(match.group(0) in ("linux", "unix", "amd64", "cgo")), terms)
        expression = words.replace("&&", " and ").replace("||", " or ").replace("!", " not ")
        if not eval(expression, {"__builtins__": {}}):  # the words are True, False, and, or, not and brackets
            return False
    return True


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; strings are passed over."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    stack = [pairs[text[start]]]
    index = start + 1
    while stack:
        if index >= len(text):
            raise ValueError(f"a bracket is never closed: {text[start : start + 60]!r}")
        char = text[index]
        if char in "\"`'":
            index = _after_string(text, index)
            continue
        if char in pairs:
            stack.append(pairs[char])
        elif char == stack[-1]:
            stack.pop()
        index += 1
    return index - 1


def arguments(text: str, start: int) -> list[str]:
    """The arguments of the call whose bracket opens at ``start``."""
    end = closing(text, start)
    found, index, begin = [], start + 1, start + 1
    while index < end:
        if text[index] in "\"`'":
            index = _after_string(text, index)
        elif text[index] in "({[":
            index = closing(text, index) + 1
        else:
            if text[index] == ",":
                found.append(text[begin:index].strip())
                begin = index + 1
            index += 1
    last = text[begin:end].strip()
    return [*found, last] if last else found


def _after_string(text: str, start: int) -> int:
    quote, index = text[start], start + 1
    while text[index] != quote:
        index += 2 if text[index] == "\\" and quote != "`" else 1
    return index + 1


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
        for file in package:
            for name, body in file.functions():
                if _ADDS.match(name):
                    _merge(found, _of_body(sources, package, file, body))
    return found


def _of_body(sources: Sources, package: Package, file: GoFile, body: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _REGISTRATION.finditer(body):
        given = arguments(body, match.end() - 1)
        place = 0 if match.group(1) == "BoolP" else 1
        if len(given) > place and (name := _literal(sources, package, file, given[place])):
            found[name] = CURRENT
    for match in _REGISTER.finditer(body):
        given = arguments(body, body.index("(", match.start()))
        if name := _literal(sources, package, file, given[2]):
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
    bodies = {name: (file, body) for file in package for name, body in file.functions()}
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
    for each in package:
        if text in each.constants:
            return each.constants[text]
    return None


def _merge(found: dict[str, str], more: dict[str, str]) -> None:
    for name, state in more.items():
        # a flag that is registered twice is current when one of them is
        found[name] = CURRENT if CURRENT in (state, found.get(name)) else DEPRECATED


KUBELET_CONFIG = "k8s.io/kubelet/config/v1beta1"
TYPE = "KubeletConfiguration"

_PLAIN = {"bool": "bool", "string": "string", "float32": "float", "float64": "float"}
_PLAIN.update({f"{sign}int{size}": "int" for sign in ("", "u") for size in ("", 8, 16, 32, 64)})
#: types that read JSON by their own code
_CUSTOM: dict[str, Any] = {
    "k8s.io/apimachinery/pkg/apis/meta/v1.Duration": "duration",
    "k8s.io/apimachinery/pkg/apis/meta/v1.Time": "time",
    "k8s.io/apimachinery/pkg/apis/meta/v1.TypeMeta": {"apiVersion": "string", "kind": "string"},
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/api/resource.QuantityValue": "quantity",
    "k8s.io/component-base/logs/api/v1.TimeOrMetaDuration": "duration|int",
    "time.Duration": "int",
    "k8s.io/api/core/v1.ResourceList": {"*": "quantity"},
}
_FIELD = re.compile(r"^\s*(?:(\w+)[ \t]+)?([\w.*\[\]]+|map\[.*)[ \t]*`([^`]*)`\s*\Z")
_TAG = re.compile(r'json:"([^"]*)"')


def fields(sources: Sources, path: str = KUBELET_CONFIG, name: str = TYPE) -> dict[str, Any]:
    """The nested fields of a struct type, by their JSON names; raises :class:`Missing`.

    Types are written so: ``bool int float string duration quantity time any``, ``duration|int``, ``[T]`` a list,
    ``{"*": T}`` a map with any keys, ``{name: T}`` a struct.
    """
    found = _named(sources, path, name)
    if not isinstance(found, dict):
        raise Missing(f"{path}.{name} is no struct")
    return found


def _named(sources: Sources, path: str, name: str) -> Any:
    custom = _CUSTOM.get(f"{path}.{name}")
    if custom is not None:
        return custom
    for file in sources.package(path):
        declared = re.search(rf"^type\s+{re.escape(name)}\s+(?:=\s*)?(.+)$", file.text, re.M)
        if declared is None:
            continue
        if not declared.group(1).startswith("struct"):
            return _type(sources, path, file, declared.group(1).strip())
        start = file.text.index("{", declared.start(1))
        return _struct(sources, path, file, file.text[start + 1 : closing(file.text, start)])
    raise Missing(f"no type {name} in {path}")


def _struct(sources: Sources, path: str, file: GoFile, body: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in body.splitlines():
        match = _FIELD.match(line)
        if match is None:
            continue
        name, kind, tags = match.groups()
        tag = _TAG.search(tags)
        json_name = tag.group(1).split(",")[0] if tag else ""
        if json_name == "-":
            continue
        if name is None and not json_name:  # embedded: its fields are ours
            found.update(_type(sources, path, file, kind))
        else:
            found[json_name or name] = _type(sources, path, file, kind)
    return found


def _type(sources: Sources, path: str, file: GoFile, kind: str) -> Any:
    kind = kind.lstrip("*")
    if kind.startswith("[]"):
        return [_type(sources, path, file, kind[2:])]
    if kind.startswith("map["):
        return {"*": _type(sources, path, file, kind[closing(kind, 3) + 1 :])}
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in ("interface{}", "any"):
        return "any"
    if "." in kind:
        alias, name = kind.split(".", 1)
        return _named(sources, file.imports.get(alias, alias), name)
    return _named(sources, path, kind)


Table = tuple[dict[str, str], dict[str, Any]]


def render(tables: Mapping[str, Table], sources: Mapping[str, str]) -> str:
    """The tables as JSON; ``sources`` says of each minor where its table comes from.

    What is ``all`` every minor knows, the rest stands in ``of`` by minor; `kubelet_config.py` puts the two together.
    """
    data: dict[str, Any] = {"sources": sources}
    for name, place in (("flags", 0), ("fields", 1)):
        all_of = {minor: tables[minor][place] for minor in tables}
        common = {
            key: value
            for key, value in next(iter(all_of.values())).items()
            if all(key in known and known[key] == value for known in all_of.values())
        }
        own = {
            minor: {key: value for key, value in known.items() if key not in common} for minor, known in all_of.items()
        }
        data[name] = {"all": common, "of": own}
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


ROOT = Path(__file__).resolve().parents[1]
WRITTEN = ROOT / "plugins/plugin_utils/node_plan/kubelet_tables.json"
#: release → the sum of its module, in https://sum.golang.org
RELEASES = {
    "1.34.4": "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=",
    "1.35.4": "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM=",
    "1.36.3": "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=",
    "1.37.2": "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE=",
}


def released(version: str, digest: str, folder: Path) -> Sources:
    """The packages of a release that the tables need, and all that these import; ``folder`` is new."""
    # what the lab needs is not in every environment in which the tables are tested
    from lab.cluster import programs
    from lab.cluster.go_build import prepare_module, with_modules
    from lab.errors import ClusterError

    module = folder / "module"
    try:
        prepare_module(programs.kubernetes_recipe(version, digest), module)
    except ClusterError as error:
        raise Missing(str(error)) from error
    names = (OPTIONS, *BESIDE, KUBELET_CONFIG)
    found = with_modules(module, "list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}", *names)
    if found.returncode:
        raise Missing(f"go list failed for Kubernetes {version}: {found.stderr[-1000:]}")
    return Sources({path: Path(place) for path, place in (line.split(" ", 1) for line in found.stdout.splitlines())})


def tables(given: Mapping[str, Sources]) -> dict[str, Table]:
    """Minor → its tables."""
    return {minor: (flags(sources), fields(sources)) for minor, sources in given.items()}


def main(argv: list[str]) -> int:
    """Write the tables; exit status 1 with ``--check`` when the file would change."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.kubelet_api", description="write the tables from Kubernetes' Go modules"
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    found: dict[str, Table] = {}
    said = {}
    for version, digest in RELEASES.items():
        minor = version.rpartition(".")[0]
        with tempfile.TemporaryDirectory(prefix="kubelet-api-") as folder:
            try:
                found |= tables({minor: released(version, digest, Path(folder))})
            except Missing as problem:
                parser.error(str(problem))
        said[minor] = f"k8s.io/kubernetes v{version} and k8s.io/kubelet v0{version[1:]}"
    text = render(found, said)
    if WRITTEN.is_file() and WRITTEN.read_text(encoding="utf-8") == text:
        return 0
    print(WRITTEN.relative_to(ROOT))
    if options.check:
        return 1
    WRITTEN.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
