# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that no linter of others knows: the text of files, import borders, and how product code reads others' texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .paths import CHECKOUT

#: a registry is configured on the machine, never in a file; a path of one machine is wrong everywhere else
FORBIDDEN = {
    r"\b(deb|security|snapshot|ftp)\.debian\.org\b": "a package registry host",
    r"\b(archive|security|ports)\.ubuntu\.com\b": "a package registry host",
    r"\b(test\.)?pypi\.(org|python\.org)\b": "a package registry host",
    r"\bfiles\.pythonhosted\.org\b": "a package registry host",
    r"(?<![\w.])/(root|home/\w+)/\.(pyenv|cache)\b": "a path of one machine",
    # the file systems of other tests stay mounted there when they are unmounted, and their last bytes unwritten
    r"""unshare["',\s].*--mount\b(?!.*--propagation["',\s]+slave)""": "a namespace that holds the mounts of others",
    # the folder of this checkout is another one on other machines
    rf"(?<![\w.]){re.escape(str(CHECKOUT))}\b": "a path of one machine",
}
_FORBIDDEN = [(re.compile(pattern), what) for pattern, what in FORBIDDEN.items()]

#: words that a reader with English as a second language reads twice, also in names, and plain ones in their place
PLAIN_WORDS = {
    "anew": "again",
    "arrivals?": "boot, observed state",
    "books?": "store, records",
    # a fact of the firmware has this name
    "chassis(?!_(?:type|vendor))": "power control, server",
    "door": "gate, endpoint, proxy",
    "journeys?": "boot flow, run",
    "ladder": "reset escalation",
    "nobody": "no user, no process, no one",
    "sights?": "observed state, look",
    "somebody": "a user, a process, another system",
    "told": "said, reported, given",
    "whoever": "every user who, a process that",
}
_PLAIN_WORDS = [
    (re.compile(f"(?<![a-z])(?:{word})(?![a-z])", re.IGNORECASE), plain) for word, plain in PLAIN_WORDS.items()
]
#: the table above, and data that may hold any letters
_ANY_WORDS = ("dev/toolchain/rules.py", ".b64")

#: lines a file may have, by folder
LENGTHS = {
    "dev": 600,
    "lab": 600,
    "tests": 600,
    "plugins": 600,
    "provision": 600,
}


def forbidden_words(root: Path, names: list[str]) -> list[str]:
    """One line for each file that names a registry host or a path of one machine."""
    result = []
    for name in names:
        text = _text(root / name)
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in _FORBIDDEN:
                match = pattern.search(line)
                if match:
                    result.append(f"{name}:{number}: names {what}, {match[0]}")
    return result


def plain_words(root: Path, names: list[str]) -> list[str]:
    """One line for each word of ``PLAIN_WORDS``, with the plain ones to choose from."""
    result = []
    for name in names:
        if name.endswith(_ANY_WORDS):
            continue
        for number, line in enumerate(_text(root / name).splitlines(), 1):
            for pattern, plain in _PLAIN_WORDS:
                result += [f"{name}:{number}: '{found}', say: {plain}" for found in pattern.findall(line)]
    return result


def too_long(root: Path, names: list[str]) -> list[str]:
    """One line for each program file that no longer fits in one head."""
    result = []
    for name in names:
        places = [place for place in LENGTHS if name.startswith(place + "/")]
        text = _text(root / name)
        if not places or not (name.endswith((".py", ".sh")) or text.startswith("#!")):
            continue
        lines, limit = len(text.splitlines()), LENGTHS[max(places, key=len)]
        if lines > limit:
            result.append(f"{name}: {lines} lines, {limit} are allowed here")
    return result


def language(root: Path, name: str) -> str:
    """Language of a program: `python`, `sh`, or nothing for other files."""
    if name.endswith(".py"):
        return "python"
    head = _text(root / name).splitlines()[:10]
    if name.endswith(".sh"):
        return "sh"
    if not head or not head[0].startswith("#!"):
        return ""
    if re.search(r"[/ ]python3?\b", head[0]):
        return "python"
    return "sh" if re.search(r"[/ ](sh|dash|bash)\b", head[0]) else ""


