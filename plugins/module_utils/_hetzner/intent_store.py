# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The intents of a fleet on the controller: opened before a rescue is armed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._common import installed, intents
from .api_failures import MachineError

if TYPE_CHECKING:
    from .fleet_run import MachineRun


#: Proofs that need no login: an open port is enough, or nothing is checked.
PORT, NONE = "port", "none"
_ABOUT = ("image_url", "image_digest", "command")


class IntentStore:
    """A folder of intents; without one, nothing is written and nothing is known."""

    def __init__(self, folder: str | None, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._wanted = wanted

    @property
    def kept(self) -> bool:
        """Whether anything is remembered at all."""
        return bool(self._folder)

    def open(self, run: MachineRun, consent: str, **more: Any) -> None:
        """Write down what is about to be done to a machine; a second try of the same installation goes on."""
        if not self._folder:
            return
        about = {key: value for key, value in (self._wanted.get(run.name) or {}).items() if key in _ABOUT}
        installation = run.result["installation"]
        try:
            kept = self.of(run.name)
            if kept and intents.is_open(kept, run.name, installation) and not kept.get("disarmed"):
                return
            intent = intents.make(run.name, installation, consent, **dict(about, **more))
            succeeded = intents.seen_to_succeed(kept, more.get("replaces"))
            if succeeded is not None:
                # What is there until this one begins, which may never be.
                intent["replaced_succeeded"] = succeeded
            intents.write(intents.file_of(self._folder, run.name), intent)
        except intents.IntentError as error:
            raise MachineError(f"nothing was armed: {error}") from error

    def armed(self, name: str, **how: Any) -> None:
        """What distinguishes the arming that just happened from others."""
        intent = self.of(name)
        if not self._folder or intent is None or intent.get("state") != intents.OPEN:
            return
        try:
            intents.write(intents.file_of(self._folder, name), dict(intent, armed=how))
        except intents.IntentError as error:
            raise MachineError(f"armed, but {error}") from error

    def gave_up(self, name: str, for_good: bool) -> None:
        """The arming was taken back: a rescue that comes now is not ours. ``for_good``: it is not tried again."""
        with contextlib.suppress(intents.IntentError, MachineError):  # the error that led here says more
            intent = self.of(name)
            if not self._folder or intent is None or intent.get("state") != intents.OPEN:
                return
            path = intents.file_of(self._folder, name)
            if for_good:
                intents.close(path, intents.GIVEN_UP)
            else:
                intents.write(path, dict(intent, disarmed=True))

    def seen(self, name: str, proven: bool) -> None:
        """A system answered: nothing on its disks may be written for this intent any more."""
        if self._folder:
            try:
                intents.close(intents.file_of(self._folder, name), intents.DONE if proven else intents.SEEN)
            except intents.IntentError as error:
                raise MachineError(str(error)) from error

    def of(self, name: str) -> dict[str, Any] | None:
        """The intent of a machine; None when there is none."""
        try:
            return intents.read(intents.file_of(self._folder, name)) if self._folder else None
        except intents.IntentError as error:
            raise MachineError(str(error)) from error

    def unproven(self, name: str, installation: str = "") -> str:
        """PORT or NONE when the user asks for no more, and a run of this controller has finished what is there."""
        proof, intent = (self._wanted.get(name) or {}).get("proof"), self.of(name)
        if not intent or intent.get("machine") != name or intent.get("state") != intents.DONE:
            return ""
        same = intent["installation"] == (installation or intent["installation"])
        return str(proof) if same and proof in (PORT, NONE) else ""

    def replaced(self, name: str, installation: str) -> str:
        """What was there before an installation that was armed for and never begun; empty when that is not known."""
        intent = self.of(name)
        if not intent or intent["installation"] != installation or not self._unbegun(intent, name):
            return ""
        return installed.installation_of({"installation": intent.get("replaces")})

    @staticmethod
    def _unbegun(intent: Mapping[str, Any], name: str) -> bool:
        return intent.get("machine") == name and intent.get("state") != intents.DONE and not intent.get("begun")

    def unfinished(self, name: str) -> str:
        """The installation that this controller began and never saw proven; empty when there is none."""
        intent = self.of(name)
        if not intent or intent.get("machine") != name or intent.get("state") == intents.DONE:
            return ""
        if self._unbegun(intent, name):
            # It was armed for this installation, and nothing was written: the system that runs is of another one.
            return ""
        return str(intent["installation"])
