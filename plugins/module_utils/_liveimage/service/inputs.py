# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What all hosts have in common: from the environment, and from files that are read again when they change."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..agent_inputs import AgentInputs, from_environment
from ..bases import Signature, signature_of
from ..errors import ImageError
from .problems import Problems
from .watch import read_text

PULL_SECRET = "/run/secrets/pull-secret"
_MOST = 4 * 1024 * 1024
_NAME = "common inputs"


class Inputs:
    """The agent's inputs as they are now.

    When a file becomes bad, the last good values stay: it is every host's file, and none of them is wrong.
    """

    def __init__(self, environ: Mapping[str, str], problems: Problems, pull_secret_file: str = "") -> None:
        """Read everything; ImageError when something is wrong already now."""
        self._environ, self._problems = environ, problems
        self._places = {PULL_SECRET: pull_secret_file or PULL_SECRET}
        self._paths = [self._places[PULL_SECRET], environ.get("CA_BUNDLE", ""), environ.get("REGISTRIES_CONF_PATH", "")]
        if pull_secret_file:
            try:
                read_text(pull_secret_file, _MOST)
            except ImageError as error:  # one that is named has to be there
                raise ImageError("pull-secret-file %s: %s" % (pull_secret_file, error)) from error
        self._signatures = self._look()
        self._current = self._read()
        self._problem = ""

    def __call__(self) -> AgentInputs:
        """The same object as long as nothing changed."""
        return self._current

    @property
    def modified(self) -> float:
        """When the newest file was written (seconds since 1970)."""
        return max((one.mtime_ns for one in self._signatures if one is not None), default=0) / 1e9

    def refresh(self) -> bool:
        """Look at the files again; whether the inputs are others now. ``tell`` belongs after what comes of it."""
        found = self._look()
        if found == self._signatures:
            return False
        self._signatures, before = found, self._current
        try:
            self._current = self._read()
        except ImageError as error:
            self._problem = "%s; the values that were there before are used" % error
            return False
        self._problem = ""
        return self._current != before

    def tell(self) -> None:
        """Say what is wrong with them, or that nothing is any more."""
        self._problems.tell(_NAME, self._problem)

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in self._paths)

    def _read(self) -> AgentInputs:
        return from_environment(self._environ, self._text).checked()

    def _text(self, path: str) -> str | None:
        try:
            return read_text(self._places.get(path, path), _MOST)
        except ImageError:
            return None


def _signature(path: str) -> Signature | None:
    try:
        return signature_of(os.stat(path)) if path else None
    except OSError:
        return None
