# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/assemble: make each image command, one self-contained file, out of its main and the parts it needs.

commands/NAME.py becomes playbooks/files/image-url-command-NAME; parts lie in commands/parts. What a command imports is
the standard library, `from commands.parts.X import Y`, or the same of the collection's module_utils/_common, at the top
of the file, so that all of them fit into one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .command_sources import Part, SourceError, collect
from .paths import CHECKOUT
from .text_rules import GENERATED, generated

SOURCES = "commands"
OUTPUT = "playbooks/files"

HEADER = '''\
#!/bin/sh
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
%(marker)s
""":"
command -v python3 >/dev/null 2>&1 && exec python3 "$0" "$@"
echo "%(name)s: python3 is missing in this rescue; install python3" >&2
exit 127
"""
# The lines above are shell and Python at once: a rescue need not know "python", and a missing python3 is said clearly.

from __future__ import annotations

%(imports)s

__doc__ = %(doc)s
'''


def program_name(stem: str) -> str:
    """The name of the command whose main is commands/STEM.py."""
    return "image-url-command-" + stem.replace("_", "-")


def assemble(root: Path, stem: str) -> str:
    """The text of one command; SourceError when its sources do not fit into one file."""
    main, parts = collect(root, SOURCES, stem)
    imports = _imports([*parts, main])
    values = {"marker": GENERATED, "name": program_name(stem), "imports": imports, "doc": main.doc_literal}
    sections = [_section(part, part.doc) for part in parts] + [_section(main, "")]
    return "\n\n".join([HEADER % values, *sections])


def _imports(pieces: Sequence[Part]) -> str:
    """What all of them import, each name once, sorted as ruff wants it."""
    modules = sorted({alias for piece in pieces for module, alias in piece.imports if not module})
    named = sorted({module for piece in pieces for module, _alias in piece.imports if module})
    lines = ["import " + alias for alias in modules]
    for module in named:
        aliases = {alias for piece in pieces for source, alias in piece.imports if source == module}
        lines.append("from %s import %s" % (module, ", ".join(sorted(aliases))))
    return "\n".join(lines)


def _section(piece: Part, doc: str) -> str:
    """A line that says which source follows, what it is about, and the source."""
    line = "# --- %s " % piece.path
    about = [("# " + text).rstrip() for text in doc.splitlines()]
    return "\n".join([line + "-" * (120 - len(line)), *about, "\n", piece.body])


def mains(root: Path) -> list[str]:
    """The names of the commands' mains, without .py."""
    return sorted(path.stem for path in (root / SOURCES).glob("*.py") if path.stem != "__init__")


def findings(root: Path) -> list[str]:
    """One line for each command that is not what its sources make, and for each that has no sources."""
    result, made = [], set()
    for stem in mains(root):
        target = root / OUTPUT / program_name(stem)
        made.add(target)
        name = target.relative_to(root)
        try:
            text = assemble(root, stem)
        except SourceError as error:
            result.append("%s" % error)
            continue
        if not target.is_file():
            result.append("%s: missing; run dev/assemble" % name)
        elif target.read_text(encoding="utf-8") != text:
            result.append("%s: stale; run dev/assemble, and edit only the sources" % name)
    for path in sorted((root / OUTPUT).iterdir()):
        if path not in made and path.is_file() and generated(path.read_text(encoding="utf-8", errors="replace")):
            result.append("%s: says it is made from %s/, but has no main there" % (path.relative_to(root), SOURCES))
    return result


def write(root: Path) -> list[str]:
    """Write the commands that are not up to date; return their names."""
    texts = {program_name(stem): assemble(root, stem) for stem in mains(root)}
    changed = []
    for name, text in texts.items():
        target = root / OUTPUT / name
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        draft = target.with_name(".%s.draft" % name)
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        # rename, so that a command that is read or run meanwhile is a whole one
        draft.replace(target)
        changed.append("%s/%s" % (OUTPUT, name))
    return changed


def main(arguments: list[str] | None = None, root: Path = CHECKOUT) -> int:
    """Write the commands, or with --check only say which are stale."""
    parser = argparse.ArgumentParser(prog="dev/assemble", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a command is stale")
    if parser.parse_args(arguments).check:
        stale = findings(root)
        print("".join(line + "\n" for line in stale), end="")
        return 1 if stale else 0
    try:
        changed = write(root)
    except SourceError as error:
        print(error)
        return 1
    print("".join("wrote %s\n" % name for name in changed) or "every command is up to date\n", end="")
    return 0