def _text(path: Path) -> str:
    """Text of a file; nothing for links, folders and binary files."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


COLLECTION = ("ansible_collections", "kubenode", "provision")
#: top-level folders that count as ours when imported by their bare name
HOUSE = ("dev", "lab", "plugins", "provision", "tests")

UTILS = "plugins/module_utils"
COMMON = UTILS + "/_common"
IMAGE_SERVER = "plugins/plugin_utils/image_server"

#: folder or file (longest match wins) → what of ours it may import
MAY_IMPORT = {
    "lab": ("lab",),
    "dev": ("dev",),
    "dev/toolchain/release": (
        "dev",
        COMMON + "/zip_program",  # programs are put together in one way
        "plugins/plugin_utils/rescue_run/rescue_programs",
        IMAGE_SERVER + "/pack_program",
    ),
    "dev/testbed": ("dev", "lab"),  # asks the lab's own routes, which a program would take half a second for
    "dev/demos": ("dev", "lab"),  # ask the mirror for its sums, and cut a machine off from all but its control plane
    "dev/kubelet_api": ("dev", "lab"),  # takes Go modules as the lab does
    "playbooks": (),
    "provision": ("provision", COMMON, "plugins/plugin_utils/node_plan", "plugins/plugin_utils/role_specs"),
    "plugins": (UTILS, "plugins/plugin_utils"),
    "plugins/modules": (UTILS,),
    "plugins/plugin_utils": (UTILS, "plugins/plugin_utils"),
    "plugins/doc_fragments": (),
    UTILS: (UTILS,),
    COMMON: (COMMON,),
    UTILS + "/_hetzner": (UTILS + "/_hetzner", COMMON),
    UTILS + "/_rescue": (UTILS + "/_rescue", COMMON),
    UTILS + "/_liveimage": (UTILS + "/_liveimage", COMMON),
    IMAGE_SERVER + "/daemon": (IMAGE_SERVER + "/daemon", UTILS + "/_liveimage", COMMON),  # the program
    IMAGE_SERVER + "/pack_program": (COMMON + "/zip_program",),  # runs without ansible-core, too
    UTILS + "/_node": (UTILS + "/_node", COMMON),
    "tests/unit": ("plugins", "provision", "tests", "dev", "playbooks"),
}


def crossings(root: Path, names: list[str]) -> list[str]:
    """One line for each import that crosses a border of docs/design.md, from the syntax tree of every Python file."""
    result = []
    for name in names:
        if not name.endswith(".py"):
            continue
        allowed = _allowed(name)
        if allowed is None:
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"), name)
        for line, target in imports(tree, name):
            if not any(_within(target, place) for place in allowed):
                may = ", ".join(allowed) or "nothing of ours"
                result.append(f"{name}:{line}: imports {target}; it may import {may}")
    return result


def imports(tree: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Every import of something of ours, as (line, path below the checkout without .py)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [*Path(name).parts[: -node.level], *base]
                # a relative import cannot leave the collection, so it is spelt from the checkout
                targets = [[*COLLECTION, *base, alias.name] for alias in node.names]
            else:
                targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            path = _ours(target)
            if path:
                yield node.lineno, path


def _ours(target: list[str]) -> str | None:
    if tuple(target[:3]) == COLLECTION:
        return "/".join(target[3:]) or None
    return "/".join(target) if target[0] in HOUSE else None


def _allowed(name: str) -> tuple[str, ...] | None:
    matches = [place for place in MAY_IMPORT if _within(name[: -len(".py")], place)]
    return MAY_IMPORT[max(matches, key=len)] if matches else None


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")


FOLDERS = ("dev", "lab", "plugins", "provision")
#: has the helpers, which others use instead
HELPERS = "plugins/module_utils/_common/text.py"

#: where JSON is always read with a handler or by the helper; the lab and dev read what is theirs
JSON_FOLDER = "plugins/"
#: what reads JSON that this collection wrote itself a moment before
OUR_JSON = ("plugins/plugin_utils/node_image/run_server.py",)

_ALL = frozenset({"Exception", "BaseException"})
_DIGIT_METHODS = ("isdecimal", "isdigit", "isnumeric")
_MULTILINE = frozenset({"M", "MULTILINE"})
#: the beginning of a line, alone or with others to choose from, then blanks of any kind
_ACROSS_LINES = re.compile(r"(\^(\|[^()]*\))?|\\n\(\?[!=])\\s[*+]")
_PATTERN_CALLS = ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


def numbers(root: Path, names: list[str]) -> list[str]:
    """One line for each place that takes a text for what it is not.

    - `str.isdigit` and its sisters take digits that int() refuses, or that other programs refuse: use the helper.
    - The same holds for a backslash-d in a str pattern without re.ASCII: write [0-9].
    - A dollar in a pattern without re.MULTILINE lets a newline pass at the end: write \\Z, or use fullmatch.
    - With re.MULTILINE, blanks at the beginning of a line that may be newlines, too, are tried from each of many empty
      lines to the last: write [ \\t]*.
    - json.loads and yaml.safe_load raise RecursionError for deep texts, and the latter ValueError for odd dates;
      b64decode raises a ValueError that is no binascii.Error for letters that are not ASCII. A handler names them, or
      the helper is used.
    """
    result = []
    for name in names:
        if name == HELPERS or not name.startswith(tuple(place + "/" for place in FOLDERS)):
            continue
        if language(root, name) != "python":
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"), name)
        result += [f"{name}:{line}: {what}" for line, what in sorted(set(_of(name, tree)))]
    return result


def _of(name: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    yield from _in(tree)
    for line, kind, what in _errors(tree, frozenset()):
        if kind != "json" or (name.startswith(JSON_FOLDER) and name not in OUR_JSON):
            yield line, what


def _errors(node: ast.AST, caught: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    """Readers whose errors are not all handled, as (line, kind, what); ``caught`` is what handlers around it name."""
    if isinstance(node, ast.Try):
        named = {name for handler in node.handlers for name in _named(handler)}
        if "YAMLError" in named and not {"ValueError", "RecursionError"} <= named and not named & _ALL:
            yield node.lineno, "yaml", "YAML raises ValueError and RecursionError, too; catch them beside YAMLError"
        if "binascii.Error" in named and "ValueError" not in named:
            yield node.lineno, "base64", "b64decode raises another ValueError for other letters; catch ValueError"
        for statement in node.body:
            yield from _errors(statement, caught | named)
        for other in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _errors(other, caught)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        caught = frozenset()
    if isinstance(node, ast.With):
        caught |= {name for item in node.items for name in _suppressed(item.context_expr)}
    reads = isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.load", "json.loads")
    if isinstance(node, ast.Call) and reads and not caught & ({"RecursionError"} | _ALL):
        yield node.lineno, "json", "json raises RecursionError for deep texts; use json_value or json_object"
    for inner in ast.iter_child_nodes(node):
        yield from _errors(inner, caught)


def _named(handler: ast.ExceptHandler) -> set[str]:
    """What a handler catches: the last name of each class, with its module where Error alone says nothing."""
    if handler.type is None:
        return {"BaseException"}
    classes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {_short(one) for one in classes}


def _suppressed(call: ast.expr) -> set[str]:
    if isinstance(call, ast.Call) and ast.unparse(call.func) in ("contextlib.suppress", "suppress"):
        return {_short(one) for one in call.args}
    return set()


def _short(one: ast.expr) -> str:
    text = ast.unparse(one)
    return text if text == "binascii.Error" else text.rpartition(".")[2]


def _in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The findings of one program, as (line, what)."""
    spared = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _flags(node) & {"A", "ASCII"}:
            spared |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _DIGIT_METHODS:
            yield node.lineno, f"{node.attr} takes digits that int() refuses; use is_digits or whole_number"
        elif isinstance(node, ast.Constant) and id(node) not in spared and _takes_any_digit(node.value):
            yield node.lineno, "a backslash-d takes digits of every script; write [0-9]"
        elif isinstance(node, ast.Call) and _lets_newline_pass(node):
            yield node.lineno, "$ lets a newline pass at the end; write \\Z, or use fullmatch"
        elif isinstance(node, ast.Call) and _takes_empty_lines(node):
            yield node.lineno, "many empty lines take long where each may begin a line; write [ \\t]*"


