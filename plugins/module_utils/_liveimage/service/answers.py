# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Answers that know hosts: one whose image is not there yet is no unknown one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..server.answers import Answer, Answers
from ..server.registry import Registry

_LATER = b"Retry-After: 5\r\n"


class HostAnswers(Answers):
    """As `Answers`; what is only not ready is 503 instead of 404."""

    def __init__(
        self,
        registry: Registry,
        path_of: Callable[[str], str | None],
        make: Callable[[str], bool],
        later: Callable[[str], str],
    ) -> None:
        """``make``: makes the image of a path when it is one that only has to be made; whether it is there now.

        ``later``: why a path opens nothing although it may do so some day; "" when it never will.
        """
        super().__init__(registry, path_of)
        self._registered, self._make, self._later = path_of, make, later

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """See `Answers`."""
        answer = super().answer(method, path, headers)
        if answer.status != 404:
            return answer
        plain = self._registered(path) or ""
        if self._make(plain):
            return super().answer(method, path, headers)
        reason = self._later(plain)
        return self.refusal(503, reason, _LATER, head_only=method == "HEAD") if reason else answer
