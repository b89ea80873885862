# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module of the API reports in a file, and what the reader makes of a file with any content."""

from __future__ import annotations

import json
import math
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
    assert (good[0]["changed"], good[0]["known"]) == (False, {})
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
        self._task = types.SimpleNamespace(args=args, async_val=async_val, no_log=False, check_mode=False)

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


def reader(path, names=("good", "bad"), variables=None, mode="fleet"):
    said: list[str] = []
    show = display.FleetView(names, mode, lambda text, **_how: said.append(text))
    return module_progress.Reader(str(path), show, variables or {}), show, said


def test_the_news_make_a_view(written):
    read, show, said = reader(written, variables={"server_type": "kubenode_server_type"})
    read.read()
    read.read()
    assert said == ["bad: FAILED: kubenode_server_type: ******** is no type"]
    assert show.fleet.sum_line() == "1/2 done · 1 failed · API 10 of 3600"


def test_what_a_machine_waits_for_is_said_while_it_waits(tmp_path):
    run = fleet_run.MachineRun("good")
    News(str(tmp_path / "news"), Api(), lambda text: text.replace("secret", "***")).follow(run)
    run.says("asking which system runs, 10 of at most 360 s: secret")
    read, show, said = reader(tmp_path / "news", mode="lines")
    read.read()
    assert said == ["good: asking which system runs, 10 of at most 360 s: ***"]
    assert show.fleet.machines["good"].outcome == ""


def test_what_is_ahead_is_said_before_the_machines(tmp_path):
    news = News(str(tmp_path / "news"), Api())
    news.plan("creating 2 machines:\n about 6 API requests")
    for mode, expected in (("fleet", ["creating 2 machines: about 6 API requests"]), ("lines", []), ("none", [])):
        read, show, said = reader(tmp_path / "news")
        show.mode = mode
        read.read()
        assert said == expected


@pytest.fixture
def noted(monkeypatch):
    """The report of the run."""
    files = report_files.ReportFiles(lambda _data, _now: {"check": False, "cost": None}, print, 0.0)
    monkeypatch.setattr(report_files, "_current", files)
    return files.report


#: What a module knows of a server that it has made, and what the report says of it.
MADE = {
    "id": 4711, "address": "203.0.113.5", "server_type": "cx23", "location": "fsn1", "instead": "",
    "price_hourly": 0.0064, "price_monthly": 3.99, "server_created": "2026-11-21T10:00:00Z",
}  # fmt: skip


def makes(run):
    """The second one is under way when the run ends."""
    if run.name == "good":
        run.result.update(MADE, changed=True, private_net=[], ipv4=MADE["address"], user_data="secret")
        run.timeline.to(boot_states.INITIALIZING)


@pytest.fixture
def making(tmp_path):
    """The file of a module that has made one of two servers."""
    api, path = Api(), tmp_path / "kubenode-progress-1"
    path.write_bytes(module_progress._head(["good", "bad"], {"server_type": "kubenode_server_type"}))
    api.news = News(str(path), api)
    fleet_run.run_all(api, [fleet_run.MachineRun("good"), fleet_run.MachineRun("bad")], makes, last=False)
    return path


def test_the_report_knows_what_a_module_has_made_before_it_ends(making, noted):
    reader(making)[0].read()
    bad, good = noted.machines
    assert {key: good[key] for key in MADE} == MADE
    assert (good["changed"], good["boot_state"]) == (True, "Initializing")
    assert (bad["changed"], bad["id"], bad["price_hourly"]) == (False, None, None)
    assert (noted.as_dict()["changed"], noted.as_dict()["api_calls"]["total"]) == (True, 7)
    assert results.cost_of(noted.machines, 0.0)["servers"] == 1
    assert "secret" not in making.read_text()


def test_the_report_knows_what_a_module_has_deleted_before_it_ends(making, noted):
    api = Api()
    api.news = News(str(making), api)

    def removes(run):
        run.result.update(MADE, status="running")
        run.show()
        if run.name == "good":
            run.result.update(status="deleted", changed=True)

    fleet_run.run_all(api, [fleet_run.MachineRun("good"), fleet_run.MachineRun("bad")], removes)
    reader(making)[0].read()
    bad, good = noted.machines
    assert (bad["removed"], bool(good["removed"]), good["address"]) == (None, True, None)


def test_a_look_ahead_changes_nothing_and_its_requests_are_those_of_no_task(making, noted):
    show = reader(making)[1]
    module_progress.Reader(str(making), show, {}, looks_ahead=True).read()
    assert [(one["name"], one["changed"], one["id"]) for one in noted.machines] == [
        ("bad", False, None), ("good", False, None),
    ]  # fmt: skip
    assert noted.as_dict()["api_calls"]["total"] == 0


