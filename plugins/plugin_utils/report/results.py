# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run says of its machines: collected from task results and summed up (pure)."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, installed
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    counted,
    from_rfc3339,
    moment,
    spaced,
    to_rfc3339,
)

#: Begins, in the message of a failure, what was printed last; the report has it in fields of its own.
ENDS_WITH = {stream: f"\n{stream} ends with:\n" for stream in ("stderr", "stdout")}


#: ``at``: when it came into the state ``to``, RFC 3339. ``seconds``: how long it was in the state ``from``.
Transition = TypedDict("Transition", {"machine": str, "from": str, "to": str, "at": str, "seconds": float})
#: Seconds that machines spent in the state ``from``: percentiles, least and most.
Duration = TypedDict(
    "Duration",
    {
        "from": str, "to": str, "count": int,
        "avg": float, "p50": float, "p95": float, "min": float, "max": float,
    },
)  # fmt: skip


class Machine(TypedDict):
    """A machine of the report. Prices are those of its server type; ``seconds`` is the sum of its transitions."""

    name: str
    #: Where SSH reaches it, and its number at the provider's.
    address: str | None
    id: int | None
    boot_state: str
    changed: bool
    failed: bool
    reason: str | None
    #: The last lines that its program printed, when it failed.
    stderr_tail: list[str]
    interleaved_tail: list[str]
    api_calls: int
    transitions: list[Transition]
    #: None for a machine of which it was not asked.
    verified: bool | None
    drift: list[installed.Drift]
    used: str
    #: Of a server of the cloud; ``instead``: what it has, when there was no room for what was tried before.
    server_type: str
    location: str
    instead: str
    warned: list[str]
    log_file: str
    price_hourly: float | None
    price_monthly: float | None
    server_created: str | None
    #: When its server was deleted in this run; ``boot_state`` and ``verified`` say how far it had come.
    removed: str | None
    seconds: float


class Phase(TypedDict):
    """A role of the node phase on one machine; ``started``: RFC 3339."""

    machine: str
    phase: str
    started: str
    seconds: float
    changed: bool
    failed: bool
    reason: str | None


class Collected(TypedDict):
    """What a run has returned so far."""

    version: int
    changed: bool
    #: Why the run failed, where that was no error of one machine.
    errors: list[str]
    #: Hosts of the run that nothing was done with, since it failed or was interrupted before.
    not_attempted: list[str]
    machines: list[Machine]
    durations: list[Duration]
    phases: list[Phase]
    #: ``total`` and ``per_machine``.
    api_calls: dict[str, float]
    #: By the name of an API, ``limit`` and ``remaining``.
    api_budget: dict[str, dict[str, int]]


class ReportData(Collected):
    """The report as it is written. Times are RFC 3339; ``finished`` is None until the run has ended by itself."""

    started: str
    updated: str
    finished: str | None
    interrupted: bool
    check: bool
    #: See :func:`prices.of`.
    cost: dict[str, Any] | None


