# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Moments as RFC 3339 writes them (pure)."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)


def to_rfc3339(epoch: float) -> str:
    """Epoch seconds to an RFC 3339 UTC string with milliseconds."""
    moment = datetime.fromtimestamp(epoch, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (moment.microsecond // 1000)


def to_whole_seconds(epoch: float) -> str:
    """The same without a fraction, as the API of Kubernetes and records of ours write it."""
    return datetime.fromtimestamp(int(epoch), tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: object) -> float:
    """RFC 3339 string (``Z`` or offset) to epoch seconds; raises ValueError on anything else."""
    # What fromisoformat takes differs from one Python to the next, and is more than RFC 3339.
    match = _RFC3339.match(text) if isinstance(text, str) else None
    if not match:
        raise ValueError("%.100r is no time with a time zone, such as 2026-01-31T12:00:00Z" % (text,))
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in ("Z", "z") else zone
    return datetime.fromisoformat("%sT%s.%s%s" % (day, clock, (fraction or "").ljust(6, "0")[:6], zone)).timestamp()


def moment(text: object) -> float | None:
    """The same; None for what is no such time."""
    try:
        return from_rfc3339(text)
    except ValueError:
        return None
