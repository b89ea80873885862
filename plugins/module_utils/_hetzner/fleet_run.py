# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""All machines of a fleet at once: what a module does with them, their news, and one result for each of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.parameters import remove_values

from .._common import boot_states
from .._common.names import machine_error
from .._common.option_values import in_variables
from .._common.own_run import own_run_of, run_options
from .._common.text import from_rfc3339, shortened
from .action_board import ActionFailed
from .api_failures import ApiError, Client, FleetError, MachineError, NoAnswer, Refused, TimeLimit
from .api_types import Machine

#: Threads mostly wait, so that every machine of a usual fleet has one of its own.
MOST_THREADS = 1000
#: What the news of a machine that exists say of it besides its number and address, as far as its result does; and
#: characters of a text of that.
_OF_A_SERVER = ("status", "server_type", "location", "instead", "price_hourly", "price_monthly", "server_created")
_LONGEST = 253


class Run(Protocol):
    """What happens to one machine, or to one image."""

    result: dict[str, Any]

    def fail(self, error: Exception) -> None:
        """It failed."""


AnyRun = TypeVar("AnyRun", bound=Run)


class MachineRun:
    """What happens to one machine: its time line and the result that grows with it."""

    def __init__(self, name: str, state: str = boot_states.UNSET, since: float | None = None) -> None:
        self.name = name
        self.timeline = boot_states.Timeline(name, state=state, since=since)
        self.result: dict[str, Any] = {"name": name, "failed": False, "changed": False, "msg": ""}
        #: Says what is waited for while the boot state is the same.
        self.says: Callable[[str], None] = lambda text: None

    @classmethod
    def going_on(cls, machine: Machine) -> MachineRun:
        """The run of a machine as a module of this collection returned it, or as a user named it."""
        since = machine.get("boot_state_since")
        try:
            return cls(
                machine["name"],
                state=machine.get("boot_state") or boot_states.UNSET,
                since=from_rfc3339(since) if since else None,
            )
        except (ValueError, AttributeError) as error:
            raise FleetError(
                f"machine '{machine['name']}': boot_state or boot_state_since is none a module of this collection "
                f"returned ({error}); leave both out"
            ) from error

    def fail(self, error: object, provisioning: bool = True) -> None:
        """The machine failed; a refusal left it as it was and is no change of its boot state."""
        self.result.update(failed=True, msg=str(error))
        if "permanent" in self.result:
            self.result["permanent"] = getattr(error, "permanent", False)
        if provisioning and not isinstance(error, Refused):
            self.timeline.to(boot_states.PROVISIONING_FAILED)

    def show(self) -> None:
        """Let the news say what the result knows by now, though the boot state is the same."""
        if self.timeline.heard is not None:
            self.timeline.heard(self.timeline.state)

    def finish(self, api_calls: int) -> dict[str, Any]:
        """The result with everything every fleet module returns."""
        return dict(self.result, api_calls=api_calls, **self.timeline.result())


