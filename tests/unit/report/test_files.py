# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a report: whole at any time, of this run from its first result on, and as the schema says."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.callback import provision_report
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_rfc3339
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image.builds import machine_name
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files, results
from tests.clock import Clock
from tests.unit.report import reports

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "report_schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def files(tmp_path, warnings):
    found = report_files.ReportFiles(
        lambda _data, _now: {"check": False, "cost": None}, warnings.append, reports.STARTED
    )
    found.json_path, found.page_path = str(tmp_path / "report.json"), str(tmp_path / "report.html")
    return found


def machine(name, **more):
    return {"machines": [{"name": name, "boot_state": "Initializing", **more}]}


def test_the_first_result_replaces_what_an_older_run_wrote(files, tmp_path):
    for name in ("report.json", "report.html"):
        (tmp_path / name).write_text("older")
    files.note("n1", {"msg": "not about machines"})
    assert (tmp_path / "report.json").read_text() == "older"
    files.note("localhost", machine("n1"))
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["finished"], report["interrupted"], [one["name"] for one in report["machines"]]) == (
        None,
        False,
        ["n1"],
    )
    assert "The run goes on, or it was killed" in (tmp_path / "report.html").read_text()
    assert sorted(os.listdir(tmp_path)) == ["report.html", "report.json"]
    assert stat.S_IMODE((tmp_path / "report.json").stat().st_mode) == 0o644


def test_a_run_that_begins_replaces_what_an_older_run_wrote(files, tmp_path):
    """A run that is killed before its first result must not leave the older report."""
    for name in ("report.json", "report.html"):
        (tmp_path / name).write_text("older")
    files.begin()
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["started"], report["finished"], report["machines"]) == (to_rfc3339(reports.STARTED), None, [])
    assert "The run goes on, or it was killed" in (tmp_path / "report.html").read_text()
    (tmp_path / "report.json").write_text("of this run")
    files.begin()
    assert (tmp_path / "report.json").read_text() == "of this run"


def test_writing_takes_a_small_part_of_the_run(files, tmp_path, monkeypatch):
    clock = Clock(1000.0)
    monkeypatch.setattr(report_files.time, "time", clock)
    written = []

    def slow(path, text):
        written.append(path)
        clock.now += 0.25

    monkeypatch.setattr(report_files, "write", slow)
    for number in range(250):
        files.note("localhost", machine(f"n{number}"))
        clock.now += 0.1
    assert len(written) == 4  # two files, half a second of fifteen
    assert len(files.report.machines) == 250


def test_what_was_not_written_at_once_is_written_a_little_later(files, tmp_path, monkeypatch):
    clock = Clock(1000.0)
    monkeypatch.setattr(report_files.time, "time", clock)

    def names():
        return [one["name"] for one in json.loads((tmp_path / "report.json").read_text())["machines"]]

    real = report_files.write

    def slow(path, text):
        clock.now += 0.25
        real(path, text)

    monkeypatch.setattr(report_files, "write", slow)
    monkeypatch.setattr(report_files, "_current", files)
    files.note("localhost", machine("n1"))
    files.note("localhost", machine("n2"))
    report_files.catch_up()
    assert names() == ["n1"]
    clock.now += 14
    report_files.catch_up()
    assert names() == ["n1"]
    clock.now += 1
    report_files.catch_up()
    assert names() == ["n1", "n2"]
    written = clock.now
    clock.now += 100
    report_files.catch_up()
    assert clock.now == written + 100, "nothing is new"