def percentile(values: list[float], share: float) -> float:
    """Nearest-rank percentile of a non-empty list, so that every figure is one that was really seen."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def figures(values: list[float]) -> dict[str, float]:
    """What a non-empty list is summed up to: count, avg, p50, p95, min, max."""
    return {
        "count": len(values),
        "avg": sum(values) / len(values),
        "p50": percentile(values, 0.50),
        "p95": percentile(values, 0.95),
        "min": min(values),
        "max": max(values),
    }


#: Lines of what a failed program printed last that are kept of each machine.
TAIL = 20
_DONE = boot_states.OPERATING_SYSTEM_RUNNING
#: Errors of a whole run that are kept; a second one is rare.
ERRORS = 5


class Report:
    """Collects the results of a run and knows what became of every machine."""

    def __init__(self) -> None:
        self._machines: dict[str, dict[str, Any]] = {}
        self._seen: set[tuple[str, str, str, str]] = set()
        self._phases: dict[str, dict[str, dict[str, Any]]] = {}
        self._errors: list[str] = []
        #: All hosts that a play of the run was for.
        self.hosts: set[str] = set()
        #: Whether the run takes them in batches, of which none begins after one that failed.
        self._in_batches = False
        self.api_calls = 0
        #: Requests of tasks that have not returned their results yet.
        self.under_way: dict[str, int] = {}
        #: By the name of an API: how many requests it allows in an hour, and how many of them were left at last.
        self.api_budget: dict[str, dict[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._machines or self._phases or self._errors)

    def phase(self, host: str, role: str, began: float, ended: float, *, changed: bool, failed: str | None) -> None:
        """Take one task of a role of the node phase: when it began and ended (seconds since 1970), what came of it.

        ``failed``: the reason; a role is done when its last task is, and failed when that one was.
        """
        phase = self._phases.setdefault(role, {}).setdefault(host, {"began": began, "changed": False})
        phase.update(
            seconds=round(ended - phase["began"], 3), changed=phase["changed"] or changed,
            failed=failed is not None, reason=spaced(failed) if failed is not None else None,
        )  # fmt: skip

    def fail(self, result: Mapping[str, Any]) -> None:
        """Take a task result that is the end of the whole run, and of no machine in particular."""
        text = _reason("", result)
        if text not in self._errors and len(self._errors) < ERRORS:
            self._errors.append(text)

    @property
    def errors(self) -> list[str]:
        """Why the run failed, where that was no error of one machine."""
        return list(self._errors)

    def not_attempted(self, interrupted: bool = False) -> list[str]:
        """Hosts that nothing was done with, when the run failed as a whole, before their batch, or was interrupted."""
        done = {*self._machines, *(host for hosts in self._phases.values() for host in hosts)}
        return sorted(self.hosts - done) if self._errors or self._in_batches or interrupted else []

    def add(
        self, host: str, result: Mapping[str, Any], failed: bool = False, now: float | None = None, ours: bool = False
    ) -> bool:
        """Take one task result of ``host``, at ``now``; ``ours``: of a task that is for our machines only.

        Returns whether it says something about boot states, or fails a machine.
        """
        if isinstance(result.get("results"), list):
            items = [item for item in result["results"] if isinstance(item, Mapping)]
            said = [self.add(host, item, failed=bool(item.get("failed")), now=now) for item in items]
            return any(said)
        facts = result.get("ansible_facts")
        plan = facts.get("kubenode_site") if isinstance(facts, Mapping) else None
        if isinstance(plan, Mapping) and plan.get("batches") and not plan.get("errors"):
            self._in_batches = True
        fleet = result.get("machines")
        now = time.time() if now is None else now
        if isinstance(fleet, list) and any(isinstance(one, Mapping) and "boot_state" in one for one in fleet):
            self.api_calls += _count(result.get("api_calls"))
            self._budget(result.get("api_budget"))
            for one in fleet:
                if isinstance(one, Mapping) and one.get("name"):
                    self._machine(str(one["name"]), one, bool(one.get("failed")), now)
        elif "boot_state" in result:
            self._machine(str(result.get("machine_name") or host), result, failed, now)
        elif failed and ours and host not in self._machines:
            self._machine(host, result, failed, now)
        elif failed and host in self._machines:
            self._machines[host].update(failed=True, reason=_reason(host, result))
            self._given_up(self._machines[host], now)
        else:
            return False
        return True

    @staticmethod
    def _given_up(machine: dict[str, Any], now: float | None) -> None:
        """A machine that was on its way failed by another task than one of its steps."""
        state, steps = machine["boot_state"], machine["transitions"]
        since = moment(steps[-1]["at"]) if steps else None
        if now is None or since is None or state not in boot_states.ORDER[: boot_states.ORDER.index(_DONE)]:
            return
        timeline = boot_states.Timeline(machine["name"], state, since)
        timeline.to(boot_states.PROVISIONING_FAILED, max(now, since))
        machine["boot_state"] = timeline.state
        steps += timeline.transitions

    def _budget(self, given: Any) -> None:
        if isinstance(given, Mapping) and isinstance(given.get("api"), str):
            self.api_budget[spaced(given["api"], 20)] = {key: _count(given.get(key)) for key in ("limit", "remaining")}

    def _machine(self, name: str, result: Mapping[str, Any], failed: bool, now: float) -> None:
        machine = self._machines.setdefault(
            name,
            {
                "name": name,
                "address": None,
                "id": None,
                "boot_state": "",
                "changed": False,
                "failed": False,
                "reason": None,
                "stderr_tail": [],
                "interleaved_tail": [],
                "api_calls": 0,
                "transitions": [],
                "verified": None,
                "drift": [],
                "used": "",
                "server_type": "",
                "location": "",
                "instead": "",
                "warned": [],
                "log_file": "",
                "price_hourly": None,
                "price_monthly": None,
                "server_created": None,
                "removed": None,
            },
        )
        address = result.get("address") or result.get("ipv4") or result.get("ipv6_address")
        machine["address"] = spaced(address, 253) if isinstance(address, str) else machine["address"]
        number = _count(result.get("id")) or _count(result.get("server_number"))
        if _is_gone(result, machine["id"]):
            kept = result.get("removed")
            machine["removed"] = machine["removed"] or (kept if isinstance(kept, str) else to_rfc3339(now))
            machine["address"] = None
        elif number:
            machine["removed"] = None
        machine["id"] = number or machine["id"]
        for price in ("price_hourly", "price_monthly", "server_created"):
            if isinstance(result.get(price), (float, int, str)):
                machine[price] = result[price]
        machine["boot_state"] = str(result.get("boot_state") or machine["boot_state"])
        machine["changed"] = machine["changed"] or bool(result.get("changed"))
        machine["api_calls"] += _count(result.get("api_calls"))
        if isinstance(result.get("verified"), bool):
            machine["verified"] = result["verified"]
        elif result.get("installed"):
            # It was left alone: only its record can say that it was verified once.
            machine["verified"] = bool(result.get("proven"))
        if isinstance(result.get("drift"), list):
            machine["drift"] = [
                {key: spaced(one.get(key) or "") for key in ("what", "runs", "since", "wanted")}
                for one in result["drift"][:20]
                if isinstance(one, Mapping)
            ]
        for key in ("used", "log_file", "server_type", "location", "instead"):
            if isinstance(result.get(key), str):
                machine[key] = spaced(result[key], 1000)
        for text in result["warned"][:20] if isinstance(result.get("warned"), list) else ():
            if spaced(text) not in machine["warned"]:
                machine["warned"].append(spaced(text))
        # A machine that failed a step and passed the same step later (a second try) is not a failed one. To be removed
        # is no second try.
        if failed or not (machine["failed"] and machine["removed"]):
            machine["failed"] = failed
            machine["reason"] = _reason(name, result) if failed else None
            for tail in ("stderr_tail", "interleaved_tail"):
                lines = result.get(tail) if failed else None
                machine[tail] = [spaced(line, 500) for line in lines[-TAIL:]] if isinstance(lines, list) else []
        for transition in result.get("transitions") or ():
            if _is_transition(transition):
                seen = (name, transition["from"], transition["to"], transition["at"])
                if seen not in self._seen:
                    self._seen.add(seen)
                    machine["transitions"].append({**transition, "machine": name})

    @property
    def machines(self) -> list[Machine]:
        """Every machine, by name, with the seconds its transitions add up to."""
        listing: list[Machine] = []
        for name in sorted(self._machines):
            machine = self._machines[name]
            seconds = sum(step["seconds"] for step in machine["transitions"])
            listing.append(cast(Machine, {**machine, "seconds": round(seconds, 3)}))
        return listing

    def durations(self) -> list[Duration]:
        """Statistics per state pair, in the order in which a machine passes through the states."""
        pairs: dict[tuple[str, str], list[float]] = {}
        for machine in self._machines.values():
            for step in machine["transitions"]:
                pairs.setdefault((step["from"], step["to"]), []).append(float(step["seconds"]))
        found = []
        for pair, values in sorted(pairs.items(), key=lambda item: _position(item[0])):
            one = figures(values)
            found.append(cast(Duration, {"from": pair[0], "to": pair[1], **one, "avg": round(one["avg"], 3)}))
        return found

    def phases(self) -> list[Phase]:
        """Every role of the node phase on every machine, roles in the order in which they began."""
        return [
            {
                "machine": host,
                "phase": role,
                "started": to_rfc3339(phase["began"]),
                "seconds": phase["seconds"],
                "changed": phase["changed"],
                "failed": phase["failed"],
                "reason": phase["reason"],
            }
            for role, hosts in self._phases.items()
            for host, phase in sorted(hosts.items())
        ]

    def as_dict(self, interrupted: bool = False) -> Collected:
        machines = self.machines
        requests = self.api_calls + sum(self.under_way.values())
        return {
            "version": 1,
            "errors": self.errors,
            "not_attempted": self.not_attempted(interrupted),
            "changed": any(one["changed"] for one in machines) or any(one["changed"] for one in self.phases()),
            "machines": machines,
            "durations": self.durations(),
            "phases": self.phases(),
            "api_calls": {"total": requests, "per_machine": ratio(requests, len(machines))},
            "api_budget": dict(self.api_budget),
        }


def where(machine: Machine) -> str:
    """The address of a machine and its id at the provider's, in words; empty when neither is known."""
    number = f"id {machine['id']}" if machine["id"] else ""
    return ", ".join(text for text in (machine["address"], number) if text)