class News:
    """Appends to a file. An error of writing it stops no machine."""

    def __init__(self, path: str, api: Client, masked: Callable[[str], str] = str) -> None:
        """``masked``: a text without secrets. Raises FleetError when the file cannot be opened."""
        self._api, self._masked = api, masked
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FleetError(f"progress_file: '{path}' cannot be written: {error.strerror}") from error

    def follow(self, run: MachineRun) -> None:
        """Write every change of the boot state of a machine from now on, and its present one."""
        run.timeline.heard = lambda state: self.write(run, state=state)
        run.says = lambda text: self.write(run, text=text)
        self.write(run)

    def plan(self, text: str) -> None:
        """One line about all machines: what is ahead."""
        self._append({"plan": text})

    def requests(self, made: int) -> None:
        """One line about the requests: so many until now."""
        self._append({"made": made})

    def write(self, run: MachineRun, state: str | None = None, ended: bool = False, text: str = "") -> None:
        """One line about a machine."""
        budget = getattr(self._api, "budget", None)
        remaining = budget.remaining() if budget is not None else math.inf
        line = {
            "machine": run.name,
            "state": run.timeline.state if state is None else state,
            "text": self._masked(run.result.get("msg", "") if ended else text),
            "ended": ended,
            "failed": bool(ended and run.result.get("failed")),
            "changed": bool(run.result.get("changed")),
            "known": self._known(run.result),
            "requests": {
                "made": self._api.calls,
                "limit": budget.limit if budget is not None else None,
                "remaining": max(0, math.floor(remaining)) if math.isfinite(remaining) else None,
            },
        }
        self._append(line)

    def _known(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a machine that exists: a run that is interrupted has no other result of it."""
        number = result.get("id") or result.get("server_number")
        if not number:
            return {}
        address = result.get("address") or result.get("ipv4") or result.get("ipv6_address")
        known = {"id": number, "address": address, **{key: result[key] for key in _OF_A_SERVER if key in result}}
        return {
            key: self._masked(shortened(value, _LONGEST)) if isinstance(value, str) else value
            for key, value in known.items()
            if isinstance(value, (str, int, float))
        }

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode("ascii") + b"\n"
        with self._lock:
            try:
                os.write(self._file, data)
            except OSError:
                return


def run_all(api: Client, runs: Sequence[AnyRun], work: Callable[[AnyRun], None], last: bool = True) -> None:
    """Call ``work(run)`` for all machines at once; a machine's error is its own, any other one ends everything.

    ``last``: no other work of this call follows for a machine that has not failed.
    """
    news = getattr(api, "news", None)
    waiting: queue.SimpleQueue[AnyRun] = queue.SimpleQueue()
    fatal: list[Exception] = []
    for run in runs:
        waiting.put(run)

    def worker() -> None:
        while True:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if news is not None:
                    news.follow(run)
                work(run)
            except (MachineError, ApiError, NoAnswer) as error:
                run.fail(explain(error))
            except Exception as error:  # noqa: BLE001 - a thread has no caller; it is raised below
                fatal.append(error)
                api.stop(error if isinstance(error, FleetError) else FleetError("another machine's step broke"))
            if news is not None and (last or run.result["failed"]):
                news.write(run, ended=True)

    # Daemons, so that nothing goes on when the module is interrupted.
    threads = [threading.Thread(target=worker, daemon=True) for _run in runs[:MOST_THREADS]]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        api.stop(FleetError("interrupted"))
        raise
    if fatal:
        raise next((error for error in fatal if not isinstance(error, FleetError)), fatal[0])


@contextlib.contextmanager
def noted(result: dict[str, Any], **more: Any) -> Generator[None, None, None]:
    """Notes in a result that something is changed, before the request; one that was refused takes it back.

    A request whose outcome is not known counts as a change: what it may have made is there to be looked at.
    """
    said = {"changed": True, **more}
    before = {key: result[key] for key in said if key in result}
    result.update(said)
    try:
        yield
    except (ApiError, MachineError) as error:
        if error.refused:
            for key in said.keys() - before.keys():
                del result[key]
            result.update(before)
        raise


def explain(error: Exception) -> Exception:
    """The error with the way out, where the API's own message does not name one."""
    passing = isinstance(error, (ActionFailed, NoAnswer, TimeLimit))
    hint = _HINTS.get(getattr(error, "code", ""), "Run again" if passing else "")
    return MachineError(f"{error}. {hint}") if hint else error


_HINTS = {
    "resource_unavailable": "The type is out of stock there: choose another location or server_type, or try later",
    "placement_error": "No host fits: choose another location or server_type, or leave out placement_group",
    "resource_limit_exceeded": "The project's limit is reached: delete something, or ask Hetzner for a higher limit",
    "uniqueness_error": (
        "A server of this name exists, which was not there a moment ago: if another run made it, wait for its end and "
        "run again; else delete it, rename the machine, or set adopt to true"
    ),
    "protected": "It is protected: take the protection off first",
}


def name_findings(machines: Iterable[Machine]) -> list[str]:
    """Everything that is wrong with the names of ``machines`` (dictionaries), as a list of sentences."""
    findings, seen = [], set()
    for position, machine in enumerate(machines):
        name = machine.get("name")
        if not isinstance(name, str) or not name:
            findings.append(f"machines[{position}].name: missing; every machine needs a name")
            continue
        error = machine_error(name)
        if error is not None:
            findings.append(f"machines[{position}].name: {name[:100]!r}: {error}")
        if name in seen:
            findings.append(f"machines[{position}].name: '{name}' is named twice; names must be unique")
        seen.add(name)
    return findings


def refuse_findings(findings: Sequence[str]) -> None:
    """Fail the whole fleet when there are findings."""
    if findings:
        raise FleetError(f"nothing was changed, because of: {'; '.join(findings)}")


def progress_options() -> dict[str, Any]:
    """The argument spec of the documentation fragment ``hetzner.progress``; ``progress`` is for the action plugin."""
    return {
        **run_options(),
        "progress": {"type": "str", "choices": ["fleet", "lines", "none"]},
        "progress_file": {"type": "path"},
    }


def run_fleet(
    module: AnsibleModule,
    work: Callable[[Any], list[dict[str, Any]]],
    open_api: Callable[[AnsibleModule], Any],
    items: str = "machines",
) -> None:
    """Open the API, do the work with it, and end the module with the results of that, under the key ``items``."""
    own_run = own_run_of(module.params)
    api: Any = None
    variables = module.params.get("variables")
    try:
        api = open_api(module)
        api.own_run = own_run
        if module.params.get("progress_file"):
            api.news = News(module.params["progress_file"], api, lambda text: remove_values(text, module.no_log_values))
        results = work(api)
    except (FleetError, MachineError, ApiError, NoAnswer) as error:
        # Errors of one machine's requests end in its result. What comes here is of a request for all of them.
        text = str(error) if isinstance(error, FleetError) else f"a request for all {items} failed: {error}"
        module.fail_json(
            msg=in_variables(text, variables), api_calls=api.calls if api is not None else 0, **{items: []}
        )
    for result in results:
        if result["failed"]:
            result["msg"] = in_variables(result["msg"], variables)
        if "warning" in result:
            module.warn(f"{result['name']}: {result.pop('warning')}")
    outcome = summary(results, items)
    outcome["api_calls"] = api.calls
    budget = getattr(api, "budget", None)
    if budget is not None and budget.known:
        left = max(0, int(budget.remaining()))
        outcome["api_budget"] = {"api": "hcloud", "limit": budget.limit, "remaining": left}
    failed = [result for result in results if result["failed"]]
    if failed and module.params["on_error"] == "fail":
        why = "; ".join(f"{result['name']}: {result['msg']}" for result in failed)
        module.fail_json(msg=f"{len(failed)} of {len(results)} {items} failed: {why}", **outcome)
    module.exit_json(**outcome)


def difference(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What diff mode shows of one machine or image."""
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def summary(results: list[dict[str, Any]], items: str = "machines") -> dict[str, Any]:
    """The module's result: what became of each, whether anything changed, and all differences."""
    diffs = [result.pop("diff") for result in results if "diff" in result]
    return {items: results, "changed": any(result["changed"] for result in results), "diff": diffs}
