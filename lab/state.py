# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a lab that runs in the background writes down what it is, whether that is still true; a small client of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class StateError(Exception):
    """Something about a lab's state that its user must know."""


def base() -> Path:
    """The folder of all labs of this user."""
    if chosen := os.environ.get("KUBENODE_LAB_DIR"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/kubenode-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "kubenode-lab" if runtime else Path(tempfile.gettempdir()) / f"kubenode-lab-{os.geteuid()}"


class State:
    """The folder of one lab: state.json, token files (0600), log."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise StateError(
                f"lab name '{name}' is not 1 to 40 letters, digits, '-' or '_', beginning with a letter or digit"
            )
        self.name = name
        self.folder = base() / name
        self.log = self.folder / "log"
        self.token = self.folder / "token"
        self.read_only_token = self.folder / "token-read-only"
        self.robot_password = self.folder / "robot-password"
        self._file = self.folder / "state.json"

    def make(self) -> None:
        """Make the folder, for this user only; one that belongs to another user is refused."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise StateError(f"{folder} belongs to another user; set KUBENODE_LAB_DIR to a folder of your own")
        self.folder.chmod(0o700)

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[None]:
        """Only one program at a time starts or stops this lab; BlockingIOError when that is so, without ``wait``."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield

    def write(self, values: dict[str, Any]) -> None:
        """Replace the state as a whole."""
        write_secret(self._file, json.dumps(values, indent=1) + "\n")

    def read(self) -> dict[str, Any] | None:
        """What was written last, or None."""
        try:
            values: dict[str, Any] = json.loads(self._file.read_text())
            return values
        except FileNotFoundError:
            return None

    def running(self) -> dict[str, Any] | None:
        """The state, when the process that wrote it is still the same one and alive."""
        values = self.read()
        if values is None or process_start(values["pid"]) != values["pid_start"]:
            return None
        return values

    def forget(self) -> None:
        """The lab is gone: remove what is only true of a running one (the log stays)."""
        for path in (self._file, self.token, self.read_only_token, self.robot_password):
            path.unlink(missing_ok=True)


def write_secret(path: Path, text: str) -> None:
    """Write a file that only this user can read, all or nothing."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.rename(path)


def process_start(pid: int) -> str | None:
    """When the process began, in the kernel's ticks; two processes of the same number differ in it."""
    try:
        # The program name before the last parenthesis may hold anything, blanks included.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


class LabClientError(Exception):
    """The lab refused, or does not answer."""


def call_lab(endpoint: str, token: str, method: str, path: str, body: Any = None, timeout: float = 600) -> Any:
    """Call ``path`` below /_lab of the lab whose API is at ``endpoint``; JSON is decoded, text is returned as it is."""
    request = urllib.request.Request(
        endpoint.removesuffix("/v1") + "/_lab" + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
    except urllib.error.HTTPError as error:
        raise LabClientError(f"{method} {path}: HTTP {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise LabClientError(f"{method} {path}: the lab at {endpoint} does not answer: {error}") from error
    return json.loads(text) if is_json else text
