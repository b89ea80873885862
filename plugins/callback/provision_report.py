# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_report
type: aggregate
short_description: Shows where the time of a provisioning run went
version_added: 1.0.0
description:
  - Collects the boot state transitions that the modules of this collection return, whichever task returned them.
  - At the end of the run it prints a table of durations per pair of states (count, average, 50th and 95th percentile,
    minimum, maximum, in seconds), the number of API calls, and every failed machine with its reason and
    the last lines that its image command printed.
  - The roles C(kubenode.provision.base) and C(kubenode.provision.join) are rows of the same table.
  - Writes the same as JSON, with every transition of every machine.
  - An error of the whole run, such as a refused token, is said once, with the hosts that nothing was done with.
  - A run that touched no machine and did not fail prints and writes nothing. One without any host is a warning.
requirements:
  - To be enabled, for example with C(ANSIBLE_CALLBACKS_ENABLED=kubenode.provision.provision_report).
options:
  report_file:
    description:
      - The file the report is written to. An empty value writes none.
      - It is written when the first task begins that makes or boots machines, and as the run goes on, each time whole;
        C(finished) is null until the run has ended.
    type: str
    default: provision-report.json
    env:
      - name: KUBENODE_REPORT_FILE
    ini:
      - section: kubenode_provision
        key: report_file
  report_html:
    description:
      - The same as a page for a browser, one file without scripts that loads nothing. By default it lies beside
        O(report_file), with the end C(.html). An empty value writes none.
      - While the run goes on the page loads itself again every 15 seconds.
    type: str
    env:
      - name: KUBENODE_REPORT_HTML
    ini:
      - section: kubenode_provision
        key: report_html
    version_added: 1.0.0
  metrics_file:
    description:
      - A file that ends in C(.prom), written for the textfile collector of node_exporter. It holds the last run alone,
        and no name of a machine. In check mode nothing is written.
    type: path
    env:
      - name: KUBENODE_METRICS_FILE
    ini:
      - section: kubenode_provision
        key: metrics_file
  metrics_labels:
    description:
      - Labels of every value in O(metrics_file), each as C(name=value). Two files that one node_exporter reads need
        labels that differ.
    type: list
    elements: str
    default: []
    env:
      - name: KUBENODE_METRICS_LABELS
    ini:
      - section: kubenode_provision
        key: metrics_labels
  notify_url:
    description:
      - Address that gets the report as JSON, by one POST at the end of the run. The variable C(kubenode_notify_url) of
        the playbook wins.
      - Nothing of it but scheme and host is shown. A receiver that does not take the report is a warning. In check mode
        nothing is sent.
    type: str
    env:
      - name: KUBENODE_NOTIFY_URL
    ini:
      - section: kubenode_provision
        key: notify_url
  notify_secret:
    description:
      - Signs the POST - the header C(X-Kubenode-Signature) is C(sha256=) and the HMAC-SHA256 of its body. The variable
        C(kubenode_notify_secret) wins.
    type: str
    env:
      - name: KUBENODE_NOTIFY_SECRET
    ini:
      - section: kubenode_provision
        key: notify_secret
  notify_timeout:
    description:
      - Seconds that the POST may take with all its tries. The variable C(kubenode_notify_timeout) wins.
    type: float
    default: 10
    env:
      - name: KUBENODE_NOTIFY_TIMEOUT
    ini:
      - section: kubenode_provision
        key: notify_timeout
  currency:
    description:
      - Currency of the project's prices. The lists of server types do not have it, and no request is sent for it.
    type: str
    default: EUR
    env:
      - name: KUBENODE_CURRENCY
    ini:
      - section: kubenode_provision
        key: currency
author:
  - kubenode.provision authors (@kubenode)
