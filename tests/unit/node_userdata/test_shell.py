# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real shell makes of the settings of setup.sh: exactly the values, with any characters."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from tests.unit.node_userdata.examples import FULL, SMALL

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


def shell(script: str, folder, name: str = SHELLS[0]) -> list[str]:
    """The NUL-separated words a script prints, with the text of `settings` beside it."""
    command = [name, "sh"] if name == "busybox" else [name]
    done = subprocess.run([*command, "-c", script], cwd=folder, stdout=subprocess.PIPE, check=True)
    words = done.stdout.decode("utf-8").split("\0")
    assert words.pop() == ""
    return words


def test_there_is_a_shell():
    assert SHELLS


@pytest.mark.parametrize("name", SHELLS)
def test_options_of_provision(tmp_path, name):
    (tmp_path / "settings").write_text(user_data.settings(user_data.normalised(FULL)), encoding="utf-8")
    words = shell(". ./settings; provision_options printf '%s\\0' first", tmp_path, name)
    assert words == [
        "first",
        *("--phase", "all"),
        *("--vars", "/etc/kubenode/provision/vars.json"),
        *("--kubelet-version", "1.36.4"),
        *("--api-server", "https://api.example.com:6443"),
        *("--cloud-provider", "external"),
        *("--ca-cert", "/etc/kubenode/provision/ca.crt"),
        *("--token-file", "/etc/kubenode/provision/token"),
        *("--cloud-config", "/etc/kubernetes/cloud-config"),
    ]


@pytest.mark.parametrize("name", SHELLS)
def test_settings_and_proxies(tmp_path, name):
    (tmp_path / "settings").write_text(user_data.settings(user_data.normalised(FULL)), encoding="utf-8")
    script = '. ./settings; printf \'%s\\0\' "$url" "$attempts"; env -0 | grep -z proxy | sort -z'
    assert shell(script, tmp_path, name) == [
        "https://files.example.com/a/provision?x=1&y=%27",
        "5",
        "http_proxy=http://proxy:3128",
        "no_proxy=10.0.0.0/8,.local",
    ]


@settings(max_examples=25, deadline=None)
@given(words=st.lists(WORD, max_size=20))
def test_quoted_words_are_seen_unchanged(tmp_path_factory, words):
    folder = tmp_path_factory.getbasetemp()
    (folder / "words").write_text(f"set -- {' '.join(map(user_data.quoted, words))}", encoding="utf-8", newline="")
    assert shell(". ./words; [ $# -eq 0 ] || printf '%s\\0' \"$@\"; printf 'end\\0'", folder) == [*words, "end"]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=30))
def test_no_proxy_is_seen_unchanged(tmp_path_factory, value):
    folder = tmp_path_factory.getbasetemp()
    text = user_data.settings({**user_data.normalised(SMALL), "vars": {"base_no_proxy": value}})
    (folder / "settings").write_text(text, encoding="utf-8", newline="")
    assert shell(". ./settings; printf '%s\\0' \"$no_proxy\"", folder) == [value]
