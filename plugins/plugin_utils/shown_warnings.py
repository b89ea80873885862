# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings that a run shows whatever its callback shows of tasks."""

from __future__ import annotations

from contextvars import Context

from ansible.utils.display import Display


def warn(text: str) -> None:
    """Show a warning at once.

    From ansible-core 2.19 on, one of a task is a part of its result, and the callback leaves it out with the result:
    that of a task that is skipped with C(display_skipped_hosts: false), that of one that changed nothing with
    C(display_ok_hosts: false). What is said in a context of its own belongs to no task.
    """
    Context().run(Display().warning, text)
