# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Who answers after a reset, and is it the rescue? Nothing is sent to a rescue whose host key is not proven."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._common import consent
from .._common.ssh_access import sha256_fingerprint
from . import ssh
from .api_failures import LOOK_EVERY, Deadline, MachineError, Permanent

if TYPE_CHECKING:
    from .robot_servers import BootRoutes
    from .ssh import Answer, Ssh


#: Seconds between two questions to Robot about the same thing, and for Robot to publish host keys.
ASK_EVERY = 10.0
PUBLISHING_TAKES = 60.0
#: Seconds for which the same false keys must be shown, by scans of their own, as a system that is going down may yet
#: answer; keys that change all the time are false after as many seconds as Robot may take to publish them.
FALSE_TAKES = 20.0
#: Seconds for which a rescue whose host key is proven may refuse our key.
DENIAL_TAKES = 30.0

#: What a look found: the rescue, nothing, the boot that was seen before the reset, or a boot of another system.
ARRIVED, NOT_THERE, SAME_BOOT, OTHER_SYSTEM = "arrived", "not there", "same boot", "other system"

_PREFIX = "SHA256:"


def announced(rescue: Mapping[str, Any]) -> list[str]:
    """The fingerprints in an answer of ``…/rescue/last``; an empty list when it has none."""
    found = []
    entries = rescue.get("host_key")
    for entry in entries if isinstance(entries, list) else []:
        key = entry.get("key") if isinstance(entry, dict) else None
        text = key.get("fingerprint") if isinstance(key, dict) else None
        if isinstance(text, str) and text and text.isascii():
            found.append((text[len(_PREFIX) :] if text.startswith(_PREFIX) else text).rstrip("="))
    return found


def proven(shown: Iterable[str], announced_keys: Sequence[str]) -> list[str]:
    """Those of the keys ``shown`` whose fingerprints were announced; every pair is compared, in constant time."""
    result = []
    for key in shown:
        matches = [hmac.compare_digest(sha256_fingerprint(key).encode(), one.encode()) for one in announced_keys]
        if any(matches):
            result.append(key)
    return sorted(result)


