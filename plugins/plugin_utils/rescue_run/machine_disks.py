# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machine_disks does on the controller: gate, look, choose, guard, and only then have disks emptied."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import steps
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts, disk_names, guard
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_names import HintError

from ..records import claims
from ..ssh import gate
from ..ssh.remote import Remote
from . import image_inputs, program_run
from .flow import BadInput, Flow, Host, parse_host_keys

# Needed only for hints with a query.
try:
    import jmespath
    import jmespath.exceptions
except ImportError:  # pragma: no cover - depends on the controller
    MISSING = True
else:
    MISSING = False

#: Seconds after its boot in which a rescue may still find disks: controllers start them one after the other.
SETTLED = 60.0
#: The identity of a disk, and what it held when its emptying was allowed.
_TARGET = ("name", "serial", "wwn", "size", "model", "content_id")


def run(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Look at the disks of one machine in its rescue, and make them ready."""
    flow = host.flow(given)
    findings = [*image_inputs.check_seconds(given, rescue_timeout=0), *image_inputs.check_addresses(given)]
    if given["state"] == "wiped":
        findings += _findings_of_wiping(given)
    elif given["root_device_hints"] or given["state"] == "ready":
        try:
            wanted = disk_names.check(given["root_device_hints"])
            if "query" in wanted:
                check_query(wanted["query"])
        except disk_names.HintError as exc:
            missing = "root_device_hints: missing; name the disks to write, kubenode.provision.robot_inspect lists them"
            findings.append(str(exc) if given["root_device_hints"] else missing)
    words = {
        "wipe": consents.Words("wipe", given["wipe"]),
        "reinstall": consents.Words("reinstall", _as_words(given["reinstall"], flow.name)),
    }
    findings += [*words["wipe"].findings, *words["reinstall"].findings, *guard.check_entries(words["wipe"])]
    if findings:
        raise BadInput(flow.name, findings)
    if host.only_checks:
        return flow.result()
    return _Disks(host.remote, given, flow, words, host.check_mode).result()


def _as_words(reinstall: Any, name: str) -> Any:
    """``true`` names this machine, with any system on it."""
    if isinstance(reinstall, bool) or str(reinstall).lower() in ("true", "false", "yes", "no"):
        return [name] if str(reinstall).lower() in ("true", "yes") else []
    return reinstall


def _findings_of_wiping(given: dict[str, Any]) -> list[str]:
    found = [] if given["wipe"] else ["wipe names no disk; state: wiped empties the disks that it names"]
    if given["root_device_hints"]:
        found.append(
            "root_device_hints choose disks to write; with state: wiped name the disks in wipe, and leave them out"
        )
    return found


class _Failed(Exception):
    """The task cannot go on; ``about``: results that are already known."""

    def __init__(self, message: str, permanent: bool = False, **about: Any) -> None:
        super().__init__(message)
        self.permanent, self.about = permanent, about


class _Disks:
    """The disks of one machine."""

    def __init__(
        self, remote: Remote, given: dict[str, Any], flow: Flow, words: dict[str, consents.Words], check_mode: bool
    ) -> None:
        self._remote, self._given, self._flow = remote, given, flow
        self._words, self._check_mode = words, check_mode
        self._claim = given["claim_file"] or claims.default_file(flow.name)
        self._disks: list[Any] = []

    def result(self) -> dict[str, Any]:
        """Gate, look, choose, guard; always a result, never an exception of the flow."""
        flow, given = self._flow, self._given
        keys = parse_host_keys(given["host_keys"])
        try:
            system = gate.pass_rescue(self._remote, flow.known_hosts("rescue"), keys, given)
        except gate.GateClosed as exc:
            msg = f"{flow.name}: {exc}"
            return flow.result(failed=True, in_rescue=False, permanent=exc.final, msg=msg, **exc.seen)
        about: dict[str, Any] = {"in_rescue": True, "boot_id": system.boot_id, "hostname": system.hostname}
        try:
            about.update(self._found())
        except (_Failed, claims.ClaimError) as exc:
            permanent = isinstance(exc, _Failed) and exc.permanent
            if isinstance(exc, _Failed):
                about.update(exc.about)
            if given["state"] != "facts":
                flow.timeline.to(boot_states.PROVISIONING_FAILED)
            about.update(failed=True, permanent=permanent, msg=f"{flow.name}: {exc}")
        about.update(disks=self._disks, table=disk_facts.disk_lines(self._disks), hints=disk_names.to_copy(self._disks))
        return flow.result(**{"permanent": False, **about})

    def _found(self) -> dict[str, Any]:
        answer = self._look()
        try:
            chosen = self._choose()
            strings = disk_names.strings(chosen, self._disks, self._given["device_strings"])
        except disk_names.HintError as exc:
            raise _Failed(str(exc), exc.permanent) from exc
        except disk_names.Unresolved as exc:
            raise _Failed(str(exc)) from exc
        roots = {
            "root_devices": strings,
            "root_wwns": [disk["wwn"] for disk in chosen],
            "root_by_id": [(disk["by_id"] or [""])[0] for disk in chosen],
        }
        if self._given["state"] == "facts":
            means = f"; the hints mean {', '.join(disk['name'] for disk in chosen)}" if chosen else ""
            count = len(self._disks)
            msg = f"{count} disk{'' if count == 1 else 's'}{means}"
            none = {"wiped": [], "to_empty": [], "found_empty": [], "in_progress": False}
            return {"msg": msg, **none, **roots}
        if self._given["state"] == "wiped":
            return {**roots, **self._wiped(answer["job"])}
        return {**roots, **self._ready(chosen, answer["job"])}

    def _look(self) -> dict[str, Any]:
        """What the disks are; again, while a disk that is looked for may only be late."""
        while True:
            answer = self._call(steps.LOOK, again=True)
            self._disks = answer["disks"]
            try:
                self._choose()
            except disk_names.HintError as exc:
                if exc.permanent and answer["uptime"] < SETTLED:
                    time.sleep(3)
                    continue
            return answer

    def _choose(self) -> list[Any]:
        wanted = self._given["root_device_hints"]
        return disk_names.choose(wanted, self._disks, search_query) if wanted else []

    def _ready(self, chosen: list[Any], job: dict[str, bool]) -> dict[str, Any]:
        given, machine = self._given, self._flow.name
        claimed = claims.covers(self._claim, machine, chosen)
        listed = ", ".join(disk["name"] for disk in chosen)
        if claimed and (job["running"] or job["succeeded"]):
            state = "is writing" if job["running"] else "has written"
            msg = f"{listed}: left as it is, a program that was started in this rescue {state} it"
            none: dict[str, list[Any]] = {"wiped": [], "to_empty": [], "found_empty": []}
            return {"msg": msg, **none, "in_progress": True, "consent": consents.EMPTY}
        slow, notes = self._speeds(chosen) if given["health"] == "speed" else ([], [])
        verdict = guard.judge(
            self._disks,
            [disk["name"] for disk in chosen],
            machine,
            list(self._words["wipe"]),
            self._words["reinstall"].names(machine),
            claimed,
            given["health"] != "ignore",
            self._used,
        )
        for text in slow:
            verdict.refuse(text)
        todo, about = self._allowed(verdict)
        later = given["empty"] == "later"
        if later:
            about.update(changed=False, to_empty=_targets(todo), wiped=[])
        about["found_empty"] = _targets(disk for disk in chosen if not disk["holds"])
        written = {disk["name"] for disk in chosen} | set(verdict.wipe)
        notes += verdict.notes + guard.could_boot(self._disks, written)
        about["warnings"] = [f"{machine}: {text}" for text in notes]
        kinds = [consents.REINSTALL] if self._words["reinstall"].names(machine) else []
        # Also when it did nothing: it must not count for what is written now.
        kinds += [consents.WIPE] if list(self._words["wipe"]) else []
        about["consent"] = consents.joined(*kinds) or consents.EMPTY
        emptied = ", ".join(verdict.wipe)
        if self._check_mode and not later:
            msg = f"would empty {emptied}" if todo else f"{listed}: empty"
            return {"msg": msg, **about}
        # The step that starts a program notes that in an open intent; without one, the claim is begun here.
        noted = claims.is_of_intent(self._claim)
        if not self._check_mode:
            # A run after an interruption finds neither what was there nor that it was allowed to go.
            begun = claims.begun(self._claim) if claimed else not (later or (noted and not todo))
            claims.claim(self._claim, machine, chosen, begun=begun)
        if later and todo:
            return {"msg": f"{emptied}: to be emptied when the installation begins", **about}
        if todo:
            self._wipe(todo, claimed, about)
            if noted:
                # Nothing is lost when it ends here, and what is written there later is not ours.
                claims.claim(self._claim, machine, chosen, begun=False)
        msg = f"{listed}: empty" + (f"; emptied {emptied}" if todo else "")
        return {"msg": msg, **about}

    def _speeds(self, chosen: list[Any]) -> tuple[list[str], list[str]]:
        """What the speed test says against the chosen disks, and what it could not measure."""
        measured = self._call(steps.MEASURE, targets=_targets(chosen))["disks"]
        if len(measured) != len(chosen):
            raise _Failed("the rescue did not tell how fast its disks are; run again")
        return guard.speeds(self._disks, [disk["name"] for disk in chosen], measured)

    def _wiped(self, job: dict[str, bool]) -> dict[str, Any]:
        """The disks that the user named are empty, whether one is to be written or not."""
        if job["running"]:
            raise _Failed("a program that was started in this rescue is still running; nothing was emptied")
        wipe = self._words["wipe"]
        verdict = guard.judge(self._disks, [], self._flow.name, list(wipe), health=False, used=self._used)
        todo, about = self._allowed(verdict)
        about["consent"] = consents.WIPE
        emptied = ", ".join(about["wiped"])
        if todo and not self._check_mode:
            # There is no claim that a failure would have to give back.
            self._wipe(todo, True, about)
        would = "would empty" if self._check_mode else "emptied"
        return {"msg": f"{would} {emptied}" if todo else "the disks are empty", **about}

    def _allowed(self, verdict: guard.Verdict) -> tuple[list[Any], dict[str, Any]]:
        """The disks to empty, and what the result says when they are; _Failed when the guard refuses one."""
        if verdict.errors:
            raise _Failed("\n".join(verdict.errors), verdict.permanent, wiped=[], in_progress=False)
        by_name = {disk["name"]: disk for disk in self._disks}
        todo = [by_name[name] for name in verdict.wipe]
        wiped = [disk_names.stable(disk, self._disks) or disk["name"] for disk in todo]
        about = {"in_progress": False, "changed": bool(todo), "wiped": wiped, "to_empty": [], "found_empty": []}
        return todo, about | ({"diff": guard.diff(self._disks, verdict.wipe)} if todo else {})

    def _used(self, variable: str, name: str, record: dict[str, Any]) -> str:
        words = self._words[variable]
        return "" if words.covers(name, record) else words.why_not(name, record)

    def _wipe(self, todo: list[Any], claimed: bool, about: dict[str, Any]) -> None:
        try:
            self._disks = self._call(steps.WIPE, targets=_targets(todo))["disks"]
        except _Failed as exc:
            if not exc.about.get("begun", True):
                if not claimed:
                    claims.release(self._claim)
                raise _Failed(str(exc), wiped=[], in_progress=False) from exc
            stopped = {**about, "wiped": [], "changed": True}
            raise _Failed(f"the disks were not emptied wholly: {exc}", **stopped) from exc

    def _call(self, step: str, again: bool = False, **request: Any) -> dict[str, Any]:
        """One step on the machine. Looking may be tried again when SSH is lost; emptying is left to the next run."""
        try:
            answer = program_run.call_step(self._remote, step, again, **request)
        except program_run.StepFailed as exc:
            more = {"begun": exc.answer["begun"]} if isinstance(exc.answer.get("begun"), bool) else {}
            raise _Failed(str(exc), **more) from exc
        if not isinstance(answer.get("disks"), list):
            raise _Failed("the rescue did not tell its disks; run again")
        return answer


def _targets(disks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The disks as a step of the rescue takes them."""
    return [{key: disk[key] for key in _TARGET} for disk in disks]


# --- queries over the facts of disks (JMESPath)


def check_query(query: str) -> None:
    """Raise HintError when the query cannot be evaluated on any disks."""
    if MISSING:
        raise HintError(
            "root_device_hints.query needs the Python package jmespath on the controller: pip install jmespath"
        )
    try:
        jmespath.compile(query)
    except jmespath.exceptions.JMESPathError as exc:
        raise HintError(f"root_device_hints.query {query!r} is no JMESPath: {_first_line(exc)}") from exc


def search_query(query: str, disks: list[dict[str, Any]]) -> Any:
    """What the query gives for these facts; raises HintError."""
    check_query(query)
    try:
        return jmespath.search(query, disks)
    except (jmespath.exceptions.JMESPathError, TypeError, ValueError, RecursionError) as exc:
        raise HintError(f"root_device_hints.query {query!r} cannot be evaluated: {_first_line(exc)}") from exc


def _first_line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
