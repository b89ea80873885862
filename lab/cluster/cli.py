# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: python -m lab cluster build | up | down | status | kubeconfig | token."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from typing import Any

from lab.client import call
from lab.state import State, StateError

from .programs import ensure
from .running import RunningCluster, status

ACTIONS = ("build", "up", "down", "status", "kubeconfig", "token")
Control = Callable[[str, str, Any, float], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What comes after ``cluster``, beside the lab's name."""
    parser.add_argument(
        "action", choices=ACTIONS,
        help="build: only the programs (15 minutes, once); up, down: start or end it; status; kubeconfig: print the "
        "path of the administrator's; token: print a new bootstrap token",
    )  # fmt: skip
    parser.add_argument("--ttl", type=float, default=3600, help="seconds a token is valid (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Do it; the lab must be up, except for ``build``."""
    if options.action == "build":
        programs = ensure(_note)
        _say(f"{programs.kubernetes}\n{programs.etcd.parent}\n{programs.tools}")
        return 0
    control = _control(State(options.name))
    if options.action == "status":
        about = status(control)
        _say(json.dumps(about or {"endpoint": None}, indent=1) if options.json else _told(options.name, about))
        return 0 if about else 1
    if options.action == "up":
        cluster = RunningCluster.started(control, _note)
        _say(f"the API server of lab '{options.name}' answers at {cluster.endpoint}")
        _say(f"  {'kubectl:':10} {cluster.programs.kubectl} --kubeconfig {cluster.kubeconfig}")
        _say(f"  {'CA:':10} {cluster.ca_file}, pin {cluster.ca_hash}")
        return 0
    if options.action == "down":
        was_up = status(control) is not None
        control("DELETE", "/cluster", None, 600)
        _say(f"the control plane of lab '{options.name}' is {'down' if was_up else 'not up'}")
        return 0
    cluster = RunningCluster.found(control)
    _say(str(cluster.kubeconfig) if options.action == "kubeconfig" else cluster.token(options.ttl))
    return 0


def _control(state: State) -> Control:
    values = state.running()
    if values is None or not values["ready"]:
        raise StateError(f"lab '{state.name}' is not up; start it with: python -m lab up --name {state.name}")
    return functools.partial(call, values["endpoint"], state.token.read_text())


def _told(name: str, about: dict[str, Any] | None) -> str:
    if about is None:
        return f"lab '{name}' has no control plane"
    dead = [program for program, running in about["running"].items() if not running]
    return f"the API server of lab '{name}' is at {about['endpoint']}" + (
        f"; not running: {', '.join(dead)}" if dead else ""
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