def _takes_any_digit(value: object) -> bool:
    return isinstance(value, str) and "(?a" not in value and "d" in _escapes(value)


def _lets_newline_pass(node: ast.Call) -> bool:
    """Whether a call gives `re` a pattern in which a dollar means the end of the text."""
    return not _flags(node) & _MULTILINE and any(map(_has_dollar, _patterns(node)))


def _takes_empty_lines(node: ast.Call) -> bool:
    """Whether a call gives `re` a pattern for lines that looks for their beginnings across other lines."""
    return bool(_flags(node) & _MULTILINE) and any(map(_ACROSS_LINES.search, _patterns(node)))


def _patterns(node: ast.Call) -> list[str]:
    """The literal pieces of the pattern that a call gives `re`; none for another call."""
    function = node.func
    given = (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _PATTERN_CALLS
        and bool(node.args)
    )
    return list(_texts(node.args[0])) if given else []


def _flags(node: ast.Call) -> set[str]:
    """The flags of `re` among the arguments of a call."""
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return {
        inner.attr
        for argument in given
        for inner in ast.walk(argument)
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "re"
    }


def _texts(pattern: ast.expr) -> Iterator[str]:
    """The literal pieces of a pattern."""
    for node in ast.walk(pattern):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def _escapes(text: str) -> set[str]:
    """The characters behind a backslash which is no escaped one itself."""
    found, characters = set(), iter(text)
    for one in characters:
        if one == "\\":
            found.add(next(characters, ""))
    return found


def _has_dollar(text: str) -> bool:
    """Whether a pattern has a dollar that means the end: neither escaped nor in a class."""
    if "(?m" in text:
        return False
    inside, characters = False, iter(text)
    for one in characters:
        if one == "\\":
            next(characters, "")
        elif inside:
            inside = one != "]"
        elif one == "[":
            inside = True
        elif one == "$":
            return True
    return False
