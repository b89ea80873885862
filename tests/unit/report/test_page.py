# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a report: whole, in one file, and safe with any text of a machine."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.plugin_utils.report import report_files, results
from tests.unit.report import reports

_VOID = frozenset(["meta", "rect", "line"])


class Reader(HTMLParser):
    """Checks that elements are closed in order; keeps texts, names of elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_template_is_compiled_once(monkeypatch):
    """A run writes the page all the time."""
    first = report_files.page(reports.data(1))

    def compile_again(**_options):
        raise AssertionError("the template is compiled again")

    monkeypatch.setattr(report_files, "Environment", compile_again)
    assert report_files.page(reports.data(1)) == first


@pytest.mark.parametrize("count", [1, 12, 500])
@pytest.mark.parametrize("roles", [False, True])
def test_a_page_is_one_file_that_loads_nothing(count, roles):
    text = report_files.page(reports.data(count, roles=roles), "/srv/kubenode")
    found = Reader(text)
    assert len(text.encode()) < 1_000_000
    assert not found.names & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not [one for one in found.attributes if one[0].startswith("on") or one[0] in ("src", "style")]
    addresses = {value for name, value in found.attributes if name == "href"}
    assert addresses <= {f"logs/node-{number}/image-url-command.log" for number in range(1, count + 1)}
    assert "http-equiv" in {name for name, _value in found.attributes}
    assert len(re.findall(r'<th scope="row"', text)) == count


def test_each_state_has_a_colour_of_its_own():
    text = report_files.page(reports.data(1))
    defined = re.findall(r"--s(\d+): (#[0-9a-f]{6});", text)
    assert [int(number) for number, _colour in defined] == list(range(len(report_files.STATES)))
    assert len({colour for _number, colour in defined}) == len(defined)
    assert re.findall(r"^\.c(\d+) \{ fill: var\(--s(\d+)\); \}", text, re.M) == [(one, one) for one, _c in defined]


def test_failures_come_first_with_reason_last_lines_and_log():
    text = report_files.page(reports.data(50), "/srv")
    order = [text.index(part) for part in ("What failed", "Where the time went", "Machines over time")]
    assert order == sorted(order)
    rows = re.findall(r'<th scope="row" title="([^"]+): ([a-z ]+)"', text)
    assert [outcome for _name, outcome in rows] == sorted(
        (one for _name, one in rows), key=list(report_files.OUTCOMES).index
    )
    assert {name for name, outcome in rows if outcome == "failed"} == {"node-7", "node-27", "node-47"}
    assert "dd: error writing &#39;/dev/sda&#39;: No space left" in text
    assert 'href="kubenode/logs/node-7/image-url-command.log"' in text
    assert "not verified" in text
    assert "2 machines differ from what is asked for" in text


def test_a_run_that_failed_as_a_whole_says_why():
    data = reports.data(1)
    data.update(machines=[], phases=[], durations=[], errors=["<b>token</b>"], not_attempted=["n1", "n2"])
    text = "".join(Reader(report_files.page(data)).texts)
    assert "The run failed before any machine" in text
    assert "<b>token</b>" in text
    assert "Not attempted: n1, n2" in text


def test_a_machine_is_shown_with_its_address_and_id():
    data = reports.data(2)
    data["machines"][0].update(address="203.0.113.5", id=4711)
    titles = [value for name, value in Reader(report_files.page(data)).attributes if name == "title"]
    assert "node-1: verified, 203.0.113.5, id 4711" in titles
    assert "node-2: verified" in titles


def test_what_happened_to_many_is_said_once():
    report = results.Report()
    for name, address in (("n1", "192.0.2.1"), ("n10", "192.0.2.77"), ("n2", "2001:db8::7")):
        msg = f"{name}: the rescue did not answer within 60 s (connect to {address} port 22: timed out)"
        report.add(name, {"boot_state": "ProvisioningFailed", "msg": msg}, failed=True)
    report.add("n3", {"boot_state": "ProvisioningFailed", "msg": "n3: disk full"}, failed=True)
    groups = report_files._failures(report.as_dict(), "")
    assert [[one["name"] for one in group["machines"]] for group in groups] == [["n1", "n2", "n10"], ["n3"]]
    assert "192.0.2.1 port 22" in groups[0]["reason"]


@pytest.mark.parametrize(("verified", "outcome"), [(True, "verified"), (False, "not verified"), (None, "done")])
def test_a_page_says_verified_only_of_what_was_verified(verified, outcome):
    report = results.Report()
    report.add("n1", {"boot_state": "OperatingSystemRunning", **({} if verified is None else {"verified": verified})})
    (row,) = report_files._rows({**reports.data(1), **report.as_dict()}, reports.STARTED, 100.0, "")
    assert row.outcome == outcome


def test_a_page_says_of_a_machine_that_was_removed_that_it_was():
    report = results.Report()
    report.add("n1", {"boot_state": "OperatingSystemRunning", "verified": False, "id": 1, "address": "203.0.113.1"})
    report.add("localhost", {"machines": [{"name": "n1", "boot_state": "", "id": 1, "status": "deleted"}]})
    data = {**reports.data(1), **report.as_dict()}
    (row,) = report_files._rows(data, reports.STARTED, 100.0, "")
    assert (row.outcome, row.where) == ("removed", "id 1")
    page = report_files.page(data)
    assert ("<b>− 1</b> removed" in page, "Not verified" in page) == (True, False)


def test_a_machine_that_a_failed_run_left_on_its_way_is_not_done():
    report = results.Report()
    report.add("n1", {"boot_state": "BootingToRescue"})
    data = {**reports.data(1), **report.as_dict()}
    assert [row.outcome for row in report_files._rows(data, reports.STARTED, 100.0, "")] == ["done"], (
        "as it was asked for"
    )
    report.fail({"msg": "api_token: the API refused the token"})
    data = {**reports.data(1), **report.as_dict()}
    (row,) = report_files._rows(data, reports.STARTED, 100.0, "")
    assert (row.outcome, row.done_at) == ("not finished", None)
    assert "<b>… 1</b> not finished" in report_files.page(data)


def test_bars_lie_where_the_time_was_spent():
    report = results.Report()
    step = {"machine": "n1", "from": "BootingToRescue", "to": "RunningImageCommand", "at": "2026-11-21T10:00:50.000Z"}
    report.add("n1", {"boot_state": "RunningImageCommand", "transitions": [{**step, "seconds": 40.0}]})
    data = {**reports.data(1), **report.as_dict(), "finished": None, "updated": "2026-11-21T10:01:40.000Z"}
    (row,) = report_files._rows(data, reports.STARTED, 100.0, "")
    assert row.outcome == "under way"
    assert [(one.state, one.left, one.width, one.seconds) for one in row.pieces] == [
        ("BootingToRescue", 10.0, 40.0, 40.0),
        ("RunningImageCommand", 50.0, 50.0, 50.0),
    ]
    assert row.words == "boots into its rescue 40.0 s, the image command runs 50.0 s"
    text = report_files.page(data)
    assert 'http-equiv="refresh"' in text
    assert "The run goes on, or it was killed" in text


def test_what_a_check_has_looked_at_is_not_done():
    report = results.Report()
    report.add("n1", {"boot_state": "BootingToRescue"})
    data = {**reports.data(1), **report.as_dict(), "check": True}
    assert [row.outcome for row in report_files._rows(data, reports.STARTED, 100.0, "")] == ["checked"]


@pytest.mark.parametrize(("done", "lines"), [([20.0, 21.0], []), ([5.0, 6.0, 7.0, 8.0, 9.0], [("p50", 9.0)]), ([], [])])
def test_half_of_the_machines_are_half_of_all(done, lines):
    assert report_files._reached(done, 10) == lines
    assert report_files._reached([float(number) for number in range(1, 11)], 10) == [("p50", 5.0), ("p95", 10.0)]
    assert report_files._reached([1.0], 1) == [], "a line for one machine says nothing"


def test_check_mode_and_interruption_are_said():
    assert "Check mode: nothing was changed" in report_files.page(reports.data(2, check=True))
    data = {**reports.data(2), "finished": None, "interrupted": True}
    text = report_files.page(data)
    assert "The run was interrupted" in text
    assert 'http-equiv="refresh"' not in text


@given(st.text(max_size=60))
def test_all_that_machines_say_is_text(said):
    report = results.Report()
    hostile = said + "</pre><script>alert(1)</script>\u202e\x1b[31m"
    result = {
        "boot_state": hostile,
        "msg": hostile,
        "interleaved_tail": [hostile],
        "log_file": hostile,
        "warned": [hostile],
    }
    result["drift"] = [{"what": hostile, "runs": hostile, "since": hostile, "wanted": hostile}]
    step = {"machine": "n", "from": hostile, "to": hostile, "at": hostile, "seconds": 1e9}
    report.add(hostile or "n", {**result, "transitions": [step]}, failed=True)
    text = report_files.page({**reports.data(1), **report.as_dict()})
    found = Reader(text)
    assert "script" not in found.names
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    assert not [
        value for name, value in found.attributes if name == "href" and re.match(r"\s*(javascript|data):", value)
    ]


def test_names_are_sorted_as_people_count():
    names = ["node-10", "node-2", "²", "node-1"]
    assert sorted(names, key=report_files._natural) == ["node-1", "node-2", "node-10", "²"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (125, "2 min 5 s")]
)
def test_durations_in_words(seconds, words):
    assert report_files._duration(seconds) == words
