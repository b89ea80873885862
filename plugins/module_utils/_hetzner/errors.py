# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong between us and the APIs, sorted by whom it concerns."""

from __future__ import annotations

from .._common.text import spaced

#: Answers that concern the credentials, hence the whole fleet.
CREDENTIAL_CODES = {
    "unauthorized": (
        "api_token: the API refused the token (unauthorized). Check that it is complete, belongs to the right project "
        "and was not revoked."
    ),
    "token_readonly": (
        "api_token: the token may only read (token_readonly). Make a token with read and write permission for this "
        "project; nothing was changed by this request."
    ),
    "forbidden": "api_token: the token lacks the permission for this request (forbidden).",
}

#: characters of a message that are kept
_MOST = 4000


class ApiError(Exception):
    """The API answered with an error."""

    def __init__(
        self, status: int, code: str, message: object, details: object = None, correlation_id: str | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.message = spaced(message, _MOST)
        self.details = details if isinstance(details, dict) else {}
        self.correlation_id = correlation_id
        super().__init__(self.describe())

    def describe(self) -> str:
        """The error in one line: message, code, fields and the id support asks for."""
        fields = [
            f"{field.get('name')}: {', '.join(field.get('messages') or ['not accepted'])}"
            for field in self.details.get("fields") or []
            if isinstance(field, dict)
        ]
        parts = [str(self.code)] + ([f"request {self.correlation_id}"] if self.correlation_id else [])
        text = f"{self.message} ({', '.join(parts)})"
        return spaced(f"{text} [{'; '.join(fields)}]" if fields else text, _MOST)


class NoAnswer(Exception):
    """The request got no answer; ``sent`` says whether the API may have received it."""

    def __init__(self, reason: object, sent: bool) -> None:
        self.sent = sent
        super().__init__(spaced(reason, _MOST))


class FleetError(Exception):
    """Concerns every machine: the module fails."""


class MachineError(Exception):
    """Concerns one machine: it failed. ``permanent``: a retry cannot help."""

    permanent = False


class Refused(MachineError):
    """One machine was left exactly as it was, because going on would have been wrong or dangerous."""


class TimeLimit(MachineError):
    """One machine did not get there in time."""


UNAUTHORIZED = (
    "Robot refused the credentials (401), so nothing more was sent. Check robot_user and robot_password, or "
    "HROBOT_API_USER and HROBOT_API_PASSWORD: they are those of the webservice user (#ws+…) made in Robot's settings, "
    "not those of the login. After 3 failed logins Robot blocks this address for 10 minutes, and then refuses right "
    "credentials too."
)


class Permanent(MachineError):
    """One machine failed, and a retry cannot help."""

    permanent = True


class LimitSpent(Refused):
    """The hourly limit of a route is used up: not this machine's fault, and it was left as it is."""


class EndedEarly(Exception):
    """The work on one machine ended before it was in its rescue, and that is no failure; the text says why."""


class HandedBack(EndedEarly):
    """The rescue has not come yet, and a later step waits for it."""


class LeftAlone(EndedEarly):
    """A system answers that must not be reset; the text says which."""
