# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module of the API reports in a file, and what the reader makes of a file with any content."""

from __future__ import annotations

import json
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import own_run_of
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import fleet_run
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    FleetError,
    MachineError,
    raise_if_ended,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Budget
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import News
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display, module_progress
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files, results


class Api:
    """What News asks of an API."""

    def __init__(self) -> None:
        self.calls, self.news = 7, None
        self.budget = Budget(lambda: 0.0)

    def stop(self, error: Exception) -> None:
        raise error


def work(run: fleet_run.MachineRun) -> None:
    run.timeline.to(boot_states.INITIALIZING)
    if run.name == "bad":
        raise MachineError("server_type: secret is no type")
    run.result["msg"] = "created"


@pytest.fixture
def written(tmp_path):
    """The file after two machines went through a module."""
    api = Api()
    api.budget.answered({"RateLimit-Limit": "3600", "RateLimit-Remaining": "3590"}, api.budget.sent())
    path = tmp_path / "news"
    api.news = News(str(path), api, lambda text: text.replace("secret", "********"))
    fleet_run.run_all(api, [fleet_run.MachineRun("good"), fleet_run.MachineRun("bad")], work)
    return path


def test_every_change_of_a_machine_is_a_line(written):
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    good = [line for line in lines if line["machine"] == "good"]
    assert [(line["state"], line["ended"], line["text"]) for line in good] == [
        ("", False, ""), ("Initializing", False, ""), ("Initializing", True, "created"),
    ]  # fmt: skip
    assert good[0]["requests"] == {"made": 7, "limit": 3600, "remaining": 3590}
    last = [line for line in lines if line["machine"] == "bad"][-1]
    assert (last["state"], last["failed"]) == ("ProvisioningFailed", True)
    assert last["text"] == "server_type: ******** is no type"
    assert written.stat().st_mode & 0o777 == 0o600


def test_the_first_of_two_works_ends_only_what_failed(tmp_path):
    api = Api()
    api.news = News(str(tmp_path / "news"), api)
    fleet_run.run_all(api, [fleet_run.MachineRun("good"), fleet_run.MachineRun("bad")], work, last=False)
    lines = [json.loads(line) for line in (tmp_path / "news").read_text().splitlines()]
    assert [line["machine"] for line in lines if line["ended"]] == ["bad"]


def test_a_file_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(FleetError, match=r"progress_file: '.*' cannot be written: "):
        News(str(tmp_path / "missing" / "news"), Api())


class Action(module_progress.ApiAction):
    """The action of a task for one machine, whose module only looks at its run."""

    def __init__(self, connection: str = "local", async_val: int = 0, become: bool = False, **given: object) -> None:
        self._connection = types.SimpleNamespace(_load_name=f"ansible.builtin.{connection}")
        self._play_context = types.SimpleNamespace(become=become)
        args = {"machines": [{"name": "good"}], **given}
        self._task = types.SimpleNamespace(args=args, async_val=async_val, no_log=False)

    def run_with(self, view, tmp, task_vars):
        return self._as_usual(tmp, task_vars)

    def _as_usual(self, tmp, task_vars):
        given = self._task.args
        self.seen = own_run_of(given)
        raise_if_ended(self.seen)
        return {"shown": str(given.get("progress_file", "")).startswith(str(module_progress.C.DEFAULT_LOCAL_TMP))}


