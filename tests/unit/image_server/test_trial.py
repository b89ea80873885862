# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the image server would start: the program itself, sent to an interpreter of the machine and asked there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import node_artifacts
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import role_inputs, role_plan
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import command_line, trial
from tests.unit.image_server.test_image_server_role import AGENT, NODE, PAIR, take
from tests.unit.liveimage.maker import Layout, make

FREE = {"bind_addr": "127.0.0.1:18084", "metrics_addr": ""}


def tried(inputs, **changes):
    """What the role says after it asked the interpreter that these tests run in."""
    asked = role_plan.trial({**inputs, "python": sys.executable}, NODE)
    asked["argv"][0] = changes.pop("python", asked["argv"][0])
    done = subprocess.run(asked["argv"], input=asked["stdin"], capture_output=True, text=True, check=False)
    return role_plan.unfit(inputs, {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr})


def test_a_server_that_would_start_is_not_refused(tmp_path):
    path = str(make(tmp_path / "live.iso", Layout()))
    given = {"tls_certificate": PAIR.crt, "tls_key": PAIR.pem, "pull_secret": '{"auths": {}}', "signed_urls": 60}
    inputs = take(**{**AGENT, **FREE, **given})
    inputs["bases"] = {"x86_64": {"iso": {"path": path}}}
    assert tried(inputs) == []


def test_bases_are_named_by_the_variable_and_their_place(tmp_path, monkeypatch):
    (tmp_path / "junk").write_bytes(b"junk\n")
    monkeypatch.setattr(role_inputs, "BASES", str(tmp_path))
    (tmp_path / "coreos_aarch64.iso").write_bytes(b"<html>")
    url = {"url": "https://me:hush@files.example/coreos.iso", "sha256": "0" * 64}
    inputs = take(**FREE)
    inputs["bases"] = {"x86_64": {"iso": {"path": str(tmp_path / "junk")}}, "aarch64": {"iso": url}}
    first, second = tried(inputs)
    assert first.startswith("image_server_bases[aarch64].iso.url is 'https://********@files.example/coreos.iso': ")
    assert second.startswith(f"image_server_bases[x86_64].iso.path is '{tmp_path}/junk': {tmp_path}/junk is no ISO")
    assert second.endswith("; give the published live ISO. The base that was there before stays")


def test_only_what_was_fetched_and_is_no_base_is_thrown_away():
    inputs = take(**FREE)
    fetched = {"url": "https://files.example/x", "sha256": "5" * 64}
    inputs["bases"] = {"x86_64": {"iso": fetched, "initramfs": fetched}, "aarch64": {"iso": {"path": "/srv/x.iso"}}}
    said = [["bases[x86_64].initramfs.url", "no initramfs"], ["bases[aarch64].iso.path", "no ISO"], ["nmstate", "none"]]
    (path,) = role_plan.junk(inputs, {"rc": 0, "stdout": json.dumps(said)})
    assert path in map(node_artifacts.part_path, role_plan.artifacts(inputs))
    assert "initramfs" in path


def test_a_port_of_another_program_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        (said,) = tried(take(bind_addr=where, metrics_addr=""))
        assert said.startswith(f"image_server_bind_addr is '{where}': port {where[10:]} is in use by ")
        assert f"(process {os.getpid()}); end what uses it" in said


def test_a_port_of_the_running_server_is_free(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "is in use by" in trial._not_to_be_had("127.0.0.1", port, "nonesuch.service")
        shown = type("Done", (), {"stdout": f"{os.getpid()}\n".encode()})
        monkeypatch.setattr(trial.subprocess, "run", lambda *_arguments, **_more: shown)
        for host in ("127.0.0.1", "", "0.0.0.0"):
            assert trial._not_to_be_had(host, port, "ours.service") == ""


def test_an_address_of_another_machine_is_refused():
    (said,) = tried(take(bind_addr=":18084", metrics_addr="192.0.2.77:18085"))
    assert said.startswith("image_server_metrics_addr is '192.0.2.77:18085': Cannot assign requested address; ")


@pytest.mark.parametrize("python", ["/bin/true", "/bin/false", "/bin/cat"])
def test_what_is_no_python_is_refused(python):
    (said,) = tried(take(python=python, **FREE), python=python)
    assert said.startswith(f"image_server_python is '{python}': it cannot run the image server: ")
    assert said.endswith("; give a Python 3.8 or newer that has httptools and PyYAML in image_server_python")


def test_each_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(trial.requests, "HAS_HTTPTOOLS", False)
    monkeypatch.setattr(trial.importlib.util, "find_spec", lambda _name: None)
    settings = command_line.parse(["--overlays-dir", "/x", "--guessable", "--images-bind-addr", "127.0.0.1:0"], {})
    found = [text for name, text in trial.problems(settings, "none.service", {}) if not name]
    assert found == ["the Python library httptools is missing", "the Python library PyYAML is missing"]


def test_what_a_machine_says_need_not_be_an_answer():
    inputs = take(**FREE)
    for stdout in ("", "[]x", "7", "{}", json.dumps([1]), "null"):
        assert len(role_plan.unfit(inputs, {"rc": 0, "stdout": stdout})) == 1
    assert role_plan.unfit(inputs, {"rc": 0, "stdout": "noise\n[]\n"}) == []
    assert role_plan.unfit(inputs, {"skipped": True}) == []
    assert role_plan.junk(inputs, {"skipped": True}) == []
    (said,) = role_plan.unfit(inputs, {"rc": 1, "stderr": "Traceback\nModuleNotFoundError: No module named 'yaml'\n"})
    assert said.startswith("/usr/bin/python3: it cannot run the image server: ModuleNotFoundError: No module")
