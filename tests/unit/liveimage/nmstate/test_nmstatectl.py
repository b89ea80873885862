# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""With nmstatectl: what a program of that name prints is taken, what it says when it refuses is passed on."""

from __future__ import annotations

import json
import subprocess

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import conversion, with_nmstatectl
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import chosen, start
from tests.folders import put_programs

DOCUMENT = {"interfaces": [{"name": "eth0"}]}


@pytest.fixture
def program(tmp_path):
    """Writes a program, gives how to run it."""

    def write(body):
        lines = 'cat > %s/seen\necho "$*" > %s/arguments\n%s' % (tmp_path, tmp_path, body)
        path = put_programs(tmp_path, {"nmstatectl": lines}) / "nmstatectl"

        def run(command, text):
            done = subprocess.run([str(path), *command[1:]], input=text, text=True, capture_output=True, check=False)
            return done.returncode, done.stdout, done.stderr

        return run

    return write


def printing(answer):
    return "cat <<'END'\n%s\nEND" % answer


def test_its_answer_is_taken(program, tmp_path):
    answer = "---\nNetworkManager:\n- - eth0.nmconnection\n  - |\n    [connection]\n    id=eth0\n"
    assert with_nmstatectl(DOCUMENT, program(printing(answer))) == {"eth0.nmconnection": "[connection]\nid=eth0\n"}
    assert json.loads((tmp_path / "seen").read_text()) == DOCUMENT
    assert (tmp_path / "arguments").read_text() == "gc /dev/stdin\n"


def test_an_answer_without_profiles(program):
    assert with_nmstatectl(DOCUMENT, program(printing("---\nNetworkManager: []"))) == {}


def test_its_reason_is_passed_on(program):
    body = "echo '[2026-11-21T15:00:00Z WARN  nmstate] nothing' >&2; echo 'NmstateError: unknown field `x`' >&2; exit 1"
    with pytest.raises(ImageError, match=r"refuses the NMState document: NmstateError: unknown field `x`$"):
        with_nmstatectl(DOCUMENT, program(body))


@pytest.mark.parametrize(
    "answer",
    [
        "NetworkManager: [[../../etc/passwd, x]]",
        "NetworkManager: [[.hidden.nmconnection, x]]",
        "NetworkManager: [[a.nmconnection]]",
        "NetworkManager: [[a.nmconnection, x], [a.nmconnection, y]]",
        "NetworkManager: {a: b}",
        "[",
        "text",
    ],
)
def test_an_odd_answer_is_refused(program, answer):
    with pytest.raises(ImageError):
        with_nmstatectl(DOCUMENT, program(printing(answer)))


def test_a_document_that_is_no_plain_data(program):
    with pytest.raises(ImageError, match="no plain data"):
        with_nmstatectl({"interfaces": object()}, program("exit 0"))


def test_it_is_started_where_it_is_asked_for_and_there(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert chosen("builtin") is None
    assert chosen("auto") is None
    with pytest.raises(ImageError, match="nmstatectl is not installed"):
        chosen("nmstatectl")
    program(printing('NetworkManager: [["eth0.nmconnection", "[connection]"]]'))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert chosen("builtin") is None
    for converter in ("auto", "nmstatectl"):
        run = chosen(converter)
        assert run is not None
        assert with_nmstatectl(DOCUMENT, run) == {"eth0.nmconnection": "[connection]"}
        assert (tmp_path / "arguments").read_text() == "gc /dev/stdin\n"


def test_one_that_hangs_or_is_no_program_is_an_error(program, tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "SECONDS", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program("exec tail -f /dev/null")
    with pytest.raises(ImageError, match="nmstatectl did not run to its end: TimeoutExpired"):
        with_nmstatectl(DOCUMENT, start)
    (tmp_path / "nmstatectl").write_bytes(b"\0no program")
    with pytest.raises(ImageError, match="nmstatectl did not run to its end: "):
        with_nmstatectl(DOCUMENT, start)
