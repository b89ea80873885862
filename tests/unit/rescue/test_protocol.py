# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the runner: read defensively, judged by the rule of success."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job, protocol
from tests.unit.common import odd

BOOT = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6"
JOB = "a" * 64


def answer(**fields: object) -> str:
    known = {"job": JOB, "id": "1.2.", "boot": BOOT, "state": "running", "exit": "", "seconds": "1.50", "limit": "420"}
    known.update({"marker": "0", "left": "0", "interleaved": "0", "offset": "0", "bytes": "0", **fields})
    return "kubenode-runner=1\n" + "".join(f"{key}={value}\n" for key, value in known.items()) + "end=1\n"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_an_answer_is_read():
    log = b"0.10 out hello\n\xff\x00"
    text = answer(
        state="exited", exit="3", marker="1", offset="7", log=encoded(log), output=encoded(b'{"message": "x"}')
    )
    status = protocol.parse_status("motd\nof the day\n" + text)
    assert (status.state, status.exit_code, status.seconds, status.limit) == ("exited", 3, 1.5, 420)
    assert (status.log, status.next_offset, status.message) == (log, 7 + len(log), "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sh: 0: cannot open /root/.kubenode/runner.sh",
        answer().replace("end=1\n", ""),
        answer(state="done"),
        answer(boot="x"),
        answer(job="../../etc"),
        answer(exit="zero"),
        answer(log="%%%"),
        answer(seconds="soon"),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(protocol.ProtocolError):
        protocol.parse_status(text)


@pytest.mark.parametrize("field", ["exit", "limit", "left", "interleaved", "offset", "seconds"])
@pytest.mark.parametrize("text", odd.WORDS)
def test_what_is_no_number_is_refused(field, text):
    if (field, text) == ("seconds", "1.0"):
        assert protocol.parse_status(answer(seconds=text)).seconds == 1
        return
    with pytest.raises(protocol.ProtocolError):
        protocol.parse_status(answer(**{field: text}))


@pytest.mark.parametrize(
    ("output", "size", "says"),
    [
        (b"", None, ""),
        (b"", "0", ""),
        (b'{"message": "42 %"}', "19", ""),
        (b'{"progress": 1}', None, ""),
        (b'{"message": "x', None, "is no JSON"),
        (b"IMAGE_URL_DONE", None, "is no JSON"),
        (b"\xff", None, "is no UTF-8 text"),
        (b"[" * 60000, None, "is nested too deeply"),
        (b"1" * 5000, None, "is no"),
        (b"[]", None, "no object with a message"),
        (b'{"message": {"a": 1}}', None, "the message in its output.json is no text"),
        (b'{"message": "' + b"x" * 65523, "10485760", "has 10485760 bytes, of which at most 65536 are read"),
    ],
)
def test_an_output_that_cannot_be_read_is_called_what_it_is(output, size, says):
    assert says in protocol.output_error(output, size)
    assert bool(says) == bool(protocol.output_error(output, size))
    fields = {"output": base64.b64encode(output).decode(), **({"output_size": size} if size else {})}
    assert protocol.parse_status(answer(state="exited", **fields)).output_error == protocol.output_error(output, size)
    # it may be half written
    assert protocol.parse_status(answer(state="running", **fields)).output_error == ""


@pytest.mark.parametrize(("code", "says"), [(126, "another architecture"), (127, "not found in the rescue"), (1, "")])
def test_exit_codes_of_what_was_never_run_are_explained(code, says):
    status = protocol.parse_status(answer(state="exited", exit=str(code), marker="0"))
    text = protocol.explain_failure(status, protocol.MARKER_AND_EXIT_CODE, "/usr/bin/perl -w")
    assert says in text
    assert ("(/usr/bin/perl -w)" in text) == bool(says)
    assert f"exit code {code}" in text


@given(st.text(max_size=200), st.text(max_size=50))
def test_garbage_never_ends_in_anything_but_a_protocol_error(text, value):
    for garbage in (text, answer(exit=value), answer(log=value), answer(output=value), answer(left=value)):
        try:
            protocol.parse_status(garbage)
        except protocol.ProtocolError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("state", "code", "marker", "strict", "lenient"),
    [
        ("exited", "0", "1", True, True),
        ("exited", "1", "1", False, True),
        ("exited", "0", "0", False, False),
        ("timeout", "0", "1", False, False),
        ("killed", "", "1", False, False),
        ("lost", "", "0", False, False),
        ("running", "", "1", False, False),
        ("none", "", "0", False, False),
    ],
)
def test_the_rules_of_success(state, code, marker, strict, lenient):
    status = protocol.parse_status(answer(state=state, exit=code, marker=marker))
    assert status.succeeded(protocol.MARKER_AND_EXIT_CODE) is strict
    assert status.succeeded(protocol.MARKER_ONLY) is lenient
    if not strict and state != "running":
        assert protocol.explain_failure(status, protocol.MARKER_AND_EXIT_CODE)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": "timeout"}, "did not end within 420 s and was killed with all its processes"),
        ({"state": "timeout", "left": "2"}, "2 of its processes could not be ended"),
        ({"state": "exited", "exit": "1", "marker": "1"}, "printed IMAGE_URL_DONE but ended with exit code 1"),
        ({"state": "exited", "exit": "137"}, "exit code 137 (signal 9)"),
        ({"state": "exited", "exit": "0"}, "last line of its stdout does not contain IMAGE_URL_DONE"),
        ({"state": "killed"}, "ended from outside"),
        ({"state": "lost"}, "its runner was killed"),
    ],
)
def test_a_failure_is_explained(fields, words):
    status = protocol.parse_status(answer(**fields))
    assert words in protocol.explain_failure(status, protocol.MARKER_AND_EXIT_CODE)