def test_what_a_worker_has_written_survives_an_interruption(files, tmp_path, monkeypatch):
    """The worker is a fork with a report of its own, and dies without a result."""
    clock = Clock(1000.0)
    monkeypatch.setattr(report_files.time, "time", clock)

    def step(to, at):
        return {"from": "", "to": to, "at": f"2026-11-21T10:00:{at}.000Z", "seconds": 1.0}

    worker = report_files.ReportFiles(lambda _data, _now: {"check": False, "cost": None}, print, reports.STARTED)
    worker.json_path = files.json_path
    running = {"boot_state": "OperatingSystemRunning", "verified": True}
    steps = [step("Initializing", 10), step("OperatingSystemRunning", 20)]
    worker.note("localhost", machine("n1", **running, transitions=steps, api_calls=3))
    worker._not_before = 0.0
    worker.note("localhost", machine("n2", boot_state="ProvisioningFailed", failed=True, msg="n2: no disk. Name it"))
    files.report.add("localhost", {**machine("n1", transitions=steps[:1], api_calls=3), "api_calls": 5})
    files.take_back()
    first, second = files.report.machines
    assert (first["verified"], first["boot_state"], len(first["transitions"])) == (True, "OperatingSystemRunning", 2)
    assert (first["api_calls"], files.report.api_calls) == (3, 5)
    assert (second["failed"], second["reason"]) == (True, "no disk. Name it")
    # a task that is under way has no transitions yet
    worker._not_before = 0.0
    worker.note("localhost", machine("n2", boot_state="EnablingRescue"))
    files.take_back()
    assert (files.report.machines[1]["boot_state"], files.report.machines[1]["failed"]) == ("EnablingRescue", False)
    # what the main process knows better stays, and no other run's machines are taken
    clock.now += 1
    files._not_before = clock.now + 1
    files.note("localhost", machine("n2", boot_state="BootingToRescue"))
    files.take_back()
    assert files.report.machines[1]["boot_state"] == "BootingToRescue"
    other = report_files.ReportFiles(lambda _data, _now: {"check": False, "cost": None}, print, reports.STARTED + 9)
    other.json_path = files.json_path
    other.take_back()
    assert other.report.machines == []
    for text in ("{", "[]", ""):
        (tmp_path / "report.json").write_text(text)
        other.take_back()


def test_the_end_is_written_also_right_after_another_write(files):
    files.note("localhost", machine("n1"))
    data = files.data(reports.STARTED + 5, final=True)
    assert files.end(data) == [files.json_path, files.page_path]
    assert json.loads(Path(files.json_path).read_text())["finished"] == "2026-11-21T10:00:05.000Z"


def test_a_result_that_comes_after_an_interruption_replaces_nothing(files):
    files.note("localhost", machine("n1"))
    files.end(files.data(reports.STARTED + 5, final=True, interrupted=True))
    files._not_before = 0.0
    files.note("localhost", machine("n2"))
    assert json.loads(Path(files.json_path).read_text())["interrupted"]
    assert "The run was interrupted" in Path(files.page_path).read_text()


def test_no_worker_can_replace_the_report_of_an_interrupted_run(tmp_path, monkeypatch):
    """The worker is a fork of Ansible: Ctrl-C reaches it, too, while it may be writing a page.

    It is the second playbook of one command that is interrupted.
    """
    monkeypatch.setattr(provision_report, "_LAST_WORDS", 0.0)
    report = provision_report.CallbackModule()
    monkeypatch.setattr(report, "get_option", {"currency": ""}.get)
    monkeypatch.setattr(report._exports, "send", lambda _data: None)
    report._files.place(str(tmp_path / "report.json"), None)
    report._files.begin()
    said = []
    monkeypatch.setattr(report, "_say", said.append)
    report.v2_playbook_on_stats(SimpleNamespace(processed={}))
    assert json.loads((tmp_path / "report.json").read_text())["finished"]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    report.v2_playbook_on_start(None)
    fork = multiprocessing.get_context("fork")
    begun = fork.Event()

    def works_on():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun.set()
        signal.pause()

    worker = fork.Process(target=works_on, daemon=True)
    worker.start()
    begun.wait()
    try:
        report._interrupted()
        assert not worker.is_alive()
    finally:
        worker.kill()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert json.loads((tmp_path / "report.json").read_text())["interrupted"]
    assert said[:-1] == [f"Report: {tmp_path / 'report.json'}", f"Report: {tmp_path / 'report.html'}"]


