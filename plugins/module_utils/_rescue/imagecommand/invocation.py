# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How an image command is started and how it ends: progress, exit code, marker, and what became of the disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..._common.text import to_whole_seconds
from .basics import Refused, Terminated
from .filesystems import workplace
from .root_device import Disk


class Progress:
    """Shows the user the progress of the work: a line on stdout per step, and `message` in output.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = 0.0
        self.outcome = "nothing was written to a disk"

    def say(self, text: str) -> None:
        """Announce a step."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        self.publish(text)

    def tick(self, text: Callable[[], str], count: Callable[[], tuple[int, int | None]]) -> None:
        """Publish text() and count() when the last message is older than a second; see publish()."""
        if time.monotonic() - self.last >= 1:
            self.publish(text(), count())

    def publish(self, text: str, count: tuple[int, int | None] | None = None) -> None:
        """Replace output.json at once, never half of it. count: bytes done, and bytes in all or None."""
        self.last = time.monotonic()
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full RAM disk must not end an installation
            content: dict[str, Any] = {"message": text}
            if count is not None:
                content["bytes"] = {"done": count[0], "total": count[1]}
            draft.write_text(json.dumps(content) + "\n")
            draft.replace(self.path)


# --- How a command is started and how it ends: signals, exit code, marker, and what became of the disk.


MARKER = "IMAGE_URL_DONE"
TOKEN = "OCI_REGISTRY_AUTH_TOKEN"  # the name of a variable, not a secret


def run_program(name: str, install: Callable[..., None], arguments: list[str]) -> int:
    """Run install(image URL, bootstrap file, machine, devices, progress, token); return the exit code.

    The marker is printed only when everything is done. The registry token leaves the environment first, so that no
    tool that is started has it.
    """
    token = os.environ.pop(TOKEN, "")
    if len(arguments) != 4:
        sys.stderr.write(f'usage: {name} IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE"\n')
        return 2

    def end(number: int, _frame: object) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # cleaning up must not be cut short
        raise Terminated(number)

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in caught:
        signal.signal(number, end)
    progress = Progress(Path(arguments[1]).with_name("output.json"))
    try:
        install(*arguments, progress, token)
    except (Refused, Terminated, OSError) as error:
        progress.publish(f"failed: {error}")
        sys.stderr.write(f"{name}: {error}; {progress.outcome}\n")
        return 128 + error.number if isinstance(error, Terminated) else 1
    sys.stdout.write(MARKER + "\n")
    return 0


@contextlib.contextmanager
def writing(disk: Disk, progress: Progress) -> Iterator[Path]:
    """Hold the disk and give a private folder; a disk that was written does not boot when the work fails."""
    try:
        with disk.locked(), workplace() as work:
            yield work
    except BaseException as error:
        if disk.touched:
            progress.outcome = f"{disk.path} could not be made unbootable again"
            with contextlib.suppress(OSError):  # of a disk that takes nothing; why it did not is said below
                disk.spoil()
                progress.outcome = f"{disk.path} was made unbootable again"
        if isinstance(error, OSError) and error.errno == errno.EIO:
            raise Refused(
                f"root device {disk.path}: reading or writing it failed ({os.strerror(errno.EIO)}): bad sectors, or a "
                "broken disk or cable. Look at dmesg and smartctl in the rescue, and have the disk replaced"
            ) from error
        raise


# --- The installed record: what the new system says about where it came from.


#: The id of the installation, by which the new system is known again.
INSTALLATION = "KUBENODE_INSTALLATION"
#: What allowed this installation to write; such a word is used up by it.
CONSENT = "KUBENODE_CONSENT"


def installed_record(machine: str, image_url: str, image_digest: str, command: str) -> dict[str, str]:
    """Return what /etc/kubenode/installed.json holds; the URL as it may be shown."""
    installation = os.environ.get(INSTALLATION, "")
    known = {"installation": installation} if re.fullmatch("[0-9a-f]{32}", installation) else {}
    if re.fullmatch("[a-z+]{1,60}", os.environ.get(CONSENT, "")):
        known["consent"] = os.environ[CONSENT]
    return {
        **known,
        "machine": machine,
        "image_url": image_url,
        "image_digest": image_digest,
        "command": command,
        "installed_at": to_whole_seconds(time.time()),
    }