@pytest.mark.parametrize(
    ("state", "of_job", "expected"),
    [
        (None, None, protocol.START),
        ({"state": "none"}, JOB, protocol.START),
        ({"state": "running"}, JOB, protocol.ATTACH),
        ({"state": "running"}, "b" * 64, protocol.BUSY),
        ({"state": "exited", "exit": "0", "marker": "1"}, JOB, protocol.ATTACH),
        ({"state": "exited", "exit": "0", "marker": "1"}, "b" * 64, protocol.START),
        ({"state": "exited", "exit": "1", "marker": "1"}, JOB, protocol.START),
        ({"state": "timeout"}, JOB, protocol.START),
        ({"state": "lost"}, JOB, protocol.START),
        ({"state": "lost"}, "b" * 64, protocol.START),
    ],
)
def test_a_job_is_started_attached_to_or_refused(state, of_job, expected):
    status = protocol.parse_status(answer(**state)) if state else None
    assert protocol.decide(status, of_job, protocol.MARKER_AND_EXIT_CODE) == expected


@given(st.lists(st.binary(max_size=5), min_size=2, max_size=2), st.lists(st.text(max_size=5), max_size=3))
def test_a_job_is_its_program_data_and_arguments(contents, arguments):
    command, bootstrap = contents
    digest = protocol.job_digest(command, bootstrap, arguments)
    assert digest == protocol.job_digest(command, bootstrap, list(arguments))
    assert digest != protocol.job_digest(command + b"x", bootstrap, arguments)
    assert digest != protocol.job_digest(command, bootstrap + b"x", arguments)
    assert digest != protocol.job_digest(command, bootstrap, [*arguments, ""])
    if command:
        # No byte can move from one part to the next unnoticed.
        assert digest != protocol.job_digest(command[:-1], command[-1:] + bootstrap, arguments)


@given(st.binary(max_size=300), st.binary(max_size=300), st.text(max_size=20))
def test_a_job_travels_whole(command, bootstrap, token):
    sent = job.Job(command, bootstrap, ["https://x/ü", "node-1", "sda"], token, 420, "marker", "#!/bin/sh\n")
    got = job.Job.unpack(sent.pack())
    assert got.__dict__ == sent.__dict__
    assert got.digest == sent.digest


@given(st.one_of(st.binary(max_size=60), st.recursive(st.none() | st.text(), st.lists).map(json.dumps).map(str.encode)))
def test_a_message_is_text_or_nothing(output):
    assert isinstance(protocol.message_of(output), str)


def test_a_fetched_log_is_whole():
    packed = gzip.compress(b"log\x00\xff")
    lines = base64.encodebytes(packed).decode() + "end=1\n"
    assert gzip.decompress(protocol.parse_fetch(lines)) == b"log\x00\xff"
    with pytest.raises(protocol.ProtocolError):
        protocol.parse_fetch(lines[:-7])