def test_what_an_interrupted_run_that_makes_images_has_left_is_named(tmp_path, monkeypatch):
    report = provision_report.CallbackModule()
    monkeypatch.setattr(report, "get_option", {"currency": ""}.get)
    monkeypatch.setattr(report._exports, "send", lambda _data: None)
    monkeypatch.setattr(provision_report, "_end_workers", lambda: None)
    said = []
    monkeypatch.setattr(report, "_say", said.append)
    name = machine_name("me", "debian-13", "x86")
    left = {"name": name, "boot_state": "BootingToRescue", "id": 42, "status": "running"}
    report._files.place(str(tmp_path / "report.json"), "")
    there = "is still there; the same command removes it and begins again."
    for given, expected in (
        (left, f"{name} (id 42) {there}"),
        ({**left, "name": f"{name}-t"}, f"{name}-t (id 42) {there}"),
        ({**left, "status": "deleted"}, "Run the same command again: it makes the images that are missing."),
        ({**left, "name": "n1"}, "Run the same command again: it goes on where this one was."),
    ):
        report._ended = False
        report._report._machines.clear()
        report._report.add("localhost", {"machines": [given]})
        report._interrupted()
        assert said == [f"Report: {tmp_path / 'report.json'}", f"The run was interrupted. {expected}"]
        (tmp_path / "report.json").unlink()  # or it would be taken for what a worker has written
        said.clear()


def of_drain(host, check_mode=False, action="cluster_drain", **data):
    """The result of a task about the Node of a host."""
    task = SimpleNamespace(check_mode=check_mode, run_once=False, _uuid="u", get_path=lambda: "")
    task.resolved_action = f"kubenode.provision.{action}"
    return SimpleNamespace(_result=data, _host=SimpleNamespace(get_name=lambda: host), _task=task)


