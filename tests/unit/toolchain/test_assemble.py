# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The assembled commands are what their sources make, and sources that do not fit into one file are refused."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest

from dev.toolchain import assemble
from dev.toolchain.command_sources import SourceError, in_standard_library
from dev.toolchain.paths import CHECKOUT

NAME = "playbooks/files/image-url-command-raw-disk"


def tree(root, **sources: str):
    """Make a checkout with one command out of sources; `main` is the main, others are parts."""
    (root / "commands/parts").mkdir(parents=True)
    (root / "playbooks/files").mkdir(parents=True)
    for name, text in sources.items():
        path = root / ("commands/raw_disk.py" if name == "main" else f"commands/parts/{name}.py")
        path.write_text(f'# Copyright\n"""About {name}."""\n\nfrom __future__ import annotations\n\n{text}\n')
    return root


def refusal(root, **sources: str) -> str:
    with pytest.raises(SourceError) as caught:
        assemble.assemble(tree(root, **sources), "raw_disk")
    return str(caught.value)


def test_the_commands_of_this_checkout_are_up_to_date():
    assert assemble.findings(CHECKOUT) == []


def test_the_assembled_file_runs_as_the_sources_say(tmp_path):
    root = tree(
        tmp_path,
        main="import sys\n\nfrom commands.parts.upper import loud\n\nsys.stdout.write(loud(sys.argv[1]))",
        upper="from commands.parts.lower import MARK, plain\n\n\ndef loud(text):\n    return plain(text) + MARK",
        lower="import os.path\nfrom string import (\n    ascii_lowercase,\n    capwords as title,\n)\n\n\n"
        "# why\nMARK = '!'\n\n\ndef plain(text):\n    return title(os.path.basename(text)) + ascii_lowercase[:1]",
        unused="def nobody_wants_this():\n    pass",
    )
    assert assemble.main([], root) == 0
    command = root / NAME
    assert stat.S_IMODE(command.stat().st_mode) == 0o755
    done = subprocess.run([command, "a/word"], capture_output=True, text=True, check=True, cwd="/", env={**os.environ})
    assert done.stdout == "Worda!"
    text = command.read_text()
    marks = ("About main.", "parts/lower.py ---", "# About lower.", "# why", "parts/upper.py ---", "raw_disk.py ---")
    order = [text.index(mark) for mark in marks]
    assert order == sorted(order)
    assert "nobody_wants_this" not in text
    assert "commands.parts" not in text


def test_parts_come_once_and_before_those_who_need_them_always_in_the_same_way(tmp_path):
    def part(*needs: str) -> str:
        return "\n".join(f"from commands.parts.{name} import {name.upper()}" for name in needs)

    root = tree(
        tmp_path,
        main=part("d", "a"),
        a=part("c") + "\nA = 1",
        b=part("c") + "\nB = 1",
        c="C = 1",
        d=part("b", "a") + "\nD = 1",
    )
    text = assemble.assemble(root, "raw_disk")
    assert text == assemble.assemble(root, "raw_disk")
    assert [text.count(f"parts/{name}.py ---") for name in "abcd"] == [1, 1, 1, 1]
    assert sorted("abcd", key=lambda name: text.index(f"parts/{name}.py ---")) == ["c", "b", "a", "d"]


@pytest.mark.parametrize(
    "other",
    [
        "def thing():\n    pass",
        "class thing:\n    pass",
        "thing = 1",
        "one, (two, *thing) = 1, (2, 3)",
        "thing: int = 3",
        "for thing in ():\n    pass",
        "if True:\n    thing = 1",
        "try:\n    thing = 1\nfinally:\n    pass",
        "import thing",
        "from json import dumps as thing",
    ],
)
def test_two_things_of_one_name_are_refused(tmp_path, other):
    other = other.replace("import thing", "import json as thing")
    found = refusal(
        tmp_path,
        main="from commands.parts.one import thing\nfrom commands.parts.two import rest",
        one="def thing():\n    pass",
        two=other + "\nrest = 2",
    )
    assert "thing" in found
    assert "commands/parts/one.py" in found
    assert "commands/parts/two.py" in found


def test_two_meanings_of_one_import_are_refused(tmp_path):
    found = refusal(
        tmp_path, main="import time\nfrom commands.parts.one import ONE", one="from time import time\nONE = 1"
    )
    assert "commands/raw_disk.py: means 'import time' by time" in found


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("import http.client", "import http.server"),
        ("import json", "import json"),
        ("A = [name for name in 'x']", "B = {name: 1 for name in 'x'}"),
        ("def one():\n    inner = 1", "def two():\n    inner = 2"),
        ("class One:\n    inner = 1", "class Two:\n    inner = 2"),
    ],
)
def test_names_that_do_not_meet_are_no_collision(tmp_path, one, two):
    root = tree(
        tmp_path,
        main="from commands.parts.one import FIRST\nfrom commands.parts.two import SECOND",
        one=one + "\nFIRST = 1",
        two=two + "\nSECOND = 2",
    )
    compile(assemble.assemble(root, "raw_disk"), NAME, "exec")


