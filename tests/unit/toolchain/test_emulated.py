# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets a second try, and who does not."""

from __future__ import annotations

pytest_plugins = ["pytester"]

TESTS = """
import pathlib
import pytest

TRIES = pathlib.Path(__file__).with_name("tries")

def tries():
    TRIES.touch()
    with TRIES.open("a") as file:
        file.write("x")
    return len(TRIES.read_text())

@pytest.fixture(scope="module")
def lab():
    yield "lab"

@pytest.fixture
def own(lab):
    yield lab

@pytest.mark.qemu
def test_first_try_fails(own):
    assert own == "lab"
    assert tries() == 2

@pytest.mark.qemu
def test_never_passes(own):
    assert False

@pytest.mark.qemu
def test_passes(own):
    pass

def test_no_machine(own):
    assert False
"""


def test_only_tests_on_virtual_machines_are_tried_once_more(pytester):
    pytester.makeini("[pytest]\nmarkers = qemu: whole machines\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest("-p", "dev.pytest_emulated", "-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=2, warnings=2)
