# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Range and conditional headers (RFC 9110), as far as a server of images needs them (pure)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

MOST = 32  # ranges in one request; for more, the whole image is sent
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# as many digits as Python makes a number of under every setting (sys.set_int_max_str_digits)
_ONE = re.compile(r"(\d{1,600})?-(\d{1,600})?\Z", re.ASCII)
_PLAIN = re.compile(r"bytes=(\d{1,600})-(\d{1,600})\Z", re.ASCII)
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def parse(header: str, size: int) -> list[tuple[int, int]] | None:
    """The wanted ranges as (start, stop), stop not included; ``[]``: none of them is in the image (416).

    None: a header to be ignored, as the standard asks for units, forms and numbers of ranges a server does not take.
    """
    plain = _PLAIN.match(header)
    if plain:
        start, stop = int(plain[1]), int(plain[2]) + 1
        if stop <= start:
            return None
        return [(start, min(stop, size))] if start < size else []
    unit, equals, rest = header.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    found = []
    parts = [part.strip(" \t") for part in rest.split(",")]
    parts = [part for part in parts if part]
    if not parts or len(parts) > MOST:
        return None
    for part in parts:
        match = _ONE.match(part)
        if not match or match.group() == "-":
            return None
        first, last = match.groups()
        if first is None:
            start, stop = max(0, size - int(last)), size
        else:
            start = int(first)
            stop = size if last is None else min(size, int(last) + 1)
            if last is not None and int(last) < start:
                return None
        if start < stop:
            found.append((start, stop))
    if len(found) > 1 and sum(stop - start for start, stop in found) > size:
        return None  # overlapping ranges that add up to more than the image: only an attacker asks so
    return found


def if_range(header: str, etag: str) -> bool:
    """Whether ranges may be sent. Only a strong tag can say so: a date has whole seconds only."""
    match = _TAG.match(header.strip())
    return match is not None and not match.group(1) and match.group(2) == etag


def not_modified(headers: Mapping[str, str], etag: str, modified: int) -> bool:
    """Whether the client has this image already (304)."""
    tags = headers.get("if-none-match")
    if tags is not None:
        return tags.strip() == "*" or any(tag == etag for _weak, tag in _TAG.findall(tags))
    since = headers.get("if-modified-since")
    moment = None if since is None else from_http_date(since)
    return moment is not None and modified <= moment


def precondition_failed(headers: Mapping[str, str], etag: str, modified: int) -> bool:
    """Whether the client asked for another state of the image (412). Where it names tags, its date does not count."""
    tags = headers.get("if-match")
    if tags is not None:
        return tags.strip() != "*" and all(weak or tag != etag for weak, tag in _TAG.findall(tags))
    since = headers.get("if-unmodified-since")
    moment = None if since is None else from_http_date(since)
    return moment is not None and modified > moment


def http_date(seconds: float) -> str:
    """A moment as HTTP writes it."""
    at = time.gmtime(seconds)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d}"
    return f"{day} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"


def from_http_date(text: str) -> float | None:
    """The moment of an HTTP date; None when it is none."""
    import email.utils  # takes longer to load than most of the server, and few clients send dates
    from datetime import timezone

    if text.count(":") != 2:  # a list of dates is none
        return None
    try:
        found = email.utils.parsedate_to_datetime(text)
        # the form without a zone is of the same zone as the others
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
