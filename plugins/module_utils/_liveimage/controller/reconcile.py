# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One look at one object: ask `decide`, do it, ask again, until nothing is to be done."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from . import status as statuses
from .api import Api, Conflict, NotFound
from .decide import Missing, Observed, Plan, Secret, decide
from .images import Images
from .secrets import claimed

LOG = logging.getLogger("kubenode.images.controller")
_MOST_STEPS = 40  # more are a loop that somebody else's writes keep alive


class Reconciler:
    """Looks at objects; one thread for one object at a time."""

    def __init__(
        self, api: Api, images: Images, supports: Callable[[str], bool], clock: Callable[[], float] = time.time
    ) -> None:
        """``supports`` tells whether there are bases for an architecture; "" is this machine's."""
        self._api, self._images, self._supports, self._clock = api, images, supports, clock
        self.written = 0  # writes of status so far

    def look(self, namespace: str, name: str, noticed: Callable[[Mapping[str, Any]], None]) -> float | None:
        """Returns the seconds after which to look again, None when only an event can change anything.

        ``noticed`` is told every state of the object that is seen here. ApiFailed says why it could not be finished.
        """
        try:
            image = self._api.image(namespace, name)
        except NotFound:
            self._images.forget(namespace, name)
            return None
        seen = self._observed(image)
        for _step in range(_MOST_STEPS):
            noticed(seen.image)
            plan = decide(seen)
            if plan.forget:
                self._images.forget(namespace, name)
            if plan.last:
                return plan.retry
            built = seen.outcome is not None  # the status tells of it, and nothing is left to do
            try:
                seen = self._done(seen, plan)
            except NotFound:
                self._images.forget(namespace, name)
                return None
            if plan.status is not None and (plan.retry is not None or built):
                return plan.retry
        return 1.0

    def _observed(self, image: Mapping[str, Any]) -> Observed:
        wanted = (image.get("spec") or {}).get("architecture") or ""
        return Observed(image=image, now=self._clock(), supported=self._supports(wanted))

    def _done(self, seen: Observed, plan: Plan) -> Observed:
        """What is known when the plan was carried out."""
        image = seen.image
        if plan.read:
            return replace(seen, secret=self._secret(image, plan))
        if plan.build is not None:
            outcome = self._images.build(image, plan.build)
            LOG.debug("%s/%s: %s", *_named(image), type(outcome).__name__)
            return replace(seen, outcome=outcome)
        if plan.finalizers is not None:
            return self._observed(self._api.set_finalizers(image, plan.finalizers))
        if plan.status is None:
            raise RuntimeError("a plan that asks for nothing was carried out")
        difference = statuses.difference(image.get("status") or {}, plan.status)
        self.written += 1
        new = self._api.set_status(image, difference)
        _tell(new)
        return self._observed(new)

    def _secret(self, image: Mapping[str, Any], plan: Plan) -> Secret | Missing:
        """Read a Secret and claim it; one that is being deleted is not claimed any more."""
        namespace = image["metadata"]["namespace"]
        for _attempt in range(5):
            try:
                found = self._api.secret(namespace, plan.read)
            except NotFound:
                return Missing()
            mine = claimed(found, image) if plan.claim else None
            if mine is None:
                break
            try:
                found = self._api.replace_secret(mine)
                break
            except NotFound:
                return Missing()
            except Conflict:  # another object claims it at the same moment
                continue
        else:
            raise Conflict("Secret %s/%s is being changed all the time" % (namespace, plan.read))
        metadata = found["metadata"]
        created = statuses.moment(metadata.get("creationTimestamp"))
        return Secret(plan.read, metadata["resourceVersion"], found.get("data") or {}, created)


def _tell(image: Mapping[str, Any]) -> None:
    """One log line for a new status, without URLs: who reads one can read the image."""
    told = image.get("status") or {}
    ready, error = statuses.condition(told, statuses.READY), statuses.condition(told, statuses.ERROR)
    failed = error.get("status") == "True"
    LOG.log(
        logging.WARNING if failed else logging.INFO,
        "%s/%s: %s, %s: %s",
        *_named(image),
        "error" if failed else "ready" if ready.get("status") == "True" else "not ready",
        (error if failed else ready).get("reason"),
        (error if failed else ready).get("message"),
    )


def _named(image: Mapping[str, Any]) -> tuple[str, str]:
    return image["metadata"]["namespace"], image["metadata"]["name"]