"""

import atexit
import contextlib
import functools
import gc
import importlib.util
import math
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible import context
from ansible.plugins.callback import CallbackBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, installed
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    counted,
    json_object,
    listed,
    spaced,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display, module_progress
from ansible_collections.kubenode.provision.plugins.plugin_utils.report import exports, report_files, results
from ansible_collections.kubenode.provision.plugins.plugin_utils.report.results import Report, figures, where

#: Where this collection's playbooks are.
_PLAYBOOKS = os.path.realpath(Path(__file__).parents[2] / "playbooks")
#: The oldest version of hetzner.hcloud whose inventory is right.
_HCLOUD = "6.10"
#: Hosts in whose name a playbook works on images and the like.
_NO_MACHINES = frozenset(["localhost", "127.0.0.1"])
_ROLES = {"kubenode.provision.base": "base", "kubenode.provision.join": "join"}
#: Seconds that all workers may take to end when the run is ended.
_LAST_WORDS = 5.0
#: Temporary machines that node images are made on.
_BUILDER = re.compile(r"kubenode-image-[0-9a-f]{12}(-t)?\Z")
_QUARANTINE = "kubenode.provision.machine_quarantine"
#: What makes or boots machines, and may take minutes before it says anything.
_OF_MACHINES = frozenset(
    f"kubenode.provision.{name}" for name in ("hcloud_machine", "hcloud_rescue", "robot_rescue", "machine_install")
)
_DRAIN = "kubenode.provision.cluster_drain"
_DELETE_NODE = "kubenode.provision.cluster_node"
#: What an interruption may have stopped half way; what comes before it only looks.
_CHANGES = _OF_MACHINES | {_DRAIN, _DELETE_NODE, "kubenode.provision.machine_boot"}


def _is_ours(task: Any) -> bool:
    """Whether a task stands in a playbook of this collection."""
    return os.path.realpath(str(task.get_path() or "")).startswith(_PLAYBOOKS + os.sep)


def _as_found(data: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a failed look ahead, of the machines that it refuses: what it says of changes was not done."""
    found = {**data, "changed": False}
    if isinstance(data.get("machines"), list):
        refused = [one for one in data["machines"] if isinstance(one, Mapping) and one.get("failed")]
        found["machines"] = [{**one, "changed": False} for one in refused]
    return found


def _chosen_tags() -> list[str]:
    """What ``--tags`` names, when that may be less than all."""
    return [str(tag) for tag in context.CLIARGS.get("tags") or () if tag != "all"]


def _nothing_done(pattern: str, has_hosts: bool = False) -> str:
    """What to say of a run without hosts or tasks, which ends well as far as Ansible is concerned."""
    if has_hosts and context.CLIARGS.get("start_at_task"):
        return f"nothing was done: no task of this playbook has the name '{context.CLIARGS['start_at_task']}'"
    if has_hosts and _chosen_tags():
        return (
            "nothing was done: no task of this playbook, but for those that check and lock, has the tags "
            f"{', '.join(_chosen_tags())}"
        )
    sources = [str(source) for source in context.CLIARGS.get("inventory") or ()]
    text = (
        f"nothing was done: no host of the inventory {', '.join(sources) or '(none given)'} is in the pattern {pattern}"
    )
    if any(source.endswith(("hcloud.yml", "hcloud.yaml")) for source in sources):
        version = _version_of_hcloud()
        text += f". hetzner.hcloud before {_HCLOUD} may find no server; here it is {version or 'not installed'}"
    return text


def _version_of_hcloud() -> str:
    """The version of the collection hetzner.hcloud; empty when there is none."""
    with contextlib.suppress(ImportError, OSError, ValueError, KeyError, TypeError, StopIteration):
        found = importlib.util.find_spec("ansible_collections.hetzner.hcloud")
        folder = next(iter(found.submodule_search_locations or ())) if found else ""
        manifest = json_object(Path(folder, "MANIFEST.json").read_text(encoding="utf-8")) or {}
        return str(manifest["collection_info"]["version"])
    return ""