def test_an_interrupted_run_names_nodes_that_stay_cordoned(tmp_path, monkeypatch):
    """No module of the report was run; that a playbook of ours had begun to change something is enough."""
    monkeypatch.setattr(provision_report, "_end_workers", lambda: None)
    report = provision_report.CallbackModule()
    monkeypatch.setattr(report, "get_option", {"currency": ""}.get)
    said = []
    monkeypatch.setattr(report, "_say", said.append)
    report._files.place(str(tmp_path / "report.json"), "")

    def goes(host, then=None, **data):
        result = of_drain(host, **data)
        report.v2_runner_on_start(result._host, result._task)
        if then:
            then(result)

    cordoned = {"name": "n1.example.com", "own_cordon": True, "unschedulable": True}
    free = {"own_cordon": False, "unschedulable": False}
    goes("n1", report.v2_runner_on_ok, **cordoned)
    report._interrupted()
    assert (said, report._ended) == ([], False)  # no playbook of ours: it ends as Ansible does
    report._pattern = "all"
    goes("n0", report.v2_runner_on_ok, check_mode=True, changed=True, **cordoned)
    goes("n1", report.v2_runner_on_ok, **cordoned)
    goes("n2", report.v2_runner_on_ok, **cordoned)
    goes("n2", report.v2_runner_on_ok, changed=True, **free)
    goes("n3", report.v2_runner_on_skipped)
    goes("n4", report.v2_runner_on_ok, **{**cordoned, "own_cordon": False})
    goes("n5", report.v2_runner_on_ok, changed=True, **cordoned)
    goes("n5", report.v2_runner_on_ok, action="cluster_node", changed=True, own=True)
    goes("n6")
    report._interrupted()
    assert said == [
        "The run was interrupted. Run the same command again: it goes on where this one was.",
        "The Node n1.example.com stays cordoned until then. To give that up: kubectl uncordon n1.example.com",
        "The Node of n6 may be cordoned until then; kubectl get nodes shows it.",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_interrupted_while_servers_are_made_reports_them(tmp_path, monkeypatch):
    """Four of eight machines exist, and the worker that heard of them has written the first one alone."""
    names = [f"e-{number}" for number in range(1, 9)]
    price = {"price_hourly": 0.01, "price_monthly": 6.0, "server_created": "2026-11-21T10:00:00Z"}
    requests = {"limit": 3600, "remaining": 3591}
    begun = [{"machine": name, "state": "", "changed": False, "known": {}} for name in names[:7]]
    made = [
        {"machine": name, "state": "Initializing", "changed": True, "known": {"id": number, **price}}
        for number, name in enumerate(names[:4], 1)
    ]
    head = {"names": names, "variables": {}}
    lines = [head, *({**one, "requests": {"made": 9, **requests}} for one in begun + made)]
    (tmp_path / "kubenode-progress-x").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(provision_report.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(report_files, "_current", None)
    report = provision_report.CallbackModule()
    monkeypatch.setattr(report, "get_option", {"currency": "EUR", "report_file": str(tmp_path / "report.json")}.get)
    sent = []
    monkeypatch.setattr(report._exports, "send", sent.append)
    monkeypatch.setattr(report, "_say", lambda _text: None)
    report._files.place(str(tmp_path / "report.json"), "")
    report_files.begin(report._files)
    report._files.begin()
    report._report.hosts.update(names)
    report._report.add("localhost", {**machine("e-1", boot_state=""), "api_calls": 2})
    report._interrupted()
    written = json.loads((tmp_path / "report.json").read_text())
    assert sent == [written]
    assert (written["changed"], written["not_attempted"]) == (True, ["e-8"])
    assert [(one["name"], one["id"], one["changed"]) for one in written["machines"]] == [
        (name, number if number < 5 else None, number < 5) for number, name in enumerate(names[:7], 1)
    ]
    assert written["api_calls"] == {"total": 11, "per_machine": round(11 / 7, 2)}
    assert (written["cost"]["servers"], written["cost"]["hourly"]) == (4, 0.04)
    jsonschema = pytest.importorskip("jsonschema", reason="only the main environment has jsonschema")
    assert [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(written)] == []


def test_requests_of_a_task_that_is_under_way_count(files):
    files.report.add("localhost", {**machine("n1"), "api_calls": 5})
    for made in (1, 3):
        files.requests("/tmp/a", made)
    files.requests("/tmp/b", 2)
    assert files.data(reports.STARTED, final=False)["api_calls"]["total"] == 10


def test_hosts_that_an_interrupted_run_did_not_come_to_are_named(files):
    files.report.hosts.update(["n1", "n2"])
    files.note("localhost", machine("n1"), later=True)
    assert not os.path.exists(files.json_path)
    files.catch_up()
    assert json.loads(Path(files.json_path).read_text())["not_attempted"] == []
    assert files.data(reports.STARTED, final=True, interrupted=True)["not_attempted"] == ["n2"]


def test_what_cannot_be_written_is_one_warning(files, warnings, tmp_path):
    files.json_path = str(tmp_path / "missing" / "report.json")
    files.note("localhost", machine("n1"))
    files._not_before = 0.0
    files.note("localhost", machine("n2"))
    assert files.end(files.data(reports.STARTED, final=True)) == [files.page_path]
    assert warnings == [f"The provisioning report could not be written to {files.json_path}: No such file or directory"]


def test_files_lie_where_they_are_wanted(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    wanted = {
        ("report.json", None): (f"{tmp_path}/report.json", f"{tmp_path}/report.html"),
        ("", None): ("", ""),
        ("", "~/page.html"): ("", "/home/me/page.html"),
        ("/srv/a.b", ""): ("/srv/a.b", ""),
    }
    for given, found in wanted.items():
        files.place(*given)
        assert (files.json_path, files.page_path) == found


@pytest.mark.parametrize("page", [None, "report.html"])
def test_the_page_does_not_take_the_place_of_the_json_file(files, warnings, tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    files.place("report.html", page)
    assert (files.json_path, files.page_path) == (f"{tmp_path}/report.html", "")
    (said,) = warnings
    assert said.startswith("report_file (KUBENODE_REPORT_FILE) is report.html, which is the JSON file and would be")


def test_a_text_that_cannot_be_written_is_a_warning_too(files, warnings):
    files.note("localhost", machine("n\ud800"))
    assert [one.partition(": ")[2].partition(":")[0] for one in warnings] == ["UnicodeEncodeError"]


def test_nothing_is_noted_without_the_callback(monkeypatch, files):
    monkeypatch.setattr(report_files, "_current", None)
    report_files.note("localhost", machine("n1"))
    report_files.begin(files)
    report_files.note("localhost", machine("n1"))
    assert [one["name"] for one in files.report.machines] == ["n1"]


@pytest.mark.parametrize("final", [True, False])
def test_reports_are_as_the_schema_says(final):
    jsonschema = pytest.importorskip("jsonschema", reason="only the main environment has jsonschema")
    data = json.loads(json.dumps(reports.data(40, roles=True, final=final)))
    cloud = {**data["machines"][1], "price_hourly": 0.1, "removed": "2026-11-21T10:00:00.000Z"}
    data["machines"][1] = cloud
    data["cost"] = results.cost_of([cloud], reports.STARTED)
    validator = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
    assert [error.message for error in validator.iter_errors(data)] == []
    del data["machines"][0]["transitions"]
    data["finished"] = 5
    assert {error.json_path for error in validator.iter_errors(data)} == {"$.machines[0]", "$.finished"}


@pytest.mark.parametrize(
    ("source", "version", "more"),
    [
        ("inventory.yml", "6.9.0", ""),
        ("prod.hcloud.yml", "6.9.0", ". hetzner.hcloud before 6.10 may find no server; here it is 6.9.0"),
        ("prod.hcloud.yaml", "", ". hetzner.hcloud before 6.10 may find no server; here it is not installed"),
    ],
)
def test_a_run_without_hosts_names_a_dynamic_inventory_that_may_be_too_old(monkeypatch, source, version, more):
    monkeypatch.setattr(provision_report.context, "CLIARGS", {"inventory": (source,)})
    monkeypatch.setattr(provision_report, "_version_of_hcloud", lambda: version)
    said = provision_report._nothing_done("all")
    assert said == f"nothing was done: no host of the inventory {source} is in the pattern all{more}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tags": ["all"], "start_at_task": "Xyz"}, "no task of this playbook has the name 'Xyz'"),
        (
            {"tags": ["kernel", "swap"]},
            "no task of this playbook, but for those that check and lock, has the tags kernel, swap",
        ),
    ],
)
def test_a_run_without_tasks_does_not_blame_the_inventory(monkeypatch, given, said):
    monkeypatch.setattr(provision_report.context, "CLIARGS", {"inventory": ("i.yml",), **given})
    assert provision_report._nothing_done("all", has_hosts=True) == f"nothing was done: {said}"
    assert provision_report._nothing_done("all").startswith("nothing was done: no host of the inventory i.yml")


