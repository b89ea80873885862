# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the text of files."""

from __future__ import annotations

import pytest

from dev.toolchain import rules
from dev.toolchain.paths import CHECKOUT


def write(tmp_path, name: str, text: str) -> str:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


# spelt in parts, so that this file keeps the rule it tests
@pytest.mark.parametrize(
    "word",
    [
        "http://" + "deb." + "debian.org/debian",
        "py" + "pi.org",
        "/root" + "/.cache/x",
        '["un' + 'share", "--mount", "sh"]',
        "un" + "share --pid --mount-proc sh",
    ],
)
def test_forbidden_words_are_found(tmp_path, word):
    name = write(tmp_path, "a.txt", "fine\nsee %s here\n" % word)
    assert [line.split(":")[1] for line in rules.forbidden_words(tmp_path, [name])] == ["2"]


def test_this_checkout_is_a_path_of_one_machine(tmp_path):
    name = write(tmp_path, "a.txt", f"see {CHECKOUT}/README.md\n")
    assert len(rules.forbidden_words(tmp_path, [name])) == 1


@pytest.mark.parametrize(
    "text",
    [
        "www.debian.org",
        "/root/image-url-command",
        "/work",
        "mypypi.organisation",
        "unshare --mount --propagation slave sh",
    ],
)
def test_ordinary_words_are_left_alone(tmp_path, text):
    assert rules.forbidden_words(tmp_path, [write(tmp_path, "a.txt", text)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "it is to" + "ld at once",
        "No" + "body is asked.",
        "def test_some" + "body_waits():",
        '"TO' + 'LD": 1',
        "the journ" + "eys of two servers",
        "chas" + "sis = 1",
    ],
)
def test_words_that_have_a_plain_one_are_found(tmp_path, text):
    (finding,) = rules.plain_words(tmp_path, [write(tmp_path, "a.md", f"fine\n{text}\n")])
    assert finding.startswith("a.md:2: '")
    assert ", say: " in finding


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "a playbook, an oversight, a backdoor, a bookmark and an untoldable thing"),
        ("a.sh", "fact chassis_vendor and chassis_type are the firmware's"),
        ("a.b64", "AAAA+to" + "ld/AAA="),
        ("dev/toolchain/rules.py", "to" + "ld"),
    ],
)
def test_parts_of_words_data_and_the_table_itself_are_left_alone(tmp_path, name, text):
    assert rules.plain_words(tmp_path, [write(tmp_path, name, text)]) == []


def test_long_files_are_found_by_their_folder(tmp_path):
    names = [
        write(tmp_path, "dev/long.py", "x = 1\n" * 401),
        write(tmp_path, "lab/fits.py", "x = 1\n" * 600),
        write(tmp_path, "plugins/modules/m.py", "x = 1\n" * 500),
        write(tmp_path, "lab/command", "#!/usr/bin/python3\n" + "x = 1\n" * 800),
        write(tmp_path, "lab/table.json", "{}\n" * 500),
    ]
    assert [line.split(":")[0] for line in rules.too_long(tmp_path, names)] == [names[0], names[3]]


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("a.py", "", "python"),
        ("a", "#!/usr/bin/env python3\n", "python"),
        ("a", "#!/bin/sh\nset -eu\n", "sh"),
        ("a.sh", "set -eu\n", "sh"),
        ("a", "#!/usr/bin/perl\n", ""),
        ("a.txt", "python3\n", ""),
    ],
)
def test_language(tmp_path, name, text, language):
    assert rules.language(tmp_path, write(tmp_path, name, text)) == language
