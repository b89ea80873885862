# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines as klog writes them: level and date, process, place, message, values."""

from __future__ import annotations

import os
import sys
import threading
import time

_lock = threading.Lock()


def info(place: str, message: str, **values: object) -> None:
    """An ``I`` line; ``place`` is what the real one would name, such as ``kubelet_node_status.go:75``."""
    _write("I", place, message, values)


def error(place: str, message: str, err: object = None, **values: object) -> None:
    """An ``E`` line."""
    _write("E", place, message, values if err is None else {"err": str(err), **values})


def plain(level: str, place: str, text: str) -> None:
    """A line of the old kind, its text without quotes."""
    _emit(level, place, text)


def _write(level: str, place: str, message: str, values: dict) -> None:
    text = _quoted(message) + "".join(" %s=%s" % (key, _quoted(value)) for key, value in values.items())
    _emit(level, place, text)


def _quoted(value: object) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    return '"%s"' % str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _emit(level: str, place: str, text: str) -> None:
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now)) + ".%06d" % int(now % 1 * 1e6)
    with _lock:
        sys.stderr.write("%s%s %7d %s] %s\n" % (level, stamp, os.getpid(), place, text))
        sys.stderr.flush()
