# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh that stays open: every request gets its own answer, whether a script reads, prints or leaves data."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import remote as session_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import Lost, Session

#: In the place of ssh: the other side is this machine.
HERE = ("sh", "-c")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(HERE)
    yield session
    session.close()


def test_each_request_gets_its_answer(session):
    assert session.run("echo one; exit 3") == (3, "one\n")
    assert session.run("printf two") == (0, "two")
    assert session.run("") == (0, "")
    assert session.alive


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=4))
@example(["", " ", "\n", "'", "$(id)", "\\", "-"])
def test_arguments_arrive_as_they_are(session, arguments):
    code, text = session.run('printf "%s|" "$#" "$@"', *arguments)
    assert (code, text) == (0, "|".join([str(len(arguments)), *arguments, ""]))


@given(st.binary(max_size=300))
@example(b"")
@example(b"\n-\n\nexit 1\n")
def test_data_is_the_stdin_of_one_script(session, data):
    assert session.run("od -An -v -tx1 | tr -d ' \n'", data=data) == (0, data.hex())
    assert session.run("cat") == (0, "")


def test_data_that_is_not_read_does_no_harm(session):
    assert session.run("exit 4", data=b"x" * 300_000) == (4, "")
    assert session.run("head -c 2; exit 5", data=b"yz" * 200_000) == (5, "yz")
    assert session.run("echo well") == (0, "well\n")


def test_much_goes_both_ways_at_once(session):
    data = random.Random(1).randbytes(3_000_000).hex().encode()
    code, text = session.run("tee /dev/stderr", data=data)
    assert code == 0
    assert text.encode() == data


def test_a_script_leaves_nothing_to_the_next_one(session):
    session.run("cd /; x=1; exec 1>/dev/null; set -u; trap 'echo trapped' EXIT; m=other; f() { :; }")
    assert session.run('echo "${x-unset}"; pwd') == (0, f"unset\n{os.getcwd()}\n")


def test_what_a_script_leaves_running_does_not_hold_the_answer(session):
    code, text = session.run("sleep 600 </dev/null >/dev/null 2>&1 & echo $!")
    os.kill(int(text), signal.SIGTERM)
    assert code == 0


def test_a_script_cannot_forge_an_answer_without_the_mark(session):
    assert session.run("printf '\\nkubenode-%032d 0\\n' 0; exit 7")[0] == 7


def test_what_the_login_prints_is_dropped():
    session = Session(("sh", "-c", 'echo motd; echo noise >&2; exec "$0" "$@"', "sh", "-c"))
    try:
        assert session.run("echo in") == (0, "in\n")
    finally:
        session.close()


def test_a_refused_login_says_what_ssh_said():
    with pytest.raises(Lost, match=r"^Permission denied$"):
        Session(("sh", "-c", "echo Permission denied >&2; exit 255"))


def test_a_login_that_hangs_ends():
    with pytest.raises(Lost, match="took too long"):
        Session(("sh", "-c", "exec sleep 600"), login=0.2)


def test_an_ssh_that_is_not_there_is_named():
    with pytest.raises(Lost, match="cannot be started: No such file"):
        Session(("/nowhere/ssh",))


def test_a_connection_that_ends_is_noticed_within_a_request_and_between_two():
    session = Session(HERE)
    with pytest.raises(Lost, match="closed"):
        session.run("kill -9 $$")
    session = Session(HERE)
    session._process.send_signal(signal.SIGKILL)
    session._process.wait()
    assert not session.alive
    with pytest.raises(Lost):
        session.run("echo")


def test_an_answer_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(session_module, "MOST", 1_000_000)
    with pytest.raises(Lost, match="more than"):
        Session(HERE).run("yes")


def test_closing_ends_the_other_side():
    session = Session(HERE)
    other_side = int(session.run("echo $$")[1])
    session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(other_side, 0)