class RescueProbe:
    """The looks at one machine. ``strict``: the rescue's host keys must be those that Robot publishes."""

    def __init__(
        self,
        shell: Ssh,
        routes: BootRoutes,
        name: str,
        address: str,
        strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shell = shell
        self._routes = routes
        self._name = name
        self._address = address
        self._strict = strict
        self._clock = clock
        #: Host keys of systems that are not the rescue, and those of them that were scanned with all their types.
        self._others: set[str] = set()
        self._scanned: set[str] = set()
        #: The keys that were taken for false ones first.
        self._false: set[str] = set()
        self._same_since = 0.0
        self._asked_at: float | None = None
        self._silent_since: float | None = None
        self._denied_since: float | None = None
        self._false_since: float | None = None
        #: The last answer by SSH, and the host keys of the rescue that were proven.
        self.answer: ssh.Answer | None = None
        self.proven: list[str] = []
        self.words = "it was not asked"

    @property
    def _untold(self) -> bool:
        """Whether Robot has had time enough to tell the keys of the rescue that answers."""
        since = self._silent_since
        return since is not None and self._clock() - since >= PUBLISHING_TAKES - ASK_EVERY / 2

    @property
    def undecided(self) -> bool:
        """Whether something answers that may yet prove to be the rescue, or to be none, within a minute."""
        return any(since is not None for since in (self._silent_since, self._denied_since, self._false_since))

    def restart(self) -> None:
        """The machine was reset: what was found out about its rescue counts no more."""
        self._asked_at = self._silent_since = self._denied_since = None
        self._not_false()
        self.answer, self.proven = None, []

    def look(self) -> Answer:
        """Ask by SSH which system answers, whichever it is; nothing secret is sent."""
        self.answer = self._shell.probe(self._name, self._address)
        self.words = self.answer.describe()
        if self.answer.kind != ssh.SILENT and not self.answer.in_rescue:
            self._know(self._shell.keys_of_last_probe(self._name))
        return self.answer

    def _not_false(self) -> None:
        self._false_since, self._false = None, set()

    def _know(self, shown: Iterable[str]) -> None:
        """Remember another system, by its keys of all types: in its last seconds it may show any of them alone."""
        self._others.update(shown)
        if self._strict and not self._scanned.issuperset(shown):
            scanned = self._shell.host_keys(self._name, self._address)
            self._others.update(scanned)
            self._scanned.update(scanned)

    def wait_for_proof(self, known: Sequence[str], deadline: Deadline) -> bool:
        """Prove the host keys of a rescue that answered already; False when Robot does not tell them. Raises Permanent.

        ``known``: host keys that an earlier step or run proved.
        """
        if not self._strict:
            self.pin()
            return True
        shown = self._shell.keys_of_last_probe(self._name)
        if set(known).intersection(shown):
            self._shell.pin_keys(self._name, list(known))
            self.proven = list(known)
            return True
        shown = self._shell.host_keys(self._name, self._address) or shown
        while not self._prove(shown, deadline):
            if deadline.left() < LOOK_EVERY or self._untold:
                return False
            deadline.sleep(LOOK_EVERY, "")
        return True

    def wait_for_another_boot(self, previous_boot_id: str | None, deadline: Deadline) -> Answer:
        """Wait until a system that is no rescue answers after a reboot; returns its answer, raises MachineError."""
        while True:
            answer = self.look()
            if answer.kind == ssh.DENIED:
                return answer
            if answer.boot_id not in (None, previous_boot_id):
                if answer.in_rescue:
                    raise MachineError(f"the machine came back into a rescue: {answer.describe()}")
                return answer
            deadline.sleep(LOOK_EVERY, answer.describe())

    def pin(self) -> None:
        """Keep the host key of the rescue that answered last, on first contact."""
        self._shell.pin_keys(self._name, self._shell.keys_of_last_probe(self._name))

    def see(self, previous_boot_id: str | None, deadline: Deadline) -> str:
        """One look at a machine that boots; returns ARRIVED, NOT_THERE, SAME_BOOT or OTHER_SYSTEM."""
        if not self._strict:
            return self._judge(self.look(), previous_boot_id)
        shown = self._shell.host_keys(self._name, self._address)
        if not shown:
            self.words, self._silent_since = "SSH does not answer", None
            self._not_false()
            # The port of the rescue is silent; a system with a port of its own may have come up instead.
            answer = self._shell.probe_elsewhere(self._name, self._address)
            if answer is None or answer.kind != ssh.SYSTEM or answer.in_rescue:
                return NOT_THERE
            return self._judge(answer, previous_boot_id)
        if self._others.intersection(shown):
            answer = self.look()
            if not answer.in_rescue:
                # The old system, still or again: what showed false keys may be gone.
                self._not_false()
                return self._judge(answer, previous_boot_id)
            # It says so itself, which proves nothing; only Robot's answer does.
            self._others.difference_update(shown)
        if not set(self.proven).intersection(shown) and not self._prove(shown, deadline):
            if self._untold:
                raise MachineError(
                    f"the rescue answers, but for {PUBLISHING_TAKES:.0f} s Robot reported no host keys of it, so it "
                    f"cannot be proven. {ways_out(self._name)}"
                )
            if not self._others.intersection(shown):
                return NOT_THERE
            # Another system is asked at once who it is: one that accepts our key is not reset. What it says of a
            # rescue proves nothing.
            answer = self.look()
            return NOT_THERE if answer.in_rescue else self._judge(answer, previous_boot_id)
        return self._judge(self._shell.probe_pinned(self._name, self._address), previous_boot_id)

    def _judge(self, answer: Answer, previous_boot_id: str | None) -> str:
        self.answer, self.words = answer, answer.describe()
        if answer.kind != ssh.DENIED or not self.proven:
            self._denied_since = None
        else:
            self._denied_since = self._denied_since or self._clock()
            if self._clock() - self._denied_since >= DENIAL_TAKES:
                raise Permanent(f"the rescue answers, with a proven host key, but refuses ours: {self.words}")
        if answer.kind != ssh.SYSTEM:
            return NOT_THERE
        if answer.boot_id is not None and answer.boot_id == previous_boot_id:
            return SAME_BOOT
        if not answer.in_rescue:
            return OTHER_SYSTEM
        if answer.boot_id is None:
            return NOT_THERE
        if not self._strict:
            self.pin()
        return ARRIVED

    def _prove(self, shown: Sequence[str], deadline: Deadline) -> bool:
        """Ask Robot whose keys these are, sparingly; returns whether they are proven."""
        now = self._clock()
        if self._asked_at is not None and now - self._asked_at < ASK_EVERY:
            return False
        self._asked_at = now
        last = self._routes.rescue(deadline, last=True)
        published = announced(last)
        self.proven = proven(shown, published)
        if self.proven:
            self._silent_since = None
            self._not_false()
            self._shell.pin_keys(self._name, self.proven)
            return True
        if last.get("active") is True:
            # The rescue is still waiting for its boot, so this is some other system.
            self._others.update(shown)
            self._silent_since = None
            self.words = "another system answers and the rescue has not been booted"
            return False
        if published:
            self.words = "the host keys that answer are none of those Robot reports for this rescue"
            if self._false_since is None:
                self._false_since = now
            if not self._false.intersection(shown):
                self._false, self._same_since = set(shown), now
            if now - self._same_since < FALSE_TAKES and now - self._false_since < PUBLISHING_TAKES:
                return False
            raise Permanent(
                f"the host keys that answer at {self._address} are none of those Robot reports for this rescue, so "
                f"nothing was sent to it: shown {_listed(map(sha256_fingerprint, shown))}, "
                f"reported {_listed(published)}. The connection is intercepted, another machine has this address, or "
                "this one has left its rescue for another system"
            )
        self.words = "something answers, and Robot reports no host keys of the rescue"
        self._silent_since = now if self._silent_since is None else self._silent_since
        return False


def ways_out(name: str) -> str:
    """What a user can do about a rescue whose host keys Robot does not tell."""
    return (
        "Robot tells the keys of a rescue that has just been started. To have it started again, name the machine: "
        f"{consent.extra_var('reinstall', [name])}. To trust the keys that answer: "
        f"{consent.extra_var('host_key_checking', 'accept-new')}"
    )


def _listed(fingerprints: Iterable[str]) -> str:
    return ", ".join(f"SHA256:{one[:64]}" for one in fingerprints)