def _is_gone(result: Mapping[str, Any], known: int | None) -> bool:
    """Whether a result says that its server was deleted, or that the ``known`` one is there no more.

    A machine that failed has no number either, where the API gave no answer or its server has another name now.
    """
    looked = not result.get("failed") and result.get("id", known) is None and result.get("status", known) is None
    return result.get("status") in ("deleting", "deleted") or bool(result.get("removed")) or (bool(known) and looked)


def without_output(msg: str) -> str:
    """A message without the last lines of a program, which stand at its end."""
    for start in ENDS_WITH.values():
        msg = msg.partition(start)[0]
    return msg


def _reason(name: str, result: Mapping[str, Any]) -> str:
    return spaced(without_output(str(result.get("msg") or "no reason given")), 1000).removeprefix(f"{name}: ")


def _position(pair: tuple[str, str]) -> tuple[int, int]:
    known = {state: place for place, state in enumerate(boot_states.ORDER)}
    return known.get(pair[0], len(known)), known.get(pair[1], len(known))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def ratio(total: int, machines: int) -> float:
    return round(total / machines, 2) if machines else 0.0


def _is_transition(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    keys: Iterable[str] = ("from", "to", "at")
    return all(isinstance(value.get(key), str) for key in keys) and isinstance(value.get("seconds"), (int, float))


# --- what the cloud servers of a run cost by the prices of their types, net, without addresses and traffic (pure)


def cost_of(machines: Iterable[Mapping[str, Any]], now: float, currency: str = "EUR") -> dict[str, Any] | None:
    """What servers cost by the hour and since they were created; None without a known price.

    ``machines``: those of the report. ``now``: seconds since 1970. A server that is not made yet (check mode) costs
    nothing so far. ``removed`` is the number of those that were removed, which are in no figure but ``until_removed``.
    """
    priced = [machine for machine in machines if _is_price(machine.get("price_hourly"))]
    if not priced:
        return None
    there = [machine for machine in priced if not machine.get("removed")]
    gone = [machine for machine in priced if machine.get("removed")]
    return {
        "servers": len(there),
        "hourly": round(sum(machine["price_hourly"] for machine in there), 6),
        "since_created": round(sum(_cost_since(machine, now) for machine in there), 6),
        "removed": len(gone),
        "until_removed": round(sum(_cost_since(machine, moment(machine["removed"]) or now) for machine in gone), 6),
        "currency": currency,
    }


def cost_line(cost: Mapping[str, Any]) -> str:
    """For people."""
    servers = counted(cost["servers"], "server")
    currency, made = cost["currency"], "it was created" if cost["servers"] == 1 else "they were created"
    parts = []
    if cost["servers"] or not cost["removed"]:
        parts += [
            f"{servers}, {_money(cost['hourly'])} {currency} an hour",
            f"{_money(cost['since_created'])} {currency} since {made}",
        ]
    if cost["removed"]:
        were = "was" if cost["removed"] == 1 else "were"
        gone = f"{counted(cost['removed'], 'server')} that {were} removed"
        parts.append(f"{_money(cost['until_removed'])} {currency} for {gone}")
    return f"Cost: {'; '.join(parts)}"


def _cost_since(machine: Mapping[str, Any], now: float) -> float:
    """Hours by their price, each that was begun as a whole one, in each calendar month at most the price of a month.

    As https://docs.hetzner.com/cloud/billing/faq has it.
    """
    try:
        begin = from_rfc3339(machine.get("server_created"))
        day = datetime.datetime.fromtimestamp(begin, datetime.UTC)
    except (ValueError, TypeError, AttributeError, OverflowError, OSError):
        return 0.0
    hourly, most, total = machine["price_hourly"], machine.get("price_monthly"), 0.0
    while begin < now:
        first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        day = (first + datetime.timedelta(days=32)).replace(day=1)
        end = min(now, day.timestamp())
        month = math.ceil((end - begin) / 3600) * hourly
        total += min(month, most) if _is_price(most) else month
        begin = end
    return total


def _money(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.4f}"


def _is_price(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