def _end_workers() -> None:
    """End the workers of Ansible: one that still writes the report would replace the last one."""
    workers = multiprocessing.active_children()
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _LAST_WORDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        worker.kill()
        worker.join()


class CallbackModule(CallbackBase):
    """Collects transitions from all task results and reports at the end of the run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kubenode.provision.provision_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._files = report_files.ReportFiles(self._about, display.warning, time.time())
        self._report = self._files.report
        self._begun: dict[tuple[str, str], float] = {}
        self._play: Any = None
        #: The hosts of the first play of ours.
        self._pattern = ""
        self._inventory: Any = None
        #: Whether a task was begun that tags can leave out.
        self._is_begun = False
        #: Whether a playbook of ours has begun to change something.
        self._is_changing = False
        #: Host → its Node that takes no pods until the run ends; empty while it is drained.
        self._cordoned: dict[str, str] = {}
        self._exports = exports.Exports(self.get_option, self._say, self._display.warning)
        self._process, self._ended = os.getpid(), False
        atexit.register(self._interrupted)
        # What is left then ends with the process; looking through all of it takes as long as the last tasks of a run.
        atexit.register(gc.freeze)

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self._files.place(self.get_option("report_file"), self.get_option("report_html"))
        self._files.notify_url = str(self.get_option("notify_url") or "")
        report_files.begin(self._files)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._ended = False  # a command may name several playbooks
        # Ansible's own handler, or the kernel, ends the process at once: no function of atexit runs then.
        for number in (signal.SIGTERM, signal.SIGHUP):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                signal.signal(number, functools.partial(self._terminated, before))

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._exports.play(play)
        self._play = play
        if not self._pattern and _is_ours(play):
            self._pattern = str(play.hosts if isinstance(play.hosts, str) else ",".join(play.hosts))
            self._inventory = play.get_variable_manager()._inventory

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._is_begun = self._is_begun or "always" not in task.tags
        # The hosts of a play are known once it has begun.
        if self._play is not None and _is_ours(task):
            inventory = self._play.get_variable_manager()._inventory
            self._report.hosts.update({host.name for host in inventory.get_hosts(self._play.hosts)} - _NO_MACHINES)
        self._play = None
        looks_ahead = task.check_mode and not context.CLIARGS.get("check", False)
        if task.resolved_action in _OF_MACHINES and not looks_ahead:
            self._files.begin()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._begun[host.get_name(), task._uuid] = time.time()
        if self._pattern and task.resolved_action in _CHANGES and not task.check_mode:
            self._is_changing = True
            if task.resolved_action == _DRAIN:
                self._cordoned.setdefault(host.get_name(), "")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._forget_drain(result._host.get_name())

    def _forget_drain(self, host: str) -> None:
        """Forget a drain that has not cordoned its Node."""
        if not self._cordoned.get(host):
            self._cordoned.pop(host, None)

    def _note_changes(self, action: str, host: str, data: Mapping[str, Any]) -> None:
        """Take from a result what an interruption after it leaves."""
        self._is_changing = self._is_changing or bool(self._pattern and data.get("changed"))
        if action == _DRAIN and data.get("own_cordon") and data.get("unschedulable"):
            self._cordoned[host] = spaced(data.get("name"), 253)
        elif (action == _DRAIN and "unschedulable" in data) or (action == _DELETE_NODE and data.get("changed")):
            self._cordoned.pop(host, None)
        else:
            self._forget_drain(host)

    def _collect(self, result: Any, failed: bool = False) -> None:
        data = result._result  # the only access that every supported ansible-core has
        looks_ahead = result._task.check_mode and not context.CLIARGS.get("check", False)
        if looks_ahead and not failed:
            return  # a look in a run that changes things: what becomes of the machine follows
        if looks_ahead:
            data = _as_found(data)
        if result._task.resolved_action == _QUARANTINE and not failed:
            return  # what it changes is a note of this controller, and no machine
        self._phase(result, failed)
        host = result._host.get_name()
        if not result._task.check_mode:
            self._note_changes(result._task.resolved_action, host, data)
        if data.get("_ansible_no_log"):
            return
        # What fails in a task for all hosts is no error of the first one, in whose name it is reported.
        ours = _is_ours(result._task)
        of_all = failed and ours and (result._task.run_once or host in _NO_MACHINES)
        self._files.note(host, data, failed=failed and not of_all, ours=ours)
        if of_all:
            self._report.fail(data)

    def _phase(self, result: Any, failed: bool) -> None:
        role = getattr(result._task, "_role", None)
        name = _ROLES.get(role.get_name() if role else "")
        # The checks of a role's variables come long before the role itself, for all machines.
        checks = getattr(role, "_from_files", None) == {"tasks": "inputs"}
        if not name or (checks and not failed):
            return
        host, now = result._host.get_name(), time.time()
        hidden = result._result.get("_ansible_no_log")
        reason = "a task that shows no output failed" if hidden else result._result.get("msg") or "task failed"
        began = self._begun.pop((host, result._task._uuid), now)
        if not failed and _comes_always(result._task):
            return  # it follows what failed, too
        changed = bool(result._result.get("changed"))
        self._report.phase(host, name, began, now, changed=changed, failed=str(reason) if failed else None)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._collect(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._collect(result, failed=not ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._collect(result, failed=not result._task.ignore_unreachable)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._ended = True
        by_tags = _chosen_tags() and not (self._is_begun or stats.failures or stats.dark)
        if self._pattern and (by_tags or not stats.processed):
            self._display.warning(_nothing_done(self._pattern, bool(self._inventory.get_hosts(self._pattern))))
        if not self._report:
            if self._files.is_begun:
                self._files.end(self._files.data(time.time(), final=True))
            return
        data = self._files.data(time.time(), final=True)
        title = "PROVISION REPORT (check mode: nothing was changed)" if data["check"] else "PROVISION REPORT"
        if display.for_programs():
            self._say(title)
        else:
            self._display.banner(title)
        for line in table(self._report, data["check"], any(stats.changed.values())):
            self._say(line)
        if data["cost"]:
            self._say(results.cost_line(data["cost"]))
        for path in self._files.end(data):
            self._say(f"Report: {path}")
        self._exports.send(data)

    def _say(self, line: str) -> None:
        """A line for people: not to a stdout that programs read."""
        self._display.display(line, stderr=display.for_programs())

    def _interrupted(self) -> None:
        """Write and send what is known of a run that was interrupted."""
        has_report = bool(self._report or self._files.is_begun)
        if (has_report or self._is_changing) and not self._ended and os.getpid() == self._process:
            self._ended = True
            _end_workers()
            self._files.take_back()
            module_progress.take_rest(C.DEFAULT_LOCAL_TMP)
            if has_report:
                data = self._files.data(time.time(), final=True, interrupted=True)
                for path in self._files.end(data):
                    self._say(f"Report: {path}")
                self._exports.send(data)
            for line in [*_after_interruption(self._report.machines), *_still_cordoned(self._cordoned)]:
                self._say(line)

    def _terminated(self, before: Any, number: int, frame: Any) -> None:
        """Do the same for a run that a signal ends, and let it end as it would have: by ``before`` or the signal."""
        try:
            if os.getpid() == self._process:
                _end_workers()
                self._interrupted()
        finally:
            if callable(before):
                before(number, frame)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _about(self, data: results.Collected, now: float) -> dict[str, Any]:
        return {
            "cost": results.cost_of(data["machines"], now, self.get_option("currency")),
            "check": bool(context.CLIARGS.get("check", False)),
        }


def _after_interruption(machines: Iterable[results.Machine]) -> list[str]:
    """What the same command does next. Machines that images are made on are not gone on with, and cost until then."""
    builders = [machine for machine in machines if _BUILDER.match(machine["name"])]
    left = [machine for machine in builders if machine["id"] and not machine["removed"]]
    lines = _at_most(
        f"{machine['name']} (id {machine['id']}) is still there; the same command removes it and begins again."
        for machine in left
    )
    if not builders:
        lines = ["Run the same command again: it goes on where this one was."]
    elif not left:
        lines = ["Run the same command again: it makes the images that are missing."]
    return [f"The run was interrupted. {lines[0]}", *lines[1:]]


def _still_cordoned(nodes: Mapping[str, str]) -> list[str]:
    """Which Nodes take no pods. ``nodes``: of each host, empty where the drain was not heard of any more."""
    return _at_most(
        f"The Node {node} stays cordoned until then. To give that up: kubectl uncordon {node}"
        if node
        else f"The Node of {host} may be cordoned until then; kubectl get nodes shows it."
        for host, node in nodes.items()
    )


# --- the report as the table that a person reads at the end of a run (pure)

#: Lines of what a failed program printed last that are shown, and of how many machines.
SHOWN = 10
TAILS = 3
#: Machines that are named where more than these would bury the rest.
NAMED = 20
_HEADS = ("count", "avg", "p50", "p95", "min", "max")


def table(report: Report, check: bool = False, touched: bool = False) -> list[str]:
    """The lines a person reads at the end of a run.

    ``check``: it only says what would be changed; ``touched``: a task of it has changed something.
    """
    changed = "would be changed" if check else "changed"
    lines = _errors(report) + _durations(report)
    if report.machines:
        lines += _machines(report, changed, touched)
    return lines + _nodes(report, changed)


def _errors(report: Report) -> list[str]:
    """Why the run as a whole failed, and which hosts it did not come to; each is said once."""
    left = report.not_attempted()
    if not (report.errors or left):
        return []
    before = "" if report.machines or report.phases() else " before any machine"
    lines = [f"Run failed{before}: {text}" for text in report.errors]
    if left:
        lines.append(f"Not attempted: {listed([spaced(name, 63) for name in left], NAMED)}")
    return [*lines, ""]


def _durations(report: Report) -> list[str]:
    """Seconds of each step over all machines, and of the whole way."""
    rows: list[tuple[str, Mapping[str, Any]]] = []
    rows += [(f"{step['from'] or '(none)'} → {step['to']}", step) for step in report.durations()]
    # What a machine spends in a state that it does not leave, as in the rescue of an inspection, is not known.
    ends = (boot_states.OPERATING_SYSTEM_RUNNING, boot_states.PROVISIONING_FAILED)
    ended = [machine for machine in report.machines if machine["transitions"] and machine["boot_state"] in ends]
    totals = {machine["name"]: machine["seconds"] for machine in ended}
    spent: dict[str, list[float]] = {}
    for phase in report.phases():
        spent.setdefault(phase["phase"], []).append(phase["seconds"])
        totals[phase["machine"]] = totals.get(phase["machine"], 0) + phase["seconds"]
    rows += [(role, figures(seconds)) for role, seconds in spent.items()]
    if not rows:
        return []
    if totals:
        rows.append(("whole machine", figures(list(totals.values()))))
    width = max(len("seconds"), *(len(label) for label, _row in rows))
    lines = ["seconds".ljust(width) + "".join(head.rjust(9) for head in _HEADS)]
    for label, row in rows:
        lines.append(f"{label.ljust(width)}{row['count']:9d}" + "".join(f"{row[head]:9.1f}" for head in _HEADS[1:]))
    return [*lines, ""]


def _comes_always(task: Any) -> bool:
    """Whether a task belongs to the always section of a block."""
    one, block = task, task._parent
    while block is not None:
        if one._uuid in [other._uuid for other in getattr(block, "always", None) or ()]:
            return True
        one, block = block, block._parent
    return False


def _machines(report: Report, changed_in_words: str, touched: bool) -> list[str]:
    machines = report.machines
    # A half goes up: 0.25 said as 0.2 is less than was asked.
    per_machine = math.floor(10 * report.api_calls / len(machines) + 0.5) / 10
    failed = [machine for machine in machines if machine["failed"]]
    booted = [
        machine
        for machine in machines
        if machine["boot_state"] == boot_states.OPERATING_SYSTEM_RUNNING and not machine["removed"]
    ]
    running = [machine for machine in booted if not machine["failed"]]
    # Base or join may have failed on a system that is proven.
    later = sum(bool(machine["failed"] and machine["verified"]) for machine in booted)
    removed = [machine for machine in machines if machine["removed"]]
    verified = [machine for machine in running if machine["verified"]]
    unverified = [machine for machine in running if machine["verified"] is False]
    drifted = [machine for machine in machines if machine["drift"]]
    changed = sum(machine["changed"] for machine in machines)
    ended = [machine for machine in machines if machine in running or machine["failed"] or machine["removed"]]
    unfinished = len(machines) - len(ended) if report.errors else 0
    lines = [
        f"API calls: {report.api_calls} in all, {per_machine:.1f} per machine",
        f"Machines: {len(machines)}, {len(verified)} running a verified system, {changed} {changed_in_words}, "
        f"{len(failed)} failed"
        + (f" ({later} of them on a verified system)" if later else "")
        + (f", {len(removed)} removed" if removed else "")
        + (f", {unfinished} not finished" if unfinished else ""),
    ]
    if len(machines) <= NAMED:
        lines += [f"  {spaced(one['name'], 63)}: {_where(one)}" for one in machines if _where(one)]
    if unverified:
        lines.append(f"Not verified: {listed([spaced(one['name'], 63) for one in unverified], NAMED)}")
    used = [machine for machine in machines if machine["used"] and not machine["failed"]]
    lines += _at_most(
        f"  {spaced(machine['name'], 63)} {spaced(installed.drift_in_words(machine['drift']), 1000)}"
        for machine in drifted
    )
    lines += _at_most(f"  {spaced(machine['name'], 63)}: {spaced(machine['used'])}" for machine in used)
    elsewhere = [machine for machine in machines if machine["instead"]]
    lines += _at_most(f"  {spaced(machine['name'], 63)} is {machine['instead']}" for machine in elsewhere)
    lines += _at_most(f"  warning: {text}" for machine in machines for text in machine["warned"])
    if report.errors or changed or failed or any(phase["changed"] or phase["failed"] for phase in report.phases()):
        touched = True
    if not (touched or unverified or drifted or used):
        lines.append("Nothing changed.")
    for place, machine in enumerate(failed):
        lines.append(f"  {spaced(machine['name'], 63)} failed: {machine['reason']}")
        lines += [f"    {line}" for line in machine["interleaved_tail"][-SHOWN:] if place < TAILS]
    return lines


def _where(machine: results.Machine) -> str:
    return ", ".join(text for text in ("removed" if machine["removed"] else "", where(machine)) if text)


def _at_most(given: Iterable[str]) -> list[str]:
    lines = list(given)
    return lines if len(lines) <= NAMED else [*lines[:NAMED], f"  and {len(lines) - NAMED} more, see the report"]


def _nodes(report: Report, changed_in_words: str) -> list[str]:
    """What became of the roles of the node phase."""
    lines = []
    phases = report.phases()
    for role in dict.fromkeys(phase["phase"] for phase in phases):
        mine = [phase for phase in phases if phase["phase"] == role]
        failed = [phase for phase in mine if phase["failed"]]
        changed = sum(phase["changed"] for phase in mine)
        lines.append(f"{role}: {counted(len(mine), 'machine')}, {changed} {changed_in_words}, {len(failed)} failed")
        lines += [f"  {spaced(phase['machine'], 63)} failed: {phase['reason']}" for phase in failed]
    return lines
