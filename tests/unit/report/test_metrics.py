# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a run as Prometheus' own parser reads them, and the line about the cost."""

from __future__ import annotations

import math
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ansible_collections.kubenode.provision.plugins.plugin_utils.report import exports, results


def step(start, end, seconds):
    return {"from": start, "to": end, "at": f"2026-11-21T00:00:{seconds:06.3f}Z", "seconds": seconds}


def fleet() -> results.Report:
    report = results.Report()
    ok = {"boot_state": "OperatingSystemRunning", "changed": True, "verified": True, "price_hourly": 0.5}
    waits = (3.2, 40.0, 5000.0)
    first = step("", "Initializing", 0.4)
    machines = [
        {**ok, "name": f"n{number}", "transitions": [first, step("Initializing", "EnablingRescue", wait)]}
        for number, wait in enumerate(waits)
    ]
    machines += [
        {**ok, "name": "n3", "verified": False, "drift": [{"what": "image_url"}]},
        {"name": "n4", "boot_state": "OperatingSystemRunning", "installed": True, "proven": True},
        {"name": "n5", "boot_state": "ProvisioningFailed", "failed": True, "changed": True, "msg": "no"},
    ]
    budget = {"api": "hcloud", "limit": 3600, "remaining": 3544}
    report.add("localhost", {"machines": machines, "api_calls": 56, "api_budget": budget})
    report.phase("n0", "base", 1.0, 13.5, changed=True, failed=None)
    return report


def parsed(text: str) -> dict:
    """Samples by name and labels; every family has its HELP and its TYPE."""
    families = list(text_string_to_metric_families(text))
    assert len({one.name for one in families}) == len(families)
    assert all(one.documentation and one.type in ("gauge", "histogram") for one in families)
    samples = [sample for one in families for sample in one.samples]
    found = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}
    assert len(found) == len(samples), "a series stands there twice"
    return found


@pytest.mark.parametrize(
    ("machine", "interrupted", "expected"),
    [
        ({"boot_state": "BootingToRescue", "changed": True}, True, "unfinished"),
        ({"boot_state": "BootingToRescue", "changed": False}, True, "unfinished"),
        ({"boot_state": "BootingToRescue", "changed": True}, False, "unverified"),
        ({"boot_state": "OperatingSystemRunning", "changed": True, "verified": True}, True, "verified"),
        ({"boot_state": "OperatingSystemRunning", "changed": False}, True, "unchanged"),
        ({"boot_state": "BootingToRescue", "changed": True, "failed": True}, True, "failed"),
        ({"boot_state": "OperatingSystemRunning", "changed": True, "verified": True, "removed": "…"}, False, "removed"),
        ({"boot_state": "BootingToRescue", "changed": True, "removed": "…"}, True, "removed"),
        ({"boot_state": "ProvisioningFailed", "changed": True, "failed": True, "removed": "…"}, False, "failed"),
    ],
)
def test_a_machine_under_way_is_not_unverified(machine, interrupted, expected):
    assert exports.outcome(machine, interrupted) == expected


def test_what_a_run_says_of_itself():
    times = {"started": "2026-11-21T00:00:00.000Z", "finished": "2026-11-21T00:01:40.500Z"}
    found = parsed(exports.metrics_text({**fleet().as_dict(), **times}))
    name = "kubenode_provision_machines"
    outcomes = {one: found[name, (("outcome", one),)] for one in exports.OUTCOMES}
    assert outcomes == {"verified": 3, "unverified": 1, "unchanged": 1, "unfinished": 0, "removed": 0, "failed": 1}
    assert found["kubenode_provision_run_start_timestamp_seconds", ()] == 1795219200
    assert found["kubenode_provision_run_finish_timestamp_seconds", ()] == 1795219300.5
    assert found["kubenode_provision_run_interrupted", ()] == 0
    assert found["kubenode_provision_drifted_machines", ()] == 1
    assert found["kubenode_provision_api_requests", ()] == 56
    assert found["kubenode_provision_api_requests_limit", (("api", "hcloud"),)] == 3600
    assert found["kubenode_provision_api_requests_remaining", (("api", "hcloud"),)] == 3544
    pair = (("from_state", "Initializing"), ("to_state", "EnablingRescue"))
    name = "kubenode_provision_boot_state_duration_seconds"
    assert (found[f"{name}_count", pair], found[f"{name}_sum", pair]) == (3, 5043.2)
    buckets = {
        bound: found[f"{name}_bucket", tuple(sorted([*pair, ("le", bound)]))] for bound in ("5", "45", "3600", "+Inf")
    }
    assert buckets == {"5": 1, "45": 2, "3600": 2, "+Inf": 3}
    assert found[f"{name}_count", (("from_state", "none"), ("to_state", "Initializing"))] == 3
    assert found["kubenode_provision_phase_duration_seconds_sum", (("phase", "base"),)] == 12.5
    assert not [labels for _name, labels in found if "n0" in dict(labels).values()]


