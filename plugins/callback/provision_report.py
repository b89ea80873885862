# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_report
type: aggregate
short_description: Shows where the time of a provisioning run went
version_added: 0.1.0
description:
  - Collects the boot state transitions that the modules of this collection return, whichever task returned them.
  - At the end of the run it prints a table of durations per pair of states (count, average, 50th and 95th percentile,
    minimum, maximum, in seconds), the number of API calls, and every failed machine with its reason and
    the last lines that its image command printed.
  - The roles C(kubenode.provision.base) and C(kubenode.provision.join) are rows of the same table.
  - Writes the same as JSON, with every transition of every machine.
  - A run that provisioned nothing prints and writes nothing.
requirements:
  - To be enabled, for example with C(ANSIBLE_CALLBACKS_ENABLED=kubenode.provision.provision_report).
options:
  report_file:
    description: The file the report is written to. An empty value writes none.
    type: path
    default: provision-report.json
    env:
      - name: KUBENODE_REPORT_FILE
    ini:
      - section: kubenode_provision
        key: report_file
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
      - Currency of the project's prices. The lists of server types do not tell it, and nothing is asked for it.
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
import json
import os
import tempfile
import time

from ansible import context
from ansible.plugins.callback import CallbackBase

from ansible_collections.kubenode.provision.plugins.module_utils import _states
from ansible_collections.kubenode.provision.plugins.plugin_utils import _cost, _others, _report

_ROLES = {"kubenode.provision.base": "base", "kubenode.provision.join": "join"}


class CallbackModule(CallbackBase):
    """Collects transitions from all task results and reports at the end of the run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kubenode.provision.provision_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._report = _report.Report()
        self._started = time.time()
        self._begun: dict[tuple[str, str], float] = {}
        self._others = _others.Others(self.get_option, self._display.display, self._display.warning)
        self._process, self._ended = os.getpid(), False
        atexit.register(self._interrupted)

    def v2_playbook_on_play_start(self, play) -> None:
        self._others.play(play)

    def v2_runner_on_start(self, host, task) -> None:
        self._begun[host.get_name(), task._uuid] = time.monotonic()

    def _collect(self, result, failed: bool = False) -> None:
        data = result._result  # the only access that every supported ansible-core has
        self._phase(result, failed)
        if data.get("_ansible_no_log"):
            return
        self._report.add(result._host.get_name(), data, failed=failed)

    def _phase(self, result, failed: bool) -> None:
        role = getattr(result._task, "_role", None)
        name = _ROLES.get(role.get_name() if role else "")
        if not name:
            return
        host, now = result._host.get_name(), time.monotonic()
        hidden = result._result.get("_ansible_no_log")
        reason = "a task that shows no output failed" if hidden else result._result.get("msg") or "task failed"
        began = self._begun.pop((host, result._task._uuid), now)
        changed = bool(result._result.get("changed"))
        self._report.phase(host, name, began, now, changed=changed, failed=str(reason) if failed else None)

    def v2_runner_on_ok(self, result) -> None:
        self._collect(result)

    def v2_runner_on_failed(self, result, ignore_errors=False) -> None:
        self._collect(result, failed=not ignore_errors)

    def v2_runner_on_unreachable(self, result) -> None:
        self._collect(result, failed=True)

    def v2_playbook_on_stats(self, stats) -> None:
        self._ended = True
        if not self._report:
            return
        self._display.banner("PROVISION REPORT")
        for line in _report.table(self._report):
            self._display.display(line)
        data = self._data()
        if data["cost"]:
            self._display.display(_cost.line(data["cost"]))
        path = self.get_option("report_file")
        if path:
            self._write(path, data)
        self._others.tell(data)

    def _interrupted(self) -> None:
        """Of a run that ended before its end, others hear as well."""
        if self._report and not self._ended and os.getpid() == self._process:
            self._ended = True
            self._others.tell({**self._data(), "interrupted": True})

    def _data(self) -> dict:
        data, now = self._report.as_dict(), time.time()
        return {
            **data,
            "cost": _cost.of(data["machines"], now, self.get_option("currency")),
            "check": bool(context.CLIARGS.get("check", False)),
            "started": _states.to_rfc3339(self._started),
            "finished": _states.to_rfc3339(now),
        }

    def _write(self, path: str, data: dict) -> None:
        path = os.path.abspath(path)
        try:
            write_json(path, data)
        except OSError as error:
            self._display.warning(f"The provisioning report could not be written to {path}: {error.strerror}")
        else:
            self._display.display(f"Report: {path}")


def write_json(path: str, data: dict) -> None:
    """Write ``data`` to ``path`` in one step, so that a reader never sees half a report."""
    handle, scratch = tempfile.mkstemp(prefix=".provision-report-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(data, stream, indent=2, ensure_ascii=False)
            stream.write("\n")
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