def test_a_part_that_the_collection_shares_is_put_in_too(tmp_path):
    shared = "from ansible_collections.kubenode.provision.plugins.module_utils._common.text import double"
    root = tree(
        tmp_path,
        main=f"import sys\n\n{shared}\nfrom commands.parts.one import ONE\n\nsys.stdout.write(double(ONE))",
        one=f"{shared}\n\nONE = double('x')",
    )
    path = root / "plugins/module_utils/_common/text.py"
    path.parent.mkdir(parents=True)
    path.write_text('# Copyright\n"""About text."""\n\n\ndef double(text):\n    return text + text\n')
    assert assemble.main([], root) == 0
    done = subprocess.run([root / NAME], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "xxxx"
    text = (root / NAME).read_text()
    assert text.count("# --- plugins/module_utils/_common/text.py ---") == 1
    assert "ansible_collections" not in text


def test_nothing_else_of_the_collection_is_put_in(tmp_path):
    module = "ansible_collections.kubenode.provision.plugins.module_utils._rescue.protocol"
    assert "imports" in refusal(tmp_path, main=f"from {module} import ORDER")


def test_a_circle_is_refused_and_shown(tmp_path):
    found = refusal(
        tmp_path,
        main="from commands.parts.a import A",
        a="from commands.parts.b import B\nA = 1",
        b="from commands.parts.c import C\nB = 1",
        c="from commands.parts.a import A\nC = 1",
    )
    assert found == "commands/parts/c.py: imports in a circle: a → b → c → a"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import yaml", "imports yaml"),
        ("from ansible.module_utils import basic", "ansible.module_utils"),
        ("from dev.toolchain import paths", "dev.toolchain"),
        ("import commands.parts.one", "commands.parts.one"),
        ("from commands.parts import one", "commands.parts"),
        ("from .parts.one import ONE", ".parts.one import ONE"),
        ("from os import *", "allowed are"),
        ("from commands.parts.one import *", "without 'as'"),
        ("from commands.parts.one import ONE as two", "without 'as'"),
        ("from commands.parts.one import TWO", "imports TWO, which one does not define"),
        ("from commands.parts.absent import ONE", "there is no commands/parts/absent.py"),
        ("from __future__ import generator_stop", "only annotations"),
        ("def late():\n    import json", "at the top of the file"),
        ("if True:\n    import json", "at the top of the file"),
        ("import json; import os; x = 1", "two statements on one line"),
        ("def broken(:", "commands/raw_disk.py:6"),
    ],
)
def test_sources_that_do_not_fit_are_refused_with_place_and_reason(tmp_path, source, named):
    found = refusal(tmp_path, main=source, one="ONE = 1")
    assert found.startswith("commands/raw_disk.py")
    assert named in found


def test_a_source_without_docstring_is_refused(tmp_path):
    root = tree(tmp_path, main="")
    (root / "commands/raw_disk.py").write_text("import os\n")
    with pytest.raises(SourceError, match=r"commands/raw_disk\.py: the docstring is missing"):
        assemble.assemble(root, "raw_disk")


@pytest.mark.parametrize("module", ["sys", "os", "json", "urllib.request", "_ctypes"])
def test_standard_library(module):
    assert in_standard_library(module)


@pytest.mark.parametrize("module", ["pytest", "ansible", "dev", "commands", "no_such_module_at_all", ".relative"])
def test_not_the_standard_library(module):
    assert not in_standard_library(module)


def test_check_names_what_is_stale_and_writes_nothing(tmp_path, capsys):
    root = tree(tmp_path, main="X = 1")
    assert assemble.main(["--check"], root) == 1
    assert capsys.readouterr().out == f"{NAME}: missing; run dev/assemble\n"
    assert assemble.main([], root) == 0
    assert capsys.readouterr().out == f"wrote {NAME}\n"
    assert assemble.main(["--check"], root) == 0
    (root / NAME).write_text((root / NAME).read_text() + "# edited by hand\n")
    edited = (root / NAME).read_text()
    capsys.readouterr()
    assert assemble.main(["--check"], root) == 1
    assert capsys.readouterr().out.startswith(f"{NAME}: stale; run dev/assemble")
    assert (root / NAME).read_text() == edited


def test_a_program_that_lies_about_its_sources_is_found(tmp_path):
    root = tree(tmp_path, main="X = 1")
    assemble.write(root)
    liar = root / "playbooks/files/image-url-command-other"
    liar.write_text("#!/bin/sh\n" + assemble.GENERATED + "\n")
    assert [line.split(":")[0] for line in assemble.findings(root)] == ["playbooks/files/image-url-command-other"]


def test_sources_that_are_refused_leave_the_old_command(tmp_path, capsys):
    root = tree(tmp_path, main="import yaml")
    (root / NAME).write_text("old")
    assert assemble.main([], root) == 1
    assert "imports yaml" in capsys.readouterr().out
    assert (root / NAME).read_text() == "old"
