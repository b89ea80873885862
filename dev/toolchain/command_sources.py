# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of an image command: read, checked for what does not fit into one file, and put into order.

A part is imported from commands/parts, or from what the collection shares: plugins/module_utils/_common.
"""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: where the collection's shared parts lie, and how they are imported
SHARED = "plugins/module_utils/_common"
SHARED_MODULE = "ansible_collections.kubenode.provision." + SHARED.replace("/", ".")


class SourceError(Exception):
    """The sources of a command do not fit into one file; the text names the file and the reason."""


@dataclass
class Part:
    """One source file, taken apart."""

    path: str
    #: the docstring, and how it is written
    doc: str
    doc_literal: str
    #: what is left without header, docstring and imports
    body: str
    #: imports of the standard library as (module, name), (nothing, module) for a whole module; "as" included
    imports: list[tuple[str, str]] = field(default_factory=list)
    #: what they bind: name → import statement
    bound: dict[str, str] = field(default_factory=dict)
    #: path of a part → names taken from it, in the order of the file
    wanted: dict[str, list[str]] = field(default_factory=dict)
    #: names the file defines at its top level
    defined: set[str] = field(default_factory=set)


def collect(root: Path, folder: str, stem: str) -> tuple[Part, list[Part]]:
    """Read a main and every part it needs; the parts come in the order in which they need each other."""
    main = _parsed(root, "%s/%s.py" % (folder, stem), folder)
    parts: dict[str, Part] = {}
    _add(root, folder, main, parts, [])
    for part in [*parts.values(), main]:
        for path, names in part.wanted.items():
            missing = [one for one in names if one not in parts[path].defined]
            if missing:
                raise SourceError("%s: imports %s, which %s does not define" % (part.path, missing[0], Path(path).stem))
    _refuse_collisions([*parts.values(), main])
    return main, list(parts.values())


def _add(root: Path, folder: str, part: Part, parts: dict[str, Part], way: list[str]) -> None:
    """Add what a part needs, then the part itself."""
    for path in part.wanted:
        if path in way:
            circle = " → ".join(Path(one).stem for one in [*way[way.index(path) :], path])
            raise SourceError("%s: imports in a circle: %s" % (part.path, circle))
        if path not in parts:
            if not (root / path).is_file():
                raise SourceError("%s: imports the part %s, but there is no %s" % (part.path, Path(path).stem, path))
            needed = _parsed(root, path, folder)
            _add(root, folder, needed, parts, [*way, path])
            parts[path] = needed


def _parsed(root: Path, path: str, folder: str) -> Part:
    """Take one source apart."""
    text = (root / path).read_text(encoding="utf-8")
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        raise SourceError("%s:%s: %s" % (path, error.lineno, error.msg)) from None
    doc = ast.get_docstring(tree)
    if not doc:
        raise SourceError("%s: the docstring is missing; it says what the file is about" % path)
    part = Part(path, doc, ast.get_source_segment(text, tree.body[0]) or "", "")
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node not in top:
            raise SourceError("%s:%d: import at the top of the file, not within code" % (path, node.lineno))
    for node in top:
        _take_import(part, node, folder)
    rest = [node for node in tree.body[1:] if node not in top]
    part.defined = set(_names(rest))
    part.body = _text_of(path, text, tree.body[0], top)
    return part


def _take_import(part: Part, node: ast.Import | ast.ImportFrom, folder: str) -> None:
    """Sort one import statement: the future, the standard library, or a part."""
    place = "%s:%d" % (part.path, node.lineno)
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        if module == "__future__":
            if [alias.name for alias in node.names] != ["annotations"]:
                raise SourceError("%s: only annotations may come from __future__" % place)
            return
        package, _dot, stem = module.rpartition(".")
        places = {folder + ".parts": folder + "/parts", SHARED_MODULE: SHARED}
        if package in places:
            if any(alias.asname or alias.name == "*" for alias in node.names):
                raise SourceError("%s: import names of a part as they are, without 'as' and '*'" % place)
            path = "%s/%s.py" % (places[package], stem)
            part.wanted.setdefault(path, []).extend(alias.name for alias in node.names)
            return
    for alias in node.names:
        whole = isinstance(node, ast.Import)
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        if not in_standard_library(module) or alias.name == "*":
            what = "%s: imports %s; allowed are modules of the standard library and 'from %s.parts.PART import NAME'"
            raise SourceError(what % (place, ast.unparse(node).split(" ", 1)[1], folder))
        spelt = alias.name + (" as " + alias.asname if alias.asname else "")
        part.imports.append(("" if whole else module, spelt))
        if whole and not alias.asname:
            # "import a.b" binds a, the same a as "import a.c"
            name = alias.name.split(".")[0]
            part.bound[name] = "import " + name
        else:
            part.bound[alias.asname or alias.name] = ("import " if whole else "from %s import " % module) + spelt


def in_standard_library(module: str) -> bool:
    """Whether a module comes with Python itself."""
    name = module.split(".")[0]
    spec = importlib.util.find_spec(name) if name else None
    if spec is None or spec.origin is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    places = [Path(sysconfig.get_path(which)).resolve() for which in ("stdlib", "platstdlib")]
    within = [Path(spec.origin).resolve().relative_to(place) for place in places if _below(spec.origin, place)]
    return any(not {"site-packages", "dist-packages"} & set(path.parts) for path in within)


def _below(origin: str, place: Path) -> bool:
    return place in Path(origin).resolve().parents


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind where they stand, also within if, for, with and try."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from _names(ast.iter_child_nodes(node))


def _text_of(path: str, text: str, docstring: ast.stmt, imports: list) -> str:
    """The source without the lines of its header, docstring and imports."""
    lines = text.splitlines()
    gone = set(range(1, (docstring.end_lineno or 0) + 1))
    for node in imports:
        gone |= set(range(node.lineno, node.end_lineno + 1))
    tree = ast.parse(text)
    for node in tree.body[1:]:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno in gone:
            raise SourceError("%s:%d: two statements on one line" % (path, node.lineno))
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in gone).strip("\n") + "\n"


def _refuse_collisions(parts: list[Part]) -> None:
    """No two sources may mean different things by one name, once they are in one file."""
    origin: dict[str, str] = {}
    meaning: dict[str, tuple[str, str]] = {}
    for part in parts:
        for name in sorted(part.defined):
            if name in origin:
                raise SourceError("%s: defines %s, as %s does; rename one of them" % (part.path, name, origin[name]))
            origin[name] = part.path
        for name, statement in part.bound.items():
            other, path = meaning.setdefault(name, (statement, part.path))
            if other != statement:
                raise SourceError("%s: means '%s' by %s, %s '%s'" % (part.path, statement, name, path, other))
    for name, (statement, path) in meaning.items():
        if name in origin:
            raise SourceError("%s: defines %s, which %s has from '%s'" % (origin[name], name, path, statement))
