# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gates: wait until the right system answers, and be able to say what answered instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ansible_collections.kubenode.provision.plugins.module_utils._common.boot_states import LongWait
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import another_server, is_server
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line

from ..progress import display
from . import system_probe
from .remote import OTHER_KEY, REFUSED, KnownHosts, Remote, Unreachable
from .system_probe import System

#: How long another system may answer before it is clear that it is no passing state of the boot.
STEADY = 20.0
#: Seconds between two looks whether a port is open.
LOOKS = 0.25


class Verdict(Enum):
    """What a gate says of a system that answered."""

    OPEN = "open"
    WAIT = "wait"
    #: Wrong, and staying so: no need to wait for the whole limit when it goes on answering.
    WRONG = "wrong"
    #: Wrong, and waiting cannot help.
    NEVER = "never"


@dataclass(frozen=True)
class Decision:
    """A verdict and its reason."""

    verdict: Verdict
    why: str = ""
    #: It is the system to wait for, and only not ready: the connection to it is kept.
    arrived: bool = False
    #: Another try cannot help.
    final: bool = False


class GateClosed(Exception):
    """The right system did not answer in time; the text says what did instead. ``system``: who answered last."""

    def __init__(self, message: str, system: System | None, final: bool = False) -> None:
        """``final``: another try cannot help."""
        super().__init__(message)
        self.system, self.final = system, final

    @property
    def seen(self) -> dict[str, str]:
        """Who answered, for results."""
        return {"boot_id": self.system.boot_id, "hostname": self.system.hostname} if self.system else {}


class OtherKey(Exception):
    """A system shows a host key that is not the pinned one, where that was asked for."""


def judge_rescue(system: System, previous_boot_id: str | None, addresses: Sequence[str] = ()) -> Decision:
    """The rescue gate: a root file system in memory, and not the boot that was seen before the reset.

    ``addresses``: the server's public ones, of which it must have one.
    """
    if addresses and not is_server(system.addresses, addresses):
        return Decision(Verdict.NEVER, another_server(system.addresses, addresses), final=True)
    if system.boot_id == previous_boot_id:
        return Decision(Verdict.WAIT, f"the system seen before the reset still answers ({_who(system)})")
    if system.is_rescue:
        return Decision(Verdict.OPEN)
    return Decision(Verdict.WRONG, f"another system answers instead of the rescue ({_who(system)})")


def judge_system(system: System, previous_boot_id: str | None, expect: str) -> Decision:
    """The gate after a reboot: another boot, of the kind that was expected."""
    if system.boot_id == previous_boot_id:
        return Decision(Verdict.WAIT, f"it did not reboot: the boot seen before still answers ({_who(system)})")
    if expect == "rescue":
        return judge_rescue(system, previous_boot_id)
    if system.is_rescue:
        return Decision(
            Verdict.NEVER,
            "the disk did not boot: the rescue answers again. Look at the image (partition table, boot loader for this "
            "machine's firmware) and at the boot order, and check that no rescue is armed",
        )
    return Decision(Verdict.OPEN)


def judge_hostname(system: System, hostname: str) -> Decision:
    """The new system has its name, short or qualified; what waits for the network may give it a moment later."""
    if same_host(system.hostname, hostname):
        return Decision(Verdict.OPEN)
    # cloud-init sets the name while it runs.
    verdict = Verdict.WAIT if system.cloud_init.state == "running" else Verdict.WRONG
    why = (
        f"its hostname is {system.hostname!r}, expected {hostname!r}. kubenode_hostname says which name the new system "
        "has; kubenode_check_hostname: false leaves the name to the image"
    )
    return Decision(verdict, why, arrived=True)


def same_host(found: str, wanted: str) -> bool:
    """Whether two host names are the same, where one of them may lack its domain."""
    if "." in found and "." in wanted:
        return found.lower() == wanted.lower()
    return found.partition(".")[0].lower() == wanted.partition(".")[0].lower()


def judge_cloud_init(system: System, unknown_for: float) -> Decision:
    """cloud-init has ended well, or is not there."""
    state = system.cloud_init.state
    # The generator that decides whether cloud-init runs is one of the first things of a boot.
    if state == "running" or (state == "unknown" and unknown_for < STEADY):
        return Decision(Verdict.WAIT, "cloud-init is still running", arrived=True)
    if system.cloud_init.status in ("error", "degraded"):
        reasons = system.cloud_init.errors or system.cloud_init.warnings
        return Decision(
            Verdict.NEVER,
            f"cloud-init ended with status {system.cloud_init.status}: {'; '.join(reasons[:5])}. The new system's "
            "/var/log/cloud-init.log and cloud-init-output.log say more; wait_cloud_init: false skips this check",
        )
    return Decision(Verdict.OPEN)


class _Waiting:
    """Shows now and then what is waited for and what was seen last."""

    def __init__(self, name: str, what: str, timeout: float, clock: Callable[[], float]) -> None:
        self._name, self._clock, self._began = name, clock, clock()
        self._long = LongWait(f"waiting for {what}", timeout)

    def seen(self, why: str) -> None:
        """This was seen, and it goes on."""
        if line := self._long.line(self._clock() - self._began, why):
            display.progress(self._name, line)


