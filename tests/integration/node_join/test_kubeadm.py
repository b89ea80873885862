# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_join_kubeadm as a process, with a kubeadm that says what the real one says."""

import pytest

from tests.integration.controller import Controller
from tests.unit.node_join.test_kubeadm import KUBELET, LATE, PREFLIGHT, SIGNATURE

OPTIONS = {"api_server": "https://192.0.2.1:6443", "node_name": "node-1"}


@pytest.fixture
def join(tmp_path):
    """Runs the module with a kubeadm of these words; what it was given is in ``given``."""
    controller = Controller(None, tmp_path / "controller")
    program, kubelet = tmp_path / "opt/kubeadm", tmp_path / "bin/kubelet"
    for path in (program, kubelet):
        path.parent.mkdir()
        path.touch(mode=0o755)

    def run(errors, code, **options):
        (tmp_path / "errors").write_text(errors)
        program.write_text(
            f'#!/bin/sh\ncommand -v kubelet >{tmp_path}/given\necho "$@" >>{tmp_path}/given\n'
            f"echo '[preflight] Running pre-flight checks'\ncat {tmp_path}/errors >&2\nexit {code}\n"
        )
        given = {**OPTIONS, "kubeadm": str(program), "kubelet": str(kubelet), **options}
        return controller.process("node_join_kubeadm", env={"PATH": "/usr/bin:/bin"}, **given).results[0]["result"]

    run.given, run.kubelet = tmp_path / "given", str(kubelet)
    return run


def test_kubeadm_finds_the_kubelet_and_its_configuration(join):
    result = join("", 0)
    assert (result["changed"], result.get("failed", False)) == (True, False)
    assert join.given.read_text().splitlines() == [
        join.kubelet,
        "join --config /run/kubenode/kubeadm-join.yaml",
    ]


@pytest.mark.parametrize(
    ("errors", "code", "words"),
    [
        (PREFLIGHT, "kubeadm_failed", "/etc/kubernetes/pki/ca.crt already exists; "),
        # there is no kubelet on this machine
        (KUBELET, "kubelet_exited", "(kubeadm: kubelet-wait-bootstrap: failed while waiting"),
        (SIGNATURE, "discovery_signature", "use a token of this cluster with the usage 'signing'"),
    ],
)
def test_its_errors_are_the_message(join, errors, code, words):
    result = join(errors, 1)
    assert result["failed"]
    assert result["failure"]["code"] == code
    assert words in result["msg"]
    assert "non-zero return code" not in result["msg"]


def test_a_slow_runtime_is_asked_again(join, tmp_path):
    """kubeadm gives it two seconds, and no setting of its own changes that."""
    program = tmp_path / "opt/slow-kubeadm"
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/runs\n[ "$(wc -l <{tmp_path}/runs)" -ge 3 ] && exit\n'
        f"cat {tmp_path}/errors >&2\nexit 1\n"
    )
    program.chmod(0o755)
    result = join(LATE, 0, kubeadm=str(program))
    assert (result["changed"], result.get("failed", False)) == (True, False)
    assert (tmp_path / "runs").read_text().splitlines() == ["join --config /run/kubenode/kubeadm-join.yaml"] * 3


def test_a_runtime_that_never_answers_is_the_message(join):
    result = join(LATE, 1, timeout=0)
    assert result["failure"]["code"] == "kubeadm_failed"
    assert "CRI: could not connect to the container runtime" in result["msg"]


def test_nothing_is_run_in_check_mode(join):
    assert join("", 1, _ansible_check_mode=True)["changed"]
    assert not join.given.exists()


def test_a_kubeadm_that_is_gone(join, tmp_path):
    result = join("", 0, kubeadm=str(tmp_path / "none"))
    assert result["failure"]["code"] == "kubeadm_failed"
    assert f"{tmp_path}/none cannot be run" in result["msg"]