@pytest.mark.parametrize(
    ("about", "shown", "watched"),
    [
        ({}, True, True),
        ({"become": True}, False, True),
        ({"progress_file": "/own"}, False, True),
        ({"machines": []}, False, True),
        ({"async_val": 60}, False, False),
        ({"connection": "ssh"}, False, False),
    ],
)
def test_a_module_on_the_controller_ends_with_its_run(tmp_path, monkeypatch, about, shown, watched):
    monkeypatch.setattr(module_progress.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    action = Action(**about)
    assert action.run() == {"shown": shown}
    assert (action.seen is not None) == watched
    assert "run_socket" not in action._task.args
    assert list(tmp_path.iterdir()) == []
    if action.seen is not None:
        with pytest.raises(FleetError, match="the run that this belongs to has ended"):
            raise_if_ended(action.seen)


def test_a_module_whose_run_has_ended_before_it_begins_ends_at_once():
    with pytest.raises(FleetError, match="the run that this belongs to has ended"):
        raise_if_ended(own_run_of({"run_socket": "kubenode-run-of-the-past"}))


def reader(path, names=("good", "bad"), variables=None):
    said: list[str] = []
    show = display.FleetView(names, "fleet", lambda text, **_how: said.append(text))
    return module_progress.Reader(str(path), show, variables or {}), show, said


def test_the_news_make_a_view(written):
    read, show, said = reader(written, variables={"server_type": "kubenode_server_type"})
    read.read()
    read.read()
    assert said == ["bad: FAILED: kubenode_server_type: ******** is no type"]
    assert show.fleet.sum_line() == "1/2 done · 1 failed · API 10 of 3600"


def test_what_is_ahead_is_said_before_the_machines(tmp_path):
    news = News(str(tmp_path / "news"), Api())
    news.plan("creating 2 machines:\n about 6 API requests")
    for mode, expected in (("fleet", ["creating 2 machines: about 6 API requests"]), ("lines", []), ("none", [])):
        read, show, said = reader(tmp_path / "news")
        show.mode = mode
        read.read()
        assert said == expected


def test_the_report_knows_machines_before_the_module_ends(written, monkeypatch):
    noted = results.Report()
    monkeypatch.setattr(report_files, "note", lambda host, result, failed=False: noted.add(host, result, failed=failed))
    reader(written, names=["good", "bad"])[0].read()
    assert [(one["name"], one["boot_state"], one["failed"]) for one in noted.machines] == [
        ("bad", "ProvisioningFailed", True),
        ("good", "Initializing", False),
    ]
    assert noted.machines[0]["reason"] == "server_type: ******** is no type"
    reader(written, names=["other"])[0].read()
    assert len(noted.machines) == 2


def test_half_a_line_waits_for_its_other_half(written, tmp_path):
    data, path = written.read_bytes(), tmp_path / "copy"
    read, show, _said = reader(path)
    read.read()
    for place in range(0, len(data), 7):
        with path.open("ab") as file:
            file.write(data[place : place + 7])
        read.read()
    assert show.fleet.sum_line() == "1/2 done · 1 failed · API 10 of 3600"


@given(st.lists(st.one_of(st.binary(max_size=200), st.builds(
    lambda value: json.dumps({"machine": value, "state": value, "text": value, "ended": True, "requests": {
        "made": value, "limit": value, "remaining": value}}).encode(),
    st.one_of(st.text(max_size=50), st.none(), st.integers(), st.lists(st.text(max_size=5), max_size=3)),
)), max_size=10))  # fmt: skip
def test_a_file_that_holds_anything_does_no_harm(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("news") / "news"
    path.write_bytes(b"\n".join([*lines, b"x" * 70000, b""]))
    read, show, said = reader(path)
    read.read()
    assert set(show.fleet.machines) == {"good", "bad"}
    assert not [text for text in said if "\x1b" in text or "\n" in text]
    show.fleet.sum_line()


@pytest.mark.parametrize(
    ("output", "count"),
    [
        (b'{"message": "x", "bytes": {"done": 5, "total": 10}}', (5, 10)),
        (b'{"bytes": {"done": 5}}', (5, None)),
        (b'{"bytes": {"done": 5, "total": null}}', (5, None)),
        (b'{"bytes": {"done": -5}}', None),
        (b'{"bytes": {"done": 5.5}}', None),
        (b'{"bytes": {"done": true}}', None),
        (b'{"bytes": {"done": "5"}}', None),
        (b'{"bytes": {"done": 99999999999999999999}}', None),
        (b'{"bytes": [5, 10]}', None),
        (b'{"bytes": {"done": 5, "total": "10"}}', None),
        (b'{"message": "x"}', None),
        (b"[1]", None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_the_bytes_of_an_image_command(output, count):
    assert protocol.bytes_of(output) == count


def test_threads_of_a_module_write_whole_lines(tmp_path):
    api = Api()
    news = News(str(tmp_path / "news"), api)
    runs = [fleet_run.MachineRun(f"n{number}" * 20) for number in range(8)]
    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(lambda run: [news.write(run) for _time in range(50)], runs))
    lines = (tmp_path / "news").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 400