def wait_for(
    remote: Remote,
    known_hosts: KnownHosts,
    judge: Callable[[System], Decision],
    timeout: float,
    what: str,
    *,
    ask: tuple[str, ...] = (),
    prove: bool = True,
    stop_at_other_key: bool = False,
    same_boot: bool = False,
    way_out: str = "",
    refusal_stays: bool = False,
    mask: Callable[[str], str] = str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> System:
    """Ask until ``judge`` opens the gate; raises :class:`GateClosed` when it stays closed for ``timeout`` seconds.

    ``ask``: arguments of the probe; ``prove``: pin the host keys of the system for which the gate opens; ``same_boot``:
    no reboot was sent, so a system with a wrong host key will go on to show it, and the error ends by ``way_out``;
    ``refusal_stays``: what refuses our key will not take it later; ``mask``: takes secrets out of what cloud-init says.
    """
    began = clock()
    waiting = _Waiting(known_hosts.name, what, timeout, clock)
    pause, wrong_since, last = 0.2, None, None
    seen: dict[str, int] = {}
    while True:
        remote.use(known_hosts)
        was_open, asked, after = remote.is_open, False, ""
        if not was_open:
            known_hosts.forget_unproven()
        try:
            remote.look()
            asked = True
            system = system_probe.parse(remote.run(system_probe.SCRIPT, *ask)[1], mask)
        except Unreachable as exc:
            if stop_at_other_key and exc.kind == OTHER_KEY:
                raise OtherKey from exc
            stays = (same_boot and exc.kind == OTHER_KEY) or (refusal_stays and exc.kind == REFUSED)
            verdict = Decision(Verdict.WRONG if stays else Verdict.WAIT, _of_unreachable(exc))
            after = way_out if exc.kind == OTHER_KEY else ""
            wrong_since = wrong_since if stays else None
        except system_probe.ProbeError as exc:
            verdict = Decision(Verdict.WAIT, f"it answers, but not as expected: {exc}")
        else:
            last = system
            verdict = judge(system)
            if verdict.verdict is Verdict.OPEN:
                if prove and was_open and not known_hosts.shows_one_of(system.host_keys):
                    # The keys were made after we had come in; the next contact shows the new one.
                    remote.close()
                    continue
                if prove:
                    known_hosts.prove(system.boot_id)
                return system
        seen[verdict.why] = seen.get(verdict.why, 0) + 1
        if verdict.verdict is Verdict.NEVER:
            raise GateClosed(verdict.why, last, verdict.final)
        if verdict.verdict is Verdict.WRONG:
            wrong_since = wrong_since or clock()
            if clock() - wrong_since >= STEADY:
                raise GateClosed(f"{verdict.why}, for {STEADY:.0f} s{after}", last)
        waited = clock() - began
        if waited >= timeout:
            raise GateClosed(_summary(what, timeout, seen), last)
        waiting.seen(verdict.why)
        if not verdict.arrived:
            remote.close()
        sleep(min(pause if asked else LOOKS, max(0.0, timeout - waited)))
        if asked:
            pause = min(pause * 1.3, 1.0 if verdict.arrived else 2.0)


def wait_for_port(
    remote: Remote,
    known_hosts: KnownHosts,
    previous_boot_id: str | None,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    any_boot: bool = False,
) -> None:
    """Wait until the SSH port of another boot is open, with any server on it; raises :class:`GateClosed`.

    ``any_boot``: of this boot or another one, since no reboot was requested.
    """
    began = clock()
    waiting = _Waiting(known_hosts.name, "a port of the new system", timeout, clock)
    while True:
        remote.use(known_hosts)
        known_hosts.forget_unproven()
        try:
            if remote.look(any_boot):
                return
            found = system_probe.parse(remote.run(system_probe.SCRIPT)[1])
            if any_boot or found.boot_id != previous_boot_id:
                return
            why = "it did not reboot: the boot seen before still answers"
        except Unreachable as exc:
            if exc.kind in (REFUSED, OTHER_KEY):
                return
            why = _of_unreachable(exc)
        except system_probe.ProbeError:
            return
        remote.close()
        if clock() - began >= timeout:
            raise GateClosed(f"no port of the new system was open within {timeout:.0f} s; at last: {why}", None)
        waiting.seen(why)
        sleep(1.0)


def pass_rescue(remote: Remote, pin: KnownHosts, host_keys: list[str], given: Mapping[str, Any]) -> System:
    """Wait until the rescue answers; the connection is one to it afterwards. Raises :class:`GateClosed`.

    ``host_keys``: the rescue's, when they are known; else the first contact of a boot within a run is pinned.
    ``given``: ``previous_boot_id``, ``addresses`` and ``rescue_timeout`` of the step.
    """
    previous_boot_id, addresses = given["previous_boot_id"] or None, given["addresses"] or ()
    # A boot that we asked for ourselves, or another run's: the next contact is a first one.
    if host_keys:
        pin.require(host_keys)
    elif not pin.of_this_run or pin.boot_id == previous_boot_id:
        pin.forget()
    remote.use(pin)
    known = remote.rescue if remote.is_open else None
    if known and judge_rescue(known, previous_boot_id, addresses).verdict is Verdict.OPEN:
        return known  # a connection does not outlive a boot
    remote.rescue = wait_for(
        remote,
        pin,
        lambda found: judge_rescue(found, previous_boot_id, addresses),
        given["rescue_timeout"],
        "the rescue",
        refusal_stays=True,
    )
    return remote.rescue


def _summary(what: str, timeout: float, seen: dict[str, int]) -> str:
    reasons = list(seen)
    text = f"{what} did not answer within {timeout:.0f} s; at last: {reasons[-1]}"
    # Who refused us matters more than the silence around it.
    telling = [why for why in reasons[:-1] if why.startswith(("another system", "an SSH server", "the system", "it "))]
    return f"{text}; before: {'; '.join(telling[-3:])}" if telling else text


def _of_unreachable(failure: Unreachable) -> str:
    if failure.kind == REFUSED:
        return f"an SSH server answers but refuses our key ({failure.detail}): another system, or not the armed key"
    if failure.kind == OTHER_KEY:
        return "an SSH server answers with a host key that is not the pinned one: another system, or it is intercepted"
    return f"no SSH server answers ({failure.detail})"


def _who(system: System) -> str:
    text = f"hostname {system.hostname!r}, {system.os or 'unknown system'}, boot {system.boot_id}"
    if system.hostname == "rescue" and not system.is_rescue:
        text += f"; it is no rescue: {system.origin.why_no_rescue}"
    return text


# --- unlocking an encrypted system that waits in its initramfs: the passphrase goes to the stdin of ssh, nowhere else.
#
# The SSH server of the initramfs has host keys of its own, which the installation returned. A server with another
# key never gets the passphrase.


#: What cryptroot-unlock says of a passphrase that opens nothing; another try would be as vain.
_WRONG_PASSPHRASE = ("bad password", "maximum number of tries exceeded")
#: What it says of one that opened a device, also when the connection ends before it does.
_OPENED = "set up successfully"
#: Seconds between two tries, and until a system that shows another key is left to the gate of the new system.
PAUSE, OTHER_SYSTEM = 2.0, 60.0


class Way(NamedTuple):
    """How one of the two systems of a machine is reached: its host keys and its login, None for the connection's."""

    known_hosts: KnownHosts
    user: str | None = None
    port: int | None = None
    private_key: str | None = None

    def take(self, remote: Remote) -> None:
        """Speak to this system from now on."""
        remote.log_in(self.user, self.port, self.private_key)
        remote.use(self.known_hosts)


def unlock(
    remote: Remote,
    initramfs: Way,
    system: Way,
    password: str,
    previous_boot_id: str | None,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait for the initramfs, and open every device that it asks for; raises :class:`gate.GateClosed`.

    Returns whether a device was opened; False when the new system runs already. The host keys of ``initramfs`` are
    known in advance.
    """
    began, opened, other_since = clock(), False, None
    waiting = _Waiting(initramfs.known_hosts.name, "the initramfs", timeout, clock)
    known = bool(system.known_hosts.fingerprints())
    # On a port of its own, a system that runs shows nothing where the initramfs was.
    apart = system.port != initramfs.port
    while True:
        initramfs.take(remote)
        try:
            code, said = remote.ask(password.encode())
        except Unreachable as exc:
            if opened:
                # After the last device its SSH server goes away.
                return True
            why = exc.detail
            other_since = (clock() if other_since is None else other_since) if exc.kind == OTHER_KEY else None
            if known and (apart or other_since is not None) and _runs(remote, system, previous_boot_id):
                return False
            if not known and other_since is not None and clock() - other_since >= OTHER_SYSTEM:
                return False
        else:
            other_since, why = None, one_line(said, 300)
            if any(words in said for words in _WRONG_PASSPHRASE):
                raise GateClosed(
                    "the initramfs does not take the passphrase: it is not the one that the disks were encrypted with "
                    f"({why}). Give the right one as kubenode_crypt_password",
                    None,
                    final=True,
                )
            # Each device is asked for on its own.
            opened = opened or code == 0 or _OPENED in said
        if clock() - began >= timeout:
            raise GateClosed(f"the initramfs was not unlocked within {timeout:.0f} s; at last: {why}", None)
        waiting.seen(why)
        sleep(PAUSE)


def _runs(remote: Remote, system: Way, previous_boot_id: str | None) -> bool:
    """Whether the new system runs, which a person unlocked; not the one that goes down."""
    system.take(remote)
    try:
        found = system_probe.parse(remote.run(system_probe.SCRIPT)[1])
    except (Unreachable, system_probe.ProbeError):
        return False
    return found.boot_id != previous_boot_id
