# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab in the background: the process itself, and how it is started and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.machines.leftovers import clean_up_lab

from .cache import Progress
from .state import State, StateError, process_start, write_secret

#: the password of the webservice user, for clients that are given it before the lab is up
PASSWORD_VARIABLE = "KUBENODE_LAB_ROBOT_PASSWORD"
_STOP_SECONDS = 300
_TICK = 0.05


@dataclass(frozen=True)
class Options:
    """What ``up`` was asked for."""

    kind: str = "auto"
    profile: str = "instant"
    port: int = 0
    robot_port: int = 0
    limit: int = 3600
    servers: int = 200
    seed: int = 0
    datacenters: bool = False
    robot_tls: Path | None = None
    dedicated: Path | None = None

    def arguments(self) -> list[str]:
        """As command line arguments of ``serve``."""
        arguments = []
        for name, value in asdict(self).items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                arguments.append(option)
            elif value not in (None, False):
                arguments += [option, str(value.resolve() if isinstance(value, Path) else value)]
        return arguments


def dedicated(file: Path | None) -> list[Any]:
    """The descriptions of dedicated servers in a YAML file, checked; StateError names the file and what is wrong."""
    if file is None:
        return []
    from lab.robot import model

    try:
        entries = yaml.safe_load(file.read_text()) or []
        model.numbered(model.parse(entries), ())
    except (OSError, ValueError, RecursionError, yaml.YAMLError, model.SpecError) as error:
        raise StateError(f"--dedicated {file}: {error}") from error
    return entries if isinstance(entries, list) else [entries]


def serve(state: State, options: Options) -> None:
    """Run the lab until SIGTERM or Ctrl-C. Progress goes to stderr, which is the log of a lab in the background."""
    # imported here, since no other command of the lab needs the half second that this takes
    from lab.robot import model

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if sys.version_info < (3, 12):  # where this is the default; else each program that is waited for has a thread
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    try:
        asyncio.run(_serve(state, options))
    except model.SpecError as error:
        sys.exit(f"lab: {error}")


async def _serve(state: State, options: Options) -> None:
    from lab.api.cloud_project import Settings
    from lab.robot.account import RobotSettings

    from .lab import Lab

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    main = asyncio.current_task()

    def end() -> None:
        # While the lab is still being opened the task is cancelled, afterwards it is asked to end.
        if lab.endpoint or main is None:
            stop.set()
        else:
            main.cancel()

    lab = Lab(
        options.kind,
        options.profile,
        name=state.name,
        port=options.port,
        token=state.token.read_text(),
        read_only_token=state.read_only_token.read_text(),
        seed=options.seed,
        state_dir=state.folder,
        settings=Settings(limit=options.limit, server_limit=options.servers, datacenters=options.datacenters),
        robot_port=options.robot_port,
        robot_settings=RobotSettings(password=os.environ.get(PASSWORD_VARIABLE, "")),
        robot_tls=options.robot_tls,
        dedicated=dedicated(options.dedicated),
        progress=lambda text: logging.info("%s", text),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    identity = {"pid": os.getpid(), "pid_start": process_start(os.getpid()), "ready": False}
    state.write(identity)
    try:
        async with lab:
            state.write(lab.about() | identity | {"ready": True, "log": str(state.log)})
            logging.info("the lab answers at %s", lab.endpoint)
            await stop.wait()
    finally:
        state.forget()


def start(state: State, options: Options, token: str | None, progress: Progress) -> dict[str, Any]:
    """Start a lab in the background and wait until it answers; returns its state."""
    write_secret(state.token, token or secrets.token_urlsafe(32))
    write_secret(state.read_only_token, secrets.token_urlsafe(32))
    with state.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab", "serve", "--name", state.name, *options.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(__file__).resolve().parent.parent,
        )
    try:
        return _wait_until_ready(state, process, progress)
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        raise


def _wait_until_ready(state: State, process: subprocess.Popen[bytes], progress: Progress) -> dict[str, Any]:
    with state.log.open() as log:
        while True:
            for line in log:
                progress(line.rstrip())
            values = state.read()
            if values is not None and values["ready"] and values["pid"] == process.pid:
                return values
            if process.poll() is not None:
                tail = "\n".join(state.log.read_text().splitlines()[-15:])
                raise StateError(f"lab '{state.name}' ended while starting (exit code {process.returncode}):\n{tail}")
            time.sleep(_TICK)


def stop(state: State) -> bool:
    """Stop a lab and clean up, also after one that crashed; False when there was nothing at all."""
    values = state.read()
    running = state.running()
    if running is not None:
        _end_process(running["pid"], running["pid_start"])
    backend = state.folder / "site"
    asyncio.run(clean_up_lab(state.name, backend))
    shutil.rmtree(backend, ignore_errors=True)
    state.forget()
    return values is not None


def wait(pid: int, started: str) -> None:
    while process_start(pid) == started:
        time.sleep(_TICK)


def _end_process(pid: int, started: str) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while process_start(pid) == started:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK)