def test_an_empty_report_and_an_unknown_state_are_no_error():
    found = parsed(exports.metrics_text({}))
    assert found["kubenode_provision_machines", (("outcome", "failed"),)] == 0
    odd = {"machines": [{"transitions": [{"from": "x", "to": 'y"\n', "at": "", "seconds": 1}]}]}
    assert "bucket" not in exports.metrics_text(odd)


@given(st.text())
def test_labels_of_a_user_come_back_as_they_were_given(value):
    labels = exports.parse_labels([f"fleet={value}"])
    assert parsed(exports.metrics_text({}, labels))["kubenode_provision_run_interrupted", (("fleet", value),)] == 0


@pytest.mark.parametrize("label", ["fleet", "=x", "a-b=x", "__name__=x", "le=1", "outcome=x", "fleet\n=x", "1a=x"])
def test_labels_that_cannot_be(label):
    with pytest.raises(exports.BadLabel):
        exports.parse_labels([label])


@given(st.lists(st.floats(0, 1e6)))
def test_histograms_count_every_value_once(values):
    machine = {"transitions": [step("", "Initializing", 1.0) | {"seconds": value} for value in values]}
    found = parsed(exports.metrics_text({"machines": [machine]}))
    name = "kubenode_provision_boot_state_duration_seconds"
    bounds = sorted(
        (float(dict(labels)["le"]), value) for (one, labels), value in found.items() if one == f"{name}_bucket"
    )
    assert [count for _bound, count in bounds] == sorted(count for _bound, count in bounds)
    assert not values or bounds[-1] == (math.inf, len(values))


class Callback:
    """What `Exports` needs of a callback."""

    def __init__(self, **options):
        self.options = {"metrics_labels": [], "notify_timeout": 10, **options}
        self.said, self.warned = [], []
        self.others = exports.Exports(self.options.get, self.said.append, self.warned.append)


def test_the_file_is_whole_readable_and_alone(tmp_path):
    path = tmp_path / "fleet.prom"
    path.write_text("old")
    callback = Callback(metrics_file=str(path))
    callback.others.send({**fleet().as_dict(), "check": True})
    assert path.read_text() == "old"
    callback.others.send(fleet().as_dict())
    assert parsed(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]
    assert (callback.warned, callback.said[-1]) == ([], f"Metrics: {path}")


@pytest.mark.parametrize("name", ["fleet.txt", "missing/fleet.prom"])
def test_a_file_that_cannot_be_is_a_warning(tmp_path, name):
    callback = Callback(metrics_file=str(tmp_path / name))
    callback.others.send({})
    assert len(callback.warned) == 1
    assert list(tmp_path.iterdir()) == []


NOW = 1798765200.0  # 2027-01-01 01:00 UTC


@pytest.mark.parametrize(
    ("created", "monthly", "cost"),
    [
        ("2027-01-01T00:30:00Z", 4.0, 0.1),
        ("2026-12-31T23:00:00+00:00", 4.0, 0.2),
        ("2026-12-01T00:00:00Z", 4.0, 4.1),  # a month costs no more than its price
        ("2026-12-01T00:00:00Z", None, 74.5),
        ("2026-10-15T00:00:00Z", 4.0, 12.1),
        (None, 4.0, 0.0),
        ("2030-01-01T00:00:00Z", 4.0, 0.0),
        ("yesterday", 4.0, 0.0),
    ],
)
def test_what_a_server_has_cost(created, monthly, cost):
    machine = {"price_hourly": 0.1, "price_monthly": monthly, "server_created": created}
    assert results.cost_of([machine], NOW)["since_created"] == pytest.approx(cost)


def test_the_line_about_the_cost():
    cloud = {"price_hourly": 0.035, "server_created": "2027-01-01T00:50:00Z"}
    cost = results.cost_of([cloud] * 12 + [{"price_hourly": None}], NOW)
    assert results.cost_line(cost) == "Cost: 12 servers, 0.42 EUR an hour; 0.42 EUR since they were created"
    small = results.cost_of([{"price_hourly": 0.0064, "server_created": "2027-01-01T00:50:00Z"}], NOW, "USD")
    assert results.cost_line(small) == "Cost: 1 server, 0.0064 USD an hour; 0.0064 USD since it was created"
    assert results.cost_of([{"price_hourly": None}, {}], NOW) is None


def test_a_server_that_was_removed_costs_nothing_an_hour():
    there = {"price_hourly": 0.1, "server_created": "2027-01-01T00:30:00Z", "removed": None}
    gone = {**there, "removed": "2027-01-01T00:45:00Z"}
    cost = results.cost_of([there, gone], NOW)
    assert cost == {
        "servers": 1, "hourly": 0.1, "since_created": 0.1, "removed": 1, "until_removed": 0.1, "currency": "EUR",
    }  # fmt: skip
    assert results.cost_line(cost) == (
        "Cost: 1 server, 0.10 EUR an hour; 0.10 EUR since it was created; 0.10 EUR for 1 server that was removed"
    )
    cost = results.cost_of([gone, gone], NOW)
    assert (cost["servers"], cost["hourly"], cost["since_created"]) == (0, 0, 0)
    assert results.cost_line(cost) == "Cost: 0.20 EUR for 2 servers that were removed"
