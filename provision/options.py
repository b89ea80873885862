# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from provision.errors import UsageError

STATE = Path("/var/lib/kubenode/provision")
#: what a run does → playbook that does it
PLAYBOOKS = {
    "base": "kubenode.provision.node_base",
    "join": "kubenode.provision.node_join",
    "all": "kubenode.provision.node",
}

_EPILOG = """\
Secrets: a token is best handed over by --token-file or in the environment variable PROVISION_TOKEN; --token shows it
in the process list for a moment. Exit codes: 0 done, 1 failed (trying again may help), 2 wrong use (it will not).
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process, so that one place writes errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser(version: str) -> argparse.ArgumentParser:
    """The parser; `version` is what --version says."""
    made = _Parser(
        prog="provision",
        description="Makes this machine a Kubernetes node: base (packages, kernel, runtime, kubelet), then join.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    made.add_argument("--phase", choices=list(PLAYBOOKS), help="default: all, with --prebake base")
    made.add_argument("--kubelet-version", metavar="X.Y.Z", help="Kubernetes version, for example 1.36.4")
    made.add_argument(
        "--cloud-provider", metavar="external|''", help="external: a cloud controller manager finishes it"
    )
    made.add_argument("--cloud-config", metavar="FILE", help="kept as /etc/kubernetes/cloud-config (0600)")
    made.add_argument("--token", help="bootstrap token; prefer --token-file or PROVISION_TOKEN")
    made.add_argument("--token-file", metavar="FILE", help="file with the bootstrap token, - for standard input")
    made.add_argument("--ca-cert", metavar="FILE", help="the cluster's CA (PEM)")
    made.add_argument("--api-server", metavar="URL", help="https://host:6443")
    made.add_argument("--prebake", action="store_true", help="make an image: base, then clean the machine's identity")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="values", help="a variable of base or join"
    )
    made.add_argument(
        "--vars",
        action="append",
        default=[],
        metavar="FILE",
        dest="files",
        help="variables of base and join, YAML or JSON",
    )
    made.add_argument("--check", action="store_true", help="change nothing, show what would change")
    made.add_argument("--diff", action="store_true", help="show what changes in files")
    made.add_argument("--verbose", action="store_true", help="Ansible's own output instead of one line a step")
    made.add_argument("--state-dir", type=Path, default=STATE, metavar="DIR", help="default: %(default)s")
    made.add_argument("--version", action="version", version=version)
    return made


def parse(arguments: Sequence[str] | None, version: str) -> argparse.Namespace:
    """Parse and settle what one option means for another; UsageError when they contradict each other."""
    chosen = parser(version).parse_args(arguments)
    if chosen.prebake and chosen.phase not in (None, "base"):
        raise UsageError(f"--prebake ends after base, --phase is {chosen.phase}: leave one of them out")
    if chosen.token is not None and chosen.token_file is not None:
        raise UsageError("--token and --token-file are given: leave one of them out")
    if chosen.token == "":
        raise UsageError("--token is empty: give a bootstrap token, or leave it out")
    chosen.phase = chosen.phase or ("base" if chosen.prebake else "all")
    return chosen
