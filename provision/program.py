# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the command line to the exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from provision import FAILED, INTERRUPTED, OK, USAGE, RunError, UsageError, state_folder
from provision.state_folder import only_run

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


#: ansible-playbook's exit code after Ctrl-C
_ANSIBLE_INTERRUPTED = 99


def main() -> int:
    """Run the program; errors are a line each on stderr."""
    try:
        # like Ctrl-C, so that the files of a run are removed
        signal.signal(signal.SIGTERM, _interrupted)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, _interrupted)
        version = state_folder.resource(state_folder.VERSION).decode("utf-8").strip()
        chosen = parse(None, version)
        if os.geteuid() != 0:
            raise UsageError("this changes the system: run it as root")
        if chosen.token is not None:
            _hide_token(chosen.token)
        return _run(chosen)
    except (UsageError, RunError) as error:
        for line in str(error).splitlines():
            print(f"provision: {line}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _hide_token(token: str) -> None:
    """Restart with the token in the environment, which only root can read; every user can read the arguments."""
    command = [sys.executable, "-I", sys.argv[0], *without_token(sys.argv[1:])]
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, "PROVISION_TOKEN": token})


def without_token(arguments: Sequence[str]) -> list[str]:
    result: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--token":
            next(left, None)
        elif not argument.startswith("--token="):
            result.append(argument)
    return result


def _run(chosen: argparse.Namespace) -> int:
    start = time.monotonic()
    with only_run(chosen.state_dir):
        payload = state_folder.unpacked(chosen.state_dir.resolve())
        # what follows needs the payload's YAML and our collection
        sys.path[:0] = [str(payload / "site"), str(payload / "collections")]
        from provision import playbook

        gathered = playbook.gather(chosen)
        # not before everything that was asked for is known to make sense
        if not chosen.check:
            for reason in state_folder.remove_older(chosen.state_dir.resolve(), payload):
                print(f"provision: an older version of this program stays: {reason}", file=sys.stderr)
        flags = [flag for flag, wanted in (("--check", chosen.check), ("--diff", chosen.diff)) if wanted]
        if chosen.cloud_config is not None:
            playbook.keep_cloud_config(Path(chosen.cloud_config), check=chosen.check)
        with playbook.run_folder(chosen.state_dir) as folder:
            code = playbook.run(payload, folder, PLAYBOOKS[chosen.phase], gathered, flags, chosen.verbose)
    return _ended(code, chosen, time.monotonic() - start)


def _ended(code: int, chosen: argparse.Namespace, seconds: float) -> int:
    """Say the last line; Ansible's exit codes become ours."""
    if code == 0:
        what = "checked, nothing was changed" if chosen.check else "done"
        print(f"provision: {chosen.phase}: {what} ({seconds:.0f} s)")
        return OK
    if code == _ANSIBLE_INTERRUPTED or code < 0:
        print("provision: interrupted; run it again to continue", file=sys.stderr)
        return INTERRUPTED
    print(
        f"provision: {chosen.phase} failed after {seconds:.0f} s; the reason is above, run it again to continue",
        file=sys.stderr,
    )
    return FAILED
