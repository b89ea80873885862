# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets a second try, and who does not."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pathlib
import pytest

TRIES = pathlib.Path(__file__)

def second(name):
    tries = TRIES.with_name(name)
    again = tries.exists()
    tries.touch()
    return again

@pytest.fixture(scope="module")
def lab():
    yield "lab"

@pytest.fixture
def own(lab):
    yield lab

@pytest.mark.qemu
def test_first_try_fails(own):
    assert own == "lab"
    assert second("machine")

@pytest.mark.qemu
def test_never_passes(own):
    assert False

@pytest.mark.qemu
def test_passes(own):
    pass

def test_no_machine(own):
    assert own == "lab"
    assert second("none")
"""
MACHINES_ONLY = {"passed": 2, "failed": 2, "warnings": 2}


@pytest.mark.parametrize(
    ("folder", "switch", "outcome"),
    [
        ("lab", "", MACHINES_ONLY),
        ("lab", "1", {"passed": 3, "failed": 1, "warnings": 3}),
        ("unit", "1", MACHINES_ONLY),
    ],
)
def test_who_is_tried_once_more(pytester, monkeypatch, folder, switch, outcome):
    monkeypatch.setenv("KUBENODE_SECOND_TRY", switch)
    pytester.makeini("[pytest]\nmarkers = qemu: whole machines\nasyncio_default_fixture_loop_scope = function\n")
    pytester.mkdir(folder).joinpath("test_some.py").write_text(TESTS)
    result = pytester.runpytest("-p", "dev.pytest_second_try", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(**outcome)
    assert "test_first_try_fails failed and is tried once more" in result.stdout.str()


def test_the_second_try_has_a_limit_of_its_own(pytester, monkeypatch):
    monkeypatch.setenv("KUBENODE_SECOND_TRY", "1")
    pytester.makeini("[pytest]\ntimeout = 1\nasyncio_default_fixture_loop_scope = function\n")
    pytester.mkdir("lab").joinpath("test_hangs.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(60)\n")
    result = pytester.runpytest("-p", "dev.pytest_second_try", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(failed=1, warnings=1)
    assert "Timeout" in result.stdout.str()
