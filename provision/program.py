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

from provision import unpack
from provision.errors import FAILED, INTERRUPTED, OK, USAGE, RunError, UsageError
from provision.locked import only_run
from provision.options import PLAYBOOKS, parse

#: ansible-playbook's exit code after Ctrl-C
_ANSIBLE_INTERRUPTED = 99


def main() -> int:
    """Run the program; errors are a line each on stderr."""
    try:
        # like Ctrl-C, so that the files of a run are removed
        signal.signal(signal.SIGTERM, _interrupted)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, _interrupted)
        version = unpack.resource(unpack.VERSION).decode("utf-8").strip()
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
    """The arguments without --token and its value."""
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
        payload = unpack.unpacked(chosen.state_dir.resolve())
        # what follows needs the payload's YAML and our collection
        sys.path[:0] = [str(payload / "site"), str(payload / "collections")]
        from provision import cloud_config, playbook, variables

        gathered = variables.gather(chosen)
        # not before everything that was asked for is known to make sense
        if not chosen.check:
            for reason in unpack.remove_older(chosen.state_dir.resolve(), payload):
                print(f"provision: an older version of this program stays: {reason}", file=sys.stderr)
        flags = [flag for flag, wanted in (("--check", chosen.check), ("--diff", chosen.diff)) if wanted]
        if chosen.cloud_config is not None:
            cloud_config.keep(Path(chosen.cloud_config), check=chosen.check)
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