def test_requests_are_news_before_anything_is_said_of_a_machine(tmp_path, noted):
    news = News(str(tmp_path / "news"), Api())
    for made in (1, 3, 2):
        news.requests(made)
    with (tmp_path / "news").open("a") as file:
        file.writelines(json.dumps({"made": made}) + "\n" for made in (True, -1, 10**400, "9", None, [9]))
    reader(tmp_path / "news")[0].read()
    assert noted.under_way == {str(tmp_path / "news"): 3}
    assert not noted


def test_a_dedicated_server_has_its_number_in_the_news():
    news = object.__new__(News)
    news._masked = lambda text: text.replace("secret", "********")
    known = {"server_number": 321, "ipv4": None, "ipv6_address": "2001:db8::2", "location": "secret" + "x" * 300}
    found = news._known(known)
    assert (found["id"], found["address"]) == (321, "2001:db8::2")
    assert (found["location"][:10], len(found["location"])) == ("********xx", 255)
    assert news._known({"id": None, "price_hourly": 1.0}) == {}


@pytest.mark.parametrize(
    "known",
    [
        {"id": True, "price_hourly": True, "address": 5, "server_type": ["cx23"], "location": {}, "instead": 0},
        {"id": "4711", "price_hourly": math.nan, "price_monthly": math.inf, "server_created": "yesterday"},
        {"id": -1, "price_hourly": -0.1, "price_monthly": 10**400, "server_created": 5},
        {"id": 10**19, "price_hourly": "0.1", "price_monthly": None, "boot_state": "x", "verified": True, "used": "x"},
        ["id"],
        "id",
        None,
    ],
)
def test_what_is_of_another_type_is_not_taken(tmp_path, noted, known):
    line = {
        "machine": "good", "state": "Initializing", "changed": 1, "known": known,
        "requests": {"made": True, "limit": None, "remaining": None},
    }  # fmt: skip
    (tmp_path / "news").write_text(json.dumps(line) + "\n")
    reader(tmp_path / "news")[0].read()
    (machine,) = noted.machines
    fresh = results.Report()
    fresh.add("good", {"boot_state": "Initializing"})
    assert machine == fresh.machines[0]
    assert noted.as_dict()["api_calls"]["total"] == 0


def test_what_no_worker_has_read_is_taken_when_the_run_is_interrupted(making, tmp_path, noted, capsys):
    more = {"machine": "bad", "state": "", "ended": True, "failed": True, "text": "server_type: none", "requests": {}}
    more["requests"] = {"made": 9, "limit": 3600, "remaining": 3591}
    with making.open("a") as file:
        file.write(
            json.dumps(more) + "\n" + json.dumps({**more, "machine": "of another task"}) + "\n" + '{"machine": "ba'
        )
    for name, data in {"2": b"", "3": b"\xff\n", "4": b"[]\n", "5": b'{"names": 5, "variables": {}}\n'}.items():
        (tmp_path / f"kubenode-progress-{name}").write_bytes(data)
    (tmp_path / "kubenode-progress-6").mkdir()
    module_progress.take_rest(str(tmp_path))
    bad, good = noted.machines
    assert (good["id"], good["changed"]) == (4711, True)
    assert (bad["failed"], bad["reason"]) == (True, "kubenode_server_type: none")
    assert noted.as_dict()["api_calls"]["total"] == 9
    module_progress.take_rest(str(tmp_path / "missing"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "left"), [(None, False), (ValueError, False), (SystemExit, False), (KeyboardInterrupt, True)]
)
@pytest.mark.parametrize("look", [False, True])
def test_an_interrupted_task_leaves_its_file_to_the_run(tmp_path, monkeypatch, error, left, look):
    monkeypatch.setattr(module_progress.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(module_progress.context, "CLIARGS", {"check": False})
    action, heads = Action(variables={"ssh_keys": "kubenode_ssh_keys"}), []
    action._task.check_mode = look

    def ends(*_given):
        heads.extend(path.read_bytes() for path in tmp_path.iterdir())
        if error is not None:
            raise error

    monkeypatch.setattr(action, "run_with", ends)
    if error is None:
        action.run()
    else:
        with pytest.raises(error):
            action.run()
    known = {"names": ["good"], "variables": {"ssh_keys": "kubenode_ssh_keys"}}
    assert [json.loads(head) if head else None for head in heads] == [None if look else known]
    assert bool(list(tmp_path.iterdir())) == left


def test_the_report_knows_machines_before_the_module_ends(written, noted):
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