def test_a_look_ahead_that_is_refused_changes_no_machine(monkeypatch):
    """One of two may not be deleted, so that the other is not deleted either."""
    monkeypatch.setattr(provision_report.context, "CLIARGS", {"check": False})
    report = provision_report.CallbackModule()
    monkeypatch.setattr(report, "get_option", {"currency": ""}.get)
    report._ended = True  # nothing is written when the tests end
    report._report.hosts.update(["n-1", "n-2"])
    task = SimpleNamespace(
        check_mode=True, resolved_action="kubenode.provision.hcloud_machine", run_once=True, _role=None, _uuid="u",
        ignore_errors=False, get_path=lambda: f"{provision_report._PLAYBOOKS}/hcloud_delete.yml:41",
    )  # fmt: skip
    machines = [
        {"name": "n-1", "boot_state": "", "changed": True, "failed": False, "msg": "would delete the server"},
        {"name": "n-2", "boot_state": "", "changed": False, "failed": True, "msg": "is protected"},
    ]
    data = {"changed": True, "msg": "1 of 2 machines failed: n-2: is protected", "machines": machines}
    host = SimpleNamespace(get_name=lambda: "n-1")
    report.v2_runner_on_failed(SimpleNamespace(_result=data, _task=task, _host=host))
    assert [(one["name"], one["changed"], one["failed"]) for one in report._report.machines] == [("n-2", False, True)]
    assert report._report.not_attempted() == ["n-1"]
