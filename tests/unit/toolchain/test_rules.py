# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the text of files."""

from __future__ import annotations

import pytest

from dev.toolchain import rules
from dev.toolchain.paths import CHECKOUT
from tests.folders import put


def write(tmp_path, name: str, text: str) -> str:
    put(tmp_path / name, text)
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
    name = write(tmp_path, "a.txt", f"fine\nsee {word} here\n")
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
        write(tmp_path, "dev/long.py", "x = 1\n" * 601),
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


def findings(tmp_path, source: str, name: str = "lab/x.py") -> list[str]:
    put(tmp_path / name, source)
    return rules.numbers(tmp_path, [name])


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("ok = text.isdigit()", "isdigit takes"),
        ("ok = text.isnumeric() and int(text)", "isnumeric takes"),
        ("ok = text[1:].isdecimal()", "isdecimal takes"),
        ("ok = all(map(str.isdigit, words))", "isdigit takes"),
        (r'found = re.match(r"\d+", text)', "a backslash-d"),
        (r'_SIZE = re.compile("(\\d+)[KM]", re.IGNORECASE)', "a backslash-d"),
        (r'TABLE = ((r"only \d+ disks", "why"),)', "a backslash-d"),
        (r'path = f"/{kind}s/{{id:\\d+}}"', "a backslash-d"),
        (r'_NAME = re.compile(r"[\d_]+")', "a backslash-d"),
        ('found = re.match(r"^[0-9]+$", text)', "$ lets"),
        ('found = re.search("^(none$|swap$)", text, re.IGNORECASE)', "$ lets"),
        ('found = re.fullmatch(rb"(?=.{1,9}$)[a-z]+", data)', "$ lets"),
        ('_NAME = re.compile("%s$" % _WORD)', "$ lets"),
        ('_NAME = re.compile(_WORD + r"$")', "$ lets"),
        (r'_KEY = re.compile(r"^\s*key:", re.MULTILINE)', "many empty lines"),
        (r'_KEY = re.compile(r"(?:^|[{,])\s*key:", re.M)', "many empty lines"),
        (r'_ERROR = re.compile(r"^ERROR (.*(?:\n(?!\s*\[).*)*)", re.MULTILINE)', "many empty lines"),
    ],
)
def test_what_takes_a_text_for_another_is_found(tmp_path, source, what):
    found = findings(tmp_path, "import re\n\n" + source + "\n")
    assert len(found) == 1
    assert found[0].startswith("lab/x.py:3: " + what)


@pytest.mark.parametrize(
    "source",
    [
        r'found = re.match(r"[0-9]+\Z", text)',
        r'found = re.match(r"\d+\Z", text, re.ASCII)',
        r'found = re.match(r"\d+\Z", text, flags=re.I | re.A)',
        r'found = re.match(r"(?a)\d+\Z", text)',
        r'found = re.match(rb"\d+\Z", data)',
        r'found = re.match(r"C:\\data", text)',
        '"""Digits are \\\\d in a pattern, and $ its end."""',
        r'found = re.search(r"^[a-z]+=(.*)$", text, re.MULTILINE)',
        r'found = re.search(r"(?m)^[a-z]+$", text)',
        r'found = re.search(r"[a-z$]+\$", text)',
        'price = template.replace("$", "USD")',
        "ok = text.isalnum()",
    ],
)
def test_other_texts_are_left_alone(tmp_path, source):
    assert findings(tmp_path, source + "\n") == []


def guarded(call: str, *classes: str) -> str:
    return f"try:\n    found = {call}\nexcept ({', '.join(classes)},):\n    pass\n"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("found = json.loads(text)\n", "json raises"),
        (guarded("json.load(file)", "ValueError"), "json raises"),
        ("def read():\n    with contextlib.suppress(ValueError):\n        return json.loads(text)\n", "json raises"),
        (guarded("[json.loads(one) for one in texts]", "ValueError", "KeyError"), "json raises"),
        ("try:\n    pass\nexcept RecursionError:\n    found = json.loads(text)\n", "json raises"),
        (guarded("yaml.safe_load(text)", "yaml.YAMLError"), "YAML raises"),
        (guarded("yaml.safe_load(text)", "yaml.YAMLError", "ValueError"), "YAML raises"),
        (guarded("base64.b64decode(text)", "binascii.Error"), "b64decode raises"),
        (guarded("base64.b64decode(text).decode()", "binascii.Error", "UnicodeDecodeError"), "b64decode raises"),
    ],
)
def test_a_reader_whose_errors_are_not_all_handled_is_found(tmp_path, source, what):
    (found,) = findings(tmp_path, source, "plugins/x.py")
    assert ": " + what in found


@pytest.mark.parametrize(
    "source",
    [
        guarded("json.loads(text)", "ValueError", "RecursionError"),
        "with contextlib.suppress(ValueError, RecursionError):\n    found = json.loads(text)\n",
        "try:\n    found = json.loads(text)\nexcept Exception:\n    pass\n",
        "found = json_value(text)\n",
        "found = yaml.safe_load(ours)\n",
        guarded("yaml.safe_load(text)", "yaml.YAMLError", "ValueError", "RecursionError"),
        guarded("base64.b64decode(text)", "binascii.Error", "ValueError"),
        guarded("base64.b64decode(text)", "ValueError"),
    ],
)
def test_a_reader_whose_errors_are_handled_is_left_alone(tmp_path, source):
    assert findings(tmp_path, source, "plugins/x.py") == []


def test_the_lab_reads_json_of_its_own(tmp_path):
    assert findings(tmp_path, "found = json.loads(text)\n", "lab/x.py") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("plugins/modules/a.py", 1),
        ("plugins/module_utils/a.py", 1),
        ("provision/a.py", 1),
        ("dev/tool", 1),
        ("plugins/module_utils/_common/text.py", 0),
        ("tests/unit/test_a.py", 0),
    ],
)
def test_where_the_rules_hold(tmp_path, name, found):
    assert len(findings(tmp_path, "#!/usr/bin/python3\nok = text.isdigit()\n", name)) == found
