# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cloud servers of a run cost by the prices of their types, net, without addresses and traffic (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import times


def of(machines: Iterable[Mapping[str, Any]], now: float, currency: str = "EUR") -> dict[str, Any] | None:
    """``{"servers": int, "hourly": float, "since_created": float, "currency": str}``; None without a known price.

    ``machines``: those of the report. ``now``: seconds since 1970. A server that is not made yet (check mode) costs
    nothing so far.
    """
    priced = [machine for machine in machines if _is_price(machine.get("price_hourly"))]
    if not priced:
        return None
    return {
        "servers": len(priced),
        "hourly": round(sum(machine["price_hourly"] for machine in priced), 6),
        "since_created": round(sum(_since(machine, now) for machine in priced), 6),
        "currency": currency,
    }


def line(cost: Mapping[str, Any]) -> str:
    """For people."""
    servers = "1 server" if cost["servers"] == 1 else f"{cost['servers']} servers"
    currency, made = cost["currency"], "it was created" if cost["servers"] == 1 else "they were created"
    text = f"Cost: {servers}, {_amount(cost['hourly'])} {currency} an hour"
    return f"{text}; {_amount(cost['since_created'])} {currency} since {made}"


def _since(machine: Mapping[str, Any], now: float) -> float:
    """Hours by their price, in each calendar month at most the price of a month."""
    try:
        begin = times.from_rfc3339(machine.get("server_created"))
        day = datetime.datetime.fromtimestamp(begin, datetime.UTC)
    except (ValueError, TypeError, AttributeError, OverflowError, OSError):
        return 0.0
    hourly, most, total = machine["price_hourly"], machine.get("price_monthly"), 0.0
    while begin < now:
        first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        day = (first + datetime.timedelta(days=32)).replace(day=1)
        end = min(now, day.timestamp())
        month = (end - begin) / 3600 * hourly
        total += min(month, most) if _is_price(most) else month
        begin = end
    return total


def _amount(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.4f}"


def _is_price(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
