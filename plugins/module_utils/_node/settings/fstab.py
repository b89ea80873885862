# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The table of file systems, as far as swap is concerned. Pure."""

from __future__ import annotations

MARK = "# kubenode: swap is off: "


def swap_lines(text):
    """The lines that really activate swap, without line ends."""
    return [line.rstrip("\r\n") for line in _lines(text) if _is_swap(line)]


def without_swap(text):
    """The same table with these lines turned into comments; everything else stays as it is, byte by byte."""
    return "".join(MARK + line.lstrip() if _is_swap(line) else line for line in _lines(text))


def _lines(text):
    """Lines as mount(8) sees them: only a newline ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _is_swap(line):
    fields = line.split()
    return len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap"
